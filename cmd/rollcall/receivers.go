package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
)

func newReceivers(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "receivers [KEY-PART]",
		Short: "See what every receiver is doing to us and we to it; pause, resume, trace one, forget what it taught",
		Long: "See what every receiver that lives in the cluster is doing to us and we to it.\n\n" +
			"SESS are sessions of those allowed, RCPT/S what is asked a second of what is allowed, BUDGET the refusals\n" +
			"that may still be caused in this hour, REF and DEF what was refused and deferred of the last ten minutes'\n" +
			"answers, QUEUED the addresses that could be asked now and have no answer, wherever they wait, OLD how long the\n" +
			"oldest of them does. STATE is what keeps it from asking more: allowance,\n" +
			"connections, budget, paused, penalty, no healthy source. Why, and the last reply, stand below.",
		Example: "  rollcall receivers --watch\n" +
			"  rollcall receivers google --sort deferred --limit 5\n" +
			"  rollcall receivers show example.net",
		Args: mostArgs(1),
	}
	node := addAdminFlags(c, e)
	v := receiversScreen{every: receiversEvery}
	c.Flags().BoolVar(&v.asJSON, "json", false, "print JSON for programs")
	watch := c.Flags().Bool("watch", false, "show them again each second, until Ctrl-C")
	c.Flags().StringVar(&v.sort, "sort", "queued", "queued, rate, refused or deferred: the most of it first")
	c.Flags().IntVar(&v.limit, "limit", 0, "show at most so many (default: all, or what a watched screen holds)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		if _, known := receiverOrders[v.sort]; !known {
			return term.UsageError(fmt.Sprintf("--sort %q: write queued, rate, refused or deferred", v.sort))
		}
		if v.limit < 0 {
			return term.UsageError("--limit must not be below 0")
		}
		if len(args) > 0 {
			v.part = strings.ToLower(args[0])
		}
		if v.client, err = node.client(); err != nil {
			return err
		}
		v.out = c.OutOrStdout()
		if *watch {
			return v.watch(c.Context())
		}
		found, err := v.client.Receivers(c.Context())
		if err != nil {
			return err
		}
		if v.part != "" && len(v.pick(found).Receivers) == 0 {
			return fmt.Errorf("no receiver that is asked now has %q in its key: `rollcall receivers` lists all", v.part)
		}
		if v.asJSON {
			return term.PrintJSON(v.out, v.pick(found))
		}
		return tableOf{v, term.TableWidth(v.out), 0}.write(v.out, found)
	}
	must(c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"queued", "rate", "refused",
		"deferred"},
		cobra.ShellCompDirectiveNoFileComp)))
	c.AddCommand(newReceiversShow(node), newReceiversPause(node), newReceiversDrain(node),
		newReceiversResume(node),
		newReceiversTrace(node), newReceiversClose(node), newReceiversForget(node))
	return c
}

// must is for what only a fault of this code makes fail, on every start.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// receiverOrders are the orders of the table.
var receiverOrders = map[string]func(r inspect.Receiver) float64{
	"queued":   func(r inspect.Receiver) float64 { return float64(r.Queued) },
	"rate":     func(r inspect.Receiver) float64 { return r.Rcpts },
	"refused":  func(r inspect.Receiver) float64 { return r.Refused },
	"deferred": func(r inspect.Receiver) float64 { return r.Deferred },
}

// receiversScreen shows the receivers, once or again and again.
type receiversScreen struct {
	client *client.Admin
	out    io.Writer
	asJSON bool
	sort   string
	limit  int
	part   string // of the key of those that are shown
	every  time.Duration
}

// pick gives those that are asked for, in order; More counts those beyond the limit.
func (v receiversScreen) pick(found inspect.Receivers) inspect.Receivers {
	list := slices.DeleteFunc(slices.Clone(found.Receivers), func(r inspect.Receiver) bool {
		return !strings.Contains(r.Key, v.part)
	})
	order := receiverOrders[v.sort]
	slices.SortStableFunc(list, func(a, b inspect.Receiver) int {
		return cmp.Or(cmp.Compare(order(b), order(a)), cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Node, b.Node))
	})
	if v.limit > 0 && len(list) > v.limit {
		found.More += len(list) - v.limit
		list = list[:v.limit]
	}
	found.Receivers = list
	return found
}

// tableOf is the table on a screen.
type tableOf struct {
	receiversScreen
	width int
	lines int // at most so many; 0: any number
}

