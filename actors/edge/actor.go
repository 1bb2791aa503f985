package edge

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"

	"rollcall/actors/alarm"
)

// kind is the kind of virtual actor that counts one key; its identity is the key's id.
const kind = "edge"

const (
	// idleLife is how long an actor lives that nobody asks. Nothing is lost with it
	// by then, and a customer who comes back costs one activation.
	idleLife = 5 * time.Minute

	// livingMax is how many actors may live on a node before idle ones go after
	// crowdedLife, the earliest at which their slots are known to be free. Measured:
	// some 2.5 KB each.
	livingMax   = 1 << 14
	crowdedLife = slotLife
)

// Actor counts what one key uses, for all nodes.
type Actor struct {
	options Options
	living  *atomic.Int64 // actors of this node
	desk    *desk
	last    time.Time // somebody asked
	alarm   alarm.Alarm
}

// Kinds gives the kind of virtual actor that a node has to host.
func Kinds(o Options) (map[string]*actor.Props, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	living := &atomic.Int64{}
	return map[string]*actor.Props{kind: actor.PropsFromProducer(func() actor.Actor {
		return &Actor{options: o, living: living}
	})}, nil
}

// Receive implements actor.Actor. Nothing here blocks.
func (a *Actor) Receive(c actor.Context) {
	now := time.Now()
	switch m := c.Message().(type) {
	case *cluster.ClusterInit:
		a.desk = newDesk(m.Identity.Identity, rand.Uint64()|1, a.options.Limits)
		a.last = now
		a.living.Add(1)
		a.options.Metrics.living.Inc()
		a.alarm.Set(c, now, now.Add(crowdedLife))
	case *Ask:
		if a.desk == nil {
			return
		}
		a.last = now
		k, n := a.options.Share(a.desk.key)
		if answer := a.desk.ask(now, m, k, n); answer != nil && c.Sender() != nil {
			c.Respond(answer)
		}
	case alarm.WakeUp:
		if _, ok := a.alarm.Rings(m, now); ok && a.desk != nil {
			a.rest(c, now)
		}
	case *actor.Stopping:
		a.alarm.Stop()
		if a.desk != nil {
			a.living.Add(-1)
			a.options.Metrics.living.Dec()
		}
	}
}

// rest ends an actor that is not needed.
func (a *Actor) rest(c actor.Context, now time.Time) {
	life := idleLife
	if a.living.Load() > livingMax {
		life = crowdedLife
	}
	if k, n := a.options.Share(a.desk.key); now.Sub(a.last) >= life && a.desk.idle(now, k, n) {
		c.Stop(c.Self())
		return
	}
	a.alarm.Set(c, now, now.Add(crowdedLife))
}
