package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/http/dashboard/pagetest"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// fakeInspector gives prepared answers, and explains names by a table of rules: mail of big.test goes to google.com.
type fakeInspector struct {
	table *throttle.Table

	mu    sync.Mutex // guards the fields below
	fails error
	asked string
}

func (f *fakeInspector) did(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = fmt.Sprintf(format, args...)
	return f.fails
}

func (f *fakeInspector) Receivers(context.Context) (inspect.Receivers, error) {
	return inspect.Receivers{Receivers: []inspect.Receiver{{Key: "mx.example.test", Node: "node-1"}}}, f.did("receivers")
}

func (f *fakeInspector) Receiver(_ context.Context, key string) ([]inspect.ReceiverDetail, error) {
	return []inspect.ReceiverDetail{{Receiver: inspect.Receiver{Key: key}}}, f.did("receiver %s", key)
}

func (f *fakeInspector) Sources(context.Context) ([]inspect.Source, []inspect.UnreachableNode, error) {
	return nil, []inspect.UnreachableNode{{Node: "node-2", Why: "slow"}}, f.did("sources")
}

func (f *fakeInspector) CloseSession(ctx context.Context, key, node string, session int) error {
	return f.did("close %s %s %d by %s", key, node, session, ledger.Author(ctx))
}

func (f *fakeInspector) Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode,
	error) {
	err := f.did("forget %s %s by %s", key, what, ledger.Author(ctx))
	if err != nil {
		return nil, nil, err
	}
	return []inspect.Forgotten{{Key: key, Node: "node-1", Dropped: []string{"a pace", "a rest"}}, {Key: key, Node: "b"}},
		[]inspect.UnreachableNode{{Node: "node-3", Why: "slow"}}, nil
}

func (f *fakeInspector) Trace(_ context.Context, key, source string, after map[string]uint64) ([]inspect.TraceLine,
	error) {
	err := f.did("trace %s %s %v", key, source, after)
	return []inspect.TraceLine{{Number: 5, Node: "node 1"}, {Number: 7, Node: "node 1"}, {Number: 2, Node: "b"}}, err
}

func (f *fakeInspector) Verification(_ context.Context, id string) (inspect.Verification, error) {
	return inspect.Verification{ID: id}, f.did("verification")
}

func (f *fakeInspector) Explain(_ context.Context, name string) (inspect.Explanation, error) {
	x := inspect.Explanation{Key: name}
	if name == "big.test" {
		x.Domain, x.Key = name, "google.com"
	}
	x.Fields = inspect.Fields(f.table.Explain(x.Key))
	return x, f.did("explain %s", name)
}

func (f *fakeInspector) ExplainRules(name string) (inspect.Explanation, error) {
	return inspect.Explanation{Key: name}, f.did("rules of %s", name)
}

func (f *fakeInspector) Files(context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error) {
	return []inspect.OtherFile{{Node: "node-3", Differs: true}}, nil, f.did("files")
}

func (f *fakeInspector) Health(context.Context) ([]inspect.Health, []inspect.UnreachableNode, error) {
	return nil, nil, f.did("health")
}

// fail makes every answer fail.
func (f *fakeInspector) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = err
}

// last returns the newest question.
func (f *fakeInspector) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// throttleRig is a rig with rules and an inspector.
type throttleRig struct {
	*rig
	inspector *fakeInspector
	tuned     atomic.Int64
}

func newThrottleRig(t *testing.T, changes ...func(*admin.Options)) *throttleRig {
	t.Helper()
	var set throttle.Override
	effort.OK(t, set.Set(throttle.FieldConnections, "7"))
	table := effort.Must(throttle.NewTable([]throttle.Rule{{Name: "example.test", Set: set,
		Where: map[throttle.Field]string{throttle.FieldConnections: "throttle.toml:3"}}}))(t)
	r := &throttleRig{inspector: &fakeInspector{table: table}}
	r.rig = newRig(t, append([]func(*admin.Options){func(o *admin.Options) {
		o.Inspector, o.Throttle, o.Tuned = r.inspector, table, func() { r.tuned.Add(1) }
		o.ThrottleFile = func() admin.ThrottleFile {
			return admin.ThrottleFile{File: "throttle.toml", Fault: "throttle.toml:3:7: no"}
		}
	}}, changes...)...)
	return r
}

