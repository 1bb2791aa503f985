package mx

import "errors"

var (
	// ErrOptions means that an option is missing or out of range; the text names it.
	ErrOptions = errors.New("not usable as mx options")

	// ErrClosed means that the Resolver has been closed.
	ErrClosed = errors.New("mx resolver is closed")
)

// Kind is the reason why DNS gave no answer.
type Kind uint8

// The kinds of failure. After all of them asking again may help; none says anything about an address.
const (
	ServFail    Kind = iota + 1 // the servers could not resolve it, DNSSEC included (RFC 1035 §4.1.1)
	Refused                     // the servers refuse our questions
	TimedOut                    // no answer in time
	Unreachable                 // no server could be reached at all
	Loop                        // a chain of CNAMEs that is endless or too long
	Malformed                   // an answer or a question that is not valid DNS
	Walled                      // denied by servers that also deny Options.KnownName
)

var kindTexts = [...]string{
	ServFail:    "server failure",
	Refused:     "refused",
	TimedOut:    "no answer in time",
	Unreachable: "server unreachable",
	Loop:        "endless or too long chain of names",
	Malformed:   "malformed",
	Walled:      "denied by servers that do not know the Internet",
}

// String describes the kind in a few words.
func (k Kind) String() string {
	if int(k) < len(kindTexts) && k > 0 {
		return kindTexts[k]
	}
	return "unknown"
}

// Error is the failure of a lookup: ask again later.
type Error struct {
	Kind Kind
	Name string // the name asked for, lower case, no final dot
	Type string // "MX", "A" or "AAAA"; empty when nothing was asked
	Err  error  // the cause outside DNS, if any
}

// Error names the question and why it failed.
func (e *Error) Error() string {
	text := "dns: "
	if e.Type != "" {
		text += e.Type + " of "
	}
	text += e.Name + ": " + e.Kind.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
