package domain

import (
	"bytes"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
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
	findReceiver struct { // of the route
		shard int
		after time.Duration
	}
	leave struct{ shard int } // forget the receiver
	tell  struct {            // to the receiver
		shard int
		msg   proto.Message
	}
	reply     struct{ msg proto.Message } // to the sender of the message at hand
	recall    struct{}                    // what the cluster knows of the domain
	guardSeen struct{ until time.Time }   // tell people that nothing is asked before
)

// agenda decides what is to be done for one domain. It is plain Go: times and
// messages come in, steps and final outcomes go out. Mailbox only.
type agenda struct {
	options Options
	start   time.Time
	work    Work

	// The ids of the work for messages, which receivers on this node keep: a slice of those in work
	// would keep all of the agenda.
	verification, workspace []byte

	route  route
	shards []*shard // at least one; together they have every address that is left
	chunk  uint64   // the newest; numbers are never used twice, whatever the shard

	archive   *archive // what was said about addresses that have no outcome
	controls  controls
	witnesses witnesses

	greyWaits map[uint16]time.Duration // the shortest that was enough, by source
	tally     *tally                   // of the addresses that are put off

	offeredAt time.Time // when an address was offered first; zero: none was
	held      bool      // nothing may be offered
	heldAt    time.Time // since when
	draining  bool      // more may be final in the next turn
	crowded   bool      // the workspace has its share of the addresses that may be at receivers
	left      int       // addresses without a final outcome
	finals    []Final
	steps     []step
}

// newAgenda makes one; the control probes grow from seed.
func newAgenda(now time.Time, o Options, w Work, seed [32]byte) *agenda {
	a := &agenda{options: o, start: now, work: w, verification: bytes.Clone(w.Verification[:]),
		workspace: bytes.Clone(w.Workspace[:]), left: len(w.Ordinals), archive: newArchive(o.Load),
		controls: controls{nobodies: newNobodies(seed)}, greyWaits: map[uint16]time.Duration{},
		chunk: uint64(w.Tries) << triesShift, tally: &tally{by: map[smtp.Reason]*putOffs{}}}
	a.shards = a.newShards(1)
	a.shards[0].ordinals = w.Ordinals
	if w.Left != nil {
		a.restore(now, w.Left)
	}
	return a
}

// plan says what to do now, what has become final, and when to ask again.
func (a *agenda) plan(now time.Time) ([]step, []Final, time.Time) {
	a.follow(now)
	a.crowded = false
	for _, s := range a.shards {
		a.listen(now, s)
	}
	if !a.controls.recallBy.IsZero() && !now.Before(a.controls.recallBy) {
		a.controls.recallOver()
	}
	switch d := a.work.Deadline; {
	case a.route.closed != smtp.ReasonNone:
		a.closeAll(now)
	case !d.IsZero() && !now.Before(d):
		a.expire(now)
	case a.route.silent:
		a.putOff(now)
	}
	for _, s := range a.shards {
		if s.barren != smtp.ReasonNone && !a.cut() {
			a.giveUpBarren(now, s)
		}
	}
	if a.resting(now) {
		a.rest(now)
	}
	a.weigh(now)
	a.weighDoubted(now)
	a.advance(now)
	say := time.Time{}
	for _, s := range a.shards {
		if at := a.sayBehind(now, s); !at.IsZero() {
			say = earlier(say, at)
		}
	}
	steps, finals := a.steps, a.finals
	a.draining = a.cut() && a.left > 0
	a.steps, a.finals = nil, nil
	wake := a.wake(now)
	if !say.IsZero() {
		wake = earlier(wake, say)
	}
	return steps, finals, wake
}

// since turns a time into the form of deferrals.
func (a *agenda) since(now time.Time) time.Duration { return now.Sub(a.start) }

