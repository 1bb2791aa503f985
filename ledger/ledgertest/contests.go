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
