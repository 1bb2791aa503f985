package smtplab

import "errors"

var (
	// ErrOptions: the Options are not complete or contradict each other.
	ErrOptions = errors.New("smtplab: bad options")

	// ErrNetwork: addresses of Options.Network cannot be bound. Those of 127.0.0.0/8
	// are local on Linux, others after "ip route add local NETWORK dev lo".
	ErrNetwork = errors.New("smtplab: the network is not local: on Linux, \"ip route add local NETWORK dev lo\"")

	// ErrPortTaken: the asked port is in use.
	ErrPortTaken = errors.New("smtplab: port is in use")

	// ErrNoPort: no free port was found after portTries tries.
	ErrNoPort = errors.New("smtplab: no free port found")

	// ErrDomain: a Domain given to Add cannot be served.
	ErrDomain = errors.New("smtplab: bad domain")

	// ErrHostsMax: Options.HostsMax hosts are open, or Network is full; DNS answers SERVFAIL for more.
	ErrHostsMax = errors.New("smtplab: too many hosts")
)