// as makes one call in somebody's name.
func (r *throttleRig) as(author, method, path, body string) (int, string) {
	r.t.Helper()
	return r.raw(method, path, body, "Bearer "+r.token, admin.AuthorHeader, author)
}

func overrideBody(id, key, fields string, more string) string {
	return fmt.Sprintf(`{"id":%q,"key":%q,"fields":{%s},"seconds":3600,"reason":"test"%s}`, id, key, fields, more)
}

// TestWhatIsNoOverride: an invalid override is refused with what to write.
func TestWhatIsNoOverride(t *testing.T) {
	r := newThrottleRig(t)
	id := uuid.NewString()
	for name, c := range map[string]struct{ body, code, want string }{
		"no id":         {overrideBody(uuid.Nil.String(), "a.test", `"connections":"1"`, ""), "invalid_request", "UUID"},
		"no key":        {overrideBody(id, " ", `"connections":"1"`, ""), "invalid_request", "mail domain"},
		"no fields":     {overrideBody(id, "a.test", "", ""), "invalid_request", "rcpt_rate"},
		"unknown field": {overrideBody(id, "a.test", `"conections":"1"`, ""), "invalid_request", "the fields are"},
		"bad value":     {overrideBody(id, "a.test", `"connections":"0"`, ""), "invalid_request", "from 1 to"},
		"of sources":    {overrideBody(id, "a.test", `"rcpts_per_day":"5"`, ""), "invalid_request", "cannot be set"},
		"of receivers":  {overrideBody(id, "source:192.0.2.1", `"connections":"1"`, ""), "invalid_request", "cannot be"},
		"no address":    {overrideBody(id, "source:x", `"pause":"yes"`, ""), "invalid_request", "IP addresses"},
		"no name":       {overrideBody(id, "a b", `"connections":"1"`, ""), "invalid_request", "only letters"},
		"no reason": {strings.Replace(overrideBody(id, "a.test", `"connections":"1"`, ""), "test\"}",
			"\"}", 1), "invalid_request", "reason"},
		"too short": {strings.Replace(overrideBody(id, "a.test", `"connections":"1"`, ""), "3600", "0",
			1), "invalid_request", "seconds"},
		"too long": {strings.Replace(overrideBody(id, "a.test", `"connections":"1"`, ""), "3600",
			"2678401", 1), "invalid_request", "month"},
		"known": {overrideBody(id, "google.com", `"connections":"9","rcpt_rate":"1/s"`, ""),
			"loosens_known", "connections 9 exceeds the known limit of google.com: 2 (KumoMTA"},
		"known, below":    {overrideBody(id, "mx.google.com", `"rcpt_rate":"10/s"`, ""), "loosens_known", "rcpt_rate 10/s"},
		"known, by hosts": {overrideBody(id, "big.test", `"rcpt_rate":"10/s"`, ""), "loosens_known", "google.com"},
	} {
		status, text := r.ask("POST", "/v1/throttle/overrides", c.body)
		effort.ErrorIf(t, status/100 != 4 || !strings.Contains(text, `"code":"`+c.code) ||
			!strings.Contains(text, c.want) || strings.Contains(text, "throttle:"), "%s: %d %s, want %s with %q", name,
			status, text, c.code, c.want)
	}
	for name, body := range map[string]string{
		"forced":       overrideBody(uuid.NewString(), "google.com", `"connections":"9"`, `,"force":true`),
		"less":         overrideBody(uuid.NewString(), "google.com", `"connections":"1"`, ""),
		"the same":     overrideBody(uuid.NewString(), "google.com", `"connections":"2"`, ""),
		"a domain key": overrideBody(uuid.NewString(), "domain:b.test/a.test", `"connections":"1"`, ""),
		"a source":     overrideBody(uuid.NewString(), "source:192.0.2.1", `"pause":"yes"`, ""),
		"the system's": overrideBody(uuid.NewString(), "source:", `"pause":"yes"`, ""),
		"the longest": strings.Replace(overrideBody(uuid.NewString(), "a.test", `"connections":"1"`, ""),
			"3600", "2678400", 1),
	} {
		sent(r.ask("POST", "/v1/throttle/overrides", body)).Is(t, 200, name)
	}
	over := overrideBody(uuid.NewString(), "over.test", `"connections":"1"`, "")
	for _, call := range [][2]string{{"overrides", over}, {"clear", `{"key":"over.test","reason":"done"}`}} {
		sent(r.ask("POST", "/v1/throttle/"+call[0], call[1])).Is(t, 200, call[0])
	}
	sent(r.ask("POST", "/v1/throttle/overrides", over)).Says(t, 409, "new id", "set again when it does not hold")
	r.inspector.fail(errors.New("no DNS"))
	loose := overrideBody(uuid.NewString(), "nobody.test", `"connections":"9"`, "")
	status, text := r.ask("POST", "/v1/throttle/overrides", loose)
	effort.ErrorIf(t, status != 409 || !strings.Contains(text, "could not be looked up") ||
		!strings.Contains(text, "--force"), "more, without DNS: %d %s", status, text)
	for name, body := range map[string]string{
		"less, without DNS":         overrideBody(uuid.NewString(), "nobody.test", `"connections":"1"`, ""),
		"more, without DNS, forced": overrideBody(uuid.NewString(), "nobody.test", `"connections":"9"`, `,"force":true`),
	} {
		sent(r.ask("POST", "/v1/throttle/overrides", body)).Is(t, 200, name)
	}
	known := overrideBody(id, "google.com", `"connections":"9"`, "")
	sent(r.ask("POST", "/v1/throttle/overrides", known)).Is(t, 409, "known, without DNS")
}

