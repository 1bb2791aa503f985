package wire

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// messageMax is what a message between nodes may have.
const messageMax = 64 << 10

// passed sends a message through its bytes.
func passed[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b := effort.Must(proto.Marshal(m))(t)
	out := m.ProtoReflect().New().Interface()
	effort.OK(t, proto.Unmarshal(b, out))
	effort.FatalIf(t, !proto.Equal(m, out), "sent %v, received %v", m, out)
	return out.(M)
}

func TestTaskKey(t *testing.T) {
	id := uuid.MustParse("0190b2a4-7c00-7abc-8def-0123456789ab")
	for _, c := range []struct {
		name string
		task *Task
		want TaskKey
	}{
		{"whole", &Task{Verification: id[:], Epoch: 4, Domain: "example.test"}, TaskKey{id, "example.test"}},
		{"none", nil, TaskKey{}},
		{"short id", &Task{Verification: id[:15], Domain: "example.test"}, TaskKey{uuid.Nil, "example.test"}},
		{"long id", &Task{Verification: append(id[:], 1), Domain: "example.test"}, TaskKey{uuid.Nil, "example.test"}},
	} {
		effort.Is(t, c.task.Key(), c.want, c.name)
	}
	if got := passed(t, &Cancel{Task: &Task{Verification: id[:],
		Domain: "example.test"}}).GetTask().Key(); got.Verification != id {
		t.Errorf("sent %v, received %v", id, got.Verification)
	}
}

func TestHosts(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	hosts := []mx.Host{{Name: "mx1.test", Addrs: []netip.Addr{six, four}}, {Name: "mx2.test"}}
	got := passed(t, &Offer{Hosts: Hosts(hosts)}).GetHosts()
	effort.ErrorIf(t, len(got) != 2 || got[0].GetName() != "mx1.test" ||
		!slices.Equal(got[0].Addresses(), hosts[0].Addrs) || len(got[1].Addresses()) != 0, "received %v", got)
	broken := &Host{Addrs: [][]byte{nil, {1, 2, 3}, {192, 0, 2, 7}, make([]byte, 17)}}
	effort.Equal(t, broken.Addresses(), []netip.Addr{four}, "usable", four)
}

func TestAnswersOfNewerProgramsAreUndecided(t *testing.T) {
	for _, c := range []struct {
		name            string
		outcome, reason uint32
		want            smtp.Outcome
		why             smtp.Reason
	}{
		{"valid", uint32(smtp.Valid), uint32(smtp.MailboxExists), smtp.Valid, smtp.MailboxExists},
		{"again", 0, uint32(smtp.Greylisted), smtp.Undecided, smtp.Greylisted},
		{"the next outcome", uint32(smtp.Error) + 1, uint32(smtp.Policy), smtp.Undecided, smtp.Policy},
		{"one that would wrap", 256 + uint32(smtp.Valid), 256 + uint32(smtp.MailboxExists), smtp.Undecided, smtp.ReasonNone},
		{"no reason", uint32(smtp.Valid), 0, smtp.Valid, smtp.ReasonNone},
		{"an unknown reason", uint32(smtp.Valid), 255, smtp.Valid, smtp.ReasonNone},
	} {
		outcome, why := (&Answer{Outcome: c.outcome, Reason: c.reason}).Verdict()
		effort.ErrorIf(t, outcome != c.want || why != c.why,
			"%s: %v %v, want %v %v", c.name, outcome, why, c.want, c.why)
	}
}

func TestWaitsAreBounded(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 1500: 1500 * time.Millisecond, -1: 0, math.MinInt64: 0, math.MaxInt64: waitMax,
	} {
		effort.Is(t, (&Answer{WaitMs: ms}).Wait(), want, fmt.Sprintf("%d ms", ms))
	}
}

