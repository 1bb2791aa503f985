package scheduler

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

	// slowBy is how much longer a refusal takes that is held back as a warning. The
	// first slowRefusals of a session warn of nothing. Postfix waits for a second from
	// the tenth error on. Guess.
	slowBy       = time.Second - 50*time.Millisecond
	slowRefusals = 2
)

// errorsLeft is how many RCPTs the session may send, whatever the answers: toward a
// receiver that is not known to bear refusals no more than that, because some count
// what they put off like what they refuse.
func (s *session) errorsLeft(a throttle.Limits) int {
	if throttle.ToleratesRefusals(a) {
		return a.RcptsPerConnection
	}
	return throttle.StrangerRefused - s.errors
}
