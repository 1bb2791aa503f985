package domain

import "time"

const (
	// suspectAfter is so many refusals within suspectWithin that an acceptance behind
	// them is believed only when a control probe is refused behind it. Some gateways
	// accept everything in silence behind 25 refused recipients in an hour by default,
	// and others of our nodes may ask the same receiver.
	suspectAfter  = 15
	suspectWithin = time.Hour

	// One control probe is asked for all acceptances that are gathered: when these are canaryMost, or
	// canaryFew and the first of them waited for canarySoon, or it did for canaryAfter; at once when there is
	// nothing else to ask. So no large domain holds more than some hundred back, and a receiver of one
	// address a second gets less than two more in a hundred.
	canaryMost  = 400
	canaryFew   = 50
	canarySoon  = time.Second
	canaryAfter = time.Minute

	// guardFor is how long a domain is left alone whose receiver was seen to accept
	// everything behind many refusals: those that count, count by the hour.
	guardFor = time.Hour

	// refusalsMax bounds the domains whose refusals are counted. Beyond it others are
	// forgotten, which costs what suspicion would have found. They take 4 MB.
	refusalsMax = 10_000
)

// refusals is what makes the acceptances of a domain doubtful.
type refusals struct {
	times [suspectAfter]time.Time // of the newest refusals, as a ring
	next  int
	guard time.Time // seen at work: nothing is asked before; zero: none, since a control probe was refused
}

// refusalsOf gives what is noted of a domain's refusals. The caller has the lock.
func (f *Facts) refusalsOf(domain string) *refusals {
	r := f.refusals[domain]
	if r != nil {
		return r
	}
	if len(f.refusals) >= refusalsMax {
		for d := range f.refusals {
			if delete(f.refusals, d); len(f.refusals) <= refusalsMax*7/8 {
				break
			}
		}
	}
	r = &refusals{}
	f.refusals[domain] = r
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

// Guard notes that a guard was seen at work at a domain, which rests until a time.
func (f *Facts) Guard(domain string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.refusalsOf(domain) = refusals{guard: until}
	f.guarded.Store(true)
}

// Pause is until when nothing is asked about a domain; it may be over.
func (f *Facts) Pause(domain string) time.Time {
	if !f.guarded.Load() {
		return time.Time{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.refusals[domain]; r != nil {
		return r.guard
	}
	return time.Time{}
}

// Suspect reports whether an acceptance (behaviourKey) may be the work of a guard: it
// comes behind many refusals, or behind a guard that was seen at a domain that told
// mailboxes apart before, with no control probe refused since. That a control probe
// was refused in between does not help: what is refused next may be one too many.
func (f *Facts) Suspect(domain string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.refusals[domain]
	if r == nil {
		return false
	}
	oldest := r.times[r.next]
	many := !oldest.IsZero() && now.Sub(oldest) <= f.Hour.Of(suspectWithin)
	return many || !r.guard.IsZero() && (now.Before(r.guard) || f.knownOf(domain, now).refused > 0)
}
