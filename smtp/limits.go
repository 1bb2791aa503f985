package smtp

import (
	"fmt"
	"time"
)

// Limits bound what one session may cost, whatever the receiver does. All of
// them must be positive.
type Limits struct {
	// Absolute time for a whole reply, from the moment the command is sent.

	Greeting time.Duration // from the connection on; RFC 5321 §4.5.3.2.1 gives a delivery 5 minutes
	Hello    time.Duration // EHLO and HELO
	StartTLS time.Duration // the reply to STARTTLS
	Mail     time.Duration // MAIL and RSET
	Rcpt     time.Duration // RCPT, and the next reply to a pipelined group

	Handshake time.Duration // TLS handshake
	Quit      time.Duration // QUIT, its reply and the far side's close

	// Unacknowledged is how long our system goes on sending what the receiver's system has
	// not acknowledged; then the connection is over (Linux). A RCPT that waits for a network
	// to heal would come after its address was settled.
	Unacknowledged time.Duration

	// Unended is how long after its end here the receiver may still hold a session, when it
	// has said nothing about it: see Session.Gone.
	Unended time.Duration

	// Session and SessionMore bound the time spent waiting for the receiver in
	// the whole session: Session, and SessionMore for each address after the
	// first. A session that lies idle between two probes is not waiting.
	Session     time.Duration
	SessionMore time.Duration

	LineBytes  int // in one line of a reply, line end included; also the size of the read buffer
	ReplyLines int // in one reply
	ReplyBytes int // in one reply

	// SessionBytes and SessionMoreBytes bound all bytes of replies, as Session
	// and SessionMore bound the time.
	SessionBytes     int
	SessionMoreBytes int
}

// ConnectTimeout is how long a connection to one address may take. A host that
// is up answers within two SYN repeats (1 s and 3 s); the third comes at 7 s.
const ConnectTimeout = 10 * time.Second

// Unended is how long a receiver may hold a session that it hears nothing of: at least 5
// minutes for the next command (RFC 5321 §4.5.3.2.7). Only trials and tests take less.
const Unended = 5 * time.Minute

// unacknowledged is long enough for four tries where a turn takes up to half a second, and
// half of the time after which a node of a cluster uses nothing any more (cluster.Times), so
// that a RCPT of the first half is gone by then. Guess.
const unacknowledged = 4 * time.Second

// courierWaits is what Courier waits at most before it refuses one more address of a session: 8 s before
// the first, and each time twice as long (courieresmtpd.C, MAX_TEERGRUBE).
const courierWaits = 128 * time.Second

// DefaultLimits are the limits for a probe. Until MAIL they are shorter than those that
// RFC 5321 §4.5.3.2 gives a delivering client, because a time-out means only "ask again
// later". From MAIL on they are the same: who delays an answer gives one.
func DefaultLimits() Limits {
	return Limits{
		Greeting:         60 * time.Second, // greet delays and greylisting front ends
		Hello:            30 * time.Second,
		StartTLS:         30 * time.Second,
		Mail:             5 * time.Minute,
		Rcpt:             5 * time.Minute,
		Handshake:        20 * time.Second,
		Quit:             2 * time.Second, // manners; nothing is learned
		Unacknowledged:   unacknowledged,
		Unended:          Unended,
		Session:          6 * time.Minute, // a RCPT of the longest, and what comes before
		SessionMore:      courierWaits + 2*time.Second,
		LineBytes:        4096, // RFC 5321 §4.5.3.1.5 allows 512; some send more
		ReplyLines:       128,
		ReplyBytes:       64 << 10,
		SessionBytes:     256 << 10,
		SessionMoreBytes: 4096, // one longest line for each address more; guess
	}
}

// Validate answers ErrOptions when a limit is not positive.
func (l Limits) Validate() error {
	for _, d := range [...]time.Duration{
		l.Greeting, l.Hello, l.StartTLS, l.Mail, l.Rcpt, l.Handshake, l.Quit, l.Unacknowledged, l.Unended, l.Session,
		l.SessionMore,
	} {
		if d <= 0 {
			return fmt.Errorf("%w: a time limit of a session is not positive", ErrOptions)
		}
	}
	for _, n := range [...]int{l.ReplyLines, l.ReplyBytes, l.SessionBytes, l.SessionMoreBytes} {
		if n <= 0 {
			return fmt.Errorf("%w: a size limit of a session is not positive", ErrOptions)
		}
	}
	// bufio takes no smaller buffer than 16 bytes, and a reply is longer than that.
	if l.LineBytes < 64 {
		return fmt.Errorf("%w: a reply line needs 64 bytes or more", ErrOptions)
	}
	return nil
}
