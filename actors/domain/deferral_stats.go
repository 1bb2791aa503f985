package domain

import (
	"maps"
	"slices"
	"time"

	"rollcall/smtp"
)

const (
	// greyPrior is how long a receiver is expected to put an address off that it does
	// not know, until it has shown how long it does: the default of the greylisting that
	// is used most (Postgrey: --delay=300).
	greyPrior = 5 * time.Minute

	// greyTries is how many of the configured waits are expected to be enough for that
	// at most, where they are short: who set them knows the receivers. Guess.
	greyTries = 3

	// hopelessAfter is how many addresses have to be put off again for one that was
	// answered before all are expected to be put off until they are given up. Guess.
	hopelessAfter = 4
)

// deferralStats counts the addresses that are put off by reason, so that nobody has to look at
// each of them to say what they wait for. Times count from the start of the planner.
type deferralStats struct {
	by       map[smtp.Reason]*deferralCount
	first    int           // that were asked for the first time, ever
	deferred int           // of these that were put off
	control  time.Duration // when the control probe is asked again, which is no address; 0: it is not put off
}

// deferralCount are the addresses that were put off for one reason.
type deferralCount struct {
	addresses   int
	first, last time.Duration // when they are asked again, at the outside
	ends        time.Duration // when the last of them is expected to be answered, if not put off again
	wait        time.Duration // how long the last of them waits in all, as expected
	since       time.Duration // the latest first answer among them: they are given up GiveUpAfter later

	again, answered int // of those that were asked again, ever
}

// countOf gives the count of a reason.
func (t *deferralStats) countOf(r smtp.Reason) *deferralCount {
	p := t.by[r]
	if p == nil {
		p = &deferralCount{}
		t.by[r] = p
	}
	return p
}

// push counts an address that is put off, and is expected to be answered at a time.
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

// pop forgets an address that was put off, whose time has come.
func (t *deferralStats) pop(p *pending) {
	if p.ordinal == controlOrdinal {
		t.control = 0
		return
	}
	t.countOf(p.reason).addresses--
}

// noteAsked notes what came of asking an address that was put off for a reason.
func (t *deferralStats) noteAsked(r smtp.Reason, again bool) {
	if r == smtp.ReasonNone { // it was not put off before
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

// isHopeless reports whether those that were put off for a reason are expected to be put off
// until they are given up.
func (c *deferralCount) isHopeless(r smtp.Reason) bool {
	switch r {
	case smtp.Greylisted: // it passes
		return false
	case smtp.MailboxFull: // people empty theirs by the day, if they do
		return c.again >= c.answered
	}
	return c.again >= hopelessAfter*(c.answered+1)
}

// expectDeferred is how many of the addresses are expected to be put off that were not asked yet,
// from 0 to 1, and for how long.
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

// reasons are those for which addresses are put off, in the order of their numbers.
func (t *deferralStats) reasons() []smtp.Reason {
	var out []smtp.Reason
	for _, r := range slices.Sorted(maps.Keys(t.by)) {
		if t.by[r].addresses > 0 {
			out = append(out, r)
		}
	}
	return out
}
