package verdict

// Info describes a rule for people.
type Info struct {
	Line    int  // in its file; 0: the rule is not from a file
	Own     bool // the operator's
	Meaning string
	Source  string
	Date    string
	Version uint32
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
			return Info{Line: r.lines[""], Own: r.file.own, Meaning: r.doc.Meaning, Source: r.doc.Source,
				Date: r.doc.Date, Version: r.verdict.Version}, true
		}
	}
	meaning, known := noReplyMeanings[id]
	if !known {
		return Info{}, false
	}
	return Info{Meaning: meaning, Source: "Rollcall", Version: builtinVersion}, true
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
