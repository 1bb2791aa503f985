package verification

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/actors/intake"
	"rollcall/actors/process"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

func TestWholeLife(t *testing.T) {
	w := newWorld(t, 100)
	v := w.uploads("yes@good.test", "Yes@GOOD.test", "no@good.test", "x@all.test", "x@none.test", "yes@good.test")
	v = w.finishes(w.options(w.watches()), v.ID)
	effort.ErrorIf(t, v.Status != ledger.Completed || v.Rows != 6 || v.Duplicates != 1 || v.Total != 5 || v.Held != 0,
		"at the end: %+v", v)
	want := map[string]string{
		"yes@good.test": "valid mailbox_exists",
		"Yes@GOOD.test": "invalid mailbox_not_found",
		"no@good.test":  "invalid mailbox_not_found",
		"x@all.test":    "catch_all accept_all",
		"x@none.test":   "invalid no_mail_service",
	}
	effort.Same(t, w.results(v.ID), want, "results")
	b := w.sound()
	effort.ErrorIf(t, b.Spent != 5 || b.Available != 95, "balance %+v", b)
}

func TestUnknownIsFree(t *testing.T) {
	w := newWorld(t, 2)
	o := w.options(w.book)
	o.Domain.GiveUpAfter = 50 * time.Millisecond
	v := w.finishes(o, w.uploads("x@silent.test", "later@good.test").ID)
	effort.ErrorIf(t, v.Status != ledger.Completed || v.Counts.Unknown != 2, "at the end: %+v", v)
	b := w.sound()
	effort.ErrorIf(t, b.Spent != 0 || b.Available != 2, "balance %+v", b)
}

// A fault of ours costs the customer nothing and stays where it is.
func TestDomainThatCrashesIsGivenUp(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		began := time.Now()
		v := w.finishes(w.options(w.book), w.uploads("a@crash.test", "yes@good.test", "b@crash.test").ID)
		want := map[string]string{"a@crash.test": "unknown internal", "b@crash.test": "unknown internal",
			"yes@good.test": "valid mailbox_exists"}
		if got := w.results(v.ID); v.Status != ledger.Completed || !maps.Equal(got, want) {
			w.t.Errorf("%s with %v, want %v", v.Status, got, want)
		}
		b := w.sound()
		effort.ErrorIf(w.t, b.Spent != 1, "balance %+v", b)
		if took := time.Since(began); took < 3*crashPause || took > 4*crashPause {
			w.t.Errorf("given up after %v, want it after pauses of %v and %v", took, crashPause, 2*crashPause)
		}
	})
}

// A fault that passes costs nobody anything.
func TestDomainThatCrashesOnceGoesOn(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		o := w.options(w.book)
		var crashes atomic.Int64
		match := o.Domain.Match
		o.Domain.Match = func(r mx.Route) string {
			if crashes.Add(1) == 1 {
				panic("a fault that passes")
			}
			return match(r)
		}
		v := w.finishes(o, w.uploads("yes@good.test", "no@good.test").ID)
		effort.ErrorIf(w.t, v.Counts.Valid != 1 || v.Counts.Invalid != 1, "counts %+v", v.Counts)
	})
}

// cancelled checks that a cancel has refunded exactly what was not settled.
func (w *world) cancelled(v ledger.Verification, before ledger.Credits) {
	w.t.Helper()
	c := v.Counts
	effort.FatalIf(w.t, v.Status != ledger.Cancelled || v.Held != 0 || v.Completed.IsZero(), "at the end: %+v", v)
	effort.FatalIf(w.t, v.Total >= 0 && c.Sum() != v.Total || int64(len(w.results(v.ID))) != c.Sum()-c.Cancelled,
		"%+v of %d addresses, %d results", c, v.Total, len(w.results(v.ID)))
	if b := w.balance(); b.Spent != before+ledger.Credits(c.Charged()) || b.Held != 0 {
		w.t.Fatalf("balance %+v, want %d more spent than %d", b, c.Charged(), before)
	}
}

