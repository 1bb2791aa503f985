package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// receiversNow is the time at which the tables of these tests are printed.
var receiversNow = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// busyReceivers are three receivers with the longest possible texts: one waits for its limits, one has two sources,
// of which one is suspended, and one is idle.
func busyReceivers() inspect.Receivers {
	return inspect.Receivers{At: receiversNow, Receivers: []inspect.Receiver{
		{Key: "example.test", Node: "node-1", State: "asking", Cause: "allowance", Queued: 12345, Oldest: 200,
			Why: "5 addresses a second are allowed, and as many are asked", Sessions: 2, Most: 2, Rcpts: 4.96,
			Allowed: 5,
			Budget:  12, Refused: 0.051, Deferred: 0.002, Last: inspect.Reply{Stage: "rcpt", Code: 550,
				Text: "5.1.1 user unknown"}, LastAt: 3, Sources: []inspect.ReceiverSource{{}}},
		{Key: "suffix:" + strings.Repeat("long-name.", 20) + "test", Node: "node-2", State: "suspended", Cause: "penalty",
			Until: receiversNow.Add(12 * time.Minute), Queued: 100, Oldest: 4000, Most: 20, Allowed: 0.05, Deferred: 0.5,
			Why: "a rest, since a reply asked for it\x1b[31m " + strings.Repeat("very ", 40),
			Sources: []inspect.ReceiverSource{
				{Source: "192.0.2.7", State: "suspended", Until: receiversNow.Add(12 * time.Minute), Budget: 3,
					Rate: inspect.RateStatus{Rate: 0.5}},
				{Source: "192.0.2.8", State: "used", Sessions: 1, Budget: 19, Rate: inspect.RateStatus{Rate: 12}}}},
		{Key: "idle.test", Node: "node-1", State: "idle", Cause: "free", Rcpts: 9, Most: 2, Allowed: 5, Budget: 20},
	}, Silent: []inspect.UnreachableNode{{Node: "node-3", Why: "no answer within 1.5 s"}}}
}

func TestReceiversAreShownInOneTable(t *testing.T) {
	b := newThrottleBench(t)
	busy := busyReceivers()
	b.inspector.receivers = &busy
	out := b.must("receivers")
	holds(t, out, "RECEIVER             SESS   RCPT/S  BUDGET  REF  DEF  QUEUED  OLD  STATE\n",
		"example.test          2/2  5.0/5.0      12   5%  <1%  12,345   3m  allowance\n"+
			"    5 addresses a second are allowed, and as many are asked\n    last: rcpt: 550 5.1.1 user unknown, 3s ago\n",
		"suffix:long-name.l…  0/20   0/0.05       0   0%  50%     100  66m  penalty 12m\n",
		"  192.0.2.7             0    -/0.5       3                         suspended 12m\n",
		"since a reply asked for it?[31m very", "very very\n    very very very very very",
		"idle.test             0/2  9.0/5.0      20   0%   0%       0    -  idle\n",
		"Without node-3, which does not answer: no answer within 1.5 s\n")
	for args, first := range map[string]string{"": "example.test", "--sort rate": "idle.test",
		"--sort refused": "example.test", "--sort deferred": "suffix:", "IDLE": "idle.test"} {
		out := b.must(append([]string{"receivers"}, strings.Fields(args)...)...)
		_, body, _ := strings.Cut(out, "\n")
		effort.ErrorIf(t, !strings.HasPrefix(body, first), "receivers %s: want %s first in\n%s", args, first, out)
	}
	holds(t, b.must("receivers", "--limit", "1"), "\nand 2 more\n")
	var found inspect.Receivers
	b.asks(&found, "receivers", "--limit", "1")
	effort.ErrorIf(t, len(found.Receivers) != 1 || found.More != 2, "%+v", found)
	file := console{t: t, environ: b.environ, toFile: true}
	holds(t, file.must("receivers"), busy.Receivers[1].Key+"  ") // is whole
	b.refused(`no receiver that is asked now has "nosuch" in its key`, "receivers", "nosuch")
	b.inspector.receivers = nil
	holds(t, b.must("receivers"), "No receiver is asked now.\n")
	for _, wrong := range []string{"--sort name", "--limit -1", "a b"} {
		b.misused(append([]string{"receivers"}, strings.Fields(wrong)...)...)
	}
	b.inspector.broken = errors.New("down")
	b.refused("this cannot be answered now", "receivers", "--watch")
}