// A time to come travels as a duration: what a node with another clock makes of it is as far away as it was meant.
func TestTimesToComeTravelAsDurations(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	there := now.Add(-17 * time.Minute) // the receiving clock
	for _, c := range []struct {
		name  string
		until time.Time
		ms    int64
		want  time.Time
	}{
		{"never", time.Time{}, 0, time.Time{}},
		{"in a minute", now.Add(time.Minute), 60_000, there.Add(time.Minute)},
		{"over", now.Add(-time.Minute), 1, there.Add(time.Millisecond)},
		{"now", now, 1, there.Add(time.Millisecond)},
		{"in 250 years", now.AddDate(250, 0, 0), math.MaxInt64, there.Add(waitMax)},
	} {
		ms := Left(now, c.until)
		effort.ErrorIf(t, c.ms != math.MaxInt64 && ms != c.ms, "%s: %d ms, want %d", c.name, ms, c.ms)
		got := Until(there, ms)
		effort.ErrorIf(t, !got.Equal(c.want), "%s: until %v, want %v", c.name, got, c.want)
	}
	got := Until(now, math.MinInt64)
	effort.ErrorIf(t, !got.IsZero(), "a negative wait ends %v", got)
}

// The largest messages fit: 500 probes with local parts of 64 octets, five hosts
// with names of 253 and four addresses each; 500 answers with long texts.
func TestMessagesStayUnderTheirBound(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	task := &Task{Verification: make([]byte, 16), Epoch: math.MaxInt64, Domain: long(253)}
	offer := &Offer{Task: task, Chunk: math.MaxUint64, ExpiresInMs: math.MaxInt64}
	for range 5 {
		h := &Host{Name: long(253)}
		for range 4 {
			h.Addrs = append(h.Addrs, make([]byte, 16))
		}
		offer.Hosts = append(offer.Hosts, h)
	}
	results := &Results{Task: task, Chunk: math.MaxUint64, Batch: math.MaxUint64, Credit: 2}
	for range AddressesMax {
		p := &Probe{Ordinal: math.MaxUint32, Local: long(64)}
		p.Greylist(waitMax, "2001:db8:1111:2222:3333:4444:5555:6666")
		offer.Probes = append(offer.Probes, p)
		results.Answers = append(results.Answers, &Answer{Ordinal: math.MaxUint32, Outcome: 5, Reason: 200,
			WaitMs: waitMax.Milliseconds()})
	}
	for name, m := range map[string]proto.Message{"offer": offer, "results": results} {
		n := proto.Size(m)
		t.Logf("the largest %s has %d bytes", name, n)
		effort.ErrorIf(t, n > messageMax, "the largest %s has %d bytes, at most %d are wanted", name, n, messageMax)
	}
}

// TestGeneratedCodeIsThatOfTheSource generates wire.pb.go again where the tools are.
func TestGeneratedCodeIsThatOfTheSource(t *testing.T) {
	for _, tool := range []string{"protoc", "protoc-gen-go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not here: wire.pb.go is not compared with wire.proto", tool)
		}
	}
	out := t.TempDir()
	c := exec.Command("protoc", "--go_out="+out, "--go_opt=paths=source_relative", "wire.proto")
	text, err := c.CombinedOutput()
	effort.FatalIf(t, err != nil, "%v: %s", err, text)
	fresh := effort.Must(os.ReadFile(filepath.Join(out, "wire.pb.go")))(t)
	kept := effort.Must(os.ReadFile("wire.pb.go"))(t)
	effort.ErrorIf(t, !bytes.Equal(withoutVersions(fresh), withoutVersions(kept)),
		"wire.pb.go is not what protoc makes of wire.proto; see doc.go for the command")
}

// withoutVersions drops the lines that name the versions of the tools.
func withoutVersions(b []byte) []byte {
	lines := bytes.Split(b, []byte("\n"))
	return bytes.Join(slices.DeleteFunc(lines, func(line []byte) bool {
		return bytes.HasPrefix(line, []byte("// 	protoc")) || bytes.HasPrefix(line, []byte("// - protoc"))
	}), []byte("\n"))
}

