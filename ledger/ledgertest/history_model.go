package ledgertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest/simulation"
)

const (
	// workspaces share a book: more than one, so that a lease meets several.
	workspaces = 3
	// grantsMax bounds the grants of one history; then clients repeat a grant.
	grantsMax = 96
	// openMax is the number of files that a workspace may have open: low, so that creates meet it.
	openMax = 6
)

// clientLimits are those of each workspace in a history.
var clientLimits = ledger.Limits{Open: openMax, Stored: 1 << 40, Unpaid: 1 << 20}

// defect is the issue of every file that is refused.
const defect = "csv_malformed"

// The model makes each file in the millisecond of its rank, and does everything else when all are made. That is before
// transitions.WakeBack is over, so leases find the files in that order.
var (
	beginning = time.UnixMilli(1_700_000_000_000)
	allMade   = beginning.Add(filesMax * time.Millisecond)
)

// model is a ledger that does one thing at a time: the transitions themselves, over tables in memory. What became of a
// call that told nothing is open: from then on the ledger is one of several, until an answer tells them apart or they
// come to the same. A search comes to the same step again and again, so steps are remembered.
func (h *History) model() porcupine.Model {
	type step struct {
		before simulation.Moment
		call   *call
	}
	known := map[step][]any{}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{simulation.Beginning(h.spaces[:]...)} },
		Step: func(state, input, output any) []any {
			s := step{state.(simulation.Moment), input.(*call)}
			after, is := known[s]
			if !is {
				after = h.after(s.before, *s.call, output.(answer))
				known[s] = after
			}
			return after
		},
		Equal: func(a, b any) bool { return a.(simulation.Moment).Equal(b.(simulation.Moment)) },
	}
	return m.ToModel()
}

// after returns the possible ledgers after a call with its answer.
func (h *History) after(before simulation.Moment, c call, told answer) (states []any) {
	switch {
	case told.unchanged:
		return []any{before}
	case told.unknown:
		return h.open(before, c)
	}
	if after, must := h.apply(before, c); told == must {
		states = append(states, after)
	}
	if c.kind == lease && c.lease.anew && told.list != "" && h.holds(before, c.node, told.list) {
		states = append(states, before)
	}
	return states
}

// apply returns the ledger after the call, and its answer.
func (h *History) apply(m simulation.Moment, c call) (after simulation.Moment, a answer) {
	op, at := operation{call: c}, allMade
	switch {
	case c.kind == create:
		at = beginning.Add(time.Duration(c.rank) * time.Millisecond)
	case c.kind == lease && c.lease.all:
		op.call.limit++ // what is left is in the answer, which then is another
	}
	var err error
	after = m.Do(at, func(b *simulation.Book) {
		if took := c.lease.took; took != nil {
			b.Only(h.named(took))
		}
		err = (&client{recorder: h.recorder, Book: b}).ask(context.Background(), &op)
	})
	if c.kind == create && c.rank < 0 && op.answer.created {
		return m, answer{rank: -1} // no such verification in the end: it was not made
	}
	refusal, tells := refusalOf(err)
	if lost := h.rank(&op); lost != nil || !tells {
		return m, answer{refusal: fmt.Sprint(err, lost)}
	}
	op.answer.refusal = refusal
	return after, op.answer
}

// named are the ids of files by their ranks.
func (h *History) named(ranks map[int]bool) map[uuid.UUID]bool {
	ids := map[uuid.UUID]bool{}
	for rank := range ranks {
		ids[h.ids[rank]] = true
	}
	return ids
}

// holds reports whether a node has each file of a list of leases, as the list shows it.
func (h *History) holds(m simulation.Moment, node int, list string) bool {
	var has string
	m.Do(allMade, func(b *simulation.Book) {
		files, _ := b.OpenVerifications(context.Background(), filesMax)
		for _, v := range files {
			if v.LeasedBy == h.nodes[node] {
				has += textOf([]listed{{rank: h.ranks[v.ID], epoch: v.Epoch, status: v.Status}})
			}
		}
	})
	for one := range strings.SplitAfterSeq(list, ";") {
		if !strings.Contains(";"+has, ";"+one) {
			return false
		}
	}
	return true
}

// open returns the possible ledgers after a call without an answer. A lease may have taken any number of files here:
// the others were those of other workspaces.
func (h *History) open(m simulation.Moment, c call) []any {
	list := []any{m}
	switch {
	case c.kind != lease:
		after, _ := h.apply(m, c)
		return append(list, after)
	case c.lease.took != nil:
		return h.openPassing(m, c)
	}
	for limit := range c.limit {
		c.limit = limit + 1
		after, _ := h.apply(m, c)
		list = append(list, after)
	}
	return list
}

// openPassing is open for a lease that may pass over files: it may have taken any of those that it can have taken.
func (h *History) openPassing(m simulation.Moment, c call) []any {
	list, sizes := []any{m}, []int{0}
	most, ranks := c.limit, slices.Sorted(maps.Keys(c.lease.took))
	for _, rank := range ranks {
		c.limit, c.lease.took = 1, map[int]bool{rank: true}
		for i := range list { // those of before this file
			if sizes[i] == most {
				continue
			}
			if after, took := h.apply(list[i].(simulation.Moment), c); took.list != "" {
				list = append(list, after)
				sizes = append(sizes, sizes[i]+1)
			}
		}
	}
	return list
}
