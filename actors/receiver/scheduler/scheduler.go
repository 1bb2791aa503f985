package scheduler

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/state"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// Scheduler decides what one receiver is asked, by whom, and when. It is plain Go:
// times come in, steps go out. Each part knows only the parts above it. Mailbox only.
type Scheduler struct {
	*env
	allowance *allowance
	recorder  *recorder
	sessions  *sessions
	paths     *paths
	queues    *queues
	opening   *openings
	memory    *memory
	explainer *explainer

	swept     time.Time // when what only time demands was done last
	lastUsed  time.Time
	handOffBy time.Time
	gone      bool // the last step was taken
}

// New makes the scheduler of the receiver that a handle names.
func New(h *registry.Handle, o Options, now time.Time) *Scheduler {
	o.Bind()
	e := &env{options: o, key: h.Key, rand: randOf(h.Key, now), fair: fairqueue.New[*Probe](o.Weight)}
	sc := &Scheduler{env: e, swept: now, lastUsed: now}
	sc.allowance = newAllowance(e, h, now)
	sc.recorder = &recorder{env: e, allowance: sc.allowance}
	sc.paths = newPaths(e, sc.allowance, now)
	sc.queues = &queues{env: e, inbox: inbox{env: e, tasks: newTasks(e.fair)}, paths: sc.paths, all: map[string]*hostQueue{},
		parked: map[string]*heldDomain{}}
	sc.opening = &openings{env: e, allowance: sc.allowance}
	sc.opening.beginSearch(now)
	sc.sessions = &sessions{env: e, allowance: sc.allowance, opening: sc.opening, paths: sc.paths, queues: sc.queues,
		all: map[int]*session{}}
	sc.memory = &memory{env: e, allowance: sc.allowance, sessions: sc.sessions, paths: sc.paths, queues: sc.queues,
		opening: sc.opening}
	sc.explainer = &explainer{env: e, allowance: sc.allowance, recorder: sc.recorder, sessions: sc.sessions,
		paths: sc.paths, queues: sc.queues,
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
// a receiver has moved. A share that is given up is enforced by ApplyShares, which may
// be sooner.
const leaveWithin = registry.HardAfter

// Offer takes a chunk, or says why not.
func (sc *Scheduler) Offer(now time.Time, from Client, m *wire.Offer) {
	sc.lastUsed = now
	if sc.handingOff {
		sc.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_DRAINING})
		return
	}
	t := sc.queues.tasks.claim(m.GetTask().Key(), m.GetTask().GetEpoch(), from)
	if t == nil {
		sc.options.Metrics.stale.Inc()
		sc.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_STALE_EPOCH})
		return
	}
	t.listen(now)
	t.belongTo(m.GetWorkspace())
	if len(m.GetProbes()) == 0 { // it only says what is behind
		sc.queues.tasks.tell(t, behindOf(now, m))
		sc.queues.tasks.rest(now, t)
		return
	}
	refusal, waiting := wire.Refusal_NONE, behindOf(now, m)
	switch {
	case t.knows(now, m.GetChunk()): // a late copy
		sc.options.Metrics.doubled.Inc()
	case !usable(m) || !sc.queues.tasks.room(t, len(m.GetProbes()), m.Retries()):
		refusal = wire.Refusal_FULL
		waiting.n += len(m.GetProbes())
	default:
		sc.acceptOffer(now, t, m)
	}
	sc.queues.tasks.tell(t, waiting)
	sc.queues.tasks.rest(now, t)
	sc.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: refusal,
		Credit: sc.queues.tasks.credit(t)})
}

// probesPage is how many probes are made at once. One that waits keeps the others of its page in memory.
const probesPage = 32

