package cluster

import (
	"bytes"
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/wire"
)

// answerName is the name of the actor that answers other members about this node.
const answerName = "node"

// startAnswering starts the actor that answers members.
func (n *Node) startAnswering() {
	props := actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *wire.Ask:
			c.Respond(&wire.State{Session: n.meta.Session[:], Resting: n.rested.Load(), Turn: n.turn(), Beat: n.beaten()})
		case *wire.KeysAsk:
			c.Respond(n.changeKeys(m))
		case *wire.Errand: // it may take a while, and c is good in here only
			root, sender := c.ActorSystem().Root, c.Sender()
			if sender != nil {
				go func() { root.Send(sender, n.done(m.GetBody())) }()
			}
		}
	})
	if _, err := n.system.Root.SpawnNamed(props, answerName); err != nil {
		panic(err) // this code is wrong: it ran twice
	}
}

// turn is the newest that this node has read; 0: none yet.
func (n *Node) turn() int64 {
	if roll := n.snapshot.Load(); roll != nil {
		return roll.Generation
	}
	return 0
}

// beaten is when the ledger took the last heartbeat that this node knows of, by the ledger's
// clock in milliseconds; 0: it took none yet.
func (n *Node) beaten() int64 {
	if row := sessionIn(n.snapshot.Load(), n.meta.Session); row != nil {
		return row.Seen.UnixMilli()
	}
	return 0
}

// errStranger is the answer of another process than the one that was asked.
var errStranger = errors.New("cluster: another process answers")

// askState asks a process how it is.
func askState(system *actor.ActorSystem, session uuid.UUID, address string, within time.Duration) (*wire.State,
	error) {
	answer, err := system.Root.RequestFuture(actor.NewPID(address, answerName), &wire.Ask{}, within).Result()
	if err != nil {
		return nil, err
	}
	state, ok := answer.(*wire.State)
	if !ok || !bytes.Equal(state.GetSession(), session[:]) {
		return nil, errStranger
	}
	return state, nil
}

// rests asks a process whether it has no SMTP sessions.
func (n *Node) rests(session uuid.UUID, address string) bool {
	state, err := askState(n.system, session, address, n.times.Ask)
	return err == nil && state.GetResting()
}

// refuses reports whether nothing listens at an address: the system there answers,
// and the process is gone.
func (n *Node) refuses(ctx context.Context, address string) bool {
	dialer := net.Dialer{Timeout: n.times.Ask}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