// TestTheAuthorOfAChangeIsNoted: every call that changes something logs its author, even if the change is not in the
// ledger.
func TestTheAuthorOfAChangeIsNoted(t *testing.T) {
	r := newThrottleRig(t, withCluster(&pagetest.Cluster{Frames: []admin.Membership{{Members: five()}}}))
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	for _, c := range []struct{ call, body, action, subject string }{
		{"/v1/cluster/drain", `{"node":"node-3"}`, "cluster drain", "node-3 (a0000000"},
		{"/v1/cluster/undrain", `{"node":"node-3"}`, "cluster undrain", "node-3 (a0000000"},
		{"/v1/cluster/forget", `{"node":"pod"}`, "cluster forget", "pod (b0000000"},
		{"/v1/cluster/keys", `{"op":"use","fingerprint":"0a0b0c0d"}`, "", ""},
		{"/v1/receivers/close", `{"key":"a.test","node":"node-1","session":4}`, "session close", "a.test"},
		{"/v1/receivers/forget", `{"key":"a.test","what":"all","reason":"x"}`, "receiver forget", "a.test"},
		{"/v1/workspaces/" + id + "/weight", `{"weight":5}`, "workspace weight", ""},
		{"/v1/workspaces/" + id + "/credits", `{"id":"` + uuid.NewString() + `","credits":5,"reason":"x"}`, "", ""},
		{"/v1/workspaces", `{"name":"Two"}`, "", ""},
	} {
		status, text := r.as("carla", "POST", c.call, c.body)
		effort.ErrorIf(t, c.call != "/v1/cluster/keys" && status != 200, "%s: %d %s", c.call, status, text)
		l := r.newestLine()
		effort.ErrorIf(t, l == nil || l.Author != "carla" || !strings.HasPrefix(l.Action, c.action) ||
			!strings.HasPrefix(l.Subject, c.subject), "%s: logged %+v", c.call, l)
	}
	for _, bad := range []string{strings.Repeat("x", 201), "a\x01b", "\xff"} {
		effort.ErrorIf(t, admin.AuthorFits(bad), "%q fits", bad)
	}
	effort.ErrorIf(t, !admin.AuthorFits(strings.Repeat("x", 200)) || !admin.AuthorFits("Zoë@desk"),
		"an author of 200 bytes does not fit")
	sent(r.as(strings.Repeat("x", 201), "GET", "/v1/log", "")).Is(t, 400, "a long author")
}

// newestLine returns the newest line of the log, or nil.
func (r *throttleRig) newestLine() *admin.LogLine {
	r.t.Helper()
	var page admin.LogPage
	_, text := r.ask("GET", "/v1/log?limit=1", "")
	effort.OK(r.t, json.Unmarshal([]byte(text), &page), "log", text)
	if len(page.Lines) == 0 {
		return nil
	}
	return &page.Lines[0]
}

