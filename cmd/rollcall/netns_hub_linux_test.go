package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// The hub is a router with a wire to each place. A cut is a set of its rules
// that swallow packets without a word, as a broken switch does.

// Ports and networks of the places.
const (
	gossipPort   = 7946
	actorPort    = 7947
	ledgerPort   = 5432
	labNetwork   = "10.77.0.0/16"
	labDNS       = "10.77.0.1:53"
	wiresNetwork = "10.76.%d.%d"
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

// cut swallows whatever goes between a place and some others.
func (h *hub) cut(name string, others ...string) {
	h.t.Helper()
	var rules, add []string
	for _, other := range others {
		one, two := h.places[name].addr, h.places[other].addr
		rules = append(rules, "from "+one+" to "+two, "from "+two+" to "+one)
	}
	for _, rule := range rules {
		add = append(add, "rule add pref 10 "+rule+" blackhole")
	}
	h.mu.Lock()
	h.rules = append(h.rules, rules...)
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
	for _, rule := range rules {
		remove = append(remove, "rule del pref 10 "+rule+" blackhole")
	}
	if len(remove) > 0 {
		h.ip(h.t, remove...)
	}
}
