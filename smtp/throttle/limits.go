package throttle

import (
	"slices"
	"time"
)

// Rate is a number of events in any window of a length: 5 in 1s, 30 in 1m.
type Rate struct {
	Events int
	Per    time.Duration
}

// Limits is what we may do at a receiver, all sources and sessions together. Validate names the ranges.
type Limits struct {
	Connections         int  // sessions open at once
	ConnectionRate      Rate // sessions opened
	RcptRate            Rate // RCPT commands sent
	RcptsPerConnection  int  // RCPT commands in one session, control probes included
	RcptsPerTransaction int  // RCPT commands between MAIL and RSET, approached as answers allow
	RefusedPerSession   int  // 5xx answers to RCPT after which a session is ended with QUIT
	RefusedPerHour      int  // 5xx answers to RCPT in any hour
	RefusedShare        int  // more refusals while they are at most this percentage of an hour's answers; 0: none
	Pipelining          bool // RFC 2920 groups, where offered
	PipeliningDepth     int  // RCPT commands in such a group, approached as answers allow

	SessionAge time.Duration // after which a session is not given more work
	IdleTime   time.Duration // after which a session without work is ended

	TLS    TLS    // whether sessions are encrypted
	Family Family // the addresses of hosts that are dialled
	Waits  Waits  // waits before an address is asked again, and of penalties without a time; none: those of [retry]
	Pause  Pause  // whether anything is asked at all

	// These hold for one of our sources, over all receivers, and for no receiver.
	RcptsPerDay int       // RCPT commands sent in a day; 0: not bounded
	WarmUpFrom  time.Time // the first day of a warm-up: each day after it RcptsPerDay doubles; zero: none
}

// TLS reports whether sessions are encrypted.
type TLS string

// The three ways. Opportunistic encrypts where it is offered (RFC 7435).
const (
	TLSOpportunistic TLS = "opportunistic"
	TLSRequired      TLS = "required"
	TLSOff           TLS = "off"
)

// Family says which addresses of a host may be dialled.
type Family string

// The families.
const (
	FamilyAny Family = "any"
	FamilyV4  Family = "ipv4"
	FamilyV6  Family = "ipv6"
)

// Pause says whether a receiver may be asked, or a source used.
type Pause string

// Draining lets open sessions continue to their end and opens no more; paused ends them after the command on the wire.
const (
	PauseNo    Pause = "no"
	PauseDrain Pause = "drain"
	PauseYes   Pause = "yes"
)

// WaitsMax bounds Waits. Greylisting ends and addresses are given up long before the last. Guess.
const WaitsMax = 8

// Waits are the waits before the second, third, ... try; the last one repeats. Zeros at the end don't count.
type Waits [WaitsMax]time.Duration

// List returns the waits without the zeros at the end; nil: none.
func (w Waits) List() []time.Duration {
	n := 0
	for n < len(w) && w[n] > 0 {
		n++
	}
	return slices.Clone(w[:n])
}

// The upper ends of Limits's fields. The lower end is 1 everywhere: a
// receiver that must not be asked at all is not a matter of throttle.
const (
	// ConnectionsMax is more than any receiver accepts from one sender, and within the file descriptors of one node.
	// Guess.
	ConnectionsMax = 10_000

	// CountMax bounds the counted fields: the rows of the largest upload, so it
	// stands for "no limit".
	CountMax = 1_000_000

	// ShareMax is the largest share of refusals in an hour's answers, in percent: above it there would be no bound.
	ShareMax = 90
)

// DefaultLimits are the limits for an unknown receiver. The values are those of the configuration's [throttle.default]:
// about a fifth of the connections and a tenth of the rate that mail senders ship, because a prober sends no message
// and gets many refusals.
func DefaultLimits() Limits {
	return Limits{
		Connections:         2,
		ConnectionRate:      Rate{Events: 30, Per: time.Minute},
		RcptRate:            Rate{Events: 5, Per: time.Second},
		RcptsPerConnection:  50,
		RcptsPerTransaction: 20,
		RefusedPerSession:   8,
		RefusedPerHour:      20,
		Pipelining:          true,
		PipeliningDepth:     64,
		SessionAge:          5 * time.Minute, // Postfix's connection cache reuses for 300 s at most
		IdleTime:            2 * time.Second, // as Postfix's connection cache
		TLS:                 TLSOpportunistic,
		Family:              FamilyAny,
		Pause:               PauseNo,
	}
}

// Validate checks every field as Set does. The error wraps ErrLimits, and for a rate
// ErrRate too, and names the field as it is written in the configuration.
func (a Limits) Validate() error {
	for _, f := range Fields() {
		var b Limits
		if err := b.Set(f, a.Text(f)); err != nil {
			return err
		}
	}
	return nil
}
