package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

func (s *Rules) check(own bool) faults {
	var found faults
	ids := map[string]*rule{}
	for i, r := range s.rules {
		if other, twice := ids[r.doc.ID]; twice && r.file.own == own || twice && other.file.own == own {
			one, two := r, other
			if other.file.own && !r.file.own {
				one, two = other, r
			}
			found.add(one.at("id"), "there is another rule of this name in %s:%d: rename one", two.file.name, two.lines[""])
		}
		ids[r.doc.ID] = r
		if r.file.own != own {
			continue
		}
		found = append(found, r.checkVerdict()...)
		found = append(found, r.checkPhrases()...)
		found = append(found, s.checkSamples(r)...)
		shadows := s.checkShadows(i)
		if found = append(found, shadows...); len(shadows) == 0 {
			found = append(found, s.checkAlive(i)...)
		}
	}
	return found
}

// checkVerdict checks the verdict of a rule, so that no rule blames an address for the fault of another party.
func (r *rule) checkVerdict() faults {
	var found faults
	v := &r.verdict
	if v.Outcome != smtp.Undecided && r.stages != atRcpt {
		found.add(r.at("stage"), "an outcome can only come from rcpt: write an action, or only that stage")
	}
	accepting, refusing := r.codes.any(2), r.codes.any(4) || r.codes.any(5)
	if accepting && (refusing || r.stages != atRcpt) {
		found.add(r.at("code"), "codes 2xx stand alone in a rule for rcpt: make two rules")
	}
	switch v.Outcome {
	case smtp.Invalid:
		found = append(found, r.checkInvalid()...)
	case smtp.Valid:
		busy := v.Reason == smtp.MailboxBusy && refusing && len(r.scope) > 0
		good := !refusing && r.codes.onlyAccepted() && (v.Reason == smtp.MailboxExists || v.Reason == smtp.MailboxBusy)
		if !busy && !good {
			found.add(r.at("outcome"), "valid is for codes 250 and 251 with reason mailbox_exists, or for a refusal "+
				"with reason mailbox_busy in a file with a scope")
		}
	case smtp.CatchAll:
		if accepting && v.Reason != smtp.NoRcptAnswer && v.Reason != smtp.AcceptAll ||
			refusing && v.Reason != smtp.MailboxRestricted {
			found.add(r.at("reason"), "catch_all is for 2xx with reason no_rcpt_answer or accept_all, or for a "+
				"refusal with reason mailbox_restricted")
		}
	}
	if v.Outcome != smtp.Undecided && v.Wait != 0 || v.Action == ActTLS || v.Action == ActSplit {
		if v.Wait != 0 {
			found.add(r.at("wait"), "nothing waits here: take it out")
		}
	}
	return found
}

func (s *codeSet) onlyAccepted() bool {
	for code := codeMin; code <= codeMax; code++ {
		if s.has(code) && code != 250 && code != 251 {
			return false
		}
	}
	return true
}

func (r *rule) checkInvalid() faults {
	var found faults
	if r.codes.any(2) || r.codes.any(4) {
		found.add(r.at("code"), "only a 5xx makes an address invalid: write the codes that do")
	}
	for _, p := range r.enhanced {
		if p != (enhancedPattern{}) && p[0].low == 4 {
			found.add(r.at("enhanced"), "only a code of class 5 makes an address invalid: take out class 4")
		}
	}
	if b := r.verdict.Blame; b != smtp.BlameAddress && b != smtp.BlameDomain {
		found.add(r.at("blame"), "invalid blames the address or the domain, not %s", b)
	}
	switch r.verdict.Reason {
	case smtp.MailboxNotFound, smtp.MailboxDisabled, smtp.MailboxFull, smtp.DomainNotFound, smtp.NoMailService,
		smtp.DomainNotHosted, smtp.Syntax:
	default:
		found.add(r.at("reason"), "%s does not make an address invalid: write what is wrong with it", r.verdict.Reason)
	}
	return found
}

// checkPhrases finds phrases that contain another phrase of the same rule, because they are useless.
func (r *rule) checkPhrases() faults {
	var found faults
	all := make([]string, len(r.phrases))
	for i, phrase := range r.phrases {
		all[i] = edged(phrase)
	}
	for i, long := range r.phrases {
		for j, short := range r.phrases {
			if i != j && strings.Contains(all[i], all[j]) {
				found.add(r.at("words"), "%q holds %q, which is enough: take the longer one out", long, short)
			}
		}
	}
	return found
}

// sampleHosts returns hosts on which samples of r are tried.
func (r *rule) sampleHosts() []string {
	if len(r.scope) == 0 {
		return []string{"mx.example.com"}
	}
	hosts := make([]string, len(r.scope))
	for i, suffix := range r.scope {
		hosts[i] = "mx." + suffix
	}
	return hosts
}

