package gossip

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/hashicorp/memberlist"
)

// refusal is why a node cannot be a member here.
type refusal struct {
	what string // for a metric: ledger, wire, card, protocol, full
	text string // for people: which node, what differs, what to do
}

// Error implements error.
func (r *refusal) Error() string { return r.text }

// check is the one place that says whether a node may be a member: n is what is
// known of it, self what this process says of itself. The text is for the logs of
// both sides, as both check each other.
func check(n *memberlist.Node, self NodeMeta) *refusal {
	card, err := decodeNodeMeta(n.Meta)
	if err != nil || card.Session.String() != n.Name {
		return &refusal{"card", fmt.Sprintf("the node at %s: %v", n.Address(), errNodeMeta)}
	}
	who := fmt.Sprintf("node %q (%s) at %s", card.Name, card.Node, n.Address())
	switch {
	case card.Ledger != self.Ledger:
		return &refusal{"ledger", fmt.Sprintf("%s works on ledger %s, node %q on ledger %s: give both the same "+
			"ledger.url, or another cluster.name if they are to be apart", who, card.Ledger, self.Name, self.Ledger)}
	case card.Wire != self.Wire:
		return &refusal{"wire", fmt.Sprintf("%s (program %s) speaks wire version %d, node %q (program %s) %d: run "+
			"programs of one wire version", who, card.Version, card.Wire, self.Name, self.Version, self.Wire)}
	case n.PCur != protocol || n.PMin > protocol || n.PMax < protocol ||
		n.DMin != 0 || n.DMax != 0 || n.DCur != 0:
		// One such member would make every later comparison of states fail.
		return &refusal{"protocol", fmt.Sprintf("%s speaks another version of the gossip protocol (%d): run the "+
			"same program everywhere", who, n.PCur)}
	}
	return nil
}

// events takes what the library says. It is called with the library's lock held.
type events struct{ g *Gossip }

// NotifyJoin implements memberlist.EventDelegate.
func (e events) NotifyJoin(n *memberlist.Node) { e.g.table.put(n, e.g.now()) }

// NotifyUpdate implements memberlist.EventDelegate.
func (e events) NotifyUpdate(n *memberlist.Node) { e.g.table.put(n, e.g.now()) }

// NotifyLeave implements memberlist.EventDelegate.
func (e events) NotifyLeave(n *memberlist.Node) { e.g.table.drop(n, e.g.now()) }

// NotifyAlive implements memberlist.AliveDelegate: it is asked for every news of a
// living node, whichever way it came.
func (e events) NotifyAlive(n *memberlist.Node) error {
	if n.Name == e.g.name {
		return nil
	}
	if r := check(n, e.g.self); r != nil {
		return e.g.refuse(r, n)
	}
	session, err := uuid.Parse(n.Name)
	if err == nil && e.g.table.isRefused(session) {
		return e.g.refuse(&refusal{"ledger", e.g.copied(n.Address())}, n)
	}
	if err == nil && !e.g.table.has(session) && e.g.table.full() {
		return e.g.refuse(&refusal{"full", fmt.Sprintf("the node at %s is one more than %d members", n.Address(),
			membersMax)}, n)
	}
	e.g.table.mark(n.Name, false)
	return nil
}

// NotifyMerge implements memberlist.MergeDelegate: it is asked when a node joins, on
// both sides, with all that the other side knows.
func (e events) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State != memberlist.StateAlive && n.State != memberlist.StateSuspect || n.Name == e.g.name {
			continue
		}
		if r := check(n, e.g.self); r != nil {
			return e.g.refuse(r, n)
		}
	}
	return nil
}

// Refuse ends the membership of a session for good, as this process sees it: its ledger has
// the identity of this process's ledger and is another one. Twice does nothing.
func (g *Gossip) Refuse(session uuid.UUID) {
	m := g.table.refuse(session)
	if m == nil {
		return
	}
	g.meters.refuse("ledger")
	g.log.Error("node is refused", "node", m.Name, "id", m.Node, "address", m.Address, "err", g.copied(m.Address))
}

// copied says why the node at an address is refused that was a member.
func (g *Gossip) copied(address string) string {
	return fmt.Sprintf("the node at %s works on another ledger with the same identity %s as that of node %q, so one is a copy of "+
		"the other: stop all nodes of the copy, run `rollcall ledger renew` on it, and start them again", address,
		g.self.Ledger, g.self.Name)
}

// refuse counts and logs a refusal.
func (g *Gossip) refuse(r *refusal, n *memberlist.Node) error {
	g.meters.refuse(r.what)
	g.limiter.warn("refused "+r.what+" "+n.Address(), "node is refused", "err", r.text)
	return r
}
