package fairqueue

import "strings"

const (
	// SuspectsInRow is how many suspect items in a row are given out while normal items of the same flow wait. An
	// acceptance resets harvest guards that count refusals in a row, and these count to ten or more.
	SuspectsInRow = 2

	// RetriesInRow is the same for due retries. If retries fail each time, other items still get their turn.
	RetriesInRow = 2

	longWord    = 24 // bytes of a local part; few real ones are longer. Guess.
	manyDigits  = 5  // digits; a year has four. Guess.
	consonants  = 6  // consonants in a row; an initial and a name have up to five: "jschmidt". Guess.
	fewPerVowel = 8  // letters for each vowel; names have two or three. Guess.
)

// roles are local parts that most domains have, by RFC 2142 or by custom.
var roles = map[string]bool{"info": true, "contact": true, "office": true, "sales": true, "support": true,
	"admin": true, "postmaster": true, "hello": true, "mail": true, "billing": true, "jobs": true, "press": true,
	"abuse": true, "webmaster": true, "service": true, "team": true, "help": true, "marketing": true, "hr": true}

// Class says how an item is treated among the items of its flow.
type Class uint8

const (
	// Normal items come out in order of arrival.
	Normal Class = iota
	// Suspect items come out in order of arrival too, but only few in a row while normal items wait.
	Suspect
	// First items come out before all others of their flow.
	First
	// Retry items come next, at most RetriesInRow in a row, and before items that were never given out.
	Retry

	classes = iota
)

// ClassOf returns Suspect for a local part that looks invented. ClassOf decides only the order in which addresses are
// asked.
func ClassOf(local string) Class {
	local = strings.ToLower(local)
	if roles[local] {
		return Normal
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
		case c >= 0x80: // a letter of another alphabet, where we can't tell what looks invented
			return Normal
		default:
			row = 0
		}
	}
	if len(local) > longWord || digits >= manyDigits || digits > letters+1 || longest >= consonants ||
		letters > fewPerVowel*max(1, vowels) {
		return Suspect
	}
	return Normal
}

// mixed is a queue of items by class. First items come out first, then Retry items, then normal and suspect items in
// order of arrival. While other items wait, at most RetriesInRow retries come out in a row. While normal items wait, at
// most SuspectsInRow suspect items come out in a row. The zero value is ready.
type mixed[T any] struct {
	of      [classes]FIFO[numbered[T]]
	next    uint64 // number of the next pushed item
	row     int    // suspect items that came out last in a row
	retries int    // Retry items that came out last in a row
}

type numbered[T any] struct {
	number uint64
	item   T
}

func (m *mixed[T]) len() (n int) {
	for i := range m.of {
		n += m.of[i].Len()
	}
	return n
}

func (m *mixed[T]) push(item T, class Class) {
	m.of[class].Push(numbered[T]{m.next, item})
	m.next++
}

func (m *mixed[T]) pop() T {
	first, retry, normal, suspect := &m.of[First], &m.of[Retry], &m.of[Normal], &m.of[Suspect]
	if first.Len() > 0 {
		return first.Pop().item
	}
	if retry.Len() > 0 && (normal.Len()+suspect.Len() == 0 || m.retries < RetriesInRow) {
		m.retries++
		return retry.Pop().item
	}
	m.retries = 0
	if normal.Len() == 0 || suspect.Len() > 0 && m.row < SuspectsInRow && suspect.Peek().number < normal.Peek().number {
		m.row++
		return suspect.Pop().item
	}
	m.row = 0
	return normal.Pop().item
}

// remove removes the items for which gone returns true, and returns how many there were.
func (m *mixed[T]) remove(gone func(item T) bool) (removed int) {
	for i := range m.of {
		part := &m.of[i]
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
