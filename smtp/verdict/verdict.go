package verdict

import (
	"fmt"
	"slices"
	"time"

	"rollcall/smtp"
)

// Action is what the engine does next, besides or instead of a final outcome.
type Action uint8

// The actions.
const (
	ActNone        Action = iota
	ActRetry              // ask this address again after Wait
	ActGreylist           // the same, from the same source, return path and hello name
	ActSlow               // the receiver wants less: end the session, slow down, ask again after Wait
	ActPause              // stop asking this receiver for Wait, then ask again
	ActOtherSource        // this source is refused, whatever the address
	ActTLS                // ask again in a session with TLS
	ActSplit              // ask again at once, with fewer RCPTs in the transaction
	ActNextMX             // ask the next host of the route
	ActVoid               // this session is poisoned: its answers from here on are void; ask again in a new session
)

var actionNames = [...]string{
	"none", "retry", "greylist", "slow", "pause", "other_source", "tls", "split", "next_mx", "void",
}

// String returns the word for records and logs, such as "next_mx".
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Verdict is the judgement on one attempt.
type Verdict struct {
	// Outcome is smtp.Undecided for "again": follow Action. smtp.Valid means accepted at RCPT; the caller must still
	// exclude a catch-all.
	Outcome smtp.Outcome

	// Bare says that a smtp.Invalid is ambiguous: its words could be about us or others. It counts only if another
	// address of the domain is accepted.
	Bare bool

	Reason  smtp.Reason // the reason of Outcome, or of unknown when retries run out
	Blame   smtp.Blame
	Action  Action
	Wait    time.Duration // named by the receiver or the rule; 0: the configured waits
	Named   bool          // the receiver named Wait
	Rule    string        // id of the rule that matched
	Version uint32        // of that rule: a hash of its content
}

// unreadRules judge by the code alone, when no rule knows the words.
var unreadRules = []string{"5xx", "552", "50x", "4xx", "refused", "hello-refused", "tls-refused", "session-busy"}

// Unread reports whether only the code of a reply decided, because no rule knew its words.
func (v *Verdict) Unread() bool { return Unread(v.Rule) }

// Unread reports whether a rule judges by the code alone.
func Unread(rule string) bool { return slices.Contains(unreadRules, rule) }
