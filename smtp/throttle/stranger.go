package throttle

const (
	// StrangerBelow: a receiver with a smaller hourly budget of refusals, and no share, isn't known to tolerate refusals.
	// Guess: five times what strangers get.
	StrangerBelow = 100

	// StrangerRefused is how many refusals end a session with it, whatever its allowance: chasquid ends one at the
	// third error, and Forcepoint drops sessions of more than five recipients if half are refused. Sessions cost less
	// than refusals, of which an hour has few.
	StrangerRefused = 2
)

// ToleratesRefusals reports whether a receiver is known to tolerate refusals.
func ToleratesRefusals(a Limits) bool {
	return a.RefusedPerHour >= StrangerBelow || a.RefusedShare > 0
}

// StrangerLimits lowers limits to what a receiver that isn't known to tolerate refusals probably accepts.
func StrangerLimits(a Limits) Limits {
	if !ToleratesRefusals(a) {
		a.RefusedPerSession = min(a.RefusedPerSession, StrangerRefused)
	}
	return a
}