func TestCancelAtAnyMomentRefundsExactlyTheUnchecked(t *testing.T) {
	rounds := effort.Cases(60)
	w := newWorld(t, 1_000_000)
	random := rand.New(rand.NewPCG(1, 2))
	rows := make([]string, 0, 60)
	for i := range 20 {
		rows = append(rows, fmt.Sprintf("yes%d@d%d.test", i, i), fmt.Sprintf("no%d@good.test", i),
			fmt.Sprintf("never@d%d.test", i))
	}
	partly := 0
	spent := ledger.Credits(0)
	for i := range rounds {
		v := w.uploads(rows...)
		leased, lease := w.leases(w.node, v.ID)
		r := w.starts(w.options(w.watches()), leased, lease)
		timer := time.NewTimer(time.Duration(random.IntN(1+15_000*(i%3))) * time.Microsecond)
		<-timer.C
		effort.Must(w.book.Cancel(t.Context(), w.workspace, v.ID))(t)
		r.tell(Look{})
		r.tell(Look{})
		r.wait()
		v = w.sees(v.ID)
		w.cancelled(v, spent)
		spent += ledger.Credits(v.Counts.Charged())
		if v.Counts.Charged() > 0 {
			partly++
		}
	}
	w.sound()
	t.Logf("%d of %d were cancelled with something charged", partly, rounds)
	effort.ErrorIf(t, rounds >= 60 && (partly == 0 || partly == rounds),
		"%d of %d were cancelled with something charged: the moments are not random", partly, rounds)
}

func TestDrainGivesTheLeaseBackAndTheNextGoesOn(t *testing.T) {
	w := newWorld(t, 100)
	v := w.uploads("yes@good.test", "no@good.test", "later@good.test", "x@all.test")
	leased, lease := w.leases(w.node, v.ID)
	first := w.starts(w.options(w.watches()), leased, lease)
	w.until(v.ID, "settled but for one", func(v ledger.Verification) bool { return v.Counts.Sum() == 3 })
	first.tell(Drain{})
	first.wait()
	leased, lease = w.leases(uuid.New(), v.ID)
	effort.FatalIf(t, leased.Epoch != 2 || leased.Counts.Sum() != 3, "given back: %+v", leased)
	before := w.mailboxes.times()
	next := w.starts(w.options(w.watches()), leased, lease)
	w.until(v.ID, "waiting", func(v ledger.Verification) bool { return time.Until(v.NextTry) > 50*time.Minute })
	next.tell(Drain{})
	next.wait()
	effort.Must(w.book.Cancel(t.Context(), w.workspace, v.ID))(t)
	want := map[string]string{"yes@good.test": "valid mailbox_exists", "no@good.test": "invalid mailbox_not_found",
		"x@all.test": "catch_all accept_all"}
	effort.Same(t, w.results(v.ID), want, "results")
	for address, n := range w.mailboxes.times() {
		if _, open := want[address]; (open || address == "later@good.test") && n != before[address] {
			t.Errorf("%s was asked again after it was settled, or before it is due", address)
		}
	}
	w.sound()
}

func TestDrainWhileTheFileIsRead(t *testing.T) {
	w := newWorld(t, 100)
	v := w.uploads("yes@good.test")
	leased, lease := w.leases(w.node, v.ID)
	slow := newFaulty(w)
	slow.hold.Store(true)
	r := w.starts(w.options(slow), leased, lease)
	<-slow.held
	r.tell(Drain{})
	r.wait()
	v = w.finishes(w.options(w.book), v.ID)
	effort.ErrorIf(t, v.Status != ledger.Completed || v.Epoch != 2, "at the end: %+v", v)
}

func TestLostWritesNothingMore(t *testing.T) {
	inBubble(t, 100, func(w *world) {
		v := w.uploads("yes@good.test", "later@good.test")
		leased, lease := w.leases(w.node, v.ID)
		book := newFaulty(w)
		r := w.starts(w.options(book), leased, lease)
		w.until(v.ID, "waiting", func(v ledger.Verification) bool { return v.State() == ledger.WaitingReceivers })
		r.tell(Lost{})
		r.wait()
		calls, asked := book.calls.Load(), w.mailboxes.times()["later@good.test"]
		<-time.After(3 * time.Hour) // the address would be due, and given up
		again := book.calls.Load()
		effort.ErrorIf(w.t, again != calls, "%d more calls of the ledger after the end", again-calls)
		if again := w.mailboxes.times()["later@good.test"]; again != asked {
			w.t.Errorf("asked %d times more after the end", again-asked)
		}
	})
}

