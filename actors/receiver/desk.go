package receiver

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// step is one thing that the shell has to do.
type step any

// send gives a message to a client.
type send struct {
	to  client
	msg proto.Message
}

// openSession dials a candidate.
type openSession struct {
	id     int
	source *egress.Source
	host   *candidate
	tls    smtp.TLSMode
	turn   uint64 // under which that is permitted
	socket *socket
}

// askProbes gives probes to an open session.
type askProbes struct {
	id             int
	after          time.Duration // to wait first
	probes         []*probe
	perTransaction int
	refusedMax     int
	pipelining     bool
	depth          int    // of a group of RCPTs; 0: not bounded
	rested         bool   // the session was idle for long: it may be gone
	turn           uint64 // under which that is permitted
}

// quitSession ends a session politely.
type quitSession struct{ id int }

// dropSession forgets a session that is over.
type dropSession struct{ id int }

// knowFact asks for what is known of a receiver.
type knowFact struct{ key string }

// keepFact keeps what was learned of a receiver.
type keepFact struct{ fact state.Fact }

// session is what the desk knows of one SMTP session.
type session struct {
	id      int
	lane    *lane
	name    *flow // in whose name it was opened
	dialled time.Time
	beside  int // sessions that were open with its host when it was dialled
	host    *candidate
	outlet  *outlet
	tls     smtp.TLSMode // as it was opened
	socket  *socket
	ready   bool // open, as far as we know
	closing bool
	doomed  bool      // it ends when it has nothing to do, whatever waits
	halted  bool      // it was told to give back what it has not asked
	given   []*probe  // that it is asking
	at      time.Time // when they were given
	day     int64     // of their source, which counts them
	rcpts   int       // sent
	told    int       // answered with anything but 421
	greyed  int       // of these, put off as by greylisting
	refused int
	errors  int       // answers that were no acceptance, but for greylisting
	slow    bool      // a refusal took far longer than the others
	agreed  bool      // the receiver ended it after as many answers as the one before
	void    time.Time // what was answered later counts for nothing; zero: all counts
	opened  time.Time // when it was dialled, then when it was ready
	idle    time.Time // since when it has nothing to do

	encrypted bool // as far as its answers tell
}

// sent is since when it may have sent what it is blamed for: when it was given something,
// or, when it never was, since it was opened.
func (s *session) sent() time.Time {
	if s.at.IsZero() {
		return s.opened
	}
	return s.at
}

// stage is how far the session has come.
func (s *session) stage() smtp.Stage {
	if s.ready {
		return smtp.StageRcpt
	}
	return smtp.StageConnect
}

// desk decides what one receiver is asked, by whom, and when. It is plain Go:
// times come in, steps go out. Mailbox only.
type desk struct {
	options Options
	key     string
	seat    *seat

	turn      uint64          // of the standing that was last looked at
	share     part            // that is used; none while we are fenced
	allowance throttle.Limits // as it was last permitted
	allowed   throttle.Limits // the same before shares and lessons
	learned   learned
	software  throttle.Software // that counts refusals in a session only; its zero value: not known
	dials     *throttle.Window
	rcpts     *throttle.Window // in times of sending, which are lead behind those of giving
	outlets   []*outlet        // our sources, in the order in which this receiver gets to know them
	replies   turnaround
	openings  turnaround
	lead      lead

	lanes    map[string]*lane
	manned   []*lane               // lanes with sessions
	aside    fairqueue.FIFO[aside] // lanes that cannot have a session yet, though their hosts are well
	sessions map[int]*session
	free     []*session // ready and with nothing to do, longest first
	closing  int        // sessions that say QUIT
	nextID   int
	pressed  bool  // a lane has no session, and none more may be opened
	small    *flow // in whose name, if little of it was asked yet
	hopeful  bool  // probes wait for the RCPT rate only
	lacks    lacks // what kept the desk from asking more when it last looked
	held     held  // and of late

	tasks    tasks
	unsent   fairqueue.FIFO[*chunk] // with answers to send, oldest answer first
	finished []*chunk               // of these, all probes are answered

	known    bool           // what others learned of the receiver has been read, or given up
	asked    time.Time      // when that was asked for; zero: not yet
	restored *restored      // what was read of hosts; nil: nothing
	others   []state.Source // what was read of the sources of other nodes
	othersAt time.Time
	dirty    bool      // something was learned and not noted
	noted    time.Time // when something was noted last
	emptied  bool      // something was forgotten: nothing is worth noting too, in place of it

	suspects      []*suspect             // that are looked at again here
	parkedDomains map[string]*heldDomain // that let others go first
	odd           oddOnes
	beliefs       []belief // the newest causes that were believed, oldest first
	opening       openings
	rand          *rand.Rand // for waits that should not all end at once

	leaving bool // the place has moved
	leaveBy time.Time
	gone    bool // the last step was taken

	paused   time.Time // nothing is asked before
	pausedAt time.Time // since when
	pauses   int       // in a row, without an answer about an address between them
	excuse   verdictOf // what probes are told while paused
	steps    []step
	now      time.Time // of the newest plan
	wake     time.Time // earliest reason to plan again
	swept    time.Time
	lastUsed time.Time
	status   deskStatus
}

