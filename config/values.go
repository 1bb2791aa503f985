package config

import (
	"fmt"
	"strings"
	"time"

	"rollcall/smtp/throttle"
)

// Duration is a length of time, written like "5m" or "1h30m". It is a struct so
// that a bare number, which would be nanoseconds, is refused.
type Duration struct{ time.Duration }

// UnmarshalText reads Go's form, such as 90s or 1h30m.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time: write a number with a unit, such as \"90s\", \"5m\" or \"2h\"", text)
	}
	d.Duration = v
	return nil
}

// MarshalText writes the shortest form: 5m, not 5m0s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the shortest form: 5m, not 5m0s.
func (d Duration) String() string {
	s := d.Duration.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Rate is a number of events in a time, written like "30/min", "5/s" or "100/h".
type Rate throttle.Rate

// UnmarshalText reads forms like 30/min.
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := throttle.ParseRate(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a rate: write a number and a time, such as \"5/s\", \"30/min\" or \"100/h\"",
			text)
	}
	*r = Rate(v)
	return nil
}

// MarshalText writes the form that UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(throttle.Rate(r).String()), nil }

// String returns the form that UnmarshalText reads.
func (r Rate) String() string { return throttle.Rate(r).String() }