func TestStaleEpochEndsTheActor(t *testing.T) {
	w := newWorld(t, 100)
	v := w.uploads("yes@good.test")
	leased, lease := w.leases(w.node, v.ID)
	effort.OK(t, w.book.Release(t.Context(), lease))
	w.leases(uuid.New(), v.ID)
	w.starts(w.options(w.book), leased, lease).wait()
	v = w.sees(v.ID)
	effort.ErrorIf(t, v.Status != ledger.Preparing || v.Epoch != 2, "the old owner changed it: %+v", v)
}

// faulty is a ledger whose calls fail as those of a real database can.
type faulty struct {
	*watched
	random func(n int) int
	hold   atomic.Bool   // OpenFile waits for the end of its context
	held   chan struct{} // closed when it does
	calls  atomic.Int64
	fails  atomic.Int64 // how many calls are still to fail
	lost   atomic.Int64 // answers that were lost after a commit
	noWait atomic.Bool  // Wait always fails
	away   atomic.Bool  // Settle always fails
	waits  atomic.Int64 // so often
}

var errLedger = errors.New("the ledger is away")

func newFaulty(w *world) *faulty {
	return &faulty{watched: w.watches(), held: make(chan struct{}), random: rand.IntN}
}

// fault says what to do with a call: fail before it, or lose its answer.
func (b *faulty) fault() (before, after bool) {
	b.calls.Add(1)
	if b.fails.Add(-1) < 0 {
		return false, false
	}
	if b.random(2) == 0 {
		return true, false
	}
	b.lost.Add(1)
	return false, true
}

func (b *faulty) through(do func() (ledger.Verification, error)) (ledger.Verification, error) {
	before, after := b.fault()
	if before {
		return ledger.Verification{}, errLedger
	}
	v, err := do()
	if after {
		return ledger.Verification{}, errLedger
	}
	return v, err
}

func (b *faulty) OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error) {
	if b.hold.Load() {
		close(b.held)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Store.OpenFile(ctx, id)
}

func (b *faulty) Prepare(ctx context.Context, l ledger.Lease, rows, duplicates, total int64) (
	ledger.Verification, error) {
	return b.through(func() (ledger.Verification, error) {
		return b.watched.Prepare(ctx, l, rows, duplicates, total)
	})
}

func (b *faulty) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	if b.away.Load() {
		return ledger.Verification{}, errLedger
	}
	return b.through(func() (ledger.Verification, error) { return b.watched.Settle(ctx, s) })
}

func (b *faulty) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	if b.noWait.Load() {
		if b.waits.Add(1) > 100 {
			<-ctx.Done() // else a loop would stop the bubble's clock
		}
		return ledger.Verification{}, errLedger
	}
	return b.through(func() (ledger.Verification, error) { return b.watched.Wait(ctx, l, o) })
}

func (b *faulty) Park(
	ctx context.Context, l ledger.Lease, o ledger.Estimate, state []byte,
) (ledger.Verification, error) {
	if b.noWait.Load() {
		b.waits.Add(1)
		return ledger.Verification{}, errLedger
	}
	return b.through(func() (ledger.Verification, error) { return b.watched.Park(ctx, l, o, state) })
}

func TestLedgerThatFailsForAWhileChargesNothingTwice(t *testing.T) {
	for round := range effort.Cases(5) {
		inBubble(t, 1000, func(w *world) {
			t := w.t
			book := newFaulty(w)
			random := rand.New(rand.NewPCG(3, uint64(round)))
			book.random = random.IntN
			book.fails.Store(12)
			rows := []string{"later@d1.test"}
			for i := range 40 {
				rows = append(rows, fmt.Sprintf("no%d@d%d.test", i, i%7), fmt.Sprintf("yes%d@d%d.test", i, i))
			}
			v := w.finishes(w.options(book), w.uploads(rows...).ID)
			effort.ErrorIf(t, v.Status != ledger.Completed || v.Epoch != 2 || int64(len(w.results(v.ID))) != v.Total,
				"at the end: %+v", v)
			if b := w.sound(); b.Spent != ledger.Credits(v.Counts.Charged()) || v.Counts.Charged() != v.Total-1 {
				t.Errorf("balance %+v, counts %+v", b, v.Counts)
			}
			effort.ErrorIf(t, book.fails.Load() >= 0 || book.lost.Load() == 0,
				"%d faults left, %d answers lost: the ledger did not fail", book.fails.Load(), book.lost.Load())
		})
	}
}

