package verdict

import "slices"

// Info describes a rule for people.
type Info struct {
	ID       string   `json:"id"`
	File     string   `json:"file,omitempty"` // empty: the rule is not from a file
	Line     int      `json:"line,omitempty"`
	Own      bool     `json:"own"`   // the operator's
	Scope    []string `json:"scope"` // suffixes of MX host names; none: every host
	Stage    []string `json:"stage"`
	Code     []string `json:"code"` // none: every refusal
	Enhanced []string `json:"enhanced"`
	Words    []string `json:"words"`
	With     []string `json:"with,omitempty"`
	Says     string   `json:"says,omitempty"` // statement about a mailbox, in any language, instead of words
	Wide     bool     `json:"wide"`
	Links    bool     `json:"links,omitempty"`
	Bare     bool     `json:"bare,omitempty"` // invalid only if another address of the domain is accepted
	Outcome  string   `json:"outcome,omitempty"`
	Action   string   `json:"action,omitempty"`
	Wait     string   `json:"wait,omitempty"`
	Reason   string   `json:"reason"`
	Blame    string   `json:"blame"`
	Meaning  string   `json:"meaning"`
	Source   string   `json:"source"`
	Date     string   `json:"date,omitempty"`
	Version  uint32   `json:"version"`
}

// List returns a copy of the rules in the order of judging.
func (s *Rules) List() []Info {
	list := make([]Info, len(s.rules))
	for i, r := range s.rules {
		list[i] = r.info()
	}
	return list
}

// Own returns how many rules are the operator's.
func (s *Rules) Own() int {
	n := 0
	for _, r := range s.rules {
		if r.file.own {
			n++
		}
	}
	return n
}

// Rule returns the rule with an id, and reports whether the set has it.
func (s *Rules) Rule(id string) (Info, bool) {
	for _, r := range s.rules {
		if r.doc.ID == id {
			return r.info(), true
		}
	}
	if meaning, known := noReplyMeanings[id]; known {
		return Info{ID: id, Meaning: meaning, Source: "Rollcall", Version: builtinVersion}, true
	}
	return Info{}, false
}

func (r *rule) info() Info {
	d, v := &r.doc, &r.verdict
	i := Info{
		ID: d.ID, File: r.file.name, Line: r.lines[""], Own: r.file.own, Scope: slices.Clone(r.scope),
		Stage: slices.Clone(d.Stage), Code: slices.Clone(d.Code), Enhanced: slices.Clone(d.Enhanced),
		Words: slices.Clone(d.Words), With: slices.Clone(d.With), Says: d.Says, Wide: d.Wide,
		Links: d.Links, Bare: d.Bare, Outcome: d.Outcome, Action: d.Action, Reason: d.Reason,
		Blame: v.Blame.String(), Meaning: d.Meaning, Source: d.Source, Date: d.Date, Version: v.Version,
	}
	if v.Wait > 0 {
		i.Wait = v.Wait.String()
	}
	return i
}

// builtinVersion is the version of verdicts without a rule from a file. Raise it when noReply or notAnAnswer change.
const builtinVersion = 1

// noReplyMeanings explains the rules that are not from a file.
var noReplyMeanings = map[string]string{
	"no-reply-malformed":  "The address does not fit a command line, so nobody was asked.",
	"no-reply-eai":        "The address needs SMTPUTF8, which this host does not offer.",
	"no-reply-forbidden":  "The host's address is one that must not be dialled.",
	"no-reply-starttls":   "TLS was demanded, and this host does not offer it.",
	"no-reply-protocol":   "What came was no reply.",
	"no-reply-timeout":    "Nothing came in time.",
	"no-reply-connection": "There was no connection, or it broke.",
	"no-reply-tls":        "The TLS handshake failed.",
	"no-reply-internal":   "We ended it, or never began.",
	"not-an-answer":       "The reply does not belong where it came.",
}
