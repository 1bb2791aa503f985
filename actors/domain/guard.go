package domain

import "time"

const (
	// suspectAfter: after so many refusals within suspectWithin an acceptance is believed only when a later control
	// probe is refused. Some gateways accept everything after 25 refused recipients in an hour by default, and others
	// of our nodes may ask the same receiver.
	suspectAfter  = 15
	suspectWithin = time.Hour

	// One control probe serves all acceptances gathered so far. It is asked when there are canaryMost of them, when
	// there are canaryFew and the first has waited canarySoon, when the first has waited canaryAfter, or when there is
	// nothing else to ask. So no large domain holds back more than some hundred, and a receiver that takes one address
	// a second gets under 2 % more.
	canaryMost  = 400
	canaryFew   = 50
	canarySoon  = time.Second
	canaryAfter = time.Minute

	// guardFor is how long a domain isn't asked after its receiver was seen to accept everything behind many refusals:
	// harvest guards count by the hour.
	guardFor = time.Hour

	// refusalsMax bounds the domains whose refusals are counted. Beyond it those that were not asked for longest are
	// forgotten, and a guard there may be missed. They take 5 MB.
	refusalsMax = 10_000
)

// refusals is what makes the acceptances of a domain doubtful.
type refusals struct {
	times [suspectAfter]time.Time // of the newest refusals, as a ring
	next  int
	guard time.Time // a guard was seen: nothing is asked before; zero: none since a control probe was refused
}

// refusalsOf returns the notes on a domain's refusals. The caller has the lock.
func (f *Facts) refusalsOf(domain string) *refusals {
	r, ok := f.refusals.Get(domain)
	if !ok {
		r = &refusals{}
		f.refusals.Add(domain, r)
	}
	return r
}

// Refused notes that a receiver refused an address of a domain.
func (f *Facts) Refused(domain string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusalsOf(domain).add(now)
}

func (r *refusals) add(now time.Time) {
	r.times[r.next] = now
	r.next = (r.next + 1) % suspectAfter
}

// Guard notes that a harvest guard was seen at a domain, which isn't asked until a time.
func (f *Facts) Guard(domain string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.refusalsOf(domain) = refusals{guard: until}
	f.guarded.Store(true)
}

// Pause returns until when a domain isn't asked; that may lie in the past.
func (f *Facts) Pause(domain string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.refusals.Get(domain); ok {
		return r.guard
	}
	return time.Time{}
}

// Suspect reports whether an acceptance (behaviourKey) may be a harvest guard's: it comes after many refusals, or after
// a guard was seen and no control probe was refused since. A control probe refused in between doesn't help: the next
// refusal may be one too many.
func (f *Facts) Suspect(domain string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.refusals.Get(domain)
	if !ok {
		return false
	}
	oldest := r.times[r.next]
	many := !oldest.IsZero() && now.Sub(oldest) <= f.Hour.Of(suspectWithin)
	return many || !r.guard.IsZero() && (now.Before(r.guard) || f.knownOf(domain, now).refused > 0)
}
