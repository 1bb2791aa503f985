package shaping

import (
	"fmt"
	"time"
)

// Rate is a number of events in any window of a length: 5 in 1s, 30 in 1m.
type Rate struct {
	Events int
	Per    time.Duration
}

// Allowance is what a receiver lets us do, all sources and sessions together.
// Validate names the ranges.
type Allowance struct {
	Connections         int  // sessions open at once
	ConnectionRate      Rate // sessions opened
	RcptRate            Rate // RCPT commands sent
	RcptsPerConnection  int  // RCPT commands in one session, control probes included
	RcptsPerTransaction int  // RCPT commands between MAIL and RSET
	RefusedPerSession   int  // 5xx answers to RCPT after which a session is ended with QUIT
	RefusedPerHour      int  // 5xx answers to RCPT in any hour
	RefusedShare        int  // more of these, while they are at most so many percent of an hour's answers; 0: none
	Pipelining          bool // RFC 2920 groups, where offered
}

// The upper ends of an Allowance's fields. The lower end is 1 everywhere: a
// receiver that must not be asked at all is not a matter of shaping.
const (
	// ConnectionsMax is more than any receiver takes from one sender, and what
	// the file descriptors of one node bear. Guess.
	ConnectionsMax = 10_000

	// CountMax bounds the counted fields: the rows of the largest upload, so it
	// stands for "no limit".
	CountMax = 1_000_000

	// ShareMax is the most of an hour's answers that may be refusals, in percent:
	// above it nothing is bounded any more.
	ShareMax = 90
)

// DefaultAllowance is what a receiver gets of whom nothing is known. The values
// are those of the configuration's [throttle.default]: about a fifth of the
// connections and a tenth of the rate that mail senders ship, because a prober
// sends no message and gets many refusals.
func DefaultAllowance() Allowance {
	return Allowance{
		Connections:         2,
		ConnectionRate:      Rate{Events: 30, Per: time.Minute},
		RcptRate:            Rate{Events: 5, Per: time.Second},
		RcptsPerConnection:  50,
		RcptsPerTransaction: 1,
		RefusedPerSession:   8,
		RefusedPerHour:      20,
		Pipelining:          false,
	}
}

// Validate checks every field: Connections from 1 to ConnectionsMax, the other
// counts from 1 to CountMax, rates as Rate.Validate. The error wraps
// ErrAllowance, and for a rate ErrRate too, and names the field as it is
// written in the configuration.
func (a Allowance) Validate() error {
	counts := []struct {
		name       string
		value, max int
	}{
		{"connections", a.Connections, ConnectionsMax},
		{"rcpts_per_connection", a.RcptsPerConnection, CountMax},
		{"rcpts_per_transaction", a.RcptsPerTransaction, CountMax},
		{"refused_per_session", a.RefusedPerSession, CountMax},
		{"refused_per_hour", a.RefusedPerHour, CountMax},
	}
	for _, c := range counts {
		if c.value < 1 || c.value > c.max {
			return fmt.Errorf("%w: %s is %d, it has to be from 1 to %d", ErrAllowance, c.name, c.value, c.max)
		}
	}
	if a.RefusedShare < 0 || a.RefusedShare > ShareMax {
		return fmt.Errorf("%w: refused_share is %d, it has to be from 0 to %d", ErrAllowance, a.RefusedShare, ShareMax)
	}
	if err := a.ConnectionRate.Validate(); err != nil {
		return fmt.Errorf("%w: connection_rate: %w", ErrAllowance, err)
	}
	if err := a.RcptRate.Validate(); err != nil {
		return fmt.Errorf("%w: rcpt_rate: %w", ErrAllowance, err)
	}
	return nil
}

// Override is a part of an Allowance: a nil field leaves what the wider layers say.
type Override struct {
	Connections         *int
	ConnectionRate      *Rate
	RcptRate            *Rate
	RcptsPerConnection  *int
	RcptsPerTransaction *int
	RefusedPerSession   *int
	RefusedPerHour      *int
	RefusedShare        *int
	Pipelining          *bool
}

// apply gives a with the fields that o sets.
func (o Override) apply(a Allowance) Allowance {
	set(&a.Connections, o.Connections)
	set(&a.ConnectionRate, o.ConnectionRate)
	set(&a.RcptRate, o.RcptRate)
	set(&a.RcptsPerConnection, o.RcptsPerConnection)
	set(&a.RcptsPerTransaction, o.RcptsPerTransaction)
	set(&a.RefusedPerSession, o.RefusedPerSession)
	set(&a.RefusedPerHour, o.RefusedPerHour)
	set(&a.RefusedShare, o.RefusedShare)
	set(&a.Pipelining, o.Pipelining)
	return a
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
