package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp/throttle"
)

// These tests call the commands in this process, against a real admin listener with a real ledger and real rules. The
// nodes give prepared answers.

// fakeInspector gives the nodes' answers. Its table explains names: the mail of small.test goes to example.test, the
// mail of big.test to google.com.
type fakeInspector struct {
	table *throttle.Table

	mu        sync.Mutex // guards the fields below
	receivers *inspect.Receivers
	asked     int // for lines
	onAsk     func(n int)
	details   []inspect.ReceiverDetail
	sources   []inspect.Source
	lines     []inspect.TraceLine
	waits     inspect.Verification
	closed    string
	forgotten string
	silent    []inspect.UnreachableNode // nodes that don't answer about receivers and explanations
	others    []inspect.OtherFile
	notes     []string
	broken    error // error for receivers and for questions that need DNS
}

func (s *fakeInspector) Receivers(context.Context) (inspect.Receivers, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receivers == nil {
		return inspect.Receivers{At: time.Now()}, s.broken
	}
	return *s.receivers, s.broken
}

func (s *fakeInspector) Receiver(_ context.Context, key string) ([]inspect.ReceiverDetail, error) {
	var found []inspect.ReceiverDetail
	for _, d := range s.details {
		if d.Key == key {
			found = append(found, d)
		}
	}
	if found == nil && s.silent != nil {
		return nil, &inspect.Unreachable{Silent: s.silent}
	}
	if found == nil {
		return nil, inspect.ErrNotThere
	}
	return found, nil
}

func (s *fakeInspector) Sources(context.Context) ([]inspect.Source, []inspect.UnreachableNode, error) {
	return s.sources, []inspect.UnreachableNode{{Node: "node-9", Why: "no answer within 1.5s"}}, nil
}

func (s *fakeInspector) CloseSession(_ context.Context, key, node string, session int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = fmt.Sprint(key, " ", node, " ", session)
	return nil
}

func (s *fakeInspector) Forget(_ context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = key + " " + what
	if key == "none.test" {
		return nil, nil, inspect.ErrNotThere
	}
	return []inspect.Forgotten{{Key: key, Node: "node-1", Dropped: []string{"the pause of the host mx1.example.test " +
		"until " + "12:34:56 (" +
		strings.Repeat("long ", 20) + ")", "the learned limit connections=2"}}, {Key: key, Node: "node-2"}}, s.silent, nil
}

func (s *fakeInspector) Trace(_ context.Context, _, _ string, after map[string]uint64) (found []inspect.TraceLine,
	_ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l.Number > after[l.Node] && l.Number <= after[l.Node]+2 { // two at a time
			found = append(found, l)
		}
	}
	if s.asked++; s.onAsk != nil {
		s.onAsk(s.asked)
	}
	return found, nil
}

func (s *fakeInspector) Verification(_ context.Context, id string) (inspect.Verification, error) {
	if s.waits.ID != id {
		return inspect.Verification{}, inspect.ErrNotThere
	}
	return s.waits, nil
}

func (s *fakeInspector) Health(context.Context) ([]inspect.Health, []inspect.UnreachableNode, error) {
	return nil, s.silent, nil
}

func (s *fakeInspector) Files(context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error) {
	return s.others, s.silent, nil
}

func (s *fakeInspector) ExplainRules(name string) (inspect.Explanation, error) {
	return inspect.Explanation{Key: name, Fields: inspect.Fields(s.table.Explain(name))}, nil
}

func (s *fakeInspector) Explain(_ context.Context, name string) (inspect.Explanation, error) {
	x := inspect.Explanation{Key: name, Notes: s.notes, Others: s.others, Silent: s.silent}
	switch name {
	case "small.test":
		x.Domain, x.Key, x.Hosts = name, "example.test", []string{"mx1.example.test", "mx2.example.test"}
	case "big.test":
		x.Domain, x.Hosts = name, []string{"aspmx.l.google.com"}
		x.Key, _ = s.table.Match("google.com", x.Hosts, name)
	}
	for _, d := range s.details {
		if d.Key == x.Key {
			x.Receiver = append(x.Receiver, d.Receiver)
		}
	}
	x.Fields = inspect.Fields(s.table.Explain(x.Key))
	return x, s.broken
}

