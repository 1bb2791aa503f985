package receiver

import (
	"sync/atomic"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// TestAfterAPauseNothingIsAskedThatHadNotBegun: the actor lives on with its sessions, and asks again
// what it is offered again.
func TestAfterAPauseNothingIsAskedThatHadNotBegun(t *testing.T) {
	t.Parallel()
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 5, Per: time.Second / 10}
	b := newBench(t, 0, "clean", a)
	var pauses atomic.Uint64
	b.options.Pauses = pauses.Load
	b.pid = b.spawn()
	c, client := b.customer(1, 500, known)
	c.until("answers", func() bool { return len(c.answers) >= 10 })
	pauses.Add(1)
	asked := func() int { return b.lab.Manners().Total.Rcpts }
	before := asked()
	<-time.After(2 * time.Second) // a hundred by the rate
	more := asked() - before
	effort.ErrorIf(t, more > 5, "%d were asked after the pause", more)
	c.mu.Lock()
	answered := len(c.answers)
	c.chunk++
	again := &wire.Offer{Task: c.task, Chunk: c.chunk, Hosts: []*wire.Host{b.host},
		Probes: []*wire.Probe{{Ordinal: 499, Local: known(499)}}}
	c.mu.Unlock()
	b.system.Root.Send(client, again)
	c.until("an answer to what was offered again", func() bool { return len(c.answers) > answered })
	effort.ErrorIf(t, c.ended > 0 || c.moved > 0, "the actor ended %d times, and told of %d moves", c.ended, c.moved)
}