func newDesk(key string, o Options, now time.Time) *desk {
	o.bindSources()
	s := o.Living.enter(key, o.Allow)
	stand := s.now.Load()
	a := stand.of(o.Allow(key))
	d := &desk{
		options: o, key: key, seat: s, turn: stand.turn, share: stand.part, allowance: a,
		dials: throttle.NewWindow(a.ConnectionRate, now), rcpts: throttle.NewWindow(a.RcptRate, now),
		outlets: outletsOf(key, o.Sources, a),
		lanes:   map[string]*lane{}, sessions: map[int]*session{}, tasks: newTasks(o.Weight),
		swept: now, lastUsed: now, parkedDomains: map[string]*heldDomain{},
		rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	}
	d.opening.begin(d.bounds(o.Allow(key)), a.ConnectionRate, now)
	d.tune(now, o.Allow(key))
	d.keepTrials()
	return d
}

// offer takes a chunk, or says why not.
func (d *desk) offer(now time.Time, from client, m *wire.Offer) {
	d.lastUsed = now
	if d.leaving {
		d.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_DRAINING})
		return
	}
	t := d.tasks.claim(m.GetTask().Key(), m.GetTask().GetEpoch(), from)
	if t == nil {
		d.options.Metrics.stale.Inc()
		d.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_STALE_EPOCH})
		return
	}
	t.listen(now)
	t.space, _ = uuid.FromBytes(m.GetWorkspace()) // none: that of nobody
	if len(m.GetProbes()) == 0 {                  // it only says what is behind
		d.tasks.tell(t, behindOf(now, m))
		d.tasks.rest(now, t)
		return
	}
	refusal, waiting := wire.Refusal_NONE, behindOf(now, m)
	switch {
	case t.knows(now, m.GetChunk()): // a late copy
		d.options.Metrics.doubled.Inc()
	case !usable(m) || !d.tasks.room(t, len(m.GetProbes())):
		refusal = wire.Refusal_FULL
		waiting.n += len(m.GetProbes())
	default:
		d.accept(now, t, m)
	}
	d.tasks.tell(t, waiting)
	d.tasks.rest(now, t)
	d.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: refusal,
		Credit: d.tasks.credit(t)})
}

// behindOf is what an offer says of those that wait where it comes from.
func behindOf(now time.Time, m *wire.Offer) behind {
	return behind{n: int(m.GetBehind()), at: now,
		since: now.Add(-time.Duration(max(0, m.GetWaitingMs())) * time.Millisecond)}
}

// usable says whether an offer has hosts with addresses and a bearable size.
func usable(m *wire.Offer) bool {
	return len(m.GetProbes()) > 0 && len(m.GetProbes()) <= wire.AddressesMax && reachable(m.GetHosts())
}

// reachable says whether one of the hosts has an address.
func reachable(hosts []*wire.Host) bool {
	for _, h := range hosts {
		if len(h.Addresses()) > 0 {
			return true
		}
	}
	return false
}

