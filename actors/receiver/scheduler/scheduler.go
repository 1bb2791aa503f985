package scheduler

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/smtp/throttle"
)

// Scheduler decides what one receiver is asked, by whom, and when. Scheduler is plain Go: times come in, steps go out.
// Scheduler connects the parts, which know little of one another. Used only from the mailbox.
type Scheduler struct {
	*env
	allowance *allowance
	recorder  *recorder
	sessions  *sessions
	paths     *paths
	queues    *queues
	opening   *openings
	memory    *memory

	facts     []Fact    // facts of the report under way
	swept     time.Time // when doTimely last ran
	lastUsed  time.Time
	handOffBy time.Time
	gone      bool // Depart was returned
}

// New makes the scheduler for a handle's receiver.
func New(h *registry.Handle, o Options, now time.Time) *Scheduler {
	o.Bind()
	e := &env{options: o, key: h.Key, rand: randOf(h.Key, now), fair: fairqueue.New[*Probe](o.Weight)}
	sc := &Scheduler{env: e, swept: now, lastUsed: now}
	sc.allowance = newAllowance(e, h, now)
	sc.recorder = &recorder{env: e, handle: h}
	sc.paths = newPaths(e, sc.allowance.rateBounds(o.Allow(e.key)), now)
	sc.queues = &queues{env: e, inbox: inbox{env: e, tasks: newTasks(e.fair)}, paths: sc.paths,
		all: map[string]*hostQueue{}, parked: map[string]*heldDomain{}}
	sc.opening = &openings{env: e, allowance: sc.allowance}
	sc.opening.beginSearch(now)
	sc.sessions = &sessions{env: e, allowance: sc.allowance, opening: sc.opening, paths: sc.paths, queues: sc.queues,
		all: map[int]*session{}}
	sc.memory = &memory{env: e}
	return sc
}

// Offer accepts a chunk, or refuses it with a reason.
func (sc *Scheduler) Offer(now time.Time, from Client, m *wire.Offer) {
	sc.lastUsed = now
	sc.queues.takeOffer(now, from, m)
}

// leaveWithin is how long sessions may take to finish when a receiver has moved to another node. If a share is lost,
// ApplyShares may end them sooner.
const leaveWithin = registry.HardAfter

// IdleSince returns since when the scheduler has nothing to do. False: it has work.
func (sc *Scheduler) IdleSince() (time.Time, bool) {
	return sc.lastUsed, len(sc.queues.tasks.busy) == 0 && len(sc.sessions.all) == 0 && sc.fair.Queued() == 0 &&
		len(sc.queues.waiting) == 0
}

// HasWork reports whether an address waits, is being asked, or has an unacknowledged answer. Idle sessions are no work.
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

// fenceEvery is how often we check whether a fence has ended. The ledger's next answer ends the fence.
const fenceEvery = time.Second

// keepRates adjusts each source's rate and Window to the present limits.
func (sc *Scheduler) keepRates(now time.Time, whole throttle.Limits) {
	b := sc.allowance.rateBounds(whole)
	sc.opening.keepRate(b, whole.ConnectionRate, sc.limits.ConnectionRate, now)
	for _, o := range sc.paths.all {
		o.pace.Set(b, now)
		rate, until := o.pace.Permits()
		if o.rcpts.Set(rate); now.Before(until) {
			sc.wakeAt(until)
		}
	}
}

// HandOff begins the end of a scheduler whose receiver has moved. The scheduler begins nothing new, returns waiting
// probes to their clients, and still answers probes on the wire. Sessions return their unasked probes, so that there is
// time for QUIT.
func (sc *Scheduler) HandOff(now time.Time) {
	if sc.handingOff {
		return
	}
	sc.queues.requeueAll(now)
	sc.handingOff, sc.handOffBy = true, now.Add(sc.options.Stretched(leaveWithin))
	sc.sessions.haltSessions(func(*session) bool { return true })
	for _, l := range sc.queues.all {
		for l.Queued() > 0 {
			sc.queues.popProbe(l).chunk.open--
		}
	}
}

// planHandOff is Plan after HandOff.
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
		last := Depart{}
		if fact, worth := sc.Unsaved(now); worth && sc.options.Facts != nil {
			last.Fact = &fact
		}
		sc.gone = true
		sc.steps = append(sc.steps, last)
	}
	steps, wake := sc.steps, sc.handOffBy
	sc.steps = nil
	if sc.gone {
		wake = time.Time{}
	}
	return steps, wake
}

// ReleaseClients returns the messages to all clients when the actor ends at once.
func (sc *Scheduler) ReleaseClients(now time.Time) []Step {
	sc.steps = nil
	for t := range sc.queues.tasks.busy {
		sc.queues.releaseClient(now, t)
	}
	return sc.steps
}

