package inspect

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cluster"
	"rollcall/cluster/gossip"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
	"rollcall/smtp/throttle"
)

// members is a cluster of inspectors in one process: what answers, by the name of a node.
type members struct {
	name   string
	answer map[string]func(ctx context.Context, question []byte) ([]byte, error)
}

func (m *members) Meta() gossip.NodeMeta { return gossip.NodeMeta{Name: m.name} }

func (m *members) QueryAll(ctx context.Context, question []byte) (out []cluster.Reply) {
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		if m.answer[name] != nil {
			out = append(out, m.QueryMember(ctx, name, question))
		}
	}
	return out
}

func (m *members) QueryMember(ctx context.Context, name string, question []byte) cluster.Reply {
	body, err := m.answer[name](ctx, question)
	return cluster.Reply{Name: name, Body: body, Err: err}
}

// node answers questions of one kind with what was prepared for them; others as empty as can be.
type node map[string]any // a func(ask Ask) Answer, by the name of the question

func (n node) answer(_ context.Context, body []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, err
	}
	f := reflect.ValueOf(n[q.Kind])
	if !f.IsValid() {
		return pack(nil)
	}
	ask := reflect.New(f.Type().In(0))
	if err := json.Unmarshal(q.Ask, ask.Interface()); err != nil {
		return nil, err
	}
	return pack(f.Call([]reflect.Value{ask.Elem()})[0].Interface())
}

// quietReceivers are the receivers of a node that speaks to none, of which four can be traced.
type quietReceivers struct {
	traced map[string]bool
	busy   []Receiver
}

func (q quietReceivers) CollectStatus(context.Context) []Receiver             { return q.busy }
func (quietReceivers) Detail(context.Context, string) []ReceiverDetail        { return nil }
func (quietReceivers) Close(context.Context, string, int) bool                { return false }
func (quietReceivers) Forget(context.Context, string, string) []Forgotten     { return nil }
func (quietReceivers) Record(time.Time, string, int) (out Record, whole bool) { return Record{}, true }
func (quietReceivers) ForgetKept(context.Context, string, string) ([]Forgotten, error) {
	return nil, nil
}

func (q quietReceivers) Trace(_ time.Time, key, _ string, _ uint64) ([]TraceLine, error) {
	if q.traced[key] = true; len(q.traced) > 4 {
		return nil, errors.New("four receivers are traced already")
	}
	return nil, nil
}

// newInspector makes an inspector of node-1 with a table of rules.
func newInspector(t *testing.T, rules ...throttle.Rule) *Inspector {
	t.Helper()
	table := effort.Must(throttle.NewTable(rules))(t)
	c := New(Options{Receivers: quietReceivers{traced: map[string]bool{}}, Sources: func(context.Context) []Source {
		return []Source{{Hello: "probe.example", State: "used"}}
	}, Table: table, Route: routes, Clock: func() time.Time { return began }, Fault: func() string { return "" },
		Lookup: func(uuid.UUID) (Verification, bool) { return Verification{}, false },
		Health: func() Health { return Health{} }})
	c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){"node-1": c.Answer}})
	return c
}

// routes knows where mail for two domains goes.
func routes(_ context.Context, domain string) (mx.Route, error) {
	switch domain {
	case "customer.example":
		return mx.Route{Domain: domain, Receiver: "operator.net", Hosts: []mx.Host{{Name: "mx1.in.operator.net"},
			{Name: "mx2.in.operator.net"}}}, nil
	case "broken.example":
		return mx.Route{}, errors.New("no name server answers")
	}
	return mx.Route{Domain: domain, NoMail: smtp.DomainNotFound}, nil
}

