package http

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
)

// TestRetryAfter has every boundary of what a client is told to wait.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	const unknown = -1 << 62
	for _, c := range []struct {
		name             string
		status           ledger.Status
		age, finish, try time.Duration // from now; unknown: zero
		issue            *ledger.Issue
		want             int
	}{
		{"uploading", ledger.Uploading, 0, unknown, unknown, nil, 1},
		{"preparing", ledger.Preparing, 19 * time.Second, unknown, unknown, nil, 1},
		{"preparing for long", ledger.Preparing, time.Hour, unknown, unknown, nil, 2},
		{"cancelling", ledger.Cancelling, time.Hour, time.Hour, unknown, nil, 2},
		{"just begun, nothing known", ledger.Verifying, 0, unknown, unknown, nil, 1},
		{"the clock was set back", ledger.Verifying, -time.Hour, unknown, unknown, nil, 1},
		{"19.9 s", ledger.Verifying, 19900 * time.Millisecond, unknown, unknown, nil, 1},
		{"20 s", ledger.Verifying, 20 * time.Second, unknown, unknown, nil, 2},
		{"five minutes", ledger.Verifying, 5 * time.Minute, unknown, unknown, nil, 30},
		{"a day", ledger.Verifying, 24 * time.Hour, unknown, unknown, nil, 30},
		{"done in four seconds, just begun", ledger.Verifying, time.Second, 4 * time.Second, unknown, nil, 1},
		{"done in four seconds", ledger.Verifying, time.Hour, 4 * time.Second, unknown, nil, 4},
		{"done in a bit less", ledger.Verifying, time.Hour, 3900 * time.Millisecond, unknown, nil, 4},
		{"done now", ledger.Verifying, time.Hour, 0, unknown, nil, 1},
		{"done in an hour, an old one", ledger.Verifying, time.Hour, time.Hour, unknown, nil, 30},
		{"overdue for a moment", ledger.Verifying, time.Hour, -time.Second, unknown, nil, 1},
		{"overdue for ten seconds", ledger.Verifying, time.Hour, -10 * time.Second, unknown, nil, 10},
		{"overdue for an hour", ledger.Verifying, time.Hour, -time.Hour, unknown, nil, 30},
		{"credits", ledger.Waiting, 0, unknown, unknown, &ledger.Issue{Code: string(api.CreditsRequired)}, 1},
		{"credits for long", ledger.Waiting, time.Hour, unknown, unknown, &ledger.Issue{Code: string(api.CreditsRequired)}, 60},
		{"a receiver in an hour", ledger.Waiting, 0, unknown, time.Hour, nil, 60},
		{"in sixteen seconds", ledger.Waiting, 0, unknown, 16 * time.Second, nil, 16},
		{"in a bit more", ledger.Waiting, 0, unknown, 16*time.Second + 1, nil, 17},
		{"in a second, an old one", ledger.Waiting, 5 * time.Minute, unknown, time.Second, nil, 30},
		{"was to be asked long ago", ledger.Waiting, 0, unknown, -time.Hour, nil, 1},
		{"in a minute, and done then", ledger.Waiting, 0, time.Minute, time.Minute, nil, 60},
		{"done sooner than was said", ledger.Waiting, 0, 5 * time.Second, time.Hour, nil, 5},
		{"done long ago, as was said", ledger.Waiting, 0, -time.Minute, time.Hour, nil, 60},
		{"completed", ledger.Completed, 0, unknown, unknown, nil, 0},
		{"failed", ledger.Failed, 0, unknown, unknown, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := ledger.Verification{Status: c.status, Created: now.Add(-c.age), Issue: c.issue}
			if c.finish != unknown {
				v.Expected = now.Add(c.finish)
			}
			if c.try != unknown {
				v.NextTry = now.Add(c.try)
			}
			effort.Is(t, RetryAfter(v, now), c.want, "Retry-After")
		})
	}
}

// TestTheEndIsSeenInTime has clients that look as they are told at files that take any time, wait now and then, and are
// expected to end at any time: each sees the end within a tenth of the time that the file took, or a second.
func TestTheEndIsSeenInTime(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		created := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
		took := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "took")) * 100 * time.Millisecond
		end := created.Add(took)
		within := rapid.Int64Range(0, int64(took))
		at, looks := created, 0
		for ; at.Before(end); looks++ {
			v := ledger.Verification{Created: created, Status: rapid.SampledFrom([]ledger.Status{ledger.Uploading, ledger.Preparing,
				ledger.Verifying, ledger.Waiting, ledger.Cancelling}).Draw(t, "status")}
			if rapid.Bool().Draw(t, "expected") {
				v.Expected = created.Add(2 * time.Duration(within.Draw(t, "finish")))
			}
			if v.Status == ledger.Waiting {
				v.NextTry = created.Add(time.Duration(within.Draw(t, "try"))) // nothing ends before
			}
			wait := RetryAfter(v, at)
			effort.FatalIf(t, wait < 1 || wait > againMost,
				"%s after %v: Retry-After %d", v.Status, at.Sub(created), wait)
			at = at.Add(time.Duration(wait) * time.Second)
		}
		if late := at.Sub(end); late > max(took/10, time.Second) {
			t.Errorf("the end after %v is seen %v later, by look %d", took, late, looks)
		}
	})
}

