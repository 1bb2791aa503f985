package scheduler

import (
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// behindOf returns the backlog at the client, as an offer reports it.
func behindOf(now time.Time, m *wire.Offer) behind {
	return behind{n: int(m.GetBehind()), at: now,
		since: now.Add(-time.Duration(max(0, m.GetWaitingMs())) * time.Millisecond)}
}

// usable reports whether an offer has addresses, has reachable hosts, and isn't too large.
func usable(m *wire.Offer) bool {
	return len(m.GetProbes()) > 0 && len(m.GetProbes()) <= wire.AddressesMax && reachable(m.GetHosts())
}

func reachable(hosts []*wire.Host) bool {
	for _, h := range hosts {
		if len(h.Addresses()) > 0 {
			return true
		}
	}
	return false
}

// takeOffer accepts a chunk, or refuses it with a reason.
func (qs *queues) takeOffer(now time.Time, from Client, m *wire.Offer) {
	if qs.handingOff {
		qs.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_DRAINING})
		return
	}
	t := qs.tasks.claimTask(m.GetTask().Key(), m.GetTask().GetEpoch(), from)
	if t == nil {
		qs.options.Metrics.stale.Inc()
		qs.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: wire.Refusal_STALE_EPOCH})
		return
	}
	t.noteMessage(now)
	t.belongTo(m.GetWorkspace())
	refusal, waiting := wire.Refusal_NONE, behindOf(now, m)
	switch {
	case t.knows(now, m.GetChunk()): // a late copy of an offer
		qs.options.Metrics.doubled.Inc()
	case !usable(m) || !qs.tasks.hasRoom(t, len(m.GetProbes()), m.Retries()):
		refusal = wire.Refusal_FULL
		waiting.n += len(m.GetProbes())
	default:
		qs.acceptOffer(now, t, m)
	}
	qs.tasks.noteBacklog(t, waiting)
	qs.tasks.retireTask(now, t)
	qs.emitTo(from, &wire.OfferAck{Task: m.GetTask(), Chunk: m.GetChunk(), Refusal: refusal,
		Credit: qs.tasks.countCredit(t)})
}

// probesPage is how many probes are allocated at once. A waiting probe keeps its whole page in memory.
const probesPage = 32

func (qs *queues) acceptOffer(now time.Time, t *task, m *wire.Offer) {
	c := &chunk{task: t, number: m.GetChunk(), named: m.GetTask(),
		deadline: wire.Until(now, m.GetExpiresInMs()), open: len(m.GetProbes()), offered: now,
		retries: m.Retries(), hosts: len(m.GetHosts())}
	t.chunks = append(t.chunks, c)
	t.beatAt = now
	qs.tasks.busy[t] = struct{}{}
	l := qs.hostQueue(now, m.GetHosts())
	qs.tasks.moveTo(t, l)
	_, o := qs.paths.nextCandidate(now, l.route)
	var page []Probe
	for i, p := range m.GetProbes() {
		c.control = c.control || p.GetOrdinal() == wire.ControlOrdinal
		if i%probesPage == 0 {
			page = make([]Probe, min(probesPage, len(m.GetProbes())-i))
		}
		one := &page[i%probesPage]
		*one = Probe{chunk: c, ordinal: p.GetOrdinal(), hosts: m.GetHosts(),
			retry: p.GetRetry(), asked: p.GetAsked(),
			Address: smtp.Address{Local: p.GetLocal(), Domain: t.key.Domain}}
		if ago, by, ok := p.Greylisted(); ok {
			one.deferred, one.deferredBy = now.Add(-ago), by
			l.greyed = later(l.greyed, one.deferred)
		}
		if !qs.handOver(now, one) && (o == nil || !qs.parkDeferred(now, o, one)) {
			qs.pushProbe(l, one)
		}
	}
}

// chunk is an accepted offer, with its open probes, and its unsent or unacknowledged answers.
type chunk struct {
	task     *task
	number   uint64
	named    *wire.Task // the task, as the offer named it
	deadline time.Time  // zero: no deadline
	offered  time.Time
	hosts    int  // number of hosts of the route
	open     int  // probes without an answer
	control  bool // the chunk has a control probe
	retries  bool // all were deferred before and are due
	answers  []answer
	since    time.Time // when the oldest of answers came
	listed   bool      // the chunk is in inbox.unsent
	sent     []*wire.Results
	sentAt   time.Time // when the messages in sent were last sent
	heard    time.Time // the client's last message after the oldest of sent; without one, when that was sent
	batch    uint64
	dropped  bool // cancelled: nobody gets its answers
	returned bool // cancelled: unbegun probes are returned
	shed     bool // its client is silent: waiting probes aren't asked
}

// done reports whether nothing is left to do for the chunk.
func (c *chunk) done() bool { return c.open == 0 && len(c.answers) == 0 && len(c.sent) == 0 }