func (sc *Scheduler) acceptOffer(now time.Time, t *task, m *wire.Offer) {
	c := &chunk{task: t, number: m.GetChunk(), named: m.GetTask(),
		deadline: wire.Until(now, m.GetExpiresInMs()), open: len(m.GetProbes()), offered: now,
		retries: m.Retries()}
	t.chunks = append(t.chunks, c)
	t.beatAt = now
	sc.queues.tasks.busy[t] = struct{}{}
	l := sc.queues.hostQueue(now, m.GetHosts())
	sc.queues.tasks.moveTo(t, l)
	var page []Probe
	for i, p := range m.GetProbes() {
		c.control = c.control || p.GetOrdinal() == wire.ControlOrdinal
		if i%probesPage == 0 {
			page = make([]Probe, min(probesPage, len(m.GetProbes())-i))
		}
		one := &page[i%probesPage]
		*one = Probe{chunk: c, ordinal: p.GetOrdinal(), hosts: m.GetHosts(), all: len(m.GetHosts()),
			retry: p.GetRetry(), asked: p.GetAsked(), Address: smtp.Address{Local: p.GetLocal(), Domain: t.key.Domain}, offered: now}
		one.greyAgo, one.greyFrom, _ = p.Greylisted()
		if one.greyAgo > 0 {
			l.greyed = later(l.greyed, now.Add(-one.greyAgo))
		}
		if !sc.queues.handOver(now, one) {
			sc.queues.pushProbe(l, one)
		}
	}
}

// IdleSince says since when the scheduler has had nothing at all to do; false while it has.
func (sc *Scheduler) IdleSince() (time.Time, bool) {
	return sc.lastUsed, len(sc.queues.tasks.busy) == 0 && len(sc.sessions.all) == 0 && sc.fair.Queued() == 0 &&
		len(sc.queues.waiting) == 0
}

// HasWork reports whether something waits, is being asked, or was answered and not acknowledged. Open
// sessions alone are no work.
func (sc *Scheduler) HasWork() bool {
	if len(sc.queues.tasks.busy) > 0 || sc.fair.Queued() > 0 || len(sc.queues.waiting) > 0 {
		return true
	}
	for _, s := range sc.sessions.all {
		if len(s.given) > 0 || !s.ready {
			return true
		}
	}
	return false
}

// fenceEvery is how soon it is looked again whether we may speak: a fence ends with the first answer of the ledger.
const fenceEvery = time.Second

// keepRates keeps the rate of every source, and its Window, to what is allowed now.
func (sc *Scheduler) keepRates(now time.Time, whole throttle.Limits) {
	b := sc.allowance.rateBounds(whole)
	sc.opening.keepRate(b, whole.ConnectionRate, sc.limits.ConnectionRate, now)
	for _, o := range sc.paths.all {
		o.pace.Set(b, now)
		rate, until := o.pace.Permits(now)
		if o.rcpts.Set(rate); now.Before(until) {
			sc.wakeAt(until)
		}
	}
}

// HandOff begins the end of a scheduler whose place has moved: nothing is begun any
// more, what waits is the clients' again, and what is on the wire is still answered.
// Sessions give the rest of what they were given back, so that there is time for QUIT.
func (sc *Scheduler) HandOff(now time.Time) {
	if sc.handingOff {
		return
	}
	sc.queues.letGo(now)
	sc.handingOff, sc.handOffBy = true, now.Add(sc.options.Stretched(leaveWithin))
	sc.sessions.haltSessions(func(*session) bool { return true })
	for _, l := range sc.queues.all {
		for l.Queued() > 0 {
			sc.queues.popProbe(l).chunk.open--
		}
	}
}

// planHandOff decides what to do now on the way out.
func (sc *Scheduler) planHandOff(now time.Time) ([]Step, time.Time) {
	for _, s := range sc.sessions.free {
		sc.sessions.quitSession(s)
	}
	sc.sessions.free = nil
	over := len(sc.sessions.all) == 0 || !now.Before(sc.handOffBy)
	for t := range sc.queues.tasks.busy {
		if over || t.open() == 0 {
			sc.queues.releaseClient(now, t)
		}
	}
	if over && !sc.gone {
		sc.gone = true
		sc.steps = append(sc.steps, sc.lastStep(now))
	}
	steps, wake := sc.steps, sc.handOffBy
	sc.steps = nil
	if sc.gone {
		wake = time.Time{}
	}
	return steps, wake
}

// lastStep is the last step of all.
func (sc *Scheduler) lastStep(now time.Time) Depart {
	last := Depart{InTime: len(sc.sessions.all) == 0}
	if sc.options.Facts != nil && sc.dirty {
		if fact, worth := sc.memory.snapshot(now); worth {
			last.Fact = &fact
		}
	}
	return last
}

