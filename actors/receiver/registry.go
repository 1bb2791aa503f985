package receiver

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
)

// Registry holds the receivers that live on a node, writes what they learn to the ledger, and answers people's
// questions about them. Safe for concurrent use.
type Registry struct {
	*registry.Registry
	once  sync.Once               // makes subscribe run once
	slots *registry.ReceiverSlots // set by Kinds

	mu      sync.Mutex
	writer  *facts.Writer // nil: nothing is kept
	sources *egress.Pool  // sources of the writer's node; nil if there is no writer
	facts   facts.Store   // nil if there is no writer
}

// NewRegistry makes a registry. Nothing may be used until the first ApplyShares, or Alone.
func NewRegistry() *Registry { return &Registry{Registry: registry.New()} }

// stateWriter makes the writer for this node's receivers; nil: there is no store.
func (l *Registry) stateWriter(o Options) *facts.Writer {
	o.Metrics.collected.Store(l)
	if o.Facts == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer == nil {
		l.facts = o.Facts
		l.writer = facts.NewWriter(facts.Options{Store: o.Facts, Of: "receivers", Log: o.Log, Guard: o.Guard})
		l.sources = o.Sources
	}
	return l.writer
}

// Flush writes to Facts what receivers learned since the last write. Call it when the receivers are stopped. If ctx
// ends first, the error wraps its error.
func (l *Registry) Flush(ctx context.Context) error {
	l.mu.Lock()
	w, sources := l.writer, l.sources
	l.mu.Unlock()
	if w == nil {
		return nil
	}
	return errors.Join(w.Flush(ctx), sources.Flush(ctx))
}

func (l *Registry) waiting() int { return l.slots.Waiting() }

// subscribe watches an actor system for nodes that become unreachable.
func (l *Registry) subscribe(system *actor.ActorSystem) {
	l.once.Do(func() {
		system.EventStream.Subscribe(func(event any) {
			if gone, ok := event.(*remote.EndpointTerminatedEvent); ok {
				l.Broadcast(question{func(s *scheduler.Scheduler, _ time.Time) { s.LoseClients(gone.Address) }, true})
			}
		})
	})
}
