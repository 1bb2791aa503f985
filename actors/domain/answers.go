package domain

import (
	"container/heap"
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// mine gives the shard that a message is about, nil when it is about another task
// or epoch.
func (a *agenda) mine(t *wire.Task) *shard {
	key := t.Key()
	if t.GetEpoch() != a.work.Epoch || key.Verification != a.work.Verification ||
		key.Domain != a.work.Domain || uint64(key.Shard) >= uint64(len(a.shards)) {
		return nil
	}
	return a.shards[key.Shard]
}

// moved takes the notice that the receiver goes away. It is its last word: what was
// on the wire it has answered before, and all that is left is to be offered again.
func (a *agenda) moved(now time.Time, m *wire.Moved) {
	s := a.mine(m.GetTask())
	if s == nil {
		return
	}
	suspicion := 1
	for _, o := range s.chunks {
		if now.Sub(o.sent) < lostSoon {
			suspicion = lostSure
		}
	}
	a.gone(now, s, suspicion)
}

// acked takes the answer to an offer.
func (a *agenda) acked(now time.Time, m *wire.OfferAck) {
	s := a.mine(m.GetTask())
	if s == nil || s.chunks[m.GetChunk()] == nil {
		return
	}
	o := s.chunks[m.GetChunk()]
	s.heard = now
	s.credit = m.GetCredit()
	switch m.GetRefusal() {
	case wire.Refusal_NONE:
		o.acked = true
	default: // full, or an epoch that is over: a pulse or our parent will tell
		a.close(s, m.GetChunk())
		a.giveBack(s, o)
		if o.retries {
			s.retryAt = now.Add(refusedPause)
		} else {
			s.credit = 0 // whatever it says: the same offer would be refused again at once
		}
		if len(s.chunks) == 0 {
			a.leave(s) // and ask again after a pause
			s.failures++
		}
	}
}

// pulsed notes that the receiver lives, and takes back chunks that it has lost. It
// is also when a change of the split is noticed: the old shards get no allowance.
func (a *agenda) pulsed(now time.Time, m *wire.Pulse) {
	s := a.mine(m.GetTask())
	if s == nil {
		return
	}
	if a.options.shards(a.route.key) != len(a.shards) {
		a.place(now)
		return
	}
	s.heard, s.credit = now, m.GetCredit()
	s.cause, s.perHour = m.GetCause(), m.GetPerHour()
	s.hold(now, wire.Until(now, m.GetWaitingMs()))
	a.noteBarren(now, s, m)
	held := map[uint64]bool{}
	for _, number := range m.GetChunks() {
		held[number] = true
	}
	for number, o := range s.chunks {
		if o.acked && !held[number] && now.Sub(o.sent) > silenceMax {
			a.close(s, number)
			a.giveBack(s, o)
		}
	}
}

// results takes answers; what was taken before is acknowledged and ignored.
func (a *agenda) results(now time.Time, m *wire.Results) {
	s := a.mine(m.GetTask())
	if s == nil {
		return
	}
	a.steps = append(a.steps, reply{&wire.ResultsAck{Task: s.task, Chunk: m.GetChunk(), Batch: m.GetBatch()}})
	o := s.chunks[m.GetChunk()]
	if o == nil {
		return // late: the chunk was given back, perhaps to another receiver
	}
	s.heard, s.credit, s.heldUntil = now, m.GetCredit(), time.Time{}
	s.failures, s.lost = 0, 0
	if _, seen := o.seen[m.GetBatch()]; seen {
		return
	}
	o.seen[m.GetBatch()] = struct{}{}
	o.acked = true
	reader := wire.NewReader(m)
	for _, answer := range m.GetAnswers() {
		if _, left := o.left[answer.GetOrdinal()]; left {
			delete(o.left, answer.GetOrdinal())
			a.options.Load.give(a.work.Workspace, 1)
			a.answer(now, s, answer, reader.AttemptsOf(answer))
		}
	}
	if len(o.left) == 0 {
		a.close(s, m.GetChunk())
		if !o.retries {
			s.resize(now.Sub(o.sent))
		}
	}
	a.noteBarren(now, s, m)
}

// resize chooses the size of the next chunk by how long this one took.
func (s *shard) resize(took time.Duration) {
	if took <= chunkSoon {
		s.size = min(2*s.size, wire.AddressesMax)
	} else {
		s.size = max(s.size/2, chunkLeast)
	}
}

// answerOf is what an answer says beside its case.
type answerOf struct {
	reason   smtp.Reason
	wait     time.Duration      // as the receiver named it; 0: the configured waits
	attempts []evidence.Attempt // since the last answer
}

// answer follows what came of one probe. An answer without an attempt says nothing
// about the address: nobody was asked.
func (a *agenda) answer(now time.Time, s *shard, m *wire.Answer, attempts []evidence.Attempt) {
	p := a.begin(now, s, m.GetOrdinal())
	c := a.archive.take(&p)
	if len(c.Attempts) == 0 {
		c.Attempts = attempts[:0] // where they are put again
	}
	for i := range attempts {
		if !attempts[i].Reason.Known() { // of a newer program: what it means is not known here
			attempts[i].Void = true
		}
		c.Add(attempts[i])
	}
	c.Omitted += int(m.GetOmitted())
	c.Hosts = a.route.hostsOf(c)
	_, reason := m.Verdict()
	say := answerOf{reason: reason, wait: m.Wait(), attempts: attempts}
	if reason == smtp.ReasonNone {
		say.reason = smtp.Protocol
	}
	if m.GetOrdinal() == controlOrdinal {
		a.controlled(now, s, p, c, say)
		return
	}
	last, asked := c.Last()
	if !asked || len(attempts) == 0 {
		a.again(now, s, p, c, say)
		return
	}
	a.passed(now, p, last)
	// A guard counts each refusal, whether or not our rules can tell what it means.
	if last.Stage == smtp.StageRcpt && (last.Outcome == smtp.Invalid || last.Code >= 500) {
		a.options.Facts.Refused(a.work.Domain, now)
	}
	if last.Stage == smtp.StageRcpt && last.Code/100 == 2 {
		a.witnesses.hear(p.ordinal, last)
	}
	if last.Outcome == smtp.Invalid && last.Bare {
		a.tally.asked(p.reason, false)
		p.reason = smtp.ReasonNone
		a.doubt(now, p, c)
		return
	}
	if last.Outcome == smtp.Valid {
		a.tally.asked(p.reason, false)
		p.reason = smtp.ReasonNone
		if c.Habit = a.habit(now); !a.believes(c.Habit, now) || !a.conclude(now, p.ordinal, c) {
			a.accept(now, p, c)
		}
		return
	}
	if a.conclude(now, p.ordinal, c) {
		a.tally.asked(p.reason, false)
		return
	}
	a.again(now, s, p, c, say)
}

// namedInRow is how many waits in a row may be as short as the receiver or a rule names
// them. From then on they grow like those of the configuration: a mailbox that is put off
// for a minute each time would be asked for hundreds of times. Guess.
const namedInRow = 4

// putOff says whether an address was put off itself. That its host or we have to rest is
// told of addresses that nobody asked for, too: they wait for that alone.
func putOff(list []evidence.Attempt) bool {
	if len(list) == 0 {
		return false
	}
	last := list[len(list)-1]
	return last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
}

// again puts an address off, or gives it up when its time is over. A wait that the
// receiver named is never cut short. What it waits while nobody asks for it uses none of
// its time; of a control probe's it does, so that what was accepted never waits for it longer.
func (a *agenda) again(now time.Time, s *shard, p pending, c evidence.Case, m answerOf) {
	if s.barren != smtp.ReasonNone {
		a.giveUpAt(now, s, p, c)
		return
	}
	if last, asked := c.Last(); asked && len(m.attempts) > 0 && m.reason == smtp.Greylisted {
		a.putOffBy(now, &p, last)
	}
	wait, nth := m.wait, int(p.waits)
	if p.marks &^= markNamed; wait > 0 {
		p.marks |= markNamed
		wait += min(wait/20+50*time.Millisecond, 30*time.Second) // clocks differ
		nth -= namedInRow
	}
	if m.wait <= 0 || nth >= 0 && putOff(m.attempts) {
		waits := a.options.waits(a.route.key)
		own := waits[min(nth, len(waits)-1)]
		if left := p.since + a.options.GiveUpAfter - a.since(now); left > 0 {
			own = min(own, left) // one last try when the time is up
		}
		wait = max(wait, own)
	}
	if untimed(m) && p.ordinal != controlOrdinal { // neither that nor this wait counts
		p.since += a.since(now) - max(p.due, p.since) + wait
	} else if p.waits < waitsMax {
		p.waits++
	}
	p.due = a.since(now) + wait
	switch {
	case !a.outOfTime(now, &p, c):
		a.archive.keep(&p, c)
		if len(m.attempts) > 0 {
			a.tally.asked(p.reason, true)
		}
		p.reason = m.reason
		a.tally.push(&p, a.passes(&p))
		heap.Push(&s.deferred, p)
	case p.ordinal == controlOrdinal:
		a.uncontrolled(now, m.reason)
	default:
		a.giveUp(now, p, c, m.reason)
	}
}
