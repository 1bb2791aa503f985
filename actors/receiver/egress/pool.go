package egress

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

// Source is one way of ours to speak to receivers.
type Source struct {
	Addr  netip.Addr // our address; the zero value: the system chooses
	Hello string     // removed from replies before they are judged
	// ReturnPath is removed from replies too; the zero value if it is no address.
	ReturnPath smtp.Address
	// Open connects to one host and greets it. The error is a *smtp.Failure.
	Open func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error)
}

// Name is the source's address as evidence shows it; "": the system chooses it.
func (s *Source) Name() string {
	if !s.Addr.IsValid() {
		return ""
	}
	return s.Addr.String()
}

// Reaches reports whether the source can speak to a host's address, by its family.
func (s *Source) Reaches(at netip.Addr) bool {
	return !s.Addr.IsValid() || s.Addr.Unmap().Is4() == at.Unmap().Is4()
}

// Pool holds the sources of a node, and how receivers treat them. Safe for concurrent use.
type Pool struct {
	// Hour is the length of an hour toward receivers: for refusals, suspensions, and waits that a rule names. Waits that a
	// receiver names are in real time. Hour is set before anything else is done.
	Hour throttle.Hour

	list []Source

	greetings greetings

	settings atomic.Pointer[Settings] // nil until Bind

	keeping sync.Mutex // held while daily caps are stored; taken before mu

	mu     sync.Mutex
	all    []*health  // guarded by mu; has the order of list
	caps   []dailyCap // guarded by mu; has the order of list
	noting bool       // guarded by mu; caps are being stored
	noted  time.Time  // guarded by mu; when the last storing began
}

// SourceState is the state of a source.
type SourceState struct {
	Source string // its address; "": the system chooses
	Hello  string
	// Spoken counts the receivers that were dialled from it in the last hour. Blocked counts the receivers that refuse the
	// address or hello name of the source, whatever the recipient.
	Spoken, Blocked int
	SuspendedUntil  time.Time      // the source isn't used before this time; zero: it may be used
	Reason          smtp.Reason    // why the source is suspended, or was if OnTrial
	OnTrial         bool           // the source was suspended, and one receiver is being asked again
	Pause           throttle.Pause // the pause that an operator has set
	Today           int            // RCPTs since midnight UTC, as far as this process knows
	PerDay          int            // RCPTs allowed today; 0: any number
}

// NewPool makes the pool of a node's sources. None is suspended. The error names a bad source.
func NewPool(list []Source) (*Pool, error) {
	if len(list) == 0 {
		return nil, errors.New("receiver sources: none is given")
	}
	p := &Pool{list: slices.Clone(list), greetings: newGreetings()}
	for i, one := range list {
		switch {
		case one.Hello == "" || one.Open == nil:
			return nil, fmt.Errorf("receiver sources: source %q has no hello name, or no way to open a session", one.Name())
		case slices.ContainsFunc(list[:i], func(o Source) bool { return o.Addr == one.Addr }):
			return nil, fmt.Errorf("receiver sources: source %q is given twice", one.Name())
		}
		p.all = append(p.all, &health{contacts: newLRU[*contact](contactsMax)})
	}
	p.caps = make([]dailyCap, len(list))
	return p, nil
}

// Len returns how many sources there are. Methods name a source by a number below Len.
func (p *Pool) Len() int { return len(p.list) }

// Source returns a source. The source never changes.
func (p *Pool) Source(i int) *Source { return &p.list[i] }

// State returns the state of each source, in the order of NewPool.
func (p *Pool) State(now time.Time) []SourceState {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]SourceState, len(p.list))
	for i, h := range p.all {
		st := &out[i]
		st.Source, st.Hello, st.Reason = p.list[i].Name(), p.list[i].Hello, h.reason
		if now.Before(h.suspendedUntil) {
			st.SuspendedUntil = h.suspendedUntil
		}
		p.addCap(i, now, st)
		st.OnTrial = h.open && st.SuspendedUntil.IsZero()
		st.Spoken, st.Blocked = h.count(now, p.Hour.Of(sourceSpan))
	}
	return out
}