// tardy is a ledger that takes a second for each settlement.
type tardy struct {
	*watched
	mailboxes     *mailboxes
	settled, most int // addresses; the most that were asked and not settled
}

func (b *tardy) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	<-time.After(time.Second)
	b.most = max(b.most, len(b.mailboxes.times())-b.settled)
	b.settled += len(s.Results)
	return b.watched.Settle(ctx, s)
}

// TestASlowLedgerIsWaitedFor: no more addresses are asked than it is allowed to be behind, and those that are out when
// that is seen, which are more on a busy machine.
func TestASlowLedgerIsWaitedFor(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	const addresses, out = 3 * unsettledMax, unsettledMax
	inBubble(t, addresses, func(w *world) {
		rows := make([]string, addresses)
		for i := range rows {
			rows[i] = fmt.Sprintf("no%d@good.test", i)
		}
		book := &tardy{watched: w.watches(), mailboxes: w.mailboxes}
		v := w.finishes(w.options(book), w.uploads(rows...).ID)
		effort.ErrorIf(w.t, v.Status != ledger.Completed, "at the end: %+v", v)
		effort.ErrorIf(w.t, book.most < unsettledMax || book.most > unsettledMax+out,
			"%d addresses were asked and not settled, want about %d", book.most, unsettledMax)
	})
}

// unsure commits a settlement and loses each answer until the ledger was told that the work goes on,
// which fails until there is a settlement.
type unsure struct {
	*watched
	settled, told atomic.Bool
	numbers       chan int64 // of the settlements that came
}

func (b *unsure) Settle(ctx context.Context, s ledger.Settlement) (ledger.Verification, error) {
	b.numbers <- s.Number
	v, err := b.watched.Settle(ctx, s)
	if err == nil {
		b.settled.Store(true)
	}
	if !b.told.Load() {
		return ledger.Verification{}, errLedger
	}
	return v, err
}

func (b *unsure) Wait(ctx context.Context, l ledger.Lease, o ledger.Estimate) (ledger.Verification, error) {
	if o.Next.IsZero() && !b.settled.Load() {
		return ledger.Verification{}, errLedger
	}
	v, err := b.watched.Wait(ctx, l, o)
	if err == nil && o.Next.IsZero() {
		b.told.Store(true)
	}
	return v, err
}

// TestASettlementIsSentAgainUnderItsNumber: also when the ledger tells meanwhile that it has it.
func TestASettlementIsSentAgainUnderItsNumber(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		t := w.t
		book := &unsure{watched: w.watches(), numbers: make(chan int64, 1000)}
		v := w.uploads("second@one.test", "later@two.test")
		leased, lease := w.leases(w.node, v.ID)
		r := w.starts(w.options(book), leased, lease)
		<-time.After(2 * time.Minute)
		effort.FatalIf(t, !book.told.Load() || len(book.numbers) < 2,
			"told %v, %d settlements came: no answer was lost", book.told.Load(), len(book.numbers))
		for len(book.numbers) > 0 {
			effort.Is(t, <-book.numbers, 1, "what may have been settlement 1 was sent as settlement")
		}
		select {
		case <-r.ended:
			t.Error("the work ended")
		default:
		}
		if v = w.sees(v.ID); v.Counts.Invalid != 1 || v.Counts.Sum() != 1 || v.Settlements != 1 {
			t.Errorf("counts %+v after %d settlements", v.Counts, v.Settlements)
		}
		b := w.sound()
		effort.ErrorIf(t, b.Spent != 1 || b.Held != 1, "balance %+v", b)
		r.tell(Drain{})
		r.wait()
	})
}

