package cluster

import (
	"maps"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/cluster/gossip"
)

// links knows which members answer over actor traffic. Gossip alone may see a
// member that nobody can send a message to: another network, a certificate that
// does not fit. Safe for concurrent use.
type links struct {
	system  *actor.ActorSystem
	changed func()
	turn    func() int64  // that this node has read
	life    time.Duration // of an answer: Times.LinkLife
	within  time.Duration // an answer comes: Times.Ask

	mu         sync.Mutex
	heard      map[uuid.UUID]time.Time // guarded by mu; the last answer
	heartbeats map[uuid.UUID]int64     // guarded by mu; of the last answer, see said
	asked      map[uuid.UUID]bool      // guarded by mu; a question is out
}

func newLinks(system *actor.ActorSystem, t Times, turn func() int64, changed func()) *links {
	return &links{system: system, turn: turn, changed: changed, life: t.LinkLife, within: t.Ask,
		heard: map[uuid.UUID]time.Time{}, heartbeats: map[uuid.UUID]int64{}, asked: map[uuid.UUID]bool{}}
}

// linked reports whether a member answered a short while ago.
func (l *links) linked(session uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.heard[session]
	return ok && time.Since(at) < l.life
}

// said returns when members say that their ledger took their last heartbeat, by the ledger's
// clock in milliseconds.
func (l *links) said() map[uuid.UUID]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heartbeats)
}

// ask asks every member but this one that no question is out to, and forgets who
// is a member no more.
func (l *links) ask(members []gossip.Member, self uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	present := make(map[uuid.UUID]bool, len(members))
	for _, m := range members {
		present[m.Session] = true
		if m.Session != self && !l.asked[m.Session] {
			l.asked[m.Session] = true
			go l.touch(m.Session, m.Actors)
		}
	}
	for session := range l.heard {
		if !present[session] {
			delete(l.heard, session)
			delete(l.heartbeats, session)
		}
	}
}

// touch puts one question. What another process at that address says does not count.
func (l *links) touch(session uuid.UUID, address string) {
	state, err := askState(l.system, session, address, l.within)
	l.mu.Lock()
	before, known := l.heard[session]
	delete(l.asked, session)
	if err == nil {
		l.heard[session], l.heartbeats[session] = time.Now(), state.GetBeat()
	}
	news := err == nil && (!known || time.Since(before) >= l.life) ||
		err != nil && known && time.Since(before) >= l.life
	l.mu.Unlock()
	// A turn that a member knows is read sooner than by the next heartbeat, because
	// it settles when all have read it.
	if news || state.GetTurn() > l.turn() {
		l.changed()
	}
}