// advance does the next thing that addresses are ready for.
func (a *agenda) advance(now time.Time) {
	waiting, out, unreached := false, false, false
	for _, s := range a.shards {
		waits := s.waiting(a.since(now))
		waiting = waiting || waits
		unreached = unreached || waits && !s.reached && !s.reaching
		out = out || len(s.chunks) > 0 || s.reaching
	}
	if !waiting || a.route.asked || a.held || a.cut() || a.route.silent || a.resting(now) {
		return
	}
	if a.route.hosts == nil || now.After(a.route.Expires) && !out {
		a.route.asked = true
		a.steps = append(a.steps, findRoute{})
		a.askCluster(now)
		return
	}
	if unreached {
		a.place(now)
	}
	for _, s := range a.shards {
		a.advanceShard(now, s)
	}
}

// shardKey is the key of the receiver actor of a shard.
func (a *agenda) shardKey(shard int) string {
	return throttle.ShardKey(a.route.key, shard, len(a.shards))
}

// resting says whether nothing is asked, because a guard was seen at work.
func (a *agenda) resting(now time.Time) bool {
	return now.Before(a.options.Facts.Rest(a.work.Domain))
}

// shardOf is the shard that an address, or the control probe, belongs to.
func (a *agenda) shardOf(ordinal uint32) *shard {
	return a.shards[throttle.ShardOf(a.local(ordinal), a.work.Domain, len(a.shards))]
}

func (a *agenda) local(ordinal uint32) string {
	if ordinal == controlOrdinal {
		return a.controls.local
	}
	return a.work.Local(ordinal)
}

// hold takes back what is out and not answered, and offers nothing more, or goes on.
func (a *agenda) hold(now time.Time, on bool) {
	switch {
	case on && !a.held:
		a.heldAt = now
	case a.held && !on:
		a.excuse(now, now.Sub(a.heldAt))
	}
	a.held = on
	for _, s := range a.shards {
		if on {
			a.recall(s)
		}
	}
}

// excuse gives the addresses that wait the time back in which nothing could be asked: it
// does not count towards giving them up, and nobody learns from it.
func (a *agenda) excuse(now time.Time, lost time.Duration) {
	excused := func(since time.Duration) time.Duration { return max(since, min(since+lost, a.since(now))) }
	for _, s := range a.shards {
		for i := range s.deferred {
			p := &s.deferred[i]
			p.since, p.marks = excused(p.since), p.marks|markHeld
		}
		for ordinal, p := range s.history {
			p.since, p.marks = excused(p.since), p.marks|markHeld
			s.history[ordinal] = p
		}
	}
	for _, c := range a.tally.by {
		c.since = excused(c.since)
	}
	if !a.offeredAt.IsZero() {
		a.offeredAt = a.offeredAt.Add(lost)
	}
}

// wake is when plan should be asked again if nothing happens.
func (a *agenda) wake(now time.Time) time.Time {
	at := a.work.Deadline
	for _, t := range [...]time.Time{a.controls.recallBy, a.controls.at()} {
		if !t.IsZero() {
			at = earlier(at, t)
		}
	}
	if rest := a.options.Facts.Rest(a.work.Domain); rest.After(now) {
		at = earlier(at, rest)
	}
	for _, s := range a.shards {
		if len(s.deferred) > 0 && !s.due(a.since(now)) { // what is due waits for a message
			at = earlier(at, a.start.Add(s.deferred[0].due))
		}
		if len(s.chunks) > 0 {
			at = earlier(at, now.Add(time.Second))
		}
	}
	if len(a.witnesses.doubted) > 0 {
		at = earlier(at, a.witnesses.nextDoubt(now))
	}
	if a.crowded {
		at = earlier(at, now.Add(crowdedPause))
	}
	if a.draining {
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
func (a *agenda) quiet(now time.Time) time.Time {
	if a.route.asked || a.draining {
		return time.Time{}
	}
	if rest := a.options.Facts.Rest(a.work.Domain); rest.After(now) {
		return rest
	}
	first := a.controls.at()
	if len(a.witnesses.doubted) > 0 {
		first = earlier(first, a.witnesses.nextDoubt(now))
	}
	for _, s := range a.shards {
		until, busy := s.quiet(now, a.start)
		if busy {
			return time.Time{}
		}
		if !until.IsZero() {
			first = earlier(first, until)
		}
	}
	return first
}