func TestAnswersOfNodesArePutTogether(t *testing.T) {
	c := newInspector(t)
	c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": node{
			"receivers": func(none) receiverTable {
				return receiverTable{Receivers: []Receiver{{Key: "a", Queued: 1}, {Key: "b", Queued: 9}}, More: 3}
			},
			"receiver": func(ofReceiver) []ReceiverDetail {
				return []ReceiverDetail{{Receiver: Receiver{Key: "a"}, SessionList: []Session{{ID: 4}, {ID: 5}}}}
			},
			"trace": func(of linesOf) []TraceLine {
				return []TraceLine{{Number: of.After["node-1"] + 1, At: began.Add(2)}}
			},
			"verification": func(uuid.UUID) *Verification { return &Verification{Final: 3} },
			"close":        func(of ofReceiver) bool { return of.Session == 4 },
		}.answer,
		"node-2": node{
			"receivers": func(none) receiverTable {
				return receiverTable{Receivers: []Receiver{{Key: "b", Queued: 5}}}
			},
			"receiver": func(ofReceiver) []ReceiverDetail {
				return []ReceiverDetail{{Receiver: Receiver{Key: "a"}, SessionList: []Session{{ID: 5}}}}
			},
			"trace": func(of linesOf) []TraceLine {
				return []TraceLine{{Number: of.After["node-2"] + 1, At: began.Add(1)}}
			},
			"verification": func(uuid.UUID) *Verification { return &Verification{Final: 7} },
		}.answer,
		"node-3": func(context.Context, []byte) ([]byte, error) { return nil, cluster.ErrNoAnswer },
	}})
	ctx := t.Context()
	all, err := c.Receivers(ctx)
	text := ""
	for _, r := range all.Receivers {
		text += fmt.Sprintf("%s@%s:%d ", r.Key, r.Node, r.Queued)
	}
	effort.ErrorIf(t, err != nil || text != "b@node-1:9 b@node-2:5 a@node-1:1 " || all.More != 3 ||
		len(all.Silent) != 1 || all.Silent[0].Node != "node-3", "receivers %s, %d more, silent %v, %v", text, all.More,
		all.Silent, err)
	details, err := c.Receiver(ctx, "a")
	effort.ErrorIf(t, err != nil || len(details) != 2 || details[0].Node != "node-1" || details[1].Node != "node-2",
		"details %+v, %v", details, err)
	lines, err := c.Trace(ctx, "a", "", map[string]uint64{"node-1": 100})
	effort.ErrorIf(t, err != nil || len(lines) != 2 || lines[0].Node != "node-2" || lines[0].Number != 1 ||
		lines[1].Number != 101, "lines %+v, %v", lines, err)
	v, err := c.Verification(ctx, uuid.NewString())
	effort.ErrorIf(t, err != nil || v.Node != "node-2" || v.Final != 7, "verification %+v, %v", v, err)
	effort.ErrIs(t, c.CloseSession(ctx, "a", "", 4), nil, "close the session that one node has")
	if err := c.CloseSession(ctx, "a", "", 5); err == nil || !strings.Contains(err.Error(), "node-1, node-2") {
		t.Errorf("close one that two nodes have: %v", err)
	}
	effort.ErrIs(t, c.CloseSession(ctx, "a", "node-2", 4), ErrNotThere, "close one that the node has not")
	effort.ErrIs(t, c.CloseSession(ctx, "a", "", 6), ErrNotThere, "close one that nobody has")
}

// TestAllNodesForget: all nodes are told at once, and a silent one is named.
func TestAllNodesForget(t *testing.T) {
	c := newInspector(t)
	there := map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": c.Answer,
		"node-2": node{"forget": func(of ofReceiver) []Forgotten {
			return []Forgotten{{Key: of.Key, Dropped: []string{"forgot " + of.What}}}
		}}.answer,
		"node-3": func(context.Context, []byte) ([]byte, error) { return nil, cluster.ErrNoAnswer },
	}
	c.Join(&members{"node-1", there})
	found, quiet, err := c.Forget(t.Context(), "a", "block")
	effort.ErrorIf(t, err != nil || len(found) != 1 || found[0].Node != "node-2" ||
		found[0].Dropped[0] != "forgot block" || len(quiet) != 1 || quiet[0].Node != "node-3", "%+v %+v %v", found,
		quiet, err)
	delete(there, "node-2")
	var unreachable *Unreachable
	if _, _, err := c.Forget(t.Context(), "a", "block"); !errors.As(err, &unreachable) {
		t.Errorf("the silent node may have it: %v", err)
	}
	delete(there, "node-3")
	if _, _, err := c.Forget(t.Context(), "a", "block"); !errors.Is(err, ErrNotThere) || errors.As(err, &unreachable) {
		t.Errorf("nobody has it: %v", err)
	}
}

