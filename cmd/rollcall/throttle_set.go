package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

func newThrottleSet(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "set KEY FIELD=VALUE... --for DURATION --reason REASON",
		Short: "Override fields of a receiver, a mail domain or a source for a time",
		Long: "Override fields of a receiver, an MX host suffix, a mail domain or source:ADDRESS for a time, on all nodes\n" +
			"within two seconds. It ends by itself; `rollcall throttle clear` ends it before. No session is dropped for\n" +
			"it, unless pause=yes says so.\n\n" +
			"What would allow more than an operator is known to bear is refused without --force.\n\n" +
			term.FoldedTo("Fields: "+strings.Join(fieldNames(), ", ")+".", 0, helpWidth),
		Example: "  rollcall throttle set example.net rcpt_rate=2/s connections=1 --for 1h --reason \"they complained\"\n" +
			"  rollcall throttle set source:192.0.2.7 rcpts_per_day=5000 --for 7d --reason warm-up",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return term.UsageError([]string{"KEY", "FIELD=VALUE"}[len(args)] + " is missing")
			}
			return nil
		},
		ValidArgsFunction: completeKey(node, completeFields),
	}
	asJSON, change := jsonFlag(c), addChangeFlags(c)
	force := c.Flags().Bool("force", false, "also when it allows more than an operator is known to bear")
	c.RunE = func(c *cobra.Command, args []string) error {
		fields, err := parseFields(args[1:])
		if err != nil {
			return err
		}
		s := setting{call: admin.OverrideCall{Key: sourceKey(args[0]), Fields: fields, Force: *force},
			asJSON: *asJSON}
		return s.run(c, node, change)
	}
	return c
}

// changeFlags are --for and --reason.
type changeFlags struct{ holds, reason string }

func addChangeFlags(c *cobra.Command) *changeFlags {
	f := &changeFlags{}
	c.Flags().StringVar(&f.holds, "for", "", "how long it holds: 30m, 2h, 3d")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for those who see it and for the operator log")
	return f
}

// setting sets an override and shows what it changed.
type setting struct {
	call   admin.OverrideCall
	asJSON bool
}

// followWithin is how long the node that was asked may take to follow a change: it reads
// what others change each second. followEvery is how often it is looked at.
const (
	followWithin = 4 * time.Second
	followEvery  = 100 * time.Millisecond
)

// setView is what was set, for programs.
type setView struct {
	Override admin.ThrottleRule   `json:"override"`
	Before   *inspect.Explanation `json:"before"` // null: it could not be explained
	After    *inspect.Explanation `json:"after"`  // null: the same, or the node had not followed yet
}

func (s setting) run(c *cobra.Command, node *adminFlags, change *changeFlags) error {
	holds, err := parseFor(change.holds)
	if err != nil {
		return err
	}
	if strings.TrimSpace(change.reason) == "" {
		return term.UsageError("--reason is missing: say why, for those who find it at night")
	}
	client, err := node.client()
	if err != nil {
		return err
	}
	s.call.ID, s.call.Seconds, s.call.Reason = uuid.New(), int64(holds/time.Second), change.reason
	var out setView
	if x, err := client.ExplainRules(c.Context(), s.call.Key); err == nil {
		out.Before = &x
	}
	if err := client.Ask(c.Context(), "POST", "/v1/throttle/overrides", s.call, &out.Override); err != nil {
		return err
	}
	if out.Before != nil {
		out.After = followed(c.Context(), client, s.call.Key, out.Override.ID)
	}
	if s.asJSON {
		return term.PrintJSON(c.OutOrStdout(), out)
	}
	if err := printSet(c.OutOrStdout(), out); err != nil {
		return err
	}
	if text := unknownName(c.Context(), client, out); text != "" {
		fmt.Fprintln(c.ErrOrStderr(), term.FoldedTo("rollcall: warning: "+text, 0, term.Columns))
	}
	return nil
}

// followed waits until the node's rules for a name have an override; nil: it does not in time.
func followed(ctx context.Context, client *client.Admin, key, id string) *inspect.Explanation {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	for {
		x, err := client.ExplainRules(ctx, key)
		if err == nil && says(x, id) {
			return &x
		}
		if term.Sleep(ctx, followEvery) != nil {
			return nil
		}
	}
}

// says tells whether an override says something in an explanation.
func says(x inspect.Explanation, id string) bool {
	for _, f := range x.Fields {
		if f.ID == id {
			return true
		}
		for _, beaten := range f.Beaten {
			if beaten.ID == id {
				return true
			}
		}
	}
	return false
}

// unknownName says that nobody knows the name of an override: it may have a typing error.
func unknownName(ctx context.Context, client *client.Admin, out setView) string {
	name := out.Override.Name
	if strings.HasPrefix(name, throttle.SourcePrefix) {
		var known sourcesAnswer
		if err := client.Ask(ctx, "GET", "/v1/sources", nil, &known); err != nil {
			return ""
		}
		for _, s := range known.Sources {
			if throttle.SourcePrefix+s.Source == ruleKey(name) {
				return ""
			}
		}
		return fmt.Sprintf("no node has a source %s: `rollcall sources` lists them",
			sourceName(strings.TrimPrefix(name, throttle.SourcePrefix)))
	}
	known, err := client.Rules(ctx)
	if err != nil {
		return ""
	}
	for _, r := range known.Rules {
		if r.ID != out.Override.ID && (r.Name == name || strings.HasSuffix(r.Name, "."+name)) {
			return ""
		}
	}
	live, err := client.Receivers(ctx)
	if err != nil {
		return ""
	}
	for _, r := range live.Receivers {
		if own := throttle.NameOf(r.Key); own == name || strings.HasSuffix(own, "."+name) {
			return ""
		}
	}
	if x, err := client.Explain(ctx, name); err == nil && len(x.Receiver)+len(x.Hosts) > 0 {
		return ""
	}
	return fmt.Sprintf("it is set, but no receiver that is asked now and no other rule is called %s: check the spelling",
		name)
}

