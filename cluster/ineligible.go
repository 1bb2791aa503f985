package cluster

import (
	"slices"
	"sync/atomic"

	"rollcall/ledger"
)

// ineligible is why this process must not probe; "" while it may. Safe for concurrent use.
type ineligible struct{ text atomic.Pointer[string] }

func (u *ineligible) why() string {
	if p := u.text.Load(); p != nil {
		return *p
	}
	return ""
}

// set takes a reason and reports whether the process may or may not now where it might
// not or might before.
func (u *ineligible) set(why string) (turned bool) {
	was := u.text.Swap(&why)
	return (was != nil && *was != "") != (why != "")
}

// SetIneligible says why this node must not probe now; "": it may. A node that may not keeps
// its lease of verifications, its links and its vote, and serves requests; it only does
// not count on itself any more. So receivers have their place on the other nodes, and
// nowhere while no node is fit, and work for them waits.
//
// That is safe whatever the others know: a view is a vote (cluster/share/README.md), the shares
// of all votes never add up to more than the whole, and until every process has read
// the change the vote counts for nobody. The others learn it from its row: who does not
// count on itself there is counted on by nobody.
func (n *Node) SetIneligible(why string) {
	if !n.ineligible.set(why) {
		return
	}
	if n.peers != nil {
		n.wake()
		return
	}
	if n.serving.Load() {
		n.lookup.see(viewInputs{self: n.meta, away: why != ""}.computeView())
	}
}

// Ineligible says why this node must not probe now; "": it may.
func (n *Node) WhyIneligible() string { return n.ineligible.why() }

// countsOnItself reports whether a process has itself in the view that it published.
func countsOnItself(row ledger.NodeRow) bool {
	return slices.ContainsFunc(row.View, func(p ledger.Incarnation) bool { return p.Session == row.Session })
}