func TestWhatASilentNodeMayHaveIsNotDenied(t *testing.T) {
	c := newInspector(t)
	c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": c.Answer,
		"node-2": func(context.Context, []byte) ([]byte, error) { return nil, cluster.ErrLost },
	}})
	var unreachable *Unreachable
	if _, err := c.Receiver(t.Context(), "a"); !errors.As(err, &unreachable) || !errors.Is(err, ErrNotThere) ||
		!strings.Contains(err.Error(), "node-2 (lost: it does not answer)") {
		t.Errorf("a receiver that may live on the node that is silent: %v", err)
	}
	unreachable = nil
	_, err := c.Verification(t.Context(), uuid.NewString())
	effort.ErrorIf(t, !errors.As(err, &unreachable), "a verification that the node that is silent may work on: %v", err)
	for i := range 5 {
		_, err := c.Trace(t.Context(), fmt.Sprint(i), "", nil)
		effort.ErrorIf(t, i == 4 && (err == nil || errors.Is(err, cluster.ErrLost)),
			"the node that answers traces enough already, and a trace says: %v", err)
	}
}

func TestANodeAnswersForItself(t *testing.T) {
	c := newInspector(t)
	ctx := t.Context()
	if all, err := c.Receivers(ctx); err != nil || len(all.Receivers) != 0 || len(all.Silent) != 0 ||
		!all.At.Equal(began) {
		t.Errorf("receivers %+v, %v", all, err)
	}
	effort.Denied(c.Receiver(ctx, "a"))(t, ErrNotThere, "a receiver that nobody speaks to")
	sources, _, err := c.Sources(ctx)
	effort.ErrorIf(t, err != nil || len(sources) != 1 || sources[0].Hello != "probe.example" ||
		sources[0].State != "used" || sources[0].Node != "node-1" || sources[0].Source != DefaultSource,
		"sources %+v, %v", sources, err)
	for _, id := range []string{uuid.NewString(), "no id"} {
		effort.Denied(c.Verification(ctx, id))(t, ErrNotThere, fmt.Sprintf("verification %q", id))
	}
	records, silent, err := c.Record(ctx)
	effort.ErrorIf(t, err != nil || len(records) != 1 || len(silent) != 0 || len(records[0].Receivers) != 0,
		"records %+v, %v, %v", records, silent, err)
	for i := range 5 {
		_, err = c.Trace(ctx, fmt.Sprint(i), "default", nil)
	}
	effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "traced"),
		"one trace more than there may be: %v", err)
	if _, err := c.Answer(ctx, []byte(`{"kind":"weather"}`)); err == nil || !strings.Contains(err.Error(), "weather") {
		t.Errorf("a question that nobody knows: %v", err)
	}
	if _, err := c.Answer(ctx, []byte("{")); err == nil {
		t.Error("half a question was answered")
	}
	alone := New(c.options)
	effort.Denied(alone.Receivers(ctx))(t, errAlone, "before it has joined")
}

func TestALongRecordComesInPages(t *testing.T) {
	c := newInspector(t)
	asked := 0
	c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": node{"record": func(after recordAfter) recordPage {
			asked++
			n := 0
			_, _ = fmt.Sscanf(after.Key, "r%d", &n)
			return recordPage{Record{Receivers: []ReceiverRecord{{Key: fmt.Sprintf("r%d", n+1)}}, From: int64(10 - n)}, n == 4}
		}}.answer}})
	records, _, err := c.Record(t.Context())
	effort.ErrorIf(t, err != nil || len(records) != 1 || len(records[0].Receivers) != 5 || records[0].From != 6 ||
		asked != 5, "%+v in %d pages, %v", records, asked, err)
}

