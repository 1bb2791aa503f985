package scheduler

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// What clients of a trial do is what actors/domain does: planner.go, backlog.go and retries.go there have the
// same numbers.
const (
	chunksOut  = 2                // of a task, and of those that are due again beside them
	chunkLeast = 25               // addresses of a chunk
	chunkSoon  = 20 * time.Second // a chunk that is answered sooner is followed by one twice as large
	namedInRow = 4                // waits in a row may be as short as they are named
	earlyApart = 100 * time.Millisecond
)

// taskOf is a client with one task.
type taskOf struct {
	tenant    int
	name      string
	workspace []byte
	task      *wire.Task
	route     []*wire.Host
	cases     []caseOf // by ordinal
	next      int      // of cases that was never offered
	ready     []uint32 // given back
	later     laterList
	out       map[uint64]*chunkOut
	chunk     uint64
	size      int // of the next chunk
	greyWait  time.Duration
	answered  int
	heard     time.Time
	wakes     time.Time
	retryAt   time.Time // those that are due again were refused
}

// caseOf is what a client knows of one address.
type caseOf struct {
	grey   time.Time   // deferred itself for the first time
	reason smtp.Reason // why it was deferred last
	due    time.Time
	waits  int
	tries  int
	since  time.Time // when it was asked: the first RCPT since it was offered
	asked  bool      // itself, before
	fixed  bool      // its wait was named, or it was asked early before
}

type chunkOut struct {
	sent    time.Time
	retries bool // of those that were due again
	left    map[uint32]bool
}

// laterList are addresses that were deferred, the soonest first.
type laterList struct {
	of   *taskOf
	list []uint32
}

func (l *laterList) Len() int           { return len(l.list) }
func (l *laterList) Less(i, j int) bool { return l.due(i).Before(l.due(j)) }
func (l *laterList) Swap(i, j int)      { l.list[i], l.list[j] = l.list[j], l.list[i] }
func (l *laterList) Push(v any)         { l.list = append(l.list, v.(uint32)) }
func (l *laterList) Pop() any {
	v := l.list[len(l.list)-1]
	l.list = l.list[:len(l.list)-1]
	return v
}
func (l *laterList) due(i int) time.Time { return l.of.cases[l.list[i]].due }

// local spells the mailbox of an ordinal.
func (t *taskOf) local(o uint32) string { return fmt.Sprintf("a%d.%d", t.tenant, o) }

// address spells its whole address.
func (t *taskOf) address(o uint32) string { return t.local(o) + "@" + t.task.GetDomain() }

// add gives a tenant n addresses at a domain.
func (tr *trial) add(tenant int, domain string, n int, route []*wire.Host) {
	t := &taskOf{tenant: tenant, name: domain + fmt.Sprint(tenant), route: route, out: map[uint64]*chunkOut{},
		cases: make([]caseOf, n), size: wire.AddressesMax, workspace: id(byte(100 + tenant)),
		task: &wire.Task{Verification: id(byte(tenant)), Epoch: 1, Domain: domain}}
	t.later.of = t
	tr.all, tr.left, tr.unsettled = tr.all+n, tr.left+n, tr.unsettled+n
	for o := range uint32(n) {
		if tr.stranger.isOdd(tenant, t.address(o)) {
			tr.unsettled--
		}
	}
	tr.little = tr.unsettled / 10
	tr.tasks = append(tr.tasks, t)
	tr.clients[t.name], tr.named[t.task] = t, t
	tr.after(time.Duration(len(tr.tasks))*time.Millisecond, func() { tr.pump(t) })
}

// take returns the next chunk: of addresses that are due again, or of the others.
func (tr *trial) take(t *taskOf, retries bool) (list []uint32) {
	for retries && !tr.now.Before(t.retryAt) && len(list) < t.size && t.later.Len() > 0 && !t.later.due(0).After(tr.now) {
		list = append(list, heap.Pop(&t.later).(uint32))
	}
	if retries {
		return list
	}
	for last := len(t.ready) - 1; last >= 0 && len(list) < t.size; last-- {
		list, t.ready = append(list, t.ready[last]), t.ready[:last]
	}
	for len(list) < t.size && t.next < len(t.cases) {
		list = append(list, uint32(t.next))
		t.next++
		tr.left--
	}
	return list
}

