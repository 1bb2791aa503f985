package verification

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/domain"
	"rollcall/actors/intake"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func readLines(t testing.TB, lines ...string) *intake.File {
	t.Helper()
	return effort.Must(intake.Read(strings.NewReader("email\n"+strings.Join(lines, "\n")+"\n"),
		intake.Limits{RowsMax: 1 << 20}))(t)
}

func settledBits(f *intake.File, ordinals ...uint32) bitset {
	b := newBitset(f.Len())
	for _, o := range ordinals {
		b.set(o)
	}
	return b
}

// begun begins every domain and gives "domain: ordinals" for each.
func begun(p *plan) (list []string) {
	for {
		name, ok := p.begin(1 << 20)
		if !ok {
			return list
		}
		list = append(list, fmt.Sprint(name, ": ", p.ordinals(p.open[name])))
	}
}

func asFinal(ordinal uint32) domain.Final {
	return domain.Final{Ordinal: ordinal, Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: noon}
}

func TestPlanTakesEachOutcomeOnce(t *testing.T) {
	f := readLines(t, "a@one.test", "B@One.test", "c@two.test")
	p := newPlan(f, settledBits(f, 2))
	begun(p)
	p.take(noon, []domain.Final{asFinal(1), asFinal(1), asFinal(2), asFinal(3), asFinal(^uint32(0))})
	p.take(noon, []domain.Final{asFinal(1), asFinal(0)})
	want := []ledger.Result{
		{Ordinal: 0, Email: "a@one.test", Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: noon},
		{Ordinal: 1, Email: "B@One.test", Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: noon},
	}
	effort.Equal(t, p.batch(noon, true), want, "pending")
	left := p.ordinals(p.open["one.test"])
	effort.ErrorIf(t, len(left) != 0, "still open: %v", left)
}

func TestPlanGroupsByDomain(t *testing.T) {
	f := readLines(t, "a@one.test", "b@two.test", "c@ONE.test", "d@three.test", "b@TWO.test", "e@two.test")
	for _, c := range []struct {
		name    string
		settled []uint32
		want    []string
	}{
		{"new file", nil, []string{"one.test: [0 2]", "two.test: [1 4]", "three.test: [3]"}},
		{"some are settled", []uint32{1, 2}, []string{"one.test: [0]", "two.test: [4]", "three.test: [3]"}},
		{"a domain is settled", []uint32{0, 2}, []string{"two.test: [1 4]", "three.test: [3]"}},
		{"all but one", []uint32{0, 1, 2, 4}, []string{"three.test: [3]"}},
	} {
		effort.Equal(t, begun(newPlan(f, settledBits(f, c.settled...))), c.want, c.name)
	}
}

func TestPlanBatches(t *testing.T) {
	lines := make([]string, 3*ledger.SettlementMax)
	for i := range lines {
		lines[i] = fmt.Sprintf("user%d@one.test", i)
	}
	f := readLines(t, lines...)
	for _, c := range []struct {
		name    string
		pending int
		waited  time.Duration
		atOnce  bool
		want    int
	}{
		{"nothing", 0, time.Hour, true, 0},
		{"few and new", 999, 999 * time.Millisecond, false, 0},
		{"few and a second old", 1, time.Second, false, 1},
		{"a thousand", 1000, 0, false, 1000},
		{"few at the end", 1, 0, true, 1},
		{"more than one settlement holds", ledger.SettlementMax + 1, 0, false, ledger.SettlementMax},
	} {
		p := newPlan(f, newBitset(f.Len()))
		for i := range c.pending {
			p.take(noon, []domain.Final{asFinal(uint32(i))})
		}
		effort.Is(t, len(p.batch(noon.Add(c.waited), c.atOnce)), c.want, c.name, "a batch")
	}
}

// A batch that was tried must be tried again as it was: it may be committed.
func TestPlanRepeatsTheSameBatch(t *testing.T) {
	f := readLines(t, "a@one.test", "b@one.test", "c@one.test")
	p := newPlan(f, newBitset(f.Len()))
	p.take(noon, []domain.Final{asFinal(0)})
	first := slices.Clone(p.batch(noon, true))
	p.take(noon, []domain.Final{asFinal(1), asFinal(2)})
	if again := p.batch(noon.Add(time.Minute), true); !slices.Equal(again, first) {
		t.Fatalf("the second attempt has %d outcomes, want the %d of the first", len(again), len(first))
	}
	p.settled(noon)
	rest := p.batch(noon, true)
	effort.ErrorIf(t, len(rest) != 2 || rest[0].Ordinal != 1, "the next batch is %v, want ordinals 1 and 2", rest)
}

func TestPlanBeginsNoMoreThanItMay(t *testing.T) {
	f := readLines(t, slices.Concat(rowsOf("one.test"), rowsOf("two.test"), rowsOf("three.test"))...)
	p := newPlan(f, newBitset(f.Len()))
	for i, want := range []bool{true, true, false} {
		_, ok := p.begin(2)
		effort.FatalIf(t, ok != want, "begin %d: %v, want %v", i, ok, want)
	}
	p.end("one.test")
	p.behind.Store(true)
	_, ok := p.begin(2)
	effort.FatalIf(t, ok, "a domain is begun although the ledger is far behind")
	p.behind.Store(false)
	name, ok := p.begin(2)
	effort.ErrorIf(t, !ok || name != "three.test", "begun %q (%v), want three.test", name, ok)
}

// TestSmallDomainsCountForLess: as many begin as have the addresses of one that is whole.
func TestSmallDomainsCountForLess(t *testing.T) {
	var rows []string
	for i := range 2 * wholeDomain {
		rows = append(rows, fmt.Sprintf("a@d%d.test", i))
	}
	f := readLines(t, rows...)
	p := newPlan(f, newBitset(f.Len()))
	n := 0
	for _, ok := p.begin(1); ok; _, ok = p.begin(1) {
		n++
	}
	effort.Is(t, n, wholeDomain, "domains of one address were begun")
}

