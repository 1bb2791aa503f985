package gossip

import (
	"fmt"
	"testing"
	"time"

	"rollcall/cluster/gossip/gossiptest"
	"rollcall/config/effort"
)

// TestFiguresOfFiftyMembers prints how long fifty members of one process take to
// meet and to agree that ten of them died at once, and what they send when nothing
// happens. Run it with -long -v.
func TestFiguresOfFiftyMembers(t *testing.T) {
	if !effort.Long() {
		t.Skip("runs with -long")
	}
	const all, dead = 50, 10
	network := gossiptest.New()
	began := time.Now()
	nodes := make([]*node, all)
	for i := range nodes {
		o := options(t, fmt.Sprintf("node-%02d", i))
		o.Transport, o.Timing, o.Keys = network.Transport(), DefaultTiming(), ring(t, sharedKey)
		if i > 0 {
			o.Join = []string{nodes[0].Address()}
		}
		nodes[i] = mustBegin(t, o)
	}
	agree := func(nodes []*node) func() bool {
		return func() bool {
			for _, n := range nodes {
				if len(n.Members()) != len(nodes) {
					return false
				}
			}
			return true
		}
	}
	await(t, "all see all", agree(nodes))
	t.Logf("%d members see each other after %s", all, time.Since(began).Round(time.Millisecond))

	const quiet = 20 * time.Second
	before := total(t, nodes)
	<-time.After(quiet)
	t.Logf("at rest each member sends %.0f bytes a second", (total(t, nodes)-before)/all/quiet.Seconds())

	for _, n := range nodes[all-dead:] {
		n.wire.Kill()
	}
	began = time.Now()
	await(t, "the living agree", agree(nodes[:all-dead]))
	t.Logf("%d living members agree that %d are gone after %s", all-dead, dead,
		time.Since(began).Round(time.Millisecond))
}

const sharedKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func total(t *testing.T, nodes []*node) (bytes float64) {
	for _, n := range nodes {
		bytes += n.counter(t, "rollcall_gossip_bytes_total", "direction=out")
	}
	return bytes
}
