package smtp

import (
	"errors"
	"fmt"
)

// Why a session got no reply. errors.Is finds these inside a *Failure; time-outs and closed connections are net errors.
var (
	// ErrForbiddenAddress: the dial guard refused the host's address or port.
	ErrForbiddenAddress = errors.New("address or port may not be dialled")

	// ErrOptions: the options of a dialer or a session are incomplete or contradict themselves.
	ErrOptions = errors.New("options are not usable")

	// ErrClosed: the session is over; open another one.
	ErrClosed = errors.New("session is over")

	// ErrProtocol: what was received is not a reply (RFC 5321 §4.2), or not one that is allowed at this point.
	ErrProtocol = errors.New("receiver broke the protocol")

	// ErrOutOfStep is an ErrProtocol: bytes came before the command they would answer.
	ErrOutOfStep = fmt.Errorf("%w: a reply without a command", ErrProtocol)

	// ErrTooLarge is an ErrProtocol: a line, a reply or the whole session is over its limit.
	ErrTooLarge = fmt.Errorf("%w: more bytes or lines than allowed", ErrProtocol)

	// ErrIntercepted: a middlebox answers in place of the host. No session returns it; code that compares the
	// sessions of several hosts does.
	ErrIntercepted = errors.New("somebody else answers in place of the host")

	// ErrNoSTARTTLS: TLSRequired, and the receiver does not offer it.
	ErrNoSTARTTLS = errors.New("receiver does not offer starttls")

	// ErrNoSMTPUTF8: the address needs SMTPUTF8 (RFC 6531) and the receiver does not offer it.
	ErrNoSMTPUTF8 = errors.New("receiver does not offer smtputf8")

	// ErrMalformed: not an address by RFC 5321 §4.1.2 and RFC 6531 §3.3. From a Probe: the address does not fit a
	// command line; well-formed addresses always fit.
	ErrMalformed = errors.New("malformed address")
)
