package throttle

import (
	"fmt"
	"strconv"
	"time"
)

// TrialLine is one line of a log of trials. The first has the state that the others go on from;
// each other one is a call of Causes or Experiment, with its arguments and what it led to.
type TrialLine struct {
	Kind string `json:"kind,omitempty"`

	// Of the first line.
	Node     string      `json:"node,omitempty"`
	Receiver string      `json:"receiver,omitempty"`
	Source   string      `json:"source,omitempty"`
	State    *TrialState `json:"state,omitempty"`

	// Of a trial.
	Sent        time.Time `json:"sent,omitzero"`
	At          time.Time `json:"at,omitzero"`
	Domain      string    `json:"domain,omitempty"`
	Tenant      string    `json:"tenant,omitempty"` // a number, which means the same customer in this log only
	Host        string    `json:"host,omitempty"`
	Result      string    `json:"result,omitempty"`
	Said        string    `json:"said,omitempty"`
	Pace        float64   `json:"pace,omitempty"` // RCPTs a second that were let go; with "slower" that got through
	Again       bool      `json:"again,omitempty"`
	OfUs        bool      `json:"of_us,omitempty"`
	OfItself    bool      `json:"of_itself,omitempty"`
	OtherDomain bool      `json:"other_domain,omitempty"` // others waited beside it
	OtherTenant bool      `json:"other_tenant,omitempty"`
	OtherHost   bool      `json:"other_host,omitempty"` // could be asked
	Fine        bool      `json:"fine,omitempty"`
	Found       bool      `json:"found,omitempty"`

	Yes     bool    `json:"yes,omitempty"`     // odd, bad or passed, as the kind has it
	Share   float64 `json:"share,omitempty"`   // of those that are put off whatever we do
	Finding string  `json:"finding,omitempty"` // of an experiment

	Believed *Decision `json:"believed,omitempty"`
}

// Decision is a belief and when it came.
type Decision struct {
	At      time.Time `json:"at,omitzero"`
	Scope   string    `json:"scope"`
	Refused bool      `json:"refused,omitempty"`
	Why     string    `json:"why"`
}

// Same reports whether two beliefs are the same, and came at the same time.
func (d Decision) Same(o Decision) bool {
	return d.At.Equal(o.At) && d.Scope == o.Scope && d.Refused == o.Refused && d.Why == o.Why
}

// TrialStateKind is the kind of the first line of a log.
const TrialStateKind = "state"

var (
	trialKindNames = [trialKinds]string{"trial", "answered", "settled", "assumed", "look", "usual", "clear",
		"slower", "compared", "looked", "end"}
	resultNames  = [...]string{"answered", "put_off", "refused_us", "cut"}
	findingNames = [...]string{"not_known", "our_pace", "not_our_pace"}
)

// placeIn gives the place of a name, 0 for one that nobody knows.
func placeIn(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return 0
}

func lineOf(t *Trial) TrialLine {
	return TrialLine{Sent: t.Sent, At: t.At, Domain: t.Domain, Tenant: t.Tenant, Host: t.Host,
		Result: resultNames[t.Result], Said: t.Said, Again: t.Again, OfUs: t.OfUs, OfItself: t.OfItself}
}

func (l *TrialLine) trial() Trial {
	return Trial{Sent: l.Sent, At: l.At, Domain: l.Domain, Tenant: l.Tenant, Host: l.Host, Again: l.Again, Said: l.Said,
		Result: Result(placeIn(resultNames[:], l.Result)), OfUs: l.OfUs, OfItself: l.OfItself}
}

// Trials gives the log of trials, oldest first; nothing when nothing bad was seen, or there was no
// room. Tenants are numbers in it.
func (c *Causes) Trials() (out []TrialLine) {
	if c.log == nil || c.log.newer == nil {
		return nil
	}
	numbers := map[string]string{"": ""}
	number := func(tenant string) string {
		if numbers[tenant] == "" && tenant != "" {
			numbers[tenant] = strconv.Itoa(len(numbers))
		}
		return numbers[tenant]
	}
	for _, h := range [...]*trialHalf{c.log.older, c.log.newer} {
		if h == nil {
			continue
		}
		if len(out) == 0 {
			out = append(out, TrialLine{Kind: TrialStateKind, State: h.state.number(number)})
		}
		for i := range h.events {
			out = append(out, h.line(&h.events[i], number))
		}
	}
	return out
}

