package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
)

// Options are the options of a node's gossip.
type Options struct {
	// Cluster is the name that all nodes of the cluster share. It stands unencrypted before every packet; packets with
	// another name are dropped. From 1 to 255 bytes.
	Cluster string

	// Listen is the host:port of packets and streams; the host is an IP address or
	// a name of one. Port 0 takes any free one. Not used with a Transport.
	Listen string

	// Advertise is the host at which others reach this node. Empty: that of Listen, which then must not be all
	// interfaces. Not used with a Transport.
	Advertise string

	// Join lists gossip addresses (host:port) of some members; a name may resolve to many. This node's own may be among
	// them. May be empty.
	Join []string

	// Networks are the networks that packets, streams and members may come from. Not empty.
	Networks []netip.Prefix

	// Keys encrypt the gossip. Nil only if Listen is on loopback, or with a Transport.
	Keys *Keyring

	// Self describes this process to the others.
	Self NodeMeta

	Timing     Timing
	Log        *slog.Logger
	Registerer prometheus.Registerer

	// Transport carries packets and streams; nil means sockets. Stop shuts it down.
	Transport memberlist.NodeAwareTransport
}

// Validate says what is missing or wrong.
func (o Options) Validate() error {
	switch {
	case o.Cluster == "" || len(o.Cluster) > memberlist.LabelMaxSize:
		return fmt.Errorf("gossip options: cluster name has %d bytes: from 1 to %d", len(o.Cluster), memberlist.LabelMaxSize)
	case len(o.Networks) == 0:
		return errors.New("gossip options: no allowed networks: name those of the members")
	case o.Log == nil:
		return errors.New("gossip options: no logger")
	case o.Registerer == nil:
		return errors.New("gossip options: no registerer of metrics")
	}
	if err := o.Self.Validate(); err != nil {
		return fmt.Errorf("gossip options: card: %w", err)
	}
	if err := o.Timing.Validate(); err != nil {
		return fmt.Errorf("gossip options: %w", err)
	}
	if o.Transport != nil {
		return nil
	}
	return o.validateListen()
}

func (o Options) validateListen() error {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("gossip options: listen: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("gossip options: listen: port %d: %w", n, err)
	}
	ip, err := netip.ParseAddr(host)
	if o.Advertise == "" && (host == "" || err == nil && ip.IsUnspecified()) {
		return errors.New("gossip options: listening on all interfaces: set advertise to the host that others reach")
	}
	loopback := host == "localhost" || err == nil && ip.IsLoopback()
	if o.Keys == nil && !loopback {
		return errors.New("gossip options: no keys off loopback")
	}
	return nil
}

// Timing sets the speed of gossip. The formulas of the library's times are in its Config.
type Timing struct {
	// ProbeInterval is how often this node pings another one, in turn. Lower finds a dead node sooner and sends more
	// packets.
	ProbeInterval time.Duration

	// ProbeTimeout is how long a ping may take before other ways are tried: the
	// 99th percentile of round trips on the network. Below ProbeInterval.
	ProbeTimeout time.Duration

	// SuspicionMult times max(1, log10 of the number of members) is after how many ProbeIntervals a silent node is
	// declared dead. Higher gives a slow node more time to answer.
	SuspicionMult int

	// SuspicionMaxTimeoutMult multiplies that time while nobody else confirms that the node is silent.
	SuspicionMaxTimeoutMult int

	// GossipInterval is how often news is sent to GossipNodes others. Lower spreads news faster and sends more packets.
	GossipInterval time.Duration
	GossipNodes    int

	// PushPullInterval is how often this node and another compare all they know, over a stream. Lower repairs lost news
	// sooner and sends more bytes.
	PushPullInterval time.Duration

	// DeadTime is how long a dead member is remembered and sent news.
	DeadTime time.Duration

	// StreamTimeout bounds connecting, and then one exchange over a stream.
	StreamTimeout time.Duration

	// RejoinEvery is how often the addresses of Join and of vanished members are tried while they are not among the
	// members.
	RejoinEvery time.Duration

	// Debounce is how long it must be quiet before a change is announced, and DebounceMax the longest delay.
	Debounce    time.Duration
	DebounceMax time.Duration
}