// FuzzDecodeWire: any bytes, read as any message, never panic in what turns them
// into house types, and give values within their bounds.
func FuzzDecodeWire(f *testing.F) {
	id := uuid.UUID{1}
	task := &Task{Verification: id[:], Epoch: 3, Domain: "example.test"}
	kinds := []proto.Message{&Offer{}, &OfferAck{}, &Results{}, &ResultsAck{}, &Pulse{}, &Cancel{}, &Moved{}}
	for i, m := range []proto.Message{
		&Offer{Task: task, Chunk: 1, Hosts: []*Host{{Name: "mx.test", Addrs: [][]byte{{192, 0, 2, 1}}}},
			Probes: []*Probe{{Ordinal: 7, Local: "anna"}}},
		&OfferAck{Task: task, Refusal: Refusal_FULL, Credit: 2},
		&Results{Task: task, Answers: []*Answer{{Ordinal: 7, Outcome: 1, Reason: 1, WaitMs: -5,
			Attempts: []*Attempt{{AtMs: 1 << 60, Text: 1, Host: 9, Enhanced: 5_001_001, Version: 7}}}},
			Texts: [][]byte{[]byte("user unknown")}},
		&ResultsAck{Task: task}, &Pulse{Task: task, Chunks: []uint64{1, 2}, WaitingMs: 5}, &Cancel{},
		&Moved{Task: task},
	} {
		b := effort.Must(proto.Marshal(m))(f)
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m := proto.Clone(kinds[int(kind)%len(kinds)])
		if proto.Unmarshal(b, m) != nil {
			return
		}
		if about, ok := m.(interface{ GetTask() *Task }); ok {
			key := about.GetTask().Key()
			effort.ErrorIf(t, len(about.GetTask().GetVerification()) != 16 && key.Verification != uuid.Nil,
				"a key of a malformed id: %v", key)
		}
		switch m := m.(type) {
		case *Offer:
			for _, p := range m.GetProbes() {
				ago, _, _ := p.Greylisted()
				effort.ErrorIf(t, ago < 0 || ago > waitMax, "%v was greylisted %v ago", p, ago)
			}
			for _, h := range m.GetHosts() {
				for _, a := range h.Addresses() {
					effort.ErrorIf(t, !a.IsValid(), "an address that is none in %v", h)
				}
			}
		case *Results:
			for _, a := range m.GetAnswers() {
				outcome, reason := a.Verdict()
				effort.ErrorIf(t, outcome > smtp.Error || reason != smtp.ReasonNone && !reason.Known() ||
					a.Wait() < 0 || a.Wait() > waitMax, "%v gives %v %v %v", a, outcome, reason, a.Wait())
				checkAttempts(t, m, a)
			}
		case *Pulse:
			now := time.Unix(1_800_000_000, 0)
			if at := Until(now, m.GetWaitingMs()); !at.IsZero() && (at.Before(now) || at.After(now.Add(waitMax))) {
				t.Errorf("%v waits until %v", m, at)
			}
		}
	})
}

// attemptsOf reads one answer of a message.
func attemptsOf(r *Results, a *Answer) []evidence.Attempt {
	reader := NewReader(&Results{Texts: r.Texts, Answers: []*Answer{a}})
	return reader.AttemptsOf(a)
}

// checkAttempts fails when the attempts of an answer are not within their bounds.
func checkAttempts(t *testing.T, r *Results, a *Answer) {
	t.Helper()
	attempts := attemptsOf(r, a)
	effort.ErrorIf(t, len(attempts) > evidence.AttemptsMax, "%d attempts", len(attempts))
	for _, one := range attempts {
		effort.ErrorIf(t, one.Stage > smtp.StageRset || !one.Trouble.Known() || one.Outcome > smtp.Error ||
			!one.Blame.Known() || one.Reason != smtp.ReasonNone && !one.Reason.Known() || one.Code < 0 ||
			one.Code > 999 || len(one.Text) > evidence.TextMax ||
			max(len(one.Host), len(one.Source), len(one.Rule)) > evidence.NameMax || !one.Cause.Scope.Known() ||
			len(one.Cause.Why) > evidence.WhyMax, "%+v", one)
	}
}

