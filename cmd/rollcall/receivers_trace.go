package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/throttle"
)

func newReceiversTrace(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "trace KEY",
		Short: "Follow the SMTP sessions of a receiver line by line, until Ctrl-C",
		Long: "Follow the SMTP sessions of a receiver line by line, on all nodes, until Ctrl-C. Local parts of addresses\n" +
			"are replaced, and replies are cleaned of them. Nodes keep lines only while somebody looks.",
		Example:           "  rollcall receivers trace example.net --source 192.0.2.7",
		Args:              wantArgs("KEY"),
		ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	source := c.Flags().String("source", "", "only the sessions from this address of ours")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		if *source != "" {
			key, err := keyOfSource(*source)
			if err != nil {
				return err
			}
			*source = sourceName(strings.TrimPrefix(key, throttle.SourcePrefix))
		}
		for _, text := range unheardOf(c.Context(), client, args[0], *source) {
			fmt.Fprintln(c.ErrOrStderr(), term.FoldedTo("rollcall: "+text, 0, term.WidthOf(c.ErrOrStderr())))
		}
		t := tracing{client: client, key: args[0], source: *source, out: c.OutOrStdout(), asJSON: *asJSON}
		if width, height := term.SizeOf(t.out); height > 0 {
			t.width = width
		}
		return t.follow(c.Context(), traceEvery)
	}
	return c
}

// unheardOf says that nothing is asked of a receiver now, or that no node has a source: there
// is nothing to follow then, unless that changes.
func unheardOf(ctx context.Context, client *client.Admin, key, source string) (texts []string) {
	if known, err := client.Receivers(ctx); err == nil && known.More == 0 && len(known.Silent) == 0 {
		key = strings.ToLower(key)
		lives := func(r inspect.Receiver) bool {
			return key == r.Key || key == throttle.NameOf(r.Key)
		}
		if !slices.ContainsFunc(known.Receivers, lives) {
			texts = append(texts, fmt.Sprintf("nothing is asked of a receiver %q now (`rollcall receivers` lists those that "+
				"live); its lines follow when something is. Ctrl-C ends this", term.Printable(key)))
		}
	}
	var known sourcesAnswer
	if source == "" || client.Ask(ctx, "GET", "/v1/sources", nil, &known) != nil {
		return texts
	}
	if !slices.ContainsFunc(known.Sources, func(s inspect.Source) bool { return sourceName(s.Source) == source }) {
		texts = append(texts, fmt.Sprintf("no node that answers has a source %s: `rollcall sources` lists them", source))
	}
	return texts
}

// traceEvery is how often lines are fetched: nodes keep the newest thousand.
const traceEvery = time.Second

// traceIndent stands before the lines that a long line goes on in.
const traceIndent = 6

// tracing follows the sessions of a receiver.
type tracing struct {
	client      *client.Admin
	key, source string
	out         io.Writer
	asJSON      bool
	width       int // of the terminal; 0: it is none, and lines stay whole
	after       map[string]uint64
}

// follow writes lines until ctx ends, which is no error. A node that has answered once
// may go away and come back.
func (t *tracing) follow(ctx context.Context, every time.Duration) error {
	for first := true; ; first = false {
		lines, err := t.fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err := t.write(lines); err != nil {
			return err
		}
		if term.Sleep(ctx, every) != nil {
			return nil
		}
	}
}

// fetch gives what is new.
func (t *tracing) fetch(ctx context.Context) ([]inspect.TraceLine, error) {
	after, err := json.Marshal(t.after)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	var answer struct {
		Lines []inspect.TraceLine `json:"lines"`
		After map[string]uint64   `json:"after"`
	}
	q := url.Values{"key": {t.key}, "source": {t.source}, "after": {string(after)}}
	if err := t.client.Ask(ctx, "GET", "/v1/receivers/trace?"+q.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	t.after = answer.After
	return answer.Lines, nil
}

func (t *tracing) write(lines []inspect.TraceLine) (err error) {
	for _, l := range lines {
		if t.asJSON {
			err = term.PrintJSON(t.out, l)
		} else {
			text := fmt.Sprintf("%s %s %s#%d %s", l.At.UTC().Format("15:04:05.000"), term.Printable(l.Node),
				term.Printable(term.Dash(l.Host)), l.Session, term.Printable(l.Line))
			if t.width > 0 {
				text = term.BrokenAt(text, traceIndent, t.width)
			}
			_, err = fmt.Fprintln(t.out, text)
		}
		if err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
	}
	return nil
}
