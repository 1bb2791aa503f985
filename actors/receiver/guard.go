package receiver

import (
	"time"

	"rollcall/smtp/throttle"
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
	strangerBelow = 100

	// strangerRefused is how many refusals end a session with it, whatever its allowance
	// says: chasquid ends one at the third error, Forcepoint drops those of more than
	// five recipients half of which are refused. Sessions cost less than the refusals
	// themselves, of which there are few in an hour.
	strangerRefused = 2

	// slowBy is how much longer a refusal takes that is held back as a warning. The
	// first slowRefusals of a session warn of nothing. Postfix waits for a second from
	// the tenth error on. Guess.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2
)

// toleratesRefusals says whether a receiver is known to bear refusals.
func toleratesRefusals(a throttle.Limits) bool {
	return a.RefusedPerHour >= strangerBelow || a.RefusedShare > 0
}

// strangerLimits lowers an allowance to what a receiver can be expected to bear that is not
// known to bear refusals.
func strangerLimits(a throttle.Limits) throttle.Limits {
	if !toleratesRefusals(a) {
		a.RefusedPerSession = min(a.RefusedPerSession, strangerRefused)
	}
	return a
}

// errorsLeft is how many RCPTs the session may send, whatever the answers: toward a
// receiver that is not known to bear refusals no more than that, because some count
// what they put off like what they refuse.
func (s *session) errorsLeft(a throttle.Limits) int {
	if toleratesRefusals(a) {
		return a.RcptsPerConnection
	}
	return strangerRefused - s.errors
}