// line gives an event as a line.
func (h *trialHalf) line(e *trialEvent, number func(string) string) TrialLine {
	on := func(bit uint16) bool { return e.flags&bit != 0 }
	l := TrialLine{Kind: trialKindNames[e.kind], Sent: timeOfNanos(e.sent), At: timeOfNanos(e.at), Domain: h.texts[e.domain],
		Tenant: number(h.texts[e.tenant]), Host: h.texts[e.host], Said: h.texts[e.said], Again: on(trialAgain),
		OfUs: on(trialOfUs), OfItself: on(trialOfItself), OtherDomain: on(trialOtherDomain),
		OtherTenant: on(trialOtherTenant), OtherHost: on(trialOtherHost), Yes: on(trialYes), Fine: on(trialFine), Found: on(trialFound)}
	switch e.kind {
	case kindNote:
		l.Result, l.Pace = resultNames[e.result], e.value
	case kindBegin, kindTrial, kindLooked:
		l.Pace = e.value
	case kindFine, kindSettle, kindAssume:
		l.Result = resultNames[e.result]
	case kindUsual:
		l.Share = e.value
	case kindEnd:
		l.Finding = findingNames[e.result]
	}
	if e.why > 0 {
		l.Believed = &Decision{l.At, e.scope.String(), e.refused, h.texts[e.why]}
	}
	return l
}

// RecordedDecisions gives the beliefs that a log of trials says it led to.
func RecordedDecisions(log []TrialLine) (out []Decision) {
	for i := range log {
		if b := log[i].Believed; b != nil {
			out = append(out, *b)
		}
	}
	return out
}

// ReplayTrials makes the calls of a log of trials anew, and gives the beliefs that they lead to. The
// first line must have a state. An error names a line that is none.
func ReplayTrials(log []TrialLine) (out []Decision, err error) {
	if len(log) == 0 || log[0].State == nil {
		return nil, fmt.Errorf("line 1 has no state: %w", ErrTrials)
	}
	c, e := log[0].State.causes()
	for i := range log[1:] {
		l := &log[i+1]
		b, known := l.replay(c, e)
		if !known {
			return out, fmt.Errorf("line %d: kind %q: %w", i+2, l.Kind, ErrTrials)
		}
		if b.Why != "" {
			out = append(out, Decision{l.At, b.Scope.String(), b.Refused, b.Why})
		}
	}
	return out, nil
}

// replay makes the call of one line.
func (l *TrialLine) replay(c *Causes, e *Experiment) (b Belief, known bool) {
	t := l.trial()
	switch l.Kind {
	case trialKindNames[kindNote]:
		b = c.Note(t, Waiting{l.OtherDomain, l.OtherTenant, l.OtherHost})
		if l.Fine {
			c.Fine(t)
		}
	case trialKindNames[kindFine]:
		c.Fine(t)
	case trialKindNames[kindSettle]:
		c.Settle(t, l.Yes)
	case trialKindNames[kindAssume]:
		c.Assume(t)
	case trialKindNames[kindLook]:
		c.LookAgain(l.Said)
	case trialKindNames[kindUsual]:
		c.Usual(l.Share)
	case trialKindNames[kindClear]:
		c.Clear()
	case trialKindNames[kindBegin]:
		e.begin(c, l.Yes, l.Pace)
	case trialKindNames[kindTrial]:
		e.Trial(l.Yes, l.Pace)
	case trialKindNames[kindLooked]:
		e.Looked(l.Yes, l.Pace)
	case trialKindNames[kindEnd]:
		if !l.Found { // it was ended by something else
			e.close(NotKnown)
			break
		}
		f, _ := e.Finding()
		b = e.close(f)
	default:
		return b, false
	}
	return b, true
}
