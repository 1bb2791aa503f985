package gossip

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
)

// Options are the options of a node's gossip.
type Options struct {
	// Cluster is the name that all nodes of the cluster share. Every packet begins with it, unencrypted; packets with
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

// Timing sets the speed of gossip. The formulas of the library's times are in its Config.
type Timing struct {
	// ProbeInterval is how often this node pings another one, in turn. Lower finds a dead node sooner and sends more
	// packets.
	ProbeInterval time.Duration

	// ProbeTimeout is how long a ping may take before other ways are tried: the
	// 99th percentile of round trips on the network. Below ProbeInterval.
	ProbeTimeout time.Duration

	// SuspicionMult sets when a silent node is declared dead: after SuspicionMult times max(1, log10 of the number of
	// members) ProbeIntervals. A higher value gives a slow node more time to answer.
	SuspicionMult int

	// SuspicionMaxTimeoutMult multiplies that time while nobody else confirms that the node is silent.
	SuspicionMaxTimeoutMult int

	// GossipInterval is how often news is sent to GossipNodes others. Lower spreads news faster and sends more packets.
	GossipInterval time.Duration
	GossipNodes    int

	// PushPullInterval is how often this node and another exchange all they know over a stream. Lower repairs lost
	// news sooner and sends more bytes.
	PushPullInterval time.Duration

	// DeadTime is how long a dead member is remembered and sent news.
	DeadTime time.Duration

	// StreamTimeout bounds connecting, and then one exchange over a stream.
	StreamTimeout time.Duration

	// RejoinEvery is how often the addresses of Join and of vanished members are tried while they are not among the
	// members.
	RejoinEvery time.Duration

	// Debounce is how long nothing may change before a change is announced. DebounceMax is the longest delay.
	Debounce    time.Duration
	DebounceMax time.Duration
}

// DefaultTiming is for nodes in one region: a dead node is found in about 2 to 4 s. It is the library's LAN profile
// with twice as many probes. Wrong suspicions are rare because a ping, with its detours through other nodes, may take
// 500 ms.
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

var (
	// ErrRefused means that every member that was reached refused this node, or this node refused it; the text says who
	// and why. Trying again with the same configuration is useless.
	ErrRefused = errors.New("refused")

	// ErrKeyFile means that the file of gossip keys cannot be used; the text says why, without a key.
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
