package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The range of a Rate.
const (
	// RateEventsMax is the most events that a Rate may have. RateEventsMax is ten times what one connection of this engine
	// reaches on loopback, so it stands for "no limit".
	RateEventsMax = 1_000_000

	// RatePerMin is the shortest window of a Rate. Clocks and timers on both sides are too coarse for shorter windows.
	// Guess.
	RatePerMin = time.Millisecond

	// RatePerMax is the longest window of a Rate. We remember nothing over a restart, so we couldn't keep to a longer
	// window.
	RatePerMax = 24 * time.Hour
)

// rateUnits are the units that String writes if it can.
var rateUnits = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}}

// ParseRate reads a rate such as "30/min": a whole number from 1 to RateEventsMax, a slash, and a unit. The unit is s,
// min or h, or a length such as 10s in the form of time.ParseDuration, from RatePerMin to RatePerMax.
//
// Its error wraps ErrRate and says what to write.
func ParseRate(text string) (Rate, error) {
	count, unit, found := strings.Cut(text, "/")
	if !found {
		return Rate{}, fmt.Errorf(`%w: %q: write it like "5/s", "30/min" or "100/h"`, ErrRate, text)
	}
	events, err := strconv.Atoi(strings.TrimSpace(count))
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: write a whole number before the slash", ErrRate, text)
	}
	per, err := parsePer(strings.TrimSpace(unit))
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: write s, min, h or a length such as 10s after the slash",
			ErrRate, text)
	}
	r := Rate{Events: events, Per: per}
	if err := r.Validate(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

func parsePer(unit string) (time.Duration, error) {
	for _, u := range rateUnits {
		if unit == u.name {
			return u.per, nil
		}
	}
	return time.ParseDuration(unit)
}

// String writes the rate as ParseRate reads it: "30/min", "1/2s".
func (r Rate) String() string {
	for _, u := range rateUnits {
		if r.Per == u.per {
			return strconv.Itoa(r.Events) + "/" + u.name
		}
	}
	return strconv.Itoa(r.Events) + "/" + r.Per.String()
}

// PerSecond returns the events a second; 0 for the zero Rate.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Events) / r.Per.Seconds()
}

// Validate reports whether a Window can keep to r: 1 to RateEventsMax events in RatePerMin to RatePerMax. Its error
// wraps ErrRate.
func (r Rate) Validate() error {
	if r.Events < 1 || r.Events > RateEventsMax {
		return fmt.Errorf("%w: %s: events have to be from 1 to %d", ErrRate, r, RateEventsMax)
	}
	if r.Per < RatePerMin || r.Per > RatePerMax {
		return fmt.Errorf("%w: %s: the length has to be from %s to %s", ErrRate, r, RatePerMin, RatePerMax)
	}
	return nil
}

func perSecond(r float64) string {
	switch {
	case r >= 1:
		return fmt.Sprintf("%.3g/s", r)
	case r*60 >= 1:
		return fmt.Sprintf("%.3g/min", r*60)
	}
	return fmt.Sprintf("%.3g/h", r*3600)
}
