package verification

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/ledger"
)

const (
	// domainTakes is how long an unknown domain is expected to take, until some have shown it: DNS and one session. Guess.
	domainTakes = 2 * time.Second

	// tooEarly is how long a run must last before its pace is used. Guess.
	tooEarly = 2 * time.Second

	// renewedWithin: a wait whose end is nearer than this may be one that the receiver renews each second because it
	// doesn't know the end. It counts as a wait without end.
	renewedWithin = 90 * time.Second
)

// queue holds what the estimate knows of a verification's addresses at one receiver.
type queue struct {
	addresses int
	again     float64       // expected questions for each address, beyond the first
	wait      time.Duration // until the last address can be asked
	perHour   int           // addresses in an hour, as the receiver says; 0: it doesn't
	asked     float64       // addresses in a second, as seen; 0: none yet
	cause     string        // what keeps us from asking the receiver more
	until     time.Time     // nothing is asked before this time

	rate float64 // addresses in a second that the estimate uses; 0: none
}

// eta holds everything that the estimate of the finish is based on. It is plain Go.
type eta struct {
	now      time.Time
	begun    time.Time // of the run
	deadline time.Time // open addresses become unknown then
	pending  int       // final and not yet settled

	queues map[string]*queue // by receiver
	ends   time.Time         // end of the domains' own waits; zero: there are none

	unclear  int       // domains at work that have not reported yet
	youngest time.Time // when the last of them was begun

	began                 int     // addresses of the domains that were begun
	domains, addresses    int     // that are not begun
	busy                  int     // domains at work that don't just wait for a time
	domainRate, finalRate float64 // domains done and addresses final in a second, lately
	durations             lasted  // what domains took, and what those at work are expected to take
}

// finish returns when the last address is expected to be settled; the zero time and why if that can't be said.
func (o *eta) finish() (time.Time, string) {
	at := latest(o.now, o.ends)
	for key, q := range o.queues {
		end, why := o.queueEnd(key, q)
		if why != "" {
			return time.Time{}, why
		}
		at = latest(at, end)
	}
	if o.unclear+o.domains > 0 {
		end, why := o.estimateUnclear(at)
		if why != "" {
			return time.Time{}, why
		}
		at = latest(at, end)
	}
	at = at.Add(settleEvery)
	if !o.deadline.IsZero() && at.After(o.deadline) {
		at = o.deadline
	}
	return at, ""
}

// queueEnd returns when a receiver is expected to have answered all waiting addresses.
func (o *eta) queueEnd(key string, q *queue) (time.Time, string) {
	from := latest(o.now, q.until)
	switch q.cause {
	case inspect.Causes[wire.Cause_PAUSED], inspect.Causes[wire.Cause_NO_SOURCE], inspect.Causes[wire.Cause_NO_SHARE],
		inspect.Causes[wire.Cause_UNREACHED]:
		// A receiver in a pause with a known end says how many addresses it will ask in an hour after it.
		ends := q.cause == inspect.Causes[wire.Cause_PAUSED] && q.perHour > 0 && q.until.After(o.now)
		if !ends && q.until.Sub(o.now) <= renewedWithin {
			return time.Time{}, fmt.Sprintf("%d addresses wait for receiver %s, and nobody can say how long: %s",
				q.addresses, key, q.cause)
		}
	}
	rate := float64(q.perHour) / 3600
	questions := float64(q.addresses) + q.again
	if rate <= 0 || questions <= float64(q.perHour) && q.cause != inspect.Causes[wire.Cause_BUDGET] {
		rate = max(rate, q.asked) // an hour's budget may be used faster while it lasts
	}
	if rate <= 0 {
		if q.cause != inspect.Causes[wire.Cause_FREE] {
			rate = o.finalRate
		}
		if rate <= 0 { // it has just begun: like an unknown domain
			return from.Add(domainTakes), ""
		}
	}
	q.rate = rate
	first, all := spell(float64(q.addresses)/rate), spell(questions/rate)
	return from.Add(max(first+q.wait, all)), ""
}

