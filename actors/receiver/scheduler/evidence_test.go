package scheduler

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// noMail is the greeting of a host that takes no mail.
var noMail = &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 521, Lines: []string{"mx.test does not accept mail"}}}

type heard struct {
	answer
	hosts int
}

// agrees fails if an answer differs from the conclusion of its attempts.
func (a heard) agrees(t tester) {
	t.Helper()
	receivertest.Answer{Outcome: a.outcome, Reason: a.reason, Wait: a.wait, Attempts: a.attempts,
		Omitted: a.omitted}.Agrees(t, a.hosts)
}

// collect gives every answer to its caller and acknowledges it.
func (w *world) collect(hosts int, each func(domain string, a heard)) {
	w.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(*wire.Results); ok {
			for _, a := range answersOf(m) {
				each(m.GetTask().GetDomain(), heard{a, hosts})
			}
		}
		w.acknowledge(to, msg)
	}
}

// TestAnswersRestOnTheirAttempts: whatever receivers do, each answer is what its
// attempts come to, and judging these again gives the same.
func TestAnswersRestOnTheirAttempts(t *testing.T) {
	var outcomes [6]int
	effort.Check(t, func(rt *rapid.T) {
		a := openedWide()
		a.RcptsPerTransaction = rapid.SampledFrom([]int{1, 3, 20}).Draw(rt, "per transaction")
		w := newWorld(rt, a, rapid.Uint64().Draw(rt, "seed"))
		w.misbehave(rapid.IntRange(0, 300).Draw(rt, "trouble"))
		refuse := w.greet
		w.greet = func(host string) error {
			if host == "mx2.example" || w.rand.IntN(3) == 0 {
				return noMail
			}
			return refuse(host)
		}
		answered := 0
		route := routeOf(w.rand)
		w.collect(len(route), func(_ string, a heard) {
			answered++
			outcomes[a.outcome]++
			a.agrees(rt)
		})
		for n := range uint64(3) {
			w.offer(offerOf(1, "d.example", n+1, 40, route))
			w.run(w.now.Add(time.Hour))
		}
		effort.Is(rt, answered, 3*40, "answers")
	})
	if outcomes[smtp.Valid] == 0 || outcomes[smtp.Invalid] == 0 || outcomes[smtp.Undecided] == 0 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// routeOf makes a route of one to three hosts with one or two addresses, or, but for the first, with none.
func routeOf(r *rand.Rand) []*wire.Host {
	all := hosts("mx1.example", "mx2.example", "mx3.example")[:1+r.IntN(3)]
	for i, h := range all {
		switch r.IntN(4) {
		case 0:
			h.Addrs = append(h.Addrs, []byte{192, 0, 2, byte(100 + i)})
		case 1:
			if i > 0 {
				h.Addrs = nil
			}
		}
	}
	return all
}

// TestNoMailAtOneOfTwoAddresses: a host says that it takes no mail when all its addresses do.
func TestNoMailAtOneOfTwoAddresses(t *testing.T) {
	down := &smtp.Failure{Stage: smtp.StageGreeting, Reply: smtp.Reply{Code: 421, Lines: []string{"busy"}}}
	for _, tc := range []struct {
		name string
		says []error
		want smtp.Outcome
	}{
		{"both", []error{noMail, noMail}, smtp.Invalid},
		{"the first", []error{noMail, down}, smtp.Undecided},
		{"the second", []error{down, noMail}, smtp.Undecided},
	} {
		w := newWorld(t, openedWide(), 1)
		route := hosts("mx1")
		w.greetAt = func(at netip.Addr) error {
			if at == netip.AddrFrom4([4]byte(route[0].Addrs[0])) {
				return tc.says[0]
			}
			return tc.says[1]
		}
		route[0].Addrs = append(route[0].Addrs, []byte{192, 0, 2, 99})
		answered := 0
		w.collect(1, func(_ string, a heard) {
			answered++
			a.agrees(t)
			effort.Is(t, a.outcome, tc.want, tc.name, a.reason)
		})
		w.offer(offerOf(1, "d.example", 1, 1, route))
		if w.run(begin.Add(time.Minute)); answered != 1 {
			t.Errorf("%s: %d answers", tc.name, answered)
		}
	}
}

// TestMessagesAreBounded: however much receivers write, no message exceeds its
// bound, nothing is left out, and little text takes one message.
func TestMessagesAreBounded(t *testing.T) {
	attempt := func(text string) evidence.Attempt {
		return evidence.Attempt{At: begin, Stage: smtp.StageRcpt, Host: strings.Repeat("h", evidence.NameMax),
			Source: "192.0.2.1", Code: 450, Enhanced: smtp.EnhancedCode{4, 7, 1}, Text: text, Rule: "a-rule",
			Reason: smtp.Greylisted, Version: 1 << 31}
	}
	for _, tc := range []struct {
		name     string
		n        int // attempts of each of 500 answers
		text     func(i, k int) string
		messages int // at most
	}{
		{"one text", 1, func(int, int) string { return "no such user" }, 1},
		{"sixteen of one text", evidence.AttemptsMax, func(int, int) string { return "no such user" }, 10},
		{"other texts of a usual length", 1, func(i, _ int) string { return strings.Repeat("x", 60) + letters(i) }, 2},
		{"as much as there can be", evidence.AttemptsMax, func(i, k int) string {
			return (strings.Repeat("\xff", evidence.TextMax) + letters(i*evidence.AttemptsMax+k))[4:]
		}, wire.AddressesMax},
	} {
		var all []answer
		for i := range wire.AddressesMax {
			a := answer{ordinal: uint32(i), reason: smtp.Greylisted, wait: time.Hour, omitted: 7}
			for k := range tc.n {
				text := tc.text(i, k)
				a.attempts = append(a.attempts, attempt(text[max(0, len(text)-evidence.TextMax):]))
			}
			all = append(all, a)
		}
		sent := messages(all)
		var heard []answer
		for _, r := range sent {
			if size := proto.Size(r); size > resultsMax {
				t.Errorf("%s: a message of %d bytes", tc.name, size)
			}
			heard = append(heard, answersOf(r)...)
		}
		if len(sent) > tc.messages {
			t.Errorf("%s: %d messages", tc.name, len(sent))
		}
		if !slices.EqualFunc(all, heard, func(a, b answer) bool {
			return a.ordinal == b.ordinal && a.reason == b.reason && a.wait == b.wait &&
				a.omitted == b.omitted && slices.Equal(a.attempts, b.attempts)
		}) {
			t.Errorf("%s: what arrived is not what was sent", tc.name)
		}
	}
}

// TestAttemptsAreBounded: a probe that is sent around for ever keeps its first and its newest attempts.
func TestAttemptsAreBounded(t *testing.T) {
	p := &Probe{}
	for n := range 100 {
		one := judgedAt(begin.Add(time.Duration(n)*time.Second), "mx1", smtp.Address{},
			&smtp.Failure{Stage: smtp.StageRcpt, Reply: smtp.Reply{Code: 452, Enhanced: smtp.EnhancedCode{4, 5, 3}}})
		p.note(one)
		p.note(one) // said by a queue right after: the same attempt
	}
	if n := len(p.attempts); n != evidence.AttemptsMax || p.omitted != 100-n {
		t.Errorf("%d attempts, %d left out", n, p.omitted)
	}
	const first = evidence.AttemptsFirst - 1
	if at := p.attempts[first].At; !at.Equal(begin.Add(first * time.Second)) {
		t.Errorf("the first ones end at %s", at.Sub(begin))
	}
}