// TestAFileThatWasAcceptedIsReadWhateverTheLimit: limits of intake hold at intake.
func TestAFileThatWasAcceptedIsReadWhateverTheLimit(t *testing.T) {
	w := newWorld(t, 0)
	v := w.finishes(w.options(w.book), w.uploads("yes@good.test", "no@good.test", "no@good.test").ID)
	effort.MustBe(t, v.State(), ledger.WaitingCredits, "without credits", v)
	w.grants(2)
	o := w.options(w.book)
	o.RowsMax = 1
	v = w.finishes(o, v.ID)
	effort.ErrorIf(t, v.Status != ledger.Completed || v.Held != 0, "with a lower limit: %+v", v)
	refused := w.finishes(o, w.uploads("yes@good.test", "no@good.test").ID)
	effort.ErrorIf(t, refused.Status != ledger.Failed || refused.Issue == nil ||
		refused.Issue.Code != "csv_too_many_rows", "a new file: %+v", refused)
	w.sound()
}

// slowly is a ledger that takes some attempts to hold the credits of a file: one that is not made, and
// then answers that are lost.
type slowly struct {
	*watched
	prepares atomic.Int64
	answered atomic.Bool
}

func (b *slowly) Prepare(ctx context.Context, l ledger.Lease, rows, duplicates, total int64) (ledger.Verification, error) {
	n := b.prepares.Add(1)
	if n == 1 {
		return ledger.Verification{}, errLedger
	}
	v, err := b.watched.Prepare(ctx, l, rows, duplicates, total)
	if n < 4 {
		return ledger.Verification{}, errLedger
	}
	b.answered.Store(true)
	return v, err
}

// TestNothingIsAskedBeforeItsCreditsAreHeld: neither a receiver nor the DNS, and a commit that may
// have happened is not enough.
func TestNothingIsAskedBeforeItsCreditsAreHeld(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		t := w.t
		book := &slowly{watched: w.watches()}
		v := w.uploads("yes@good.test", "no@all.test")
		o := w.options(book)
		asked, find := atomic.Int64{}, o.Domain.Route
		check := func() {
			if now := w.sees(v.ID); !book.answered.Load() || now.Held != 2 || w.balance().Held != 2 {
				t.Errorf("asked with %d credits held, told so: %v", now.Held, book.answered.Load())
			}
			asked.Add(1)
		}
		o.Domain.Route = func(ctx context.Context, name string) (mx.Route, error) {
			check()
			return find(ctx, name)
		}
		w.mailboxes.mu.Lock()
		w.mailboxes.before = check
		w.mailboxes.mu.Unlock()
		leased, lease := w.leases(w.node, v.ID)
		w.starts(o, leased, lease).wait()
		if v = w.sees(v.ID); v.Status != ledger.Completed || asked.Load() < 4 || book.prepares.Load() != 4 {
			t.Errorf("asked %d times, prepared %d times, at the end %+v", asked.Load(), book.prepares.Load(), v)
		}
		w.sound()
	})
}

// another answers other bytes for a file than were accepted.
type another struct {
	*watched
	bytes string
}

func (b *another) OpenFile(context.Context, uuid.UUID) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(b.bytes)), nil
}

// TestAFileThatIsNotWhatItWasIsGivenUp: a changed file is no defect for the customer, and nothing is asked.
func TestAFileThatIsNotWhatItWasIsGivenUp(t *testing.T) {
	for name, bytes := range map[string]string{"a defect": "yes@good.test\nno address\n", "fewer": "yes@good.test\n",
		"more": "yes@good.test\nno@good.test\nx@good.test\n", "a duplicate": "yes@good.test\nyes@good.test\n"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			id := w.uploads("yes@good.test", "no@good.test").ID
			_, lease := w.leases(w.node, id)
			v := effort.Must(w.book.Prepare(t.Context(), lease, 2, 0, 2))(t)
			done, err := load(t.Context(), w.options(&another{w.watches(), bytes}), v, lease)
			effort.ErrIs(t, err, errChanged, done)
			v = w.sees(id)
			effort.ErrorIf(t, v.Status != ledger.Verifying, "left as %+v", v)
		})
	}
}