// gone reports whether the waiting probes of the chunk are dropped.
func (c *chunk) gone() bool { return c.dropped || c.shed }

// unanswered returns how many addresses have no answer, with the addresses on the wire. The control probe doesn't
// count.
func (c *chunk) unanswered() int {
	switch {
	case c.gone():
		return 0
	case c.control:
		return c.open - 1
	}
	return c.open
}

// Probe is one address that waits to be asked.
type Probe struct {
	chunk   *chunk
	ordinal uint32
	Address smtp.Address
	hosts   []*wire.Host // hosts that are left to ask, best first
	tries   int          // sessions that ended while the probe was on the wire
	recheck *recheck     // the address got a bad answer here and waits to be asked again
	asked   bool         // a RCPT was sent for the address before it was offered
	retry   bool         // the address was deferred before it was offered, and is due
	turn    bool         // the address has waited longest: while nothing passes, it may be asked alone

	deferred   time.Time          // time of the first deferral; zero: none
	deferredBy string             // our source that got this deferral
	attempts   []evidence.Attempt // attempts since the offer, at most evidence.AttemptsMax
	omitted    int                // attempts left out
}

// IsControl reports whether the probe is a control probe.
func (p *Probe) IsControl() bool { return p.ordinal == wire.ControlOrdinal }

// answer is the verdict on a probe with the probe's attempts.
type answer struct {
	ordinal  uint32
	outcome  smtp.Outcome
	reason   smtp.Reason
	wait     time.Duration
	attempts []evidence.Attempt
	omitted  int
}

// note keeps an attempt as evidence. An attempt that repeats the last one is dropped; the reason of a pause may come
// again.
func (p *Probe) note(judged Judgement) {
	if last := len(p.attempts) - 1; !judged.wasAsked() || last >= 0 && sameAs(&p.attempts[last], judged.Attempt) {
		return
	}
	c := evidence.Case{Attempts: p.attempts, Omitted: p.omitted}
	c.Add(judged.Attempt)
	p.attempts, p.omitted = c.Attempts, c.Omitted
}

func (p *Probe) given() evidence.Case {
	return evidence.Case{Attempts: p.attempts, Omitted: p.omitted, Hosts: p.chunk.hosts}
}

func (p *Probe) closeWith(judged Judgement, at time.Time) {
	v := judged.Verdict
	p.deliverAnswer(answer{ordinal: p.ordinal, outcome: v.Outcome, reason: v.Reason, wait: v.Wait,
		attempts: p.attempts, omitted: p.omitted}, at)
}

func (p *Probe) deliverAnswer(a answer, at time.Time) {
	c := p.chunk
	c.open--
	c.control = c.control && a.ordinal != wire.ControlOrdinal
	if c.dropped {
		c.task.keepAnswer(a)
		return
	}
	if len(c.answers) == 0 {
		c.since, c.answers = at, make([]answer, 0, min(c.open+1, workMax))
	}
	c.answers = append(c.answers, a)
}

// resultsMax bounds the results of one message in bytes: the 64 KB of a message, less an envelope and a task. An answer
// needs less than half of resultsMax: evidence.AttemptsMax attempts of evidence.TextMax, and names.
const resultsMax = 60_000

// messages packs answers into few messages, each within resultsMax.
func messages(answers []answer) []*wire.Results {
	var texts wire.Texts
	r := &wire.Results{Answers: make([]*wire.Answer, len(answers))}
	all, attempts := make([]wire.Answer, len(answers)), 0
	for i := range answers {
		attempts += len(answers[i].attempts)
	}
	texts.Grow(attempts)
	for i := range answers {
		a, m := &answers[i], &all[i]
		m.Ordinal, m.Outcome, m.Reason = a.ordinal, uint32(a.outcome), uint32(a.reason)
		m.WaitMs, m.Attempts, m.Omitted = a.wait.Milliseconds(), texts.Attempts(a.attempts), uint32(a.omitted)
		r.Answers[i] = m
	}
	r.Texts = texts.List()
	if half := len(answers) / 2; half > 0 && proto.Size(r) > resultsMax {
		return append(messages(answers[:half]), messages(answers[half:])...)
	}
	return []*wire.Results{r}
}

func answersOf(r *wire.Results) []answer {
	out, reader := make([]answer, 0, len(r.GetAnswers())), wire.NewReader(r)
	for _, m := range r.GetAnswers() {
		outcome, reason := m.Verdict()
		out = append(out, answer{ordinal: m.GetOrdinal(), outcome: outcome, reason: reason,
			wait: time.Duration(m.GetWaitMs()) * time.Millisecond, attempts: reader.AttemptsOf(m),
			omitted: int(m.GetOmitted())})
	}
	return out
}