// TestWhoWaitsAsToldMeetsNoLimit has clients of one key that look at many files as they are told, over a slow line,
// while somebody looks at one of them all the time: nobody is refused, and with few files nobody waits longer than
// wanted.
func TestWhoWaitsAsToldMeetsNoLimit(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		start := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
		now, nodes := start, rapid.IntRange(1, 3).Draw(t, "nodes")
		most := rapid.IntRange(1, 15).Draw(t, "most") // of one node
		reads := Rate{PerSecond: float64(2 * nodes * most), Burst: 2*nodes*most + rapid.IntRange(0, 20).Draw(t, "burst")}
		bounds, plans := make([]*rateLimiter, nodes), make([]*polls, nodes)
		for i := range plans {
			count := func() int { return nodes }
			bounds[i] = newRateLimiter(reads, count, func() time.Time { return now })
			plans[i] = newPolls(reads, count)
		}
		next, longest := make([]time.Time, rapid.IntRange(1, most*againMost/2).Draw(t, "files")), rapid.IntRange(1, againAsking).Draw(t, "longest")
		for i := range next { // the first looks take a third of the limit
			next[i] = start.Add(time.Duration(i) * 3 * time.Second / time.Duration(reads.PerSecond))
		}
		for range 20 * len(next) {
			i := 0
			for j := range next {
				if next[j].Before(next[i]) {
					i = j
				}
			}
			now = next[i]
			if wait := bounds[i%nodes].takeToken("key"); wait > 0 {
				t.Fatalf("a look at file %d of %d after %v is refused", i, len(next), now.Sub(start))
			}
			wanted := rapid.IntRange(1, longest).Draw(t, "wanted")
			wait := plans[i%nodes].plan(poll{"key", uuid.UUID{byte(i), byte(i >> 8)}}, now, wanted)
			effort.FatalIf(t, wait < wanted || wait > againMost || len(next) <= most && wait > wanted,
				"%d files, %d a second: wait %d, wanted %d", len(next), most, wait, wanted)
			plans[0].plan(poll{"key", uuid.UUID{}}, now, 1) // at the first file
			next[i] = now.Add(time.Duration(wait)*time.Second + time.Duration(rapid.IntRange(0, 100).Draw(t, "line"))*time.Millisecond)
		}
	})
}

// panickyBook panics on the first question about a balance and waits in the second.
type panickyBook struct {
	ledger.Book
	asked   atomic.Int64
	entered chan struct{}
	open    chan struct{}
}

func (b *panickyBook) Balance(context.Context, uuid.UUID) (ledger.Balance, error) {
	n := b.asked.Add(1)
	b.entered <- struct{}{}
	<-b.open
	if n == 2 {
		panic("in a goroutine of its own")
	}
	return ledger.Balance{Available: ledger.Credits(n)}, nil
}

// TestQuestionsAreShared lets ten requests arrive while a question runs: they share one question that begins after
// them, and its panic reaches them as an error. The next one is asked anew.
func TestQuestionsAreShared(t *testing.T) {
	book := &panickyBook{entered: make(chan struct{}, 20), open: make(chan struct{})}
	var panics atomic.Int64
	b := newReads(book.Balance, nil, func() { panics.Add(1) })
	workspace := uuid.New()
	first := make(chan error, 1)
	go func() {
		balance, err := b.read(t.Context(), workspace)
		if balance.Available != 1 {
			err = fmt.Errorf("balance %+v, %w", balance, err)
		}
		first <- err
	}()
	<-book.entered
	late := make(chan error, 10)
	for range 10 {
		go func() {
			_, err := b.read(t.Context(), workspace)
			late <- err
		}()
	}
	for waiting := false; !waiting; { // until at least one waits for the next question
		b.mu.Lock()
		waiting = b.running[workspace].next != nil
		b.mu.Unlock()
		runtime.Gosched()
	}
	close(book.open)
	effort.ErrIs(t, <-first, nil, "first")
	failed := 0
	for range 10 {
		if err := <-late; errors.Is(err, errNoAnswer) {
			failed++
		}
	}
	effort.ErrorIf(t, failed == 0 || panics.Load() != 1 || book.asked.Load() > 11,
		"%d failed, %d panics, %d questions", failed, panics.Load(), book.asked.Load())
	balance, err := b.read(t.Context(), workspace)
	effort.ErrorIf(t, err != nil || balance.Available < 3, "afterwards: %+v %v", balance, err)
}

// TestAnswersAreKeptWhileNothingIsWritten reads one answer again and again, while things are written between.
func TestAnswersAreKeptWhileNothingIsWritten(t *testing.T) {
	var asked, count uint64
	var fails, writing, begins bool
	r := newReads(func(context.Context, int) (uint64, error) {
		asked++
		if begins {
			count++
		}
		if fails {
			return 0, errNoAnswer
		}
		return asked, nil
	}, func() (uint64, bool) { return count, !writing }, func() {})
	for _, c := range []struct {
		name  string
		then  func()
		asked uint64
	}{
		{"first", func() {}, 1},
		{"nothing was written", func() {}, 1},
		{"something was written", func() { count += 2 }, 2},
		{"nothing since", func() {}, 2},
		{"something is being written", func() { count++; writing = true }, 3},
		{"and still is", func() {}, 4},
		{"it is written", func() { count++; writing = false }, 5},
		{"the ledger fails", func() { count += 2; fails = true }, 6},
		{"and again", func() {}, 7},
		{"something is written while it is asked", func() { fails, begins = false, true }, 8},
		{"which may be in it or not", func() { begins = false; count++ }, 9},
		{"nothing since that", func() {}, 9},
	} {
		c.then()
		answer, err := r.read(t.Context(), 1)
		effort.ErrorIf(t, asked != c.asked || (err != nil) != fails || err == nil && answer != c.asked,
			"%s: answer %d of question %d, want question %d; %v", c.name, answer, asked, c.asked, err)
	}
	for of := range 2 * keptMax {
		if _, err := r.read(t.Context(), of); err != nil || len(r.kept) > keptMax {
			t.Fatalf("%d answers are kept, %v; want %d at most", len(r.kept), err, keptMax)
		}
	}
}
