package domain

import (
	"slices"
	"time"
	"unique"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// saidMax is how many different answers a planner may always keep: most answers of one domain are the same. With
	// texts of evidence.TextMax bytes they take 2.5 MB.
	saidMax = 2000

	// textsMax bounds, in bytes, what all planners of a node keep beyond that, for receivers that never repeat an answer:
	// 26,000 of the longest texts.
	textsMax = 32 << 20

	// saidBytes is about the size of one answer without its text.
	saidBytes = 200

	// sourcesMax bounds the source addresses that a planner tells apart; greylisting at further ones isn't noted. A
	// node has a few, a cluster some tens.
	sourcesMax = 1000

	// attemptsPage is how many attempts are made at once: 5 KB.
	attemptsPage = 31
)

// note is one attempt at an address: when, and the answer.
type note struct {
	at    int64  // as wire.Millis
	said  uint32 // index in attemptLog.said
	older uint32 // note of the attempt before; 0: there is none
}

// said is an attempt without its time, which many addresses may share.
type said struct {
	attempt evidence.Attempt
	refs    uint32
	loose   bool // counts as text of the node: see Load.keepBytes
}

// attemptLog keeps the attempts at the addresses that wait, in little memory. Attempts that differ in nothing but their
// time are kept once. Beyond saidMax different ones and textsMax bytes in the node, attempts are left out of their
// case, which counts them: first older ones, and only then an address's newest. No attempt is kept in part, since rules
// that are tried on it later would judge it differently. An acceptance is the exception: the outcome depends on it, so
// it is kept without its text, which no rule reads.
type attemptLog struct {
	load    *Load
	notes   []note // the first is not used
	free    uint32 // first of the free notes, chained by older
	said    []said // the first is not used
	unused  []uint32
	places  map[evidence.Attempt]uint32 // of said
	sources []string                    // by number, from 1

	page     []evidence.Attempt // for cases that are taken
	pageSize int
}

func newAttemptLog(load *Load) *attemptLog {
	return &attemptLog{load: load, notes: make([]note, 1), said: make([]said, 1), places: map[evidence.Attempt]uint32{}}
}

// takeCase removes the kept case of an address and returns it.
func (r *attemptLog) takeCase(p *pending) evidence.Case {
	c := r.readCase(*p, r.makeAttempts(int(p.kept)))
	for range p.kept {
		at := p.newest
		n := &r.notes[at]
		r.releaseSaid(n.said)
		p.newest, n.older, r.free = n.older, r.free, at
	}
	p.newest, p.kept, p.omitted = 0, 0, 0
	return c
}

// readCase fills attempts with the kept ones of an address.
func (r *attemptLog) readCase(p pending, attempts []evidence.Attempt) evidence.Case {
	at := p.newest
	for i := len(attempts) - 1; i >= 0; i-- {
		n := r.notes[at]
		attempts[i] = r.said[n.said].attempt
		attempts[i].At = evidence.TimeOf(n.at)
		at = n.older
	}
	return evidence.Case{Omitted: int(p.omitted), Attempts: attempts}
}

// makeAttempts makes room for n attempts in a page that the next cases share: cases that are taken together are settled
// together.
func (r *attemptLog) makeAttempts(n int) []evidence.Attempt {
	if len(r.page) < n {
		r.pageSize = min(2*r.pageSize+1, attemptsPage)
		r.page = make([]evidence.Attempt, max(n, r.pageSize))
	}
	page := r.page[:n:n]
	r.page = r.page[n:]
	return page
}

// keepCase files the attempts of a case under an address that has none.
func (r *attemptLog) keepCase(p *pending, c evidence.Case) {
	omitted := c.Omitted
	newer := uint32(0)
	for i := len(c.Attempts) - 1; i >= 0; i-- { // the newest is kept first
		place, ok := r.fileSaid(c.Attempts[i], i == len(c.Attempts)-1)
		if !ok {
			omitted++
			continue
		}
		number := r.freeNote()
		r.notes[number] = note{at: evidence.Millis(c.Attempts[i].At), said: place}
		if newer == 0 {
			p.newest = number
		} else {
			r.notes[newer].older = number
		}
		newer = number
		p.kept++
	}
	p.omitted = uint16(min(omitted, 1<<16-1))
}

// newestTime is when the newest attempt at an address was answered.
func (r *attemptLog) newestTime(p pending) time.Time {
	if p.newest == 0 {
		return time.Time{}
	}
	return evidence.TimeOf(r.notes[p.newest].at)
}

func (r *attemptLog) freeNote() uint32 {
	if number := r.free; number != 0 {
		r.free = r.notes[number].older
		return number
	}
	r.notes = append(r.notes, note{})
	return uint32(len(r.notes) - 1)
}

// fileSaid returns the number under which an answer is kept; false: there is no room for it.
func (r *attemptLog) fileSaid(a evidence.Attempt, newest bool) (uint32, bool) {
	a.At = time.Time{}
	if place, known := r.places[a]; known {
		r.said[place].refs++
		return place, true
	}
	s := said{refs: 1}
	if r.countSaid() >= saidMax {
		bare := a
		bare.Text, bare.Enhanced = "", smtp.EnhancedCode{}
		switch {
		case newest && r.load.keepBytes(saidBytes+len(a.Text)):
			s.loose = true
		case newest && a.Outcome == smtp.Valid && bare != a:
			return r.fileSaid(bare, newest)
		case newest && a.Outcome == smtp.Valid: // few: hosts times sources
		default:
			return 0, false
		}
	}
	a.Host, a.Source = unique.Make(a.Host).Value(), unique.Make(a.Source).Value()
	a.Rule = unique.Make(a.Rule).Value()
	s.attempt = a
	var place uint32
	if n := len(r.unused); n > 0 {
		place = r.unused[n-1]
		r.unused = r.unused[:n-1]
		r.said[place] = s
	} else {
		place = uint32(len(r.said))
		r.said = append(r.said, s)
	}
	r.places[a] = place
	return place, true
}

func (r *attemptLog) countSaid() int { return len(r.said) - 1 - len(r.unused) }

// releaseSaid drops one use of a kept answer.
func (r *attemptLog) releaseSaid(place uint32) {
	s := &r.said[place]
	if s.refs--; s.refs > 0 {
		return
	}
	if s.loose {
		r.load.forgetBytes(saidBytes + len(s.attempt.Text))
	}
	delete(r.places, s.attempt)
	*s = said{}
	r.unused = append(r.unused, place)
}

// close returns the bytes counted for the node: the work is over.
func (r *attemptLog) close() {
	for i := range r.said {
		if r.said[i].loose {
			r.load.forgetBytes(saidBytes + len(r.said[i].attempt.Text))
			r.said[i].loose = false
		}
	}
}

// sourceNumber returns the number of a source address; 0: there are too many.
func (r *attemptLog) sourceNumber(address string) uint16 {
	if i := slices.Index(r.sources, address); i >= 0 {
		return uint16(i + 1)
	}
	if len(r.sources) == sourcesMax {
		return 0
	}
	r.sources = append(r.sources, unique.Make(address).Value())
	return uint16(len(r.sources))
}
