package verification

import (
	"cmp"
	"math"
	"slices"
	"time"

	"rollcall/actors/inspect"
)

const (
	// waitsMax bounds the list of waits; the rest is summed.
	waitsMax = 200

	// restMax bounds the entries of that sum: one for each cause at receivers, one for each reason of deferrals, and
	// one for each other wait.
	restMax = 50

	// surveyEvery is the least time between two looks at all domains at work; it is also at least surveyShare times as
	// long as a look takes.
	surveyEvery = time.Second
	surveyShare = 100

	// smallMax is the most addresses of a domain whose duration is used to predict that of others. Guess.
	smallMax = 100

	// deferredMuch: when this part of a domain's addresses is deferred, the last one is expected to be deferred too.
	// Guess.
	deferredMuch = 0.1
)

// survey is what the open addresses wait for at one moment.
type survey struct {
	at     time.Time
	final  int64 // in the ledger
	listed bool
	waits  []inspect.Wait // when it is listed
	finish time.Time      // zero: nobody can say
	why    string         // why not
}

// survey looks at all domains at work.
func (p *plan) survey(now, begun, deadline time.Time, listed bool) survey {
	var sums sums
	if listed {
		sums = make(map[sumKey]*inspect.Wait)
	}
	o := eta{now: now, begun: begun, deadline: deadline, pending: p.unsettled, took: p.took,
		queues: map[string]*queue{}, domains: len(p.ids) - p.next,
		busy: len(p.open) - p.resting, addresses: len(p.order) - p.began,
		began: p.began}
	o.finalRate, o.domainRate = p.throughput.rates(now, p.final, p.next-len(p.open))
	for _, w := range p.open {
		w.sum(now, sums, &o)
	}
	sums.add(inspect.Wait{Addresses: o.addresses, For: inspect.ForDomain})
	sums.add(inspect.Wait{Addresses: o.pending, For: inspect.ForLedger})
	s := survey{at: now, listed: listed}
	s.finish, s.why = o.finish()
	sums.hasten(o.queues)
	s.waits = sums.list()
	return s
}

// sum adds what the addresses of one domain wait for.
func (w *work) sum(now time.Time, all sums, o *eta) {
	if len(w.told.Waits) == 0 {
		all.add(inspect.Wait{Addresses: w.left, For: inspect.ForRoute})
		o.notClear(w)
		return
	}
	over, placed := -w.left, false // more than are open: some became final since it was told
	for i := range w.told.Waits {
		over += w.told.Waits[i].Addresses
		placed = placed || w.told.Waits[i].Receiver != ""
	}
	switch {
	case !w.told.Ends.IsZero():
		o.ends = latest(o.ends, w.told.Ends)
		o.took.add(max(0, w.told.Ends.Sub(w.begun)))
	case w.size <= smallMax || !placed:
		o.notClear(w)
	}
	for _, t := range w.told.Waits {
		gone := max(0, min(over, t.Addresses))
		over -= gone
		t.Addresses -= gone
		all.add(t)
		if t.Receiver != "" && (t.For == inspect.ForReceiver || t.For == inspect.ForRetry) {
			o.wait(now, w, t)
		}
	}
}

// notClear counts a domain that has told nothing yet, with the duration of others.
func (o *eta) notClear(w *work) {
	o.unclear++
	o.youngest = latest(o.youngest, w.begun)
}

// wait adds addresses that are at a receiver, or will be again.
func (o *eta) wait(now time.Time, w *work, t inspect.Wait) {
	if t.Addresses == 0 {
		return
	}
	q := o.queues[t.Receiver]
	if q == nil {
		q = &queue{cause: inspect.Causes[0]}
		o.queues[t.Receiver] = q
	}
	q.addresses += t.Addresses
	if t.For != inspect.ForReceiver {
		return
	}
	q.again += float64(t.Addresses) * w.told.Deferred
	if w.told.Deferred >= deferredMuch {
		q.wait = max(q.wait, w.told.Wait)
	}
	q.perHour, q.until = max(q.perHour, t.PerHour), latest(q.until, t.Until)
	if t.Cause != inspect.Causes[0] {
		q.cause = t.Cause
	}
	if age := now.Sub(w.begun).Seconds(); age > 0 {
		q.asked += float64(w.size-w.left) / age
	}
}

// sumKey is what waits are summed by.
type sumKey struct{ what, receiver, cause, reason string }

// sums are addresses by what they wait for; nil counts nothing.
type sums map[sumKey]*inspect.Wait

func (s sums) add(w inspect.Wait) {
	if w.Addresses <= 0 || s == nil {
		return
	}
	key := sumKey{w.For, w.Receiver, w.Cause, w.Reason}
	sum := s[key]
	if sum == nil {
		s[key] = &w
		return
	}
	sum.Addresses += w.Addresses
	if w.Until.Before(sum.Until) {
		sum.Until = w.Until
	}
	sum.Last = latest(sum.Last, w.Last)
	sum.PerHour = max(sum.PerHour, w.PerHour)
}

// hasten shows no receiver slower than the estimate of the finish assumes: an hour's budget may be used at once.
func (s sums) hasten(queues map[string]*queue) {
	for _, w := range s {
		if q := queues[w.Receiver]; q != nil && w.PerHour > 0 {
			w.PerHour = max(w.PerHour, int(math.Ceil(q.rate*3600)))
		}
	}
}

// list returns the waits, most addresses first. Beyond waitsMax, waits that differ only in their receiver are summed.
func (s sums) list() []inspect.Wait {
	out := make([]inspect.Wait, 0, len(s))
	for _, w := range s {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b inspect.Wait) int {
		if a.Addresses != b.Addresses {
			return b.Addresses - a.Addresses
		}
		return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.Receiver, b.Receiver),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Reason, b.Reason))
	})
	if len(out) <= waitsMax {
		return out
	}
	rest := sums{}
	for _, w := range out[waitsMax-restMax:] {
		w.Receiver, w.PerHour = "", 0
		rest.add(w)
	}
	tail := rest.list()
	return append(out[:waitsMax-restMax:waitsMax-restMax], tail[:min(len(tail), restMax)]...)
}