// ReleaseClients is what all clients are told when the actor ends at once.
func (sc *Scheduler) ReleaseClients(now time.Time) []Step {
	sc.steps = nil
	for t := range sc.queues.tasks.busy {
		sc.queues.releaseClient(now, t)
	}
	return sc.steps
}

// Plan decides what to do now. It returns the steps and the time to plan again
// if nothing happens before; zero: never.
func (sc *Scheduler) Plan(now time.Time) ([]Step, time.Time) {
	sc.wake, sc.now = time.Time{}, now
	if sc.handingOff {
		return sc.planHandOff(now)
	}
	a := sc.takeAllowance(now)
	sc.sessions.carryOutHalts()
	known := sc.memory.askKnown(now, sc.allowance.share)
	muted := sc.paths.sourcesUnavailable(now)
	sc.wakeAt(muted.Until)
	barred, resting := nothingAllowed(a) || !known || a.Pause == throttle.PauseYes, now.Before(sc.paths.receiver.until)
	isLong := sc.paths.receiver.until.Sub(sc.paths.receiver.since) > shortRest
	if resting && isLong && a.Pause != throttle.PauseYes { // a pause by us tells nobody
		sc.queues.tellWaiting(now)
		sc.wakeAt(sc.paths.receiver.until)
	}
	sc.sessions.blocks = blocksNow{}
	v := sc.allowance.view(now)
	sc.queues.readmit(now)
	sc.sessions.tendFree(&v, resting || barred)
	sc.sessions.pressed, sc.sessions.small, sc.sessions.slotless = false, nil, false
	if !resting && !barred && muted.Free() && a.Pause != throttle.PauseDrain {
		sc.sessions.openSessions(&v)
	}
	for _, step := range sc.steps {
		if _, dialled := step.(OpenSession); dialled {
			sc.recorder.recordDial(now)
		}
	}
	sc.sessions.lately.note(now, sc.sessions.blocks)
	sc.queues.flushAnswers(now)
	sc.doTimely(now)
	sc.memory.keepSnapshot(now, false)
	if _, idle := sc.IdleSince(); !idle {
		sc.lastUsed = now
	}
	if st := &sc.recorder.record; !st.observed.IsZero() {
		sc.queues.passBarren(now, st.cause, now.Sub(st.observed), len(sc.sessions.all) == 0 && !sc.sessions.slotless)
	}
	sc.explainer.observePlan(now)
	steps := sc.steps
	sc.steps = nil
	return steps, sc.wake
}

// takeAllowance gives what is allowed here now: our share of the allowance, less what
// was learned. Others may have used what a share grew by until just now; a Window
// that is raised, or new, bears that in mind.
func (sc *Scheduler) takeAllowance(now time.Time) throttle.Limits {
	stand := sc.allowance.handle.Share()
	sc.allowance.version, sc.allowance.share = stand.Version, stand.Fraction
	if sc.options.Fenced() {
		sc.allowance.share = registry.Fraction{K: 0, N: 1}
		sc.wakeAt(now.Add(sc.options.Stretched(fenceEvery)))
	}
	allowed := sc.allowance.allowedWhole()
	sc.allowance.noteRaised(allowed, now)
	whole := sc.allowance.learned.Apply(allowed, sc.opening.failedAt.IsZero(), now)
	a := sc.allowance.share.Of(whole)
	if a != sc.limits {
		if a.Pause == throttle.PauseYes && sc.limits.Pause != a.Pause {
			sc.halt(Halt{})
		}
		sc.limits = a
		sc.allowance.dials.Set(a.ConnectionRate)
		sc.allowance.rcpts.Set(a.RcptRate)
		sc.paths.setRefusalBudgets(a)
	}
	sc.paths.readSourcePauses()
	sc.keepRates(now, whole)
	return a
}

