package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
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

func newReceivers(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "receivers [KEY-PART]",
		Short: "See the state of every receiver; pause, resume or trace one, clear its learned limits",
		Long: "See the state of every receiver in the cluster.\n\n" +
			"SESS: open and allowed sessions. RCPT/S: addresses asked and allowed a second. BUDGET: refusals that may\n" +
			"still be caused in this hour. REF and DEF: parts of the last ten minutes' replies that were refusals and\n" +
			"deferrals. QUEUED: addresses that could be asked now but have no reply. OLD: how long the oldest of them\n" +
			"has waited. STATE: what keeps us from asking more: allowance, connections, budget, paused,\n" +
			"penalty, no healthy source. Below are the reason and the last reply.",
		Example: "  rollcall receivers --watch\n" +
			"  rollcall receivers google --sort deferred --limit 5\n" +
			"  rollcall receivers show example.net",
	}
	node := addAdminFlags(c, e)
	v := receiversTable{}
	c.Flags().StringVar(&v.sort, "sort", "queued", "sort by queued, rate, refused or deferred, highest first")
	c.Flags().IntVar(&v.limit, "limit", 0, "show at most this many (default: all, or what a watched screen holds)")
	watchCommand(node, c, receiversEvery, func(ctx context.Context, to *client.Admin, args []string) (
		found inspect.Receivers, err error) {
		if _, known := receiverOrders[v.sort]; !known {
			return found, term.UsageError(fmt.Sprintf("--sort %q: write queued, rate, refused or deferred", v.sort))
		}
		if v.limit < 0 {
			return found, term.UsageError("--limit must not be below 0")
		}
		if found, err = to.Receivers(ctx); err != nil {
			return found, err
		}
		part := strings.ToLower(strings.Join(args, ""))
		if found = v.pick(found, part); part != "" && len(found.Receivers) == 0 {
			err = fmt.Errorf("no receiver that is asked now has %q in its key: `rollcall receivers` lists all", part)
		}
		return found, err
	}, printReceiverList)
	must(c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"queued", "rate", "refused", "deferred"},
		cobra.ShellCompDirectiveNoFileComp)))
	c.AddCommand(newReceiversShow(node), newReceiversTrace(node), newReceiversClose(node), newReceiversForget(node))
	c.AddCommand(pauseCommands(node)...)
	return c
}

// must panics on errors that only a bug can cause, and then at every start.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

var receiverOrders = map[string]func(r inspect.Receiver) float64{
	"queued":   func(r inspect.Receiver) float64 { return float64(r.Queued) },
	"rate":     func(r inspect.Receiver) float64 { return r.Rcpts },
	"refused":  func(r inspect.Receiver) float64 { return r.Refused },
	"deferred": func(r inspect.Receiver) float64 { return r.Deferred },
}

const receiversEvery = time.Second

type receiversTable struct {
	sort  string
	limit int // 0: none
}

