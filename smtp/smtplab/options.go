package smtplab

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// Options say how a Lab runs. Defaults gives a complete set; Start refuses an
// incomplete one with ErrOptions.
type Options struct {
	// Network holds the address of every host: a part of 127.0.0.0/8 or of a
	// private network (RFC 1918), IPv4, /8 to /24, without 10.66.66.66, which
	// stands for an address that nobody may dial. All of its addresses must be
	// local. On Linux those of 127.0.0.0/8 are; of another network they become so
	// with "ip route add local NETWORK dev lo".
	Network netip.Prefix

	// DNSListen is the address and port of the DNS server, UDP and TCP; port 0
	// chooses a free one. On loopback or in Network.
	DNSListen netip.AddrPort

	// SMTPPort is the port of every receiver; 0 chooses a free one.
	SMTPPort int

	// GreylistWait is how long the greylisting personalities let a client wait;
	// 100 ms to 24 h. The time that their replies state is this, in whole
	// seconds, rounded up.
	GreylistWait time.Duration

	// HourLasts is how long an "hour" of the guards lasts, 10 ms to 24 h. The
	// limits that count refused recipients in an hour keep their numbers, so a
	// shortened hour makes a guard forget sooner; a client must then be told that
	// its own hour is as short. Default 1 h.
	HourLasts time.Duration

	// SecondLasts is how long a second of the waits of personalities lasts
	// (GreetDelay, TurnDelay, ByteDelay, IdleMax), 1 µs to 1 min: tests may shorten
	// it. RCPTs per second and the pause of Postfix keep the true second. Default 1 s.
	SecondLasts time.Duration

	// Latency is waited before each flush of replies, for every receiver, like
	// one turn on a network; 0 to 1 min. A personality's own comes on top.
	Latency time.Duration

	// HostsMax bounds the hosts that have an address, each with a listening
	// socket; 1 to 100,000, and as many as Network has addresses. DNS answers SERVFAIL for one host more.
	HostsMax int

	// SessionsMax bounds the sessions open at once, all receivers together; 1 to
	// 100,000. One more is refused with 421 and counted as LimitsHit.
	SessionsMax int

	// AddressesMax bounds the addresses whose probes are counted one by one; 0
	// counts none, at most 10,000,000 (about 40 bytes each). Probes for others
	// count in Sheet.Uncounted.
	AddressesMax int

	// EventsMax bounds the log of single events that Events gives; 0 keeps none,
	// at most 10,000,000 (about 150 bytes each). Later ones count in
	// Sheet.EventsDropped.
	EventsMax int

	Log *slog.Logger
}

// Defaults is a lab for a demonstration on a free port: no latency, 3 s of
// greylisting, no log of events.
func Defaults() Options {
	return Options{
		Network:      netip.MustParsePrefix(networkText),
		DNSListen:    netip.MustParseAddrPort("127.0.0.1:0"),
		GreylistWait: 3 * time.Second, // long enough to see, short enough to wait for
		HourLasts:    time.Hour,
		SecondLasts:  time.Second,
		HostsMax:     9_000,     // guess: each is an open file, of which many systems allow 20,000
		SessionsMax:  6_000,     // of that limit too; the rest is for a node in the same process
		AddressesMax: 2_000_000, // twice the largest file
		Log:          slog.New(slog.DiscardHandler),
	}
}

// Validate returns nil, or an error that wraps ErrOptions and names the field.
func (o Options) Validate() error {
	switch {
	case !networkFits(o.Network):
		return fmt.Errorf("%w: Network %q is no part of 127.0.0.0/8 or a private network, /8 to /24, without %s",
			ErrOptions, o.Network, insideV4)
	case !o.DNSListen.IsValid() || !o.DNSListen.Addr().IsLoopback() && !o.Network.Contains(o.DNSListen.Addr()):
		return fmt.Errorf("%w: DNSListen %q is no address and port on loopback or in %s", ErrOptions, o.DNSListen,
			o.Network)
	case o.SMTPPort < 0 || o.SMTPPort > 65535:
		return fmt.Errorf("%w: SMTPPort %d", ErrOptions, o.SMTPPort)
	case o.GreylistWait < 100*time.Millisecond || o.GreylistWait > 24*time.Hour:
		return fmt.Errorf("%w: GreylistWait %v is not within 100ms to 24h", ErrOptions, o.GreylistWait)
	case o.HourLasts < 10*time.Millisecond || o.HourLasts > 24*time.Hour:
		return fmt.Errorf("%w: HourLasts %v is not within 10ms to 24h", ErrOptions, o.HourLasts)
	case o.SecondLasts < time.Microsecond || o.SecondLasts > time.Minute:
		return fmt.Errorf("%w: SecondLasts %v is not within 1µs to 1m", ErrOptions, o.SecondLasts)
	case o.Latency < 0 || o.Latency > time.Minute:
		return fmt.Errorf("%w: Latency %v is not within 0 to 1m", ErrOptions, o.Latency)
	case o.HostsMax < 1 || o.HostsMax > 100_000:
		return fmt.Errorf("%w: HostsMax %d is not within 1 to 100000", ErrOptions, o.HostsMax)
	case o.SessionsMax < 1 || o.SessionsMax > 100_000:
		return fmt.Errorf("%w: SessionsMax %d is not within 1 to 100000", ErrOptions, o.SessionsMax)
	case o.AddressesMax < 0 || o.AddressesMax > 10_000_000:
		return fmt.Errorf("%w: AddressesMax %d is not within 0 to 10000000", ErrOptions, o.AddressesMax)
	case o.EventsMax < 0 || o.EventsMax > 10_000_000:
		return fmt.Errorf("%w: EventsMax %d is not within 0 to 10000000", ErrOptions, o.EventsMax)
	case o.Log == nil:
		return fmt.Errorf("%w: Log is missing", ErrOptions)
	}
	return nil
}

// networkFits reports whether hosts may live in n: nothing of it is public, and
// what must not be dialled is not in it.
func networkFits(n netip.Prefix) bool {
	first := n.Addr()
	return n.IsValid() && first.Is4() && n == n.Masked() && n.Bits() >= 8 && n.Bits() <= 24 &&
		(first.IsLoopback() || first.IsPrivate() && privateWhole(n)) && !n.Contains(insideV4)
}

// privateWhole reports whether all of n is private: the last address as the first.
func privateWhole(n netip.Prefix) bool {
	last := n.Addr().As4()
	for i := n.Bits(); i < 32; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(last).IsPrivate()
}
