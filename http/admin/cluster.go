package admin

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"

	"rollcall/http/api"
)

// Cluster is the whole cluster as the node that answers knows it. Every node
// answers for all. Methods are safe for concurrent use and end with ctx.
type Cluster interface {
	// Members gives the members of the moment and those that ended a short while
	// ago. It answers from what the node knows, also when the ledger does not.
	Members(ctx context.Context) (Membership, error)

	// Drain asks a node to give its work away and to take none. Errors:
	// ledger.ErrNoSuchNode; any other one means that the ledger did not answer.
	Drain(ctx context.Context, node uuid.UUID) error

	// Undrain has a node take work again that an operator drained. Errors as Drain.
	Undrain(ctx context.Context, node uuid.UUID) error

	// Forget is an operator's word that a node is dead. Errors: ledger.ErrNoSuchNode,
	// ledger.ErrNodeAlive; any other one means that the ledger did not answer.
	Forget(ctx context.Context, node uuid.UUID) error

	// Keys does a command about the gossip keys on each member that gossip sees,
	// itself included, and tells of each what came of it: a member that did not
	// answer is a result with an Error. ErrNoKeyring: this node's gossip has no keys.
	Keys(ctx context.Context, c KeyCommand) ([]KeyResult, error)
}

// Membership is what one node knows of the cluster.
type Membership struct {
	Cluster string   `json:"cluster"`
	Members []Member `json:"members"` // by name, then by id
	// LedgerAge is how many seconds ago this node last read the nodes' rows in the
	// ledger: beats, loads and ended members are as old as that. 0 for a node alone.
	LedgerAge float64 `json:"ledger_read_seconds_ago"`
}

// Member is one life of a node's process. A node that was started again is shown
// with its youngest session, and with an older one only while that one still
// counts in the shares of receivers.
type Member struct {
	Node    uuid.UUID `json:"node"`
	Session uuid.UUID `json:"session"`
	Name    string    `json:"name"` // of its certificate, or of its host
	State   State     `json:"state"`
	This    bool      `json:"this"` // the node that answers
	Version string    `json:"version"`
	Actors  string    `json:"actor_address"`  // host:port
	Gossip  string    `json:"gossip_address"` // host:port; "" when gossip does not see it
	Since   api.Time  `json:"since"`          // it is in this state
	// BeatAge is how many seconds ago it last wrote its row in the ledger, by the
	// ledger's clock; null for a node alone, or when there is no row.
	BeatAge   *float64 `json:"last_beat_seconds_ago"`
	Leases    int      `json:"leases"`    // verifications it works on
	Addresses int64    `json:"addresses"` // of these, not settled yet
	Receivers int      `json:"receivers"` // that live there
	Agreed    bool     `json:"view_agreed"`
	// ClockOffset is its clock minus the ledger's, in milliseconds; null when it is
	// not known, as for other nodes than the one that answers.
	ClockOffset *int64 `json:"clock_offset_ms"`
}

// State says how a member stands.
type State string

// The states of a member, the first that fits.
const (
	StateLeft     State = "left"     // it went by its own wish and uses nothing any more
	StateLost     State = "lost"     // it was retired: it did not beat for too long
	StateUnseen   State = "unseen"   // it beats in the ledger, but gossip does not see it
	StateSuspect  State = "suspect"  // gossip had no answer of it and is asking others
	StateUnlinked State = "unlinked" // gossip sees it, but actor traffic gets no answer
	StateDraining State = "draining" // it takes no new work
	StateUnfit    State = "unfit"    // its identity fails a check: it takes no probing work
	StateServing  State = "serving"  // all is well
)

// Ended reports whether the member takes no part in the cluster any more.
func (s State) Ended() bool { return s == StateLeft || s == StateLost }

// KeyOp is what is done to the keyrings of gossip.
type KeyOp string

// The commands about gossip keys.
const (
	KeyList   KeyOp = "list"   // change nothing
	KeyAdd    KeyOp = "add"    // take a key that may be used to open what others sealed
	KeyUse    KeyOp = "use"    // seal with this key from now on
	KeyRemove KeyOp = "remove" // forget a key
)

// KeyCommand is one command about gossip keys.
type KeyCommand struct {
	Op          KeyOp
	Key         Secret // 32 bytes; only with KeyAdd
	Fingerprint string // the first 8 hex digits of the key's SHA-256; "" only with KeyList
}

// KeyResult is the keyring of one member after a command.
type KeyResult struct {
	Node    uuid.UUID `json:"node"`
	Name    string    `json:"name"`
	Keys    []string  `json:"keys"`    // fingerprints, the primary's first
	Primary string    `json:"primary"` // the fingerprint of the key that it seals with; "" when it is not known
	Error   string    `json:"error"`   // why it did not do it; "": it did. Never holds a key
}

// Secret is the bytes of a gossip key. It shows itself to nobody: neither to fmt, nor to a
// log, nor to JSON.
type Secret []byte

// secretShown is what everybody sees of a Secret.
const secretShown = "[secret]"

// Format implements fmt.Formatter for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, secretShown) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretShown), nil }
