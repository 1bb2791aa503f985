package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

const (
	// clientsMax is the number of clients that ask at once.
	clientsMax = 16
	// activeMax is the number of files that are worked on at once: few, so that clients meet.
	activeMax = 8
	// batchSize is the number of addresses in a settlement. Settlement n has the n-th group of addresses, so that no two
	// share one.
	batchSize = 3
	// againMax bounds how often a call without an answer is repeated. With the ledger's own attempts that is half a
	// minute, longer than any fault lasts.
	againMax = 20
)

// HistoryOptions say how a history is made.
type HistoryOptions struct {
	Seed       uint64 // of the clients' calls; the machine decides which calls overlap
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
	// Passing allows a lease to skip files that another call is changing, as a server does after it waited for one
	// of them. Then any free files are a correct answer, not only the oldest.
	Passing bool
}

// recorder is shared by the clients.
type recorder struct {
	HistoryOptions
	books  []ledger.Book
	spaces [workspaces]uuid.UUID
	nodes  [clientsMax + 1]uuid.UUID
	start  time.Time

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
	client           int
	call             call
	answer           answer
	created          uuid.UUID // create: the verification of the answer
	lines            []listed  // what a list answered
	shown            []ledger.Verification
	repeats          int // runs besides the one that was answered, which may have been committed
	called, returned time.Duration
}

// client makes calls, one at a time.
type client struct {
	*recorder
	ledger.Book
	number int // its node too; from 1
	random *rand.Rand
}

// run makes calls until the history is long enough.
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

// record makes a call and records its answer.
func (c *client) record(ctx context.Context, asked call) answer {
	op := operation{client: c.number, call: asked, called: time.Since(c.start)}
	before := c.repeated()
	err := c.ask(ctx, &op)
	op.returned, op.repeats = time.Since(c.start), c.repeated()-before
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

// kind is what a client calls.
type kind string

const (
	create       kind = "create"
	openUpload   kind = "open upload"
	appendChunk  kind = "append"
	uploadState  kind = "upload state"
	lease        kind = "lease"
	renew        kind = "renew"
	release      kind = "release"
	refuse       kind = "refuse"
	prepare      kind = "prepare"
	settle       kind = "settle"
	wait         kind = "wait"
	cancel       kind = "cancel"
	finishCancel kind = "finish cancel"
	grant        kind = "grant"
	balance      kind = "balance"
	verification kind = "verification"
	results      kind = "results"
	readHistory  kind = "history"
)

// uploads reports whether the call is about the bytes of a file.
func (k kind) uploads() bool { return k == openUpload || k == appendChunk || k == uploadState }

// call is one call of a client. Only the fields of its kind are set.
type call struct {
	kind      kind
	workspace int
	file      uuid.UUID // for create: the id if it becomes a new one
	identity  uuid.UUID // create: the idempotency key
	again     bool      // create: the same call was asked before, and told nothing
	bytes     int64     // create: declared length; append: length of the chunk
	writer    int64     // append
	offset    int64     // append
	node      int       // whose lease; 0: nobody's
	epoch     int64     // of the lease
	limit     int       // lease, history
	expired   bool      // lease: for a time that is over already
	total     int64     // prepare
	settled   settlementCall
	next      time.Time // wait: zero: it does not wait
	grant     int       // index of the grant id
	grantID   uuid.UUID
	credits   int64 // grant

	lease leaseCheck
	rank  int // place of file in the order in which the book serves; -1: not in the book. Set at the end.
}

// settlementCall is a client's settlement.
type settlementCall struct {
	number   int64
	first    int64  // the ordinal of the first outcome
	outcomes string // a letter for each of the ordinals from first on
}

// leaseCheck is what a lease must have done, for the checker.
type leaseCheck struct {
	all bool // it must leave nothing; see History.part
	// took, of a lease that may pass over files, are those that it took or, when it told nothing, may have
	// taken, by rank; nil: a lease takes the oldest.
	took map[int]bool
	anew bool // a run before the one that was answered may have taken what was answered
}

// answer is what the book said. Two answers are the same when they are equal.
type answer struct {
	unknown   bool   // the call failed in a way that says nothing about the commit
	unchanged bool   // the call failed and said that it changed nothing
	refusal   string // text of the sentinel; "": accepted
	created   bool
	rank      int // create: which verification; 0 in all other answers
	file      seen
	durable   int64 // of an upload
	writer    int64
	account   ledger.Balance
	list      string // leases, results or history, by rank or letter

}

// listed is one line of a lease, renewal or history.
type listed struct {
	file   uuid.UUID
	rank   int // of file; set at the end
	epoch  int64
	status ledger.Status
}

// seen is what a customer or a node sees of a verification.
type seen struct {
	status         ledger.Status
	issue          string
	bytes, durable int64
	total          int64
	counts         ledger.Counts
	held           ledger.Credits
	epoch          int64
	settlements    int64
	next           bool // something is due at a known time
	done           bool // has a time of completion
}

// sees is v as it is compared.
func sees(v ledger.Verification) seen {
	s := seen{status: v.Status, bytes: v.Bytes, durable: v.Durable, total: v.Total, counts: v.Counts,
		held: v.Held, epoch: v.Epoch, settlements: v.Settlements, next: !v.NextTry.IsZero(),
		done: !v.Completed.IsZero()}
	if v.Issue != nil {
		s.issue = v.Issue.Code
	}
	return s
}

// expectedRefusals are the errors that calls of a history may get.
var expectedRefusals = []error{ledger.ErrNoSuchVerification, ledger.ErrIdentityReused, ledger.ErrTooManyOpen,
	ledger.ErrTooManyBytes, ledger.ErrTooManyUnpaid,
	ledger.ErrStaleEpoch, ledger.ErrFenced, ledger.ErrUploadClosed, ledger.ErrGap, ledger.ErrIllegal}

// refusalOf returns the text of the sentinel in err, and whether there is one.
func refusalOf(err error) (string, bool) {
	if err == nil {
		return "", true
	}
	for _, sentinel := range expectedRefusals {
		if errors.Is(err, sentinel) {
			return sentinel.Error(), true
		}
	}
	return "", false
}

// letters stand for the outcomes, at the number of each.
const letters = "-vicue"

// outcomeOf is the outcome that a letter stands for.
func outcomeOf(letter byte) smtp.Outcome {
	return smtp.Outcome(strings.IndexByte(letters, letter))
}

// String shows what is set of a call.
func (c call) String() string { return whatIsSet(c) }

// String shows what is set of an answer.
func (a answer) String() string { return whatIsSet(a) }

// whatIsSet shows the fields of a struct that aren't zero.
func whatIsSet(of any) string {
	var parts []string
	for field, v := range reflect.ValueOf(of).Fields() {
		if !v.IsZero() {
			parts = append(parts, fmt.Sprintf("%s:%+v", field.Name, v))
		}
	}
	return strings.Join(parts, " ")
}
