package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

func newReceiversPause(node *adminFlags) *cobra.Command {
	return newRest(restCommand{node: node, word: "pause", value: throttle.PauseYes, arg: "KEY",
		short: "Ask a receiver nothing for a time",
		long: "Ask a receiver nothing for a time: its sessions are ended after the command that is on the wire. Its\n" +
			"addresses wait; none is lost and none is asked twice for it.",
		example: "  rollcall receivers pause example.net --for 2h --reason \"their postmaster asked\""})
}

func newReceiversDrain(node *adminFlags) *cobra.Command {
	return newRest(restCommand{node: node, word: "drain", value: throttle.PauseDrain, arg: "KEY",
		short: "Open no more sessions to a receiver for a time; those that are open go on to their end",
		long: "Open no more sessions to a receiver for a time. Those that are open go on until they end by themselves.\n" +
			"Its addresses wait; none is lost.",
		example: "  rollcall receivers drain example.net --for 30m --reason maintenance"})
}

func newReceiversResume(node *adminFlags) *cobra.Command {
	return newResume(restCommand{node: node, word: "resume", arg: "KEY",
		short: "End the pause or the drain of a receiver"})
}

// restCommand is a command that rests a receiver or a source, or ends its rest.
type restCommand struct {
	node                 *adminFlags
	word, arg            string
	short, long, example string
	value                throttle.Pause
	key                  func(arg string) (string, error) // makes a key of the argument; nil: it is one
	complete             cobra.CompletionFunc             // nil: keys
}

// keyOf gives the key that is meant by the argument.
func (r restCommand) keyOf(arg string) (string, error) {
	if r.key != nil {
		return r.key(arg)
	}
	return sourceKey(arg), nil
}

func (r restCommand) completion() cobra.CompletionFunc {
	if r.complete != nil {
		return r.complete
	}
	return completeKey(r.node, nil)
}

func newRest(r restCommand) *cobra.Command {
	c := &cobra.Command{Use: r.word + " " + r.arg + " --for DURATION --reason REASON", Short: r.short,
		Long:    r.long,
		Example: r.example, Args: wantArgs(r.arg), ValidArgsFunction: r.completion()}
	asJSON, change := jsonFlag(c), addChangeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		key, err := r.keyOf(args[0])
		if err != nil {
			return err
		}
		s := setting{asJSON: *asJSON, call: admin.OverrideCall{Key: key,
			Fields: map[string]string{throttle.FieldPause.String(): string(r.value)}}}
		return s.run(c, r.node, change)
	}
	return c
}

func newResume(r restCommand) *cobra.Command {
	c := &cobra.Command{Use: r.word + " " + r.arg, Short: r.short, Args: wantArgs(r.arg),
		ValidArgsFunction: r.completion()}
	asJSON := jsonFlag(c)
	reason := c.Flags().String("reason", "", "why, for the operator log")
	c.RunE = func(c *cobra.Command, args []string) error {
		key, err := r.keyOf(args[0])
		if err != nil {
			return err
		}
		client, err := r.node.client()
		if err != nil {
			return err
		}
		ended, err := client.Clear(c.Context(), admin.ClearCall{Key: key, Only: throttle.FieldPause.String(),
			Reason: *reason})
		if err != nil {
			return err
		}
		rests := stillRests(c.Context(), client, key, ended)
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), map[string]any{"cleared": ended, "still": rests})
		}
		if err := printResumed(c.OutOrStdout(), args[0], ended, rests); err != nil {
			return err
		}
		return nil
	}
	return c
}

// stillRests says who else keeps it at rest; nil: nobody does. The node may follow a
// moment later.
func stillRests(ctx context.Context, client *client.Admin, key string,
	ended []admin.ThrottleRule) *inspect.ExplainedField {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	for {
		x, err := client.Explain(ctx, key)
		if err != nil {
			return nil
		}
		follows := true
		for _, r := range ended {
			follows = follows && !says(x, r.ID)
		}
		if follows {
			for _, f := range x.Fields {
				if f.Field == throttle.FieldPause.String() && f.Value != string(throttle.PauseNo) {
					return &f
				}
			}
			return nil
		}
		if term.Sleep(ctx, followEvery) != nil {
			return nil
		}
	}
}

