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
	Addr  netip.Addr // ours; the zero value: the system chooses it
	Hello string     // hello name, removed from replies before they are judged
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

// Reaches reports whether a host's address is of a family that the source can speak to.
func (s *Source) Reaches(at netip.Addr) bool {
	return !s.Addr.IsValid() || s.Addr.Unmap().Is4() == at.Unmap().Is4()
}

// Pool holds the sources of a node, and what receivers think of them. Safe for concurrent use.
type Pool struct {
	// Hour is how long an hour lasts toward receivers: for refusals, suspensions and waits that a rule names, not for
	// waits that a receiver names. It is set before anything else is done.
	Hour throttle.Hour

	list []Source

	greetings greetings

	settings atomic.Pointer[Settings] // nil until Bind

	keeping sync.Mutex // held while daily caps are kept; taken before mu

	mu     sync.Mutex
	all    []*health  // guarded by mu; as list
	caps   []dailyCap // guarded by mu; as list
	noting bool       // guarded by mu; caps are being noted
	noted  time.Time  // guarded by mu; when that began last
}

// SourceState is the state of a source.
type SourceState struct {
	Source string // its address; "": the system chooses it
	Hello  string
	// Spoken counts the receivers dialled from it in the last hour, Blocked those that refuse it whatever the
	// recipient, because of its address or its hello name.
	Spoken, Blocked int
	SuspendedUntil  time.Time      // it isn't used before; zero: it may be used
	Reason          smtp.Reason    // why it is suspended, or was when OnTrial
	OnTrial         bool           // it was suspended, and one receiver is being asked again
	Pause           throttle.Pause // as an operator wants it
	Today           int            // RCPTs since midnight UTC that this process knows of
	PerDay          int            // that are allowed today; 0: not bounded
}

// NewPool makes the pool of a node's sources; none is suspended. The error names a bad one.
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

// Len returns how many sources there are; all methods name them by a number below it.
func (p *Pool) Len() int { return len(p.list) }

// Source returns a source. Nobody changes it.
func (p *Pool) Source(i int) *Source { return &p.list[i] }

// State returns how each source does, in the order in which they were given.
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