// throttleBench is an admin listener and the commands that ask it.
type throttleBench struct {
	console
	inspector *fakeInspector
	book      *sqlstore.Store
	replay    func(candidate string) (inspect.Replayed, error)
	fault     string // of the throttle file
}

// serveAdmin starts the operator's listener on a ledger and ends both with the test.
func serveAdmin(t *testing.T, book *sqlstore.Store, o admin.Options) (url, token string) {
	t.Helper()
	token = strings.Repeat("t", 20)
	o.Listen, o.Book, o.Token, o.Gatherer = "127.0.0.1:0", book, token, prometheus.NewRegistry()
	o.Draining, o.Log = func() bool { return false }, cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Wake, o.Ready, o.PagesURL = func() {}, func(context.Context) error { return nil }, func() string { return "" }
	if o.Tuned == nil {
		o.Tuned = func() {}
	}
	server, err := admin.New(o)
	if err == nil {
		err = server.Start()
	}
	effort.OK(t, err)
	t.Cleanup(func() { effort.OK(t, errors.Join(server.Stop(context.Background()), book.Close())) })
	return "http://" + server.Addr().String(), token
}

func newThrottleBench(t *testing.T) *throttleBench {
	t.Helper()
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	set := fieldsOf(t, map[string]string{"rcpt_rate": "4/s", "retry_waits": "5m,10m,20m,40m,1h,2h"})
	table := effort.Must(throttle.NewTable([]throttle.Rule{
		{Name: "example.test", Set: set, Where: map[throttle.Field]string{0: "throttle.toml:12"}},
		{Name: "paused.test", Set: fieldsOf(t, map[string]string{"pause": "yes"}),
			Where: map[throttle.Field]string{0: "throttle.toml:17"}}}))(t)
	b := &throttleBench{console: console{t: t}, inspector: &fakeInspector{table: table}, book: book}
	url, token := serveAdmin(t, book, admin.Options{Inspector: b.inspector, Throttle: table, Tuned: b.follow,
		Limits:       ledger.Limits{Open: 100, Stored: 10 << 30, Unpaid: 1000},
		ThrottleFile: func() admin.ThrottleFile { return admin.ThrottleFile{File: "throttle.toml", Fault: b.fault} },
		ReplayThrottle: func(_ context.Context, candidate string) (inspect.Replayed, error) {
			return b.replay(candidate)
		}})
	b.environ = []string{"ROLLCALL_ADMIN=" + url, "ROLLCALL_ADMIN_TOKEN=" + token, "ROLLCALL_AUTHOR=anna@desk"}
	return b
}

func fieldsOf(t *testing.T, texts map[string]string) throttle.Override {
	t.Helper()
	return effort.Must(throttle.ParseOverride(texts))(t)
}

// follow applies a changed override, as a node does.
func (b *throttleBench) follow() {
	settings, err := b.book.Settings(context.Background())
	effort.ErrIs(b.t, err, nil)
	var rules []throttle.Rule
	for _, o := range settings.Overrides {
		set, err := throttle.ParseOverride(o.Fields)
		effort.ErrIs(b.t, err, nil)
		rules = append(rules, throttle.Rule{Name: o.Key, Set: set, ID: o.ID.String(), Author: o.Author, Reason: o.Reason,
			Until: o.Expires})
	}
	effort.ErrIs(b.t, b.inspector.table.Replace(throttle.LayerOverride, rules), nil)
}

