package domain

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	// controlOrdinal names the control probes; addresses number below it.
	controlOrdinal = wire.ControlOrdinal

	ackWithin  = 2 * time.Second // an offer without an answer is sent again
	silenceMax = 5 * time.Second // a receiver that says nothing for so long is believed dead

	// resolvePause is before a receiver actor that was lost, or is not to be had, is
	// looked for again, doubled each time up to resolveMax: some seconds after a
	// cluster has healed everybody works again. Guesses.
	resolvePause = 100 * time.Millisecond
	resolveMax   = 5 * time.Second

	// lostMax bounds the suspicion that the addresses make their receiver actors fail:
	// from then on they are put off. One that ends under what it was offered counts
	// lostSure, so eight in a row without one answer are too many. One that moved
	// counts so too when it had the offer for less than lostSoon, for no view of the
	// cluster changes so fast so often; later, it counts one. One that cannot be
	// reached or falls silent never counts: that is our own trouble. Guesses.
	lostMax  = 64
	lostSure = 8
	lostSoon = 3 * time.Second

	// heldJitter is by how much the end of a wait may come sooner from one pulse to the
	// next, for which nobody is told: it is named as a duration. It may come later by up
	// to the heldPart-th part of what was left: a receiver that does not know the end
	// names one that moves along. Guesses.
	heldJitter = time.Second
	heldPart   = 2

	// chunksMax bounds the chunks that are out, whatever credit a late message
	// names: one being asked and one behind it, as the receivers grant. Due retries have as
	// many of their own: they don't wait behind a thousand addresses that were never asked.
	chunksMax = 2

	// refusedPause is how long due retries are not offered after the receiver had no room for them.
	refusedPause = time.Second

	// A chunk has at most wire.AddressesMax addresses. One that isn't answered within chunkSoon is followed
	// by one of half its size, of chunkLeast at least; a faster one by one twice as large. So a fast receiver
	// never runs dry, and what a slow one has waiting, which costs memory, is about a minute's work. chunkLeast
	// is also the size while the node has many addresses out. Measured: to begin with 25 cost 20,000 addresses
	// at 20 ms a turn a second of 5 to 6. Guesses: the others.
	chunkLeast = 25
	chunkSoon  = 20 * time.Second

	// finalsMax is how many addresses become final in one turn before their parent is
	// told, and drainPause is before the next turn then: a million cases at once would
	// take some hundred megabytes, and whoever is told has to get a word in. Guesses.
	finalsMax  = 1000
	drainPause = time.Millisecond

	// crowdedPause is before a domain looks again whether its workspace may offer more. Guess.
	crowdedPause = time.Second

	// triesShift leaves room for four billion chunks of one try at a domain, so
	// that a receiver never takes a new chunk for one of an actor that crashed.
	triesShift = 32
)

// step is one thing that the shell has to do.
type step any

type (
	findRoute    struct{}
	findReceiver struct{ after time.Duration } // of the route
	leave        struct{}                      // forget the receiver
	tell         struct{ msg proto.Message }   // to the receiver
	reply        struct{ msg proto.Message }   // to the sender of the message at hand
	recall       struct{ keys []string }       // what the cluster knows of hosts: see habitKey
	guardSeen    struct{ until time.Time }     // tell people that nothing is asked before
)

// planner decides what is to be done for one domain. It is plain Go: times and
// messages come in, steps and final outcomes go out. Mailbox only.
type planner struct {
	options Options
	start   time.Time
	work    Work

	// The ids of the work for messages, which receivers on this node keep: a slice of those in work
	// would keep all of the planner.
	verification, workspace []byte

	route     route
	backlog   backlog // every address that is left
	controls  controls
	witnesses witnesses
	retries   retries

	offeredAt time.Time // when an address was offered first, or our ledger came back; zero: none was
	held      bool      // nothing may be offered
	heldAt    time.Time // since when
	draining  bool      // more may be final in the next turn
	crowded   bool      // the workspace has its share of the addresses that may be at receivers
	left      int       // addresses without a final outcome
	finals    []Final
	steps     []step
}

// newPlanner makes one; the control probes grow from seed.
func newPlanner(now time.Time, o Options, w Work, seed [32]byte) *planner {
	pl := &planner{options: o, start: now, work: w, verification: bytes.Clone(w.Verification[:]),
		workspace: bytes.Clone(w.Workspace[:]), left: len(w.Ordinals), retries: newRetries(o.Load),
		controls: controls{locals: newRandomLocals(seed)}}
	pl.backlog = backlog{ordinals: w.Ordinals, chunk: uint64(w.Tries) << triesShift, size: wire.AddressesMax,
		stats: pl.retries.stats, history: map[uint32]pending{}, chunks: map[uint64]*open{},
		task: &wire.Task{Verification: pl.verification, Epoch: w.Epoch, Domain: w.Domain}}
	if w.Left != nil {
		pl.restore(now, w.Left)
	}
	return pl
}