func TestDomainsThatOnlyWaitMakeRoomForOthers(t *testing.T) {
	f := readLines(t, slices.Concat(rowsOf("one.test"), rowsOf("two.test"), rowsOf("three.test"))...)
	p := newPlan(f, newBitset(f.Len()))
	p.begin(1)
	name, ok := p.begin(1)
	effort.FatalIf(t, ok, "%s is begun beside a busy domain, want one at a time", name)
	p.noteWait(p.open["one.test"], noon)
	name, ok = p.begin(1)
	effort.FatalIf(t, !ok || name != "two.test", "begun %q (%v) while the first only waits, want two.test", name, ok)
	p.noteWait(p.open["one.test"], time.Time{}) // both are busy
	p.end("two.test")
	name, ok = p.begin(1)
	effort.FatalIf(t, ok, "%s is begun beside a busy domain, want one at a time", name)
}

func TestPlanIsQuietWhenAllItsDomainsAre(t *testing.T) {
	f := readLines(t, "a@one.test", "a@two.test")
	p := newPlan(f, newBitset(f.Len()))
	for _, s := range []struct {
		name string
		do   func()
		want time.Time
	}{
		{"nothing begun", func() {}, time.Time{}},
		{"one begun", func() { p.begin(9); p.noteWait(p.open["one.test"], noon) }, time.Time{}},
		{"both begun", func() { p.begin(9) }, time.Time{}},
		{"both wait", func() { p.noteWait(p.open["two.test"], noon.Add(-time.Minute)) }, noon.Add(-time.Minute)},
		{"something to settle", func() { p.take(noon, []domain.Final{asFinal(0)}) }, time.Time{}},
		{"settled", func() { p.batch(noon, true); p.settled(noon); p.end("one.test") }, noon.Add(-time.Minute)},
		{"busy again", func() { p.noteWait(p.open["two.test"], time.Time{}) }, time.Time{}},
		{"over", func() { p.end("two.test") }, time.Time{}},
	} {
		s.do()
		if got, quiet := p.quiet(); !got.Equal(s.want) || quiet == s.want.IsZero() {
			t.Errorf("%s: quiet until %v (%v), want %v", s.name, got, quiet, s.want)
		}
	}
}

// After a restart at any moment the plan is exactly the rest: nothing twice, nothing forgotten.
func TestPlanAfterRestartIsTheRest(t *testing.T) {
	effort.Check(t, func(r *rapid.T) {
		var lines []string
		for i := range rapid.IntRange(1, 200).Draw(r, "rows") {
			lines = append(lines, fmt.Sprintf("user%d@d%d.test", i, rapid.IntRange(0, 20).Draw(r, "domain")))
		}
		f := readLines(t, lines...)
		settled := newBitset(f.Len())
		want := map[uint32]bool{}
		for i := range f.Len() {
			if rapid.Bool().Draw(r, "settled") {
				settled.set(uint32(i))
			} else {
				want[uint32(i)] = true
			}
		}
		p := newPlan(f, settled)
		for {
			name, ok := p.begin(1 << 20)
			if !ok {
				break
			}
			ordinals := p.ordinals(p.open[name])
			effort.FatalIf(r, len(ordinals) == 0, "%s is begun with nothing to do", name)
			for _, o := range ordinals {
				effort.FatalIf(r, !want[o] || f.Domain(int(o)) != name,
					"ordinal %d of %s in the work of %s", o, f.Domain(int(o)), name)
				delete(want, o)
			}
		}
		effort.FatalIf(r, len(want) != 0, "%d of the rest are in no domain's work", len(want))
	})
}

// TestABatchHoldsAsMuchEvidenceAsIsKept: a settlement can be packed however long the replies are. Outcomes that do
// not fit come with the next one.
func TestABatchHoldsAsMuchEvidenceAsIsKept(t *testing.T) {
	const n = 400
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("a%d@one.test", i)
	}
	p := newPlan(readLines(t, lines...), newBitset(n))
	for i := range n {
		f := asFinal(uint32(i))
		for k := range evidence.AttemptsMax {
			f.Case.Add(evidence.Attempt{At: noon, Code: 550,
				Text: fmt.Sprintf("%d %d %s", i, k, strings.Repeat("x", evidence.TextMax-20))})
		}
		p.take(noon, []domain.Final{f})
	}
	settled, batches := 0, 0
	for {
		batch := p.batch(noon, true)
		if batch == nil {
			break
		}
		packed, err := evidence.Pack(p.entries)
		effort.FatalIf(t, err != nil || len(packed) > ledger.EvidenceMax,
			"%d outcomes: %d bytes, %v", len(batch), len(packed), err)
		i := 0
		err = evidence.Unpack(packed, func(e evidence.Entry) error {
			want := fmt.Sprintf("%d %d ", batch[i].Ordinal, evidence.AttemptsMax-1)
			last, _ := e.Case.Last()
			effort.FatalIf(t, e.Ordinal != batch[i].Ordinal || !strings.HasPrefix(last.Text, want),
				"ordinal %d, text %.20q, want %d, %q", e.Ordinal, last.Text, batch[i].Ordinal, want)
			i++
			return nil
		})
		effort.FatalIf(t, err != nil || i != len(batch), "%d of %d cases, %v", i, len(batch), err)
		settled, batches = settled+len(batch), batches+1
		p.settled(noon)
	}
	effort.ErrorIf(t, settled != n || batches < 3 || len(p.pending) != 0,
		"%d outcomes in %d batches, %d are left", settled, batches, len(p.pending))
}
