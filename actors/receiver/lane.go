package receiver

import (
	"net/netip"
	"slices"
	"strings"
	"time"

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
	crews      map[*space]*crew // of the workspaces with something queued, or that had lately
	turns      line[*crew]
	queued     int
	pops       uint
	unmanned   bool                 // something is queued and there is no session; in desk.unmanned
	aside      bool                 // in desk.aside: not in the turns for sessions
	sessions   int                  // opening or open, not those that are closing
	greyed     time.Time            // when the newest that came back after greylisting was first put off
	refusals   map[*outlet]*refusal // of our sources
	tls        smtp.TLSMode
	tlsUntil   time.Time // when tls falls back to opportunistic
}

// crew is what a workspace has waiting in a lane.
type crew struct {
	turn    turn[*crew]
	space   *space
	queued  int
	batches map[*file]*batch
	turns   line[*batch]
}

// batch is what a verification has waiting in a lane.
type batch struct {
	mixed
	turn   turn[*batch]
	crew   *crew
	file   *file
	lane   *lane
	listed bool // in file.waiting
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
	l := &lane{key: key, crews: map[*space]*crew{}, tls: smtp.TLSOpportunistic}
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
func (l *lane) push(f *file, p *probe) *batch {
	c := l.crews[f.space]
	if c == nil {
		c = &crew{space: f.space, batches: map[*file]*batch{}}
		c.turn.of = c
		l.crews[f.space] = c
	}
	b := c.batches[f]
	if b == nil {
		b = &batch{crew: c, file: f, lane: l}
		b.turn.of = b
		c.batches[f] = b
	}
	b.mixed.push(p)
	c.queued++
	l.queued++
	c.turns.enter(&b.turn)
	l.turns.enter(&c.turn)
	return b
}

// pop takes the next probe: of the workspace, and then the verification, that was given
// least at the receiver as a whole, so that whoever a lane is served for is who is served.
// One in ownTurn goes by what was given in this lane alone: else those who wait here and
// get a lot elsewhere would be given nothing here.
func (l *lane) pop() (*probe, *file) {
	l.pops++
	c := l.turns.first().of
	b := c.turns.first().of
	if l.pops%ownTurn != 0 {
		c = l.least()
		b = c.least()
	}
	p := b.mixed.pop()
	c.queued--
	l.queued--
	c.turns.charge(&b.turn, 1)
	l.turns.charge(&c.turn, 1/float64(c.space.weight))
	l.rest(b)
	return p, b.file
}

// ownTurn: see lane.pop. Guess: a quarter is enough to get on, and little to the others.
const ownTurn = 4

// looksMost bounds how many of those who wait in a lane are compared; they are those that
// were given least in it. Guess: more change places faster than it matters.
const looksMost = 16

// least gives who was given least at the receiver as a whole.
func (l *lane) least() *crew {
	var least *crew
	for _, t := range l.turns.list[:min(len(l.turns.list), looksMost)] {
		if least == nil || t.of.space.asking.had < least.space.asking.had {
			least = t.of
		}
	}
	return least
}

// least gives what was given least at the receiver as a whole.
func (c *crew) least() *batch {
	var least *batch
	for _, t := range c.turns.list[:min(len(c.turns.list), looksMost)] {
		if least == nil || t.of.file.asking.had < least.file.asking.had {
			least = t.of
		}
	}
	return least
}

// rest takes what has nothing left out of the turns.
func (l *lane) rest(b *batch) {
	if b.len() == 0 {
		b.crew.turns.leave(&b.turn)
	}
	if b.crew.queued == 0 {
		l.turns.leave(&b.crew.turn)
	}
}

// tidy forgets who has nothing queued and nothing to make up for.
func (l *lane) tidy() {
	for s, c := range l.crews {
		for f, b := range c.batches {
			if c.turns.even(&b.turn) && !b.listed {
				delete(c.batches, f)
			}
		}
		if len(c.batches) == 0 && l.turns.even(&c.turn) {
			delete(l.crews, s)
		}
	}
}

// contended says whether more than one verification waits in the lane.
func (l *lane) contended() bool {
	return len(l.turns.list) > 1 || len(l.turns.list) == 1 && len(l.turns.list[0].of.turns.list) > 1
}

// rank is the place of the lane in the line for RCPTs: that of whom pop serves next.
func (l *lane) rank() rank {
	c := l.least()
	return rank{c.space.asking.had, c.least().file.asking.had}
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

// purge takes the probes that nobody wants asked out of the queues and tells drop how many
// of a verification these were.
func (l *lane) purge(drop func(f *file, n int)) {
	for _, c := range l.crews {
		for f, b := range c.batches {
			n := b.purge()
			c.queued -= n
			l.queued -= n
			l.rest(b)
			if n > 0 {
				drop(f, n)
			}
		}
	}
}

// purge takes out the probes that nobody wants asked and tells how many these were.
func (m *mixed) purge() (dropped int) {
	for range m.again.len() {
		if p := m.again.pop(); p.chunk.gone() {
			p.chunk.open--
			dropped++
		} else {
			m.again.push(p)
		}
	}
	for _, part := range [...]*fifo[queued]{&m.fine, &m.odd} {
		for range part.len() {
			if one := part.pop(); one.probe.chunk.gone() {
				one.probe.chunk.open--
				dropped++
			} else {
				part.push(one)
			}
		}
	}
	return dropped
}
