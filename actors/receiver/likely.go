package receiver

import "strings"

const (
	// badInRow is how many addresses that look invented are asked in a row at most
	// while others of the same verification wait. Guess: guards that forgive after an
	// acceptance count from ten on.
	badInRow = 2

	longWord    = 24 // bytes of a local part; few real ones are longer. Guess.
	manyDigits  = 5  // more than a year. Guess.
	consonants  = 6  // in a row; an initial and a name have up to five, as "jschmidt". Guess.
	fewPerVowel = 8  // letters for each vowel; names have two or three. Guess.
)

// roles are local parts that most domains have (RFC 2142 and habit).
var roles = map[string]bool{"info": true, "contact": true, "office": true, "sales": true, "support": true,
	"admin": true, "postmaster": true, "hello": true, "mail": true, "billing": true, "jobs": true, "press": true,
	"abuse": true, "webmaster": true, "service": true, "team": true, "help": true, "marketing": true, "hr": true}

// looksInvented guesses whether a local part names no mailbox, from its spelling
// alone: nothing is learned about anybody. It decides the order in which addresses
// are asked and nothing else.
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

// mixed is a queue of probes that keeps those that look invented apart. They come
// out in the order in which they came in, but no more than badInRow of these in a
// row while others wait. The zero value is ready.
type mixed struct {
	again     fifo[*probe] // that are looked at again: they come out first
	fine, odd fifo[queued]
	next      uint64 // number of the next that is pushed
	row       int    // how many odd ones came out last
}

type queued struct {
	number uint64
	probe  *probe
}

func (m *mixed) len() int { return m.again.len() + m.fine.len() + m.odd.len() }

func (m *mixed) push(p *probe) {
	if p.suspect != nil {
		m.again.push(p)
		return
	}
	one := queued{m.next, p}
	m.next++
	if looksInvented(p.address.Local) {
		m.odd.push(one)
	} else {
		m.fine.push(one)
	}
}

// pop takes the next one, which there must be.
func (m *mixed) pop() *probe {
	if m.again.len() > 0 {
		return m.again.pop()
	}
	odd := m.fine.len() == 0
	if !odd && m.odd.len() > 0 && m.row < badInRow {
		odd = m.odd.peek().number < m.fine.peek().number
	}
	if odd {
		m.row++
		return m.odd.pop().probe
	}
	m.row = 0
	return m.fine.pop().probe
}
