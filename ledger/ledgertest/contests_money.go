package ledgertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

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
