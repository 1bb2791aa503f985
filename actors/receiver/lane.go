package receiver

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

// candidate is one address of one host of a lane.
type candidate struct {
	host     string
	at       netip.Addr
	until    time.Time // not to be dialled before
	failures int       // in a row, without an answer about an address between them
	served   bool      // it has answered about an address
	last     verdictOf // the newest of them; without an attempt: never
}

// lane is the queue for one set of hosts. Its sessions serve every address whose
// route begins with these hosts, whatever the domain or verification.
type lane struct {
	key        string
	candidates []*candidate
	queues     map[uuid.UUID]*mixed // by verification
	turn       []uuid.UUID          // verifications with something queued, next first
	queued     int
	inTurn     bool                 // in desk.order
	sessions   int                  // opening or open, not those that are closing
	refusals   map[*outlet]*refusal // of our sources
	tls        smtp.TLSMode
	tlsUntil   time.Time // when tls falls back to opportunistic
}

// laneKey tells lanes apart: by the names of the hosts, in their order.
func laneKey(hosts []*wire.Host) string {
	if len(hosts) == 1 {
		return hosts[0].GetName()
	}
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(h.GetName())
		b.WriteByte(',')
	}
	return b.String()
}

func newLane(key string, hosts []*wire.Host) *lane {
	l := &lane{key: key, queues: map[uuid.UUID]*mixed{}, tls: smtp.TLSOpportunistic}
	l.learn(hosts)
	return l
}

// learn takes over the addresses of a newer route and keeps what is known of old ones.
func (l *lane) learn(hosts []*wire.Host) {
	old := l.candidates
	fresh := make([]*candidate, 0, len(old))
	for _, h := range hosts {
		for _, at := range h.Addresses() {
			same := func(c *candidate) bool { return c.at == at && c.host == h.GetName() }
			if i := slices.IndexFunc(old, same); i >= 0 {
				fresh = append(fresh, old[i])
			} else {
				fresh = append(fresh, &candidate{host: h.GetName(), at: at})
			}
		}
	}
	l.candidates = fresh
}

// push queues a probe behind the others of its verification.
func (l *lane) push(p *probe) {
	id := p.chunk.task.key.Verification
	q := l.queues[id]
	if q == nil {
		q = &mixed{}
		l.queues[id] = q
		l.turn = append(l.turn, id)
	}
	q.push(p)
	l.queued++
}

// pop takes the next probe: one from each verification in turn.
func (l *lane) pop() *probe {
	id := l.turn[0]
	q := l.queues[id]
	p := q.pop()
	l.queued--
	copy(l.turn, l.turn[1:])
	if q.len() > 0 {
		l.turn[len(l.turn)-1] = id
	} else {
		l.turn = l.turn[:len(l.turn)-1]
		delete(l.queues, id)
	}
	return p
}

// mode is the TLS mode for the next session.
func (l *lane) mode(now time.Time) smtp.TLSMode {
	if l.tls != smtp.TLSOpportunistic && now.After(l.tlsUntil) {
		l.tls = smtp.TLSOpportunistic
	}
	return l.tls
}

// setMode remembers for a while that a receiver demands TLS, or that its TLS is broken.
func (l *lane) setMode(m smtp.TLSMode, now time.Time) { l.tls, l.tlsUntil = m, now.Add(learnedFor) }

// knows says whether something is known of the hosts that is worth keeping: TLS,
// refusals of our sources, and failures, whose number makes the next wait longer.
func (l *lane) knows(now time.Time) bool {
	for _, r := range l.refusals {
		if r.rests > 0 && now.Before(r.until.Add(learnedFor)) {
			return true
		}
	}
	return l.mode(now) != smtp.TLSOpportunistic || slices.ContainsFunc(l.candidates, func(c *candidate) bool {
		return c.failures > 0 && now.Before(c.until.Add(learnedFor))
	})
}

// purge takes the probes that nobody wants asked out of the queue of one verification and tells
// how many these were.
func (l *lane) purge(id uuid.UUID) int {
	q, dropped := l.queues[id], 0
	for _, part := range [...]*fifo[queued]{&q.fine, &q.odd} {
		for range part.len() {
			if one := part.pop(); one.probe.chunk.gone() {
				one.probe.chunk.open--
				dropped++
			} else {
				part.push(one)
			}
		}
	}
	l.queued -= dropped
	if q.len() == 0 {
		delete(l.queues, id)
		l.turn = slices.DeleteFunc(l.turn, func(o uuid.UUID) bool { return o == id })
	}
	return dropped
}
