package throttle

const (
	// StrangerBelow: a receiver that may refuse fewer addresses in an hour, and no share
	// of all, is not known to bear refusals. Guess: five times what strangers get.
	StrangerBelow = 100

	// StrangerRefused is how many refusals end a session with it, whatever its allowance
	// says: chasquid ends one at the third error, Forcepoint drops those of more than
	// five recipients half of which are refused. Sessions cost less than the refusals
	// themselves, of which there are few in an hour.
	StrangerRefused = 2
)

// ToleratesRefusals reports whether a receiver is known to bear refusals.
func ToleratesRefusals(a Limits) bool {
	return a.RefusedPerHour >= StrangerBelow || a.RefusedShare > 0
}

// StrangerLimits lowers an allowance to what a receiver can be expected to bear that is not
// known to bear refusals.
func StrangerLimits(a Limits) Limits {
	if !ToleratesRefusals(a) {
		a.RefusedPerSession = min(a.RefusedPerSession, StrangerRefused)
	}
	return a
}