// pick returns the receivers with part in their keys, in order. More counts receivers beyond the limit.
func (v receiversTable) pick(found inspect.Receivers, part string) inspect.Receivers {
	list := slices.DeleteFunc(slices.Clone(found.Receivers), func(r inspect.Receiver) bool {
		return !strings.Contains(r.Key, part)
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

// printReceiverList writes receivers in at most this many lines; 0 means any number.
func printReceiverList(b *term.Page, found inspect.Receivers, lines int) {
	now := cmp.Or(found.At, time.Now())
	g := receiversGrid()
	used, shown := 1, 0 // the heading
	for _, r := range found.Receivers {
		rows := receiverRows(r, now, b.Width)
		need := 0
		for _, row := range rows {
			need += 1 + row.BelowLines(b.Width)
		}
		if lines > 0 && used+need > lines && shown > 0 {
			break
		}
		used, shown = used+need, shown+1
		g.Rows = append(g.Rows, rows...)
	}
	if len(found.Receivers) > 0 {
		b.Table(g)
	} else {
		b.Para(0, "No receiver is asked now.")
	}
	if more := found.More + len(found.Receivers) - shown; more > 0 {
		fmt.Fprintf(b, "\nand %s more\n", term.Grouped(more))
	}
	b.Notes(silentNotes(found.Silent)...)
}

func receiversGrid() *term.Table {
	return &term.Table{Columns: []term.Column{{Name: "RECEIVER", Least: 15}, {Name: "SESS", Right: true},
		{Name: "RCPT/S", Right: true}, {Name: "BUDGET", Right: true}, {Name: "REF", Right: true},
		{Name: "DEF", Right: true}, {Name: "QUEUED", Right: true}, {Name: "OLD", Right: true},
		{Name: "STATE", Least: 12, Wrap: true}}}
}

// receiverRows returns the row of a receiver and, if it has several sources, a row for each.
func receiverRows(r inspect.Receiver, now time.Time, width int) []term.Row {
	oldest := "-"
	if r.Queued > 0 {
		oldest = term.Span(term.Seconds(r.Oldest))
	}
	var g term.Table
	g.Add(r.Key, fmt.Sprintf("%d/%d", r.Sessions, r.Most), term.Figure(r.Rcpts)+"/"+term.Figure(r.Allowed),
		term.Short(r.Budget), term.Percent(r.Refused), term.Percent(r.Deferred), term.Short(r.Queued), oldest,
		stateText(r, now))
	if len(r.Sources) > 1 {
		for _, s := range r.Sources {
			state := s.State + when(" ", s.Until, now, term.Left)
			g.Add("  "+sourceName(s.Source), fmt.Sprint(s.Sessions), "-/"+term.Figure(s.Rate.Rate), term.Short(s.Budget),
				"", "", "", "", state)
		}
	}
	last := replyText(r.Last)
	if last != "" && r.LastAt > 0 {
		last += ", " + term.Span(term.Seconds(r.LastAt)) + " ago"
	}
	if r.Why != "" && last != "" && len([]rune(r.Why+last))+12 <= width {
		g.Below(r.Why + "; last: " + last)
	} else {
		g.Below(r.Why, after("last: ", last))
	}
	return g.Rows
}

// stateText says in one to three words what keeps us from asking a receiver more.
func stateText(r inspect.Receiver, now time.Time) string {
	text := r.State
	if r.Cause != "" && r.Cause != inspect.Causes[0] {
		text = r.Cause
		if r.State == "draining" {
			text = r.State
		}
	}
	if r.Until.After(now.Add(time.Second)) { // for a person, less than a second is now
		text += " " + term.Left(r.Until, now)
	}
	return text
}

// replyText writes a reply in one line, or "" without a reply.
func replyText(r inspect.Reply) string {
	text := r.Text
	if r.Code > 0 && !strings.HasPrefix(text, fmt.Sprint(r.Code)) {
		text = strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, text))
	}
	if text = cmp.Or(text, r.Reason); text != "" && r.Stage != "" {
		text = r.Stage + ": " + text
	}
	return term.Printable(text)
}

func pauseCommands(node *adminFlags) []*cobra.Command {
	r := pausable{node, "KEY", func(arg string) (string, error) { return sourceKey(arg), nil }}
	return []*cobra.Command{
		r.newPause("pause", throttle.PauseYes, &cobra.Command{Short: "Pause a receiver for a time",
			Long: "Pause a receiver for a time: its sessions end after the command in progress. Its addresses wait; none is\n" +
				"lost or asked twice because of it.",
			Example: "  rollcall receivers pause example.net --for 2h --reason \"their postmaster asked\""}),
		r.newPause("drain", throttle.PauseDrain, &cobra.Command{
			Short: "Open no more sessions to a receiver for a time; open ones run to their end",
			Long: "Open no more sessions to a receiver for a time. Open ones run to their end.\n" +
				"Its addresses wait; none is lost.",
			Example: "  rollcall receivers drain example.net --for 30m --reason maintenance"}),
		r.newResume("End the pause or the drain of a receiver")}
}

// pausable describes what a command can pause and resume: receivers or sources.
type pausable struct {
	node *adminFlags
	arg  string
	key  func(arg string) (string, error) // makes the key of a rule from the argument
}

func (p pausable) newPause(word string, value throttle.Pause, c *cobra.Command) *cobra.Command {
	c.Use = word + " " + p.arg + " --for DURATION --reason REASON"
	change := addChangeFlags(c)
	return answerWith(c, func(args []string) (out setView, err error) {
		key, err := p.key(args[0])
		if err != nil {
			return out, err
		}
		return change.set(c, p.node, admin.OverrideCall{Key: key,
			Fields: map[string]string{throttle.FieldPause.String(): string(value)}})
	}, printSet)
}

func (p pausable) newResume(short string) *cobra.Command {
	c := &cobra.Command{Use: "resume " + p.arg, Short: short}
	reason := c.Flags().String("reason", "", "why, for the operator log")
	return adminCommand(p.node, c, func(to *client.Admin, args []string) (done resumedAnswer, err error) {
		done.name = args[0]
		key, err := p.key(args[0])
		if err != nil {
			return done, err
		}
		done.Cleared, err = to.Clear(c.Context(), admin.ClearCall{Key: key, Only: throttle.FieldPause.String(),
			Reason: *reason})
		if err == nil {
			done.Still = stillPaused(c.Context(), to, key, done.Cleared.Cleared)
		}
		return done, err
	}, printResumed)
}

// resumedAnswer lists, for programs, the ended overrides, and rules that still keep the pause.
type resumedAnswer struct {
	name string
	admin.Cleared
	Still *inspect.ExplainedField `json:"still"` // null: nobody does
}

// stillPaused returns a value that still keeps the pause; nil if there is none. The node may apply a change a moment
// later.
func stillPaused(
	ctx context.Context, to *client.Admin, key string, ended []admin.ThrottleRule,
) *inspect.ExplainedField {
	x := awaitRules(ctx, to.Explain, key, func(x inspect.Explanation) bool {
		return !slices.ContainsFunc(ended, func(r admin.ThrottleRule) bool { return says(x, r.ID) })
	})
	if x != nil {
		for _, f := range x.Fields {
			if f.Field == throttle.FieldPause.String() && f.Value != string(throttle.PauseNo) {
				return &f
			}
		}
	}
	return nil
}

func printResumed(b *term.Page, done resumedAnswer) {
	name, ended, still := done.name, done.Cleared.Cleared, done.Still
	now, text := time.Now(), ""
	switch {
	case len(ended) > 0 && still == nil:
		text = fmt.Sprintf("%s is asked again: %d overrides ended.", name, len(ended))
		if len(ended) == 1 {
			text = fmt.Sprintf("%s is asked again: override %.8s ended.", name, ended[0].ID)
		}
	case still == nil:
		text = fmt.Sprintf("%s is not paused: there was no override to end.", name)
	case still.ID != "":
		text = fmt.Sprintf("%s still has pause=%s, by %s, which sets more than that: `rollcall throttle clear --id %s` "+
			"ends all of it.", name, still.Value, from(still.Said, now), still.ID)
	default:
		text = fmt.Sprintf("%s still has pause=%s, by %s: change it there.", name, still.Value,
			strings.TrimSpace(still.Layer+" "+from(still.Said, now)))
	}
	b.Para(0, "%s", text)
}

func newReceiversClose(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "close KEY SESSION",
		Short: "End one session of a receiver after the command in progress",
		Long: "End one session of a receiver after the command in progress. Its addresses are asked in another.\n" +
			"SESSION is its number, shown by `rollcall receivers show KEY`.",
		Example: "  rollcall receivers close example.net 17\n" +
			"  rollcall receivers close example.net 17 --node node-2",
	}
	on := c.Flags().String("node", "", "the node that has it (default: the receiver's only node)")
	return adminCommand(node, c, func(client *client.Admin, args []string) (done admin.CloseCall, err error) {
		number, err := strconv.Atoi(args[1])
		if err != nil || number < 1 {
			return done, term.UsageError(fmt.Sprintf("SESSION %q is not a number: see `rollcall receivers show %s`", args[1],
				args[0]))
		}
		if *on == "" {
			if *on, err = onlyNodeWith(c.Context(), client, args[0], number); err != nil {
				return done, err
			}
		}
		return done, client.Ask(c.Context(), "POST", "/v1/receivers/close",
			admin.CloseCall{Key: args[0], Node: *on, Session: number}, &done)
	}, func(b *term.Page, done admin.CloseCall) {
		fmt.Fprintf(b, "Session %d of %s on %s is asked to end.\n", done.Session, term.Printable(done.Key),
			term.Printable(done.Node))
	})
}

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
	return "", term.UsageError(fmt.Sprintf("several nodes have such a session %d: give --node, one of %s", session,
		strings.Join(nodes, ", ")))
}

