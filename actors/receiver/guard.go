package receiver

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

const (
	// harvestFor is how long a receiver is left alone whose guard against address
	// harvesting has spoken, when it names no time: Cisco's counts by the hour.
	harvestFor = time.Hour

	// guardLeast is how many refusals of an hour may wake a guard. Guess: none is known that counts
	// to fewer than five.
	guardLeast = 3

	// carefulBelow: a receiver that may refuse fewer addresses in an hour, and no share
	// of all, is not known to bear refusals. Guess: five times what strangers get.
	carefulBelow = 100

	// carefulRefused is how many refusals end a session with it, whatever its allowance
	// says: chasquid ends one at the third error, Forcepoint drops those of more than
	// five recipients half of which are refused. Sessions cost less than the refusals
	// themselves, of which there are few in an hour.
	carefulRefused = 2

	// slowBy is how much longer a refusal takes that is held back as a warning. The
	// first slowRefusals of a session warn of nothing. Postfix waits for a second from
	// the tenth error on. Guess.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2
)

// bears says whether a receiver is known to bear refusals.
func bears(a throttle.Limits) bool { return a.RefusedPerHour >= carefulBelow || a.RefusedShare > 0 }

// met learns from a greeting which software the receiver runs.
func (d *desk) met(greeting string) {
	if s, known := throttle.SoftwareOf(greeting); known {
		d.software = s
	}
}

// allow is what a receiver is allowed as a whole: what was said of it, with refusals by the session
// where its software counts so and nobody but the default has said how many it bears.
func (d *desk) allow() throttle.Limits {
	a := d.options.Allow(d.key)
	if d.software.PerSession > 0 {
		if said := d.said(d.key, throttle.FieldRefusedPerHour); len(said) == 1 && said[0].Layer == throttle.LayerDefault {
			a = d.software.Apply(a)
		}
	}
	return careful(a)
}

// careful lowers an allowance to what a receiver can be expected to bear that is not
// known to bear refusals.
func careful(a throttle.Limits) throttle.Limits {
	if !bears(a) {
		a.RefusedPerSession = min(a.RefusedPerSession, carefulRefused)
	}
	return a
}

// errorsLeft is how many RCPTs the session may send, whatever the answers: toward a
// receiver that is not known to bear refusals no more than that, because some count
// what they put off like what they refuse.
func (s *session) errorsLeft(a throttle.Limits) int {
	if bears(a) {
		return a.RcptsPerConnection
	}
	return carefulRefused - s.errors
}

// guardAt reports whether a guard against harvesting can be at work, as its words say: it counts what
// it refused. Where it has refused next to nothing, the words are those of one odd mailbox.
func (d *desk) guardAt(now time.Time, s *session) bool {
	return s.refused >= guardLeast || s.outlet.budget.refused(now) >= guardLeast
}

// poison notes that a guard has spoken in a session: what the others of the same
// source were told since then is worth nothing. Since then means since the RCPT
// was sent, because somewhere between that and its answer the guard woke up.
func (d *desk) poison(now time.Time, s *session, r report) {
	if !d.guardAt(now, s) || !r.poisoned && (r.failure == nil || r.failure.verdict.Action != verdict.ActVoid) {
		return
	}
	since := s.at
	if n := len(r.answered); n > 0 && r.answered[n-1].told.verdict.Action == verdict.ActVoid {
		since = r.answered[n-1].sent
	}
	beside := func(o *session) bool { return o != s && o.outlet == s.outlet }
	for _, other := range d.sessions {
		if beside(other) && (other.void.IsZero() || since.Before(other.void)) {
			other.void = since
		}
	}
	d.halt(beside)
}

// slowed learns from a refusal that took much longer than the ones before: from
// that number on the receiver holds its answers back, and may end the session soon.
// Before is how many were refused of the same report.
func (d *desk) slowed(now time.Time, s *session, a answered, before int) {
	if d.replies.samples < turnaroundSamples || s.slow || !a.told.permanent() ||
		a.told.verdict.Outcome == smtp.Undecided {
		return
	}
	if a.at.Sub(a.sent) < d.replies.lowest+slowBy {
		return
	}
	s.slow = true
	if n := s.refused + before; n >= slowRefusals {
		d.learned.refused.tighten(n, now)
		d.dirty = true
	}
}
