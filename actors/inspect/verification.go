package inspect

import "time"

// Verification says what the open addresses of a verification wait for.
type Verification struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	Status    string    `json:"status"`
	Node      string    `json:"node,omitempty"` // that works on it; "": none now
	Total     int64     `json:"total"`
	Final     int64     `json:"final"` // settled
	At        time.Time `json:"at"`

	// Waits is empty when no node works on it; then Why says why.
	Waits []Wait `json:"waits"`
	Why   string `json:"why,omitempty"`

	// Finish is when the last address is expected to be final; zero: it cannot be said,
	// and Why says why.
	Finish time.Time `json:"finish,omitzero"`
}

// Wait is a number of addresses that wait for the same.
type Wait struct {
	Addresses int       `json:"addresses"`
	For       string    `json:"for"`                // a word of WaitsFor
	Receiver  string    `json:"receiver,omitempty"` // key
	Cause     string    `json:"cause,omitempty"`    // a word of Causes, of addresses that are at a receiver
	Reason    string    `json:"reason,omitempty"`   // word of smtp.Reason, of addresses that were put off
	Until     time.Time `json:"until,omitzero"`     // the first of them goes on then; zero: it is not known, or now
	Last      time.Time `json:"last,omitzero"`      // and the last of them
	PerHour   int       `json:"per_hour,omitempty"` // that the receiver expects to ask of this verification
}

// What addresses wait for.
const (
	ForRoute    = "route"      // what DNS says of their domain
	ForReceiver = "receiver"   // their turn at a receiver
	ForRetry    = "retry"      // they were put off, and are asked again
	ForControl  = "control"    // whether their domain takes everything
	ForDomain   = "turn"       // their domain is not begun: others of the file are before it
	ForLedger   = "settlement" // they are final and not yet in the ledger
)

// Causes are the words for what keeps a receiver from asking more, in the order of
// wire.Cause.
var Causes = [...]string{"free", "allowance", "connections", "budget", "paused", "penalty",
	"no healthy source", "no share", "unreached"}