// Plan decides what to do now. Plan returns the steps, and when to plan again if nothing happens before; zero: never.
func (sc *Scheduler) Plan(now time.Time) ([]Step, time.Time) {
	sc.wake, sc.now = time.Time{}, now
	if sc.handingOff {
		return sc.planHandOff(now)
	}
	a := sc.takeAllowance(now)
	sc.sessions.carryOutHalts()
	hasShare := !sc.allowance.share.IsNone()
	if !hasShare {
		sc.keepSnapshot(now, true)
	}
	if lost := sc.memory.askKnown(now, hasShare); lost && len(sc.sessions.all) == 0 {
		sc.paths.beginAfterLoss(now)
	}
	muted := sc.paths.sourcesUnavailable(now)
	sc.wakeAt(muted.Until)
	pause := &sc.paths.receiver
	mayAsk := !now.Before(pause.until) && !nothingAllowed(a) && sc.memory.ready && a.Pause != throttle.PauseYes
	isLong := pause.until.Sub(pause.since) > shortPause
	if now.Before(pause.until) && isLong && a.Pause != throttle.PauseYes { // an operator's pause lets probes wait
		sc.queues.tellWaiting(now)
		sc.wakeAt(pause.until)
	}
	sc.queues.readmitWaiting(now)
	v := sc.allowance.makeView(now)
	sc.sessions.planSessions(&v, mayAsk, mayAsk && muted.Free() && a.Pause != throttle.PauseDrain)
	for _, step := range sc.steps {
		if _, dialled := step.(OpenSession); dialled {
			sc.recorder.recordDial(now)
		}
	}
	sc.queues.flushAnswers(now)
	sc.doTimely(now)
	sc.keepSnapshot(now, false)
	if _, idle := sc.IdleSince(); !idle {
		sc.lastUsed = now
	}
	if st := &sc.recorder.record; !st.observed.IsZero() {
		silent, nobody := 0, len(sc.sessions.all) == 0 && !sc.sessions.slotless
		if nobody && st.cause == wire.Cause_CONNECTIONS {
			silent, _ = sc.allowance.handle.Silent()
		}
		sc.queues.passBarren(now, st.cause, now.Sub(st.observed), nobody, silent > 0)
	}
	sc.observePlan(now)
	steps := sc.steps
	sc.steps = nil
	return steps, sc.wake
}

// takeAllowance applies and returns the limits in force: our share, lowered by what was learned. When a share grows,
// another node may just have used the new part. A raised or new Window allows for such use.
func (sc *Scheduler) takeAllowance(now time.Time) throttle.Limits {
	stand := sc.allowance.handle.Share()
	sc.allowance.version, sc.allowance.share = stand.Version, stand.Fraction
	if sc.options.Fenced() {
		sc.allowance.share = registry.Fraction{K: 0, N: 1}
		sc.wakeAt(now.Add(sc.options.Stretched(fenceEvery)))
	}
	allowed := sc.allowance.allowedWhole()
	sc.allowance.noteRaised(allowed, now)
	whole := sc.allowance.learned.Apply(allowed, sc.opening.isWell(now, sc.sessions.countSessions), now)
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

// doTimely does the periodic work: it sends pulses, sends results again, and forgets.
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
	limiting := sc.gatherConstraints(now)
	b := explain(&limiting)
	for t := range sc.queues.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			sc.queues.resendAnswers(now, c)
		}
		if t.isSilent(now) {
			sc.queues.shedTask(t)
		}
		if len(t.chunks) > 0 && now.Sub(t.beatAt) >= every {
			sc.sendHeartbeat(now, t, b)
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

// randOf seeds the random numbers with receiver and start time, so that simulations repeat exactly.
func randOf(key string, now time.Time) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(now.UnixNano())))
}

// Key returns the receiver's key.
func (sc *Scheduler) Key() string { return sc.key }

// NotePause drops all waiting probes after a long pause of the process, because other owners may ask them now. Clients
// see in the pulses that their probes are gone, and offer them again. Sessions stay.
func (sc *Scheduler) NotePause() {
	for t := range sc.queues.tasks.busy {
		sc.queues.shedTask(t)
	}
}

// Acked forgets results that have arrived.
func (sc *Scheduler) Acked(now time.Time, m *wire.ResultsAck) { sc.queues.takeAck(now, m) }

// Cancel drops or returns a task's waiting probes. Cancel ignores an older owner.
func (sc *Scheduler) Cancel(now time.Time, m *wire.Cancel) {
	if m.GetGiveBack() {
		sc.queues.returnTask(now, m)
		return
	}
	sc.queues.cancelTask(now, m)
}

// LoseClients drops the waiting probes of clients on an unreachable node.
func (sc *Scheduler) LoseClients(address string) { sc.queues.shedLost(address) }

// CloseSession ends a session after the probes on the wire. CloseSession reports whether the session exists.
func (sc *Scheduler) CloseSession(id int) bool { return sc.sessions.closeSession(id) }

// Slots yields each session's number and connection slot.
func (sc *Scheduler) Slots() iter.Seq2[int, *registry.ConnSlot] {
	return func(yield func(int, *registry.ConnSlot) bool) {
		for id, s := range sc.sessions.all {
			if !yield(id, s.slot) {
				return
			}
		}
	}
}

// Unsaved returns learned state that no step has stored yet.
func (sc *Scheduler) Unsaved(now time.Time) (facts.Fact, bool) {
	if sc.gone || !sc.dirty {
		return facts.Fact{}, false
	}
	return sc.snapshot(now)
}

// HandingOff reports whether the receiver is moving to another node.
func (sc *Scheduler) HandingOff() bool { return sc.handingOff }

// HasNoShare reports whether nothing may be asked here because our share is too small.
func (sc *Scheduler) HasNoShare() bool { return nothingAllowed(sc.limits) }

// Close takes the receiver out of the node's metrics and histories.
func (sc *Scheduler) Close(now time.Time) {
	sc.recorder.closeRecord(now)
}