// TestARateIsChangedForAnHour: set, explain, list, clear and the log agree.
func TestARateIsChangedForAnHour(t *testing.T) {
	b := newThrottleBench(t)
	out := b.must("throttle", "set", "example.test", "rcpt_rate=2/s", "connections=1", "--for", "1h",
		"--reason", "they complained")
	holds(t, out, "Set for example.test until ", "(60m), override", "\nFIELD        BEFORE  NOW",
		"\nconnections  2       1    default built in\n",
		"\nrcpt_rate    4/s     2/s  file example.test, throttle.toml:12\n")
	out = b.must("throttle", "explain", "small.test")
	holds(t, out, "small.test is asked at receiver example.test (hosts mx1.example.test,\nmx2.example.test).",
		"\nrcpt_rate              2/s            override  example.test, override ", "by anna@desk",
		"m left)", "they", "\nidle_time              2s             default",
		"\nretry_waits            5m,10m,20m,40m,1h,2h\n",
		"Sessions end after 2 refusals nevertheless", "Nothing is asked of it now.")
	effort.Lacks(t, out, "  not ", "what does not hold is shown without --all")
	holds(t, b.must("throttle", "explain", "small.test", "--all"), "\n  not                  4/s            file      ",
		"\n  not                  5/s            default   ")
	b.fault = "throttle.toml:3:7: rcpt_rate: no"
	out = b.must("throttle", "list")
	holds(t, out, "OVERRIDE example.test, ", "m left, until ", ", by anna@desk\n    they complained\n",
		"FILE example.test\n",
		"    rcpt_rate=4/s (beaten by override) retry_waits=5m,10m,20m,40m,1h,2h\n        throttle.toml:12\n",
		"throttle.toml not used: throttle.toml:3:7: rcpt_rate: no. None of its")
	effort.Lacks(t, out, "google", "what is known is listed without --all")
	holds(t, b.must("throttle", "list", "google", "--all"), "KNOWN google.com\n")
	var listed admin.ThrottleRules
	b.asks(&listed, "throttle", "list")
	effort.ErrorIf(t, len(listed.Rules) != 3 || listed.File.Fault == "", "%+v", listed)
	id := listed.Rules[2].ID
	holds(t, b.must("throttle", "clear", "--id", id[:8], "--reason", "over"),
		id[:8]+"  example.test  connections=1 rcpt_rate=2/s")
	holds(t, b.must("throttle", "clear", "example.test"), "No override of example.test is active")
	holds(t, b.must("throttle", "explain", "example.test"),
		"\nrcpt_rate              4/s            file      example.test, throttle.toml:12\n")
	out = b.must("log", "--since", "1h", "--limit", "0")
	holds(t, out, " anna@desk: throttle set\n    example.test", "rcpt_rate=2/s", "(they\n    complained)",
		"throttle clear\n", "(over)")
	first := strings.Index(out, "throttle set")
	effort.ErrorIf(t, first > strings.Index(out, "throttle clear"), "the log is not oldest first:\n%s", out)
	holds(t, b.must("log", "--json", "--limit", "1"), `{"lines":[{"id":`, `"action":"throttle clear"`, `"next":null}`)
}

// TestBeatenRulesAreMarked: a word names the stronger layer. It marks a rule if none of its fields is in effect, or
// else each field that isn't.
func TestBeatenRulesAreMarked(t *testing.T) {
	b := newThrottleBench(t)
	set := func(args ...string) {
		b.must(append(append([]string{"throttle", "set"}, args...), "--for", "1h", "--reason", "x")...)
	}
	effort.Lacks(t, b.must("throttle", "list"), "beaten", "nothing is beaten yet")
	set("example.test", "rcpt_rate=2/s")
	holds(t, b.must("throttle", "list"), "FILE example.test\n", "rcpt_rate=4/s (beaten by override)")
	set("paused.test", "pause=no")
	set("example.test", "retry_waits=1m", "rcpt_rate=1/s")
	out := b.must("throttle", "list")
	holds(t, unfolded(out), "FILE example.test, beaten by override: nothing of it holds",
		"FILE paused.test, beaten by override: nothing of it holds", "beaten by a later override: nothing of it holds")
	effort.Is(t, strings.Count(unfolded(out), "beaten by"), 3, "rules are marked", out)
	var listed admin.ThrottleRules
	b.asks(&listed, "throttle", "list")
	for _, r := range listed.Rules {
		for _, f := range r.Fields {
			effort.ErrorIf(t, r.Layer == "file" && f.Beaten != "override",
				"%s %s is beaten by %q", r.Name, f.Field, f.Beaten)
		}
	}
}

