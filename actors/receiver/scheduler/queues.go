package scheduler

import (
	"maps"
	"slices"
	"time"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
)

// hostQueuesMax: above this many queues, queues without work are forgotten with all that they know: 10 MB.
const hostQueuesMax = 10_000

type asideQueue struct {
	queue *hostQueue
	until time.Time
}

// queues are this receiver's sets of hosts, with the probes that wait for each.
type queues struct {
	inbox
	*env
	paths *paths
	all   map[string]*hostQueue
	aside fairqueue.FIFO[asideQueue] // queues that get no session for now, though their hosts are fine

	waiting []*recheck             // addresses that are soon asked again here
	parked  map[string]*heldDomain // domains that let others go first
	barren  barren                 // barren time of all hosts together
}

func (qs *queues) hostQueue(now time.Time, hosts []*wire.Host) *hostQueue {
	r := qs.paths.routeTo(now, hosts)
	l := qs.all[r.key]
	if l == nil {
		l = &hostQueue{waiting: qs.fair.NewHostQueue(r.key), route: r, barren: barren{whole: &qs.barren}}
		qs.all[r.key] = l
	}
	return l
}

func (qs *queues) pushProbe(l *hostQueue, p *Probe) {
	if p.chunk.gone() || qs.handingOff {
		p.chunk.open--
		qs.tasks.stale = qs.tasks.stale || p.chunk.shed // the chunk may be done; then purge forgets it
		return
	}
	if p.chunk.returned {
		qs.returnProbe(qs.now, p)
		return
	}
	if known := qs.all[l.key]; known == nil { // the queue was forgotten while the probe was set aside
		qs.all[l.key], qs.paths.routes[l.key] = l, l.route
	} else {
		l = known
	}
	class := fairqueue.ClassOf(p.Address.Local)
	switch {
	case p.recheck != nil || p.turn: // the address is asked again
		class = fairqueue.First
	case p.retry: // a retry may be the last try of an address, and greylists forget
		class = fairqueue.Retry
	}
	l.Push(qs.flowOf(p.chunk.task), p, class)
}

func (qs *queues) popProbe(l *hostQueue) *Probe {
	p, _ := l.Pop()
	return p
}

// unreachable returns why no host can be dialled now from any of our sources, and until when. UNREACHED: no host
// answers. PENALTY: hosts answer but refuse us now.
func (qs *queues) unreachable(now time.Time) (b status.Blocked) {
	for _, l := range qs.all {
		if l.Sessions() > 0 {
			return status.Blocked{}
		}
		for _, c := range l.candidates {
			if qs.paths.choosePath(now, l.route, c.at) != nil && !now.Before(c.until) {
				return status.Blocked{}
			}
			judged, until, _ := qs.paths.hostUnavailable(now, l.route, c)
			if b.Until.IsZero() || until.Before(b.Until) {
				b = status.Blocked{Cause: wire.Cause_UNREACHED, Until: until}
				if judged.Attempt.Code != 0 {
					b.Cause = wire.Cause_PENALTY
				}
			}
		}
	}
	return b
}

// setAside takes a queue out of the order for sessions for a while, though nothing is wrong with its hosts.
func (qs *queues) setAside(now time.Time, l *hostQueue, until time.Time) {
	if soon := now.Add(asideFor); until.IsZero() || until.After(soon) {
		until = soon // the reason for setting aside may change
	}
	l.SetAside()
	qs.aside.Push(asideQueue{l, until})
	qs.wakeAt(until)
}

func (qs *queues) readmitAside(now time.Time) {
	for qs.aside.Len() > 0 {
		one := qs.aside.Peek()
		if now.Before(one.until) {
			qs.wakeAt(one.until)
			return
		}
		qs.aside.Pop()
		one.queue.Readmit()
	}
}

func (qs *queues) purgeGone(now time.Time) {
	if !qs.tasks.stale {
		return
	}
	qs.tasks.stale = false
	for _, l := range qs.all {
		l.Remove(func(p *Probe) bool {
			if !p.chunk.gone() {
				return false
			}
			p.chunk.open--
			return true
		})
	}
	for t := range qs.tasks.busy {
		for _, c := range slices.Clone(t.chunks) {
			if c.shed && c.done() {
				qs.tasks.forgetChunk(now, c)
			}
		}
	}
}

// returnTask returns a task's unasked probes. returnTask ignores an older owner.
func (qs *queues) returnTask(now time.Time, m *wire.Cancel) {
	t := qs.tasks.all[m.GetTask().Key()]
	if t == nil || m.GetTask().GetEpoch() < t.epoch {
		return
	}
	for _, c := range t.chunks {
		c.returned = true
	}
	for _, l := range qs.all {
		l.Remove(func(p *Probe) bool {
			if p.chunk.task != t || p.chunk.gone() {
				return false
			}
			qs.returnProbe(now, p)
			return true
		})
	}
}

func (qs *queues) returnProbe(now time.Time, p *Probe) {
	qs.answerProbe(p, Judgement{Verdict: again(smtp.ReceiverRateLimited, "given back")}, now)
}

// dropUnused forgets queues that have no work and whose hosts have nothing worth keeping.
func (qs *queues) dropUnused(now time.Time) {
	for key, l := range qs.all {
		l.Forget()
		unused := l.Queued() == 0 && !l.Aside() && l.Sessions() == 0
		if unused && (!l.knowsSomething(now) || len(qs.all) > hostQueuesMax) {
			delete(qs.all, key)
		}
	}
	maps.DeleteFunc(qs.paths.routes, func(key string, _ *route) bool { return qs.all[key] == nil })
}

// tellWaiting defers every waiting probe to the end of the pause.
func (qs *queues) tellWaiting(now time.Time) {
	judged := qs.paths.receiver.judgement
	judged.Attempt.Others = true
	judged.Verdict.Wait = qs.paths.receiver.until.Sub(now)
	if qs.fair.Queued() == 0 {
		return
	}
	for _, l := range qs.all {
		for l.Queued() > 0 {
			p := qs.popProbe(l)
			p.recheck = nil
			p.note(judged)
			qs.answerProbe(p, judged, now)
		}
	}
}

// readmitAll puts every queue back into the order for sessions, because what kept it out may have ended.
func (qs *queues) readmitAll() {
	for qs.aside.Len() > 0 {
		qs.aside.Pop().queue.Readmit()
	}
}

// hostQueue is a set of hosts with their waiting probes. The sessions of a hostQueue serve all addresses of the route,
// whatever the domain or verification.
type hostQueue struct {
	*waiting
	*route
	behind int       // addresses for these hosts that are still at their clients
	greyed time.Time // newest first deferral of a greylisted address that came back
	barren barren

	cameBack bool // the first session got only deferrals, and another one was tried
}

// left returns how many addresses are known to wait, here and at their clients.
func (l *hostQueue) left() int { return l.Queued() + l.behind }

// waiting holds the probes of a queue; flow holds the probes of a verification.
type (
	waiting = fairqueue.HostQueue[*Probe]
	flow    = fairqueue.Flow[*Probe]
)

// smallFlow: a verification with fewer waiting addresses doesn't wait for a full turn of other verifications.
const smallFlow = 50

// knowsSomething reports whether something worth keeping is known of the hosts.
func (l *hostQueue) knowsSomething(now time.Time) bool {
	return l.barren.worthKeeping(now) || l.route.knowsSomething(now)
}
