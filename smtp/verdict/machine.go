package verdict

import "slices"

// phrase is what a rule looks for: words with one space between them.
type phrase struct {
	text string
	rule int
}

// machine finds all phrases of all rules in one pass over a text (Aho and
// Corasick, 1975). Whatever stands between words counts as one space, so that
// "user-unknown" is "user unknown"; phrases begin and end where words do. Marks stand
// between words too, but in a machine for phrases that name them they are words.
type machine struct {
	class  [256]uint8
	width  int      // of a row of next: the classes, and what is found on arrival
	next   []uint32 // row + class -> row, with the bit hit when something is
	starts uint32   // the row behind a space
	sets   []found  // sets[0] is empty
}

// hit marks a row on whose arrival something is found, so that most steps read the
// table once.
const hit = 1 << 31

// The classes of bytes that are always there; the bytes of other scripts that
// phrases use have theirs behind them.
const (
	classDigit = 26
	classSpace = 36 // what stands between words
	classHigh  = 37 // bytes above ASCII that no phrase has
	classes    = 38
)

func newMachine(phrases []phrase) machine {
	m := machine{}
	m.classify(phrases)
	states := 3 // the first, and one for each sign of the last phrase
	for _, p := range phrases {
		states += len(p.text) + 2
	}
	m.next = make([]uint32, 0, states*m.width)
	ends := make([][]int, 0, states) // rules by state, before fallbacks
	grow := func() int {
		m.next = m.next[:len(m.next)+m.width]
		ends = append(ends, nil)
		return len(ends) - 1
	}
	grow()
	for _, p := range append(phrases, phrase{text: "*", rule: -1}) { // the last: one space
		state := 0
		for _, class := range m.classesOf(p.text) {
			at := state*m.width + class
			if m.next[at] == 0 {
				child := grow()
				m.next[at] = uint32(child)
			}
			state = int(m.next[at])
		}
		if p.rule >= 0 {
			ends[state] = append(ends[state], p.rule)
		}
	}
	m.next = slices.Clip(slices.Clone(m.next)) // phrases share states
	m.close(ends)
	m.starts = m.next[classSpace]
	return m
}

// classify gives each byte its class, and each byte above ASCII and each mark that a
// phrase has one of its own.
func (m *machine) classify(phrases []phrase) {
	for c := range m.class {
		switch b := byte(c); {
		case b >= 'a' && b <= 'z':
			m.class[c] = b - 'a'
		case isDigit(b):
			m.class[c] = classDigit + b - '0'
		case b >= 0x80:
			m.class[c] = classHigh
		default:
			m.class[c] = classSpace
		}
	}
	n := classes
	for _, p := range phrases {
		for _, c := range []byte(p.text) {
			if m.class[c] == classHigh || m.class[c] == classSpace && isMark(c) {
				m.class[c] = uint8(n)
				n++
			}
		}
	}
	m.width = n + 1
}

// classesOf gives the classes of a phrase with the spaces at its ends.
func (m *machine) classesOf(text string) []int {
	list := []int{classSpace}
	for _, c := range []byte(text) {
		if c == '*' {
			return list
		}
		list = append(list, int(m.class[c]))
	}
	return append(list, classSpace)
}

// close turns the tree into an automaton: where the tree has no way on, the
// longest ending of what was read that has one is followed. Then it replaces the
// numbers of states by the places of their rows.
func (m *machine) close(ends [][]int) {
	fallback := make([]int, len(ends))
	hits := make([]uint32, len(ends)) // state -> index in m.sets
	m.sets = []found{{}}
	known := map[found]uint32{{}: 0}
	queue := []int{0}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		set := m.sets[hits[fallback[state]]]
		for _, rule := range ends[state] {
			set.set(rule)
		}
		if _, seen := known[set]; !seen {
			known[set] = uint32(len(m.sets))
			m.sets = append(m.sets, set)
		}
		hits[state] = known[set]
		for class := range m.width - 1 {
			at := state*m.width + class
			child := int(m.next[at])
			way := int(m.next[fallback[state]*m.width+class])
			switch {
			case child == 0 && state != 0:
				m.next[at] = uint32(way)
			case child != 0:
				if state != 0 {
					fallback[child] = way
				}
				queue = append(queue, child)
			}
		}
	}
	for state := range ends {
		row := m.next[state*m.width : (state+1)*m.width]
		for class := range row {
			if to := row[class]; hits[to] != 0 {
				row[class] = to*uint32(m.width) | hit
			} else {
				row[class] = to * uint32(m.width)
			}
		}
		row[m.width-1] = hits[state]
	}
}

// scan adds to f the rules that have a phrase in text, which is in lower case.
func (m *machine) scan(text string, f *found) {
	row, last := m.starts, uint32(m.width-1)
	space := true
	for i := 0; i <= len(text); i++ {
		class := uint32(classSpace)
		if i < len(text) {
			class = uint32(m.class[text[i]])
		}
		if class == classSpace && space {
			continue
		}
		space = class == classSpace
		if row = m.next[row+class]; row&hit != 0 {
			row &^= hit
			for w, set := range &m.sets[m.next[row+last]] {
				f[w] |= set
			}
		}
	}
}