// room reports whether one more chunk may be out, of those that are due again or of the others.
func (t *taskOf) room(retries bool) bool {
	n := 0
	for _, out := range t.out {
		if out.retries == retries {
			n++
		}
	}
	return n < chunksOut
}

// pump offers what a task has to ask now, what is due again before all else.
func (tr *trial) pump(t *taskOf) {
	for _, retries := range []bool{true, false} {
		for t.room(retries) {
			list := tr.take(t, retries)
			if len(list) == 0 {
				break
			}
			tr.offer(t, list, retries)
		}
	}
	tr.wakeClient(t)
}

// offer offers a chunk.
func (tr *trial) offer(t *taskOf, list []uint32, retries bool) {
	t.chunk++
	m := &wire.Offer{Task: t.task, Chunk: t.chunk, Hosts: t.route, Workspace: t.workspace,
		Behind: uint32(len(t.cases) - t.next + len(t.ready)), WaitingMs: tr.now.Sub(begin).Milliseconds()}
	out := &chunkOut{sent: tr.now, retries: retries, left: map[uint32]bool{}}
	for _, o := range list {
		p := &wire.Probe{Ordinal: o, Local: t.local(o), Retry: t.cases[o].tries > 0, Asked: t.cases[o].asked}
		if grey := t.cases[o].grey; !grey.IsZero() {
			p.Greylist(tr.now.Sub(grey), "")
		}
		m.Probes = append(m.Probes, p)
		out.left[o] = true
	}
	t.out[t.chunk] = out
	tr.scheduler.Offer(tr.now, Client{Name: t.name}, m)
	tr.told = true
}

// wakeClient sees to it that what was deferred is offered when it is due.
func (tr *trial) wakeClient(t *taskOf) {
	if t.later.Len() == 0 || !t.room(true) {
		return
	}
	if at := later(t.later.due(0), t.retryAt); !t.wakes.After(tr.now) || at.Before(t.wakes) {
		t.wakes = tr.now.Add(max(10*time.Millisecond, at.Sub(tr.now)))
		tr.after(t.wakes.Sub(tr.now), func() { tr.pump(t) })
	}
}