func (d *desk) accept(now time.Time, t *task, m *wire.Offer) {
	c := &chunk{task: t, number: m.GetChunk(), named: m.GetTask(),
		deadline: wire.Until(now, m.GetExpiresInMs()), open: len(m.GetProbes()), offered: now}
	t.chunks = append(t.chunks, c)
	t.pulsed = now
	d.tasks.busy[t] = struct{}{}
	l := d.lane(now, m.GetHosts())
	for _, p := range m.GetProbes() {
		c.control = c.control || p.GetOrdinal() == wire.ControlOrdinal
		one := &probe{chunk: c, ordinal: p.GetOrdinal(), hosts: m.GetHosts(), all: len(m.GetHosts()),
			address: smtp.Address{Local: p.GetLocal(), Domain: t.key.Domain}, offered: now}
		one.greyAgo, one.greyFrom, _ = p.Greylisted()
		if one.greyAgo > 0 {
			l.greyed = later(l.greyed, now.Add(-one.greyAgo))
		}
		if !d.hand(now, one) {
			d.push(l, one)
		}
	}
}

// lane gives the lane of a set of hosts.
func (d *desk) lane(now time.Time, hosts []*wire.Host) *lane {
	key := laneKey(hosts)
	l := d.lanes[key]
	if l == nil {
		l = newLane(d.tasks.queue.NewHostQueue(key), hosts)
		d.lanes[key] = l
		d.remind(now, l)
		return l
	}
	l.learn(hosts)
	return l
}

func (d *desk) push(l *lane, p *probe) {
	if p.chunk.gone() || d.leaving {
		p.chunk.open--
		d.tasks.stale = d.tasks.stale || p.chunk.shed // it may be done: purge forgets it
		return
	}
	if known := d.lanes[l.Key()]; known == nil { // it was forgotten while the probe was put by
		d.lanes[l.Key()] = l
	} else {
		l = known
	}
	f := d.tasks.flow(p.chunk.task)
	class := fairqueue.ClassOf(p.address.Local)
	if p.suspect != nil { // it is looked at again
		class = fairqueue.First
	}
	l.Push(f, p, class)
	if l.Sessions() > 0 {
		d.interrupt(f, l)
	}
}

func (d *desk) pop(l *lane) *probe {
	p, _ := l.Pop()
	return p
}

// occupy gives a lane one more session, in the name of a flow.
func (d *desk) occupy(l *lane, f *flow) {
	if l.Opened(f); l.Sessions() == 1 {
		d.manned = append(d.manned, l)
	}
}

// vacate takes a session from its lane, and books how long it was there.
func (d *desk) vacate(s *session) {
	s.lane.Closed(s.name, d.now.Sub(s.dialled).Seconds()/turnFor.Seconds())
	if s.lane.Sessions() == 0 {
		d.manned = slices.DeleteFunc(d.manned, func(o *lane) bool { return o == s.lane })
	}
}

func (d *desk) emit(to client, msg proto.Message) {
	d.steps = append(d.steps, send{to: to, msg: msg})
}

// cancel drops what a task has waiting, unless an older owner asks for it.
func (d *desk) cancel(now time.Time, m *wire.Cancel) {
	if t := d.tasks.all[m.GetTask().Key()]; t != nil && m.GetTask().GetEpoch() >= t.epoch {
		d.tasks.drop(t)
		d.tasks.rest(now, t)
	}
}

// acked forgets results that have arrived.
func (d *desk) acked(now time.Time, m *wire.ResultsAck) {
	t := d.tasks.all[m.GetTask().Key()]
	if t == nil || t.epoch != m.GetTask().GetEpoch() {
		return
	}
	c := t.find(m.GetChunk())
	if c == nil {
		return
	}
	for i, r := range c.sent {
		if r.GetBatch() == m.GetBatch() {
			c.sent = append(c.sent[:i], c.sent[i+1:]...)
			c.heard = now
			break
		}
	}
	t.listen(now)
	if c.done() {
		d.tasks.forget(now, c)
	}
}

// idleSince says since when the desk has had nothing at all to do; false while it has.
func (d *desk) idleSince() (time.Time, bool) {
	return d.lastUsed, len(d.tasks.busy) == 0 && len(d.sessions) == 0 && d.tasks.queue.Queued() == 0 &&
		len(d.suspects) == 0
}
