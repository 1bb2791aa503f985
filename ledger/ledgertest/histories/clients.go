package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const (
	// clientsMax is the number of clients that ask at once.
	clientsMax = 16
	// activeMax is the number of files that are worked on at once: few, so that
	// clients meet.
	activeMax = 8
	// batchSize is the number of addresses in a settlement. Settlement n is about
	// the n-th so many, so that no two ask for the same address.
	batchSize = 3
	// againMax bounds how often a call that told nothing is made again. With the
	// book's own attempts that is half a minute; nothing is away for so long.
	againMax = 20
)

// Options say how a history is made.
type Options struct {
	Seed       uint64 // of what the clients ask; what meets what is up to the machine
	Operations int    // of all clients together
	// Faults says that calls may fail in a way that tells nothing about the commit.
	// Without it such a failure ends the history.
	Faults bool
	// Unchanged says that a call that failed with err surely changed nothing, which
	// is then checked. Nil: no failure says so.
	Unchanged func(err error) bool
	// Repeats is the number of runs of a transaction of a client that may have been
	// committed without the book knowing, so far: the book has then run it again,
	// and each run may have had its effect before the answer. Nil: there are none.
	Repeats func(client int) int
	// Passing says that a lease may pass over files that another call is changing, as a server does
	// after it waited for one of them. Then any free files are a right answer, not only the oldest.
	Passing bool
}

// recorder is what the clients share.
type recorder struct {
	Options
	books  []ledger.Book
	spaces [workspaces]uuid.UUID
	nodes  [clientsMax + 1]uuid.UUID
	start  time.Time
	limits ledger.Limits

	mu         sync.Mutex
	random     *rand.Rand // for ids
	left       int
	identities [workspaces][]uuid.UUID
	grants     [workspaces][]uuid.UUID
	known      []*known
	done       []operation
	failed     error
}

// known is what the clients know of one file, which may be old.
type known struct {
	id        uuid.UUID
	workspace int
	v         ledger.Verification
	writer    int64
	durable   int64
	leases    []call // node and epoch of each that was handed out
	sent      []call // settlements that were tried
}

// operation is one call with its answer and its time.
type operation struct {
	client       int
	call         call
	answer       answer
	created      uuid.UUID // create: the verification of the answer
	lines        []listed  // what a list answered
	shown        []ledger.Verification
	repeats      int // runs besides the one that was answered, which may have been committed
	called, told time.Duration
}

// client is one of those who ask.
type client struct {
	*recorder
	ledger.Book
	number int // its node too; from 1
	random *rand.Rand
}

// run asks until the history is long enough.
func (c *client) run(ctx context.Context) {
	for {
		next, more := c.next()
		if !more {
			return
		}
		for try := 0; ; try++ {
			if a := c.record(ctx, next); !a.unknown || !c.Faults {
				break
			}
			if try == againMax {
				c.fail(fmt.Errorf("%s told nothing %d times", next.kind, try))
				return
			}
			next.again = true
			if next.kind == lease {
				// Asked again it would hand out others; this tells what it handed out.
				next = call{kind: renew, node: c.number}
			}
		}
	}
}

// fail ends the history.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, err)
	c.left = 0
}

// record makes a call and writes down what came of it.
func (c *client) record(ctx context.Context, asked call) answer {
	op := operation{client: c.number, call: asked, called: time.Since(c.start)}
	before := c.repeated()
	err := c.ask(ctx, &op)
	op.told, op.repeats = time.Since(c.start), c.repeated()-before
	refusal, tells := refusalOf(err)
	op.answer.refusal = refusal
	switch {
	case tells:
	case c.Unchanged != nil && c.Unchanged(err):
		op.answer, op.repeats = answer{unchanged: true}, 0
	default:
		op.answer = answer{unknown: true}
		if !c.Faults || errors.Is(err, errWrong) || strings.Contains(err.Error(), "constraint") {
			c.fail(fmt.Errorf("%s: %w", asked.kind, err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.learn(&op)
	}
	op.shown = nil
	c.done = append(c.done, op)
	return op.answer
}

// repeated is the number of runs so far that may have been committed.
func (c *client) repeated() int {
	if c.Repeats == nil {
		return 0
	}
	return c.Repeats(c.number)
}

// learn keeps what later calls may build on.
func (c *client) learn(op *operation) {
	for _, v := range op.shown {
		k := c.about(v.ID)
		if k == nil {
			k = &known{id: v.ID, workspace: slices.Index(c.spaces[:], v.Workspace)}
			c.known = append(c.known, k)
		}
		if v.Epoch >= k.v.Epoch && v.Settlements >= k.v.Settlements {
			k.v, k.durable = v, max(k.durable, v.Durable)
		}
	}
	if op.call.kind == lease || op.call.kind == renew {
		for _, l := range op.lines {
			if k := c.about(l.file); k != nil {
				k.leases = append(k.leases, call{node: op.call.node, epoch: l.epoch})
			}
		}
	}
	if k := c.about(op.call.file); k != nil && op.call.kind.uploads() {
		k.writer, k.durable = max(k.writer, op.answer.writer), max(k.durable, op.answer.durable)
		if k.v.Status == ledger.Uploading {
			k.v.Status = op.answer.file.status
		}
	}
}

// about returns what is known of a file; nil: nothing.
func (c *client) about(id uuid.UUID) *known {
	for _, k := range c.known {
		if k.id == id {
			return k
		}
	}
	return nil
}
