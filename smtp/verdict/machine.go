package verdict

// phrase is what a rule looks for: words separated by one space.
type phrase struct {
	text string
	rule int
}

// machine finds all phrases of all rules in one pass over a text (Aho and Corasick, 1975). Everything between words
// counts as one space, so "user-unknown" is "user unknown"; phrases begin and end where words do. Marks also stand
// between words, but in a machine for phrases that name marks, they are words.
//
// It is a tree with states numbered level by level, so the children of one state are adjacent and follow those of
// the state before: 13 bytes a state, 2 MB for all rules. A full transition table would need one read a byte but
// takes 21 MB, so only the first states, which most bytes lead through, have one.
type machine struct {
	class    [256]uint8
	first    []uint32 // first child, by state, and one more for the end
	label    []uint8  // class that leads to a state
	fallback []uint32 // state of the longest suffix of the input that is also in the tree
	hits     []uint32 // where in outputs the hits of a state are; 0: it has none
	outputs  []output // the first is not used
	starts   uint32   // the state after a space
	rows     []uint32 // of the first tabled states: the next state for each class
	width    uint32   // of a row
}

// tabled bounds the places of all rows: 2,000 states of plain English in 300 KB. Guess.
const tabled = 80_000

// output is the number of a found rule, and the place in outputs of the next one; 0: none.
type output struct{ rule, next uint32 }

// The classes of bytes that always exist; bytes of other scripts in phrases get further classes.
const (
	classDigit = 26
	classSpace = 36 // everything between words
	classHigh  = 37 // bytes above ASCII that are in no phrase
	classes    = 38
)

// branch is a state while the tree is built.
type branch struct {
	child, sibling uint32 // the first of each; 0: none
	hits           uint32 // as in machine
	class          uint8
}

func newMachine(phrases []phrase) machine {
	m := machine{outputs: make([]output, 1, len(phrases)+1)}
	m.classify(phrases)
	tree := make([]branch, 1)
	for _, p := range append(phrases, phrase{text: "*", rule: -1}) { // the last: one space
		state := uint32(0)
		for _, class := range m.classesOf(p.text) {
			child := tree[state].child
			for child != 0 && tree[child].class != class {
				child = tree[child].sibling
			}
			if child == 0 {
				child = uint32(len(tree))
				tree = append(tree, branch{class: class, sibling: tree[state].child})
				tree[state].child = child
			}
			state = child
		}
		if p.rule >= 0 {
			m.outputs = append(m.outputs, output{rule: uint32(p.rule)})
			*m.lastOf(&tree[state].hits) = uint32(len(m.outputs) - 1)
		}
	}
	m.number(tree)
	var rows []uint32
	for state := range min(uint32(len(tree)), tabled/m.width) {
		for class := range m.width {
			rows = append(rows, m.walk(state, uint8(class)))
		}
	}
	m.rows = rows // only when complete, because walk reads rows
	m.starts = m.step(0, classSpace)
	return m
}

// number numbers the states of a tree level by level and finds their fallbacks, which are always on a higher level.
func (m *machine) number(tree []branch) {
	n := len(tree)
	m.first, m.label = make([]uint32, 0, n+1), make([]uint8, n)
	m.fallback, m.hits = make([]uint32, n), make([]uint32, n)
	order := append(make([]uint32, 0, n), 0) // places in the tree, by number
	for state := range uint32(n) {
		m.first = append(m.first, uint32(len(order)))
		for at := tree[order[state]].child; at != 0; at = tree[at].sibling {
			m.label[len(order)] = tree[at].class
			order = append(order, at)
		}
	}
	m.first = append(m.first, uint32(n))
	for state := range uint32(n) {
		m.hits[state] = tree[order[state]].hits
		*m.lastOf(&m.hits[state]) = m.hits[m.fallback[state]]
		for child := m.first[state]; child < m.first[state+1]; child++ {
			if state != 0 {
				m.fallback[child] = m.walk(m.fallback[state], m.label[child])
			}
		}
	}
}

func (m *machine) lastOf(place *uint32) *uint32 {
	for *place != 0 {
		place = &m.outputs[*place].next
	}
	return place
}

// step returns the state after a byte of a class.
func (m *machine) step(state uint32, class uint8) uint32 {
	if at := state * m.width; at < uint32(len(m.rows)) {
		return m.rows[at+uint32(class)]
	}
	return m.walk(state, class)
}

// walk is step without the table.
func (m *machine) walk(state uint32, class uint8) uint32 {
	for {
		for child := m.first[state]; child < m.first[state+1]; child++ {
			if m.label[child] == class {
				return child
			}
		}
		if state == 0 {
			return 0
		}
		if state = m.fallback[state]; state*m.width < uint32(len(m.rows)) {
			return m.rows[state*m.width+uint32(class)]
		}
	}
}

// classify gives each byte a class. Bytes above ASCII and marks that are in a phrase get their own.
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
	m.width = uint32(n)
}

// classesOf returns the classes of a phrase with a space at each end.
func (m *machine) classesOf(text string) []uint8 {
	list := []uint8{classSpace}
	for _, c := range []byte(text) {
		if c == '*' {
			return list
		}
		list = append(list, m.class[c])
	}
	return append(list, classSpace)
}

// eachHit calls found with the number and the end of each phrase in text, which is in lower case.
func (m *machine) eachHit(text string, found func(rule, end int)) {
	state, space := m.starts, true
	for i := 0; i <= len(text); i++ {
		class := uint8(classSpace)
		if i < len(text) {
			class = m.class[text[i]]
		}
		if class == classSpace && space {
			continue
		}
		space = class == classSpace
		state = m.step(state, class)
		for at := m.hits[state]; at != 0; at = m.outputs[at].next {
			found(int(m.outputs[at].rule), i)
		}
	}
}

// scan adds to f the rules that have a phrase in text, which is in lower case.
func (m *machine) scan(text string, f *found) {
	m.eachHit(text, func(rule, _ int) { f.set(rule) })
}