// TestWhatMayBeDoneIsNoted: closing a session and forgetting are logged. If the node did not answer, the line says
// that it may not have happened. If no node has the receiver, nothing is logged.
func TestWhatMayBeDoneIsNoted(t *testing.T) {
	noAnswer := errors.New("no answer")
	for _, c := range []struct {
		call, body   string
		fails        error
		action, want string
		reason       string
	}{
		{"close", `{"key":"a.test","node":"node-1","session":4}`, inspect.ErrNotThere, "", "", ""},
		{"close", `{"key":"a.test","node":"node-1","session":4}`, noAnswer, "session close",
			"session 4 node-1: tried, perhaps not closed", ""},
		{"close", `{"key":"a.test","node":"node-1","session":4}`, nil, "session close", "session 4 node-1", ""},
		{"forget", `{"key":"a.test","what":"block","reason":"they said sorry"}`, inspect.ErrNotThere, "", "", ""},
		{"forget", `{"key":"a.test","what":"block","reason":"they said sorry"}`, noAnswer, "receiver forget",
			"block: tried, perhaps not forgotten", "they said sorry"},
		{"forget", `{"key":"a.test","what":"block","reason":"they said sorry"}`, nil, "receiver forget",
			"block: 2 things dropped, without node-3", "they said sorry"},
	} {
		r := newThrottleRig(t)
		r.inspector.fail(c.fails)
		r.as("carla", "POST", "/v1/receivers/"+c.call, c.body)
		switch l := r.newestLine(); {
		case c.action == "" && l == nil:
		case l == nil || l.Action != c.action || l.Subject != "a.test" || l.Author != "carla" || l.New != c.want ||
			l.Reason != c.reason:
			t.Errorf("%s, %v: want %q, logged %+v", c.call, c.fails, c.want, l)
		}
	}
}

// TestWhatCannotBeForgotten: such calls are refused.
func TestWhatCannotBeForgotten(t *testing.T) {
	r := newThrottleRig(t)
	for _, body := range []string{`{"key":"a","what":"all"}`, `{"key":"a","what":"","reason":"x"}`,
		`{"key":"","what":"all","reason":"x"}`, `{"key":"a","what":"everything","reason":"x"}`, `x`} {
		sent(r.ask("POST", "/v1/receivers/forget", body)).Is(t, 400, "forget", body)
	}
}

func TestTheLogIsReadInPages(t *testing.T) {
	r := newThrottleRig(t)
	for _, subject := range []string{"1", "2", "3", "source:", "5", "source:192.0.2.7", "7"} {
		effort.OK(t, r.book.Note(ledger.WithAuthor(t.Context(), "dora"), ledger.LogLine{Action: "test", Subject: subject}))
	}
	var subjects []string
	path := "/v1/log?limit=3"
	for {
		var page admin.LogPage
		_, text := r.ask("GET", path, "")
		effort.OK(t, json.Unmarshal([]byte(text), &page), text)
		for _, l := range page.Lines {
			subjects = append(subjects, l.Subject)
		}
		if page.Next == nil {
			break
		}
		path = fmt.Sprintf("/v1/log?limit=3&before=%s&after=%s", api.AppendTime(nil, time.Time(page.Next.Before)),
			page.Next.After)
	}
	slices.Sort(subjects)
	effort.Is(t, strings.Join(subjects, " "), "1 2 3 5 7 source:192.0.2.7 source:default")
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "before=yesterday", "after=1",
		"after=" + uuid.NewString()} {
		sent(r.ask("GET", "/v1/log?"+bad, "")).Is(t, 400, bad)
	}
}

