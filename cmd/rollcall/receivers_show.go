package main

import (
	"cmp"
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
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

// limitWords describe learned limits: what is limited, and what happens when the limit ends.
var limitWords = map[string]struct{ what, then string }{
	throttle.FieldConnections.String():         {"sessions at once", "one more is tried"},
	throttle.FieldRcptsPerConnection.String():  {"addresses in a session", "the configured limit applies again"},
	throttle.FieldRefusedPerSession.String():   {"refusals in a session", "the configured limit applies again"},
	throttle.FieldRcptsPerTransaction.String(): {"addresses in a transaction", "the configured limit applies again"},
}

// lessons describes learned limits that are below the configured ones, in a sentence each: the value, since when,
// why, and until when.
func lessons(d inspect.ReceiverDetail, now time.Time) (texts []string) {
	for _, l := range d.Learned {
		texts = append(texts, limitSentence(l, now))
	}
	for _, s := range d.Sources {
		if text := rateSentence(s, now); text != "" {
			texts = append(texts, text)
		}
		if text := suspensionSentence(s, now); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// softwareSentence says which software a receiver runs, what that means for its refusals, and how we know.
func softwareSentence(s *inspect.Software) string {
	text := s.Words() + "; "
	switch {
	case s.Decides && s.PerHour > 0:
		text += fmt.Sprintf("at most %d refusals in an hour", s.PerHour)
	case s.Decides:
		text += fmt.Sprintf("at most %d refusals in a session, any number in an hour", s.PerSession)
	case s.PerSession > 0, s.PerHour > 0:
		text += "not used, because refused_per_hour is set"
	default:
		text += "refused_per_hour holds"
	}
	if s.Where != "" {
		text += " (" + s.Where + ")"
	}
	return text
}

func limitSentence(l inspect.Limit, now time.Time) string {
	words, known := limitWords[l.Field]
	text := fmt.Sprintf("At most %s %s (%s)", l.Value, words.what, l.Field)
	if !known {
		text = fmt.Sprintf("%s is %s", l.Field, l.Value)
	}
	text += when(", learned at ", l.Since, now, term.Clock) + after(" because ", l.From)
	if l.Until.IsZero() {
		return text + "."
	}
	text += ", " + term.Until(l.Until, now)
	if known {
		text += "; then " + words.then
	}
	return text + "."
}

// rateSentence is the sentence about the rate of a source, or "" if the rate is not below the limit.
func rateSentence(s inspect.ReceiverSource, now time.Time) string {
	t := s.Rate
	if t.Rate <= 0 || t.Rate >= t.Ceiling {
		return ""
	}
	text := fmt.Sprintf("Asked %s/s of the %s/s allowed from %s", term.Figure(t.Rate), term.Figure(t.Ceiling),
		sourceName(s.Source)) + when(" since ", t.Since, now, term.Clock)
	if t.Phase != "" {
		text += " (" + t.Phase + ")"
	}
	text += after(": ", t.Why)
	if t.Edge > 0 {
		text += fmt.Sprintf("; %s/s was too fast", term.Figure(t.Edge))
	}
	return text + ". It is raised while higher rates go well."
}

// suspensionSentence is the sentence about a suspended source, or "" if the source is not suspended.
func suspensionSentence(s inspect.ReceiverSource, now time.Time) string {
	if s.State != "suspended" && s.State != "paused" && s.State != "draining" {
		return ""
	}
	return fmt.Sprintf("%s is %s here", sourceName(s.Source), s.State) + after(" because of ", s.Reason) +
		when(", ", s.Until, now, term.Until) + "."
}

// after puts words before a text. It returns "" for an empty text.
func after(words, text string) string {
	if text == "" {
		return ""
	}
	return words + text
}

// when puts words before a time, written by show. It returns "" for the zero time.
func when(words string, t, now time.Time, show func(t, now time.Time) string) string {
	if t.IsZero() {
		return ""
	}
	return words + show(t, now)
}

// listed joins the texts that are not empty.
func listed(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ", ")
}

func newReceiversShow(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "show KEY",
		Short: "Show everything about one receiver: why it waits, rate, sessions, queues, what made us slow down",
		Long: "Show everything about one receiver, for each of its nodes and shards: why it waits, the rate that\n" +
			"each source has found and why it changed, sessions, what each verification has waiting, the last hour\n" +
			"minute by minute, what made us slow down or pause, with the rule and the reply, and the learned limits.",
		Example: "  rollcall receivers show example.net",
	}
	return adminCommand(node, c, func(client *client.Admin, args []string) (found admin.Details, err error) {
		return client.Receiver(c.Context(), args[0])
	}, func(b *term.Page, found admin.Details) { printReceivers(b, found.Receivers, time.Now()) })
}

func printReceivers(b *term.Page, list []inspect.ReceiverDetail, now time.Time) {
	for i, d := range list {
		if i > 0 {
			b.WriteString("\n")
		}
		s := receiverSheet{b, d, now}
		s.head()
		s.hour()
		s.sources()
		s.sessions()
		s.queues()
		s.firings()
		s.learned()
	}
}

type receiverSheet struct {
	*term.Page
	d   inspect.ReceiverDetail
	now time.Time
}

func (s receiverSheet) head() {
	d := s.d
	s.Field("receiver", "%s on %s", d.Key, d.Node)
	s.Field("state", "%s", stateText(d.Receiver, s.now))
	s.Field("why", "%s", d.Why)
	for i, cause := range d.Causes {
		s.Field([]string{"believed", ""}[min(i, 1)], "%s", cause)
	}
	if d.Until.After(s.now.Add(time.Second)) {
		s.Field("until", "%s (%s left)", term.Clock(d.Until, s.now), term.Left(d.Until, s.now))
	}
	if d.Software != nil {
		s.Field("software", "%s", softwareSentence(d.Software))
	}
	s.Field("sessions", "%d of %d", d.Sessions, d.Most)
	s.Field("asked", "%s/s of %s/s allowed, %d on the wire", term.Figure(d.Rcpts), term.Figure(d.Allowed), d.InFlight)
	queued := term.Grouped(d.Queued)
	if d.Queued > 0 {
		queued += ", the oldest for " + term.Span(term.Seconds(d.Oldest))
	}
	if d.Behind > 0 {
		queued += fmt.Sprintf("; verifications have not handed over %s of them yet", term.Grouped(d.Behind))
	}
	if d.PerHour > 0 {
		queued += fmt.Sprintf("; about %s an hour at present", term.Grouped(d.PerHour))
	}
	s.Field("queued", "%s", queued)
	s.Field("answers", "%s refused, %s deferred, in the last ten minutes; %s more refusals may be caused this hour",
		term.Percent(d.Refused), term.Percent(d.Deferred), term.Grouped(d.Budget))
	if last := replyText(d.Last); last != "" {
		s.Field("last reply", "%q", last)
		s.Field("", "%s", s.judged(d.Last, term.Seconds(d.LastAt)))
	}
}

// judged describes when a reply came, from where, and its verdict.
func (s receiverSheet) judged(r inspect.Reply, ago time.Duration) string {
	since := ""
	if ago > 0 {
		since = term.Span(ago) + " ago"
	}
	return listed(since, after("by ", r.Host), after("to ", r.Source), after("taken for: ", cmp.Or(r.Action, r.Reason)),
		after("rule ", r.Rule), when("", r.Until, s.now, term.Until))
}

// hour shows the last hour with a column for each minute: the mean rate of addresses asked, and the allowed rate and
// the waiting addresses at the minute's end.
func (s receiverSheet) hour() {
	minutes := s.d.Minutes
	if len(minutes) == 0 {
		return
	}
	first, last := minutes[max(0, len(minutes)-sparkMost)].At.UTC(), minutes[len(minutes)-1].At.UTC()
	fmt.Fprintf(s, "\n%-10s%8s  %s to %s\n", "MINUTE", "MOST", first.Format("15:04"), last.Format("15:04Z"))
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
			fmt.Fprintf(s, "%-10s%8s  %s\n", row.name, term.Figure(most), line)
		}
	}
}