// TestAScreenHoldsWhatItHas: the output has no more lines than the screen; the others are counted.
func TestAScreenHoldsWhatItHas(t *testing.T) {
	var found inspect.Receivers
	for i := range 100 {
		found.Receivers = append(found.Receivers, inspect.Receiver{Key: fmt.Sprintf("r%d.test", i), Why: "because"})
	}
	out := term.NewPage(nil)
	printReceiverList(out, found, 21)
	if lines := strings.Count(out.String(), "\n"); lines != 23 || !strings.HasSuffix(out.String(), "\nand 90 more\n") {
		t.Errorf("%d lines, want 21 with a line about the omitted rows:\n%s", lines, out.String())
	}
}

// busyDetail is one receiver with every possible detail.
func busyDetail() inspect.ReceiverDetail {
	now := time.Now()
	d := inspect.ReceiverDetail{Receiver: busyReceivers().Receivers[0]}
	d.Sources = []inspect.ReceiverSource{{Source: "192.0.2.7", State: "used", Sessions: 2, Budget: 12,
		Rate: inspect.RateStatus{
			Rate: 2.5, Floor: 0.1, Ceiling: 5, Edge: 3, Phase: "recovering", Since: now.Add(-3 * time.Minute),
			Why: "halved after 421"}}}
	d.PerHour, d.Behind = 17000, 1200
	d.SessionList = []inspect.Session{{ID: 17, Source: "192.0.2.7", Host: "mx1.example.test", State: "asking", Age: 61,
		Rcpts: 30, Refused: 1, TLS: "1.3"}}
	d.Queues = []inspect.Queue{{Workspace: "5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b",
		Verification: "0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11", Queued: 12000, Oldest: 200, Weight: 3}}
	d.Firings = []inspect.Reply{{At: now.Add(-4 * time.Minute), Stage: "mail", Code: 421, Text: "4.7.0 try later",
		Rule:   "busy",
		Action: "slow down", Source: "192.0.2.7", Host: "mx1.example.test",
		Until: now.Add(time.Minute + time.Second)},
		{At: now.Add(-30 * time.Minute), Text: "busy", Host: "mx1.example.test", Source: "192.0.2.7",
			Action: "slow down", Rule: "busy", Until: now.Add(-20 * time.Minute)}}
	for i := range 60 {
		d.Minutes = append(d.Minutes, inspect.Minute{At: now.Add(time.Duration(i-60) * time.Minute), Asked: i * 5,
			Allowed: 1, AllowedLast: 4})
	}
	d.Learned = []inspect.Limit{{Field: "rcpts_per_connection", Value: "20", Since: now.Add(-time.Minute),
		From: "it ended sessions after as many", Until: now.Add(59*time.Minute + time.Second)}}
	d.Causes = []string{"It counts by the minute: 421 came at 150 twice.", "Not greylisting: no address came back."}
	return d
}

