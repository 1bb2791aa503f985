package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
)

func newReceiversShow(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "show KEY",
		Short: "Show everything about one receiver: why it waits, pace, sessions, queues, what made us slow down",
		Long: "Show everything about one receiver, for each node where it lives: why it waits, the pace that\n" +
			"each source has found and why it changed, sessions, what each verification has waiting, the last hour\n" +
			"minute by minute, what made us slow down or rest, with the rule and the reply, and what it has taught us.",
		Example:           "  rollcall receivers show example.net",
		Args:              wantArgs("KEY"),
		ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		found, err := client.Receiver(c.Context(), args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), found)
		}
		return printReceivers(c.OutOrStdout(), found.Receivers, time.Now())
	}
	return c
}

func printReceivers(w io.Writer, list []inspect.ReceiverDetail, now time.Time) error {
	var b strings.Builder
	for i, d := range list {
		if i > 0 {
			b.WriteString("\n")
		}
		s := receiverSheet{&b, d, now, term.WidthOf(w), term.TableWidth(w)}
		s.head()
		s.hour()
		s.sources()
		s.sessions()
		s.queues()
		s.firings()
		s.learned()
	}
	return term.Emit(w, &b)
}

// receiverSheet writes everything about one receiver.
type receiverSheet struct {
	b     *strings.Builder
	d     inspect.ReceiverDetail
	now   time.Time
	width int
	table int // of its tables
}

// line writes a value behind its name.
func (s receiverSheet) line(name, format string, args ...any) {
	fmt.Fprintf(s.b, "%-*s%s\n", term.NameWidth, name, term.FoldedTo(fmt.Sprintf(format, args...), term.NameWidth,
		s.width))
}

// indented writes a line that belongs to the one above.
func (s receiverSheet) indented(text string) {
	s.b.WriteString("    " + term.FoldedTo(text, 4, s.width) + "\n")
}

func (s receiverSheet) head() {
	d := s.d
	s.line("receiver", "%s on %s", d.Key, d.Node)
	s.line("state", "%s", stateText(d.Receiver, s.now))
	if d.Why != "" {
		s.line("why", "%s", d.Why)
	}
	for i, cause := range d.Causes {
		s.line([]string{"believed", ""}[min(i, 1)], "%s", cause)
	}
	if d.Until.After(s.now.Add(time.Second)) {
		s.line("until", "%s (%s left)", term.Clock(d.Until, s.now), term.Left(d.Until, s.now))
	}
	if d.Software != nil {
		s.line("software", "%s", softwareLine(d.Software))
	}
	s.line("sessions", "%d of %d", d.Sessions, d.Most)
	s.line("asked", "%s/s of %s/s allowed, %d on the wire", term.Figure(d.Rcpts), term.Figure(d.Allowed), d.InFlight)
	queued := term.Grouped(int64(d.Queued))
	if d.Queued > 0 {
		queued += ", the oldest for " + term.Span(term.Seconds(d.Oldest))
	}
	if d.Behind > 0 {
		queued += fmt.Sprintf("; %s of them are not handed over to it yet", term.Grouped(int64(d.Behind)))
	}
	if d.PerHour > 0 {
		queued += fmt.Sprintf("; about %s an hour as things are", term.Grouped(int64(d.PerHour)))
	}
	s.line("queued", "%s", queued)
	s.line("answers", "%s refused, %s deferred, in the last ten minutes; %s more refusals may be caused this hour",
		term.Percent(d.Refused), term.Percent(d.Deferred), term.Grouped(int64(d.Budget)))
	if last := replyText(d.Last); last != "" {
		s.line("last reply", "%q", last)
		s.line("", "%s", s.judged(d.Last, term.Seconds(d.LastAt)))
	}
}

// judged says when a reply came, from where, and what was made of it.
func (s receiverSheet) judged(r inspect.Reply, ago time.Duration) string {
	parts := []string{}
	if ago > 0 {
		parts = append(parts, term.Span(ago)+" ago")
	}
	if r.Host != "" {
		parts = append(parts, "by "+r.Host)
	}
	if r.Source != "" {
		parts = append(parts, "to "+r.Source)
	}
	switch {
	case r.Action != "":
		parts = append(parts, "taken for: "+r.Action)
	case r.Reason != "":
		parts = append(parts, "taken for: "+r.Reason)
	}
	if r.Rule != "" {
		parts = append(parts, "rule "+r.Rule)
	}
	if !r.Until.IsZero() {
		parts = append(parts, term.Until(r.Until, s.now))
	}
	return strings.Join(parts, ", ")
}

// hour shows the last hour: a column for each minute. What was asked is the mean of the minute,
// what was allowed, and what waited, is as it was at its end.
func (s receiverSheet) hour() {
	minutes := s.d.Minutes
	if len(minutes) == 0 {
		return
	}
	first, last := minutes[max(0, len(minutes)-sparkMost)].At.UTC(), minutes[len(minutes)-1].At.UTC()
	fmt.Fprintf(s.b, "\n%-10s%8s  %s to %s\n", "MINUTE", "MOST", first.Format("15:04"), last.Format("15:04Z"))
	for _, row := range []struct {
		name string
		of   func(m inspect.Minute) float64
	}{
		{"asked/s", func(m inspect.Minute) float64 { return float64(m.Asked) / 60 }},
		{"refused", func(m inspect.Minute) float64 { return float64(m.Refused) }},
		{"deferred", func(m inspect.Minute) float64 { return float64(m.Deferred) }},
		{"allowed/s", func(m inspect.Minute) float64 { return m.AllowedLast }},
		{"queued", func(m inspect.Minute) float64 { return float64(m.Queued) }},
	} {
		if line, most := spark(minutes, row.of); most > 0 {
			fmt.Fprintf(s.b, "%-10s%8s  %s\n", row.name, term.Figure(most), line)
		}
	}
}

