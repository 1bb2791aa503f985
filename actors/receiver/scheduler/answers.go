package scheduler

import (
	"cmp"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// inbox is the clients' side: the chunks that they offered, and the answers that they wait for.
type inbox struct {
	*env
	tasks    tasks
	unsent   fairqueue.FIFO[*chunk] // chunks with answers to send, oldest answer first
	finished []*chunk               // chunks of unsent that are fully answered
}

// silentFor is how long a client may leave results unacknowledged before we drop its waiting addresses. The client's
// node is dead, paused or cut off, and the node that takes its verification over asks these addresses again. We send
// results again after resendEvery, so that one lost message isn't silence.
const silentFor = 3 * time.Second

// isSilent reports whether the task's client has left results unacknowledged for too long.
func (t *task) isSilent(now time.Time) bool {
	return !t.owed.IsZero() && now.Sub(t.owed) >= silentFor
}

func (t *task) noteMessage(now time.Time) {
	t.owed = time.Time{}
	if slices.ContainsFunc(t.chunks, func(c *chunk) bool { return len(c.sent) > 0 }) {
		t.owed = now
	}
}

// barren returns how long a task's hosts have given no good answer, and why, in the form of messages.
func (t *task) barren() (ms int64, reason uint32) {
	lasting, why := t.queue.barren.lasting()
	return lasting.Milliseconds(), uint32(why)
}

// keepAnswer keeps a final answer that wasn't acknowledged for the next owner of the task. An ordinal means the same
// address to all owners. The highest ordinal is a control probe; it means another name each time, and isn't kept.
func (t *task) keepAnswer(a answer) {
	if !a.outcome.Final() || a.ordinal == wire.ControlOrdinal {
		return
	}
	if t.known == nil {
		t.known = map[uint32]answer{}
	}
	t.known[a.ordinal] = a
}

// waitingBeside reports whether addresses of other domains, or of other tenants, wait and may be asked now.
func (in *inbox) waitingBeside(p *Probe, mayAsk func(domain string) bool) (w throttle.Waiting) {
	own := p.chunk.task
	for t := range in.tasks.busy {
		if t == own || t.open() == 0 || !mayAsk(t.key.Domain) {
			continue
		}
		w.OtherDomain = w.OtherDomain || t.key.Domain != own.key.Domain
		w.OtherTenant = w.OtherTenant || t.space != own.space
		if w.OtherDomain && w.OtherTenant {
			break
		}
	}
	return w
}

func (in *inbox) deferProbe(p *Probe, judged Judgement, at time.Time) {
	judged.Verdict.Outcome, judged.Verdict.Action = smtp.Undecided, verdict.ActRetry
	in.answerProbe(p, judged, at)
}

// cancelTask drops a task's waiting probes. cancelTask ignores an older owner.
func (in *inbox) cancelTask(now time.Time, m *wire.Cancel) {
	if t := in.tasks.all[m.GetTask().Key()]; t != nil && m.GetTask().GetEpoch() >= t.epoch {
		in.tasks.dropChunks(t)
		in.tasks.retireTask(now, t)
	}
}

func (in *inbox) takeAck(now time.Time, m *wire.ResultsAck) {
	t := in.tasks.all[m.GetTask().Key()]
	if t == nil || t.epoch != m.GetTask().GetEpoch() {
		return
	}
	c := t.findChunk(m.GetChunk())
	if c == nil {
		return
	}
	acked := func(r *wire.Results) bool { return r.GetBatch() == m.GetBatch() }
	if i := slices.IndexFunc(c.sent, acked); i >= 0 {
		c.sent, c.heard = slices.Delete(c.sent, i, i+1), now
	}
	t.noteMessage(now)
	if c.done() {
		in.tasks.forgetChunk(now, c)
	}
}

// releaseClient sends a task's client the answers so far, and then returns its other addresses.
func (in *inbox) releaseClient(now time.Time, t *task) {
	if t.notified || len(t.chunks) == 0 {
		return
	}
	t.notified = true
	for _, c := range slices.Clone(t.chunks) {
		in.sendAnswers(now, c)
	}
	in.options.Metrics.moved.Inc()
	in.emitTo(t.client, &wire.Moved{Task: t.chunks[0].named})
}

// concludeProbe answers a probe that has no host left. The answer is the outcome that its attempts lead to, or "ask
// again later".
func (in *inbox) concludeProbe(p *Probe, judged Judgement, at time.Time) {
	if outcome, reason := verdict.Conclude(p.given()); outcome != smtp.Undecided {
		judged.Verdict = verdict.Verdict{Outcome: outcome, Reason: reason, Blame: smtp.BlameDomain,
			Rule: judged.Verdict.Rule}
	}
	in.answerProbe(p, judged, at)
}

// answerProbe closes a probe. Answers to dropped probes aren't sent.
func (in *inbox) answerProbe(p *Probe, judged Judgement, at time.Time) {
	p.closeWith(judged, at)
	if p.chunk.dropped {
		return
	}
	in.queueAnswers(p.chunk)
	in.options.Metrics.countAnswer(&judged.Verdict)
}

// queueAnswers puts a chunk into the list of chunks with answers to send.
func (in *inbox) queueAnswers(c *chunk) {
	if !c.listed {
		c.listed = true
		in.unsent.Push(c)
	}
	if c.open == 0 {
		in.finished = append(in.finished, c)
	}
}

// flushAnswers sends the answers of finished chunks. flushAnswers also sends answers that have waited long enough for
// further answers.
func (in *inbox) flushAnswers(now time.Time) {
	for _, c := range in.finished {
		in.sendAnswers(now, c)
	}
	clear(in.finished)
	in.finished = in.finished[:0]
	for in.unsent.Len() > 0 {
		c := in.unsent.Peek()
		if due := c.since.Add(flushEvery); len(c.answers) > 0 && !c.dropped && now.Before(due) {
			in.wakeAt(due)
			return
		}
		in.unsent.Pop()
		c.listed = false
		in.sendAnswers(now, c)
	}
}

func (in *inbox) sendAnswers(now time.Time, c *chunk) {
	if c.dropped || len(c.answers) == 0 {
		return
	}
	if len(c.sent) == 0 {
		c.heard = now
	}
	all := messages(c.answers)
	for _, r := range all {
		c.batch++
		r.Task, r.Chunk, r.Batch, r.Credit = c.named, c.number, c.batch, in.tasks.countCredit(c.task)
		r.BarrenMs, r.BarrenReason = c.task.barren()
		in.emitTo(c.task.client, r)
	}
	c.answers, c.sent, c.sentAt = nil, append(c.sent, all...), now
	if c.task.owed.IsZero() {
		c.task.owed = now
	}
}

// resendAnswers sends unacknowledged results again, and drops them in the end.
func (in *inbox) resendAnswers(now time.Time, c *chunk) {
	switch {
	case len(c.sent) == 0:
	case now.Sub(c.heard) >= resendFor:
		in.options.Log.Debug("results never acknowledged", "receiver", in.key, "domain", c.task.key.Domain)
		for _, r := range c.sent {
			for _, a := range answersOf(r) {
				c.task.keepAnswer(a)
			}
		}
		c.sent = nil
		c.task.noteMessage(now)
		if c.done() {
			in.tasks.forgetChunk(now, c)
		}
	case now.Sub(c.sentAt) >= in.options.Stretched(resendEvery):
		c.sentAt, c.task.beatAt = now, now
		in.options.Metrics.resent.Add(float64(len(c.sent)))
		for _, r := range c.sent {
			in.emitTo(c.task.client, r)
		}
	}
}

// shedTask drops a task's waiting probes, because its client is silent. Probes on the wire are still reported, and
// results wait for an acknowledgement. Pulses no longer name the chunks, so a living client offers them again.
func (in *inbox) shedTask(t *task) {
	shed := false
	for _, c := range t.chunks {
		if !c.shed && c.open > 0 {
			c.shed, shed, in.tasks.stale = true, true, true
		}
	}
	in.tasks.noteBacklog(t, behind{})
	if shed {
		in.options.Metrics.silent.Inc()
		in.options.Log.Debug("client does not answer", "receiver", in.key, "domain", t.key.Domain, "epoch", t.epoch)
	}
}

// shedLost sheds the tasks of all clients on a node that is lost.
func (in *inbox) shedLost(address string) {
	for t := range in.tasks.busy {
		if t.client.Address == address {
			in.shedTask(t)
		}
	}
}

// handOver gives a probe the answer that an earlier owner of its task didn't acknowledge, if there is one.
func (in *inbox) handOver(now time.Time, p *Probe) bool {
	a, ok := p.chunk.task.known[p.ordinal]
	if !ok {
		return false
	}
	delete(p.chunk.task.known, p.ordinal)
	in.options.Metrics.handed.Inc()
	p.deliverAnswer(a, now)
	in.queueAnswers(p.chunk)
	return true
}

// eachWaiting yields how many addresses of each task have no answer, here or still at its client, and since when.
func (in *inbox) eachWaiting(take func(t *task, n int, since time.Time)) {
	for t := range in.tasks.waiters {
		take(t, t.behind.n, t.behind.since)
	}
	for t := range in.tasks.busy {
		for _, c := range t.chunks {
			if c.open > 0 && !c.gone() {
				take(t, c.unanswered(), c.offered)
			}
		}
	}
}

// countUnanswered returns how many addresses have no answer, here or still at their clients, and since when the oldest
// waits.
func (in *inbox) countUnanswered() (all int, oldest time.Time) {
	in.eachWaiting(func(_ *task, n int, since time.Time) {
		if all += n; oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	})
	return all, oldest
}

// queueStatus lists the waiting verifications, longest queue first.
func (in *inbox) queueStatus(now time.Time) []inspect.Queue {
	of := map[string]*inspect.Queue{}
	in.eachWaiting(func(t *task, n int, since time.Time) {
		id := t.key.Verification.String()
		q := of[id]
		if q == nil {
			q = &inspect.Queue{Verification: id, Workspace: t.space.String(), Weight: in.flowOf(t).Weight()}
			of[id] = q
		}
		q.Queued, q.Oldest = q.Queued+n, max(q.Oldest, now.Sub(since).Seconds())
	})
	out := []inspect.Queue{}
	for _, q := range of {
		if q.Queued > 0 {
			out = append(out, *q)
		}
	}
	slices.SortFunc(out, func(a, b inspect.Queue) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Verification, b.Verification))
	})
	return out[:min(len(out), listedMax)]
}