// estimateUnclear returns when the unknown domains are expected to be done. known is the same for all others at work.
func (o *eta) estimateUnclear(known time.Time) (time.Time, string) {
	at := o.now
	switch {
	case o.domains == 0:
	case o.now.Sub(o.begun) < tooEarly:
		return time.Time{}, "it has only begun"
	case o.domainRate > 0 && o.finalRate > 0:
		at = at.Add(spell(max(float64(o.domains)/o.domainRate, float64(o.addresses)/o.finalRate)))
		known = latest(known, o.now.Add(spell(float64(o.domains+o.busy)/o.domainRate)))
	case known.After(o.now) && o.began > 0: // as those that are at work
		at = known.Add(spell(known.Sub(o.begun).Seconds() * float64(o.addresses) / float64(o.began)))
	default:
		return time.Time{}, fmt.Sprintf("%d domains are not begun, and none was done of late", o.domains)
	}
	took, shown := o.durations.longest(o.unclear + o.domains)
	if !shown {
		took = domainTakes
	}
	if o.domains == 0 {
		at = o.youngest
	}
	return latest(known, at.Add(took)), ""
}

// spell returns seconds as a duration, at most a year.
func spell(seconds float64) time.Duration {
	return time.Duration(min(seconds, 365*24*3600) * float64(time.Second))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

const (
	// samplesMax bounds the samples of a run's progress: they cover more than twice the time that is used.
	samplesMax = 64

	// paceOver is the part of a run over which its pace is measured: older figures are outdated, and one second shows
	// nothing. Guess.
	paceOver = 3

	// lastedSteps is how many classes of duration lie between one and its double, and lastedMax how many in all: from a
	// millisecond to a fortnight.
	lastedSteps = 4
	lastedMax   = 30 * lastedSteps
)

// throughput measures how fast a run goes. It is plain Go. Mailbox only.
type throughput struct {
	samples []sample // oldest first
	every   time.Duration
}

// sample is the progress of a run at a time.
type sample struct {
	at        time.Time
	addresses int // that are final
	domains   int // that are done
}

// note samples the progress of the run, now and then.
func (p *throughput) note(now time.Time, addresses, domains int) {
	if n := len(p.samples); n > 0 && now.Sub(p.samples[n-1].at) < p.every {
		return
	}
	p.samples = append(p.samples, sample{now, addresses, domains})
	if len(p.samples) < samplesMax {
		return
	}
	kept := p.samples[:0]
	for i := 0; i < len(p.samples); i += 2 {
		kept = append(kept, p.samples[i])
	}
	p.samples, p.every = kept, max(2*p.every, tickEvery)
}

// rates returns how many addresses become final and how many domains end in a second; 0: unknown. It returns the
// higher of the recent rate and the whole run's, because domains end in bursts.
func (p *throughput) rates(now time.Time, addresses, domains int) (finals, done float64) {
	if len(p.samples) == 0 {
		return 0, 0
	}
	from := p.samples[0]
	finals, done = from.rates(now, addresses, domains)
	ago := now.Sub(from.at) / paceOver
	for _, s := range p.samples {
		if now.Sub(s.at) < ago {
			break
		}
		from = s
	}
	late, doneLate := from.rates(now, addresses, domains)
	return max(finals, late), max(done, doneLate)
}

func (s sample) rates(now time.Time, addresses, domains int) (finals, done float64) {
	over := now.Sub(s.at).Seconds()
	if over <= 0 {
		return 0, 0
	}
	return float64(addresses-s.addresses) / over, float64(domains-s.domains) / over
}

// lasted counts how long domains took, by length.
type lasted [lastedMax]int

func (l *lasted) add(took time.Duration) {
	ms := max(1, float64(took.Milliseconds()))
	l[min(int(math.Ceil(math.Log2(ms)*lastedSteps)), lastedMax-1)]++
}

// longest returns how long the longest of more further domains is expected to take; false: unknown.
func (l *lasted) longest(more int) (time.Duration, bool) {
	n := 0
	for _, c := range l {
		n += c
	}
	if n == 0 {
		return 0, false
	}
	want := int(math.Ceil(float64(n) * float64(more) / float64(more+1)))
	for i, c := range l {
		if want -= c; want <= 0 {
			return time.Duration(math.Exp2(float64(i)/lastedSteps) * float64(time.Millisecond)), true
		}
	}
	return 0, false // not reached: want is at most n
}

const (
	// remarkEvery is the least time between two estimates written to the ledger while nothing is settled. Guess: clients
	// ask again after half a minute.
	remarkEvery = 30 * time.Second

	// remarkShare: an estimate is written again when it has changed by more than this part of the time left.
	remarkShare = 5
)

// published is the estimate last written to the ledger.
type published struct {
	ledger.Estimate
	at time.Time
}

func publishedOf(v ledger.Verification, now time.Time) published {
	return published{ledger.Estimate{Next: v.NextTry, Expected: v.Expected}, now}
}

// recentStatus returns when the last address is expected to be final and what they wait for, from a recent look.
func (a *Actor) recentStatus(now time.Time) status {
	if a.plan == nil {
		return status{at: now, final: a.state.Counts.Sum(), why: "its file is being read"}
	}
	if now.Before(a.seen.next) {
		return a.seen
	}
	a.seen = a.plan.collectStatus(now, a.begun, a.deadline)
	a.seen.final = a.state.Counts.Sum()
	a.seen.next = now.Add(max(statusEvery, statusShare*time.Since(now)))
	return a.seen
}

func (a *Actor) answerStatus(now time.Time) inspect.Verification {
	s := a.recentStatus(now)
	v := inspect.Verification{ID: a.state.ID.String(), Workspace: a.state.Workspace.String(),
		Status: string(a.state.Status), Total: a.state.Total, Final: s.final, At: s.at,
		Waits: s.waits, Why: s.why, Finish: whole(s.finish)}
	switch a.mode {
	case cancelling:
		v.Waits, v.Why, v.Finish = nil, "it is being cancelled", time.Time{}
	case draining, closing, ended:
		v.Waits, v.Why, v.Finish = nil, "this node gives it up: another one goes on with it", time.Time{}
	case loading, working:
	}
	return v
}

// whole rounds up to a second: clients need no more, and the ledger is written less often.
func whole(t time.Time) time.Time {
	if t.IsZero() || t.Equal(t.Truncate(time.Second)) {
		return t
	}
	return t.Truncate(time.Second).Add(time.Second)
}

// publishStatus tells the ledger, and so the customer, whether all open addresses wait for receivers, and until when.
func (a *Actor) publishStatus(c actor.Context, now time.Time) {
	until, quiet := a.plan.quiet()
	if quiet = quiet && until.Sub(now) >= waitingMin; !quiet {
		until = time.Time{}
	}
	if a.marks.underWay || now.Before(a.marks.next) {
		return
	}
	switch {
	case quiet != a.marks.waiting && now.Sub(a.marks.changed) < waitingDwell && (quiet || a.plan.left != nil):
		return // a verification that woke often only checks whether a receiver answers now, and waits again
	case quiet != a.marks.waiting:
	case a.settlement.underWay || len(a.plan.pending) > 0 || now.Sub(a.marks.estimate.at) < remarkEvery:
		return // the settlement tells it
	}
	next := ledger.Estimate{Next: until, Expected: whole(a.recentStatus(now).finish)}
	if was := a.marks.estimate; quiet == a.marks.waiting && !moved(now, was.Next, next.Next) &&
		!moved(now, was.Expected, next.Expected) {
		return
	}
	if quiet {
		next.Why = a.recentStatus(now).sentence()
	}
	a.marks.underWay = true
	var state ledger.Verification
	a.callLedger(c, func(ctx context.Context) (err error) {
		state, err = a.options.Book.Wait(ctx, a.lease, next)
		return err
	}, func(c actor.Context, now time.Time, err error) {
		a.marks.underWay = false
		switch {
		case a.mode == ended:
		case err == nil:
			a.statusPublished(now, state, next)
		case !a.endIfRefused(c, err):
			a.marks.next = now.Add(retryMax)
			a.options.Log.Warn("waiting status not written yet", "verification", a.state.ID, "err", err)
		}
	})
}

// moved reports whether a published time has changed by more than 1/remarkShare of the time left.
func moved(now, was, is time.Time) bool {
	switch {
	case was.IsZero() || is.IsZero():
		return was.IsZero() != is.IsZero()
	case !was.After(now): // it has come and changed nothing
		return true
	}
	return is.Sub(was).Abs() > max(is.Sub(now), was.Sub(now))/remarkShare
}

func (a *Actor) statusPublished(now time.Time, state ledger.Verification, written ledger.Estimate) {
	if a.marks.waiting == written.Next.IsZero() {
		a.marks.changed = now
	}
	a.marks.waiting, a.marks.estimate = state.Status == ledger.Waiting, published{written, now}
	if state.Settlements >= a.state.Settlements { // the mark may be older than the newest settlement
		a.state = state
	}
	a.beginCancel(state)
}