func newReceiversForget(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "forget KEY --reason REASON",
		Short: "Clear a receiver's learned limits on all nodes",
		Long: "Clear a receiver's learned limits on all nodes, also the saved ones:\n" +
			"  pace      how fast each of our sources may ask; the search starts again\n" +
			"  sessions  how many sessions it accepts at once, and how long they may be\n" +
			"  block     pauses of the receiver, its hosts and our source addresses\n" +
			"  all       these three, its greylisting time, its TLS and its software\n\n" +
			"The configured limits still apply, and refusals of this hour still count. Addresses that it deferred\n" +
			"are asked again at the time that it named.",
		Example: "  rollcall receivers forget example.net --what block --reason \"they took us off their list\"",
	}
	what := c.Flags().String("what", "all", strings.Join(inspect.Forgets[:], ", "))
	reason := c.Flags().String("reason", "", "why, for the operator log")
	must(c.RegisterFlagCompletionFunc("what", cobra.FixedCompletions(inspect.Forgets[:],
		cobra.ShellCompDirectiveNoFileComp)))
	return adminCommand(node, c, func(client *client.Admin, args []string) (done admin.Forgotten, err error) {
		if !slices.Contains(inspect.Forgets[:], *what) {
			return done, term.UsageError(fmt.Sprintf("--what %q: write one of %s", *what,
				strings.Join(inspect.Forgets[:], ", ")))
		}
		if strings.TrimSpace(*reason) == "" {
			return done, term.UsageError("--reason is missing: say why, for readers of the operator log")
		}
		return done, client.Ask(c.Context(), "POST", "/v1/receivers/forget",
			admin.ForgetCall{Key: args[0], What: *what, Reason: *reason}, &done)
	}, func(b *term.Page, done admin.Forgotten) { printForgotten(b, done, *what) })
}

