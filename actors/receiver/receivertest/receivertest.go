package receivertest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// OpenedWide are wide limits, for tests that are about something else.
func OpenedWide() throttle.Limits {
	return throttle.Limits{
		Connections: 4, ConnectionRate: throttle.Rate{Events: 1000, Per: time.Second},
		RcptRate:           throttle.Rate{Events: throttle.RateEventsMax, Per: time.Second},
		RcptsPerConnection: throttle.CountMax, RcptsPerTransaction: 1, PipeliningDepth: 64,
		RefusedPerSession: throttle.CountMax, RefusedPerHour: throttle.CountMax,
		SessionAge: 5 * time.Minute, IdleTime: 2 * time.Second, TLS: throttle.TLSOpportunistic,
		Family: throttle.FamilyAny, Pause: throttle.PauseNo,
	}
}

// Stranger returns the limits of an unknown receiver, without the rates.
func Stranger() throttle.Limits {
	a := throttle.DefaultLimits()
	a.RcptRate = throttle.Rate{Events: 1000, Per: time.Second}
	a.ConnectionRate = throttle.Rate{Events: 20, Per: time.Second}
	return a
}

// OpenFunc is the type of egress.Source.Open.
type OpenFunc = func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error)

// SourcesOf makes sources with these addresses. Without addresses, SourcesOf makes the source whose address the system
// chooses.
func SourcesOf(open OpenFunc, addresses ...string) *egress.Pool {
	list := make([]egress.Source, max(1, len(addresses)))
	for i := range list {
		list[i] = egress.Source{Hello: "probe.example", Open: open}
		if len(addresses) > 0 {
			list[i].Addr = netip.MustParseAddr(addresses[i])
		}
	}
	s, err := egress.NewPool(list)
	if err != nil {
		panic(err)
	}
	return s
}

// Known writes a mailbox that exists.
func Known(n int) string { return "anna." + Letters(n) }

// Half writes a mailbox that exists only for odd n.
func Half(n int) string {
	if n%2 == 0 {
		return "ghost." + Letters(n)
	}
	return Known(n)
}

// Letters writes a number in letters.
func Letters(n int) string {
	var out []byte
	for ; n > 0 || len(out) == 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}

// Used is which part of a rate the events used, between the first and the last of them.
func Used(times []time.Time, r throttle.Rate) float64 {
	if len(times) < 2 {
		return 0
	}
	took := times[len(times)-1].Sub(times[0])
	return float64(len(times)-1) / (float64(r.Events) * took.Seconds() / r.Per.Seconds())
}

// Tester is what *testing.T and *rapid.T share.
type Tester interface {
	Errorf(format string, args ...any)
	Helper()
}

// CheckRate fails if a window of a rate had more events than the rate allows, wherever it begins.
func CheckRate(t Tester, what string, times []time.Time, r throttle.Rate) {
	t.Helper()
	for i := r.Events; i < len(times); i++ {
		if span := times[i].Sub(times[i-r.Events]); span <= r.Per {
			t.Errorf("%s: %d within %s, the rate is %s", what, r.Events+1, span, r)
			return
		}
	}
}

// ID makes the id of a verification from a number.
func ID(n byte) []byte {
	u := uuid.UUID{15: n}
	return u[:]
}

// Answer is a scheduler's answer to a client about one address.
type Answer struct {
	Ordinal  uint32
	Outcome  smtp.Outcome
	Reason   smtp.Reason
	Wait     time.Duration
	Attempts []evidence.Attempt
	Omitted  int // attempts left out of the case
}

// AnswersOf returns the answers of a message.
func AnswersOf(r *wire.Results) []Answer {
	var out []Answer
	reader := wire.NewReader(r)
	for _, m := range r.GetAnswers() {
		outcome, reason := m.Verdict()
		out = append(out, Answer{Ordinal: m.GetOrdinal(), Outcome: outcome, Reason: reason,
			Wait:     time.Duration(m.GetWaitMs()) * time.Millisecond,
			Attempts: reader.AttemptsOf(m), Omitted: int(m.GetOmitted())})
	}
	return out
}

// Agrees fails if an answer differs from what its attempts lead to.
func (a Answer) Agrees(t Tester, hosts int) {
	t.Helper()
	if len(a.Attempts) > evidence.AttemptsMax {
		t.Errorf("%d attempts", len(a.Attempts))
	}
	outcome, reason := verdict.Conclude(evidence.Case{Attempts: a.Attempts, Omitted: a.Omitted, Hosts: hosts,
		Behaviour: evidence.AcceptBehaviour{Refused: 1}})
	if outcome != a.Outcome || outcome.Final() && reason != a.Reason {
		t.Errorf("answer %s %s, its attempts come to %s %s: %+v", a.Outcome, a.Reason, outcome, reason, a.Attempts)
		return
	}
	if len(a.Attempts) == 0 {
		if a.Reason != smtp.ReceiverRateLimited { // the time of the address was over before its turn came
			t.Errorf("answer %s %s without an attempt", a.Outcome, a.Reason)
		}
		return
	}
	if last := a.Attempts[len(a.Attempts)-1]; last.Reason != a.Reason && !last.Void {
		t.Errorf("answer %s, the last attempt says %s", a.Reason, last.Reason)
	}
	for _, one := range a.Attempts {
		if one.Rule == "" || one.At.IsZero() || one.Stage == smtp.StageNone {
			t.Errorf("an attempt without rule, time or stage: %+v", one)
		}
		again := one
		if v := verdict.Builtin().Decide(&again); again != one || v.Reason != one.Reason {
			t.Errorf("judged anew: %+v, was %+v", again, one)
		}
	}
}

// OfferOf makes an offer of n probes.
func OfferOf(verification byte, domain string, chunk uint64, n int, route []*wire.Host) *wire.Offer {
	m := &wire.Offer{Task: &wire.Task{Verification: ID(verification), Epoch: 1, Domain: domain}, Chunk: chunk,
		Hosts: route}
	for i := range n {
		m.Probes = append(m.Probes, &wire.Probe{Ordinal: uint32(chunk)*1000 + uint32(i), Local: fmt.Sprintf("a%d", i)})
	}
	return m
}

// NoSession stands for a session in tests whose sessions are simulated.
func NoSession(context.Context, string, netip.Addr, smtp.TLSMode) (*smtp.Session, error) {
	return nil, errors.New("there are no sessions here")
}
