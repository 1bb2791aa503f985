package ledger

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// ViewMax bounds the processes of one view: four times the tested 50 nodes, so that all can be counted twice
	// while they restart.
	ViewMax = 200
	// NodeTextBytesMax bounds each text of a Heartbeat. A domain name has 253 bytes (RFC 1035 §2.3.4); this leaves
	// room for a port.
	NodeTextBytesMax = 300
	// SilentMax bounds the silent receivers of one process: twice the sessions of a node.
	SilentMax = 8192
)

// Incarnation is one process of a node. The node stays the same after a restart, the session does not.
type Incarnation struct{ Session, Node uuid.UUID }

// Heartbeat is what a process reports about itself.
type Heartbeat struct {
	Incarnation
	Cluster  string // name of the cluster
	Name     string // of the certificate, or of the host
	Version  string // of the program
	Actors   string // host:port of actor traffic
	Draining bool
	Started  time.Time
	View     []Incarnation // the nodes it sees, strictly ascending by session; at most ViewMax
	Read     int64         // the generation up to which it has read and complied
	// Silent are the receivers that may still hold sessions which the process has ended, as hashes of their keys,
	// strictly ascending; at most SilentMax. No other process may use these, whatever the votes say. This holds
	// after the end of the process, until receivers have forgotten a session from its last heartbeat.
	Silent []uint64

	// The load: leased verifications, their open addresses, and the node's receivers.
	Leases    int
	Addresses int64
	Receivers int
}

// Check checks whether a Heartbeat can be stored. ErrIllegal for a missing session or node, a view or list that is
// too long or not ascending, numbers below 0, and texts that are invalid or too long.
func (b Heartbeat) Check() error {
	for _, text := range []string{b.Cluster, b.Name, b.Version, b.Actors} {
		if err := CheckText(text); err != nil {
			return err
		}
		if len(text) > NodeTextBytesMax {
			return fmt.Errorf("a text of %d bytes, %d are allowed: %w", len(text), NodeTextBytesMax, ErrIllegal)
		}
	}
	switch {
	case b.Session == uuid.Nil || b.Node == uuid.Nil:
		return fmt.Errorf("a process without session or node: %w", ErrIllegal)
	case len(b.View) > ViewMax:
		return fmt.Errorf("a view of %d processes, %d are allowed: %w", len(b.View), ViewMax, ErrIllegal)
	case len(b.Silent) > SilentMax:
		return fmt.Errorf("%d silent receivers, %d are allowed: %w", len(b.Silent), SilentMax, ErrIllegal)
	case b.Read < 0 || b.Leases < 0 || b.Addresses < 0 || b.Receivers < 0:
		return fmt.Errorf("a heartbeat with a number below 0: %w", ErrIllegal)
	}
	for i := 1; i < len(b.View); i++ {
		if bytes.Compare(b.View[i-1].Session[:], b.View[i].Session[:]) >= 0 {
			return fmt.Errorf("view is not sorted by session: %w", ErrIllegal)
		}
	}
	for i := 1; i < len(b.Silent); i++ {
		if b.Silent[i-1] >= b.Silent[i] {
			return fmt.Errorf("silent receivers are not sorted: %w", ErrIllegal)
		}
	}
	return nil
}

// NodeStatus is the state of a process in the ledger.
type NodeStatus uint8

// The states.
const (
	NodeIn   NodeStatus = iota // has recent heartbeats
	NodeLeft                   // it announced its end
	NodeLost                   // it was not seen for too long
)

// String returns "in", "left" or "lost".
func (s NodeStatus) String() string {
	switch s {
	case NodeIn:
		return "in"
	case NodeLeft:
		return "left"
	case NodeLost:
		return "lost"
	}
	return fmt.Sprintf("standing %d", uint8(s))
}

// NodeRow is a process's row in the ledger. All times except Started are by the database's clock, in milliseconds.
type NodeRow struct {
	Heartbeat
	Status NodeStatus
	Since  time.Time // of the status
	Seen   time.Time // when its last heartbeat was written
	// Generation is that of its last publication, or of its end.
	Generation int64
	// Before is the view before the last publication; nil: there was none, it was empty, or the process has ended
	// and had read its own publication.
	Before []Incarnation
	// Dead says that a lost process is known to be dead: it has no SMTP sessions left, except at receivers in Silent.
	Dead       bool
	DrainAsked bool // an operator wants it to drain
}

// NodeSnapshot is all rows at one moment, by session, including those that ended within the last day. It includes
// all publications and ends up to Generation. Without any row it is the zero NodeSnapshot.
type NodeSnapshot struct {
	Now        time.Time // by the database's clock
	Generation int64     // number of publications and ends so far
	Nodes      []NodeRow
}

// Nodes is the part about the processes of a cluster. Publishing a view and ending a row each take a generation: the
// next number of one counter, in the same transaction. A process that has read a NodeSnapshot of generation t has
// read everything up to t.
type Nodes interface {
	// Identity returns the ledger's own id, made once.
	Identity(ctx context.Context) (uuid.UUID, error)
	// WriteHeartbeat writes the row of b.Incarnation with the time now, and then reads all rows, in two transactions. A
	// new or ended row begins: in, not dead, Before nil, in a new generation. A changed view is a publication: Before
	// becomes the row's old view, in a new generation. Otherwise the row is refreshed and no other row is read.
	//
	// Before has one view: after a publication, a process must not publish again until that one is settled. After an
	// error the row may have been written: only a NodeSnapshot shows which view is stored.
	//
	// ErrIllegal as in Check; ErrOtherCluster when the row begins and a joined one names another cluster.
	WriteHeartbeat(ctx context.Context, b Heartbeat) (NodeSnapshot, error)
	// ReadNodes reads all rows.
	ReadNodes(ctx context.Context) (NodeSnapshot, error)
	// Leave ends a process's row at its own wish, in a new generation. From then on it uses nothing except the
	// silent receivers of its last heartbeat, and sends no more heartbeats. A lost process becomes one that left. No
	// effect on a missing row or one that had left.
	Leave(ctx context.Context, session uuid.UUID) error
	// Retire ends, in a new generation, a joined row whose last heartbeat is older than after. dead says that the
	// process is known to be dead, which also applies to a row that is already lost; leases of its node end then, unless
	// another process of it is in. No effect on other rows, such as one that was seen since.
	Retire(ctx context.Context, session uuid.UUID, after time.Duration, dead bool) error
	// AskDrain stores an operator's request to drain in a node's joined or lost rows; the process sees it with its
	// next heartbeat. ErrNoSuchNode when there is none.
	AskDrain(ctx context.Context, node uuid.UUID) error
	// Undrain withdraws the request in the same rows. ErrNoSuchNode as in AskDrain; no effect without a request.
	Undrain(ctx context.Context, node uuid.UUID) error
	// Forget records an operator's statement that a node is dead and no receiver holds its sessions. It removes the node's
	// rows, but a row with an end that some joined process has not read stays as lost and dead, with no silent receivers,
	// until Sweep or another Forget: without the row that process would continue to count it. It first retires a joined
	// row whose last heartbeat is older than after. ErrNoSuchNode; ErrNodeAlive, without any change, when one is newer.
	Forget(ctx context.Context, node uuid.UUID, after time.Duration) error
}
