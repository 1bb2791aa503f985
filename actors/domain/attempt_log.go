package domain

import (
	"time"
	"unique"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// saidMax is how many different replies each planner may keep. Most replies of a domain are the same. At
	// evidence.TextMax bytes each, saidMax replies take 2.5 MB.
	saidMax = 2000

	// textsMax is how many bytes all planners of a node may keep beyond saidMax, for receivers whose replies never repeat.
	// textsMax has room for 26,000 of the longest texts.
	textsMax = 32 << 20

	// saidBytes is the approximate size of one reply without its text.
	saidBytes = 200

	// pageMost is how many notes or attempts are allocated at once: 5 KB of attempts.
	pageMost = 31
)

// note is one attempt at an address: the time and the reply.
type note struct {
	at    int64 // time in milliseconds, as evidence.Millis has it
	said  *said
	older *note // the attempt before; nil: this is the first
}

// said is an attempt without its time. Many addresses may share one said.
type said struct {
	attempt evidence.Attempt
	refs    int
	loose   bool // its text counts for the node: see Load.keepBytes
}

// attemptLog keeps the attempts at waiting addresses in little memory. Attempts that differ only in their time are kept
// once. If there are more than saidMax different ones, and textsMax bytes of the node are used, it leaves attempts out
// of a case and counts them there: first the older attempts at an address, then the newest. attemptLog never keeps a
// part of an attempt, because rules tried on the attempt later would judge it differently. The exception is an
// acceptance: the outcome depends on it, so it is kept without its text, which no rule reads.
type attemptLog struct {
	load  *Load
	said  map[evidence.Attempt]*said
	notes pages[note]
	taken pages[evidence.Attempt]
}

// pages allocates values in blocks, because addresses begin and end together.
type pages[T any] struct {
	left []T
	size int
}

func (p *pages[T]) makeValues(n int) []T {
	if len(p.left) < n {
		p.size = min(2*p.size+1, pageMost)
		p.left = make([]T, max(n, p.size))
	}
	page := p.left[:n:n]
	p.left = p.left[n:]
	return page
}

func newAttemptLog(load *Load) *attemptLog {
	return &attemptLog{load: load, said: map[evidence.Attempt]*said{}}
}

// takeCase removes the kept case of an address and returns it.
func (r *attemptLog) takeCase(p *pending) evidence.Case {
	c := p.readCase(r.taken.makeValues(int(p.kept)))
	for n := p.newest; n != nil; n = n.older {
		r.releaseSaid(n.said)
	}
	p.newest, p.kept, p.omitted = nil, 0, 0
	return c
}

// readCase returns the kept case of an address. readCase fills and returns the given attempts.
func (p *pending) readCase(attempts []evidence.Attempt) evidence.Case {
	i := len(attempts)
	for n := p.newest; n != nil; n = n.older {
		i--
		attempts[i] = n.said.attempt
		attempts[i].At = evidence.TimeOf(n.at)
	}
	return evidence.Case{Omitted: int(p.omitted), Attempts: attempts}
}

// keepCase keeps the case of an address that has no kept case.
func (r *attemptLog) keepCase(p *pending, c evidence.Case) {
	omitted := c.Omitted
	for i, a := range c.Attempts {
		s := r.fileSaid(a, i == len(c.Attempts)-1)
		if s == nil {
			omitted++
			continue
		}
		n := &r.notes.makeValues(1)[0]
		*n = note{at: evidence.Millis(a.At), said: s, older: p.newest}
		p.newest = n
		p.kept++
	}
	p.omitted = uint16(min(omitted, 1<<16-1))
}

// newestTime is when the newest attempt at an address was answered.
func (p *pending) newestTime() time.Time {
	if p.newest == nil {
		return time.Time{}
	}
	return evidence.TimeOf(p.newest.at)
}

// fileSaid returns the kept form of an attempt; nil: there is no room for the attempt.
func (r *attemptLog) fileSaid(a evidence.Attempt, newest bool) *said {
	a.At = time.Time{}
	if s := r.said[a]; s != nil {
		s.refs++
		return s
	}
	s := &said{refs: 1}
	if len(r.said) >= saidMax {
		bare := a
		bare.Text, bare.Enhanced = "", smtp.EnhancedCode{}
		switch {
		case newest && r.load.keepBytes(saidBytes+len(a.Text)):
			s.loose = true
		case newest && a.Outcome == smtp.Valid && bare != a:
			return r.fileSaid(bare, newest)
		case newest && a.Outcome == smtp.Valid: // few: at most one for each host and source
		default:
			return nil
		}
	}
	a.Host, a.Source = unique.Make(a.Host).Value(), unique.Make(a.Source).Value()
	a.Rule = unique.Make(a.Rule).Value()
	s.attempt = a
	r.said[a] = s
	return s
}

// releaseSaid notes that an address no longer uses a kept attempt.
func (r *attemptLog) releaseSaid(s *said) {
	if s.refs--; s.refs == 0 {
		r.forgetText(s)
		delete(r.said, s.attempt)
	}
}

// forgetText gives back the bytes that a text counts for the node.
func (r *attemptLog) forgetText(s *said) {
	if s.loose {
		r.load.forgetBytes(saidBytes + len(s.attempt.Text))
		s.loose = false
	}
}

// close gives back all bytes that the log counts for the node, because the work is over.
func (r *attemptLog) close() {
	for _, s := range r.said {
		r.forgetText(s)
	}
}
