package verification

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/domain"
	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// expecting is a ledger that records the expected times that it gets.
type expecting struct {
	Book
	mu      sync.Mutex
	marks   []ledger.Estimate // guarded by mu
	settled []time.Time       // guarded by mu: the expected finish with each settlement
}

func (b *expecting) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	b.mu.Lock()
	b.marks = append(b.marks, o)
	b.mu.Unlock()
	return b.Book.Wait(ctx, l, o)
}

func (b *expecting) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	b.mu.Lock()
	b.settled = append(b.settled, s.Expected)
	b.mu.Unlock()
	return b.Book.Settle(ctx, s)
}

func (b *expecting) told() (marks []ledger.Estimate, settled []time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.marks), slices.Clone(b.settled)
}

var one = mix{waits: usual, domainsMax: 100, list: addresses(1, 3000, 2),
	at: func(string) (string, habits) { return "slow.test", habits{perSecond: 5} }}

// TestAPauseMakesItWait: an operator pauses the only receiver and goes on with it later.
func TestAPauseMakesItWait(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	inBubble(t, 10_000, func(w *world) {
		book := &expecting{Book: w.book}
		r, tell := one.starts(w, book)
		<-time.After(time.Minute)
		if v, _ := r.asks(); v.Status != "verifying" || v.Finish.IsZero() {
			t.Fatalf("after a minute %s, expected at %v (%s)", v.Status, v.Finish, v.Why)
		}
		tell(pause{true})
		<-time.After(30 * time.Second)
		v, _ := r.asks()
		most := v.Waits[0]
		effort.ErrorIf(t, v.Status != "waiting" || !v.Finish.IsZero() || !strings.Contains(v.Why, "slow.test") ||
			most.For != inspect.ForReceiver || most.Cause != "paused" || most.Until.IsZero(),
			"paused for 30 s: %s, expected at %v (%s), waits for %+v", v.Status, v.Finish, v.Why, most)
		before, _ := book.told()
		<-time.After(30 * time.Minute)
		now := w.sees(r.id)
		if now.Status != ledger.Waiting || !now.NextTry.After(time.Now()) || !now.Expected.IsZero() {
			t.Errorf("paused for half an hour: %s, next try in %v, expected %v", now.Status,
				time.Until(now.NextTry), now.Expected)
		}
		if i := now.Issue; i == nil || i.Code != ledger.ReceiversWait || !strings.Contains(i.Message,
			" addresses wait for slow.test, where our operators have paused the work; nobody can say when") {
			t.Errorf("paused for half an hour its customer is told %+v", i)
		}
		if marks, _ := book.told(); len(marks)-len(before) > 66 { // twice a minute, and what was on its way
			t.Errorf("the ledger was told %d times in half an hour", len(marks)-len(before))
		}
		tell(pause{false})
		<-time.After(5 * time.Second)
		if v, _ := r.asks(); v.Status != "verifying" || v.Finish.IsZero() {
			t.Errorf("5 s after it was resumed %s, expected at %v (%s)", v.Status, v.Finish, v.Why)
		}
		i := w.sees(r.id).Issue
		effort.ErrorIf(t, i != nil, "after it was resumed its customer is told %+v", i)
		r.wait()
		effort.Is(t, w.sees(r.id).Status, ledger.Completed, "at the end")
	})
}

// TestTheLedgerIsToldTheFinish: the expected finish comes with each settlement, in whole seconds, never by itself.
func TestTheLedgerIsToldTheFinish(t *testing.T) {
	inBubble(t, 10_000, func(w *world) {
		book := &expecting{Book: w.book}
		r, _ := one.starts(w, book)
		began := time.Now()
		r.wait()
		marks, settled := book.told()
		effort.Is(t, len(marks), 0, "told beside the settlements", marks)
		took := time.Since(began)
		for i, at := range settled[:len(settled)-1] {
			effort.FatalIf(t, at.IsZero() && i > 2 || !at.Equal(at.Truncate(time.Second)),
				"settlement %d expected the finish at %v", i+1, at)
		}
		if half := settled[len(settled)/2].Sub(began); half < took*9/10 || half > took*11/10 {
			t.Errorf("half way the finish was expected after %v, it came after %v", half, took)
		}
	})
}