// DefaultTiming is for nodes in one region: a dead node is found in about 2 to 4 s. It is the library's LAN profile
// with twice as many probes. Wrong suspicions are rare because a ping with its detours may take 500 ms.
func DefaultTiming() Timing {
	return Timing{
		ProbeInterval:           500 * time.Millisecond,
		ProbeTimeout:            200 * time.Millisecond,
		SuspicionMult:           4,
		SuspicionMaxTimeoutMult: 3,
		GossipInterval:          100 * time.Millisecond,
		GossipNodes:             3,
		PushPullInterval:        15 * time.Second,
		DeadTime:                30 * time.Second,
		StreamTimeout:           5 * time.Second,
		RejoinEvery:             5 * time.Second,
		Debounce:                50 * time.Millisecond,
		DebounceMax:             500 * time.Millisecond,
	}
}

// times returns every time by its name, to be read or changed.
func (t *Timing) times() NamedTimes {
	return NamedTimes{
		{"probe interval", &t.ProbeInterval}, {"probe timeout", &t.ProbeTimeout},
		{"gossip interval", &t.GossipInterval}, {"push-pull interval", &t.PushPullInterval},
		{"dead time", &t.DeadTime}, {"stream timeout", &t.StreamTimeout},
		{"rejoin every", &t.RejoinEvery}, {"debounce", &t.Debounce}, {"debounce max", &t.DebounceMax},
	}
}

// NamedTimes are durations by their names.
type NamedTimes []struct {
	Name string
	At   *time.Duration
}

// Scale multiplies all times by a factor.
func (l NamedTimes) Scale(factor float64) {
	for _, one := range l {
		*one.At = time.Duration(math.Round(float64(*one.At) * factor))
	}
}

// Validate returns an error about the first time that is too short.
func (l NamedTimes) Validate() error {
	for _, one := range l {
		if *one.At < time.Millisecond {
			return fmt.Errorf("%s is %s: at least 1ms", one.Name, *one.At)
		}
	}
	return nil
}

// Scaled returns all times multiplied by a factor, for tests: 0.2 makes the gossip five times as fast. Counts stay as
// they are.
func (t Timing) Scaled(factor float64) Timing {
	t.times().Scale(factor)
	return t
}

// Validate returns an error about the first time out of range.
func (t Timing) Validate() error {
	if err := t.times().Validate(); err != nil {
		return fmt.Errorf("timing: %w", err)
	}
	switch {
	case t.ProbeTimeout >= t.ProbeInterval:
		return fmt.Errorf("timing: probe timeout %s is not below probe interval %s", t.ProbeTimeout, t.ProbeInterval)
	case t.SuspicionMult < 1 || t.SuspicionMaxTimeoutMult < 1 || t.GossipNodes < 1:
		return errors.New("timing: suspicion multipliers and gossip nodes are at least 1")
	case t.Debounce > t.DebounceMax:
		return fmt.Errorf("timing: debounce %s is longer than its maximum %s", t.Debounce, t.DebounceMax)
	}
	return nil
}

var (
	// ErrRefused means that every member that was reached refused this node, or this node refused it; the text says who
	// and why. Trying again with the same configuration is useless.
	ErrRefused = errors.New("refused")

	// ErrKeyFile means that the file of gossip keys cannot be used; the text says
	// why, without a key.
	ErrKeyFile = errors.New("gossip key file")

	// ErrNotAKey means that a text is not 32 bytes in base64.
	ErrNotAKey = errors.New("not a gossip key: write 32 bytes in base64, as `rollcall cluster keys new FILE` does")

	// ErrNoSuchKey means that no key on the ring has this name.
	ErrNoSuchKey = errors.New("no such gossip key on this ring")

	// ErrKeyInUse means that the primary key can't be removed.
	ErrKeyInUse = errors.New("the primary gossip key cannot be removed: use another one first")

	// ErrTooManyKeys means that the ring is full: remove old keys first.
	ErrTooManyKeys = errors.New("too many gossip keys: remove old ones first")

	// ErrStopped means that this gossip has been stopped.
	ErrStopped = errors.New("gossip has stopped")
)
