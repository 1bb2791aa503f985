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

// Life is what one seed did.
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
	m := newMemory()
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
	w.db.inside = func(do func(t transitions.Tables) bool) { do(m) }
	w.book = transitions.New(w.db)
	for i := range spaces {
		id := m.accountAt(i)
		m.accounts[id] = &account{id: id}
	}
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

// operation is one thing that somebody does.
func (w *world) operation() {
	n := w.nodes[w.random.IntN(nodesCount)]
	switch at := w.random.IntN(100); {
	case at < 3:
		w.newUpload()
	case at < 5:
		if u := w.anUpload(); u != nil {
			w.create(u)
		}
	case at < 20:
		w.send(w.fresh())
	case at < 21:
		w.cancel(w.fresh())
	case at < 24:
		w.grant(ledger.Credits(1 + w.random.IntN(2*totalMax)))
	case at < 33:
		w.lease(n)
	case at < 40:
		w.renew(n)
	case at < 41:
		n.crash()
	case at < 46:
		w.sweep(w.random.IntN(filesMax))
	case at < 54:
		w.deliver()
	case at < 62:
		w.tick()
	default:
		w.work(n)
	}
}

// heal ends the faults: everything that was started must come to its end.
func (w *world) heal() {
	w.db.chances = chances{}
	for i := range spaces {
		id := w.id()
		w.grants[id] = filesMax * totalMax
		if _, err := w.book.Grant(context.Background(), id, w.memory.accountAt(i), w.grants[id], ""); err != nil {
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
		w.renew(n)
		w.lease(n)
		for range 2 * len(n.jobs) {
			w.work(n)
		}
		w.sweep(round)
	}
	for id, a := range w.memory.accounts {
		if w.violation == "" && a.balance.Held != 0 {
			w.wrong("I5", "workspace %s holds %d when all is over", id, a.balance.Held)
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

// open names what is not over.
func (w *world) open() error {
	var list []error
	for _, f := range w.memory.files {
		if !f.row.Status.Final() {
			list = append(list, fmt.Errorf("%s at epoch %d", f.row.State(), f.row.Epoch))
		}
	}
	return errors.Join(list...)
}
