package inspect

import (
	"cmp"
	"slices"
	"time"
)

// Receiver is one receiver actor: what it does, and what keeps it from doing more.
type Receiver struct {
	Key  string `json:"key"`
	Node string `json:"node"` // where it lives

	State string    `json:"state"` // "asking", "waiting", "suspended", "draining", "paused" or "idle"
	Cause string    `json:"cause"` // what keeps it from asking more, a word of Causes
	Until time.Time `json:"until,omitzero"`
	Why   string    `json:"why"` // Cause in a sentence, with the numbers

	// Addresses that could be asked now and have no answer, Behind and InFlight counted in.
	Queued   int     `json:"queued"`
	Behind   int     `json:"behind"`    // of Queued, not yet handed over by their verifications
	Oldest   float64 `json:"oldest"`    // seconds that the oldest one has waited
	InFlight int     `json:"in_flight"` // RCPTs on the wire
	Sessions int     `json:"sessions"`  // open or opening
	Most     int     `json:"most"`      // sessions allowed here now
	Rcpts    float64 `json:"rcpts"`     // a second, over the last ten seconds
	Allowed  float64 `json:"allowed"`   // RCPTs a second, as it is permitted here now
	Ceiling  float64 `json:"ceiling"`   // the same as the rules have it, whatever was learned
	Budget   int     `json:"budget"`    // refusals that may still be caused this hour, the source with the most
	Refused  float64 `json:"refused"`   // part of the answers of the last ten minutes, 0 to 1
	Deferred float64 `json:"deferred"`  // the same of deferrals
	PerHour  int     `json:"per_hour"`  // addresses that it expects to ask in an hour as things are
	Last     Reply   `json:"last"`      // the newest reply that says something about us or the receiver, or any
	LastAt   float64 `json:"last_at"`   // seconds ago; 0: never

	Sources []ReceiverSource `json:"sources"`

	// Causes are the diagnosed reasons of its deferrals, a sentence each.
	Causes []string `json:"causes,omitempty"`
}

// Reply is a receiver's reply, cleaned, and its verdict.
type Reply struct {
	At     time.Time `json:"at,omitzero"`
	Stage  string    `json:"stage,omitempty"`
	Code   int       `json:"code,omitempty"`
	Text   string    `json:"text,omitempty"`   // at most 200 bytes
	Rule   string    `json:"rule,omitempty"`   // of package verdict
	Reason string    `json:"reason,omitempty"` // word of smtp.Reason
	Action string    `json:"action,omitempty"` // word of verdict.Action, "" when it was an outcome
	Source string    `json:"source,omitempty"` // of ours
	Host   string    `json:"host,omitempty"`   // of the receiver
	Until  time.Time `json:"until,omitzero"`   // what we wait for
}

// ReceiverSource is one of our sources at one receiver.
type ReceiverSource struct {
	Source   string     `json:"source"` // "": the system chooses it
	State    string     `json:"state"`  // "used", "spare", "suspended", "draining" or "paused"
	Until    time.Time  `json:"until,omitzero"`
	Reason   string     `json:"reason,omitempty"`
	Sessions int        `json:"sessions"`
	Budget   int        `json:"budget"` // refusals left this hour
	Rate     RateStatus `json:"rate"`
}

// RateStatus is the rate that was found for a source at a receiver.
type RateStatus struct {
	Rate    float64   `json:"rate"`    // RCPTs a second allowed now
	Floor   float64   `json:"floor"`   // what it never goes below
	Ceiling float64   `json:"ceiling"` // the allowance
	Edge    float64   `json:"edge"`    // where it was last too fast; 0: not known
	Phase   string    `json:"phase"`   // "starting", "rising", "holding", "backing off", "recovering", "full"
	Since   time.Time `json:"since,omitzero"`
	Why     string    `json:"why"` // the last change, in a sentence
}

// Session is one SMTP session.
type Session struct {
	ID      int     `json:"id"`
	Source  string  `json:"source"`
	Host    string  `json:"host"`
	State   string  `json:"state"` // "opening", "asking", "idle" or "closing"
	Age     float64 `json:"age"`   // seconds
	Rcpts   int     `json:"rcpts"`
	Refused int     `json:"refused"`
	TLS     string  `json:"tls"`
}

// Queue is what one verification has waiting at a receiver.
type Queue struct {
	Workspace    string  `json:"workspace"`
	Verification string  `json:"verification"`
	Queued       int     `json:"queued"` // addresses not yet handed over included
	Oldest       float64 `json:"oldest"` // seconds
	Weight       int     `json:"weight"`
}

// ReceiverDetail is everything about one receiver. A receiver that lives on several nodes has one for each.
type ReceiverDetail struct {
	Receiver
	SessionList []Session `json:"session_list"` // at most 100
	Queues      []Queue   `json:"queues"`       // at most 100, longest first
	// Of the last hour, newest first, at most 20: what made us slow down, pause or change.
	Firings  []Reply   `json:"firings"`
	Minutes  []Minute  `json:"minutes"` // of the last hour, oldest first
	Learned  []Limit   `json:"learned"`
	Software *Software `json:"software,omitempty"` // nil: nothing is known of it
}

// Software is what the hosts of a receiver showed of their software, and what follows.
type Software struct {
	Name       string `json:"name,omitempty"`        // "": Host showed none that is known
	By         string `json:"by,omitempty"`          // what showed it, as "its greeting"
	Where      string `json:"where,omitempty"`       // who says how it counts refusals
	Host       string `json:"host"`                  // that showed it
	PerSession int    `json:"per_session,omitempty"` // refusals tolerated in a session; 0: the budget of an hour holds
	PerHour    int    `json:"per_hour,omitempty"`    // and in an hour over all sessions; 0: not known
	Decides    bool   `json:"decides"`               // it, and nobody else, decides how many may be refused
}

