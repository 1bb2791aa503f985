package fairqueue

import "strings"

const (
	// SuspectsInRow is how many suspect items in a row are given out while normal ones of the same flow wait: harvest
	// guards that an acceptance resets count to ten or more.
	SuspectsInRow = 2

	// RetriesInRow is the same of those that are due again: if they fail each time, others still have their turn.
	RetriesInRow = 2

	longWord    = 24 // bytes of a local part; few real ones are longer. Guess.
	manyDigits  = 5  // more than a year. Guess.
	consonants  = 6  // in a row; an initial and a name have up to five, as "jschmidt". Guess.
	fewPerVowel = 8  // letters for each vowel; names have two or three. Guess.
)

// roles are local parts that most domains have (RFC 2142 and habit).
var roles = map[string]bool{"info": true, "contact": true, "office": true, "sales": true, "support": true,
	"admin": true, "postmaster": true, "hello": true, "mail": true, "billing": true, "jobs": true, "press": true,
	"abuse": true, "webmaster": true, "service": true, "team": true, "help": true, "marketing": true, "hr": true}

// Class says how an item is treated among the others of its flow.
type Class uint8

const (
	// Normal items come out in the order in which they came in.
	Normal Class = iota
	// Suspect items do too, but few of them in a row while normal ones wait.
	Suspect
	// First items come out before all others of their flow.
	First
	// Retry items come next, before those that were never given out, RetriesInRow of them.
	Retry
)

// ClassOf returns Suspect for a local part that looks invented. It keeps nothing, and decides only the order in which
// addresses are asked.
func ClassOf(local string) Class {
	if looksInvented(local) {
		return Suspect
	}
	return Normal
}

func looksInvented(local string) bool {
	local = strings.ToLower(local)
	if roles[local] {
		return false
	}
	digits, letters, vowels, row, longest := 0, 0, 0, 0, 0
	for i := 0; i < len(local); i++ {
		switch c := local[i]; {
		case c >= '0' && c <= '9':
			digits++
			row = 0
		case strings.IndexByte("aeiouy", c) >= 0:
			letters++
			vowels++
			row = 0
		case c >= 'a' && c <= 'z':
			letters++
			row++
			longest = max(longest, row)
		case c >= 0x80: // of another alphabet, about which nothing is said
			return false
		default:
			row = 0
		}
	}
	return len(local) > longWord || digits >= manyDigits || digits > letters+1 || longest >= consonants ||
		letters > fewPerVowel*max(1, vowels)
}

// mixed is a queue of items by class: First items come out first, then Retry ones, RetriesInRow of them while others
// wait; these in order of arrival, but no more than SuspectsInRow suspect ones in a row while normal ones wait. The
// zero value is ready.
type mixed[T any] struct {
	first, retry, normal, suspect FIFO[numbered[T]]
	next                          uint64 // number of the next item that is pushed
	row                           int    // how many suspect ones came out last
	retries                       int    // and how many of Retry
}

type numbered[T any] struct {
	number uint64
	item   T
}

func (m *mixed[T]) len() int { return m.first.Len() + m.retry.Len() + m.normal.Len() + m.suspect.Len() }

func (m *mixed[T]) push(item T, class Class) {
	one := numbered[T]{m.next, item}
	m.next++
	switch class {
	case First:
		m.first.Push(one)
	case Retry:
		m.retry.Push(one)
	case Suspect:
		m.suspect.Push(one)
	default:
		m.normal.Push(one)
	}
}

// pop takes the next item, which there must be.
func (m *mixed[T]) pop() T {
	if m.first.Len() > 0 {
		return m.first.Pop().item
	}
	if others := m.normal.Len() + m.suspect.Len(); m.retry.Len() > 0 && (others == 0 || m.retries < RetriesInRow) {
		m.retries++
		return m.retry.Pop().item
	}
	m.retries = 0
	suspect := m.normal.Len() == 0
	if !suspect && m.suspect.Len() > 0 && m.row < SuspectsInRow {
		suspect = m.suspect.Peek().number < m.normal.Peek().number
	}
	if suspect {
		m.row++
		return m.suspect.Pop().item
	}
	m.row = 0
	return m.normal.Pop().item
}

// remove takes out the items that are to go and returns how many these were.
func (m *mixed[T]) remove(gone func(item T) bool) (removed int) {
	for _, part := range [...]*FIFO[numbered[T]]{&m.first, &m.retry, &m.normal, &m.suspect} {
		for range part.Len() {
			if one := part.Pop(); gone(one.item) {
				removed++
			} else {
				part.Push(one)
			}
		}
	}
	return removed
}
