package evidence

// Cause is what an attempt was believed to be about when its own answer did not settle that, and the trials
// that showed it. It is for people: no verdict depends on it.
type Cause struct {
	Scope Scope  // ScopeNone: nothing was believed
	Why   string // a plain sentence with the trials, without addresses; at most WhyMax bytes
}

// WhyMax bounds the sentence of a Cause.
const WhyMax = 200

// NewCause makes a cause; of what is longer than WhyMax only the beginning is kept.
func NewCause(s Scope, why string) Cause { return Cause{Scope: s, Why: why[:min(len(why), WhyMax)]} }

// Scope is how far a cause reaches.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Scope uint8

// The scopes.
const (
	ScopeNone     Scope = iota
	ScopeAddress        // the address that was asked, and nobody else
	ScopeDomain         // its mail domain
	ScopeTenant         // the list of one customer
	ScopeReceiver       // the receiver: our pace there, or its own trouble
	ScopeSource         // our source address, which the receiver refuses
	ScopeHost           // one of the receiver's hosts, while others answer
	scopes
)

var scopeNames = [scopes]string{"", "address", "domain", "list", "receiver", "source", "host"}

// String returns the word for records, such as "receiver"; "" for none.
func (s Scope) String() string {
	if s.Known() {
		return scopeNames[s]
	}
	return "unknown"
}

// Known reports whether s is one of these.
func (s Scope) Known() bool { return s < scopes }