func TestEverythingAboutAReceiverIsShown(t *testing.T) {
	b := newThrottleBench(t)
	other := busyDetail()
	other.Node = "node-2"
	other.Firings[0].At = other.Firings[0].At.AddDate(0, 0, -1) // shown with its day, still within the screen
	b.inspector.details = []inspect.ReceiverDetail{busyDetail(), other}
	out := b.must("receivers", "show", "example.test")
	holds(t, out, "receiver      example.test on node-1\n", "\nreceiver      example.test on node-2\n",
		"why           5 addresses a second are allowed", "asked         5.0/s of 5.0/s allowed, 0 on the wire\n",
		"last reply    \"rcpt: 550 5.1.1 user unknown\"\n              3s ago\n",
		"\nasked/s        4.9  ▁▁▁▁▁▂", "▇▇█████\n", "\nallowed/s      4.0  ████",
		"SOURCE     STATE  SESS  BUDGET  PACE/S  FLOOR  CEILING  EDGE  PHASE\n",
		"192.0.2.7  used      2      12     2.5    0.1      5.0   3.0  recovering\n    pace: halved after 421, 3m ago\n",
		"     17  192.0.2.7  mx1.example.test  asking  61s     30        1  1.3\n",
		"0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11  5f2c91aa-8f6e-4b1c-9…  12,000   3m       3\n",
		"    \"mail: 421 4.7.0 try later\"\n",
		"believed      It counts by the minute: 421 came at 150 twice.\n              Not greylisting: no address",
		", now")
	holds(t, unfolded(out),
		"queued 12,345, the oldest for 3m; verifications have not handed over 1,200 of them yet; about 17,000 an hour at present ",
		"by mx1.example.test, to 192.0.2.7, taken for: slow down, rule busy, until ",
		"What was learned: At most 20 addresses in a session (rcpts_per_connection), learned at ",
		"Z because it ended sessions after as many, until ", " left); then the configured limit applies again.",
		"Asked 2.5/s of the 5.0/s allowed from 192.0.2.7 since ",
		" (recovering): halved after 421; 3.0/s was too fast. It is raised while higher rates go well.")
	effort.Lacks(t, out, "(0s left)", "what is over is told as if it held")
	effort.Lacks(t, out, "deferred "+strings.Repeat(" ", 9)+"0", "a row of nothing is drawn")
	explained := b.must("throttle", "explain", "example.test")
	holds(t, explained, "Now, on node-2: allowance; 5 addresses a second", "    believed: It counts by the minute")
	holds(t, unfolded(explained), "At most 20 addresses in a session (rcpts_per_connection), learned at ",
		"Z because it ended sessions after as many, until ", "Asked 2.5/s of the 5.0/s allowed from 192.0.2.7 since ")
	var found admin.Details
	b.asks(&found, "receivers", "show", "example.test")
	effort.Is(t, len(found.Receivers), 2, "receivers")
	b.refused("no such receiver is asked now", "receivers", "show", "none.test")
	b.inspector.silent = []inspect.UnreachableNode{{Node: "node-3", Why: "lost: it does not answer"}}
	b.refused("node-3 (lost: it does not answer): this node may have it", "receivers", "show", "none.test")
	holds(t, b.must("receivers", "close", "example.test", "17", "--node", "node-2"),
		"Session 17 of example.test on node-2")
	effort.Is(t, b.inspector.closed, "example.test node-2 17", "closed")
	_, _, err := b.run("receivers", "close", "example.test", "17")
	effort.ErrorIf(t, !isUsage(err) || !strings.Contains(err.Error(), "node-1, node-2"), "two nodes: %v", err)
	b.refused("has no session 18", "receivers", "close", "example.test", "18")
	b.misused("receivers", "close", "example.test", "x")
	b.inspector.details = b.inspector.details[:1]
	holds(t, b.must("receivers", "close", "example.test", "17", "--json"),
		`{"key":"example.test","node":"node-1","session":17}`)
}

