package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// Dispatcher is the handle on a node's dispatcher actor. Safe for concurrent use.
type Dispatcher struct {
	root *actor.RootContext
	pid  *actor.PID
	held *atomic.Int64
	once sync.Once
	err  error // of Stop
}

// Start begins to take work.
func Start(system *actor.ActorSystem, o Options) (*Dispatcher, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	held := &atomic.Int64{}
	props := actor.PropsFromProducer(func() actor.Actor { return newShell(o, held) },
		actor.WithSupervisor(actor.NewOneForOneStrategy(0, 0, stopFailing)))
	pid, err := system.Root.SpawnNamed(props, "dispatcher")
	if err != nil {
		return nil, fmt.Errorf("start dispatcher: %w", err)
	}
	return &Dispatcher{root: system.Root, pid: pid, held: held}, nil
}

// Leases is how many verifications this node has.
func (d *Dispatcher) Leases() int { return int(d.held.Load()) }

// Drain gives every lease back and takes no more, or takes work again, without waiting
// for it. What was asked last holds. A dispatcher that stops takes no work again.
func (d *Dispatcher) Drain(draining bool) { d.root.Send(d.pid, drain{draining}) }

// Wake makes the dispatcher look for work, and its verifications for a cancel, at once.
func (d *Dispatcher) Wake() { d.root.Send(d.pid, wake{}) }

// Stop takes no more work, settles what is known, gives every lease back and
// ends. When ctx is over first, leases that are left run out by themselves. A
// second call waits for the first and answers the same.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.once.Do(func() { d.err = d.stop(ctx) })
	return d.err
}

func (d *Dispatcher) stop(ctx context.Context) error {
	done := make(chan struct{})
	d.root.Send(d.pid, stop{done})
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("drain: %w", ctx.Err())
	}
	_ = d.root.StopFuture(d.pid).Wait() // ten seconds at most, for actors that do not block
	return err
}
