package domain

import (
	"time"

	"rollcall/smtp"
)

// A harvest guard is a receiver's defence against guessing addresses. After many refusals it refuses or accepts
// everything, for an hour or so.
//   - A guard that refuses says so. After its words the whole receiver pauses (penaltyWait in
//     actors/receiver/scheduler/pauses.go), unless we had few refusals there (mayWakeGuard in booking.go).
//   - A guard that accepts everything is found here. After suspectAfter refusals (Suspect) an acceptance counts only if
//     a later control probe is refused. If that probe is accepted, a guard is active (meetGuard): the domain is paused
//     (route.isPaused). The acceptances since the last refused probe are discarded and asked again (voidAccepted).
//   - We wake few guards, because we bound the refusals of an hour and of a session (smtp/throttle/budget.go,
//     stranger.go).

const (
	// suspectAfter refusals within suspectWithin make acceptances doubtful: they count only if a later control probe is
	// refused. Some gateways, by default, accept everything after 25 refused recipients in an hour, and other nodes of
	// ours may ask the same receiver.
	suspectAfter  = 15
	suspectWithin = time.Hour

	// guardFor is how long a domain isn't asked after a guard was seen there. Guards count by the hour.
	guardFor = time.Hour

	// refusalsMax bounds the domains whose refusals are counted: 5 MB. Beyond refusalsMax we forget the domains that were
	// asked least recently, and may miss a guard there.
	refusalsMax = 10_000
)

// refusals are what makes the acceptances of a domain doubtful.
type refusals struct {
	times [suspectAfter]time.Time // times of the newest refusals, as a ring
	next  int
	// guard is until when the domain isn't asked because a guard was seen; zero: no guard was seen, or a control probe was
	// refused since.
	guard time.Time
}

// refusalsOf returns the refusals of a domain. The caller holds the lock.
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

// Guard notes that a harvest guard was seen at a domain, and until when the domain isn't asked.
func (f *Facts) Guard(domain string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.refusalsOf(domain) = refusals{guard: until}
	f.guarded.Store(true)
}

// Pause returns until when a domain isn't asked. The time may be past.
func (f *Facts) Pause(domain string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.refusals.Get(domain); ok {
		return r.guard
	}
	return time.Time{}
}

// Suspect reports whether a harvest guard may have caused an acceptance (behaviourKey). An acceptance is suspect after
// many recent refusals, even if control probes were refused in between: the next refusal may be one too many. An
// acceptance is also suspect after a guard was seen, until a control probe is refused.
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

// meetGuard notes that a harvest guard is active: after many refusals it accepted a control probe.
func (k *controls) meetGuard(now time.Time) {
	until := now.Add(k.options.Facts.Hour.Of(guardFor))
	k.options.Facts.Guard(behaviourKey(k.work.Domain, k.route.answeringHost()), until)
	k.options.Log.Warn("receiver accepts every address behind many refusals", "domain", k.work.Domain,
		"receiver", k.route.key, "reason", smtp.HarvestGuard.String(), "until", until)
}

// pausedUntil returns until when the domain isn't asked because a guard was seen at one of its hosts. The time may be
// past.
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

func (r *route) isPaused(now time.Time) bool { return now.Before(r.pausedUntil()) }

// voidAccepted discards, while a harvest guard is active, the acceptances since the last refused control probe. These
// addresses are asked again after the pause, in which the guard forgets us.
func (k *controls) voidAccepted(now time.Time) {
	wait := k.route.pausedUntil().Sub(now)
	for _, p := range k.takeAccepted() {
		c := k.retries.log.takeCase(&p)
		k.voidAcceptanceFor(now, p, c, answerOf{reason: smtp.HarvestGuard, wait: wait})
	}
}