func printResumed(w io.Writer, name string, ended []admin.ThrottleRule, still *inspect.ExplainedField) error {
	var b strings.Builder
	now, text := time.Now(), ""
	switch {
	case len(ended) > 0 && still == nil:
		text = fmt.Sprintf("%s goes on: %d overrides ended.", name, len(ended))
		if len(ended) == 1 {
			text = fmt.Sprintf("%s goes on: override %.8s ended.", name, ended[0].ID)
		}
	case still == nil:
		text = fmt.Sprintf("No override that only pauses %s holds, and nothing else does: it is not paused.", name)
	case still.ID != "":
		text = fmt.Sprintf("%s still has pause=%s, by %s, which sets more than that: `rollcall throttle clear --id %s` "+
			"ends all of it.", name, still.Value, from(still.Said, now), still.ID)
	default:
		text = fmt.Sprintf("%s still has pause=%s, by %s: change it there.", name, still.Value,
			strings.TrimSpace(still.Layer+" "+from(still.Said, now)))
	}
	b.WriteString(term.FoldedTo(text, 0, term.WidthOf(w)) + "\n")
	return term.Emit(w, &b)
}

func newReceiversClose(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "close KEY SESSION",
		Short: "End one session of a receiver after the command that is on the wire",
		Long: "End one session of a receiver after the command that is on the wire. Its addresses are asked in another.\n" +
			"SESSION is its number, as `rollcall receivers show KEY` has it.",
		Example: "  rollcall receivers close example.net 17\n" +
			"  rollcall receivers close example.net 17 --node node-2",
		Args:              wantArgs("KEY", "SESSION"),
		ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	on := c.Flags().String("node", "", "the node that has it (default: the only one where the receiver lives)")
	must(c.RegisterFlagCompletionFunc("node", func(c *cobra.Command, _ []string, typed string) ([]string,
		cobra.ShellCompDirective) {
		return completeNode(node)(c, nil, typed)
	}))
	c.RunE = func(c *cobra.Command, args []string) error {
		number, err := strconv.Atoi(args[1])
		if err != nil || number < 1 {
			return term.UsageError(fmt.Sprintf("SESSION %q is no number: see `rollcall receivers show %s`", args[1], args[0]))
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		if *on == "" {
			if *on, err = onlyNodeWith(c.Context(), client, args[0], number); err != nil {
				return err
			}
		}
		var done struct {
			Key     string `json:"key"`
			Node    string `json:"node"`
			Session int    `json:"session"`
		}
		err = client.Ask(c.Context(), "POST", "/v1/receivers/close",
			map[string]any{"key": args[0], "node": *on, "session": number}, &done)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), done)
		}
		fmt.Fprintf(c.OutOrStdout(), "Session %d of %s on %s is asked to end.\n", number, term.Printable(done.Key),
			term.Printable(done.Node))
		return nil
	}
	return c
}

// onlyNodeWith gives the node that has a session of a receiver.
func onlyNodeWith(ctx context.Context, client *client.Admin, key string, session int) (string, error) {
	found, err := client.Receiver(ctx, key)
	if err != nil {
		return "", err
	}
	var nodes []string
	for _, d := range found.Receivers {
		for _, s := range d.SessionList {
			if s.ID == session {
				nodes = append(nodes, d.Node)
			}
		}
	}
	switch len(nodes) {
	case 0:
		return "", fmt.Errorf("%s has no session %d: see `rollcall receivers show %s`", key, session, key)
	case 1:
		return nodes[0], nil
	}
	return "", term.UsageError(fmt.Sprintf("several nodes have a session %d of it: give --node, one of %s", session,
		strings.Join(nodes, ", ")))
}
