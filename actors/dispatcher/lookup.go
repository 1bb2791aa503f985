package dispatcher

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/actors/verification"
)

// lookupWithin bounds Lookup: a verification actor answers at once, unless it has much
// to do.
const lookupWithin = time.Second

// Lookup says what the open addresses of a verification wait for; false when this node
// does not have it, or does not answer in time.
func (d *Dispatcher) Lookup(id uuid.UUID) (inspect.Verification, bool) {
	found, err := d.root.RequestFuture(d.pid, ask{id}, lookupWithin).Result()
	v, ok := found.(inspect.Verification)
	return v, ok && err == nil
}

// tell has a verification answer who asked about it.
func (s *shell) tell(c actor.Context, id uuid.UUID) {
	if r, ok := s.running[id]; ok {
		c.RequestWithCustomSender(r.pid, verification.Ask{}, c.Sender())
		return
	}
	for _, w := range s.admission.waiters {
		if w.state.ID == id {
			c.Respond(inspect.Verification{ID: id.String(), Workspace: w.state.Workspace.String(),
				Status: string(w.state.Status), Total: w.state.Total, Final: w.state.Counts.Sum(), At: time.Now(),
				Why: "its file waits for memory: this node has others in work"})
			return
		}
	}
	c.Respond(notHere{})
}

// notHere answers an ask about a verification that this node does not have.
type notHere struct{}