// TestSoftwareIsShown: one line of at most 80 columns names the software and its source; JSON has it too.
func TestSoftwareIsShown(t *testing.T) {
	postfix := throttle.SoftwareOf(throttle.Shown{Greeting: "mx ESMTP Postfix"})
	cisco := throttle.SoftwareOf(throttle.Shown{Host: "mx1.iphmx.com"})
	b := newThrottleBench(t)
	d := busyDetail()
	b.inspector.details = []inspect.ReceiverDetail{d}
	effort.Lacks(t, b.must("receivers", "show", "example.test"), "software", "nothing is known")
	for _, tc := range []struct {
		software inspect.Software
		want     string
	}{
		{inspect.Software{Name: postfix.Name, By: postfix.By, Where: postfix.Where, PerSession: 8, Decides: true},
			"Postfix, by its greeting; at most 8 refusals in a session, any number in an hour (postconf(5): " +
				"smtpd_soft_error_limit"},
		{inspect.Software{Name: postfix.Name, By: postfix.By, Where: postfix.Where, PerSession: 8},
			"Postfix, by its greeting; not used, because refused_per_hour is set (postconf(5): "},
		{inspect.Software{Name: cisco.Name, By: cisco.By, Where: cisco.Where, Host: "mx1.iphmx.com"},
			"Cisco, by the name of its host; refused_per_hour holds (AsyncOS user guide: "},
		{inspect.Software{Host: "mx2.example.test"}, "mx2.example.test shows no known software; refused_per_hour " +
			"holds"},
	} {
		d.Software = &tc.software
		b.inspector.details = []inspect.ReceiverDetail{d}
		show := b.must("receivers", "show", "example.test")
		holds(t, unfolded(show), " software "+tc.want)
		holds(t, unfolded(b.must("throttle", "explain", "example.test")), " software: "+tc.want)
		var found admin.Details
		b.asks(&found, "receivers", "show", "example.test")
		effort.ErrorIf(t, len(found.Receivers) != 1 || found.Receivers[0].Software == nil ||
			*found.Receivers[0].Software != tc.software, "%+v", found)
	}
	x := explanation{now: time.Now(), Explanation: inspect.Explanation{Key: "example.test",
		Fields: []inspect.ExplainedField{{Field: "refused_per_hour", Value: "1000000", Said: inspect.Said{Layer: "known",
			Where: "node node-1", Reason: "Postfix, by its greeting (" + postfix.Where + ")"}}}}}
	out := term.NewPage(screen{})
	x.print(out)
	holds(t, unfolded(out.String()), "refused_per_hour 1000000 known node node-1: Postfix, by its greeting (postconf(5): ")
	fits(t, out.String(), term.Columns)
}