// write writes the receivers that are asked for and have room.
func (t tableOf) write(w io.Writer, found inspect.Receivers) error {
	found = t.pick(found)
	var b strings.Builder
	now := found.At
	if now.IsZero() {
		now = time.Now()
	}
	g := receiversGrid()
	used, shown := 1, 0 // the heading
	for _, r := range found.Receivers {
		rows := receiverRows(r, now, t.width)
		need := 0
		for _, row := range rows {
			need += 1 + row.BelowLines(t.width)
		}
		if t.lines > 0 && used+need > t.lines && shown > 0 {
			break
		}
		used, shown = used+need, shown+1
		g.Rows = append(g.Rows, rows...)
	}
	if len(found.Receivers) == 0 {
		text := "No receiver is asked now.\n"
		if t.part != "" {
			text = fmt.Sprintf("No receiver that is asked now has %q in its key.\n", t.part)
		}
		b.WriteString(text)
	} else {
		g.Write(&b, t.width)
	}
	if more := found.More + len(found.Receivers) - shown; more > 0 {
		fmt.Fprintf(&b, "\nand %s more\n", term.Grouped(int64(more)))
	}
	for _, s := range found.Silent {
		b.WriteString("\n" + term.FoldedTo(fmt.Sprintf("Without %s, which does not answer: %s", s.Node, s.Why), 0,
			t.width) +
			"\n")
	}
	return term.Emit(w, &b)
}

func receiversGrid() *term.Table {
	return &term.Table{Columns: []term.Column{{Name: "RECEIVER", Least: 15}, {Name: "SESS", Right: true},
		{Name: "RCPT/S", Right: true}, {Name: "BUDGET", Right: true}, {Name: "REF", Right: true},
		{Name: "DEF", Right: true}, {Name: "QUEUED", Right: true}, {Name: "OLD", Right: true},
		{Name: "STATE", Least: 12, Wrap: true}}}
}

// receiverRows are the row of a receiver and, when it has several, those of its sources.
func receiverRows(r inspect.Receiver, now time.Time, width int) []term.Row {
	oldest := "-"
	if r.Queued > 0 {
		oldest = term.Span(term.Seconds(r.Oldest))
	}
	rows := []term.Row{{Cells: []string{r.Key, fmt.Sprintf("%d/%d", r.Sessions, r.Most),
		term.Figure(r.Rcpts) + "/" + term.Figure(r.Allowed), term.Short(int64(r.Budget)), term.Percent(r.Refused),
		term.Percent(r.Deferred),
		term.Short(int64(r.Queued)), oldest, stateText(r, now)}}}
	if len(r.Sources) > 1 {
		for _, s := range r.Sources {
			state := s.State
			if !s.Until.IsZero() {
				state += " " + term.Left(s.Until, now)
			}
			rows = append(rows, term.Row{Cells: []string{"  " + sourceName(s.Source), fmt.Sprint(s.Sessions),
				"-/" + term.Figure(s.Tempo.Rate), term.Short(int64(s.Budget)), "", "", "", "", state}})
		}
	}
	last := replyText(r.Last)
	if last != "" && r.LastAt > 0 {
		last += ", " + term.Span(term.Seconds(r.LastAt)) + " ago"
	}
	below := []string{}
	switch {
	case r.Why != "" && last != "" && len([]rune(r.Why+last))+12 <= width:
		below = append(below, r.Why+"  last: "+last)
	default:
		if r.Why != "" {
			below = append(below, r.Why)
		}
		if last != "" {
			below = append(below, "last: "+last)
		}
	}
	rows[len(rows)-1].Below = below
	return rows
}

// stateText says in a word or three what keeps a receiver from asking more.
func stateText(r inspect.Receiver, now time.Time) string {
	text := r.State
	if r.Cause != "" && r.Cause != inspect.Causes[0] {
		text = r.Cause
		if r.State == "draining" {
			text = r.State
		}
	}
	if r.Until.After(now.Add(time.Second)) { // sooner is now for a person
		text += " " + term.Left(r.Until, now)
	}
	return text
}

// replyText writes a reply in one line; "" for none.
func replyText(r inspect.Reply) string {
	text := r.Text
	if r.Code > 0 && !strings.HasPrefix(text, fmt.Sprint(r.Code)) {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, text))
	}
	if text == "" {
		text = r.Reason
	}
	if text != "" && r.Stage != "" {
		text = r.Stage + ": " + text
	}
	return term.Printable(text)
}
