package smtp

import (
	"time"
)

// Limits bound the cost of one session, whatever the receiver does. All must be positive.
type Limits struct {
	// Time for a whole reply, from the moment the command is sent.

	Greeting time.Duration // from the connection on; RFC 5321 §4.5.3.2.1 gives a delivery 5 minutes
	Hello    time.Duration // EHLO and HELO
	StartTLS time.Duration // the reply to STARTTLS
	Mail     time.Duration // MAIL and RSET
	Rcpt     time.Duration // RCPT, and the next reply to a pipelined group

	Handshake time.Duration // TLS handshake
	Quit      time.Duration // QUIT, its reply and the receiver's close

	// Unacknowledged is how long our system repeats data that the receiver's system has not acknowledged; then it drops
	// the connection (Linux). Otherwise a RCPT could arrive after an outage, when its address is settled already.
	Unacknowledged time.Duration

	// Unended is how long the receiver may still hold a session after its end here, if it has not confirmed the end:
	// see Ending.
	Unended time.Duration

	// Session and SessionMore bound the time spent waiting for the receiver in the whole session: Session, plus
	// SessionMore for each address after the first. Idle time between two probes does not count.
	Session     time.Duration
	SessionMore time.Duration

	LineBytes  int // in one line of a reply, line end included; also the size of the read buffer
	ReplyLines int // in one reply
	ReplyBytes int // in one reply

	// SessionBytes and SessionMoreBytes bound all bytes of replies, as Session and SessionMore bound the time.
	SessionBytes     int
	SessionMoreBytes int
}

// ConnectTimeout bounds the connection to one address. A host that is up answers within two SYN repeats (1 s and 3
// s); the third comes at 7 s.
const ConnectTimeout = 10 * time.Second

// Unended is how long a receiver may hold a session from which it hears nothing: it waits at least 5 minutes for the
// next command (RFC 5321 §4.5.3.2.7). Only trials and tests use less.
const Unended = 5 * time.Minute

// unacknowledged allows four transmissions at a round trip of up to half a second. It is half of the time after
// which a fenced node stops probing (cluster.Times), so a RCPT from the first half is dropped by then. Guess.
const unacknowledged = 4 * time.Second

// courierWaits is Courier's longest delay before it refuses another address: 8 s before the first, then twice as
// long each time (courieresmtpd.C, MAX_TEERGRUBE).
const courierWaits = 128 * time.Second

// DefaultLimits are the limits for a probe. Before MAIL they are shorter than RFC 5321 §4.5.3.2 gives a delivering
// client, because a time-out only means "ask again later". From MAIL on they are the same: slow receivers do answer.
func DefaultLimits() Limits {
	return Limits{
		Greeting:         60 * time.Second, // greet delays and greylisting front ends
		Hello:            30 * time.Second,
		StartTLS:         30 * time.Second,
		Mail:             5 * time.Minute,
		Rcpt:             5 * time.Minute,
		Handshake:        20 * time.Second,
		Quit:             2 * time.Second, // for politeness; nothing is learned
		Unacknowledged:   unacknowledged,
		Unended:          Unended,
		Session:          6 * time.Minute, // the slowest RCPT and all that comes before it
		SessionMore:      courierWaits + 2*time.Second,
		LineBytes:        4096, // RFC 5321 §4.5.3.1.5 allows 512; some send more
		ReplyLines:       128,
		ReplyBytes:       64 << 10,
		SessionBytes:     256 << 10,
		SessionMoreBytes: 4096, // one line of the greatest length for each further address; guess
	}
}