// TestEveryLessonIsASentence: each limit that can be learned has words, and a lesson with missing details becomes a
// shorter sentence.
func TestEveryLessonIsASentence(t *testing.T) {
	now := receiversNow
	d := inspect.ReceiverDetail{Learned: []inspect.Limit{
		{Field: "connections", Value: "2", Since: now.Add(-time.Minute), From: "more at once were refused",
			Until: now.Add(time.Minute)}, {Field: "session_age", Value: "1m"}}}
	d.Sources = []inspect.ReceiverSource{
		{Source: "", State: "suspended", Reason: "source_blocked", Until: now.Add(time.Hour),
			Rate: inspect.RateStatus{Rate: 5, Ceiling: 5}},
		{Source: "192.0.2.7", State: "used", Rate: inspect.RateStatus{Rate: 1, Ceiling: 5}}}
	want := []string{"At most 2 sessions at once (connections), learned at 11:59:00Z because more at once were refused, " +
		"until 12:01:00Z (60s left); then one more is tried.", "session_age is 1m.",
		"default is suspended here because of source_blocked, until 13:00:00Z (60m left).",
		"Asked 1.0/s of the 5.0/s allowed from 192.0.2.7. It is raised while higher rates go well."}
	got := lessons(d, now)
	effort.ErrorIf(t, !slices.Equal(got, want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	for field, words := range limitWords {
		_, known := throttle.ParseField(field)
		effort.ErrorIf(t, !known || words.what == "" || words.then == "", "%s: %+v", field, words)
	}
}

// TestWhatAReceiverTaughtIsForgotten: the output has a line for each thing forgotten, and names the nodes that did
// not answer.
func TestWhatAReceiverTaughtIsForgotten(t *testing.T) {
	b := newThrottleBench(t)
	holds(t, b.must("receivers", "forget", "example.test", "--reason", "they said sorry"),
		"example.test, on node-1, forgotten:\n  - the pause of the host mx1.example.test until 12:34:56 (long long",
		"\n    long", "\n  - the learned limit connections=2\n",
		"example.test, on node-2: there are no learned limits for --what all.\n")
	effort.Is(t, b.inspector.forgotten, "example.test all", "asked to forget")
	b.inspector.silent = []inspect.UnreachableNode{{Node: "node-3", Why: "lost"}}
	holds(t, b.must("receivers", "forget", "example.test", "--what", "pace", "--reason", "x"),
		"Without node-3, which does not answer and may keep them: lost.")
	holds(t, b.must("receivers", "forget", "example.test", "--reason", "x", "--json"),
		`"silent":[{"node":"node-3","why":"lost"}]`, `"dropped":[]`)
	holds(t, b.must("log", "--limit", "1"), "receiver forget", "anna@desk", "x")
	for _, wrong := range []string{"example.test", "example.test --reason x --what rest", "--reason x"} {
		b.misused(append([]string{"receivers", "forget"}, strings.Fields(wrong)...)...)
	}
	b.refused("no such receiver is asked now", "receivers", "forget", "none.test", "--reason", "x")
}

// TestReasonsAreNotCut: a long reason continues in the next line, at any width of a terminal, and no line is too
// wide.
func TestReasonsAreNotCut(t *testing.T) {
	until := receiversNow.Add(12 * time.Minute)
	r := inspect.Receiver{Key: "suffix:" + strings.Repeat("long-name.", 20) + "test", Node: "node-2", State: "waiting",
		Cause: "no healthy source", Until: until, Why: strings.Repeat("because of everything ", 12) + "and the end",
		Sources: []inspect.ReceiverSource{{Source: "192.0.2.7", State: "suspended", Until: until, Reason: "source_blocked",
			Rate: inspect.RateStatus{Phase: "backing off", Why: strings.Repeat("it said so ", 12) + "at last",
				Since: receiversNow}}}}
	for _, width := range []int{term.WidthLeast + 40, 100, 200} {
		tables := map[string]string{}
		b := &term.Page{Width: width}
		printReceiverList(b, inspect.Receivers{At: receiversNow, Receivers: []inspect.Receiver{r}}, 0)
		tables["receivers"] = b.String()
		s := receiverSheet{&term.Page{Width: width}, inspect.ReceiverDetail{Receiver: r}, receiversNow}
		s.head()
		s.sources()
		tables["receivers show"] = s.String()
		for name, text := range tables {
			fits(t, text, width)
			holds(t, unfolded(text), "everything and the end", "no healthy")
			if name == "receivers show" {
				holds(t, unfolded(text), "it said so at last")
			}
		}
	}
	g := term.Table{Columns: []term.Column{{Name: "A", Least: 3}, {Name: "WHY", Least: 6, Wrap: true}, {Name: "N",
		Right: true}}}
	g.Add("abcdefgh", "one two three four", "7")
	var b strings.Builder
	g.Write(&b, 18)
	effort.ErrorIf(t, !strings.Contains(b.String(), "one two  7\n") || !strings.Contains(b.String(), " three\n") ||
		!strings.Contains(b.String(), " four\n"), "got\n%s", b.String())
}

// TestLongLinesOfSessionsGoOnBelow: at a terminal a long line is folded without losing a character. Elsewhere it
// stays one line.
func TestLongLinesOfSessionsGoOnBelow(t *testing.T) {
	line := "< 550-5.7.1 " + strings.Repeat("word  two ", 30) + strings.Repeat("x", 100)
	for _, width := range []int{0, 60, 80} {
		var out strings.Builder
		tr := tracing{out: &out, width: width}
		effort.OK(t, tr.write([]inspect.TraceLine{{At: receiversNow, Node: "node-1", Host: "mx1.example.test", Session: 4,
			Line: line}, {At: receiversNow, Node: "node-1", Line: "> QUIT"}}))
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		effort.ErrorIf(t, width == 0 && len(lines) != 2 || width > 0 && len(lines) < 6,
			"at %d: %d lines", width, len(lines))
		whole := ""
		for i, one := range lines[:len(lines)-1] {
			rest, indented := strings.CutPrefix(one, strings.Repeat(" ", traceIndent))
			n := utf8.RuneCountInString(one)
			effort.ErrorIf(t, width > 0 && n > width || i > 0 && !indented, "at %d: %d columns: %q", width, n, one)
			whole += rest
		}
		if got := strings.ReplaceAll(whole, " ", ""); !strings.HasSuffix(got, strings.ReplaceAll(line, " ", "")) {
			t.Errorf("at %d something is lost:\n%s", width, out.String())
		}
	}
}

// TestSessionsAreTraced: the lines of sessions are shown, none twice.
func TestSessionsAreTraced(t *testing.T) {
	b := newThrottleBench(t)
	b.misused("receivers", "trace", "a.test", "--source", "x")
	for i := range 5 {
		b.inspector.lines = append(b.inspector.lines, inspect.TraceLine{Number: uint64(i + 1), Node: "node-1",
			At:      receiversNow,
			Session: 4, Host: "mx1.example.test", Line: fmt.Sprintf("> RCPT TO:<…@example.test> %d\x07", i)})
	}
	for _, asJSON := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), cliWait)
		b.inspector.asked, b.inspector.onAsk = 0, func(n int) {
			if n == 5 {
				cancel()
			}
		}
		var out bytes.Buffer
		tr := tracing{client: adminOf(t, b.environ), key: "example.test", out: &out, asJSON: asJSON}
		effort.ErrIs(t, tr.follow(ctx, time.Millisecond), nil)
		cancel()
		effort.Is(t, strings.Count(out.String(), "\n"), 5, "lines", out.String())
		if !asJSON {
			holds(t, out.String(), "12:00:00.000 node-1 mx1.example.test#4 > RCPT TO:<…@example.test> 0?\n")
		}
	}
}

