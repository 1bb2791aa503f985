package domain

import (
	"regexp"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// TestControlProbesLookLikePeople: each of another shape than the one before, never
// the same twice, too long for a mailbox that somebody has by chance.
func TestControlProbesLookLikePeople(t *testing.T) {
	looks := []*regexp.Regexp{
		regexp.MustCompile(`^[a-z]+\.[a-z]+$`), regexp.MustCompile(`^[a-z]+[1-9][0-9]$`),
		regexp.MustCompile(`^[a-z]+[1-9][0-9]{3}$`), regexp.MustCompile(`^[a-z]+_[a-z]+$`),
	}
	n := newRandomLocals(testSeed)
	seen, shapes, before := map[string]bool{}, map[int]int{}, -1
	for range 2000 {
		local := n.next()
		shape := -1
		for i, look := range looks {
			if look.MatchString(local) {
				shape = i
			}
		}
		effort.FatalIf(t, shape < 0 || shape == before || seen[local] || len(local) < controlBytesMin ||
			len(local) > controlBytesMax, "%q: shape %d after %d, seen before: %v", local, shape, before, seen[local])
		seen[local], before = true, shape
		shapes[shape]++
		_, err := smtp.ParseAddress(local + "@example.test")
		effort.FatalIf(t, err != nil, "%q is not well-formed: %v", local, err)
	}
	effort.Is(t, len(shapes), len(looks), "shapes", shapes, "all")
	again, other := newRandomLocals(testSeed), newRandomLocals([32]byte{9})
	if first := again.next(); !seen[first] || seen[other.next()] {
		t.Error("the same seed must give the same names, and another one others")
	}
}
