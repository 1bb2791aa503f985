package receiver

import (
	"slices"
	"time"

	"rollcall/actors/wire"
)

// answer closes a probe. What was dropped is answered to nobody.
func (d *desk) answer(p *probe, told verdictOf, at time.Time) {
	p.answer(told, at)
	if p.chunk.dropped {
		return
	}
	d.due(p.chunk)
	d.options.Metrics.answers.WithLabelValues(told.verdict.Outcome.String(), told.verdict.Reason.String()).Inc()
}

// due sees to it that the answers of a chunk are sent.
func (d *desk) due(c *chunk) {
	if !c.listed {
		c.listed = true
		d.unsent.Push(c)
	}
	if c.open == 0 {
		d.finished = append(d.finished, c)
	}
}

// flush sends answers whose chunk is finished or that have waited long enough for company.
func (d *desk) flush(now time.Time) {
	for _, c := range d.finished {
		d.report(now, c)
	}
	clear(d.finished)
	d.finished = d.finished[:0]
	for d.unsent.Len() > 0 {
		c := d.unsent.Peek()
		if due := c.since.Add(flushEvery); len(c.answers) > 0 && !c.dropped && now.Before(due) {
			d.at(due)
			return
		}
		d.unsent.Pop()
		c.listed = false
		d.report(now, c)
	}
}

// report sends the answers of a chunk, if there are any.
func (d *desk) report(now time.Time, c *chunk) {
	if c.dropped || len(c.answers) == 0 {
		return
	}
	if len(c.sent) == 0 {
		c.heard = now
	}
	all := messages(c.answers)
	for _, r := range all {
		c.batch++
		r.Task, r.Chunk, r.Batch, r.Credit = c.named, c.number, c.batch, d.tasks.credit(c.task)
		d.emit(c.task.client, r)
	}
	c.answers, c.sent, c.sentAt = nil, append(c.sent, all...), now
	if c.task.owed.IsZero() {
		c.task.owed = now
	}
}

// sweep does what only time demands: pulses, results sent again, old memories.
func (d *desk) sweep(now time.Time) {
	every := d.options.waits(pulseEvery)
	if now.Sub(d.swept) < every {
		if len(d.tasks.busy) > 0 || d.tasks.stale || len(d.tasks.waiters) > 0 {
			d.at(d.swept.Add(every))
		}
		return
	}
	d.swept = now
	for t := range d.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			d.resend(now, c)
		}
		if t.silent(now) {
			d.shed(t)
		}
		if len(t.chunks) > 0 && now.Sub(t.pulsed) >= every {
			d.pulse(now, t)
		}
	}
	d.tasks.sweep(now)
	d.purge(now)
	d.tasks.queue.Sweep(now)
	d.dropLanes(now)
	if len(d.tasks.busy) > 0 || len(d.tasks.waiters) > 0 {
		d.at(now.Add(every))
	}
}

// resend sends results again that nobody acknowledged, and in the end gives them up.
func (d *desk) resend(now time.Time, c *chunk) {
	switch {
	case len(c.sent) == 0:
	case now.Sub(c.heard) >= resendFor:
		d.options.Log.Debug("results were never acknowledged", "receiver", d.key, "domain", c.task.key.Domain)
		for _, r := range c.sent {
			for _, a := range answersOf(r) {
				c.task.keep(a)
			}
		}
		c.sent = nil
		c.task.listen(now)
		if c.done() {
			d.tasks.forget(now, c)
		}
	case now.Sub(c.sentAt) >= d.options.waits(resendEvery):
		c.sentAt, c.task.pulsed = now, now
		d.options.Metrics.resent.Add(float64(len(c.sent)))
		for _, r := range c.sent {
			d.emit(c.task.client, r)
		}
	}
}

func (d *desk) pulse(now time.Time, t *task) {
	m := &wire.Pulse{Task: t.chunks[0].named, Credit: d.tasks.credit(t)}
	for _, c := range t.chunks {
		if !c.shed {
			m.Chunks = append(m.Chunks, c.number)
		}
	}
	m.Cause, m.WaitingMs = d.pulsing(now)
	m.PerHour = d.perHourOf(now, t)
	t.pulsed = now
	d.emit(t.client, m)
}

// purge takes probes that nobody wants asked out of the queues.
func (d *desk) purge(now time.Time) {
	if !d.tasks.stale {
		return
	}
	d.tasks.stale = false
	for _, l := range d.lanes {
		l.Remove(func(p *probe) bool {
			if !p.chunk.gone() {
				return false
			}
			p.chunk.open--
			return true
		})
	}
	for t := range d.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			if c.shed && c.done() {
				d.tasks.forget(now, c)
			}
		}
	}
}

// dropLanes forgets hosts that nobody asks for and nothing is known against.
func (d *desk) dropLanes(now time.Time) {
	for key, l := range d.lanes {
		l.Forget()
		if l.Queued() == 0 && !l.Aside() && l.Sessions() == 0 && (!l.knows(now) || len(d.lanes) > lanesMax) {
			delete(d.lanes, key)
		}
	}
}