// checkSamples checks that each rule decides on its own samples, and does not decide on texts that only look similar.
func (s *Rules) checkSamples(r *rule) faults {
	var found faults
	for _, kind := range []struct {
		key   string
		texts []string
	}{{"match", r.doc.Match}, {"miss", r.doc.Miss}} {
		if len(kind.texts) == 0 {
			found.add(r.at(""), "%s is missing: give a reply that the rule must %s", kind.key, kind.key)
		}
		for _, text := range kind.texts {
			for _, host := range r.sampleHosts() {
				a, err := Sample(text, host)
				if err != nil {
					found.add(r.at(kind.key), "%s: %v", kind.key, err)
					break
				}
				v := s.Judge(a)
				if kind.key == "match" && v.Rule != r.doc.ID {
					found.add(r.at(kind.key), "rule %s takes the sample %q at %s: make this rule wider, or that one "+
						"narrower", v.Rule, text, a.Host)
				} else if kind.key == "miss" && v.Rule == r.doc.ID {
					found.add(r.at(kind.key), "it takes the sample %q at %s: make it narrower", text, a.Host)
				}
			}
		}
	}
	return found
}

// checkShadows finds rules that never match because an earlier rule has the same or wider conditions. An operator's
// rule may shadow a built-in one.
func (s *Rules) checkShadows(at int) faults {
	later := s.rules[at]
	for _, earlier := range s.rules[:at] {
		if earlier.file.own && !later.file.own || !earlier.covers(later) {
			continue
		}
		var found faults
		found.add(later.at(""), "rule %s in %s:%d takes all that this one could: move this one before it, or "+
			"make that one narrower", earlier.doc.ID, earlier.file.name, earlier.lines[""])
		return found
	}
	return nil
}

func (r *rule) covers(other *rule) bool {
	if other.stages&^r.stages != 0 || !r.codes.covers(&other.codes) || r.doc.Wide && !other.doc.Wide ||
		other.doc.Links && !r.doc.Links || len(r.with) > 0 ||
		!allCovered(r.scope, other.scope, func(wide, narrow string) bool { return within(narrow, wide) }) ||
		!allCovered(r.enhanced, other.enhanced, enhancedPattern.covers) {
		return false
	}
	if r.says != saysNothing {
		return r.says == other.says
	}
	return allCovered(r.phrases, other.phrases, func(short, long string) bool { return holds(long, short) })
}

// checkAlive finds phrases that never decide, because earlier rules match them at every code, stage and host. They
// mislead the reader.
func (s *Rules) checkAlive(at int) faults {
	var found faults
	r := s.rules[at]
	phrases := r.phrases
	if len(phrases) == 0 && r.says == saysNothing {
		phrases = []string{"*"}
	}
	if len(r.with) > 0 { // keep the phrases on which the rule decides with none of these words
		phrases = nil
		for _, p := range r.phrases {
			if !slices.ContainsFunc(r.with, func(with string) bool { return s.taker(r, strings.Trim(p, "*")+" "+with) == "" }) {
				phrases = append(phrases, p)
			}
		}
	}
	for _, p := range phrases {
		if taker := s.taker(r, p); taker != "" {
			what := fmt.Sprintf("the phrase %q is taken", p)
			if p == "*" {
				what = "everything is taken"
			}
			found.add(r.at("words"), "%s by other rules, such as %s, whatever the code: take it out, or move "+
				"the rule", what, taker)
		}
	}
	return found
}

// taker returns the first rule that decides on a text that is only the phrase; "" when r decides for one of its
// codes, stages and hosts.
func (s *Rules) taker(r *rule, phrase string) (first string) {
	if phrase[len(phrase)-1] == '*' {
		phrase = phrase[:len(phrase)-1]
	}
	for _, host := range r.sampleHosts() {
		for stage := range numStages {
			if !r.stages.has(smtp.Stage(stage)) {
				continue
			}
			tried := map[[2]int]bool{} // by mask and class: other codes with the same pair behave the same
			for code := codeMin; code <= codeMax; code++ {
				kind := [2]int{int(s.asked[stage][code-codeMin]), code / 100}
				if !r.codes.has(code) || tried[kind] {
					continue
				}
				tried[kind] = true
				for _, e := range r.enhancedSamples(code / 100) {
					v := s.Judge(evidence.Attempt{Stage: smtp.Stage(stage), Host: host, Code: code, Enhanced: e,
						Text: phrase, Wide: r.doc.Wide})
					if v.Rule == r.doc.ID {
						return ""
					}
					first = cmp.Or(first, v.Rule)
				}
			}
		}
	}
	return first
}

func (r *rule) enhancedSamples(class int) []smtp.EnhancedCode {
	if len(r.enhanced) == 0 {
		return []smtp.EnhancedCode{noEnhanced, {uint16(class), 9, 998}}
	}
	var list []smtp.EnhancedCode
	for i := range r.enhanced {
		if p := &r.enhanced[i]; *p == (enhancedPattern{}) || int(p[0].low) <= class && class <= int(p[0].high) {
			list = append(list, p.sample(class))
		}
	}
	return list
}

// Change is a sample of a built-in rule on which an operator's rule gives another verdict.
type Change struct {
	Sample   string  // as written in the rule file
	Was, Now Verdict // Was: without the operator's rules
}

// Changes returns the samples of built-in rules on which the operator's rules decide.
func (s *Rules) Changes() []Change { return s.changes }

func (s *Rules) changesTo(base *Rules) []Change {
	var list []Change
	for _, r := range base.rules {
		for _, text := range r.doc.Match {
			a, err := Sample(text, r.sampleHosts()[0])
			if err != nil {
				continue
			}
			if was, now := base.Judge(a), s.Judge(a); was != now {
				list = append(list, Change{Sample: text, Was: was, Now: now})
			}
		}
	}
	return list
}