// TestRemarks: a new expected time is published only if it differs enough from the published one.
func TestRemarks(t *testing.T) {
	in := func(d time.Duration) time.Time { return noon.Add(d) }
	for _, c := range []struct {
		name    string
		was, is time.Time
		want    bool
	}{
		{"nothing known", time.Time{}, time.Time{}, false},
		{"known now", time.Time{}, in(time.Hour), true},
		{"not known any more", in(time.Hour), time.Time{}, true},
		{"the same", in(time.Hour), in(time.Hour), false},
		{"a fifth later", in(40 * time.Minute), in(50 * time.Minute), false},
		{"more than a fifth later", in(39 * time.Minute), in(50 * time.Minute), true},
		{"a fifth sooner", in(50 * time.Minute), in(40 * time.Minute), false},
		{"more than a fifth sooner", in(50 * time.Minute), in(39 * time.Minute), true},
		{"it has come", in(-time.Second), in(time.Second), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			effort.Is(t, moved(noon, c.was, c.is), c.want, "news")
		})
	}
}

// TestWaitsAreBounded: the list is, and no address is lost by it.
func TestWaitsAreBounded(t *testing.T) {
	for _, receivers := range []int{1, waitsMax, waitsMax + 1, 5000} {
		all, want := sums{}, 0
		for i := range receivers {
			all.add(inspect.Wait{Addresses: i + 1, For: inspect.ForReceiver, Receiver: fmt.Sprint("r", i),
				Cause: inspect.Causes[i%len(inspect.Causes)], PerHour: 7, Until: noon.Add(time.Duration(i))})
			want += i + 1
		}
		list := all.list()
		effort.ErrorIf(t, len(list) > waitsMax || sumOf(list) != want || list[0].Addresses != receivers,
			"%d receivers: %d entries with %d addresses, want %d; first %+v", receivers, len(list), sumOf(list), want,
			list[0])
		effort.ErrorIf(t, receivers <= waitsMax && len(list) != receivers,
			"%d receivers: %d entries", receivers, len(list))
	}
}

// TestSumOfWaits: of the same kind the first and the last time count.
func TestSumOfWaits(t *testing.T) {
	all := sums{}
	kind := inspect.Wait{Addresses: 2, For: inspect.ForRetry, Reason: "greylisted"}
	for _, d := range []time.Duration{3, 1, 2} {
		w := kind
		w.Until, w.Last = noon.Add(d), noon.Add(10*d)
		all.add(w)
	}
	all.add(inspect.Wait{For: inspect.ForRoute})
	want := kind
	want.Addresses, want.Until, want.Last = 6, noon.Add(1), noon.Add(30)
	got := all.list()
	effort.ErrorIf(t, len(got) != 1 || got[0] != want, "got %+v, want %+v", got, want)
}

// TestAnswersSinceWereTold: what became final since a domain told its waits waits no more.
func TestAnswersSinceWereTold(t *testing.T) {
	w := &work{size: 10, left: 4, begun: noon, waits: domain.Waits{Waits: []inspect.Wait{
		{Addresses: 5, For: inspect.ForReceiver, Receiver: "r", Cause: "free"},
		{Addresses: 4, For: inspect.ForRetry, Receiver: "r", Reason: "greylisted"}}}}
	all, o := sums{}, eta{now: noon, queues: map[string]*queue{}}
	w.sum(noon.Add(time.Second), all, &o)
	got := all.list()
	effort.ErrorIf(t, sumOf(got) != 4 || len(got) != 1 || got[0].For != inspect.ForRetry, "4 of 10 are open: %+v", got)
	effort.Is(t, o.queues["r"].addresses, 4, "addresses have to be asked")
}

