package egress

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"rollcall/smtp"
)

const (
	// A source is suspended if, within an hour, at least manyReceivers refused it, and at least one in oneInMany of all
	// receivers that it spoke to. Three block lists rarely err at once.
	manyReceivers = 3
	oneInMany     = 10

	// lastReceivers and oneInLast are these numbers for the last usable source of a node. Without that source nothing
	// would be asked, and each receiver that refuses the source is paused anyway. So the source goes on while half of the
	// receivers accept it.
	lastReceivers = 10
	oneInLast     = 2

	// sourceSpan is how long a refusal counts.
	sourceSpan = time.Hour

	// suspendFirst is the length of a first suspension. Each suspension that follows another is twice as long, up to
	// suspendMost. Block lists take hours to forget, and a wrong decision of ours should not cost a day.
	suspendFirst = time.Hour
	suspendMost  = 24 * time.Hour

	// trialFor is how long one receiver may take to try a suspended source, before another one tries it. A session may
	// wait 5 min for one reply (RFC 5321 §4.5.3.2), and needs two here.
	trialFor = 10 * time.Minute

	// contactsMax bounds the receivers remembered for a source: 200 bytes each, 4 MB. Beyond contactsMax the receiver
	// whose contact is oldest is forgotten.
	contactsMax = 20_000
)

type health struct {
	contacts *simplelru.LRU[string, *contact] // contacts by receiver key

	suspendedUntil time.Time
	suspensions    int         // suspensions in a row
	reason         smtp.Reason // reason of the newest suspension

	open     bool   // the source was suspended, and no receiver has accepted it since
	trial    string // the receiver that tries the source now
	trialEnd time.Time
}

// contact holds when a receiver was last contacted, and when it refused the source; zero: the receiver accepts the
// source.
type contact struct{ spoken, blocked time.Time }

// NoteDialled notes that a receiver is dialled from a source.
func (p *Pool) NoteDialled(i int, key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[i].note(key, now)
}

// note notes that a receiver is contacted, and returns its contact.
func (h *health) note(key string, now time.Time) *contact {
	c, known := h.contacts.Get(key)
	if !known {
		c = &contact{}
		h.contacts.Add(key, c)
	}
	c.spoken = now
	return c
}

// NoteAnswered notes that a receiver answered about an address, so it accepts the source.
func (p *Pool) NoteAnswered(i int, key string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.all[i]
	h.note(key, now).blocked = time.Time{}
	if h.open && h.trial == key && !now.Before(h.suspendedUntil) {
		h.open, h.trial, h.suspensions, h.reason = false, "", 0, smtp.ReasonNone
	}
}

// NoteBlocked notes that a receiver refuses a source whatever the address. NoteBlocked reports whether this suspends
// the source.
func (p *Pool) NoteBlocked(i int, key string, now time.Time, reason smtp.Reason) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.all[i]
	h.note(key, now).blocked = now
	if now.Before(h.suspendedUntil) {
		return false
	}
	if h.open && h.trial != key || !h.open && !p.tooMany(i, now) {
		return false
	}
	p.suspend(h, now, reason)
	return true
}

// tooMany reports whether so many receivers refuse a source that it must be suspended. Under mu.
func (p *Pool) tooMany(i int, now time.Time) bool {
	least, one := lastReceivers, oneInLast
	for j, other := range p.all {
		if j != i && !now.Before(other.suspendedUntil) && p.list[j].Reaches(p.list[i].Addr) {
			least, one = manyReceivers, oneInMany // while another source can take over
		}
	}
	spoken, blocked := p.all[i].count(now, p.Hour.Of(sourceSpan))
	return blocked >= least && blocked*one >= spoken
}

// count returns how many receivers the source spoke to in the last span, and how many of them refuse it.
func (h *health) count(now time.Time, span time.Duration) (spoken, blocked int) {
	for _, c := range h.contacts.Values() {
		if now.Sub(c.spoken) > span {
			continue
		}
		spoken++
		if !c.blocked.IsZero() && now.Sub(c.blocked) <= span {
			blocked++
		}
	}
	return spoken, blocked
}

// suspend keeps a source from all receivers for a while. Under mu.
func (p *Pool) suspend(h *health, now time.Time, reason smtp.Reason) {
	h.suspendedUntil = now.Add(p.Hour.Of(min(suspendFirst<<min(h.suspensions, 10), suspendMost)))
	h.suspensions++
	h.reason, h.open, h.trial = reason, true, ""
	for _, c := range h.contacts.Values() { // their refusals have had their effect
		c.blocked = time.Time{}
	}
}

// Usable reports whether a receiver may be contacted from a source. If not, it returns when to ask again.
func (p *Pool) Usable(i int, key string, now time.Time) (bool, time.Time) {
	return p.usable(i, key, now, false)
}

// Use is Usable for a receiver that is about to be dialled. After a suspension only one receiver may try the source
// first; this call makes it that receiver.
func (p *Pool) Use(i int, key string, now time.Time) (bool, time.Time) {
	return p.usable(i, key, now, true)
}

func (p *Pool) usable(i int, key string, now time.Time, use bool) (bool, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.all[i]
	switch {
	case now.Before(h.suspendedUntil):
		return false, h.suspendedUntil
	case !h.open || h.trial == key:
		return true, time.Time{}
	case h.trial != "" && now.Before(h.trialEnd):
		return false, h.trialEnd
	}
	if use {
		h.trial, h.trialEnd = key, now.Add(p.Hour.Of(trialFor))
	}
	return true, time.Time{}
}
