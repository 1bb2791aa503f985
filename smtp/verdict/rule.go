package verdict

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// rule is one rule of a file, before compilation.
type rule struct {
	file  *ruleFile
	doc   ruleDoc
	lines map[string]int // of its keys; "" for the rule itself

	scope    []string // suffixes of MX host names; none: every host
	stages   stageSet
	codes    codeSet
	enhanced []enhancedPattern // none: any
	phrases  []string          // none: any text
	with     []string          // one of these must also be in the text; none: no condition
	says     statement         // what the text must say about a mailbox, in any language, instead of phrases
	verdict  Verdict
}

type ruleFile struct {
	name  string
	title string
	scope []string // of its rules
	own   bool     // the operator's
	rules []*rule
}

// at returns the position of a key of r, or of r itself.
func (r *rule) at(key string) string {
	line := r.lines[key]
	if line == 0 {
		line = max(r.lines[""], 1)
	}
	return fmt.Sprintf("%s:%d: rule %s: ", r.file.name, line, r.doc.ID)
}

// version hashes everything that decides a verdict, so that evidence shows whether the rule has changed since.
func (r *rule) version() uint32 {
	h := fnv.New32a()
	fmt.Fprintln(h, strings.Join(r.scope, " "), r.stages, r.codes, r.enhanced, strings.Join(r.phrases, "|"),
		r.doc.Wide, r.verdict.Outcome, r.verdict.Reason, r.verdict.Blame, r.verdict.Action, r.verdict.Wait)
	if r.doc.Bare { // others keep the versions from before the field Bare
		fmt.Fprintln(h, "bare")
	}
	if len(r.with) > 0 {
		fmt.Fprintln(h, "with", strings.Join(r.with, "|"))
	}
	if r.says != saysNothing {
		fmt.Fprintln(h, r.doc.Says, languagesFile)
	}
	if r.doc.Asides {
		fmt.Fprintln(h, "asides")
	}
	if r.doc.Links {
		fmt.Fprintln(h, "links")
	}
	return h.Sum32()
}

// within reports whether a host or suffix lies under a suffix, by whole labels.
func within(host, suffix string) bool {
	return strings.HasSuffix(host, suffix) && (len(host) == len(suffix) || host[len(host)-len(suffix)-1] == '.')
}