// TestAnHourIsNoLessThanTheFinish: a receiver that may be asked 360 addresses in an hour, and
// is asked them at two a second, is not shown as slower than the finish is counted with.
func TestAnHourIsNoLessThanTheFinish(t *testing.T) {
	for left, want := range map[int]int{60: 7200, 720: 360} {
		w := &work{size: left + 200, left: left, begun: noon.Add(-100 * time.Second), waits: domain.Waits{
			Waits: []inspect.Wait{{Addresses: left, For: inspect.ForReceiver, Receiver: "r.test", PerHour: 360}}}}
		p := &plan{open: map[string]*work{"d.test": w}, starts: []uint32{0}}
		s := p.collectStatus(noon, w.begun, time.Time{})
		took := time.Duration(float64(left) / float64(want) * float64(time.Hour)).Round(time.Second)
		if len(s.waits) != 1 || s.waits[0].PerHour != want || s.finish.Sub(noon).Round(time.Second) != took+settleEvery {
			t.Errorf("%d left: expected in %v, %+v", left, s.finish.Sub(noon), s.waits)
		}
	}
}

// TestWhatACustomerIsToldOfAWait: the text names the receiver, the cause, and the end of the wait.
func TestWhatACustomerIsToldOfAWait(t *testing.T) {
	soon, late := noon.Add(2*time.Hour+4*time.Minute+time.Second), noon.Add(30*time.Hour)
	at := func(n int, receiver, cause string) inspect.Wait {
		return inspect.Wait{Addresses: n, For: inspect.ForReceiver, Receiver: receiver, Cause: cause}
	}
	again := func(n int, receiver string, r smtp.Reason) inspect.Wait {
		return inspect.Wait{Addresses: n, For: inspect.ForRetry, Receiver: receiver, Reason: r.String()}
	}
	budget := at(29812, "mx.example", "budget")
	budget.PerHour = 20
	free := at(3, "mx.example", "free")
	free.PerHour = 20
	tomorrow := noon.AddDate(0, 0, 1).Format("2 January")
	for _, c := range []struct {
		waits  []inspect.Wait
		finish time.Time
		want   string
	}{
		{[]inspect.Wait{budget}, soon, "29,812 addresses wait for mx.example, which takes only a few refusals an hour from strangers " +
			"(we ask about 20 addresses an hour); the last is expected at 14:05 UTC."},
		{[]inspect.Wait{again(1, "a.example", smtp.Greylisted)}, soon,
			"1 address waits for a.example, which makes strangers come back later (greylisting); it is expected at 14:05 UTC."},
		{[]inspect.Wait{at(2, "a.example", "paused"), at(1, "b.example", "penalty")}, time.Time{},
			"2 addresses wait for a.example, where our operators have paused the work, and 1 for another receiver; " +
				"nobody can say when the last will be done."},
		{[]inspect.Wait{at(1, "a.example", "unreached")}, time.Time{},
			"1 address waits for a.example, whose mail servers we cannot reach; nobody can say when it will be done."},
		{[]inspect.Wait{at(30, "b.example", "penalty"), at(20, "a.example", "connections"), again(15, "a.example", smtp.ReceiverBusy),
			at(10, "c.example", "allowance")}, late,
			"35 addresses wait for a.example, to which no more connections may be opened now, and 40 for 2 other receivers; " +
				"the last is expected tomorrow, 3 January, at 18:00 UTC."},
		{[]inspect.Wait{at(3, "a.example", "no share"), at(3, "a.example", "no share")}, late,
			"6 addresses wait for a.example, which this service cannot ask at the moment; " +
				"the last is expected tomorrow, 3 January, at 18:00 UTC."},
		{[]inspect.Wait{free, {Addresses: 1, For: inspect.ForControl, Receiver: "b.example"}, {Addresses: 9, For: inspect.ForLedger}}, soon,
			"3 addresses wait for mx.example, which is being asked now, and 1 for another receiver; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 4, For: inspect.ForControl, Receiver: "b.example"}, {Addresses: 1, For: inspect.ForRoute}}, soon,
			"4 addresses wait for b.example, where we first find out whether every address is accepted, and 1 waits for " +
				"something else; the last is expected at 14:05 UTC."},
		{[]inspect.Wait{again(2, "", smtp.DNSFailed), at(1, "b.example", "no healthy source")}, soon,
			"2 addresses wait for their receiver, whose name servers did not answer, and 1 for another receiver; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 5, For: inspect.ForDomain}, again(4, "a.example", smtp.NoRcptAnswer)}, soon,
			"5 addresses wait for their turn, and 4 for another receiver; the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 1, For: inspect.ForRoute}}, noon.Add(-time.Hour),
			"1 address waits for an answer from name servers; it is expected at 12:00 UTC."},
		{[]inspect.Wait{at(2, "a.example\x1b[2J", "penalty"), again(1, "a@b.example", smtp.Syntax)}, soon,
			"2 addresses wait for their receiver, which wanted us to slow down, and 1 waits for something else; " +
				"the last is expected at 14:05 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(19*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected tomorrow, " + tomorrow + ", at 07:12 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(71*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected on 5 January 2030 at 12:00 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, noon.Add(24*time.Hour + 12*time.Minute),
			"What is left waits for its receivers; the last is expected tomorrow, " + tomorrow + ", at 13:00 UTC."},
		{[]inspect.Wait{{Addresses: 9, For: inspect.ForLedger}}, soon,
			"What is left waits for its receivers; the last is expected at 14:05 UTC."},
	} {
		effort.Is(t, (status{at: noon, waits: c.waits, finish: c.finish}).sentence(), c.want, c.waits)
	}
}

