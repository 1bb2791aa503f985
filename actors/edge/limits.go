package edge

import "fmt"

// Rate is a token bucket: PerSecond tokens come in, at most Burst are kept.
type Rate struct {
	PerSecond float64 // above 0
	Burst     int     // 1 or more
}

// Limits are what one key may use of all nodes together.
type Limits struct {
	Reads     Rate // requests that are no creates
	Creates   Rate
	Downloads int // results downloads at once; 1 or more
}

// rate is the one that a want is about.
func (l Limits) rate(w want) Rate {
	if w == wantCreate {
		return l.Creates
	}
	return l.Reads
}

// validate says what is out of range; its error wraps ErrOptions.
func (l Limits) validate() error {
	for _, r := range []Rate{l.Reads, l.Creates} {
		if !(r.PerSecond > 0) || r.Burst < 1 {
			return fmt.Errorf("%w: a rate must be above 0 with a burst of 1 or more", ErrOptions)
		}
	}
	if l.Downloads < 1 {
		return fmt.Errorf("%w: downloads must be 1 or more", ErrOptions)
	}
	return nil
}

// floorPerSecond and floorBurst are the least that is granted where less, or
// nothing, of a limit may be used: a customer who meets the wrong side of a
// partition is slowed and not shut out. Guess: a program that looks once a second
// how far its file is goes on, and its first few requests pass.
const (
	floorPerSecond = 1
	floorBurst     = 5
)

// floorDownloads is likewise the least number of downloads at once.
const floorDownloads = 1

// part is k/n of the limits, at least the floor and at most the limits.
func (l Limits) part(k, n int) Limits {
	share := 0.0
	if n > 0 {
		share = min(max(float64(k)/float64(n), 0), 1)
	}
	return Limits{
		Reads:     l.Reads.part(share),
		Creates:   l.Creates.part(share),
		Downloads: max(int(float64(l.Downloads)*share), min(l.Downloads, floorDownloads)),
	}
}

func (r Rate) part(share float64) Rate {
	return Rate{
		PerSecond: max(r.PerSecond*share, min(r.PerSecond, floorPerSecond)),
		Burst:     max(int(float64(r.Burst)*share), min(r.Burst, floorBurst)),
	}
}
