package domain

import (
	"time"

	"rollcall/smtp"
)

// A harvest guard refuses or accepts everything for an hour or so after it has seen many refusals.
//   - A guard that says so pauses the whole receiver (penaltyWait in actors/receiver/scheduler/pauses.go), unless we
//     had few refusals there (mayWakeGuard in booking.go).
//   - A guard that accepts everything is found here. After suspectAfter refusals (Suspect) an acceptance counts only
//     after a refused control probe. If that probe is accepted, a guard is active (meetGuard): the domain is paused
//     (route.isPaused), and acceptances since the last refused probe are discarded and asked again (voidAccepted).
//   - Few wake at all: the refusals of an hour and of a session are bounded (smtp/throttle/budget.go, stranger.go).

const (
	// suspectAfter is the number of refusals within suspectWithin after which an acceptance counts only if a later
	// control probe is refused. Some gateways accept everything after 25 refused recipients in an hour by default, and
	// other nodes of ours may ask the same receiver.
	suspectAfter  = 15
	suspectWithin = time.Hour

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

// meetGuard notes that a harvest guard accepts everything: a control probe was accepted after many refusals.
func (k *controls) meetGuard(now time.Time) {
	until := now.Add(k.options.Facts.Hour.Of(guardFor))
	k.options.Facts.Guard(behaviourKey(k.work.Domain, k.route.answeringHost()), until)
	k.options.Log.Warn("receiver accepts every address behind many refusals", "domain", k.work.Domain,
		"receiver", k.route.key, "reason", smtp.HarvestGuard.String(), "until", until)
}

// pausedUntil returns until when nothing is asked because a harvest guard was seen at a host; that may lie in the past.
func (r *route) pausedUntil() time.Time {
	if !r.options.Facts.guarded.Load() {
		return time.Time{}
	}
	until := r.options.Facts.Pause(behaviourKey(r.work.Domain, r.answered))
	for _, h := range r.Hosts {
		until = later(until, r.options.Facts.Pause(behaviourKey(r.work.Domain, h.Name)))
	}
	return until
}

// isPaused reports whether nothing is asked because a harvest guard was seen.
func (r *route) isPaused(now time.Time) bool { return now.Before(r.pausedUntil()) }

// voidAccepted, while a harvest guard is active, discards the acceptances since the last refused control probe. They
// are asked again when the guard has had time to forget us.
func (k *controls) voidAccepted(now time.Time) {
	wait := k.route.pausedUntil().Sub(now)
	for _, p := range k.takeAccepted() {
		c := k.retries.log.takeCase(&p)
		k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.HarvestGuard, wait: wait})
	}
}
