package domain

import (
	"time"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// mine reports whether a message is about this task and epoch.
func (pl *planner) mine(t *wire.Task) bool {
	return t.GetEpoch() == pl.work.Epoch &&
		t.Key() == wire.TaskKey{Verification: pl.work.Verification, Domain: pl.work.Domain}
}

// moved takes the notice that the receiver goes away. It is its last word: what was
// on the wire it has answered before, and all that is left is to be offered again.
func (pl *planner) moved(now time.Time, m *wire.Moved) {
	if !pl.mine(m.GetTask()) {
		return
	}
	s := &pl.backlog
	suspicion := 1
	for _, o := range s.chunks {
		if now.Sub(o.sent) < lostSoon {
			suspicion = lostSure
		}
	}
	pl.gone(now, suspicion)
}

// acked takes the answer to an offer.
func (pl *planner) acked(now time.Time, m *wire.OfferAck) {
	s := &pl.backlog
	if !pl.mine(m.GetTask()) || s.chunks[m.GetChunk()] == nil {
		return
	}
	o := s.chunks[m.GetChunk()]
	s.heard = now
	s.credit = m.GetCredit()
	switch m.GetRefusal() {
	case wire.Refusal_NONE:
		o.acked = true
	default: // full, or an epoch that is over: a pulse or our parent will tell
		pl.close(m.GetChunk())
		pl.giveBack(o)
		if o.retries {
			s.retryAt = now.Add(refusedPause)
		} else {
			s.credit = 0 // whatever it says: the same offer would be refused again at once
		}
		if len(s.chunks) == 0 {
			pl.leave() // and ask again after a pause
			s.failures++
		}
	}
}

// pulsed notes that the receiver lives, and takes back chunks that it has lost.
func (pl *planner) pulsed(now time.Time, m *wire.Pulse) {
	if !pl.mine(m.GetTask()) {
		return
	}
	s := &pl.backlog
	s.heard, s.credit = now, m.GetCredit()
	s.cause, s.perHour = m.GetCause(), m.GetPerHour()
	s.hold(now, wire.Until(now, m.GetWaitingMs()))
	pl.noteBarren(now, m)
	held := map[uint64]bool{}
	for _, number := range m.GetChunks() {
		held[number] = true
	}
	for number, o := range s.chunks {
		if o.acked && !held[number] && now.Sub(o.sent) > silenceMax {
			pl.close(number)
			pl.giveBack(o)
		}
	}
}

// results takes answers; what was taken before is acknowledged and ignored.
func (pl *planner) results(now time.Time, m *wire.Results) {
	if !pl.mine(m.GetTask()) {
		return
	}
	s := &pl.backlog
	pl.steps = append(pl.steps, reply{&wire.ResultsAck{Task: s.task, Chunk: m.GetChunk(), Batch: m.GetBatch()}})
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
			pl.options.Load.give(pl.work.Workspace, 1)
			pl.answer(now, answer, reader.AttemptsOf(answer))
		}
	}
	if len(o.left) == 0 {
		pl.close(m.GetChunk())
		if !o.retries {
			s.resize(now.Sub(o.sent))
		}
	}
	pl.noteBarren(now, m)
}

// resize chooses the size of the next chunk by how long this one took.
func (s *backlog) resize(took time.Duration) {
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
func (pl *planner) answer(now time.Time, m *wire.Answer, attempts []evidence.Attempt) {
	p := pl.begin(now, m.GetOrdinal())
	c := pl.retries.log.take(&p)
	if len(c.Attempts) == 0 {
		c.Attempts = attempts[:0] // where they are put again
	}
	for i := range attempts {
		if !attempts[i].Reason.Known() { // of a newer program: what it means is not known here
			attempts[i].Void = true
		}
		if attempts[i].Stage == smtp.StageRcpt && !attempts[i].Others {
			p.marks |= markAsked
		}
		c.Add(attempts[i])
	}
	c.Omitted += int(m.GetOmitted())
	c.Hosts = pl.route.hostsOf(c)
	_, reason := m.Verdict()
	say := answerOf{reason: reason, wait: m.Wait(), attempts: attempts}
	if reason == smtp.ReasonNone {
		say.reason = smtp.Protocol
	}
	if m.GetOrdinal() == controlOrdinal {
		pl.controlled(now, p, c, say)
		return
	}
	last, asked := c.Last()
	if !asked || len(attempts) == 0 {
		pl.again(now, p, c, say)
		return
	}
	pl.passed(now, p, last)
	// A guard counts each refusal, whether or not our rules can tell what it means.
	if last.Stage == smtp.StageRcpt && (last.Outcome == smtp.Invalid || last.Code >= 500) {
		pl.options.Facts.Refused(pl.key(last.Host), now)
	}
	pl.route.hear(last)
	if last.Stage == smtp.StageRcpt && last.Code/100 == 2 {
		pl.witnesses.hear(p.ordinal, last)
	}
	if last.Outcome == smtp.Invalid && last.Bare {
		pl.retries.stats.asked(p.reason, false)
		p.reason = smtp.ReasonNone
		pl.doubt(now, p, c)
		return
	}
	if last.Outcome == smtp.Valid {
		pl.retries.stats.asked(p.reason, false)
		p.reason = smtp.ReasonNone
		if h := pl.habit(now, last.Host); !pl.believes(h, last.Host, now) || !pl.settle(now, p, c, h) {
			pl.accept(now, p, c)
		}
		return
	}
	if last.Outcome == smtp.CatchAll && pl.settle(now, p, c, c.Habit) {
		pl.retries.stats.asked(p.reason, false)
		return
	}
	if pl.conclude(now, p.ordinal, c) {
		pl.retries.stats.asked(p.reason, false)
		return
	}
	pl.again(now, p, c, say)
}
