package scheduler

import (
	"fmt"
	"testing"
	"time"

	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// viewOf is a view of a receiver that is answered in 20 ms, three turns an address.
func viewOf(a throttle.Limits) View {
	return View{now: begin, limits: a, lead: 30 * time.Millisecond, turn: 20 * time.Millisecond,
		expect: 20 * time.Millisecond, opening: 60 * time.Millisecond, turns: 3}
}

func TestDecideAsk(t *testing.T) {
	a := openedWide()
	a.RcptRate, a.Connections, a.RcptsPerTransaction = rate(1000, time.Second), 2, 10
	plenty := supply{budget: 1000, rate: 1000, pace: 1000, session: 1000, queued: 1000, left: 1000}
	for name, tc := range map[string]struct {
		change func(c *supply)
		want   Ask
	}{
		"a quarter of a second":   {func(c *supply) { c.session = 27 }, Ask{n: 4}},
		"the last ones":           {func(c *supply) { c.session = 3 }, Ask{n: 3}},
		"few wait, for two":       {func(c *supply) { c.queued, c.left = 7, 100 }, Ask{n: 4}},
		"one at a time":           {func(c *supply) { c.alone = true }, Ask{n: 1}},
		"one is asked":            {func(c *supply) { c.alone, c.asking = true, true }, Ask{}},
		"nothing may be refused":  {func(c *supply) { c.budget = 0 }, Ask{cause: wire.Cause_BUDGET, until: begin.Add(1)}},
		"the receiver's rate":     {func(c *supply) { c.rate = 0 }, Ask{cause: wire.Cause_ALLOWANCE}},
		"the source's pace":       {func(c *supply) { c.pace = 0 }, Ask{cause: wire.Cause_ALLOWANCE, until: begin.Add(time.Second - 30*time.Millisecond)}},
		"a refusal is the dearer": {func(c *supply) { c.budget, c.rate = 0, 0 }, Ask{cause: wire.Cause_BUDGET, until: begin.Add(1)}},
	} {
		c, v := plenty, viewOf(a)
		c.next = [3]time.Time{begin.Add(1), {}, begin.Add(time.Second)}
		if tc.change(&c); decideAsk(&v, &c) != tc.want {
			t.Errorf("%s: %+v, want %+v", name, decideAsk(&v, &c), tc.want)
		}
	}
}

func TestDecideOpen(t *testing.T) {
	a := openedWide()
	a.Connections = 3
	soon, later := begin.Add(time.Second), begin.Add(time.Minute)
	for name, tc := range map[string]struct {
		room room
		want Open
	}{
		"room":                         {room{dials: 1, opens: true, open: 2}, Open{may: true}},
		"as many as are allowed":       {room{dials: 1, opens: true, open: 3}, Open{}},
		"of which one makes room":      {room{dials: 1, opens: true, open: 3, unserved: true}, Open{pressed: true}},
		"the connection rate":          {room{dialsAt: soon, opens: true}, Open{until: soon}},
		"so many a second are borne":   {room{dials: 1, opensAt: later}, Open{until: later}},
		"as many are on their way":     {room{dials: 1, opens: true, wayward: true}, Open{}},
		"one is asked alone elsewhere": {room{dials: 1, opens: true, alone: true}, Open{}},
	} {
		v := viewOf(a)
		effort.Is(t, decideOpen(&v, &tc.room), tc.want, name)
	}
	for _, tc := range []struct {
		left, want int
		busy       bool
	}{{15, 1, false}, {100, 7, false}, {100, 1, true}} { // one alone would take 6 s for 100
		v := viewOf(a)
		v.limits.RcptRate, v.busy = rate(1000, time.Second), tc.busy
		effort.Is(t, v.sessionsWorth(tc.left), tc.want, tc.left, "addresses are worth sessions")
	}
}

func TestLearn(t *testing.T) {
	judged := func(code int, action verdict.Action) Judgement {
		return Judgement{Verdict: verdict.Verdict{Action: action}, Attempt: evidence.Attempt{Code: code, Stage: smtp.StageRcpt}}
	}
	final := judged(250, verdict.ActNone)
	final.Verdict.Outcome = smtp.Valid
	for name, tc := range map[string]struct {
		judgement Judgement
		in        situation
		want      finding
	}{
		"an answer":                   {final, situation{}, answered},
		"after a guard woke up":       {final, situation{void: begin.Add(-1)}, worthless},
		"more than the most together": {judged(452, verdict.ActSplit), situation{taken: 2}, tooMany},
		"as many as before":           {judged(452, verdict.ActSplit), situation{taken: 3}, suspicious},
		"the next host":               {judged(550, verdict.ActNextMX), situation{}, notHere},
		"TLS":                         {judged(530, verdict.ActTLS), situation{mayTLS: true}, underTLS},
		"TLS, which was tried":        {judged(530, verdict.ActTLS), situation{}, unaskable},
		"a guard":                     {judged(550, verdict.ActVoid), situation{guard: true}, goneWith},
		"its words at one mailbox":    {judged(550, verdict.ActVoid), situation{}, suspicious},
		"nothing was sent":            {judged(0, verdict.ActRetry), situation{}, unaskable},
		"421":                         {judged(421, verdict.ActRetry), situation{}, suspicious},
		"421, as the one before":      {judged(421, verdict.ActRetry), situation{agreed: true}, goneWith},
	} {
		facts := learn(nil, begin, &Report{Answered: []Answered{{Judgement: tc.judgement, At: begin, Nth: 3}}}, tc.in)
		if len(facts) != 1 || facts[0].what != tc.want {
			t.Errorf("%s: %+v, want %d", name, facts, tc.want)
		}
	}
	lost := judged(0, verdict.ActRetry)
	r := Report{Unanswered: []*Probe{{}, {}}, OnWire: 2, Failure: &lost, Cut: true}
	for _, in := range []situation{{}, {agreed: true}} {
		want := []finding{suspected, untouched, wasCut}
		if in.agreed {
			want[0] = goneWith
		}
		for i, f := range learn(nil, begin, &r, in) {
			effort.Is(t, f.what, want[i], in, "fact", i)
		}
	}
}

// TestExplainInOrder: a cause that stops all asking goes before one that slows it, and one cause is shown.
func TestExplainInOrder(t *testing.T) {
	all := constraints{now: begin, limits: openedWide(), ready: true, queued: 1, open: 1}
	want := []struct {
		cause wire.Cause
		needs func(s *constraints)
	}{
		{wire.Cause_CONNECTIONS, func(s *constraints) { s.crowded = 1 }},
		{wire.Cause_ALLOWANCE, func(s *constraints) { s.rated = 1 }},
		{wire.Cause_BUDGET, func(s *constraints) { s.budget = true }},
		{wire.Cause_UNREACHED, func(s *constraints) { s.hosts = status.Blocked{Cause: wire.Cause_UNREACHED} }},
		{wire.Cause_NO_SOURCE, func(s *constraints) { s.sources = status.Blocked{Cause: wire.Cause_NO_SOURCE} }},
		{wire.Cause_PENALTY, func(s *constraints) { s.pausedUntil = begin.Add(time.Minute) }},
		{wire.Cause_NO_SHARE, func(s *constraints) { s.ready = false }},
		{wire.Cause_PAUSED, func(s *constraints) { s.limits.Pause = throttle.PauseYes }},
	}
	if b := explain(&all); !b.Free() {
		t.Errorf("nothing holds it back, and it is %+v", b)
	}
	for _, w := range want { // each goes before those that are there already
		if w.needs(&all); explain(&all).Cause != w.cause {
			t.Errorf("%+v, want %s", explain(&all), w.cause)
		}
	}
}

// TestNoLeadWhereATransactionMayHaveRoom: where a transaction may have several RCPTs, the first of those that are given
// may be sent at once, so it counts as soon as it is given.
func TestNoLeadWhereATransactionMayHaveRoom(t *testing.T) {
	for most, want := range map[int]time.Duration{1: 18 * time.Millisecond, 2: 0, 100: 0} {
		a := openedWide()
		a.RcptsPerTransaction = most
		w := newWorld(t, a, 1)
		for range throttle.TurnaroundSamples {
			w.scheduler.allowance.lead.Learn(20 * time.Millisecond)
		}
		w.wake()
		effort.Is(t, w.scheduler.allowance.makeView(w.now).lead, want, fmt.Sprintf("lead of %d", most))
	}
}
