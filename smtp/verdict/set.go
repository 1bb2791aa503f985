package verdict

import (
	"math/bits"
	"slices"
	"strings"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// rulesMax bounds a set: found has one bit for each rule.
const rulesMax = 1024

type found [rulesMax / 64]uint64

func (f *found) set(i int)      { f[i/64] |= 1 << (i % 64) }
func (f *found) has(i int) bool { return f[i/64]>>(i%64)&1 == 1 }

// Rules is a set of rules, ready for use. Safe for concurrent use.
type Rules struct {
	rules    []*rule    // in the order of judging
	compiled []compiled // in the same order
	asked    [numStages][numCodes]uint16
	masks    []found            // by asked: the rules for a code at a stage
	subjects [numSubjects]found // by subjectOf: the rules for an enhanced code, or for more
	wordless found              // the rules without words
	sayings  []int              // the rules for statements about a mailbox
	spoken   *languages
	guards   found // rules for every host with words about us
	guarded  found // the rules that guards precede
	unlinked found // rules that ignore words inside links: all but those that set links
	aside    found // rules that ignore words of asides
	general  found // rules for anything at any host, which ignore product names
	hosts    scopes
	phrases  struct{ ascii, foreign, marked machine } // foreign: of other letters; marked: with marks
	pairs    []pair
	doubts   doubts
	products machine // of words in names of products
	accepted Verdict // to 250 at RCPT if no rule matches
	changes  []Change
}

// compiled has the remaining conditions after code and words match.
type compiled struct {
	enhanced []enhancedPattern
	wide     bool
	verdict  Verdict
}

// pair is a rule with two lists of words; with is the bit of the second list, after those of the rules.
type pair struct{ rule, with int }

// inOrder sorts files into the order of judging: the operator's; those for certain hosts, narrow scopes first; those
// for software anywhere; the generic ones. Within each group by name.
func inOrder(files []*ruleFile) []*ruleFile {
	files = slices.Clone(files)
	group := func(f *ruleFile) int {
		switch {
		case f.own:
			return 0
		case len(f.scope) > 0:
			return 1
		case !strings.HasPrefix(f.name, genericPrefix):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(files, func(a, b *ruleFile) int {
		if d := group(a) - group(b); d != 0 || a.own {
			return d
		}
		if d := b.depth() - a.depth(); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	return files
}

// genericPrefix is the prefix of the files that are judged last.
const genericPrefix = "generic-"

// depth returns the number of labels of the longest suffix.
func (f *ruleFile) depth() int {
	labels := 0
	for _, suffix := range f.scope {
		labels = max(labels, strings.Count(suffix, ".")+1)
	}
	return labels
}

// compile makes a set from files, which have at most rulesMax rules.
func compile(files []*ruleFile) *Rules {
	s := &Rules{spoken: spokenLanguages()}
	for _, f := range inOrder(files) {
		s.rules = append(s.rules, f.rules...)
	}
	for _, r := range s.rules {
		r.verdict.Version = r.version()
	}
	s.doubts, s.products = newDoubts(s.rules), productNames()
	var phrases, foreign, marked []phrase
	for i, r := range s.rules {
		s.compiled = append(s.compiled, compiled{enhanced: r.enhanced, wide: r.doc.Wide, verdict: r.verdict})
		generic := strings.HasPrefix(r.file.name, genericPrefix)
		if generic {
			s.general.set(i)
		}
		add := func(texts []string, bit int) {
			for _, text := range texts {
				text = apart(text)
				to := &phrases
				switch {
				case hasMark(text):
					to = &marked
				case !isASCII(text):
					to = &foreign
				}
				*to = append(*to, phrase{text: text, rule: bit})
			}
		}
		add(r.phrases, i)
		if len(r.with) > 0 {
			p := pair{rule: i, with: len(s.rules) + len(s.pairs)}
			add(r.with, p.with)
			s.unlinked.set(p.with)
			if generic {
				s.general.set(p.with)
			}
			s.pairs = append(s.pairs, p)
		}
		if r.says != saysNothing {
			s.sayings = append(s.sayings, i)
		} else if len(r.phrases) == 0 {
			s.wordless.set(i)
		}
		if !r.file.own && len(r.scope) == 0 && len(r.phrases) > 0 && r.verdict.Blame == smtp.BlameSource {
			s.guards.set(i)
		}
		relay := r.verdict.Reason == smtp.DomainNotHosted // at a domain's only host, this gives invalid
		if r.doc.Asides {
			s.aside.set(i)
		}
		if !r.doc.Links {
			s.unlinked.set(i)
		}
		if !r.file.own && (relay || !generic && r.verdict.Outcome == smtp.Invalid) {
			s.guarded.set(i)
		}
	}
	s.phrases.ascii, s.phrases.foreign, s.phrases.marked = newMachine(phrases), newMachine(foreign), newMachine(marked)
	s.hosts = newScopes(s.rules)
	s.index()
	s.indexSubjects()
	plain := evidence.Attempt{Stage: smtp.StageRcpt, Code: 250}
	s.accepted = s.judge(&plain, &s.hosts.everywhere)
	return s
}

// index makes, for each stage and code, the mask of its rules.
func (s *Rules) index() {
	known := map[found]uint16{}
	for stage := range s.asked {
		for code := range s.asked[stage] {
			var mask found
			for i, r := range s.rules {
				if r.stages.has(smtp.Stage(stage)) && r.codes.has(code+codeMin) {
					mask.set(i)
				}
			}
			at, seen := known[mask]
			if !seen {
				at = uint16(len(s.masks))
				known[mask] = at
				s.masks = append(s.masks, mask)
			}
			s.asked[stage][code] = at
		}
	}
}

// The kinds of enhanced codes: none, and for each of the two refusal classes the subjects of RFC 3463 §3, with one
// for all other subjects.
const (
	subjectsMax = 8
	numSubjects = 1 + 2*(subjectsMax+1)
)

func subjectOf(e smtp.EnhancedCode) int {
	switch subject := int(min(e[1], subjectsMax)); {
	case e == noEnhanced:
		return 0
	case e[0] == 4:
		return 1 + subject
	default:
		return 2 + subjectsMax + subject
	}
}

// indexSubjects makes, for each kind of enhanced code, the mask of its rules.
func (s *Rules) indexSubjects() {
	for i, r := range s.rules {
		if len(r.enhanced) == 0 || slices.Contains(r.enhanced, enhancedPattern{}) {
			s.subjects[0].set(i)
		}
		for subject := range uint16(subjectsMax + 1) {
			for class := uint16(4); class <= 5; class++ {
				about := len(r.enhanced) == 0
				for _, p := range r.enhanced {
					about = about || p != (enhancedPattern{}) && p[0].low <= class && class <= p[0].high &&
						min(p[1].low, subjectsMax) <= subject && subject <= min(p[1].high, subjectsMax)
				}
				if about {
					s.subjects[subjectOf(smtp.EnhancedCode{class, subject, 1})].set(i)
				}
			}
		}
	}
}

// judge returns the verdict of the first matching rule for its host.
func (s *Rules) judge(a *evidence.Attempt, hosts *found) Verdict {
	code, enhanced := temporary(a)
	if code < codeMin || code > codeMax || int(a.Stage) >= numStages {
		return notAnAnswer
	}
	linked := apart(a.Text)
	named := linked
	if plain := withoutLinks(a.Text); len(plain) < len(a.Text) {
		named = apart(plain)
	}
	text := s.withoutProducts(named)
	rules, worded := s.masks[s.asked[a.Stage][code-codeMin]], uint64(0)
	subject := &s.subjects[subjectOf(enhanced)]
	for w := range rules {
		rules[w] &= hosts[w] & subject[w]
		worded |= rules[w] &^ s.wordless[w]
	}
	open := s.openSayings(&rules, enhanced)
	if worded != 0 {
		seen := s.find(text)
		if text != named {
			s.add(&seen, named, &s.general)
		}
		if named != linked {
			s.add(&seen, linked, &s.unlinked)
		}
		for w := range rules {
			rules[w] &= seen[w]
		}
		for _, p := range s.pairs {
			if rules.has(p.rule) && !seen.has(p.with) {
				rules[p.rule/64] &^= 1 << (p.rule % 64)
			}
		}
	}
	i := s.first(&rules, a, enhanced)
	if i >= 0 && s.doubts.said.has(i) {
		if certain := withoutConditions(text); certain != text {
			rules = s.dropUnfound(rules, &s.doubts.said, certain)
			i = s.first(&rules, a, enhanced)
		}
	}
	if i >= 0 && s.aside.has(i) {
		rules = s.dropUnfound(rules, &s.aside, withoutAsides(text))
		i = s.first(&rules, a, enhanced)
	}
	i = s.firstSaid(open, i, text)
	if i < 0 {
		return notAnAnswer
	}
	if s.guarded.has(i) { // a refusal of us often borrows words about a missing mailbox or about relays
		for w := range rules {
			rules[w] &= s.guards[w]
		}
		if guard := s.first(&rules, a, enhanced); guard >= 0 {
			i = guard
		}
	}
	return s.doubts.weaken(i, s.compiled[i].verdictOn(text), text)
}

// dropUnfound removes from rules those in some that find nothing in a part of a text.
func (s *Rules) dropUnfound(rules found, some *found, part string) found {
	seen := s.find(part)
	for w := range rules {
		rules[w] &= seen[w] | ^some[w]
	}
	return rules
}

// openSayings removes the rules for statements about a mailbox from rules, and returns those whose other conditions
// hold: a bit for each of s.sayings.
func (s *Rules) openSayings(rules *found, enhanced smtp.EnhancedCode) (open uint64) {
	for n, i := range s.sayings {
		if rules.has(i) && s.compiled[i].matches(enhanced) {
			open |= 1 << n
		}
		rules[i/64] &^= 1 << (i % 64)
	}
	return open
}

// firstSaid returns the first open rule before i whose statement the text makes, or i. It reads only texts that no
// earlier rule knows.
func (s *Rules) firstSaid(open uint64, i int, text string) int {
	if open == 0 || i >= 0 && i < s.sayings[bits.TrailingZeros64(open)] {
		return i
	}
	text = spoken(text)
	said := s.spoken.statementOf(text)
	if plain := withoutCourtesies(text); said == saysNothing && plain != text {
		said = s.spoken.statementOf(plain)
	}
	for ; open != 0; open &= open - 1 {
		at := s.sayings[bits.TrailingZeros64(open)]
		if s.rules[at].says == said && (i < 0 || at < i) {
			return at
		}
	}
	return i
}

// find returns the rules that have a phrase in text, or have no words.
func (s *Rules) find(text string) found {
	seen := s.wordless
	s.phrases.ascii.scan(text, &seen)
	if !isASCII(text) {
		s.phrases.foreign.scan(text, &seen)
	}
	if hasMark(text) {
		s.phrases.marked.scan(text, &seen)
	}
	return seen
}

// add adds the rules that have a phrase in text, except those in but.
func (s *Rules) add(seen *found, text string, but *found) {
	more := s.find(text)
	for w := range seen {
		seen[w] |= more[w] &^ but[w]
	}
}

// first returns the first of rules whose other conditions hold; -1: none.
func (s *Rules) first(rules *found, a *evidence.Attempt, enhanced smtp.EnhancedCode) int {
	for w, left := range rules {
		for ; left != 0; left &= left - 1 {
			i := w*64 + bits.TrailingZeros64(left)
			if c := &s.compiled[i]; (!c.wide || a.Wide) && c.matches(enhanced) {
				return i
			}
		}
	}
	return -1
}

// verdictOn returns the verdict with the wait that the receiver names, if the action is to wait.
func (c *compiled) verdictOn(text string) Verdict {
	v := c.verdict
	switch v.Action {
	case ActRetry, ActGreylist, ActSlow, ActPause:
		if named := namedWait(text); named > 0 {
			v.Wait, v.Named = named, true
		}
	}
	return v
}

func (c *compiled) matches(e smtp.EnhancedCode) bool {
	return len(c.enhanced) == 0 || slices.ContainsFunc(c.enhanced, func(p enhancedPattern) bool { return p.matches(e) })
}

// temporary returns the code and the enhanced code of a refusal, with one class. If either is temporary, both become
// temporary: a refusal is final only if both are permanent. For an acceptance only the code counts.
func temporary(a *evidence.Attempt) (int, smtp.EnhancedCode) {
	code, enhanced := a.Code, a.Enhanced
	switch {
	case code/100 != 4 && code/100 != 5:
		return code, noEnhanced
	case enhanced == noEnhanced:
		return code, enhanced
	case code/100 == 4 || enhanced[0] == 4:
		enhanced[0] = 4
		return 400 + code%100, enhanced
	}
	enhanced[0] = 5
	return code, enhanced
}
