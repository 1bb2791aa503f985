package receiver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

const (
	// manyReceivers and oneInMany: a source is rested altogether when so many
	// receivers have refused it within an hour, and they are at least one part in so
	// many of those that it spoke to. Guess: three lists of addresses rarely err at once.
	manyReceivers = 3
	oneInMany     = 10

	// lastReceivers and oneInLast are the same for the last source of a node: without
	// it nothing is answered any more, while each receiver that refuses it is left alone
	// anyway. Guess.
	lastReceivers = 10
	oneInLast     = 2

	// sourceSpan is what is looked back over for that.
	sourceSpan = time.Hour

	// reachSpan is what SourceState.Dialled and Reached look back over.
	reachSpan = 10 * time.Minute

	// restAll is how long a source is rested altogether for the first time; each rest
	// that follows another one doubles it, up to restMost. Guess: block lists take
	// hours to forget, and a wrong decision of ours should not cost a day.
	restAll  = time.Hour
	restMost = 24 * time.Hour

	// trialFor is how long one receiver may take to say what it thinks of a source that
	// was rested, before another one is asked. Guess: some slow sessions.
	trialFor = 10 * time.Minute

	// contactsMax bounds the receivers that are remembered of a source. At the bound
	// new ones are not counted until older ones are an hour ago, so that a source is
	// rested sooner rather than later. Guess: 100 bytes each.
	contactsMax = 20_000
)

// Source is one way of ours to speak to receivers.
type Source struct {
	Addr  netip.Addr // ours; the zero value: the system chooses it
	Hello string     // hello name, taken out of replies before they are judged
	// ReturnPath is taken out likewise; the zero value when it is no address.
	ReturnPath smtp.Address
	// Open connects to one host and greets; its error is a *smtp.Failure.
	Open func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error)
}

// Name is the source's address as evidence shows it; "" when the system chooses it.
func (s *Source) Name() string {
	if !s.Addr.IsValid() {
		return ""
	}
	return s.Addr.String()
}

// reaches says whether a host's address is of a family that the source can speak to.
func (s *Source) reaches(at netip.Addr) bool {
	return !s.Addr.IsValid() || s.Addr.Unmap().Is4() == at.Unmap().Is4()
}

// Sources are the sources of a node, and what receivers think of them. Safe for
// concurrent use.
type Sources struct {
	// Hour is how long an hour lasts toward receivers: of refusals, of rests, of the
	// waits that a rule names; not of those that a receiver names. It is set before
	// anything else is done.
	Hour throttle.Hour

	list []Source

	options atomic.Pointer[Options] // nil until a receiver lives

	keeping sync.Mutex // held while days are kept; taken before mu

	mu     sync.Mutex
	all    []*health // guarded by mu; as list
	days   []day     // guarded by mu; as list
	noting bool      // guarded by mu; days are being noted
	noted  time.Time // guarded by mu; when that began last
}

// health is what is known of one source.
type health struct {
	contacts map[string]contact // by receiver key
	pruned   time.Time          // when old contacts were looked for
	until    time.Time          // rested altogether before
	rests    int                // of these in a row
	reason   smtp.Reason        // of the newest
	open     bool               // it was rested and no receiver has taken it since
	trial    string             // the receiver that is asked then
	trialEnd time.Time
}

// contact is what came of one receiver within the last hour; zero times: nothing.
type contact struct {
	dialled, reached, blocked time.Time
}

func (c contact) newest() time.Time { return later(later(c.dialled, c.reached), c.blocked) }

// SourceState is how a source does.
type SourceState struct {
	Source string // its address; "": the system chooses it
	Hello  string
	// Dialled counts the receivers that were dialled from it in the last ten minutes,
	// Reached those of them that said anything at all.
	Dialled, Reached int
	// Spoken counts the receivers that were dialled from it in the last hour, Blocked
	// those that refuse it, whatever the address, because of where it stands or how it
	// introduces itself.
	Spoken, Blocked int
	Rested          time.Time      // it speaks to nobody before; zero: it may speak
	Reason          smtp.Reason    // why it is rested, or was when OnTrial
	OnTrial         bool           // it was rested, and one receiver is being asked again
	Pause           throttle.Pause // as an operator wants it
	Today           int            // RCPTs since midnight UTC, of those that this process knows of
	PerDay          int            // that are allowed today; 0: not bounded
}

// Fit says whether the source may speak to receivers at large.
func (s SourceState) Fit(now time.Time) bool { return !now.Before(s.Rested) }

// NewSources makes a node's sources; all are fit. The error says what is wrong with one.
func NewSources(list []Source) (*Sources, error) {
	if len(list) == 0 {
		return nil, errors.New("receiver sources: there is none")
	}
	s := &Sources{list: slices.Clone(list)}
	for i, one := range list {
		switch {
		case one.Hello == "" || one.Open == nil:
			return nil, fmt.Errorf("receiver sources: source %q has no hello name, or no way to open a session",
				one.Name())
		case slices.ContainsFunc(list[:i], func(o Source) bool { return o.Addr == one.Addr }):
			return nil, fmt.Errorf("receiver sources: source %q is there twice", one.Name())
		}
		s.all = append(s.all, &health{contacts: map[string]contact{}})
	}
	s.days = make([]day, len(list))
	return s, nil
}

