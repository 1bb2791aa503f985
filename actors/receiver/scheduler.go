package receiver

import (
	"math/rand/v2"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
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
// times come in, steps go out. Each part knows only the parts above it. Mailbox only.
type desk struct {
	*env
	allowance  *allowance
	recorder   *recorder
	inbox      *inbox
	pool       *pool
	paths      *paths
	queues     *queues
	penalties  *penalties
	suspicions *suspicions
	opening    *openings
	outcomes   *outcomes
	planner    *planner
	memory     *memory
	explainer  *explainer

	swept    time.Time // when what only time demands was done last
	lastUsed time.Time
	leaveBy  time.Time
	gone     bool // the last step was taken
}

func newDesk(key string, o Options, now time.Time) *desk {
	o.bindSources()
	e := &env{options: o, key: key, rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	sc := &desk{env: e, swept: now, lastUsed: now}
	sc.allowance = newAllowance(e, now)
	sc.recorder = &recorder{env: e, allowance: sc.allowance}
	sc.inbox = &inbox{env: e, tasks: newTasks(o.Weight)}
	sc.pool = &pool{env: e, inbox: sc.inbox, sessions: map[int]*session{}}
	sc.paths = newPaths(e, sc.allowance, sc.inbox, sc.pool, now)
	sc.queues = &queues{env: e, inbox: sc.inbox, pool: sc.pool, paths: sc.paths, lanes: map[string]*lane{}}
	sc.penalties = &penalties{env: e, allowance: sc.allowance, inbox: sc.inbox, pool: sc.pool, paths: sc.paths,
		queues: sc.queues}
	sc.suspicions = &suspicions{env: e, inbox: sc.inbox, paths: sc.paths, queues: sc.queues, penalties: sc.penalties,
		parkedDomains: map[string]*heldDomain{}}
	sc.opening = &openings{env: e, allowance: sc.allowance, pool: sc.pool, paths: sc.paths, penalties: sc.penalties,
		suspicions: sc.suspicions}
	sc.opening.begin(now)
	sc.outcomes = &outcomes{env: e, allowance: sc.allowance, recorder: sc.recorder, inbox: sc.inbox, pool: sc.pool,
		paths: sc.paths, queues: sc.queues, penalties: sc.penalties, suspicions: sc.suspicions, opening: sc.opening}
	sc.planner = &planner{env: e, allowance: sc.allowance, recorder: sc.recorder, inbox: sc.inbox, pool: sc.pool,
		paths: sc.paths, queues: sc.queues, suspicions: sc.suspicions, opening: sc.opening}
	sc.memory = &memory{env: e, allowance: sc.allowance, pool: sc.pool, paths: sc.paths, queues: sc.queues,
		penalties: sc.penalties, opening: sc.opening}
	sc.explainer = &explainer{env: e, allowance: sc.allowance, recorder: sc.recorder, inbox: sc.inbox, pool: sc.pool,
		paths: sc.paths, queues: sc.queues, penalties: sc.penalties, suspicions: sc.suspicions, planner: sc.planner,
		memory: sc.memory}
	return sc
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

// leaveWithin is how long sessions may end what they are asking when the place of
// a receiver has moved. A share that is given up is enforced by Comply, which may
// be sooner.
const leaveWithin = hardAfter

// depart ends the actor: all that could be told has been told.
type depart struct {
	fact   *state.Fact // to be kept before; nil: nothing
	inTime bool        // every session has ended by itself
}

// offer takes a chunk, or says why not.
func (sc *desk) offer(now time.Time, from client, m *wire.Offer) {
	sc.lastUsed = now
	if sc.leaving {
		sc.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_DRAINING})
		return
	}
	t := sc.inbox.tasks.claim(m.GetTask().Key(), m.GetTask().GetEpoch(), from)
	if t == nil {
		sc.options.Metrics.stale.Inc()
		sc.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_STALE_EPOCH})
		return
	}
	t.listen(now)
	t.space, _ = uuid.FromBytes(m.GetWorkspace()) // none: that of nobody
	if len(m.GetProbes()) == 0 {                  // it only says what is behind
		sc.inbox.tasks.tell(t, behindOf(now, m))
		sc.inbox.tasks.rest(now, t)
		return
	}
	refusal, waiting := wire.Refusal_NONE, behindOf(now, m)
	switch {
	case t.knows(now, m.GetChunk()): // a late copy
		sc.options.Metrics.doubled.Inc()
	case !usable(m) || !sc.inbox.tasks.room(t, len(m.GetProbes())):
		refusal = wire.Refusal_FULL
		waiting.n += len(m.GetProbes())
	default:
		sc.accept(now, t, m)
	}
	sc.inbox.tasks.tell(t, waiting)
	sc.inbox.tasks.rest(now, t)
	sc.emit(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: refusal,
		Credit: sc.inbox.tasks.credit(t)})
}