// doTimely does what only time demands: heartbeats, results sent again, old memories.
func (sc *Scheduler) doTimely(now time.Time) {
	every := sc.options.Stretched(heartbeatEvery)
	if now.Sub(sc.swept) < every {
		if len(sc.queues.tasks.busy) > 0 || sc.queues.tasks.stale || len(sc.queues.tasks.waiters) > 0 {
			sc.wakeAt(sc.swept.Add(every))
		}
		sc.queues.tasks.wakeToSweep(sc.env, sc.swept.Add(every))
		return
	}
	sc.swept = now
	for t := range sc.queues.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			sc.queues.resendAnswers(now, c)
		}
		if t.silent(now) {
			sc.queues.shedTask(t)
		}
		if len(t.chunks) > 0 && now.Sub(t.beatAt) >= every {
			sc.explainer.sendHeartbeat(now, t)
		}
	}
	sc.queues.tasks.sweep(now)
	sc.queues.purgeGone(now)
	sc.fair.Sweep(now)
	sc.queues.dropUnused(now)
	if len(sc.queues.tasks.busy) > 0 || len(sc.queues.tasks.waiters) > 0 {
		sc.wakeAt(now.Add(every))
	}
	sc.queues.tasks.wakeToSweep(sc.env, now.Add(every))
}

// randOf is drawn from a receiver and the time when it began: the same trials lead to the same decisions.
func randOf(key string, now time.Time) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(now.UnixNano())))
}

// Key names the receiver.
func (sc *Scheduler) Key() string { return sc.key }

// NotePause gives up all that waits, after a pause of the process: others may have taken it over. Who
// offered it hears that it is not here any more and offers it again. Sessions stay.
func (sc *Scheduler) NotePause() {
	for t := range sc.queues.tasks.busy {
		sc.queues.shedTask(t)
	}
}

// Acked forgets results that have arrived.
func (sc *Scheduler) Acked(now time.Time, m *wire.ResultsAck) { sc.queues.takeAck(now, m) }

// Cancel drops what a task has waiting, or gives it back, unless an older owner asks for it.
func (sc *Scheduler) Cancel(now time.Time, m *wire.Cancel) {
	if m.GetGiveBack() {
		sc.queues.returnTask(now, m)
		return
	}
	sc.queues.cancelTask(now, m)
}

// LoseClients gives up what waits for the clients at an address that is out of reach.
func (sc *Scheduler) LoseClients(address string) { sc.queues.shedLost(address) }

// CloseSession lets a session end after what is on the wire, and reports whether there is one.
func (sc *Scheduler) CloseSession(id int) bool { return sc.sessions.closeSession(id) }

// Slots are the connections of the sessions, by the numbers of these.
func (sc *Scheduler) Slots() iter.Seq2[int, *registry.ConnSlot] {
	return func(yield func(int, *registry.ConnSlot) bool) {
		for id, s := range sc.sessions.all {
			if !yield(id, s.slot) {
				return
			}
		}
	}
}

// Recall takes what is known of the receiver from before; nil: nothing is.
func (sc *Scheduler) Recall(now time.Time, data []byte) { sc.memory.recallSnapshot(now, data) }

// Unsaved gives what was learned and is worth keeping, if it was not given as a step yet.
func (sc *Scheduler) Unsaved(now time.Time) (state.Fact, bool) {
	if sc.gone || !sc.dirty {
		return state.Fact{}, false
	}
	return sc.memory.snapshot(now)
}

// Forget drops what the receiver taught us, and says each thing that is dropped in a sentence:
// what is ForgetPace, ForgetSessions, ForgetBlock or ForgetAll.
func (sc *Scheduler) Forget(now time.Time, what string) []string {
	return sc.memory.forgetLearned(now, what)
}

// Status says what the receiver does now.
func (sc *Scheduler) Status(now time.Time) inspect.Receiver { return sc.explainer.status(now) }

// Detail says everything about the receiver.
func (sc *Scheduler) Detail(now time.Time) inspect.ReceiverDetail { return sc.explainer.detail(now) }

// HandingOff reports whether the receiver moves to another node.
func (sc *Scheduler) HandingOff() bool { return sc.handingOff }

// HasNoShare reports whether nothing may be asked here, because our share is too small.
func (sc *Scheduler) HasNoShare() bool { return nothingAllowed(sc.limits) }

// Close takes the receiver out of what is told of its node.
func (sc *Scheduler) Close(now time.Time) {
	sc.recorder.closeRecord(now)
}