// sparks are bars of eight heights.
var sparks = []rune("▁▂▃▄▅▆▇█")

const sparkMost = 60

// spark draws minutes on a scale from 0 to their maximum. It also returns the maximum.
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
	g := term.Table{Columns: []term.Column{{Name: "SOURCE", Least: 12}, {Name: "STATE", Least: 8, Wrap: true},
		{Name: "SESS", Right: true},
		{Name: "BUDGET", Right: true}, {Name: "PACE/S", Right: true}, {Name: "FLOOR", Right: true},
		{Name: "CEILING", Right: true}, {Name: "EDGE", Right: true}, {Name: "PHASE", Least: 8, Wrap: true}}}
	for _, one := range s.d.Sources {
		state := one.State + when(" ", one.Until, s.now, term.Left)
		edge := "-"
		if one.Rate.Edge > 0 {
			edge = term.Figure(one.Rate.Edge)
		}
		g.Add(sourceName(one.Source), state, fmt.Sprint(one.Sessions), term.Short(one.Budget), term.Figure(one.Rate.Rate),
			term.Figure(one.Rate.Floor), term.Figure(one.Rate.Ceiling), edge, one.Rate.Phase)
		why := one.Rate.Why
		if why != "" && !one.Rate.Since.IsZero() {
			why += ", " + term.Span(s.now.Sub(one.Rate.Since)) + " ago"
		}
		g.Below(one.Reason, after("pace: ", why))
	}
	s.Section(&g)
}