func TestWaitingIsToldWhenOnlyReceiversAreWaitedFor(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		t := w.t
		book := w.watches()
		o := w.options(book)
		v := w.uploads("later@good.test", "no@good.test")
		leased, lease := w.leases(w.node, v.ID)
		began := time.Now()
		r := w.starts(o, leased, lease)

		for v = w.sees(v.ID); v.Status != ledger.Waiting; v = w.sees(v.ID) {
			<-time.After(100 * time.Millisecond)
		}
		const why = "1 address waits for good.test, which makes strangers come back later (greylisting); it is expected at "
		if i := v.Issue; i == nil || i.Code != ledger.ReceiversWait || !strings.HasPrefix(i.Message, why) {
			t.Errorf("after %v its customer is told %+v", time.Since(began), i)
		}
		<-time.After(20 * time.Second)
		v = w.sees(v.ID)
		if next := v.NextTry.Sub(began); v.State() != ledger.WaitingReceivers || next < time.Hour || next > 62*time.Minute {
			t.Errorf("after 20 s: %s, next try in %v; want waiting for an hour and a little", v.Status, next)
		}
		<-time.After(2 * time.Hour)
		v = w.sees(v.ID)
		got := fmt.Sprint(book.statuses())
		effort.ErrorIf(t, v.Counts.Unknown != 1 || got != "[verifying waiting verifying completed]" &&
			got != "[verifying waiting completed]", "statuses %v, at the end %+v", got, v)
		r.wait()
	})
}

func TestMarkThatFailsIsTriedAgainWithPauses(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		book := newFaulty(w)
		book.noWait.Store(true)
		leased, lease := w.leases(w.node, w.uploads("later@good.test").ID)
		r := w.starts(w.options(book), leased, lease)
		<-time.After(time.Minute)
		n := book.waits.Load()
		effort.ErrorIf(w.t, n < 5 || n > 20, "tried %d times in a minute, want about every %v", n, retryMax)
		r.tell(Drain{})
		r.wait()
	})
}

func TestNothingIsAskedWhileNothingCanBeSettled(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		book := newFaulty(w)
		book.away.Store(true)
		v := w.uploads("no@good.test", "soon@good.test")
		leased, lease := w.leases(w.node, v.ID)
		w.starts(w.options(book), leased, lease)
		<-time.After(30 * time.Second)
		if n := w.mailboxes.times()["soon@good.test"]; n != 1 {
			w.t.Errorf("an address was asked %d times, want once: an outcome waits for the ledger since before", n)
		}
		book.away.Store(false)
		w.until(v.ID, "settled", func(v ledger.Verification) bool { return v.Counts.Sum() == 1 })
		<-time.After(10 * time.Second)
		n := w.mailboxes.times()["soon@good.test"]
		effort.ErrorIf(w.t, n < 2, "nothing was asked any more after the ledger came back")
	})
}

func TestStatusDoesNotFlap(t *testing.T) {
	inBubble(t, 10, func(w *world) {
		book := w.watches()
		leased, lease := w.leases(w.node, w.uploads("soon@good.test").ID)
		r := w.starts(w.options(book), leased, lease)
		<-time.After(2 * time.Minute)
		waits := 0
		for _, s := range book.statuses() {
			if s == ledger.Waiting {
				waits++
			}
		}
		effort.ErrorIf(w.t, waits < 3 || waits > 8,
			"the status was waiting %d times in two minutes, want it every 15 seconds at most", waits)
		r.tell(Drain{})
		r.wait()
	})
}

// rowsOf returns rows of a domain that is large enough to count as a whole one at work.
func rowsOf(domain string) (rows []string) {
	for i := range wholeDomain {
		rows = append(rows, fmt.Sprintf("yes%d@%s", i, domain))
	}
	return rows
}

// TestABusyNodeHasFewDomainsAtWork: no more than its window, in turn until all are answered.
func TestABusyNodeHasFewDomainsAtWork(t *testing.T) {
	w := newWorld(t, 40*wholeDomain)
	o := w.options(w.book)
	o.Window = process.NewWindow(prometheus.NewRegistry(), 2, 2)
	var busy, most atomic.Int64
	o.Domain.Route = func(ctx context.Context, name string) (mx.Route, error) {
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		for range 100 {
			runtime.Gosched()
		}
		return route(ctx, name)
	}
	var rows []string
	for i := range 40 {
		rows = append(rows, rowsOf(fmt.Sprintf("d%d.test", i))...)
	}
	if got := w.finishes(o, w.uploads(rows...).ID); got.Status != ledger.Completed || got.Counts.Valid != 40*wholeDomain {
		t.Errorf("ended %s with %+v", got.Status, got.Counts)
	}
	effort.ErrorIf(t, most.Load() > 2, "%d domains were at work at a time", most.Load())
}