// sparks are eight heights.
var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkMost is how many minutes have room.
const sparkMost = 60

// spark draws minutes from 0 to the most of them, which it gives too.
func spark(minutes []inspect.Minute, of func(m inspect.Minute) float64) (string, float64) {
	minutes = minutes[max(0, len(minutes)-sparkMost):]
	most := 0.0
	for _, m := range minutes {
		most = max(most, of(m))
	}
	line := make([]rune, len(minutes))
	for i, m := range minutes {
		height := 0
		if most > 0 {
			height = min(len(sparks)-1, int(max(0, of(m))/most*float64(len(sparks)-1)+0.5))
		}
		line[i] = sparks[height]
	}
	return string(line), most
}

func (s receiverSheet) sources() {
	if len(s.d.Sources) == 0 {
		return
	}
	g := term.Table{Columns: []term.Column{{Name: "SOURCE", Least: 12}, {Name: "STATE", Least: 8, Wrap: true},
		{Name: "SESS",
			Right: true},
		{Name: "BUDGET", Right: true}, {Name: "PACE/S", Right: true}, {Name: "FLOOR", Right: true},
		{Name: "CEILING", Right: true}, {Name: "EDGE", Right: true}, {Name: "PHASE", Least: 8, Wrap: true}}}
	for _, one := range s.d.Sources {
		state := one.State
		if !one.Until.IsZero() {
			state += " " + term.Left(one.Until, s.now)
		}
		edge := "-"
		if one.Tempo.Edge > 0 {
			edge = term.Figure(one.Tempo.Edge)
		}
		row := term.Row{Cells: []string{sourceName(one.Source), state, fmt.Sprint(one.Sessions),
			term.Short(int64(one.Budget)),
			term.Figure(one.Tempo.Rate), term.Figure(one.Tempo.Floor), term.Figure(one.Tempo.Ceiling), edge, one.Tempo.Phase}}
		if one.Reason != "" {
			row.Below = append(row.Below, one.Reason)
		}
		if why := one.Tempo.Why; why != "" {
			if !one.Tempo.Since.IsZero() {
				why += ", " + term.Span(s.now.Sub(one.Tempo.Since)) + " ago"
			}
			row.Below = append(row.Below, "pace: "+why)
		}
		g.Rows = append(g.Rows, row)
	}
	s.b.WriteString("\n")
	g.Write(s.b, s.table)
}

func (s receiverSheet) sessions() {
	if len(s.d.SessionList) == 0 {
		return
	}
	g := term.Table{Columns: []term.Column{{Name: "SESSION", Right: true}, {Name: "SOURCE", Least: 10}, {Name: "HOST",
		Least: 10},
		{Name: "STATE"}, {Name: "AGE", Right: true}, {Name: "RCPTS", Right: true}, {Name: "REFUSED", Right: true},
		{Name: "TLS", Least: 3}}}
	for _, one := range s.d.SessionList {
		g.Add(fmt.Sprint(one.ID), sourceName(one.Source), one.Host, one.State, term.Span(term.Seconds(one.Age)),
			term.Grouped(int64(one.Rcpts)), term.Grouped(int64(one.Refused)), term.Dash(one.TLS))
	}
	s.b.WriteString("\n")
	g.Write(s.b, s.table)
}

func (s receiverSheet) queues() {
	if len(s.d.Queues) == 0 {
		return
	}
	g := term.Table{Columns: []term.Column{{Name: "VERIFICATION"}, {Name: "WORKSPACE", Least: 8}, {Name: "QUEUED",
		Right: true},
		{Name: "OLD", Right: true}, {Name: "WEIGHT", Right: true}}}
	for _, q := range s.d.Queues {
		g.Add(q.Verification, q.Workspace, term.Grouped(int64(q.Queued)), term.Span(term.Seconds(q.Oldest)),
			fmt.Sprint(q.Weight))
	}
	s.b.WriteString("\n")
	g.Write(s.b, s.table)
}

// firings shows what made us slow down, rest or change in the last hour.
func (s receiverSheet) firings() {
	if len(s.d.Firings) == 0 {
		return
	}
	s.b.WriteString("\nWhat made us slow down, rest or change in the last hour:\n")
	for _, f := range s.d.Firings {
		at := "  " + term.Clock(f.At, s.now) + "  "
		fmt.Fprintf(s.b, "%s%s\n", at, term.FoldedTo(s.judged(f, 0), len(at), s.width))
		if text := replyText(f); text != "" {
			s.indented(fmt.Sprintf("%q", text))
		}
	}
}

// learned shows what holds below the allowance, in sentences.
func (s receiverSheet) learned() {
	texts := lessons(s.d, s.now)
	if len(texts) == 0 {
		return
	}
	s.b.WriteString("\nWhat it has taught us:\n")
	for _, text := range texts {
		s.indented(text)
	}
}
