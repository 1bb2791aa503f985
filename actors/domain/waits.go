package domain

import (
	"maps"
	"slices"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/smtp"
)

// tellEvery is the least time between two messages about what addresses wait for. tellEvery is short for a person who
// watches, and costs little. Each message looks at all deferred addresses: 50 ms for a million, measured on a busy
// machine.
const tellEvery = 2 * time.Second

// Waits is what a domain's open addresses wait for. The parent gets it after a change, at most once in tellEvery.
type Waits struct {
	Domain string
	Waits  []inspect.Wait // counts each address once

	// Ends is when the last address is expected to be final, if receivers let us ask without delay; zero: no address waits
	// for a time.
	Ends time.Time

	// Deferred is the fraction, 0 to 1, of the unasked addresses that are expected to be deferred, and Wait for how long.
	Deferred float64
	Wait     time.Duration
}

// equal reports whether two Waits say the same.
func (w Waits) equal(o Waits) bool {
	return w.Ends.Equal(o.Ends) && slices.EqualFunc(w.Waits, o.Waits, func(a, b inspect.Wait) bool {
		same := a.Until.Equal(b.Until) && a.Last.Equal(b.Last)
		a.Until, a.Last, b.Until, b.Last = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		return same && a == b
	})
}

// waits returns what the open addresses wait for.
func (pl *planner) waits(now time.Time) Waits {
	out := Waits{Domain: pl.work.Domain}
	deferred := pl.retries.countDeferred(now)
	out.Deferred, out.Wait = pl.retries.stats.expectDeferred()
	out.add(pl.waitForReceiver(now, deferred))
	if n := pl.controls.countWeighed(); n > 0 {
		w := inspect.Wait{Addresses: n, For: inspect.ForControl, Receiver: pl.route.key,
			Until: after(now, pl.controls.nextControl()), Last: after(now, pl.controls.endsAt(now, deferred.control))}
		if pl.route.isPaused(now) {
			w.Until = pl.route.pausedUntil()
		}
		out.add(w)
		out.Ends = w.Last
	}
	for _, r := range slices.Sorted(maps.Keys(deferred.by)) {
		pl.addDeferred(now, &out, r, deferred)
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

// addDeferred adds what deferred addresses wait for. These addresses were deferred for one reason and aren't due.
func (pl *planner) addDeferred(now time.Time, out *Waits, r smtp.Reason, deferred *deferredCounts) {
	c := deferred.by[r]
	out.add(inspect.Wait{Addresses: c.addresses, For: inspect.ForRetry, Reason: r.String(), Receiver: pl.route.key,
		Until: pl.start.Add(c.first), Last: pl.start.Add(c.last)})
	ends, gaveUp := max(c.ends, c.last), max(c.last, c.since+pl.options.GiveUpAfter)
	switch _, known := pl.controls.behaviourOf(now, pl.route.answeringHost()).CatchAll(); {
	case pl.retries.stats.isHopeless(r):
		ends = gaveUp
	case r == smtp.Greylisted && pl.controls.asking: // the control probe waits together with these addresses
		ends = max(ends, deferred.control)
	case r == smtp.Greylisted && !known: // the control probe after these addresses is deferred too
		ends += c.wait
		gaveUp += c.wait
	}
	out.Ends = later(out.Ends, pl.start.Add(min(ends, gaveUp)))
}

// waitForReceiver returns what keeps the receiver from asking the addresses that are ready.
func (pl *planner) waitForReceiver(now time.Time, deferred *deferredCounts) inspect.Wait {
	w := inspect.Wait{Addresses: pl.backlog.countFresh() + deferred.due, For: inspect.ForReceiver}
	for _, o := range pl.backlog.chunks {
		w.Addresses += len(o.left)
	}
	if pl.controls.asking && deferred.control == 0 {
		w.Addresses-- // the control probe is no address of the file
	}
	switch pause := pl.route.pausedUntil(); {
	case pause.After(now):
		w.For, w.Reason, w.Until, w.Last = inspect.ForRetry, smtp.HarvestGuard.String(), pause, pause
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

const (
	// greyPrior is how long we expect a receiver to greylist if we have seen no wait there. greyPrior is the default of
	// Postgrey (--delay=300), the most used greylist.
	greyPrior = 5 * time.Minute

	// greyTries is how many configured waits the expected delay may take. An operator who set short waits knows the
	// receivers. Guess.
	greyTries = 3

	// hopelessAfter: if this many addresses are deferred again for each one that is answered, we expect all of them to
	// stay deferred until they are given up. Guess.
	hopelessAfter = 4
)

// deferredCounts counts the deferred addresses by reason. Times count from the start of the planner.
type deferredCounts struct {
	by      map[smtp.Reason]*deferredFor
	due     int           // due addresses, not counted in by
	control time.Duration // when the deferred control probe is expected to be answered; 0: it isn't deferred
}

// deferredFor counts the addresses that are deferred for one reason and aren't due.
type deferredFor struct {
	addresses   int
	first, last time.Duration // when the first and the last of them are asked again
	ends        time.Duration // when the last one is expected to be answered, if not deferred again
	wait        time.Duration // how long the slowest of them is expected to wait in all
	since       time.Duration // latest first answer of one of them; it is given up GiveUpAfter later
}

func (r *retries) countDeferred(now time.Time) *deferredCounts {
	out := &deferredCounts{by: map[smtp.Reason]*deferredFor{}}
	if len(r.deferred) == 0 {
		return out
	}
	waits, longest := r.options.Waits(r.route.key), time.Duration(0)
	last, c := smtp.ReasonNone, (*deferredFor)(nil)
	for i := range r.deferred {
		p := &r.deferred[i]
		ends := expectAnswer(p, waits)
		switch {
		case p.ordinal == controlOrdinal:
			out.control = ends
			continue
		case p.due <= r.since(now):
			out.due++
			continue
		}
		if c == nil || last != p.reason {
			if last, c = p.reason, out.by[p.reason]; c == nil {
				c = &deferredFor{first: p.due, since: p.since}
				out.by[last] = c
			}
		}
		c.addresses++
		c.first, c.last = min(c.first, p.due), max(c.last, p.due)
		c.ends, c.since = max(c.ends, ends), max(c.since, p.since)
		c.wait = max(c.wait, ends-p.since)
		longest = max(longest, c.wait)
	}
	if longest > 0 {
		r.stats.wait = longest
	}
	return out
}

// deferralStats counts how often addresses were deferred.
type deferralStats struct {
	by   map[smtp.Reason]askedAgain // counts by the reason of the earlier deferral; ReasonNone: there was none
	wait time.Duration              // how long the slowest deferred address was expected to wait in all, at the last count
}

// askedAgain counts how many addresses were deferred and how many answered.
type askedAgain struct{ deferred, answered int }

// noteAsked counts the answer to an address that was deferred before for a reason: it was deferred again, or not.
func (t *deferralStats) noteAsked(r smtp.Reason, deferred bool) {
	c := t.by[r]
	if deferred {
		c.deferred++
	} else {
		c.answered++
	}
	t.by[r] = c
}

// isHopeless reports whether addresses that are deferred for a reason are expected to stay so until they are given up.
func (t *deferralStats) isHopeless(r smtp.Reason) bool {
	c := t.by[r]
	switch r {
	case smtp.Greylisted: // greylisting ends
		return false
	case smtp.MailboxFull: // people empty a full mailbox within days or never
		return c.deferred >= c.answered
	}
	return c.deferred >= hopelessAfter*(c.answered+1)
}

// expectDeferred returns which fraction of the unasked addresses, 0 to 1, is expected to be deferred, and for how long.
func (t *deferralStats) expectDeferred() (float64, time.Duration) {
	first := t.by[smtp.ReasonNone]
	if first.deferred == 0 {
		return 0, 0
	}
	return float64(first.deferred) / float64(first.deferred+first.answered), t.wait
}