// TestACheckOfOneAddressRunsAsAFileDoes: from the form over intake and the receiver to its result.
func TestACheckOfOneAddressRunsAsAFileDoes(t *testing.T) {
	for address, c := range map[string]struct {
		outcome smtp.Outcome
		result  string
	}{
		"yes@good.test":   {smtp.Valid, "valid mailbox_exists"},
		"no@good.test":    {smtp.Invalid, "invalid mailbox_not_found"},
		"x@all.test":      {smtp.CatchAll, "catch_all accept_all"},
		`"x,y"@none.test`: {smtp.Invalid, "invalid no_mail_service"},
	} {
		w := newWorld(t, 5)
		ctx := context.Background()
		v, err := w.book.CreateSingle(ctx, ledger.CreateSingle{ID: uuid.New(), Workspace: w.workspace, Identity: uuid.New(), Address: address,
			Limits: ledger.Limits{Open: 1, Stored: 1 << 10, Unpaid: 1}})
		effort.OK(t, err)
		v = w.finishes(w.options(w.watches()), v.ID)
		effort.ErrorIf(t, v.Status != ledger.Completed || v.Kind != ledger.Single || v.SingleEmail != address ||
			v.SingleOutcome != c.outcome || v.Total != 1, "%s: %+v", address, v)
		effort.Same(t, w.results(v.ID), map[string]string{address: c.result}, address)
		b := w.sound()
		effort.ErrorIf(t, b.Spent != 1 || b.Available != 4, "%s: balance %+v", address, b)
		page, err := w.book.RecentResults(ctx, ledger.RecentQuery{Workspace: w.workspace, Verification: v.ID, Limit: 9})
		effort.ErrorIf(t, err != nil || len(page.Results) != 1 || page.Results[0].Email != address ||
			page.Results[0].Outcome != c.outcome, "%s: recent %+v, %v", address, page, err)
	}
}

// TestTheFileOfOneAddressIsReadAsThatAddress: what the ledger writes for a check is no header and no defect, whatever
// is in the address.
func TestTheFileOfOneAddressIsReadAsThatAddress(t *testing.T) {
	t.Parallel()
	s := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	defer func() { _ = s.Close() }()
	workspace := uuid.New()
	effort.Must(s.CreateWorkspace(t.Context(), workspace, "checks"))(t)
	for _, address := range []string{"a@b.test", "email@test", "A.B+c@Sub.Example.TEST",
		`"a,b"@c.test`, `"a\"b"@c.test`, `"a""b"@c.test`,
		`"\\"@c.test`, "a@bücher.test", "jörg@b.test", "=1+1@b.test", "'@b.test", "a@xn--bcher-kva.test",
		strings.Repeat("a", 64) + "@b.test"} {
		c := ledger.CreateSingle{ID: uuid.New(), Workspace: workspace, Identity: uuid.New(), Address: address,
			Limits: ledger.Limits{Open: 100, Stored: 1 << 20, Unpaid: 100}}
		if c.Check() != nil {
			_, err := s.CreateSingle(t.Context(), c)
			effort.ErrorIf(t, err == nil, "%q is no address and was taken", address)
			continue
		}
		v, err := s.CreateSingle(t.Context(), c)
		effort.OK(t, err, address)
		f := readSingle(t, s, v)
		effort.ErrorIf(t, f.Rows() != 1 || f.Len() != 1 || spelled(f, 0) != address,
			"%q: %d rows, %d addresses, the first %q", address, f.Rows(), f.Len(), spelled(f, 0))
	}
	list, err := s.History(t.Context(), ledger.HistoryQuery{Workspace: workspace, Limit: 99})
	effort.ErrorIf(t, err != nil || len(list) < 11, "%d were taken, %v", len(list), err)
}

func readSingle(t *testing.T, s *sqlstore.Store, v ledger.Verification) *intake.File {
	t.Helper()
	bytes := effort.Must(s.OpenFile(t.Context(), v.ID))(t)
	defer func() { _ = bytes.Close() }()
	f, err := intake.Read(io.Reader(bytes), intake.Limits{RowsMax: 1})
	effort.OK(t, err, v.SingleEmail)
	return f
}

// spelled returns an address in the spelling of the file.
func spelled(f *intake.File, ordinal int) string {
	var b strings.Builder
	f.SpellTo(&b, ordinal)
	return b.String()
}