func TestManyReceiversFitInOneAnswer(t *testing.T) {
	text := make([]byte, 4<<10)
	for i := range text {
		text[i] = byte('a' + (i*i*7+i/3)%26)
	}
	var many []Receiver
	for i := range 50 {
		many = append(many, Receiver{Key: fmt.Sprint(i, string(text[i:])), Why: string(text)})
	}
	packed, err := pack(receiverTable{Receivers: many})
	effort.FatalIf(t, err != nil || len(packed) > cluster.AnswerMax, "%d bytes, %v", len(packed), err)
	var back receiverTable
	if err := unpack(packed, &back); err != nil || len(back.Receivers) != 50 || back.Receivers[7].Why != string(text) {
		t.Errorf("%d receivers came back, %v", len(back.Receivers), err)
	}
	effort.ErrorIf(t, unpack([]byte("nonsense"), &back) == nil, "nonsense was unpacked")
}

// TestATableThatIsTooLongIsCut: it says how many receivers it leaves out.
func TestATableThatIsTooLongIsCut(t *testing.T) {
	effort.Unraced(t, "plain calls with values")
	c, text := newInspector(t), make([]byte, 12<<10)
	var busy []Receiver
	for n := range 400 {
		rand.Read(text)
		busy = append(busy, Receiver{Key: fmt.Sprint(n), Queued: n, Why: hex.EncodeToString(text)})
	}
	c.options.Receivers = quietReceivers{busy: busy}
	all, err := c.Receivers(t.Context())
	if n := len(all.Receivers); err != nil || n == 0 || n == 400 || n+all.More != 400 || all.Receivers[0].Queued != 399 {
		t.Errorf("%d receivers and %d more, %v", n, all.More, err)
	}
}

func rule(t *testing.T, name, field, value string) throttle.Rule {
	t.Helper()
	r := throttle.Rule{Name: name, Where: map[throttle.Field]string{0: "throttle.toml:7"}}
	f, _ := throttle.ParseField(field)
	effort.OK(t, r.Set.Set(f, value))
	return r
}

func TestExplainSaysWhoSaysWhat(t *testing.T) {
	c := newInspector(t, rule(t, "operator.net", "rcpt_rate", "3/s"), rule(t, "in.operator.net", "rcpt_rate", "1/s"),
		rule(t, "out.operator.net", "rcpt_rate", "2/s"), rule(t, "mx1.in.operator.net", "connections", "1"),
		rule(t, "source:192.0.2.1", "pause", "yes"))
	over := rule(t, "in.operator.net", "rcpt_rate", "30/min")
	over.ID, over.Author, over.Reason, over.Until = "o-1", "anna", "they asked", began.Add(time.Hour)
	effort.OK(t, c.options.Table.Replace(throttle.LayerOverride, []throttle.Rule{over}))
	ctx := t.Context()
	got, err := c.Explain(ctx, "Customer.Example")
	effort.FatalIf(t, err != nil || got.Domain != "customer.example" || got.Key != "suffix:in.operator.net" ||
		len(got.Hosts) != 2, "%+v, %v", got, err)
	effort.ErrorIf(t, len(got.Narrower) != 1 || got.Narrower[0] != "mx1.in.operator.net",
		"narrower are %v", got.Narrower)
	beside := strings.Join(got.Beside, " ")
	effort.ErrorIf(t, beside != "operator.net suffix:mx1.in.operator.net suffix:out.operator.net",
		"beside are %s", beside)
	for _, f := range got.Fields {
		if f.Field == "rcpt_rate" {
			effort.ErrorIf(t, f.Value != "30/min" || f.Layer != "override" || f.ID != "o-1" || f.Author != "anna" ||
				len(f.Beaten) < 3 || f.Beaten[0].Value != "1/s" || f.Beaten[1].Value != "3/s" ||
				f.Beaten[0].Where != "throttle.toml:7", "rcpt_rate: %+v", f)
		} else if f.Layer != "default" {
			t.Errorf("%s: %+v", f.Field, f)
		}
	}
	got, err = c.Explain(ctx, "suffix:out.operator.net")
	effort.ErrorIf(t, err != nil || got.Domain != "" || len(got.Beside) != 3, "a key: %+v, %v", got, err)
	got, err = c.Explain(ctx, "out.operator.net")
	effort.ErrorIf(t, err != nil || got.Key != "out.operator.net", "the name of a rule: %+v, %v", got, err)
	got, err = c.Explain(ctx, "source:192.0.2.1")
	effort.ErrorIf(t, err != nil || got.Fields[0].Value == "", "a source: %+v, %v", got, err)
	effort.ErrorIf(t, len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "No node has the source 192.0.2.1: "),
		"a source that no node has: %q", got.Notes)
	got, err = c.Explain(ctx, "source:default")
	effort.ErrorIf(t, err != nil || len(got.Notes) != 0, "the source that the system chooses: %v, %q", err, got.Notes)
	for name, want := range map[string]string{"nobody.example": "takes no mail", "not a name": "", "source:x": ""} {
		_, err := c.Explain(ctx, name)
		effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), want), "%s: %v", name, err)
	}
}