// TestWhatAnExplanationCouldNotAsk: the output says if DNS, other nodes or their files could not be asked. The rules
// show the configured values without any of them.
func TestWhatAnExplanationCouldNotAsk(t *testing.T) {
	b := newThrottleBench(t)
	b.inspector.notes = []string{"DNS could not be asked where mail for example.test goes: no name server answers."}
	b.inspector.others = []inspect.OtherFile{{Node: "node-2", Differs: true}, {Node: "node-3", Fault: "t.toml:1:1: no."}}
	b.inspector.silent = []inspect.UnreachableNode{{Node: "node-4", Why: "lost: it does not answer"}}
	for _, command := range []string{"explain", "list"} {
		out := strings.Join(strings.Fields(b.must("throttle", command, "example.test")), " ")
		holds(t, out, "node-2 has another throttle file, which applies to its receivers. ",
			"node-3 does not use its present throttle file: t.toml:1:1: no. ",
			"Without node-4, which does not answer: lost: it does not answer")
		if command == "explain" {
			holds(t, out, "DNS could not be asked where mail", "rcpt_rate 4/s file example.test, throttle.toml:12",
				"No node that answers asks this receiver anything now.")
		}
	}
	b.inspector.broken = context.DeadlineExceeded
	holds(t, b.must("throttle", "set", "example.test", "rcpt_rate=2/s", "--for", "1h", "--reason", "x"),
		"\nrcpt_rate  4/s     2/s  file example.test, throttle.toml:12\n")
}

// TestWhatThrottleSetRefuses: the error says what to write, wrong usage has its exit code, and no override is set.
func TestWhatThrottleSetRefuses(t *testing.T) {
	b := newThrottleBench(t)
	for _, c := range []struct {
		name, args, want string
		usage            bool
	}{
		{"nothing", "", "KEY is missing", true},
		{"no field", "a.test", "FIELD=VALUE is missing", true},
		{"no value", "a.test connections --for 1h --reason x", "not FIELD=VALUE", true},
		{"typing error", "a.test conections=1 --for 1h --reason x", "did you mean connections?", true},
		{"twice", "a.test connections=1 connections=2 --for 1h --reason x", "set twice", true},
		{"range", "a.test connections=0 --for 1h --reason x", "from 1 to 10000", true},
		{"rate", "a.test rcpt_rate=5 --for 1h --reason x", "rcpt_rate: ", true},
		{"no time", "a.test connections=1 --reason x", "--for is missing", true},
		{"bad time", "a.test connections=1 --for soon --reason x", "30m, 2h or 3d", true},
		{"negative", "a.test connections=1 --for=-2h --reason x", "1s to 31d", true},
		{"too long", "a.test connections=1 --for 32d --reason x", "throttle file", true},
		{"far too long", "a.test connections=1 --for 99999d --reason x", "1s to 31d", true},
		{"no field at all", "a.test foo=1 --for 1h --reason x", "there is no field \"foo\" The", true},
		{"no reason", "a.test connections=1 --for 1h", "--reason is missing", true},
		{"known", "big.test rcpt_rate=10/s --for 1h --reason x", "exceeds the known limit of google.com", false},
		{"of sources", "a.test rcpts_per_day=5 --for 1h --reason x", "cannot be set", false},
		{"a name", "a!test connections=1 --for 1h --reason x", "only letters", false},
		{"long author", "a.test connections=1 --for 1h --reason x --author " + strings.Repeat("x", 201), "200 bytes", true},
	} {
		stdout, _, err := b.run(append([]string{"throttle", "set"}, strings.Fields(c.args)...)...)
		effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), c.want) || isUsage(err) != c.usage ||
			stdout != "", "%s: got %v and %q, want %q", c.name, err, stdout, c.want)
	}
	if settings, err := b.book.Settings(t.Context()); err != nil || len(settings.Overrides) != 0 {
		t.Errorf("%v, %v is set", err, settings.Overrides)
	}
	effort.Has(t, b.must("throttle", "set", "big.test", "rcpt_rate=10/s", "--for", "31d", "--reason", "x",
		"--force"), "10/s", "forced")
	_, stderr, err := b.run("throttle", "set", "exmaple.test", "connections=1", "--for", "1h",
		"--reason", "x")
	effort.ErrorIf(t, err != nil || !strings.Contains(stderr, "check the spelling"),
		"a typing error in the key: %v %q", err, stderr)
	b.inspector.sources = []inspect.Source{{Node: "node-1", Source: "192.0.2.7"}}
	for key, warns := range map[string]bool{"source:192.0.2.7": false, "source:192.0.2.8": true,
		"source:default": true} {
		_, stderr, err := b.run("throttle", "set", key, "rcpts_per_day=5", "--for", "1h", "--reason", "x")
		effort.ErrorIf(t, err != nil || strings.Contains(stderr, "no node has a source") != warns ||
			strings.Contains(stderr, "source source"), "%s: %v %q", key, err, stderr)
	}
	holds(t, b.must("throttle", "explain", "source:192.0.2.7"), "rcpts_per_day          5              override")
	holds(t, b.must("throttle", "explain", "source:default"), "the source whose address the system chooses",
		"source:default, override\n")
}

