package throttle

import (
	"slices"
	"time"
)

// Rate is a number of events in a time window, whenever the window begins: 5 in 1s, 30 in 1m.
type Rate struct {
	Events int
	Per    time.Duration
}

// Limits is what we may do at a receiver, with all our sources and sessions together. Validate names the ranges.
type Limits struct {
	Connections         int  // sessions open at once
	ConnectionRate      Rate // sessions opened
	RcptRate            Rate // RCPT commands sent
	RcptsPerConnection  int  // RCPT commands in one session, control probes included
	RcptsPerTransaction int  // RCPT commands between MAIL and RSET; we approach it step by step
	RefusedPerSession   int  // 5xx answers to RCPT after which a session is ended with QUIT
	RefusedPerHour      int  // 5xx answers to RCPT in any hour
	RefusedShare        int  // more refusals than RefusedPerHour, up to this percentage of an hour's answers; 0: none
	Pipelining          bool // commands in groups (RFC 2920), where offered
	PipeliningDepth     int  // RCPT commands in such a group; we approach it step by step

	SessionAge time.Duration // after which a session is not given more work
	IdleTime   time.Duration // after which a session without work is ended

	TLS    TLS    // whether sessions are encrypted
	Family Family // which of a host's addresses may be dialled
	Waits  Waits  // waits between tries of an address, and of penalties without a time; none: those of [retry]
	Pause  Pause  // whether anything is asked at all

	// The next fields are for one of our sources, over all receivers, and not for a receiver.
	RcptsPerDay int       // RCPT commands sent in a day; 0: not bounded
	WarmUpFrom  time.Time // first day of a warm-up: RcptsPerDay doubles on each following day; zero: none
}

// TLS reports whether sessions are encrypted.
type TLS string

// The TLS modes. Opportunistic encrypts where the host offers TLS (RFC 7435).
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

// PauseDrain lets open sessions go on to their end and opens no new ones. PauseYes ends sessions after the command
// under way.
const (
	PauseNo    Pause = "no"
	PauseDrain Pause = "drain"
	PauseYes   Pause = "yes"
)

// WaitsMax bounds Waits. Long before the last wait greylisting ends and addresses are given up. Guess.
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

// The upper bounds of Limits' fields. The lower bound is always 1: Pause, not a limit of 0, stops asking a receiver.
const (
	// ConnectionsMax is more than any receiver accepts from one sender. A node has file descriptors for that many. Guess.
	ConnectionsMax = 10_000

	// CountMax bounds the counted fields. The largest upload has that many rows, so CountMax stands for "no limit".
	CountMax = 1_000_000

	// ShareMax is the largest RefusedShare in percent. With a larger share, refusals would have no bound.
	ShareMax = 90
)

// DefaultLimits are the limits of an unknown receiver, with the values of [throttle.default] in the configuration. The
// defaults of software for mail senders have about five times the connections and ten times the rate. We take less
// because we send no message and get many refusals.
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
		SessionAge:          5 * time.Minute, // Postfix's connection cache reuses a session for 300 s at most
		IdleTime:            2 * time.Second, // as long as Postfix's connection cache keeps a session
		TLS:                 TLSOpportunistic,
		Family:              FamilyAny,
		Pause:               PauseNo,
	}
}

// Validate checks every field as Set does. Its error names the field as the configuration writes it, and wraps
// ErrLimits; for a rate it wraps ErrRate too.
func (a Limits) Validate() error {
	for _, f := range Fields() {
		var b Limits
		if err := b.Set(f, a.Text(f)); err != nil {
			return err
		}
	}
	return nil
}