func (sc *desk) accept(now time.Time, t *task, m *wire.Offer) {
	c := &chunk{task: t, number: m.GetChunk(), named: m.GetTask(),
		deadline: wire.Until(now, m.GetExpiresInMs()), open: len(m.GetProbes()), offered: now}
	t.chunks = append(t.chunks, c)
	t.pulsed = now
	sc.inbox.tasks.busy[t] = struct{}{}
	l := sc.queues.lane(now, m.GetHosts())
	for _, p := range m.GetProbes() {
		c.control = c.control || p.GetOrdinal() == wire.ControlOrdinal
		one := &probe{chunk: c, ordinal: p.GetOrdinal(), hosts: m.GetHosts(), all: len(m.GetHosts()),
			address: smtp.Address{Local: p.GetLocal(), Domain: t.key.Domain}, offered: now}
		one.greyAgo, one.greyFrom, _ = p.Greylisted()
		if one.greyAgo > 0 {
			l.greyed = later(l.greyed, now.Add(-one.greyAgo))
		}
		if !sc.inbox.hand(now, one) {
			sc.queues.push(l, one)
		}
	}
}

// idleSince says since when the desk has had nothing at all to do; false while it has.
func (sc *desk) idleSince() (time.Time, bool) {
	return sc.lastUsed, len(sc.inbox.tasks.busy) == 0 && len(sc.pool.sessions) == 0 && sc.inbox.tasks.queue.Queued() == 0 &&
		len(sc.suspicions.suspects) == 0
}

// conduct keeps the tempo of every source, and its Window, to what is allowed now.
func (sc *desk) conduct(now time.Time, whole throttle.Limits) {
	b := sc.allowance.bounds(whole)
	sc.at(sc.opening.conduct(b, whole.ConnectionRate, sc.allowance.limits.ConnectionRate, now))
	for _, o := range sc.paths.outlets {
		o.tempo.Set(b, now)
		rate, _ := o.tempo.Permits(now)
		o.rcpts.Set(rate)
		sc.at(o.tempo.Next(now))
	}
}

// giveWay begins the end of a desk whose place has moved: nothing is begun any
// more, what waits is the clients' again, and what is on the wire is still answered.
func (sc *desk) giveWay(now time.Time) {
	if sc.leaving {
		return
	}
	sc.suspicions.letGo(now)
	sc.leaving, sc.leaveBy = true, now.Add(sc.options.waits(leaveWithin))
	for _, l := range sc.queues.lanes {
		for l.Queued() > 0 {
			sc.queues.pop(l).chunk.open--
		}
	}
}

// planLeave decides what to do now on the way out.
func (sc *desk) planLeave(now time.Time) ([]step, time.Time) {
	for _, s := range sc.pool.free {
		sc.pool.quit(s)
	}
	sc.pool.free = nil
	over := len(sc.pool.sessions) == 0 || !now.Before(sc.leaveBy)
	for t := range sc.inbox.tasks.busy {
		if over || t.open() == 0 {
			sc.inbox.farewell(now, t)
		}
	}
	if over && !sc.gone {
		sc.gone = true
		sc.steps = append(sc.steps, sc.departure(now))
	}
	steps, wake := sc.steps, sc.leaveBy
	sc.steps = nil
	if sc.gone {
		wake = time.Time{}
	}
	return steps, wake
}

// departure is the last step of all.
func (sc *desk) departure(now time.Time) depart {
	last := depart{inTime: len(sc.pool.sessions) == 0}
	if sc.options.Facts != nil && sc.dirty {
		if fact, worth := sc.memory.note(now); worth {
			last.fact = &fact
		}
	}
	return last
}

