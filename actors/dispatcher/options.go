package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/verification"
	"rollcall/ledger"
)

// Book is what the dispatcher needs of the ledger.
type Book interface {
	Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) ([]ledger.Verification, error)
	Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error)
	Release(ctx context.Context, l ledger.Lease) error
	Crashed(ctx context.Context, l ledger.Lease) (ledger.Verification, error)
	Sweep(ctx context.Context, r ledger.Retention) (int, error)
}

// Options is what a dispatcher needs to know. All fields are required.
type Options struct {
	Book      Book
	Node      uuid.UUID // of this node, the same after a restart
	Retention ledger.Retention
	Work      verification.Options
	// LeasesMax bounds the verifications this node has, and BytesMax the bytes of
	// the files that it has in memory; one file is always taken, however large. Workspaces
	// share both: see package ledger/quota.
	LeasesMax int
	BytesMax  int64
	// Weight is how many turns a workspace has for one of another, at least 1. It must not block.
	Weight func(workspace uuid.UUID) int
	// Ahead reports whether this node, which has leases with so many addresses, has clearly more in work than another
	// node that takes work: it then leaves new work to that node for a while. It must not block.
	Ahead   func(leases int, addresses int64) bool
	Log     *slog.Logger
	Metrics *Metrics
}

// Validate returns an error that names a missing option.
func (o Options) Validate() error {
	switch {
	case o.Book == nil || o.Log == nil || o.Ahead == nil || o.Weight == nil || o.Metrics == nil:
		return errors.New("dispatcher options: no book, logger, ahead, weight or metrics")
	case o.Node == uuid.Nil:
		return errors.New("dispatcher options: no node id")
	case o.LeasesMax < 1 || o.BytesMax < 1:
		return errors.New("dispatcher options: leases or bytes below 1")
	case o.Retention.Uploads <= 0 || o.Retention.Results <= 0 || o.Retention.Funding <= 0:
		return errors.New("dispatcher options: a retention is not positive")
	}
	return o.Work.Validate()
}

const (
	// leaseTTL is how long the work of a dead node waits. renewEvery leaves three tries to renew, and leaseMargin
	// before the end, by our own clock, we stop the work ourselves.
	leaseTTL    = 20 * time.Second
	renewEvery  = 5 * time.Second
	leaseMargin = 5 * time.Second

	// renewWithin bounds one renewal, so that after one without an answer there is time for another.
	renewWithin = (leaseTTL - leaseMargin) / 2

	// leaseAtOnce is how many verifications one question leases: one, since its size decides whether another node
	// should take the next.
	leaseAtOnce = 1

	// addressBytes is about the length of a row. A leased file may not be read yet, so its addresses are estimated from
	// its bytes.
	addressBytes = 25

	// leaveLooks is how many looks for work a node that is ahead skips; every node looks once a second.
	leaveLooks = 3

	lookEvery   = time.Second      // how often to look for work without a hint
	sweepEvery  = 10 * time.Second // how often to run the ledger's timed steps
	callWithin  = 15 * time.Second // one question to the ledger
	overtakeMax = time.Minute      // how long other large files may overtake one that waits for memory
)
