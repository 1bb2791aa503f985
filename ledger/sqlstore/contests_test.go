package sqlstore_test

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
)

var (
	createKeys   = flag.Int("createkeys", 60, "how many idempotency keys 32 clients race for")
	creditRounds = flag.Int("creditrounds", 8, "how often 64 files race for half the credits they need")
	cancelledN   = flag.Int("cancels", 160, "how many files are cancelled while they are worked on")
)

// contests are the races that are run many times over; each books' worth is run
// on a fresh ledger, which is audited after it.
var contests = []struct {
	name string
	n    *int
	book int // how many fit one ledger, so that it stays in the caches
	race func(c *ledgertest.Contest, ctx context.Context, n int)
}{
	{"32 creates of one key", createKeys, 500, (*ledgertest.Contest).Creates},
	{"64 files race for half the credits", creditRounds, 100, (*ledgertest.Contest).Credits},
	{"cancels at random instants", cancelledN, 2000, (*ledgertest.Contest).Cancels},
}

func TestContests(t *testing.T) {
	effort.NotShort(t, "races take seconds")
	for _, c := range contests {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			var rounds, calls atomic.Int64
			work := make(chan int)
			var workers sync.WaitGroup
			for range 2 { // two ledgers at once, for two processors
				workers.Go(func() {
					for first := range work {
						s, drop := openScratch(t)
						contest := ledgertest.NewContest(s, uint64(first))
						c.race(contest, t.Context(), min(c.book, *c.n-first))
						settled(t, contest, s)
						drop()
						rounds.Add(contest.Rounds())
						calls.Add(contest.Calls())
					}
				})
			}
			for first := 0; first < *c.n && !t.Failed(); first += c.book {
				work <- first
			}
			close(work)
			workers.Wait()
			t.Logf("%d rounds, %d calls in %.1f s", rounds.Load(), calls.Load(), time.Since(begin).Seconds())
		})
	}
}

// TestContestsOnAServer runs a twentieth of them on PostgreSQL.
func TestContestsOnAServer(t *testing.T) {
	t.Parallel()
	for _, c := range contests {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			s := openAt(t, sqlstore.NewLedger(t))
			contest := ledgertest.NewContest(s, 1)
			c.race(contest, t.Context(), (*c.n+19)/20)
			settled(t, contest, s)
			t.Logf("%d rounds, %d calls in %.1f s", contest.Rounds(), contest.Calls(), time.Since(begin).Seconds())
		})
	}
}

// TestContestsFindMistakes shows that they are not blind.
func TestContestsFindMistakes(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	for _, c := range []struct {
		mistake string
		race    func(c *ledgertest.Contest, ctx context.Context, n int)
		n       int
	}{
		{doubleCreate, (*ledgertest.Contest).Creates, 1},
		{doubleGrant, (*ledgertest.Contest).Credits, 3},
		{lostSettle, (*ledgertest.Contest).Credits, 1},
		{doubleGrant, (*ledgertest.Contest).Cancels, 48},
		{lostCancel, (*ledgertest.Contest).Cancels, 32},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			// Whether a mistake shows depends on who comes first, so there are more rounds.
			for seed := range uint64(20) {
				s, drop := openScratch(t)
				contest := ledgertest.NewContest(newBroken(s, c.mistake), seed+1)
				c.race(contest, t.Context(), c.n)
				drop()
				if len(contest.Wrong()) > 0 {
					return
				}
			}
			t.Error("not found")
		})
	}
}

// settled fails the test for all that a contest found wrong, and for what an
// audit finds after it.
func settled(t *testing.T, c *ledgertest.Contest, book ledger.Book) {
	t.Helper()
	for _, wrong := range c.Wrong() {
		t.Error(wrong)
	}
	report, err := book.Audit(t.Context())
	if err != nil || len(report.Violations) > 0 {
		t.Errorf("audit: %+v, %v", report.Violations, err)
	}
}