func (s receiverSheet) sessions() {
	g := term.Table{Columns: []term.Column{{Name: "SESSION", Right: true}, {Name: "SOURCE", Least: 10}, {Name: "HOST",
		Least: 10}, {Name: "STATE"}, {Name: "AGE", Right: true}, {Name: "RCPTS", Right: true}, {Name: "REFUSED", Right: true},
		{Name: "TLS", Least: 3}}}
	for _, one := range s.d.SessionList {
		g.Add(fmt.Sprint(one.ID), sourceName(one.Source), one.Host, one.State, term.Span(term.Seconds(one.Age)),
			term.Grouped(one.Rcpts), term.Grouped(one.Refused), term.Dash(one.TLS))
	}
	s.Section(&g)
}

func (s receiverSheet) queues() {
	g := term.Table{Columns: []term.Column{{Name: "VERIFICATION"}, {Name: "WORKSPACE", Least: 8}, {Name: "QUEUED",
		Right: true}, {Name: "OLD", Right: true}, {Name: "WEIGHT", Right: true}}}
	for _, q := range s.d.Queues {
		g.Add(q.Verification, q.Workspace, term.Grouped(q.Queued), term.Span(term.Seconds(q.Oldest)),
			fmt.Sprint(q.Weight))
	}
	s.Section(&g)
}

// firings shows the rules that made us slow down, pause or change in the last hour.
func (s receiverSheet) firings() {
	if len(s.d.Firings) == 0 {
		return
	}
	s.WriteString("\nWhat made us slow down, pause or change in the last hour:\n")
	for _, f := range s.d.Firings {
		s.Behind("  "+term.Clock(f.At, s.now)+"  ", "%s", s.judged(f, 0))
		if text := replyText(f); text != "" {
			s.Para(4, "%q", text)
		}
	}
}

func (s receiverSheet) learned() {
	texts := lessons(s.d, s.now)
	if len(texts) == 0 {
		return
	}
	s.WriteString("\nWhat was learned:\n")
	for _, text := range texts {
		s.Para(4, "%s", text)
	}
}

func newReceiversTrace(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "trace KEY",
		Short: "Follow the SMTP sessions of a receiver line by line, until Ctrl-C",
		Long: "Follow the SMTP sessions of a receiver line by line, on all nodes, until Ctrl-C. Local parts of addresses\n" +
			"are replaced, and replies are cleaned of them. Nodes keep lines only while somebody looks, and there are\n" +
			"none while nothing is asked: `rollcall receivers` lists the receivers that are.",
		Example: "  rollcall receivers trace example.net --source 192.0.2.7",
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
		t := tracing{client: client, key: args[0], source: *source, out: c.OutOrStdout(), asJSON: *asJSON}
		if width, height := term.SizeOf(t.out); height > 0 {
			t.width = width
		}
		return t.follow(c.Context(), traceEvery)
	}
	return c
}

// traceEvery is how often lines are fetched: nodes keep the newest thousand.
const traceEvery = time.Second

// traceIndent is the indent of a long line's further lines.
const traceIndent = 6

type tracing struct {
	client      *client.Admin
	key, source string
	out         io.Writer
	asJSON      bool
	width       int // of the terminal; 0: no terminal, so lines stay whole
	after       map[string]uint64
}

// follow writes lines until ctx ends, which is not an error. A node that answered once may become unreachable and
// come back.
func (t *tracing) follow(ctx context.Context, every time.Duration) error {
	return term.Repeat(ctx, every, t.fetch, func(lines []inspect.TraceLine, _ error) error { return t.write(lines) })
}

func (t *tracing) fetch(ctx context.Context) ([]inspect.TraceLine, error) {
	after, err := json.Marshal(t.after)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	var answer admin.Traced
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