// farewells is what all clients are told when the actor ends at once.
func (sc *desk) farewells(now time.Time) []step {
	sc.steps = nil
	for t := range sc.inbox.tasks.busy {
		sc.inbox.farewell(now, t)
	}
	return sc.steps
}

// plan decides what to do now. It returns the steps and the time to plan again
// if nothing happens before; zero: never.
func (sc *desk) plan(now time.Time) ([]step, time.Time) {
	sc.wake, sc.now = time.Time{}, now
	if sc.leaving {
		return sc.planLeave(now)
	}
	a := sc.permit(now)
	known := sc.memory.know(now, sc.allowance.share)
	muted := sc.paths.mute(now)
	sc.at(muted.Until)
	barred, resting := shut(a) || !known || a.Pause == throttle.PauseYes, now.Before(sc.penalties.paused)
	if resting && a.Pause != throttle.PauseYes && sc.penalties.paused.Sub(sc.penalties.pausedAt) > shortRest { // a pause by us tells nobody
		sc.penalties.tellAll(now)
		sc.at(sc.penalties.paused)
	}
	sc.planner.lacks = lacks{}
	sc.suspicions.readmitParked(now)
	sc.planner.tend(now, a, resting || barred)
	sc.planner.pressed, sc.planner.small = false, nil
	if !resting && !barred && muted.Free() && a.Pause != throttle.PauseDrain {
		sc.planner.open(now, a)
	}
	sc.planner.held.note(now, sc.planner.lacks)
	sc.inbox.flush(now)
	sc.sweep(now)
	sc.memory.remember(now, false)
	if _, idle := sc.idleSince(); !idle {
		sc.lastUsed = now
	}
	sc.explainer.observe(now)
	steps := sc.steps
	sc.steps = nil
	return steps, sc.wake
}

// permit gives what is allowed here now: our share of the allowance, less what
// was learned. Others may have used what a share grew by until just now; a Window
// that is raised, or new, bears that in mind.
func (sc *desk) permit(now time.Time) throttle.Limits {
	stand := sc.allowance.seat.now.Load()
	sc.allowance.turn, sc.allowance.share = stand.turn, stand.part
	if sc.options.Fenced() {
		sc.allowance.share = part{0, 1}
		sc.at(now.Add(sc.options.waits(fenceEvery)))
	}
	allowed := sc.allowance.allow()
	sc.allowance.raised(allowed, now)
	whole := sc.allowance.learned.apply(allowed, sc.opening.failedAt.IsZero(), now)
	a := sc.allowance.share.of(whole)
	if a != sc.allowance.limits {
		if a.Pause == throttle.PauseYes && sc.allowance.limits.Pause != a.Pause {
			sc.pool.halt(func(*session) bool { return true })
		}
		sc.allowance.limits = a
		sc.allowance.dials.Set(a.ConnectionRate)
		sc.allowance.rcpts.Set(a.RcptRate)
		sc.paths.setBudgets(a)
	}
	sc.paths.heed()
	sc.conduct(now, whole)
	return a
}

// sweep does what only time demands: pulses, results sent again, old memories.
func (sc *desk) sweep(now time.Time) {
	every := sc.options.waits(pulseEvery)
	if now.Sub(sc.swept) < every {
		if len(sc.inbox.tasks.busy) > 0 || sc.inbox.tasks.stale || len(sc.inbox.tasks.waiters) > 0 {
			sc.at(sc.swept.Add(every))
		}
		return
	}
	sc.swept = now
	for t := range sc.inbox.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			sc.inbox.resend(now, c)
		}
		if t.silent(now) {
			sc.inbox.shed(t)
		}
		if len(t.chunks) > 0 && now.Sub(t.pulsed) >= every {
			sc.explainer.pulse(now, t)
		}
	}
	sc.inbox.tasks.sweep(now)
	sc.queues.purge(now)
	sc.inbox.tasks.queue.Sweep(now)
	sc.queues.dropLanes(now)
	if len(sc.inbox.tasks.busy) > 0 || len(sc.inbox.tasks.waiters) > 0 {
		sc.at(now.Add(every))
	}
}