// TestExplainWithoutDNS: Explain returns the limits of the name itself, and that DNS was silent. The rules for a name
// need no DNS.
func TestExplainWithoutDNS(t *testing.T) {
	c := newInspector(t, rule(t, "example", "rcpt_rate", "3/s"), rule(t, "mx.broken.example", "rcpt_rate", "1/s"))
	got, err := c.Explain(t.Context(), "Broken.Example")
	value, _ := fieldIn(got, "rcpt_rate")
	if err != nil || got.Key != "broken.example" || got.Domain != "" || value != "3/s" || len(got.Notes) != 1 ||
		!strings.Contains(got.Notes[0], "DNS could not be asked where mail for broken.example goes: no name server") {
		t.Errorf("%+v, %v", got, err)
	}
	c.options.Route = func(context.Context, string) (mx.Route, error) {
		t.Error("DNS was asked")
		return mx.Route{}, nil
	}
	for _, name := range []string{"Broken.Example.", "suffix:broken.example"} {
		got, err := c.ExplainRules(name)
		value, by := fieldIn(got, "rcpt_rate")
		effort.ErrorIf(t, err != nil || value != "3/s" || by.Name != "example" ||
			strings.Join(got.Narrower, " ") != "mx.broken.example", "the rules of %s: %+v, %v", name, got, err)
	}
	effort.Is(t, effort.Must(c.ExplainRules("source:default"))(t).Key, throttle.SourcePrefix,
		"the rules of the default source")
	effort.Denied(c.ExplainRules("not a name"))(t, throttle.ErrOverrideName, "no name")
}

// fieldIn returns a field of an explanation, and who has set it.
func fieldIn(x Explanation, field string) (string, Said) {
	for _, f := range x.Fields {
		if f.Field == field {
			return f.Value, f.Said
		}
	}
	return "", Said{}
}