// Words names the software and says what showed it: "Postfix, by its greeting".
func (s *Software) Words() string {
	if s.Name == "" {
		return s.Host + " shows no known software"
	}
	return s.Name + ", by " + s.By
}

// Limit is a limit that the receiver taught us.
type Limit struct {
	Field string    `json:"field"` // of throttle.Field
	Value string    `json:"value"`
	Since time.Time `json:"since,omitzero"` // when it was learned, or learned again
	From  string    `json:"from,omitempty"` // from what, as the end of a sentence with "because"
	Until time.Time `json:"until,omitzero"`
}

// Minute is what happened in one minute at one receiver.
type Minute struct {
	At       time.Time `json:"at"` // its beginning
	Asked    int       `json:"asked"`
	Accepted int       `json:"accepted"`
	Refused  int       `json:"refused"`
	Deferred int       `json:"deferred"`
	Opened   int       `json:"opened"`   // sessions
	Sessions int       `json:"sessions"` // most at once
	Queued   int       `json:"queued"`   // at its end, including addresses not handed over yet
	Allowed  float64   `json:"allowed"`  // RCPTs a second that were permitted, the least of the minute
	// AllowedLast is the same at its end, or as it was seen last.
	AllowedLast float64 `json:"allowed_last"`
	Cause       string  `json:"cause"` // that kept it from asking more for the longest
}

// Source is one of our sources on one node.
type Source struct {
	Node   string `json:"node"`
	Source string `json:"source"`
	Hello  string `json:"hello"`
	// "used", "suspended", "on trial", "draining", "paused" or "spent" (its day is used up).
	State    string    `json:"state"`
	Until    time.Time `json:"until,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Sessions int       `json:"sessions"`
	Today    int       `json:"today"`   // RCPTs since midnight UTC
	PerDay   int       `json:"per_day"` // allowed today, including the warm-up; 0: not bounded
	Spoken   int       `json:"spoken"`  // receivers within the hour
	Blocked  int       `json:"blocked"` // receivers that refuse it
}

// Forgets are the parts of what a receiver taught us that can be forgotten: how fast we may
// ask, how many sessions it takes and how long they may be, what is suspended there; or all of it.
var Forgets = [...]string{"pace", "sessions", "block", "all"}

// Forgotten says what was dropped of what one receiver taught us, a sentence each.
type Forgotten struct {
	Key     string   `json:"key"`
	Node    string   `json:"node,omitempty"` // where it lives; "": nowhere, only its facts are stored
	Dropped []string `json:"dropped"`
}

// UnreachableNode is a node that did not answer.
type UnreachableNode struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Receivers is the live table of the whole cluster.
type Receivers struct {
	At        time.Time         `json:"at"`
	Receivers []Receiver        `json:"receivers"` // most queued first, at most ReceiversMax
	More      int               `json:"more"`      // that are left out
	Silent    []UnreachableNode `json:"silent"`
}

// SortReceivers puts the most queued first, then those that ask the most.
func SortReceivers(list []Receiver) {
	slices.SortStableFunc(list, func(a, b Receiver) int {
		return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(b.Rcpts, a.Rcpts), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Node, b.Node))
	})
}

// ReceiversMax bounds the live table. Guess: more is no table for people.
const ReceiversMax = 1000

// TraceLine is one line of an SMTP session, without local parts and what may be derived from them.
type TraceLine struct {
	Number  uint64    `json:"number"` // counts up on each node
	Node    string    `json:"node"`
	At      time.Time `json:"at"`
	Session int       `json:"session"`
	Source  string    `json:"source"`
	Host    string    `json:"host"`
	Line    string    `json:"line"` // "> RCPT TO:<…@example.net>", "< 250 2.1.5 OK", "* opened"
}

// DefaultSource is the name, for people, of the source whose address the system chooses.
const DefaultSource = "default"

// SourceName returns the address of one of our sources as people are shown it.
func SourceName(address string) string { return cmp.Or(address, DefaultSource) }

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

	// Finish is when the last address is expected to be final; zero: it cannot be said, and Why says why.
	Finish time.Time `json:"finish,omitzero"`
}

// Wait is a number of addresses that wait for the same.
type Wait struct {
	Addresses int       `json:"addresses"`
	For       string    `json:"for"`                // a word of WaitsFor
	Receiver  string    `json:"receiver,omitempty"` // key
	Cause     string    `json:"cause,omitempty"`    // a word of Causes, of addresses that are at a receiver
	Reason    string    `json:"reason,omitempty"`   // word of smtp.Reason, of deferred addresses
	Until     time.Time `json:"until,omitzero"`     // when the first of them continues; zero: unknown, or now
	Last      time.Time `json:"last,omitzero"`      // and the last of them
	PerHour   int       `json:"per_hour,omitempty"` // that the receiver expects to ask of this verification
}

// What addresses wait for.
const (
	ForRoute    = "route"      // what DNS says of their domain
	ForReceiver = "receiver"   // their turn at a receiver
	ForRetry    = "retry"      // they were deferred and are asked again
	ForControl  = "control"    // whether their domain takes everything
	ForDomain   = "turn"       // their domain is not begun: others of the file are before it
	ForLedger   = "settlement" // they are final and not yet in the ledger
)

// Causes are the words for what keeps a receiver from asking more, in the order of wire.Cause.
var Causes = [...]string{"free", "allowance", "connections", "budget", "paused", "penalty",
	"no healthy source", "no share", "unreached"}