// TestSomethingNarrowerGoesFirst: throttle set names a narrower rule that takes precedence.
func TestSomethingNarrowerGoesFirst(t *testing.T) {
	b := newThrottleBench(t)
	out := b.must("throttle", "set", "test", "rcpt_rate=2/s", "--for", "2d", "--reason", "x")
	holds(t, out, "Set for test until", "(2d)")
	b.must("throttle", "set", "example.test", "rcpt_rate=3/s", "--for", "2h", "--reason", "first")
	out = b.must("throttle", "set", "example.test", "rcpt_rate=1/s", "--for", "1h", "--reason", "second")
	holds(t, out, "rcpt_rate  3/s     1/s  override example.test, override ")
}

// TestPauseAndResume: resume ends pauses, but not a pause in the throttle file, or in an override that sets more
// fields.
func TestPauseAndResume(t *testing.T) {
	b := newThrottleBench(t)
	b.inspector.sources = []inspect.Source{{Source: "2001:db8::7"}}
	pause := func(x inspect.Explanation) string { value, _ := fieldOf(&x, "pause"); return value }
	for _, c := range []struct{ group, name, key string }{{"receivers", "example.test", "example.test"},
		{"sources", "2001:DB8::7", "source:2001:db8::7"}, {"sources", "default", "source:"}} {
		for word, want := range map[string]string{"pause": "yes", "drain": "drain"} {
			holds(t, b.must(c.group, word, c.name, "--for", "10m", "--reason", "x"), "pause  no", want)
			x, _ := b.inspector.Explain(t.Context(), c.key)
			effort.ErrorIf(t, pause(x) != want, "%s %s: pause is %q", c.group, word, pause(x))
			holds(t, b.must(c.group, "resume", c.name), c.name+" is asked again: override ")
			x, _ = b.inspector.Explain(t.Context(), c.key)
			effort.ErrorIf(t, pause(x) != "no", "%s resume: pause is %q", c.group, pause(x))
		}
	}
	holds(t, b.must("receivers", "resume", "example.test"), "example.test is not paused: there was no override to end.")
	holds(t, b.must("receivers", "resume", "paused.test"), "still has pause=yes, by file paused.test, throttle.toml:17")
	b.must("throttle", "set", "example.test", "pause=drain", "connections=1", "--for", "1h", "--reason", "x")
	out := strings.Join(strings.Fields(b.must("receivers", "resume", "example.test")), " ")
	holds(t, out, "still has pause=drain", "`rollcall throttle clear --id ")
	b.misused("sources", "pause", "me", "--for", "1h", "--reason", "x")
	b.misused("receivers", "pause", "example.test", "--reason", "x")
}

