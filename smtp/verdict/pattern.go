package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rollcall/smtp"
)

// The patterns of a rule: its stages, codes and enhanced codes.

type stageSet uint16

func (s stageSet) has(stage smtp.Stage) bool { return s>>stage&1 == 1 }

const (
	anywhere stageSet = 1<<numStages - 1
	atRcpt   stageSet = 1 << smtp.StageRcpt

	numStages = int(smtp.StageRset) + 1
)

// parseStages reads ["mail", "rcpt"] or ["any"].
func parseStages(names []string) (stageSet, error) {
	var set stageSet
	for _, name := range names {
		stage, known := smtp.Named(replying, name)
		switch {
		case name == "any":
			set |= anywhere
		case !known:
			return 0, fmt.Errorf("%q is no stage: write greeting, hello, tls, mail, rcpt, rset or any", name)
		default:
			set |= 1 << stage
		}
	}
	if set == 0 {
		return 0, fmt.Errorf(`name the stages, such as ["rcpt"] or ["any"]`)
	}
	return set, nil
}

// replying are the stages at which replies can come.
var replying = []smtp.Stage{smtp.StageGreeting, smtp.StageHello, smtp.StageTLS, smtp.StageMail, smtp.StageRcpt,
	smtp.StageRset}

const (
	codeMin, codeMax = 200, 599 // range of reply codes (RFC 5321 §4.2)
	numCodes         = codeMax - codeMin + 1
)

// codeSet has a bit for each code from codeMin on.
type codeSet [numCodes/64 + 1]uint64

func (s *codeSet) set(code int)      { s[(code-codeMin)/64] |= 1 << ((code - codeMin) % 64) }
func (s *codeSet) has(code int) bool { return s[(code-codeMin)/64]>>((code-codeMin)%64)&1 == 1 }

func (s *codeSet) covers(other *codeSet) bool {
	for i := range s {
		if other[i]&^s[i] != 0 {
			return false
		}
	}
	return true
}

// any reports whether s has a code of a class, such as 5.
func (s *codeSet) any(class int) bool {
	for code := class * 100; code < class*100+100; code++ {
		if s.has(code) {
			return true
		}
	}
	return false
}

// parseCodes reads ["550", "55x", "4xx"]; an empty list means every refusal.
func parseCodes(patterns []string) (codeSet, error) {
	var set codeSet
	if len(patterns) == 0 {
		patterns = []string{"4xx", "5xx"}
	}
	for _, p := range patterns {
		if len(p) != 3 || !strings.Contains("245", p[:1]) || strings.Trim(p[1:], "0123456789x") != "" {
			return set, fmt.Errorf("%q is no code: write it like 550, 55x or 5xx; the first digit is 2, 4 or 5", p)
		}
		for code := codeMin; code <= codeMax; code++ {
			digits, same := strconv.Itoa(code), true
			for i := range p {
				same = same && (p[i] == 'x' || p[i] == digits[i])
			}
			if same {
				set.set(code)
			}
		}
	}
	return set, nil
}

// enhancedPattern has a range of numbers for each part of an enhanced code. The zero value matches replies without one.
type enhancedPattern [3]struct{ low, high uint16 }

const anyNumber = 0xffff // the largest number that Attempt.Enhanced can hold

var noEnhanced smtp.EnhancedCode

func (p *enhancedPattern) matches(e smtp.EnhancedCode) bool {
	if e == noEnhanced || *p == (enhancedPattern{}) {
		return e == noEnhanced && *p == (enhancedPattern{})
	}
	for i, n := range e {
		if n < p[i].low || n > p[i].high {
			return false
		}
	}
	return true
}

// covers reports whether p matches everything that other matches.
func (p enhancedPattern) covers(other enhancedPattern) bool {
	if p == (enhancedPattern{}) || other == (enhancedPattern{}) {
		return p == other
	}
	for i := range p {
		if other[i].low < p[i].low || other[i].high > p[i].high {
			return false
		}
	}
	return true
}

// sample returns a code that p matches and few other patterns do.
func (p *enhancedPattern) sample(class int) smtp.EnhancedCode {
	if *p == (enhancedPattern{}) {
		return noEnhanced
	}
	e := smtp.EnhancedCode{uint16(class), p[1].high, p[2].high}
	if p[1].high == anyNumber { // RFC 3463 §3 has subjects up to 7
		e[1] = 9
	}
	if p[2].high == anyNumber {
		e[2] = 998
	}
	return e
}

// parseEnhanced reads ["5.1.1", "x.7.1", "5.7.x", "5.7.606-649", "none"].
func parseEnhanced(patterns []string) ([]enhancedPattern, error) {
	var list []enhancedPattern
	for _, text := range patterns {
		if text == "none" {
			list = append(list, enhancedPattern{})
			continue
		}
		var p enhancedPattern
		parts := strings.Split(text, ".")
		good := len(parts) == 3 && (parts[0] == "4" || parts[0] == "5" || parts[0] == "x")
		for i := 0; good && i < len(parts); i++ {
			low, high, ranged := strings.Cut(parts[i], "-")
			if !ranged {
				high = low
			}
			if low == "x" && !ranged {
				p[i].low, p[i].high = 0, anyNumber
				continue
			}
			n, err1 := strconv.ParseUint(low, 10, 16)
			m, err2 := strconv.ParseUint(high, 10, 16)
			p[i].low, p[i].high = uint16(n), uint16(m)
			good = err1 == nil && err2 == nil && n <= m && m <= 999 // RFC 3463 §2: three digits
		}
		if !good {
			return nil, fmt.Errorf("%q is no enhanced code of a refusal: write it like 5.1.1, x.7.1, 5.7.x, "+
				"5.7.606-649 or none", text)
		}
		list = append(list, p)
	}
	return list, nil
}

// allCovered reports whether one of the wide list covers each of the narrow one; an empty list means anything.
func allCovered[T any](wide, narrow []T, covers func(wide, narrow T) bool) bool {
	return len(wide) == 0 || len(narrow) > 0 && !slices.ContainsFunc(narrow, func(n T) bool {
		return !slices.ContainsFunc(wide, func(w T) bool { return covers(w, n) })
	})
}