// printSet shows what an override changes.
func printSet(w io.Writer, out setView) error {
	var b strings.Builder
	now, width := time.Now(), term.WidthOf(w)
	until := time.Time(*out.Override.Until)
	fmt.Fprintf(&b, "%s\n\n", term.FoldedTo(fmt.Sprintf("Set for %s until %s (%s), override %s.",
		ruleTarget(out.Override.Name), term.Clock(until, now), term.Left(until, now), out.Override.ID), 0, width))
	g := term.Table{Columns: []term.Column{{Name: "FIELD"}, {Name: "BEFORE", Least: 8}, {Name: "NOW", Least: 8},
		{Name: "FROM BEFORE", Least: 20}}}
	var beaten []string
	for _, f := range out.Override.Fields {
		before, said := fieldOf(out.Before, f.Field)
		after, by := fieldOf(out.After, f.Field)
		if out.After == nil {
			after = f.Value
		} else if by.ID != out.Override.ID {
			beaten = append(beaten, fmt.Sprintf("%s stays %s, by %s %s", f.Field, term.Dash(after), by.Layer, from(by, now)))
		}
		g.Add(f.Field, term.Dash(before), term.Dash(after), strings.TrimSpace(said.Layer+" "+from(said, now)))
	}
	g.Write(&b, width)
	notes := []string{}
	if len(beaten) > 0 {
		notes = append(notes, "Something goes before it: "+strings.Join(beaten, "; ")+".")
	}
	switch {
	case out.After != nil && len(out.After.Narrower) > 0:
		notes = append(notes, "Narrower names with rules of their own go before it: "+term.Some(out.After.Narrower)+".")
	case out.Before != nil && out.After == nil:
		notes = append(notes,
			"The node that was asked does not follow yet: look again with `rollcall throttle explain "+
				ruleKey(out.Override.Name)+"`.")
	}
	for _, note := range notes {
		b.WriteString("\n" + term.FoldedTo(note, 0, width) + "\n")
	}
	return term.Emit(w, &b)
}

// ruleKey writes the name of a rule as a command takes it.
func ruleKey(name string) string {
	if name == throttle.SourcePrefix {
		return name + "default"
	}
	return name
}

// fieldOf gives a field of an explanation, and who has set it.
func fieldOf(x *inspect.Explanation, field string) (string, inspect.Said) {
	if x != nil {
		for _, f := range x.Fields {
			if f.Field == field {
				return f.Value, f.Said
			}
		}
	}
	return "", inspect.Said{}
}

func newThrottleClear(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "clear KEY | --id ID",
		Short: "End the overrides of a name before their time",
		Long: "End the overrides of a name before their time, or with --id one of them. The rules of the throttle file\n" +
			"stay as they are.",
		Example:           "  rollcall throttle clear example.net\n  rollcall throttle clear example.net --id 5f2c91aa",
		Args:              mostArgs(1),
		ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	id := c.Flags().String("id", "",
		"only this one: its id, or the beginning of it, as 'rollcall throttle list' shows it")
	reason := c.Flags().String("reason", "", "why, for the operator log")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && *id == "" {
			return term.UsageError("KEY is missing: say whose overrides shall end, or give --id")
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		call, of := admin.ClearCall{Reason: *reason}, "this id"
		if len(args) > 0 {
			call.Key, of = sourceKey(args[0]), args[0]
		}
		if *id != "" {
			if call.ID, err = overrideID(c.Context(), client, *id); err != nil {
				return err
			}
		}
		ended, err := client.Clear(c.Context(), call)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), map[string]any{"cleared": ended})
		}
		return printCleared(c.OutOrStdout(), of, ended)
	}
	return c
}

// printCleared shows what was ended; that there was nothing is no failure.
func printCleared(w io.Writer, key string, ended []admin.ThrottleRule) error {
	var b strings.Builder
	if len(ended) == 0 {
		b.WriteString(term.FoldedTo(fmt.Sprintf("No override of %s holds: nothing was ended. `rollcall throttle list` shows "+
			"those that do.", key), 0, term.WidthOf(w)) + "\n")
		return term.Emit(w, &b)
	}
	g := term.Table{Columns: []term.Column{{Name: "ENDED"}, {Name: "NAME", Least: 20}, {Name: "WHAT IT SET", Least: 15,
		Wrap: true}}}
	for _, r := range ended {
		var set []string
		for _, f := range r.Fields {
			set = append(set, f.Field+"="+f.Value)
		}
		g.Add(fmt.Sprintf("%.8s", r.ID), ruleKey(r.Name), strings.Join(set, " "))
	}
	g.Write(&b, term.WidthOf(w))
	return term.Emit(w, &b)
}
