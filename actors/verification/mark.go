package verification

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/inspect"
	"rollcall/ledger"
)

const (
	// remarkEvery is how often the ledger is told anew what is expected, at most, while
	// nothing is settled. Guess: clients ask again after half a minute.
	remarkEvery = 30 * time.Second

	// remarkPart is the part of the time that is left by which it must be another to
	// be worth a write.
	remarkPart = 5
)

// outlooks is what the ledger was told last.
type outlooks struct {
	ledger.Outlook
	at time.Time
}

// survey says when the last address is expected to be final and, when they are listed, what
// they wait for, as it was not long ago.
func (a *Actor) survey(now time.Time, listed bool) survey {
	if a.plan == nil {
		return survey{at: now, final: a.state.Counts.Sum(), why: "its file is being read"}
	}
	if now.Before(a.surveyAt) && (a.seen.listed || !listed) {
		return a.seen
	}
	a.seen = a.plan.survey(now, a.begun, a.deadline, listed)
	a.seen.final = a.state.Counts.Sum()
	a.surveyAt = now.Add(max(surveyEvery, surveyShare*time.Since(now)))
	return a.seen
}

// told answers an Ask.
func (a *Actor) told(now time.Time) inspect.Verification {
	s := a.survey(now, true)
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

// whole is the next whole second; clients need no more, and the ledger is told less.
func whole(t time.Time) time.Time {
	if t.IsZero() || t.Equal(t.Truncate(time.Second)) {
		return t
	}
	return t.Truncate(time.Second).Add(time.Second)
}

// mark tells the ledger, and so the customer, whether all that is left waits for
// the receivers, and until when that is expected to last.
func (a *Actor) mark(c actor.Context, now time.Time) {
	until, quiet := a.plan.quiet()
	if quiet = quiet && until.Sub(now) >= waitingMin; !quiet {
		until = time.Time{}
	}
	if a.marking || now.Before(a.markAt) {
		return
	}
	switch {
	case quiet != a.waiting && now.Sub(a.changed) < waitingDwell && (quiet || a.plan.left != nil):
		return // one that was parked often only looks whether a receiver answers by now, and rests again
	case quiet != a.waiting:
	case a.settling || len(a.plan.pending) > 0 || now.Sub(a.eta.at) < remarkEvery:
		return // the settlement tells it
	}
	next := ledger.Outlook{Next: until, Expected: whole(a.survey(now, false).finish)}
	if quiet == a.waiting && !a.eta.news(now, next) {
		return
	}
	if quiet {
		next.Why = a.survey(now, true).sentence()
	}
	a.marking = true
	a.call(c, func(ctx context.Context) any {
		state, err := a.options.Book.Wait(ctx, a.lease, next)
		return markResult{stateResult{state, err}, next}
	})
}

// news reports whether the new estimate differs enough from the published one.
func (o outlooks) news(now time.Time, next ledger.Outlook) bool {
	return moved(now, o.Next, next.Next) || moved(now, o.Expected, next.Expected)
}

// moved reports whether a time is another than it was by more than a part of what is left.
func moved(now, was, is time.Time) bool {
	switch {
	case was.IsZero() || is.IsZero():
		return was.IsZero() != is.IsZero()
	case !was.After(now): // it has come, and brought nothing
		return true
	}
	return is.Sub(was).Abs() > max(is.Sub(now), was.Sub(now))/remarkPart
}

func (a *Actor) marked(c actor.Context, now time.Time, m markResult) {
	a.marking = false
	switch {
	case a.mode == ended:
	case m.err == nil:
		if a.waiting == m.told.Next.IsZero() {
			a.changed = now
		}
		a.waiting, a.eta = m.state.Status == ledger.Waiting, outlooks{m.told, now}
		if m.state.Settlements >= a.state.Settlements { // it may be older than the newest settlement
			a.state = m.state
		}
		a.looked(m.stateResult)
	case !a.refused(c, m.err):
		a.markAt = now.Add(retryMax)
		a.options.Log.Warn("waiting not marked yet", "verification", a.state.ID, "err", m.err)
	}
}