func (tr *trial) heardOf(to Client, msg proto.Message) {
	t := tr.clients[to.Name]
	t.heard = tr.now
	switch m := msg.(type) {
	case *wire.OfferAck:
		if out := t.out[m.GetChunk()]; out != nil && m.GetRefusal() != wire.Refusal_NONE {
			if tr.giveBack(t, m.GetChunk()); out.retries {
				t.retryAt = tr.now.Add(time.Second)
			}
			tr.after(time.Second, func() { tr.pump(t) })
		}
	case *wire.Results:
		tr.after(time.Millisecond, func() {
			if m.GetTask() == t.task {
				tr.scheduler.Acked(tr.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
				tr.results(t, m)
				tr.pump(t)
				tr.told = true
			}
		})
	}
}

// giveBack makes what a chunk has left ready to be offered again.
func (tr *trial) giveBack(t *taskOf, number uint64) {
	list := []uint32{}
	for o := range t.out[number].left {
		list = append(list, o)
	}
	slices.Sort(list)
	for _, o := range list {
		if t.cases[o].tries > 0 {
			heap.Push(&t.later, o) // it is due already
		} else {
			t.ready = append(t.ready, o)
		}
	}
	delete(t.out, number)
}

// offerAnew begins with another owner of the receiver: what has no answer is offered to it.
func (tr *trial) offerAnew(t *taskOf) {
	for o := range t.cases {
		t.cases[o].since = time.Time{}
	}
	for number := uint64(1); number <= t.chunk; number++ {
		if t.out[number] != nil {
			tr.giveBack(t, number)
		}
	}
	delete(tr.named, t.task)
	t.task = &wire.Task{Verification: t.task.GetVerification(), Epoch: t.task.GetEpoch() + 1, Domain: t.task.GetDomain()}
	tr.named[t.task], t.chunk, t.size = t, 0, wire.AddressesMax
	tr.pump(t)
}

func (tr *trial) results(t *taskOf, m *wire.Results) {
	out := t.out[m.GetChunk()]
	if out == nil {
		return
	}
	reader := wire.NewReader(m)
	for _, a := range m.GetAnswers() {
		if o := a.GetOrdinal(); out.left[o] {
			delete(out.left, o)
			tr.result(t, o, &reader, a)
		}
	}
	if len(out.left) > 0 {
		return
	}
	delete(t.out, m.GetChunk())
	if t.size *= 2; tr.now.Sub(out.sent) > chunkSoon {
		t.size /= 4
	}
	t.size = min(max(t.size, chunkLeast), wire.AddressesMax)
}

// result takes one answer: an outcome, or a deferral of the address.
func (tr *trial) result(t *taskOf, o uint32, m *wire.Reader, a *wire.Answer) {
	c := &t.cases[o]
	c.tries++
	c.since = time.Time{}
	outcome, reason := a.Verdict()
	attempts := m.AttemptsOf(a)
	if outcome.Final() {
		t.answered++
		odd := tr.stranger.oddAt(t.tenant, t.address(o))
		if odd == nil || !odd.forever {
			if tr.unsettled--; tr.unsettled == tr.little {
				tr.drained = int(tr.now.Sub(begin) / time.Second)
			}
		}
		isInvalid := odd != nil && odd.grey == 0 || tr.stranger.isInvalid(t.tenant, t.address(o))
		if (odd == nil || !odd.forever) && (outcome == smtp.Invalid) != isInvalid {
			tr.wrong++
		}
		if c.reason == smtp.Greylisted {
			tr.passed(t, tr.now.Sub(c.grey))
		}
		return
	}
	asked, itself := tr.readAttempts(attempts)
	c.asked = c.asked || slices.ContainsFunc(attempts, func(t evidence.Attempt) bool { // as domain's markAsked
		return t.Stage == smtp.StageRcpt && !t.Others
	})
	if i := slices.IndexFunc(attempts, isDeferral); i >= 0 && c.grey.IsZero() {
		c.grey, c.waits, c.fixed = attempts[i].At, 0, false
	}
	c.reason = reason
	wait, nth := a.Wait(), c.waits
	if c.fixed = wait > 0; c.fixed {
		wait += min(wait/20+50*time.Millisecond, time.Second)
		nth -= namedInRow
	}
	if a.Wait() <= 0 || nth >= 0 && itself {
		own := tr.waits[min(nth, len(tr.waits)-1)]
		if c.waits == 0 && !c.grey.IsZero() {
			own = max(0, own-tr.now.Sub(c.grey))
		}
		wait = max(wait, own)
	}
	if asked || reason != smtp.ReceiverRateLimited && reason != smtp.HarvestGuard { // a limit uses up no wait
		c.waits++
	}
	c.due = tr.now.Add(wait)
	heap.Push(&t.later, o)
}

// readAttempts reports whether an address was asked itself, and whether it was deferred itself.
func (tr *trial) readAttempts(list []evidence.Attempt) (asked, itself bool) {
	asked = slices.ContainsFunc(list, func(t evidence.Attempt) bool { return !t.Others })
	if len(list) > 0 {
		last := list[len(list)-1]
		itself = last.Stage == smtp.StageRcpt && last.Code/100 == 4 && last.Blame != smtp.BlameSource && !last.Others
	}
	return asked, itself
}

// isDeferral reports whether an attempt put its own address off.
func isDeferral(t evidence.Attempt) bool {
	return t.Stage == smtp.StageRcpt && t.Code/100 == 4 && !t.Others && !t.Void
}

// passed has the greylisted ones of a task asked as soon as they have waited for as long as one that passed.
func (tr *trial) passed(t *taskOf, waited time.Duration) {
	if t.greyWait > 0 && waited > t.greyWait-t.greyWait/4 {
		return
	}
	t.greyWait = waited
	at := tr.now
	for _, o := range t.later.list {
		c := &t.cases[o]
		if c.reason != smtp.Greylisted || c.grey.IsZero() || c.fixed {
			continue
		}
		due := c.grey.Add(waited)
		if due.Before(tr.now) {
			due = tr.now
		}
		if due.Before(c.due) {
			if at = at.Add(earlyApart); due.Before(at) {
				due = at
			}
			if due.Before(c.due) {
				c.due = due
			}
			c.fixed = true
		}
	}
	heap.Init(&t.later)
}
