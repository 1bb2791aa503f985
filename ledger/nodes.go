package ledger

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// ViewMax bounds the processes of one view: four times the 50 nodes that are
	// tested, so that all of them may be counted twice while they restart.
	ViewMax = 200
	// NodeTextBytesMax bounds each text of a Heartbeat. A domain name has 253 bytes (RFC
	// 1035 §2.3.4); this leaves room for a port.
	NodeTextBytesMax = 300
	// SilentMax bounds the silent receivers of one process: twice the sessions that a
	// node has at most.
	SilentMax = 8192
)

// Incarnation is one life of one node: the node is the same after a restart, the
// session is not.
type Incarnation struct{ Session, Node uuid.UUID }

// Heartbeat is what a process says of itself.
type Heartbeat struct {
	Incarnation
	Cluster  string // name of the cluster
	Name     string // of the certificate, or of the host
	Version  string // of the program
	Actors   string // host:port of actor traffic
	Draining bool
	Started  time.Time
	View     []Incarnation // whom it sees, strictly ascending by session; at most ViewMax
	Read     int64         // the turn up to which it has read and complied
	// Silent are the receivers that may still hold sessions which the process has ended,
	// by the hashes of their keys, strictly ascending; at most SilentMax. Nobody else may
	// use these, whatever the votes say; not after the process has ended either, until
	// receivers have forgotten a session of when it was seen last.
	Silent []uint64

	// Its load: verifications leased, their addresses that are not settled, and
	// receivers that live there.
	Leases    int
	Addresses int64
	Receivers int
}

// Check reports whether a Heartbeat can be kept. ErrIllegal for no session or node, a view
// or list that is too long or not ascending, numbers below 0, and texts that are no text or
// too long.
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
		return fmt.Errorf("a beat with a number below 0: %w", ErrIllegal)
	}
	for i := 1; i < len(b.View); i++ {
		if bytes.Compare(b.View[i-1].Session[:], b.View[i].Session[:]) >= 0 {
			return fmt.Errorf("view is not sorted by session: %w", ErrIllegal)
		}
	}
	for i := 1; i < len(b.Silent); i++ {
		if b.Silent[i-1] >= b.Silent[i] {
			return fmt.Errorf("silent receivers that do not ascend: %w", ErrIllegal)
		}
	}
	return nil
}

// NodeStatus is the state of a process in the ledger.
type NodeStatus uint8

// The standings.
const (
	NodeIn   NodeStatus = iota // it beats, or was seen lately
	NodeLeft                   // it said that it goes
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

// NodeRow is what the ledger keeps of a process. All times are by the database's
// clock, but for Started, in milliseconds.
type NodeRow struct {
	Heartbeat
	Status NodeStatus
	Since  time.Time // of the standing
	Seen   time.Time // when its last heartbeat was written
	// Generation is that of its last publication, or of its end.
	Generation int64
	// Before is the view before the last publication; nil: there was none, or it was
	// empty, or the process has ended and had read its publication.
	Before []Incarnation
	// Dead says of one that is lost that it is known to be dead: it has no SMTP
	// sessions any more, but for those that were Silent.
	Dead       bool
	DrainAsked bool // an operator wants it to drain
}

// NodeSnapshot is all rows at one moment, those that ended within the last day too, by
// session. It holds every publication and every end up to Generation. Without any row it
// is the zero NodeSnapshot.
type NodeSnapshot struct {
	Now        time.Time // by the database's clock
	Generation int64     // how many publications and ends there have been
	Nodes      []NodeRow
}

// Nodes is the part about the processes of a cluster. A view is published, and a
// row ended, in a turn: the next number of one counter, in the same transaction.
// Who has read a NodeSnapshot of generation t has read all that happened in generations up to t.
type Nodes interface {
	// Identity is the ledger's own id, made once.
	Identity(ctx context.Context) (uuid.UUID, error)
	// WriteHeartbeat writes the row of b.Incarnation, seen now, and then reads all, in two
	// transactions. A new row, or one that had ended, begins: in, not dead, Before
	// nil, in a new turn. Another view than the row's is a publication: Before
	// becomes the row's view, in a new turn. Otherwise the row is refreshed and no
	// other is looked at.
	//
	// Before remembers one view: who has published waits with the next view until
	// the publication is settled. After an error the row may have been written: only
	// a NodeSnapshot says which view stands.
	//
	// ErrIllegal as Check, ErrOtherCluster when the row begins and one that is in
	// names another cluster.
	WriteHeartbeat(ctx context.Context, b Heartbeat) (NodeSnapshot, error)
	// ReadNodes reads all rows.
	ReadNodes(ctx context.Context) (NodeSnapshot, error)
	// Leave ends a process's row by its own wish, in a new turn: it uses nothing any
	// more but what its last heartbeat called silent, and does not beat again. Of one that was
	// lost it takes back the loss. No effect on one that had left or is not there.
	Leave(ctx context.Context, session uuid.UUID) error
	// Retire ends, in a new turn, a row that is in and was not seen for at least
	// after. dead says that the process is known to be dead too, also of a row that
	// is lost already. No effect on any other row, such as one that was seen since.
	Retire(ctx context.Context, session uuid.UUID, after time.Duration, dead bool) error
	// AskDrain notes an operator's wish in the rows of a node that are in or lost;
	// the process sees it with its next heartbeat. ErrNoSuchNode when there is none.
	AskDrain(ctx context.Context, node uuid.UUID) error
	// Undrain takes that wish back, in the same rows. ErrNoSuchNode as AskDrain; no
	// effect on a node that nobody wants to drain.
	Undrain(ctx context.Context, node uuid.UUID) error
	// Forget is an operator's word that a node is dead, and that no receiver holds a
	// session of it. Its rows are removed; one whose end some process that is in has not
	// read yet stays as lost and dead, with nothing silent, for Sweep or another Forget:
	// without it that process would count on. A row that is
	// in and was not seen for after is retired first. ErrNoSuchNode,
	// and ErrNodeAlive when one was seen since, which changes nothing.
	Forget(ctx context.Context, node uuid.UUID, after time.Duration) error
}
