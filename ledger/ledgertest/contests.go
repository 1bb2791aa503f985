package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// Contest is a race run many times over, on a book that nobody else uses.
type Contest struct {
	book   ledger.Book
	random *rand.Rand // of the one who prepares a round, not of the racers
	rounds int64
	calls  atomic.Int64

	mu    sync.Mutex
	wrong []string
}

// wrongMax bounds what a contest tells; the first findings matter.
const wrongMax = 20

// NewContest makes a contest on book; seed decides what is asked.
func NewContest(book ledger.Book, seed uint64) *Contest {
	return &Contest{book: book, random: rand.New(rand.NewPCG(seed, 0))}
}

// Rounds is how often the race was run, Calls how often the ledger was called.
func (c *Contest) Rounds() int64 { return c.rounds }

// Calls is the number of calls to the ledger, with those that looked afterwards.
func (c *Contest) Calls() int64 { return c.calls.Load() }

// Wrong is what went wrong, at most twenty findings.
func (c *Contest) Wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

// check notes a finding unless holds.
func (c *Contest) check(holds bool, format string, args ...any) {
	if holds {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) < wrongMax {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// ok counts a call and notes its error. A broken constraint of the database is
// one: the rules refuse before the tables do.
func (c *Contest) ok(what string, err error) bool {
	c.calls.Add(1)
	c.check(err == nil, "%s: %v", what, err)
	return err == nil
}

// workspace makes one with credits.
func (c *Contest) workspace(ctx context.Context, credits ledger.Credits) uuid.UUID {
	id := uuid.New()
	_, err := c.book.CreateWorkspace(ctx, id, "contest")
	c.ok("create workspace", err)
	if credits > 0 {
		_, err = c.book.Grant(ctx, uuid.New(), id, credits, "contest")
		c.ok("grant", err)
	}
	return id
}

// uploaded makes a verification whose bytes are all there.
func (c *Contest) uploaded(ctx context.Context, workspace uuid.UUID) uuid.UUID {
	v, _, err := c.book.Create(ctx, asks(workspace, uuid.New(), 7))
	if c.ok("create", err) {
		// Nobody has opened the upload: the writer is still the first.
		_, err = c.book.AppendChunk(ctx, v.ID, 0, 0, []byte("a@b.tst"))
		c.ok("append", err)
	}
	return v.ID
}

// asks is a create that is allowed.
func asks(workspace, identity uuid.UUID, bytes int64) ledger.NewVerification {
	return ledger.NewVerification{ID: uuid.New(), Workspace: workspace, Identity: identity, Bytes: bytes,
		BytesMax: 1 << 20, Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, UploadExpiry: Hour}
}

// creators ask for one verification at the same time.
const creators = 32

// Creates has 32 ask for a verification with one idempotency key at once, each
// eighth with another length, for each of so many keys. All who asked with the
// length that won are told the same one, exactly one of them that it is new, and
// the others are refused.
func (c *Contest) Creates(ctx context.Context, keys int) {
	const keysOfWorkspace = 50 // so that counting what is open stays cheap
	var workspace uuid.UUID
	for key := range keys {
		if key%keysOfWorkspace == 0 {
			workspace = c.workspace(ctx, 0)
		}
		c.rounds++
		c.createOne(ctx, workspace, uuid.New())
	}
}

func (c *Contest) createOne(ctx context.Context, workspace, identity uuid.UUID) {
	type told struct {
		v       ledger.Verification
		asked   int64
		created bool
		err     error
	}
	answers := make([]told, creators)
	racing(creators, func(i int) {
		a := &answers[i]
		if a.asked = 7; i%8 == 7 {
			a.asked = 8
		}
		a.v, a.created, a.err = c.book.Create(ctx, asks(workspace, identity, a.asked))
		c.calls.Add(1)
	})
	var winner *ledger.Verification
	for i := range answers {
		if answers[i].created {
			c.check(winner == nil, "key %s: two were told that it is new", identity)
			winner = &answers[i].v
		}
	}
	if winner == nil {
		c.check(false, "key %s: nobody was told that it is new", identity)
		return
	}
	for _, a := range answers {
		if a.asked == winner.Bytes {
			c.check(a.err == nil && a.v.ID == winner.ID, "key %s: got %s, %v, not %s",
				identity, a.v.ID, a.err, winner.ID)
			continue
		}
		c.check(errors.Is(a.err, ledger.ErrIdentityReused), "key %s with another length: %v", identity, a.err)
	}
	list, err := c.book.History(ctx, ledger.HistoryQuery{Workspace: workspace, Limit: 2})
	c.ok("history", err)
	same := 0
	for _, v := range list {
		if v.Identity == identity {
			same++
		}
	}
	c.check(same == 1, "key %s: %d verifications", identity, same)
}

// lease takes all that can be worked on.
func (c *Contest) lease(ctx context.Context, node uuid.UUID) []ledger.Lease {
	list, err := c.book.Lease(ctx, node, 1000, Hour)
	c.ok("lease", err)
	leases := make([]ledger.Lease, len(list))
	for i, v := range list {
		leases[i] = ledger.Lease{Verification: v.ID, Node: node, Epoch: v.Epoch}
	}
	return leases
}

// all reads the files of a workspace.
func (c *Contest) all(ctx context.Context, workspace uuid.UUID) []ledger.Verification {
	list, err := c.book.History(ctx, ledger.HistoryQuery{Workspace: workspace, Limit: 1000})
	c.ok("history", err)
	return list
}

// balance reads an account, which must be sound at any moment.
func (c *Contest) balance(ctx context.Context, workspace uuid.UUID, granted ledger.Credits) ledger.Balance {
	b, err := c.book.Balance(ctx, workspace)
	if c.ok("balance", err) {
		c.check(b.Granted == granted && granted == b.Available+b.Held+b.Spent &&
			min(b.Available, b.Held, b.Spent) >= 0, "workspace %s: %+v of %d granted", workspace, b, granted)
	}
	return b
}

// racingFiles race for the same credits.
const racingFiles = 64

// Credits has 64 files of one to three addresses race for half the credits that
// they need, so many times. What fits is held and verifying, what waits does not
// fit, and no amount that anybody reads meanwhile is negative. Then all that are verifying
// release their credits at once, which lets others in, until all are done.
func (c *Contest) Credits(ctx context.Context, rounds int) {
	for range rounds {
		c.rounds++
		c.creditsOnce(ctx)
	}
}

func (c *Contest) creditsOnce(ctx context.Context) {
	totals, need := make([]int64, racingFiles), int64(0)
	for i := range totals {
		totals[i] = 1 + c.random.Int64N(3)
		need += totals[i]
	}
	credits := ledger.Credits(need / 2)
	workspace, node := c.workspace(ctx, credits), uuid.New()
	for range totals {
		c.uploaded(ctx, workspace)
	}
	leases := c.lease(ctx, node)
	if len(leases) != racingFiles {
		c.check(false, "%d of %d files were leased", len(leases), racingFiles)
		return
	}
	racing(racingFiles, func(i int) {
		_, err := c.book.Prepare(ctx, leases[i], totals[i], 0, totals[i])
		c.ok("prepare", err)
		c.balance(ctx, workspace, credits)
	})
	// Each time, half of the credits or so come back, and nobody is left at last.
	for range racingFiles {
		funded := c.fits(ctx, workspace, credits)
		if len(funded) == 0 {
			break
		}
		c.lease(ctx, node) // those that had to wait were given back
		racing(len(funded), func(i int) {
			c.freed(ctx, workspace, node, funded[i].ID)
			c.balance(ctx, workspace, credits)
		})
	}
	b := c.balance(ctx, workspace, credits)
	c.check(b.Available == credits, "workspace %s: %+v after all was released", workspace, b)
	for _, v := range c.all(ctx, workspace) {
		c.check(v.Status == ledger.Completed, "verification %s ends as %s", v.ID, v.Status)
	}
}

// fits checks that exactly those hold credits that may, and gives them.
func (c *Contest) fits(ctx context.Context, workspace uuid.UUID, granted ledger.Credits) (
	funded []ledger.Verification) {
	b := c.balance(ctx, workspace, granted)
	var held ledger.Credits
	for _, v := range c.all(ctx, workspace) {
		switch {
		case v.Status == ledger.Verifying:
			c.check(int64(v.Held) == v.Total, "verification %s holds %d of %d", v.ID, v.Held, v.Total)
			held += v.Held
			funded = append(funded, v)
		case v.State() == ledger.WaitingCredits:
			c.check(v.Held == 0 && v.Total > int64(b.Available), "verification %s waits for %d of %d",
				v.ID, v.Total, b.Available)
		default:
			c.check(v.Status.Final() && v.Held == 0, "verification %s is %s and holds %d", v.ID, v.Status, v.Held)
		}
	}
	c.check(b.Held == held, "workspace %s holds %d, its files %d", workspace, b.Held, held)
	return funded
}

// freed settles a whole file as unknown, which costs nothing.
func (c *Contest) freed(ctx context.Context, workspace, node, id uuid.UUID) {
	v, err := c.book.Verification(ctx, workspace, id) // for its epoch
	if !c.ok("read", err) {
		return
	}
	l := ledger.Lease{Verification: id, Node: node, Epoch: v.Epoch}
	v, err = c.book.Settle(ctx, Batch(l, 1, 0, v.Total-1, smtp.Unknown))
	if c.ok("settle", err) {
		c.check(v.Status == ledger.Completed, "verification %s is %s after its last outcome", id, v.Status)
	}
}

const (
	// cancelledAtOnce files of one workspace are cancelled at the same time, each of
	// cancelBatches settlements of two addresses.
	cancelledAtOnce = 16
	cancelBatches   = 3
)

// Cancels cancels so many files at random instants, each by two at once, while
// their settlements and the repeats of them are in flight.
// Afterwards nothing is held, and what was not charged is available again.
func (c *Contest) Cancels(ctx context.Context, files int) {
	for done := 0; done < files; done += cancelledAtOnce {
		c.rounds++
		c.cancelsOnce(ctx)
	}
}

func (c *Contest) cancelsOnce(ctx context.Context) {
	const total = 2 * cancelBatches
	// Not enough for all: some wait for credits, and are let in by those cancelled.
	const credits = total * cancelledAtOnce * 3 / 4
	workspace, node := c.workspace(ctx, credits), uuid.New()
	for range cancelledAtOnce {
		c.uploaded(ctx, workspace)
	}
	leases, seeds := c.lease(ctx, node), make([]uint64, cancelledAtOnce)
	if len(leases) != cancelledAtOnce {
		c.check(false, "%d of %d files were leased", len(leases), cancelledAtOnce)
		return
	}
	for i := range seeds {
		seeds[i] = c.random.Uint64()
	}
	racing(cancelledAtOnce, func(i int) {
		r := race{Contest: c, workspace: workspace, lease: leases[i], random: rand.New(rand.NewPCG(seeds[i], 0))}
		r.run(ctx)
		c.balance(ctx, workspace, credits)
	})
	var charged ledger.Credits
	for _, v := range c.all(ctx, workspace) {
		charged += ledger.Credits(v.Counts.Charged())
		c.check(v.Status.Final() && v.Held == 0, "verification %s is %s and holds %d", v.ID, v.Status, v.Held)
		c.check(v.Total < 0 || v.Counts.Sum() == total, "verification %s ends with %+v", v.ID, v.Counts)
	}
	b := c.balance(ctx, workspace, credits)
	c.check(b.Held == 0 && b.Spent == charged, "workspace %s: %+v with %d charged", workspace, b, charged)
}

// race is one file that is cancelled while it is worked on.
type race struct {
	*Contest
	workspace uuid.UUID
	lease     ledger.Lease
	random    *rand.Rand // of the settler
	sent      []ledger.Settlement
}

func (r *race) run(ctx context.Context) {
	id := r.lease.Verification
	// The instant of each cancel is a step of the work, which goes on meanwhile.
	steps := make([]chan struct{}, 2+cancelBatches)
	for i := range steps {
		steps[i] = make(chan struct{})
	}
	var all sync.WaitGroup
	var told [2]ledger.Verification
	for i := range told {
		at := steps[r.random.IntN(len(steps))]
		all.Go(func() {
			var err error
			<-at
			told[i], err = r.book.Cancel(ctx, r.workspace, id)
			r.ok("cancel", err)
		})
	}
	r.work(ctx, steps)
	all.Wait()
	v, err := r.book.Verification(ctx, r.workspace, id)
	r.ok("read", err)
	if v.Status == ledger.Cancelling {
		v, err = r.book.FinishCancel(ctx, r.lease)
		r.ok("finish cancel", err)
	}
	for _, t := range told {
		r.check(t.Status == v.Status || t.Status == ledger.Cancelling && v.Status == ledger.Cancelled,
			"verification %s was told to be %s and ends as %s", id, t.Status, v.Status)
	}
	// What comes late changes nothing.
	for _, s := range r.sent {
		_, err := r.book.Settle(ctx, s)
		r.tolerates("late settlement", err)
	}
	again, err := r.book.Cancel(ctx, r.workspace, id)
	r.ok("cancel what is final", err)
	r.check(again.Status == v.Status && again.Counts == v.Counts && again.Held == 0,
		"verification %s was %s %+v and is %s %+v", id, v.Status, v.Counts, again.Status, again.Counts)
}

// work prepares and settles until the cancel comes between, and tells its steps.
func (r *race) work(ctx context.Context, steps []chan struct{}) {
	const total = 2 * cancelBatches
	close(steps[0])
	_, err := r.book.Prepare(ctx, r.lease, total, 0, total)
	r.tolerates("prepare", err)
	for n := range int64(cancelBatches) {
		close(steps[n+1])
		s := Batch(r.lease, n+1, 2*n, 2*n+1, smtp.Outcomes[r.random.IntN(len(smtp.Outcomes))])
		r.sent = append(r.sent, s)
		for range 1 + r.random.IntN(2) {
			_, err := r.book.Settle(ctx, s)
			r.tolerates("settle", err)
		}
	}
	close(steps[1+cancelBatches])
	_, err = r.book.FinishCancel(ctx, r.lease)
	r.tolerates("finish cancel", err)
}

// tolerates allows the refusals of whom the cancel overtook.
func (r *race) tolerates(what string, err error) {
	if errors.Is(err, ledger.ErrStaleEpoch) || errors.Is(err, ledger.ErrIllegal) {
		err = nil
	}
	r.ok(what, err)
}
