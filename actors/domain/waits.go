package domain

import (
	"maps"
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

// Waits is what a domain's open addresses wait for. It is sent to the parent when it changes, at most once in
// tellEvery.
type Waits struct {
	Domain string
	Waits  []inspect.Wait // each address once

	// Ends is when the last of them is expected to be final if receivers let us ask without delay; zero: none waits for a
	// time.
	Ends time.Time

	// Deferred is the fraction, 0 to 1, of addresses not asked yet that are expected to be deferred, and Wait for how
	// long.
	Deferred float64
	Wait     time.Duration
}

// equal reports whether two mean the same.
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
		if pl.route.isPaused(now) {
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
	case r == smtp.Greylisted && !known: // the control probe behind them is deferred too
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
	// greyPrior is the expected greylisting delay of a receiver that hasn't shown its own: the default of Postgrey
	// (--delay=300), which is used most.
	greyPrior = 5 * time.Minute

	// greyTries bounds the expected delay by so many configured waits: an operator who set short waits knows the
	// receivers. Guess.
	greyTries = 3

	// hopelessAfter: when so many addresses were deferred again for each one answered, all are expected to stay deferred
	// until they are given up. Guess.
	hopelessAfter = 4
)

// deferralStats counts the deferred addresses by reason, so that what they wait for is known without visiting each.
// Times count from the start of the planner.
type deferralStats struct {
	by       map[smtp.Reason]*deferralCount
	first    int           // asked for the first time, ever
	deferred int           // of these, deferred
	control  time.Duration // when the deferred control probe is asked again; 0: it isn't deferred
}

// deferralCount counts the addresses deferred for one reason.
type deferralCount struct {
	addresses   int
	first, last time.Duration // when the last of them is asked again
	ends        time.Duration // when the last of them is expected to be answered, if not deferred again
	wait        time.Duration // how long the last of them waits in all, as expected
	since       time.Duration // the latest first answer among them: they are given up GiveUpAfter later

	again, answered int // of those that were asked again, ever
}

func (t *deferralStats) countOf(r smtp.Reason) *deferralCount {
	p := t.by[r]
	if p == nil {
		p = &deferralCount{}
		t.by[r] = p
	}
	return p
}

// push counts a deferred address that is expected to be answered at a time.
func (t *deferralStats) push(p *pending, ends time.Duration) {
	if p.ordinal == controlOrdinal {
		t.control = ends
		return
	}
	c := t.countOf(p.reason)
	if c.addresses++; c.addresses == 1 {
		c.first, c.last, c.ends, c.since = p.due, p.due, ends, p.since
		c.wait = ends - p.since
		return
	}
	c.wait = max(c.wait, ends-p.since)
	c.first, c.last = min(c.first, p.due), max(c.last, p.due)
	c.ends, c.since = max(c.ends, ends), max(c.since, p.since)
}

// pop uncounts a deferred address whose time has come.
func (t *deferralStats) pop(p *pending) {
	if p.ordinal == controlOrdinal {
		t.control = 0
		return
	}
	t.countOf(p.reason).addresses--
}

// noteAsked notes whether an address that was deferred for a reason was deferred again.
func (t *deferralStats) noteAsked(r smtp.Reason, again bool) {
	if r == smtp.ReasonNone { // it was not deferred before
		if t.first++; again {
			t.deferred++
		}
		return
	}
	if again {
		t.countOf(r).again++
	} else {
		t.countOf(r).answered++
	}
}

// isHopeless reports whether addresses deferred for a reason are expected to stay so until they are given up.
func (c *deferralCount) isHopeless(r smtp.Reason) bool {
	switch r {
	case smtp.Greylisted: // it passes
		return false
	case smtp.MailboxFull: // people empty a full mailbox within days, if at all
		return c.again >= c.answered
	}
	return c.again >= hopelessAfter*(c.answered+1)
}

// expectDeferred returns the fraction, 0 to 1, of addresses not asked yet that are expected to be deferred, and for how
// long.
func (t *deferralStats) expectDeferred() (float64, time.Duration) {
	if t.deferred == 0 {
		return 0, 0
	}
	wait := time.Duration(0)
	for _, c := range t.by {
		wait = max(wait, c.wait)
	}
	return float64(t.deferred) / float64(t.first), wait
}

// reasons returns the reasons of deferred addresses, in the order of their numbers.
func (t *deferralStats) reasons() []smtp.Reason {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.by)), func(r smtp.Reason) bool { return t.by[r].addresses <= 0 })
}