func TestSourcesAreShown(t *testing.T) {
	b := newThrottleBench(t)
	b.inspector.sources = []inspect.Source{{Node: "node-1", Source: "2001:db8:85a3:1234:5678:8a2e:370:7334",
		State: "on trial",
		Until: time.Now().Add(time.Hour + time.Second), Sessions: 3, Today: 1234, PerDay: 5000, Spoken: 12,
		Blocked: 2,
		Reason:  "two receivers refuse it", Hello: "mail.example.test"}, {Node: "node-2", State: "used"}}
	holds(t, b.must("sources"), "SOURCE", "on trial 60m", "1,234    5,000      12        2\n",
		"    two receivers refuse it\n    introduces itself as mail.example.test\n", "\ndefault ",
		"Without node-9, which does not answer: no answer within 1.5s\n")
	var found admin.Sources
	b.asks(&found, "sources")
	effort.ErrorIf(t, len(found.Sources) != 2 || len(found.Silent) != 1, "%+v", found)
}

func TestAVerificationSaysWhatItWaitsFor(t *testing.T) {
	b := newThrottleBench(t)
	const id = "0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11"
	b.inspector.waits = inspect.Verification{ID: id, Workspace: "w", Status: "waiting", Node: "node-1", Total: 1000,
		Final: 400,
		At:    receiversNow, Finish: receiversNow.Add(90 * time.Minute), Waits: []inspect.Wait{
			{Addresses: 500, For: inspect.ForReceiver, Receiver: "example.test", Cause: "allowance", PerHour: 1800,
				Last: receiversNow.Add(17 * time.Minute)},
			{Addresses: 90, For: inspect.ForRetry, Reason: "greylisted", Until: receiversNow.Add(4 * time.Minute),
				Last: receiversNow.Add(9 * time.Minute)},
			{Addresses: 10, For: inspect.ForRoute}}}
	holds(t, b.must("verification", id), "verification  "+id+"\nstatus        waiting\n",
		"node          node-1 works on it\n", "final         400 of 1,000 addresses (40 %)\n",
		"expected      the last is final at 13:30:00Z, in 90m, if nothing changes\n",
		"ADDRESSES  WAIT FOR  RECEIVER      BECAUSE     FIRST  LAST  AN HOUR\n",
		"      500  receiver  example.test  allowance       -   17m    1,800\n    their turn at a receiver\n",
		"       90  retry     -             greylisted     4m    9m        -\n"+
			"    another attempt, since they were deferred; the first goes on at 12:04:00Z\n")
	b.misused("verification", "x")
	b.refused("there is no verification with this id", "verification", "0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c12")
	d := ledgertest.NewFixture(t, b.book, 5)
	holds(t, b.must("verification", d.Creates(700).ID.String()), "status        uploading\n",
		"why           its file is being uploaded: 0 of 700 bytes have arrived")
	v, l := d.Prepares(4)
	d.Settles(l, 1, 0, 3, smtp.Valid)
	holds(t, b.must("verification", v.ID.String()), "status        completed\n",
		"final         4 of 4 addresses (100 %)\n", "and nothing waits: 4 valid,")
	for word := range waitsFor {
		effort.Not(t, waitsFor[word], "", word, "is not explained")
	}
}