// TestOtherThrottleFilesAreNamed: differing and faulty files are named; the same rules at other lines don't differ.
func TestOtherThrottleFilesAreNamed(t *testing.T) {
	c, same := newInspector(t, rule(t, "a.example", "rcpt_rate", "3/s")), rule(t, "a.example", "rcpt_rate", "3/s")
	same.Where = map[throttle.Field]string{0: "other.toml:99"}
	equal, other := newInspector(t, same), newInspector(t, rule(t, "a.example", "rcpt_rate", "2/s"))
	other.options.Fault = func() string { return "throttle.toml:3:7: no such field." }
	nodes := map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": c.Answer, "node-2": equal.Answer, "node-3": other.Answer}
	c.Join(&members{"node-1", nodes})
	want := OtherFile{Node: "node-3", Differs: true, Fault: "throttle.toml:3:7: no such field."}
	others, quiet, err := c.Files(t.Context())
	effort.ErrorIf(t, err != nil || len(quiet) != 0 || len(others) != 1 || others[0] != want,
		"%+v, %v, %v", others, quiet, err)
	nodes["node-2"] = func(context.Context, []byte) ([]byte, error) { return nil, cluster.ErrLost }
	c.options.Fault = func() string { return "throttle.toml:1:1: half a line" }
	for _, name := range []string{"customer.example", "suffix:a.example", "source:192.0.2.9"} {
		got, err := c.Explain(t.Context(), name)
		effort.ErrorIf(t, err != nil || len(got.Others) != 1 || got.Others[0] != want || len(got.Silent) != 1 ||
			!strings.Contains(strings.Join(got.Notes, " "), "half a line"), "%s: %+v, %v", name, got, err)
	}
}

// living is a node where a receiver lives, and others of which nothing is told.
func living(d ReceiverDetail, others ...Receiver) func(context.Context, []byte) ([]byte, error) {
	return node{
		"receivers": func(none) receiverTable { return receiverTable{Receivers: append([]Receiver{d.Receiver}, others...)} },
		"receiver":  func(ofReceiver) []ReceiverDetail { return []ReceiverDetail{d} },
	}.answer
}

// TestSoftwareThatDecidesIsNamed: software is named only at the fields that it decides.
func TestSoftwareThatDecidesIsNamed(t *testing.T) {
	for _, tc := range []struct {
		decides    bool
		perSession int
		perHour    int
		learned    []Limit
		want       string // refused_per_hour and refused_per_session
	}{
		{true, 3, 0, nil, "1000000 known, 3 known"}, {true, 8, 0, nil, "1000000 known, 8 known"},
		{true, 9, 0, nil, "1000000 known, 8 default"}, {false, 3, 0, nil, "20 default, 8 default"},
		{true, 0, 1, nil, "1 known, 8 default"}, {false, 0, 1, nil, "20 default, 8 default"},
		{true, 3, 0, []Limit{{Field: "refused_per_session", Value: "2"}}, "1000000 known, 2 learned"},
	} {
		c := newInspector(t)
		c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){
			"node-1": living(ReceiverDetail{Receiver: Receiver{Key: "operator.net"}, Learned: tc.learned, Software: &Software{
				Name: "Exchange", By: "its greeting", Where: "a manual", PerSession: tc.perSession, PerHour: tc.perHour,
				Decides: tc.decides}})}})
		got := effort.Must(c.Explain(t.Context(), "customer.example"))(t)
		perHour, byHour := fieldIn(got, "refused_per_hour")
		perSession, bySession := fieldIn(got, "refused_per_session")
		effort.Is(t, perHour+" "+byHour.Layer+", "+perSession+" "+bySession.Layer, tc.want, tc)
		effort.ErrorIf(t, tc.decides &&
			(byHour.Reason != "Exchange, by its greeting (a manual)" || !strings.HasPrefix(byHour.Where, "node ")),
			"%+v: %+v", tc, byHour)
	}
}