// TestCandidatesAreTried: check works without a node, replay with a node's record.
func TestCandidatesAreTried(t *testing.T) {
	b := newThrottleBench(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		c := cli{t: t, folder: dir}
		return filepath.Join(dir, c.write(name, text))
	}
	bad := write("bad.toml", "[default]\nconnections = 0\nrcpt_rate = \"5/x\"\n")
	loose := write("loose.toml", "[receivers.\"google.com\"]\nconnections = 50\n")
	offline := console{t: t}
	stdout, _, err := offline.run("throttle", "check", bad, "--json")
	var checked checkView
	effort.ErrorIf(t, json.Unmarshal([]byte(stdout), &checked) != nil || !errors.Is(err, errCandidate) || checked.OK ||
		len(checked.Findings) != 2 || checked.Findings[0].Line != 2 || checked.Findings[1].Line != 3, "bad: %v %s", err,
		stdout)
	stdout, _, err = offline.run("throttle", "check", bad)
	effort.ErrorIf(t, err == nil || !strings.Contains(stdout, "error: ") || strings.Contains(stdout, "can be used"),
		"bad: %v %s", err, stdout)
	holds(t, offline.must("throttle", "check", loose), "warning: ", "google.com", "can be used", "1 warning.")
	offline.refused("no such file", "throttle", "check", filepath.Join(dir, "none"))

	asked := ""
	b.replay = func(candidate string) (inspect.Replayed, error) {
		asked = candidate
		return inspect.Replayed{Hours: 1.515, Asked: 12000, Same: 3, Warnings: []string{"a rule"},
			Silent: []inspect.UnreachableNode{{
				Node: "node-2", Why: "no answer"}}, Receivers: []inspect.ReceiverReplay{{Key: "example.test",
				Asked: 9000, Would: 4500,
				Delay: 1800, Fired: map[string]int{"rcpt_rate": 55, "connections": 3, "pause": 0},
				Unknown: "it may bear less",
				Changes: []inspect.FieldChange{{Field: "rcpt_rate", Now: "4/s", Would: "1/s"}}},
				{Key: "more.test", Asked: 1500, Would: 1600, Delay: -10, AtLeast: true}}}, nil
	}
	out := b.must("throttle", "replay", loose)
	holds(t, out, "The record reaches back 1h30m0s: 12,000 addresses were asked. 3 of the receivers", "\nexample.test\n",
		"    rcpt_rate: 4/s now, 1/s then\n", "asked 9,000, then at most 4,500; the last of them 30m0s later",
		"    rcpt_rate would have held the receiver back in 55 of the minutes\n    connections would",
		"Not known: it may bear less", "Warning: a rule", "Without what node-2 recorded: no answer",
		"Nothing was changed, and no receiver was asked")
	holds(t, unfolded(out), "more.test asked 1,500, then at least 1,600; the last of them 10s sooner, or even sooner: "+
		"more addresses waited than the record shows")
	effort.ErrorIf(t, strings.Contains(out, "pause would") || !strings.HasPrefix(asked, "[receivers."),
		"asked %q\n%s", asked, out)
	b.refused(":2:", "throttle", "replay", bad)
	b.misused("throttle", "replay")
	b.replay = func(string) (inspect.Replayed, error) {
		return inspect.Replayed{}, fmt.Errorf("%w: loose.toml:1:1: no", admin.ErrCandidate)
	}
	b.refused("loose.toml:1:1: no", "throttle", "replay", loose)
}
