package edge

import "github.com/asynkron/protoactor-go/actor"

// watch and unwatch tell the inbox whose end a line wants to know.
type (
	watch struct {
		key   string
		owner *actor.PID
	}
	unwatch struct{ owner *actor.PID }
)

// inbox is the actor that gets what owners answer, and the news of their end.
type inbox struct {
	limiter *Limiter
	keys    map[string]string // by the owner that is watched. Mailbox only.
}

func newInbox(l *Limiter) *inbox { return &inbox{limiter: l, keys: map[string]string{}} }

// Receive implements actor.Actor.
func (i *inbox) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *Answer:
		i.limiter.answered(m)
	case watch:
		i.keys[m.owner.String()] = m.key
		c.Watch(m.owner)
	case unwatch:
		delete(i.keys, m.owner.String())
		c.Unwatch(m.owner)
	case *actor.Terminated:
		if key, ok := i.keys[m.Who.String()]; ok {
			delete(i.keys, m.Who.String())
			i.limiter.moved(key, m.Who)
		}
	}
}