// TestEachCauseAndReasonIsTold: each has its own sentence.
func TestEachCauseAndReasonIsTold(t *testing.T) {
	told := map[string]string{}
	for _, cause := range inspect.Causes {
		w := inspect.Wait{For: inspect.ForReceiver, Cause: cause}
		if text := waitSentence(w); text == "" || told[text] != "" {
			t.Errorf("%s is told as %q, as %q is", cause, text, told[text])
		} else {
			told[text] = cause
		}
	}
	for r, text := range deferredBy {
		w := inspect.Wait{For: inspect.ForRetry, Reason: r}
		effort.ErrorIf(t, waitSentence(w) != text || told[text] != "" || text == deferredAnyhow,
			"%s is told as %q, want %q, as %q is", r, waitSentence(w), text, told[text])
		told[text] = r
	}
}

// TestWhatIsToldFitsIntoTheLedger: the text of any wait is one sentence without an address.
func TestWhatIsToldFitsIntoTheLedger(t *testing.T) {
	name := strings.Repeat("long-label.", 23)[:nameMax]
	reason := func(t *rapid.T) string { return smtp.Reason(rapid.IntRange(0, 40).Draw(t, "reason")).String() }
	wait := rapid.Custom(func(t *rapid.T) inspect.Wait {
		what := rapid.SampledFrom([]string{inspect.ForRoute, inspect.ForReceiver, inspect.ForRetry, inspect.ForControl, inspect.ForDomain,
			inspect.ForLedger, "something new"})
		return inspect.Wait{Addresses: rapid.SampledFrom([]int{0, 1, 2, 10_000_000}).Draw(t, "addresses"),
			For: what.Draw(t, "for"), Reason: reason(t),
			Receiver: rapid.SampledFrom([]string{"", name, "mx.example", "x@y.example", name + "x", "ä.example", "\x00"}).Draw(t, "receiver"),
			Cause:    rapid.SampledFrom(append(inspect.Causes[:], "", "something new")).Draw(t, "cause"),
			PerHour:  rapid.SampledFrom([]int{0, 1, 1 << 40}).Draw(t, "per hour")}
	})
	effort.Check(t, func(t *rapid.T) {
		s := status{at: noon, waits: rapid.SliceOfN(wait, 0, 6).Draw(t, "waits"),
			finish: noon.Add(time.Duration(rapid.IntRange(-1, 1000).Draw(t, "hours")) * time.Hour)}
		if rapid.Bool().Draw(t, "nobody knows") {
			s.finish = time.Time{}
		}
		text := s.sentence()
		effort.OK(t, ledger.CheckWhy(text), text)
		plain := strings.ReplaceAll(strings.ReplaceAll(text, name, ""), "mx.example", "")
		effort.FatalIf(t, strings.ContainsAny(plain, "@\x00ä\n") || strings.Count(plain, ".") != 1 ||
			!strings.HasSuffix(plain, "."), "no sentence for customers: %q", text)
	})
}
