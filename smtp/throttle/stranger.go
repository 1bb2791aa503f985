package throttle

const (
	// StrangerBelow: a receiver is a stranger, not known to tolerate refusals, if its hourly budget of refusals is smaller
	// and it has no share. Guess: five times what strangers get.
	StrangerBelow = 100

	// StrangerRefused is how many refusals end a session with a stranger, whatever its limit. chasquid ends a session at
	// the third error, and Forcepoint drops sessions of more than five recipients if half are refused. Sessions are less
	// scarce than refusals.
	StrangerRefused = 2
)

// ToleratesRefusals reports whether a receiver is known to tolerate refusals.
func ToleratesRefusals(a Limits) bool {
	return a.RefusedPerHour >= StrangerBelow || a.RefusedShare > 0
}

// StrangerLimits lowers limits to what a stranger probably accepts.
func StrangerLimits(a Limits) Limits {
	if !ToleratesRefusals(a) {
		a.RefusedPerSession = min(a.RefusedPerSession, StrangerRefused)
	}
	return a
}
