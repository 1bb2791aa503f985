package domain

import (
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/smtp"
)

const (
	// tellEvery is the least time between two messages about what addresses wait for: short for a person who watches,
	// and little work beside one question for each.
	tellEvery = 2 * time.Second

	// dueMax bounds how many due addresses are counted. Where there are more, the receiver is what holds all of them
	// up.
	dueMax = 10_000
)

// Waits is what a domain tells its parent when it has changed, at most once in tellEvery: what its open addresses wait
// for.
type Waits struct {
	Domain string
	Waits  []inspect.Wait // each address once

	// Ends is when the last of them is expected to be final if receivers let us ask as
	// soon as there is somebody to ask for; zero: none waits for a time.
	Ends time.Time

	// Deferred is the fraction, 0 to 1, of addresses not asked yet that are expected to be deferred, and Wait for how
	// long.
	Deferred float64
	Wait     time.Duration
}

// equal reports whether two say the same.
func (w Waits) equal(o Waits) bool {
	return w.Ends.Equal(o.Ends) && slices.EqualFunc(w.Waits, o.Waits, func(a, b inspect.Wait) bool {
		same := a.Until.Equal(b.Until) && a.Last.Equal(b.Last)
		a.Until, a.Last, b.Until, b.Last = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		return same && a == b
	})
}

// waits returns what the open addresses wait for. Its cost doesn't grow with their number.
func (pl *planner) waits(now time.Time) Waits {
	out := Waits{Domain: pl.work.Domain}
	out.Deferred, out.Wait = pl.retries.stats.expectDeferred()
	due := pl.retries.countDue(now)
	out.add(pl.waitForReceiver(now, due))
	if n := pl.controls.countWeighed(); n > 0 {
		w := inspect.Wait{Addresses: n, For: inspect.ForControl, Receiver: pl.route.key,
			Until: after(now, pl.controls.nextControl()), Last: after(now, pl.controls.endsAt(now))}
		if pl.route.isResting(now) {
			w.Until = pl.route.pausedUntil()
		}
		out.add(w)
		out.Ends = w.Last
	}
	for _, r := range pl.retries.stats.reasons() {
		pl.addDeferred(now, &out, r, due[r])
	}
	if d := pl.work.Deadline; !d.IsZero() && out.Ends.After(d) {
		out.Ends = d
	}
	return out
}

func (w *Waits) add(n inspect.Wait) {
	if n.Addresses > 0 {
		w.Waits = append(w.Waits, n)
	}
}

// addDeferred adds what the addresses wait for that are deferred and not due.
func (pl *planner) addDeferred(now time.Time, out *Waits, r smtp.Reason, due int) {
	c := pl.retries.stats.countOf(r)
	n := c.addresses - due
	if n <= 0 {
		return
	}
	out.add(inspect.Wait{Addresses: n, For: inspect.ForRetry, Reason: r.String(), Receiver: pl.route.key,
		Until: after(now, later(pl.start.Add(c.first), pl.retries.nextDue())), Last: after(now, pl.start.Add(c.last))})
	ends, gaveUp := max(c.ends, c.last), max(c.last, c.since+pl.options.GiveUpAfter)
	switch _, known := pl.controls.behaviourOf(now, pl.route.answeringHost()).CatchAll(); {
	case c.isHopeless(r):
		ends = gaveUp
	case r == smtp.Greylisted && pl.controls.asking: // the control probe waits beside them
		ends = max(ends, pl.retries.stats.control)
	case r == smtp.Greylisted && !known: // the control probe behind them is put off too
		ends += c.wait
		gaveUp += c.wait
	}
	out.Ends = later(out.Ends, pl.start.Add(min(ends, gaveUp)))
}

// waitForReceiver adds what the addresses wait for that could be asked now.
func (pl *planner) waitForReceiver(now time.Time, due map[smtp.Reason]int) inspect.Wait {
	w := inspect.Wait{Addresses: pl.backlog.countFresh(), For: inspect.ForReceiver}
	for _, n := range due {
		w.Addresses += n
	}
	for _, o := range pl.backlog.chunks {
		w.Addresses += len(o.left)
	}
	if pl.controls.asking && pl.retries.stats.control == 0 {
		w.Addresses-- // it is no address of the file
	}
	switch rest := pl.route.pausedUntil(); {
	case rest.After(now):
		w.For, w.Reason, w.Until, w.Last = inspect.ForRetry, smtp.HarvestGuard.String(), rest, rest
	case pl.route.hosts == nil:
		w.For = inspect.ForRoute
	default:
		r := &pl.backlog.receiver
		w.Receiver, w.Cause = pl.route.key, inspect.Causes[wire.Cause_FREE]
		switch {
		case pl.held || r.isMissed():
			w.Cause = inspect.Causes[wire.Cause_NO_SHARE]
		case int(r.cause) < len(inspect.Causes):
			w.Cause = inspect.Causes[r.cause]
		}
		w.Until, w.PerHour = after(now, r.heldUntil), int(r.perHour)
	}
	return w
}