// plan says what to do now, what has become final, and when to ask again.
func (pl *planner) plan(now time.Time) ([]step, []Final, time.Time) {
	pl.follow()
	pl.crowded = false
	pl.listen(now)
	if !pl.controls.recallBy.IsZero() && !now.Before(pl.controls.recallBy) {
		pl.controls.recallOver()
	}
	switch d := pl.work.Deadline; {
	case pl.route.closed != smtp.ReasonNone:
		pl.closeAll(now)
	case !d.IsZero() && !now.Before(d):
		pl.expire(now)
	case pl.route.silent:
		pl.putOff(now)
	}
	if pl.backlog.barren != smtp.ReasonNone && !pl.cut() {
		pl.giveUpBarren(now)
	}
	if pl.resting(now) {
		pl.rest(now)
	}
	pl.weigh(now)
	pl.weighDoubted(now)
	pl.advance(now)
	say := pl.sayBehind(now)
	steps, finals := pl.steps, pl.finals
	pl.draining = pl.cut() && pl.left > 0
	pl.steps, pl.finals = nil, nil
	wake := pl.wake(now)
	if !say.IsZero() {
		wake = earlier(wake, say)
	}
	return steps, finals, wake
}

// since turns a time into the form of deferrals.
func (pl *planner) since(now time.Time) time.Duration { return now.Sub(pl.start) }

// advance does the next thing that addresses are ready for.
func (pl *planner) advance(now time.Time) {
	s := &pl.backlog
	if !s.waiting(pl.since(now)) || pl.route.asked || pl.held || pl.cut() || pl.route.silent || pl.resting(now) {
		return
	}
	if pl.route.hosts == nil || now.After(pl.route.Expires) && len(s.chunks) == 0 && !s.reaching {
		pl.route.asked = true
		pl.steps = append(pl.steps, findRoute{})
		return
	}
	if !s.reached && !s.reaching {
		pl.place()
	}
	pl.offerMore(now)
}

// resting says whether nothing is asked, because a guard was seen at work.
func (pl *planner) resting(now time.Time) bool {
	return now.Before(pl.restUntil())
}

// restUntil is until when nothing is asked, because a guard was seen at work at a host; it may be over.
func (pl *planner) restUntil() time.Time {
	if !pl.options.Facts.guarded.Load() {
		return time.Time{}
	}
	until := pl.options.Facts.Rest(habitKey(pl.work.Domain, pl.route.answered))
	for _, h := range pl.route.Hosts {
		until = later(until, pl.options.Facts.Rest(habitKey(pl.work.Domain, h.Name)))
	}
	return until
}

func (pl *planner) local(ordinal uint32) string {
	if ordinal == controlOrdinal {
		return pl.controls.local
	}
	return pl.work.Local(ordinal)
}

// hold takes back what is out and not answered, and offers nothing more, or goes on.
func (pl *planner) hold(now time.Time, on bool) {
	switch {
	case on && !pl.held:
		pl.heldAt = now
	case pl.held && !on:
		pl.excuse(now, now.Sub(pl.heldAt))
	}
	pl.held = on
	if on {
		pl.recall()
	}
}

// excuse gives the addresses that wait the time back in which nothing could be asked: it
// does not count towards giving them up, and nobody learns from it.
func (pl *planner) excuse(now time.Time, lost time.Duration) {
	excused := func(since time.Duration) time.Duration { return max(since, min(since+lost, pl.since(now))) }
	for i := range pl.backlog.deferred {
		p := &pl.backlog.deferred[i]
		p.since, p.marks = excused(p.since), p.marks|markHeld
	}
	for ordinal, p := range pl.backlog.history {
		p.since, p.marks = excused(p.since), p.marks|markHeld
		pl.backlog.history[ordinal] = p
	}
	for _, c := range pl.retries.stats.by {
		c.since = excused(c.since)
	}
	if !pl.offeredAt.IsZero() {
		pl.offeredAt = now
	}
}

// wake is when plan should be asked again if nothing happens.
func (pl *planner) wake(now time.Time) time.Time {
	at := pl.work.Deadline
	for _, t := range [...]time.Time{pl.controls.recallBy, pl.controls.at()} {
		if !t.IsZero() {
			at = earlier(at, t)
		}
	}
	if rest := pl.restUntil(); rest.After(now) {
		at = earlier(at, rest)
	}
	if s := &pl.backlog; len(s.deferred) > 0 && !s.due(pl.since(now)) { // what is due waits for a message
		at = earlier(at, pl.start.Add(s.deferred[0].due))
	}
	if len(pl.backlog.chunks) > 0 {
		at = earlier(at, now.Add(time.Second))
	}
	if len(pl.witnesses.doubted) > 0 {
		at = earlier(at, pl.witnesses.nextDoubt(now))
	}
	if pl.crowded {
		at = earlier(at, now.Add(crowdedPause))
	}
	if pl.draining {
		at = now.Add(drainPause)
	}
	return at
}

// earlier is the earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// quiet says until when nothing can be done; the zero time: something can.
func (pl *planner) quiet(now time.Time) time.Time {
	if pl.route.asked || pl.draining {
		return time.Time{}
	}
	if rest := pl.restUntil(); rest.After(now) {
		return rest
	}
	first := pl.controls.at()
	if len(pl.witnesses.doubted) > 0 {
		first = earlier(first, pl.witnesses.nextDoubt(now))
	}
	until, busy := pl.backlog.quiet(now, pl.start)
	switch {
	case busy:
		return time.Time{}
	case !until.IsZero():
		return earlier(first, until)
	}
	return first
}