// TestTheInspectorIsAsked: each call asks the inspector, and its errors become 503 or 404 without inner details.
func TestTheInspectorIsAsked(t *testing.T) {
	r := newThrottleRig(t)
	id := uuid.NewString()
	for _, c := range []struct{ method, path, body, asked, holds string }{
		{"GET", "/v1/receivers", "", "receivers", `"sources":[]`},
		{"GET", "/v1/receivers/detail?key=Suffix%3AExample.test", "", "receiver suffix:example.test", `{"receivers":[{`},
		{"POST", "/v1/receivers/close", `{"key":"a.test","node":"n","session":4}`, "close a.test n 4 by anna", ``},
		{"POST", "/v1/receivers/forget", `{"key":"A.test","what":"block","reason":"x"}`, "forget a.test block by anna",
			`{"receivers":[{"key":"a.test","node":"node-1","dropped":["a pace","a rest"]},` +
				`{"key":"a.test","node":"b","dropped":[]}],"silent":[{"node":"node-3","why":"slow"}]}`},
		{"GET", "/v1/receivers/trace?key=a.test&source=192.0.2.1&after=%7B%22node%201%22%3A6%7D", "",
			"trace a.test 192.0.2.1 map[node 1:6]", `"after":{"b":2,"node 1":7}`},
		{"GET", "/v1/sources", "", "sources", `{"sources":[],"silent":[{"node":"node-2","why":"slow"}]}`},
		{"GET", "/v1/verifications/" + id + "/waits", "", "verification", `"waits":[]`},
		{"GET", "/v1/throttle/explain?name=example.test", "", "explain example.test", `throttle.toml:3`},
		{"GET", "/v1/throttle/explain?by=name&name=a.test", "", "rules of a.test", `"key":"a.test"`},
		{"GET", "/v1/throttle?files=all", "", "files", `"others":[{"node":"node-3","differs":true}]`},
	} {
		r.inspector.fail(nil)
		status, text := r.as("anna", c.method, c.path, c.body)
		effort.ErrorIf(t, status != 200 || r.inspector.last() != c.asked || !strings.Contains(text, c.holds),
			"%s: %d %s; asked %q, want %q", c.path, status, text, r.inspector.last(), c.asked)
		r.inspector.fail(errors.New("secret inner fault"))
		if status, text := r.as("anna", c.method, c.path, c.body); status != 503 || strings.Contains(text, "secret") {
			t.Errorf("%s without an answer: %d %s", c.path, status, text)
		}
		r.inspector.fail(fmt.Errorf("asked: %w", inspect.ErrNotThere))
		status, text = r.as("anna", c.method, c.path, c.body)
		if strings.Contains("receiver close forget trace verification explain", strings.Fields(c.asked)[0]) && c.asked !=
			"receivers" && (status != 404 || !strings.Contains(text, `_`)) {
			t.Errorf("%s of nothing: %d %s", c.path, status, text)
		}
	}
	r.inspector.fail(nil)
	for _, path := range []string{"/v1/receivers/detail", "/v1/receivers/detail?key=" + strings.Repeat("x", 601),
		"/v1/receivers/trace?key=a&after=x", "/v1/throttle/explain", "/v1/verifications/1/waits"} {
		sent(r.ask("GET", path, "")).Is(t, 400, path)
	}
	for _, body := range []string{`{"key":"a","session":0}`, `{"key":"","session":1}`, `x`} {
		sent(r.ask("POST", "/v1/receivers/close", body)).Is(t, 400, "close", body)
	}
}

// TestACandidateIsReplayed: only one replay runs at a time.
func TestACandidateIsReplayed(t *testing.T) {
	var running sync.WaitGroup
	begun, goOn := make(chan struct{}), make(chan struct{})
	r := newThrottleRig(t, func(o *admin.Options) {
		o.ReplayThrottle = func(_ context.Context, candidate string) (inspect.Replayed, error) {
			switch candidate {
			case "bad":
				return inspect.Replayed{}, fmt.Errorf("%w: throttle.toml:1:1: no", admin.ErrCandidate)
			case "slow":
				close(begun)
				<-goOn
			case "down":
				return inspect.Replayed{}, errors.New("no node")
			}
			return inspect.Replayed{Asked: len(candidate)}, nil
		}
	})
	call := func(throttle string) (int, string) {
		return r.ask("POST", "/v1/throttle/replay", fmt.Sprintf(`{"throttle":%q}`, throttle))
	}
	sent(call("good")).Says(t, 200, `"asked":4,"receivers":[],`)
	sent(call("bad")).Says(t, 400, `"throttle.toml:1:1: no"`, "bad")
	sent(call("down")).Is(t, 503, "down")
	running.Go(func() {
		sent(call("slow")).Is(t, 200, "slow")
	})
	<-begun
	sent(call("good")).Says(t, 409, "replay_running", "a second one")
	close(goOn)
	running.Wait()
}

func TestWeightsHaveBounds(t *testing.T) {
	r := newThrottleRig(t)
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	for weight, want := range map[int]int{0: 400, 1: 200, 100: 200, 101: 400, -1: 400} {
		status, text := r.ask("POST", "/v1/workspaces/"+id+"/weight", fmt.Sprintf(`{"weight":%d}`, weight))
		effort.Is(t, status, want, "weight", weight, text)
	}
	sent(r.ask("POST", "/v1/workspaces/"+uuid.NewString()+"/weight", `{"weight":2}`)).Is(t, 404, "of nobody")
	effort.Is(t, r.tuned.Load(), 2, "the node was told times")
}
