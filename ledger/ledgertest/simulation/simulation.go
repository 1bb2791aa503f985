package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// Life is the result of one seed.
type Life struct {
	Answers, Transactions, Commits, Faults int64
	Verifications                          int
	Violation                              string // "": none
}

// Run lives one life of so many operations and then lets everything come to its
// end without faults. The same seed gives the same life.
func Run(seed uint64, operations int) Life {
	return newWorld(seed).live(operations)
}

// live runs so many operations, and the end.
func (w *world) live(operations int) Life {
	for range operations {
		if w.violation != "" {
			break
		}
		w.operation()
	}
	if w.violation == "" {
		w.heal()
	}
	if w.violation == "" {
		w.reconcile()
		w.checkGrants()
	}
	return Life{Answers: w.answers, Transactions: w.db.runs, Commits: w.commits, Faults: w.db.faults,
		Verifications: len(w.memory.files), Violation: w.violation}
}

// newWorld makes the beginning. Each seed has its own mix of faults; some have none of a kind.
func newWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 0))
	var workspaces []uuid.UUID
	for i := range spaces {
		workspaces = append(workspaces, accountAt(i))
	}
	m := newMemory(newBook(workspaces...), 1_700_000_000_000)
	w := &world{random: random, memory: m, epochs: map[uuid.UUID]int64{},
		grants: map[uuid.UUID]ledger.Credits{}, acked: map[uuid.UUID]bool{}}
	some := func(most int) int {
		if random.IntN(3) == 0 {
			return 0
		}
		return random.IntN(most)
	}
	w.db = &database{tables: m, random: random, check: w.checkCommit, between: w.others, passing: w.pass,
		chances: chances{statement: some(300), commit: some(200), lost: some(200), late: some(200), between: some(1000)}}
	w.db.inside = func(_ func(t transitions.Tables) error, run func() (error, bool)) { _, _ = run() }
	w.book = transitions.New(w.db)
	for range nodesCount {
		w.nodes = append(w.nodes, &node{id: w.id()})
	}
	return w
}

// pass lets time pass while a commit is waited for: the clock of another gateway may be behind.
func (w *world) pass() {
	if w.chance(500) {
		w.memory.now += w.random.Int64N(4000) - 500
	}
}

