package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// The hub is a router with a wire to each place. A cut is a set of its rules
// that swallow packets without a word, as a broken switch does.

// Ports and networks of the places; a cut knows traffic by them.
const (
	gossipPort   = 7946
	actorPort    = 7947
	ledgerPort   = 5432
	labNetwork   = "10.77.0.0/16"
	labDNS       = "10.77.0.1:53"
	wiresNetwork = "10.76.%d.%d"
)

// traffic is a kind of traffic of a node.
type traffic string

const (
	gossipSide traffic = "gossip"
	actorSide  traffic = "actors"
	ledgerSide traffic = "ledger"
	labSide    traffic = "lab" // receivers and DNS
	allSides   traffic = "everything"
)

// way is a direction, as the cut node sees it.
type way string

const (
	bothWays way = "both ways"
	outgoing way = "outgoing" // the node is mute
	incoming way = "incoming" // the node is deaf
)

// hub is the router.
type hub struct {
	*space
	t      *testing.T
	places map[string]*place

	mu    sync.Mutex
	rules []string // of the cuts that stand; guarded by mu
}

// place is a namespace with one wire to the hub.
type place struct {
	*space
	addr string
}

// newHub makes the router and a place for each name.
func newHub(t *testing.T, names ...string) *hub {
	t.Helper()
	h := &hub{space: newSpace(t, "hub"), t: t, places: map[string]*place{}}
	if err := h.in(func() error { return os.WriteFile(forwardFile, []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		p := &place{space: newSpace(t, name), addr: fmt.Sprintf(wiresNetwork, i+1, 1)}
		gate := fmt.Sprintf(wiresNetwork, i+1, 254)
		h.ip(t, fmt.Sprintf("link add w%d type veth peer name wire netns %s", i, p.path()),
			fmt.Sprintf("addr add %s/24 dev w%d", gate, i), fmt.Sprintf("link set w%d up", i))
		p.ip(t, fmt.Sprintf("addr add %s/24 dev wire", p.addr), "link set wire up", "route add default via "+gate)
		h.places[name] = p
	}
	return h
}

// cut swallows a kind of traffic between a place and all others.
func (h *hub) cut(name string, what traffic, w way) {
	h.t.Helper()
	var add []string
	for _, selector := range h.selectors(name, what, w) {
		add = append(add, "rule add pref 10 "+selector+" blackhole")
	}
	h.mu.Lock()
	h.rules = append(h.rules, h.selectors(name, what, w)...)
	h.mu.Unlock()
	h.ip(h.t, add...)
}

// heal ends every cut.
func (h *hub) heal() {
	h.t.Helper()
	h.mu.Lock()
	rules := h.rules
	h.rules = nil
	h.mu.Unlock()
	var remove []string
	for _, selector := range rules {
		remove = append(remove, "rule del pref 10 "+selector+" blackhole")
	}
	if len(remove) > 0 {
		h.ip(h.t, remove...)
	}
}

// selectors say which packets a cut swallows (ip-rule(8)).
func (h *hub) selectors(name string, what traffic, w way) []string {
	own := h.places[name].addr
	var all []string
	for _, end := range []struct {
		w    way
		from string // the place's own end of the packet
		to   string // the other end
	}{{outgoing, "from", "to"}, {incoming, "to", "from"}} {
		if w != bothWays && w != end.w {
			continue
		}
		mine := end.from + " " + own
		switch what {
		case gossipSide:
			for _, protocol := range []string{"udp", "tcp"} {
				all = append(all, onPort(mine, protocol, gossipPort)...)
			}
		case actorSide:
			all = append(all, onPort(mine, "tcp", actorPort)...)
		case ledgerSide:
			all = append(all, onPort(mine, "tcp", ledgerPort)...)
		case labSide:
			all = append(all, mine+" "+end.to+" "+labNetwork)
		case allSides:
			all = append(all, mine)
		}
	}
	slices.Sort(all)
	return all
}

// onPort selects what goes to a port and what comes from it.
func onPort(selector, protocol string, port int) []string {
	return []string{
		fmt.Sprintf("%s ipproto %s dport %d", selector, protocol, port),
		fmt.Sprintf("%s ipproto %s sport %d", selector, protocol, port),
	}
}
