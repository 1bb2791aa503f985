package domain

import (
	"maps"
	"slices"
	"time"

	"rollcall/smtp"
)

const (
	// greyPrior is the expected greylisting delay of a receiver that hasn't shown its own: the default of Postgrey
	// (--delay=300), which is used most.
	greyPrior = 5 * time.Minute

	// greyTries bounds the expected delay by so many configured waits: an operator who set short waits knows the
	// receivers. Guess.
	greyTries = 3

	// hopelessAfter: when so many addresses were put off again for each one answered, all are expected to be put off
	// until they are given up. Guess.
	hopelessAfter = 4
)

// deferralStats counts the deferred addresses by reason, so that what they wait for is known without a look at each.
// Times count from the start of the planner.
type deferralStats struct {
	by       map[smtp.Reason]*deferralCount
	first    int           // that were asked for the first time, ever
	deferred int           // of these that were put off
	control  time.Duration // when the deferred control probe is asked again; 0: it isn't deferred
}

// deferralCount are the addresses that were put off for one reason.
type deferralCount struct {
	addresses   int
	first, last time.Duration // when the last of them is asked again
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

// pop uncounts a deferred address whose time has come.
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

// expectDeferred is the fraction, 0 to 1, of addresses not asked yet that are expected to be deferred, and for how
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