// State tells how each source does, in the order in which they were given.
func (s *Sources) State(now time.Time) []SourceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]SourceState, len(s.list))
	for i, h := range s.all {
		st := &out[i]
		st.Source, st.Hello, st.Reason = s.list[i].Name(), s.list[i].Hello, h.reason
		if now.Before(h.until) {
			st.Rested = h.until
		}
		s.stateOfDay(i, now, st)
		st.OnTrial = h.open && st.Rested.IsZero()
		st.Spoken, st.Blocked = h.count(now, s.Hour.Of(sourceSpan))
		for _, c := range h.contacts {
			if now.Sub(c.dialled) <= reachSpan {
				st.Dialled++
				if !c.reached.Before(c.dialled) {
					st.Reached++
				}
			}
		}
	}
	return out
}

// Fit says whether any source may speak to receivers; false means that this node
// can find out nothing at the moment.
func (s *Sources) Fit(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(h *health) bool { return !now.Before(h.until) })
}

// count gives the receivers of the last span, and those that refuse the source.
func (h *health) count(now time.Time, span time.Duration) (spoken, blocked int) {
	for _, c := range h.contacts {
		if now.Sub(c.newest()) > span {
			continue
		}
		spoken++
		if !c.blocked.IsZero() && now.Sub(c.blocked) <= span {
			blocked++
		}
	}
	return spoken, blocked
}

// may says whether a receiver may be spoken to from a source, and if not, when to
// ask again. A source that was rested speaks to one receiver first; with claim the
// caller is that one.
func (s *Sources) may(i int, key string, now time.Time, claim bool) (bool, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[i]
	switch {
	case now.Before(h.until):
		return false, h.until
	case !h.open || h.trial == key:
		return true, time.Time{}
	case h.trial != "" && now.Before(h.trialEnd):
		return false, h.trialEnd
	}
	if claim {
		h.trial, h.trialEnd = key, now.Add(s.Hour.Of(trialFor))
	}
	return true, time.Time{}
}

// dialled notes that a receiver is dialled from a source.
func (s *Sources) dialled(i int, key string, now time.Time) {
	s.note(i, key, now, func(c *contact) { c.dialled = now })
}

// reached notes that a receiver has said something.
func (s *Sources) reached(i int, key string, now time.Time) {
	s.note(i, key, now, func(c *contact) { c.reached = now })
}

func (s *Sources) note(i int, key string, now time.Time, change func(*contact)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[i].note(key, now, change)
}

func (h *health) note(key string, now time.Time, change func(*contact)) {
	c, known := h.contacts[key]
	if !known && len(h.contacts) >= contactsMax {
		if now.Sub(h.pruned) < time.Minute { // looking costs a while
			return
		}
		h.pruned = now
		for k, old := range h.contacts {
			if now.Sub(old.newest()) > sourceSpan {
				delete(h.contacts, k)
			}
		}
		if len(h.contacts) >= contactsMax {
			return
		}
	}
	change(&c)
	h.contacts[key] = c
}

// worked notes that a receiver has answered about an address: it takes the source.
func (s *Sources) worked(i int, key string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[i]
	h.note(key, now, func(c *contact) { c.reached, c.blocked = now, time.Time{} })
	if h.open && h.trial == key && !now.Before(h.until) {
		h.open, h.trial, h.rests, h.reason = false, "", 0, smtp.ReasonNone
	}
}

// blocked notes that a receiver refuses a source whatever the address, and says
// whether the source is rested altogether for that from now on.
func (s *Sources) blocked(i int, key string, now time.Time, reason smtp.Reason) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[i]
	h.note(key, now, func(c *contact) { c.reached, c.blocked = now, now })
	if now.Before(h.until) {
		return false
	}
	if h.open && h.trial != key || !h.open && !s.tooMany(i, now) {
		return false
	}
	h.until = now.Add(s.Hour.Of(min(restAll<<min(h.rests, 10), restMost)))
	h.rests++
	h.reason, h.open, h.trial = reason, true, ""
	for k, c := range h.contacts { // they have had their say
		c.blocked = time.Time{}
		h.contacts[k] = c
	}
	return true
}

// tooMany says whether so many receivers refuse a source that it must rest. Under mu.
func (s *Sources) tooMany(i int, now time.Time) bool {
	least, one := lastReceivers, oneInLast
	for j, other := range s.all {
		if j != i && !now.Before(other.until) && s.list[j].reaches(s.list[i].Addr) {
			least, one = manyReceivers, oneInMany // that one takes over
		}
	}
	spoken, blocked := s.all[i].count(now, s.Hour.Of(sourceSpan))
	return blocked >= least && blocked*one >= spoken
}