// TestTheTopOfWhatIsWaitedForIsShown: text output has the first rows and the sum of the others; JSON has all rows.
func TestTheTopOfWhatIsWaitedForIsShown(t *testing.T) {
	b := newThrottleBench(t)
	const id = "0b6f2c9e-5f5e-4a3a-9c55-5a3a1b0f4c11"
	b.inspector.waits = inspect.Verification{ID: id, Status: "verifying", Node: "node-1", At: receiversNow}
	for i := range 37 {
		b.inspector.waits.Waits = append(b.inspector.waits.Waits, inspect.Wait{Addresses: 100 + i, For: inspect.ForReceiver,
			Receiver: fmt.Sprintf("r%d.test", i)})
	}
	for args, want := range map[string]struct {
		rows int
		line string
	}{"": {10, "\nand 27 more rows with 3,051 addresses: add --limit 0 to see them all\n"},
		"--limit 3": {3, "and 34 more rows with 3,961 addresses"}, "--limit 37": {37, ""}, "--limit 0": {37, ""}} {
		out := b.must(append([]string{"verification", id}, strings.Fields(args)...)...)
		if rows := strings.Count(out, ".test "); rows != want.rows || !strings.Contains(out, want.line) ||
			strings.Contains(out, "more rows") != (want.line != "") || !strings.Contains(out, "      136  receiver  r36.test") {
			t.Errorf("%q: %d rows, want %d and %q:\n%s", args, rows, want.rows, want.line, out)
		}
	}
	var found inspect.Verification
	b.asks(&found, "verification", id)
	effort.Is(t, len(found.Waits), 37, "rows as JSON")
	b.misused("verification", id, "--limit", "-1")
}

// TestTheNewestChangesAreListed: only the newest changes are listed, with the oldest of them first.
func TestTheNewestChangesAreListed(t *testing.T) {
	b := newThrottleBench(t)
	for i := range 3 {
		effort.OK(t, b.book.Note(ledger.WithAuthor(t.Context(), "dora"), ledger.LogLine{Action: "test",
			Subject: fmt.Sprintf("change %d.", i)}))
	}
	holds(t, b.must("log", "--limit", "2"), "dora: test\n    change 1.\n", "change 2.\n")
	effort.Lacks(t, b.must("log", "--limit", "2"), "change 0.", "more than asked for")
	for _, wrong := range []string{"--since soon", "--since -2h", "--limit 0", "--limit -1 --since 1h", "x"} {
		b.misused(append([]string{"log"}, strings.Fields(wrong)...)...)
	}
}

func TestLengthsOfTimeInDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"3d": 72 * time.Hour, "2h": 2 * time.Hour,
		"90m": 90 * time.Minute, "99999d": 36_500 * dayHours,
		"99999999999999999999d": 36_500 * dayHours} {
		effort.Is(t, effort.Must(admin.ParseSpan(text))(t), want, text)
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "2x"} {
		d, err := admin.ParseSpan(text)
		effort.ErrorIf(t, err == nil, "%s: %v", text, d)
	}
}
