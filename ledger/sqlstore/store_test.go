package sqlstore_test

import (
	"context"
	"flag"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/histories"
	"rollcall/ledger/sqlstore"
)

// openStore opens a new embedded ledger that the test owns.
func openStore(t testing.TB) *sqlstore.Store {
	t.Helper()
	return openAt(t, sqlstore.NewFile(t))
}

// openAt opens a ledger for a test.
func openAt(t testing.TB, url string) *sqlstore.Store {
	t.Helper()
	return openWith(t, url, sqlstore.Options{})
}

// openWith opens a ledger for a test as options say.
func openWith(t testing.TB, url string, o sqlstore.Options) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), url, o)
	if err != nil {
		t.Fatalf("open ledger: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	return s
}

// borrowed is a ledger that stays open for the next test.
type borrowed struct{ *sqlstore.Store }

func (borrowed) Close() error { return nil }

// empties empties a ledger in one transaction.
var empties = `DELETE FROM ` + strings.Join([]string{"workspace_log", "credit_days", "sign_in_attempts", "links",
	"user_sessions", "memberships", "users", "operator_log", "secrets", "entries", "evidence", "parked_work",
	"settlements", "upload_chunks", "verifications", "api_keys", "workspace_weights", "workspace_limits",
	"throttle_overrides", "workspaces", "nodes", "receiver_facts"},
	`; DELETE FROM `) + `; UPDATE cluster_turn SET turn = 0`

// shelf gives the same ledger of a server again and again, emptied by its owner.
func shelf(t *testing.T, owner, user string) func(t *testing.T) ledger.Book {
	t.Helper()
	store := openAt(t, user)
	conn, err := pgx.Connect(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return func(t *testing.T) ledger.Book {
		t.Helper()
		if _, err := conn.Exec(t.Context(), empties); err != nil {
			t.Fatalf("empty the ledger: %v", err)
		}
		return borrowed{store}
	}
}

// conforms runs the suite, and so many random walks beside the model.
func conforms(t *testing.T, walks int, open func(t *testing.T) ledger.Book) {
	ledgertest.Exercise(t, open)
	t.Run("random operations against the model", func(t *testing.T) { histories.Walk(t, walks, open) })
}

func TestConformance(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		conforms(t, 30, func(t *testing.T) ledger.Book { return openStore(t) })
	})
	t.Run("postgresql", func(t *testing.T) {
		owner := rightful(t) // with the rights of a node and no more
		conforms(t, 5, shelf(t, owner, as(t, owner, nodeUser)))
	})
}

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
