package verdict

import (
	"slices"
	"strings"

	"rollcall/smtp"
)

// scopes finds the rules for a host.
type scopes struct {
	everywhere found             // the rules for every host
	suffixes   map[string]*found // the rules for hosts under a suffix, with those for every host
	labels     int               // number in the longest suffix

	// filter has a bit for each hash of a suffix with a rule for 250. Most answers are 250 from hosts without such a rule.
	filter uint64
}

func newScopes(rules []*rule) scopes {
	s := scopes{suffixes: map[string]*found{}}
	for i, r := range rules {
		if len(r.scope) == 0 {
			s.everywhere.set(i)
		}
		for _, suffix := range r.scope {
			s.suffixes[suffix] = &found{}
			s.labels = max(s.labels, strings.Count(suffix, ".")+1)
		}
		if !r.stages.has(smtp.StageRcpt) || !r.codes.has(250) {
			continue
		}
		for _, suffix := range r.scope {
			s.filter |= filterBit(suffix)
		}
		if len(r.scope) == 0 && (r.file.own || len(r.phrases) > 0) {
			s.filter = ^uint64(0)
		}
	}
	for suffix, mask := range s.suffixes {
		for i, r := range rules {
			if len(r.scope) == 0 || slices.ContainsFunc(r.scope, func(wide string) bool { return within(suffix, wide) }) {
				mask.set(i)
			}
		}
	}
	return s
}

// filterBytes is how many bytes at the end of a name filterBit reads.
const filterBytes = 6

// filterBit hashes the end of a name; a shorter name sets every bit.
func filterBit(name string) uint64 {
	if len(name) < filterBytes {
		return ^uint64(0)
	}
	var end uint64
	for _, c := range []byte(name[len(name)-filterBytes:]) {
		end = end<<8 | uint64(c)
	}
	return 1 << (end * 0x9e3779b97f4a7c15 >> 58) // Knuth's multiplicative hash
}

// look reports whether a rule may apply to a 250 of the host.
func (s *scopes) look(host string) bool {
	return s.filter != 0 && filterBit(host)&s.filter != 0
}

// labelsMax bounds the labels of a suffix: more than any mail operator uses.
const labelsMax = 8

// of returns the rules for a host: those of its longest suffix.
func (s *scopes) of(host string) *found {
	var starts [labelsMax]int
	n := 0
	for i := len(host) - 1; i >= 0 && n < s.labels; i-- {
		if i == 0 || host[i-1] == '.' {
			starts[n] = i
			n++
		}
	}
	for ; n >= 2; n-- { // a suffix has at least two labels
		if mask, known := s.suffixes[host[starts[n-1]:]]; known {
			return mask
		}
	}
	return &s.everywhere
}
