package process

import (
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// idleMost is how many goroutines of a pool wait for work. Those of actors and sessions come to use some 8 KB of
// stack, so 64 of them keep half a megabyte.
const idleMost = 64

// idleFor is how long one waits. A node at work has the next thing to do within microseconds.
const idleFor = time.Second

// pool does work in goroutines that were used before. A goroutine begins with a small stack and copies it a few times
// until it is large enough for an actor or a session, which was 8 % of the time of a list of small domains.
type pool struct {
	work chan func()
	idle atomic.Int32
}

// startWork does work in a goroutine of its own.
func (p *pool) startWork(work func()) {
	select {
	case p.work <- work:
	default:
		go p.keepWorking(work)
	}
}

// keepWorking does work, and then what comes within idleFor, while no more than idleMost others wait for something.
func (p *pool) keepWorking(work func()) {
	work()
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	for p.idle.Add(1) <= idleMost {
		timer.Reset(idleFor)
		select {
		case work = <-p.work:
			p.idle.Add(-1)
			work()
		case <-timer.C:
			p.idle.Add(-1)
			return
		}
	}
	p.idle.Add(-1)
}

// Dispatch lets an actor run in goroutines that were used before. A nil guard: in those of the library.
func (g *PanicGuard) Dispatch() actor.PropsOption {
	if g == nil {
		return func(*actor.Props) {}
	}
	return actor.WithDispatcher(&g.pool)
}

// Schedule implements actor.Dispatcher.
func (p *pool) Schedule(run func()) { p.startWork(run) }

// Throughput implements actor.Dispatcher: messages until another actor has its turn, as the library has it.
func (p *pool) Throughput() int { return 300 }