// others run while a transaction waits to be run again.
func (w *world) others() {
	if w.depth == depthMax {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	for range 1 + w.random.IntN(3) {
		w.operation()
	}
}

// operation is one action of a customer, a node or an operator.
func (w *world) operation() {
	n := w.nodes[w.random.IntN(nodesCount)]
	switch at := w.random.IntN(100); {
	case at < 3:
		w.newUpload()
	case at < 5:
		if u := w.anUpload(); u != nil {
			u.create(w)
		}
	case at < 20:
		w.fresh().send(w)
	case at < 21:
		w.fresh().cancel(w)
	case at < 24:
		w.grant(ledger.Credits(1 + w.random.IntN(2*totalMax)))
	case at < 33:
		n.lease(w)
	case at < 40:
		n.renew(w)
	case at < 41:
		n.crash()
	case at < 46:
		w.sweep(w.random.IntN(filesMax))
	case at < 54:
		w.deliver()
	case at < 62:
		w.tick()
	default:
		n.work(w)
	}
}

// heal ends the faults: everything that was started must come to its end.
func (w *world) heal() {
	w.db.chances = chances{}
	for i := range spaces {
		id := w.id()
		w.grants[id] = filesMax * totalMax
		if _, err := w.book.Grant(context.Background(), id, accountAt(i), w.grants[id], ""); err != nil {
			w.wrong("liveness", "grant: %v", err)
		}
	}
	for len(w.late) > 0 && w.violation == "" {
		w.deliver()
	}
	for round := 0; w.violation == "" && !w.over(); round++ {
		if round == 1000*filesMax {
			w.wrong("liveness", "not over after %d rounds: %s", round, w.open())
			return
		}
		w.memory.now += leaseTTL.Milliseconds() / 4
		n := w.nodes[round%nodesCount]
		n.renew(w)
		n.lease(w)
		for range 2 * len(n.jobs) {
			n.work(w)
		}
		w.sweep(round)
	}
	for _, a := range w.memory.accounts {
		if w.violation == "" && a.balance.Held != 0 {
			w.wrong("I5", "workspace %s holds %d when all is over", a.id, a.balance.Held)
		}
	}
}

// over reports whether every verification is final.
func (w *world) over() bool {
	for _, f := range w.memory.files {
		if !f.row.Status.Final() {
			return false
		}
	}
	return true
}

// open names the unfinished verifications.
func (w *world) open() error {
	var list []error
	for _, f := range w.memory.files {
		if !f.row.Status.Final() {
			list = append(list, fmt.Errorf("%s at epoch %d", f.row.State(), f.row.Epoch))
		}
	}
	return errors.Join(list...)
}

// The ends of a transaction, besides its own refusals. The caller can tell only that nothing was changed, or that it
// does not know.
var (
	errAgain   = errors.New("simulation: serialization failure") // surely rolled back
	errUnknown = errors.New("simulation: the answer to the commit was lost")
	errAborted = errors.New("simulation: the transaction is aborted already")
)

// fate is the outcome of a commit.
type fate int

const (
	committed fate = iota
	again          // surely rolled back
	never          // rolled back, but the caller cannot tell
	lost           // committed, but the caller cannot tell
	// late is a commit that the caller cannot tell of and that is decided, either way, only when a later
	// run has begun. Until then all runs see nothing of it, and none can commit a change: its rows are locked.
	late
)

// attemptsMax bounds the runs of one transaction, as a database does.
const attemptsMax = 5

// chances are how often, of 1,000 transactions, each fault happens.
type chances struct {
	statement int // one statement fails, and the transaction with it
	commit    int // the commit fails and nothing was changed
	lost      int // the commit was executed, its answer is lost
	late      int // the commit is decided while a later run is at work
	between   int // of 1,000 re-runs: others get their turn before it
}

// database runs transactions on the tables, one at a time, with faults.
type database struct {
	tables  *memory
	random  *rand.Rand
	chances chances
	check   func() // called after each commit
	between func() // lets others run before a transaction is run again
	fates   []fate // of the next commits, before any is drawn
	doubt   bool   // of the run at hand: one before it may have been committed
	passing func() // lets time pass while one is waited for
	// inside calls run, which runs do on the tables and tells whether it refused and whether it is committed.
	inside func(do func(t transitions.Tables) error, run func() (refusal error, commit bool))
	runs   int64 // transactions begun
	faults int64 // of them with a fault
}

var _ transitions.Database = (*database)(nil)

func (d *database) chance(of int) bool { return of > 0 && d.random.IntN(1000) < of }

// Update runs do until it is committed or refused, or has failed too often.
func (d *database) Update(_ context.Context, _ transitions.Scope, do func(t transitions.Tables) error) error {
	unknown := false
	for attempt := 1; ; attempt++ {
		d.doubt = unknown
		began := d.tables.late != nil
		err := d.attempt(do)
		again := errors.Is(err, errAgain) || errors.Is(err, errUnknown)
		unknown = unknown || errors.Is(err, errUnknown)
		over := !again || attempt == attemptsMax
		if d.tables.late != nil && (over || began && d.random.IntN(2) == 0) {
			d.decide()
		}
		switch {
		case !over && d.tables.late != nil: // its rows are locked: others would wait too
			d.passing()
		case !over && d.chance(d.chances.between):
			d.between()
		case !again:
			return err
		case over && unknown:
			return errUnknown
		case over:
			return errAgain
		}
	}
}

// decide ends a late commit: mostly it is executed.
func (d *database) decide() {
	if d.random.IntN(3) > 0 {
		d.tables.was, d.tables.book = d.tables.book, d.tables.late
		d.check()
	}
	d.tables.late = nil
}

// attempt is one run of a transaction.
func (d *database) attempt(do func(t transitions.Tables) error) (err error) {
	d.runs++
	doubt := d.doubt
	at := -1
	if d.tables.late != nil || d.chance(d.chances.statement) {
		at = d.random.IntN(12) // a transaction has a dozen statements at most, mostly
	}
	became := again
	err = errAborted // if there is no transaction at all
	d.inside(do, func() (refusal error, commit bool) {
		d.tables.begin(at, errAgain)
		d.tables.doubt = doubt
		err = do(d.tables)
		if err == nil && d.tables.aborted {
			err = errAborted // a failed statement was overlooked: the database commits nothing
		}
		if err != nil {
			return err, false
		}
		switch {
		case d.tables.late == nil:
			became = d.fate()
		case d.tables.changes():
			became = again
		default:
			became = committed // it has only read
		}
		err = became.answer()
		return nil, became == committed || became == lost
	})
	switch {
	case err == nil || became == lost:
		d.check()
	case became == late:
		d.tables.late, d.tables.book = d.tables.book, d.tables.was
	default:
		d.tables.rollback()
	}
	if errors.Is(err, errAgain) || errors.Is(err, errUnknown) {
		d.faults++
	}
	return err
}

// fate draws the outcome of a commit.
func (d *database) fate() (f fate) {
	switch {
	case len(d.fates) > 0:
		f, d.fates = d.fates[0], d.fates[1:]
	case d.chance(d.chances.commit) && d.random.IntN(2) == 0:
		f = again
	case d.chance(d.chances.commit):
		f = never
	case d.chance(d.chances.lost):
		f = lost
	case d.chance(d.chances.late):
		f = late
	}
	return f
}

// answer is what the caller learns.
func (f fate) answer() error {
	switch f {
	case committed:
		return nil
	case again:
		return errAgain
	}
	return errUnknown
}

// View runs do once; reads do not fail here.
func (d *database) View(_ context.Context, do func(t transitions.Tables) error) error {
	d.tables.begin(-1, nil)
	return do(d.tables)
}
