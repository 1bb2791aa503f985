package domain

import (
	"fmt"
	"math/rand/v2"
)

// The local part of a control probe must belong to nobody and look like a person's. Some receivers refuse names by
// pattern, if no person has such a name, and accept everything else.
const (
	// Nobody has a mailbox of controlBytesMin or more random letters. Large providers allow no names longer than
	// controlBytesMax.
	controlBytesMin = 16
	controlBytesMax = 30
)

var (
	onsets = [...]string{"b", "br", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l", "m", "n", "p", "pr", "r",
		"s", "st", "t", "tr", "v", "z"}
	vowels = [...]string{"a", "e", "i", "o", "u"}
	codas  = [...]string{"", "", "n", "r", "l", "s", "m"}
)

// randomLocals makes the local parts of control probes. No local part repeats, and each has another shape than the one
// before.
type randomLocals struct {
	rand *rand.Rand
	used map[string]struct{}
	turn int
}

func newRandomLocals(seed [32]byte) randomLocals {
	r := rand.New(rand.NewChaCha8(seed))
	return randomLocals{rand: r, used: map[string]struct{}{}, turn: r.IntN(len(shapes))}
}

func (l *randomLocals) next() string {
	shape := shapes[l.turn%len(shapes)]
	l.turn++
	for {
		local := shape(l)
		if _, twice := l.used[local]; !twice && len(local) >= controlBytesMin && len(local) <= controlBytesMax {
			l.used[local] = struct{}{}
			return local
		}
	}
}

// shapes are the forms that people's mailbox names have.
var shapes = [...]func(l *randomLocals) string{
	func(l *randomLocals) string { return l.word(3) + "." + l.word(3) },
	func(l *randomLocals) string { return l.word(1)[:1] + l.word(5) + fmt.Sprint(10+l.rand.IntN(90)) },
	func(l *randomLocals) string { return l.word(5) + fmt.Sprint(1000+l.rand.IntN(9000)) },
	func(l *randomLocals) string { return l.word(3) + "_" + l.word(3) },
}

func (l *randomLocals) word(syllables int) string {
	var w string
	for range syllables {
		w += onsets[l.rand.IntN(len(onsets))] + vowels[l.rand.IntN(len(vowels))] + codas[l.rand.IntN(len(codas))]
	}
	return w
}