// TestAttemptsTravel: they arrive as they were sent, and what they share is sent once.
func TestAttemptsTravel(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 0, 0, 1e6, time.UTC)
	sent := []evidence.Attempt{
		{At: at, Stage: smtp.StageGreeting, Host: "mx1.example", Source: "192.0.2.1", Trouble: evidence.TroubleTimeout,
			Reason: smtp.TimedOut, Blame: smtp.BlameReceiver, Rule: "no-reply-timeout",
			Cause: evidence.NewCause(evidence.ScopeReceiver, "3 of the last 3 new addresses got nothing")},
		{At: at.Add(time.Second), Stage: smtp.StageRcpt, Host: "mx2.example", Source: "192.0.2.1", TLS: true, Wide: true,
			Void: true, Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 606}, Text: "user unknown", Outcome: smtp.Invalid,
			Reason: smtp.MailboxNotFound, Blame: smtp.BlameAddress, Rule: "not-found", Version: 1<<32 - 1},
		{At: at.Add(time.Minute), Stage: smtp.StageRcpt, Host: "mx2.example", Source: "192.0.2.1", Code: 250,
			Text: "ok", Outcome: smtp.Valid, Reason: smtp.MailboxExists, Rule: "accepted"},
	}
	var texts Texts
	r := &Results{Answers: []*Answer{{Ordinal: 1, Attempts: texts.Attempts(sent)},
		{Ordinal: 2, Attempts: texts.Attempts(sent)}, {Ordinal: 3}}}
	r.Texts = texts.List()
	if want := 9; len(r.Texts) != want { // two hosts, a source, three rules, two texts, a cause
		t.Errorf("%d texts, want %d: %q", len(r.Texts), want, r.Texts)
	}
	got := passed(t, r)
	for i, want := range [][]evidence.Attempt{sent, sent, {}} {
		effort.Same(t, attemptsOf(got, got.Answers[i]), want, "answer", i)
	}
}

// TestAttemptsOfNewerProgramsAreReadAsFarAsTheyAreKnown: nothing is out of bounds.
func TestAttemptsOfNewerProgramsAreReadAsFarAsTheyAreKnown(t *testing.T) {
	big := uint32(1<<32 - 1)
	odd := &Attempt{AtMs: 1, Stage: big, Host: 1, Source: 2, Rule: big, Text: 1, Flags: big, Code: big, Enhanced: big,
		Trouble: big, Outcome: big, Reason: big, Blame: big, Cause: big, Why: 1}
	r := &Results{Texts: [][]byte{[]byte(strings.Repeat("x", 5000))}}
	a := &Answer{Attempts: []*Attempt{odd}}
	checkAttempts(t, r, a)
	got := attemptsOf(r, a)[0]
	want := evidence.Attempt{At: time.UnixMilli(1).UTC(), Host: strings.Repeat("x", evidence.NameMax),
		Text: strings.Repeat("x", evidence.TextMax), TLS: true, Wide: true, Void: true, Others: true, Bare: true}
	effort.Same(t, got, want)
	for range evidence.AttemptsMax + 3 {
		a.Attempts = append(a.Attempts, &Attempt{Code: 550})
	}
	if all := attemptsOf(r, a); len(all) != evidence.AttemptsMax || all[0].Code != 550 {
		t.Errorf("%d attempts, first %+v", len(all), all[0])
	}
}

func TestGreylistedProbes(t *testing.T) {
	for _, from := range []string{"192.0.2.1", "2001:db8::1", ""} {
		p := &Probe{Local: "anna"}
		_, _, ok := p.Greylisted()
		effort.ErrorIf(t, ok, "a new probe was greylisted")
		p.Greylist(5*time.Minute, from)
		ago, got, ok := passed(t, p).Greylisted()
		effort.ErrorIf(t, !ok || ago != 5*time.Minute || got != from, "%q: %v, %q, %v", from, ago, got, ok)
	}
	p := &Probe{}
	p.Greylist(0, "no address")
	ago, from, ok := p.Greylisted()
	effort.ErrorIf(t, !ok || ago != time.Millisecond || from != "", "%v, %q, %v", ago, from, ok)
	n := proto.Size(p)
	effort.ErrorIf(t, n > 10, "%d bytes", n)
}