func TestWhatAReceiverTeachesGoesBeforeTheRules(t *testing.T) {
	c := newInspector(t)
	until := began.Add(time.Hour)
	c.Join(&members{"node-1", map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": living(ReceiverDetail{Receiver: Receiver{Key: "operator.net", State: "suspended", Why: "421 slow down",
			Until: until, Sources: []ReceiverSource{{Source: "192.0.2.1",
				Rate: RateStatus{Rate: 0.5, Ceiling: 5, Phase: "holding", Why: "451 at 0.6/s"}}}},
			Learned: []Limit{{Field: "rcpts_per_connection", Value: "7", Until: until}}},
			Receiver{Key: "suffix:x.operator.net"})}})
	got, err := c.Explain(t.Context(), "customer.example")
	effort.FatalIf(t, err != nil || len(got.Receiver) != 1 || strings.Join(got.Beside, " ") != "suffix:x.operator.net",
		"%+v, %v", got, err)
	want := map[string]string{"rcpts_per_connection": "7 learned", "rcpt_rate": "0.5/s learned", "pause": "yes penalty"}
	for _, f := range got.Fields {
		if w := want[f.Field]; w != "" && (f.Value+" "+f.Layer != w || len(f.Beaten) == 0 || f.Beaten[0].Layer != "default") {
			t.Errorf("%s: %+v, want %s", f.Field, f, w)
		}
	}
}

// TestTheDefaultSourceIsNamed: every view of a receiver names it.
func TestTheDefaultSourceIsNamed(t *testing.T) {
	d := ReceiverDetail{Receiver: Receiver{Last: Reply{At: time.Unix(1, 0)},
		Sources: []ReceiverSource{{}}}, SessionList: []Session{{}}, Firings: []Reply{{}}}
	nameAllSources(&d)
	for where, got := range map[string]string{"last": d.Last.Source, "sources": d.Sources[0].Source,
		"sessions": d.SessionList[0].Source, "firings": d.Firings[0].Source} {
		effort.Is(t, got, "default", where)
	}
}

func TestEveryNodeTellsItsHealth(t *testing.T) {
	c := newInspector(t)
	c.options.Health = func() Health {
		h := Health{Known: true, Why: strings.Repeat("é", 400)}
		for i := range 600 {
			h.Findings = append(h.Findings, HealthFinding{Check: "ptr", Source: fmt.Sprint(i),
				State: []string{"ok", "skipped", "warn", "fail"}[i%4],
				Saw:   strings.Repeat("x", 1000), Next: "ask"})
		}
		return h
	}
	of := func(h Health) func(context.Context, []byte) ([]byte, error) {
		return node{"health": func(none) Health { return h }}.answer
	}
	m := &members{name: "node-2", answer: map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": of(Health{Node: "another name", Known: true, Probing: true}), "node-2": c.Answer,
		"node-3": of(Health{Known: true})}}
	c.Join(m)
	found, quiet, err := c.Health(t.Context())
	effort.FatalIf(t, err != nil || len(quiet) > 0, "%v %v", quiet, err)
	names := []string{}
	for _, h := range found {
		names = append(names, fmt.Sprint(h.Node, h.This))
	}
	want := []string{"node-2true", "node-3false", "node-1false"}
	effort.ErrorIf(t, !slices.Equal(names, want), "%q, want %q", names, want)
	own := found[0]
	effort.ErrorIf(t, len(own.Findings) != findingsMax || own.More != 100 || own.Findings[0].State != "fail" ||
		own.Findings[findingsMax-1].State != "ok", "%d findings, %d more, first %+v", len(own.Findings), own.More,
		own.Findings[0])
	if n := len([]rune(own.Why)); n != sawMax+1 || len([]rune(own.Findings[0].Saw)) != sawMax+1 {
		t.Errorf("texts of %d and %d runes", n, len([]rune(own.Findings[0].Saw)))
	}
	packed, err := c.Answer(t.Context(), []byte(`{"kind":"health","ask":{}}`))
	effort.ErrorIf(t, err != nil || len(packed) > cluster.AnswerMax, "an answer of %d bytes, %v", len(packed), err)
	m.answer["node-3"] = func(context.Context, []byte) ([]byte, error) {
		return nil, errors.New("does not know the question")
	}
	found, quiet, err = c.Health(t.Context())
	effort.ErrorIf(t, err != nil || len(found) != 2 || len(quiet) != 1 || quiet[0].Node != "node-3",
		"%d answer, silent %v, %v", len(found), quiet, err)
}