func printForgotten(b *term.Page, done admin.Forgotten, what string) {
	for _, f := range done.Receivers {
		at := "on " + f.Node
		if f.Node == "" {
			at = "kept for later"
		}
		if len(f.Dropped) == 0 {
			b.Para(0, "%s, %s: there are no learned limits for --what %s.", f.Key, at, what)
		} else {
			b.Para(0, "%s, %s, forgotten:", f.Key, at)
		}
		for _, text := range f.Dropped {
			b.Behind("  - ", "%s", text)
		}
	}
	for _, s := range done.Silent {
		b.Para(0, "Without %s, which does not answer and may keep them: %s. Repeat this when it answers.", s.Node, s.Why)
	}
}

func newSourcesCommand(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "sources",
		Short: "See our source addresses on all nodes; pause, drain, resume one",
		Long: "See our source addresses on all nodes.\n\n" +
			"TODAY: addresses asked since midnight UTC, and allowed in a day. SPOKEN: receivers spoken to within the\n" +
			"hour. BLOCKED: those of them that refuse the source. \"default\" is the source whose address the\n" +
			"system chooses.",
		Example: "  rollcall sources\n" +
			"  rollcall sources drain 192.0.2.7 --for 6h --reason \"listed, see ticket 12\"",
	}
	node := addAdminFlags(c, e)
	adminCommand(node, c, func(to *client.Admin, _ []string) (admin.Sources, error) {
		return to.Sources(c.Context())
	}, func(b *term.Page, found admin.Sources) { printSources(b, found, time.Now()) })
	s := pausable{node, "ADDRESS", keyOfSource}
	const drains = "Open no more sessions from a source for a time; open ones run to their end"
	c.AddCommand(
		s.newPause("pause", throttle.PauseYes, &cobra.Command{Short: "Pause a source for a time",
			Long: "Pause a source for a time: its sessions end after the command in progress.\n" +
				"Other sources go on, each within its own limits; without another one the addresses wait.",
			Example: "  rollcall sources pause 192.0.2.7 --for 2h --reason \"listed\"\n" +
				"  rollcall sources pause default --for 10m --reason \"network work\""}),
		s.newPause("drain", throttle.PauseDrain, &cobra.Command{Short: drains, Long: drains + ".",
			Example: "  rollcall sources drain 192.0.2.7 --for 6h --reason \"moving away\""}),
		s.newResume("End the pause or the drain of a source"))
	return c
}

func keyOfSource(arg string) (string, error) {
	arg = strings.TrimPrefix(arg, throttle.SourcePrefix)
	if arg == "default" || arg == "" {
		return throttle.SourcePrefix, nil
	}
	at, err := netip.ParseAddr(arg)
	if err != nil {
		return "", term.UsageError(fmt.Sprintf("ADDRESS %q is not an IP address: write one of `rollcall sources`, or default",
			arg))
	}
	return throttle.SourcePrefix + at.Unmap().String(), nil
}

func printSources(b *term.Page, found admin.Sources, now time.Time) {
	g := term.Table{Columns: []term.Column{{Name: "SOURCE", Least: 12}, {Name: "NODE", Least: 8}, {Name: "STATE",
		Least: 8, Wrap: true}, {Name: "SESS", Right: true}, {Name: "TODAY", Right: true}, {Name: "PER DAY", Right: true},
		{Name: "SPOKEN", Right: true}, {Name: "BLOCKED", Right: true}}}
	for _, s := range found.Sources {
		state, perDay := s.State+when(" ", s.Until, now, term.Left), "-"
		if s.PerDay > 0 {
			perDay = term.Short(s.PerDay)
		}
		g.Add(sourceName(s.Source), s.Node, state, term.Grouped(s.Sessions), term.Short(s.Today), perDay,
			term.Grouped(s.Spoken), term.Grouped(s.Blocked))
		g.Below(s.Reason, after("introduces itself as ", s.Hello))
	}
	if len(found.Sources) == 0 {
		b.WriteString("No node has a source.\n")
	} else {
		b.Table(&g)
	}
	b.Notes(silentNotes(found.Silent)...)
}
