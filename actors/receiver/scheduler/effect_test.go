package scheduler

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// tuned makes a world whose allowance a test changes as it goes.
func tuned(t tester, a *throttle.Limits) *world {
	w := newWorld(t, *a, 1)
	w.scheduler.options.Allow = func(string) throttle.Limits { return *a }
	return w
}

// wake is what Registry.Replan does to a scheduler.
func (w *world) wake() {
	w.after(0, func() {})
	w.run(w.now.Add(time.Millisecond))
}

// TestPausedByAnOperator: during a pause nothing is asked, sessions say QUIT, and clients are told. The waiting
// addresses stay, and are asked once when the pause is over.
func TestPausedByAnOperator(t *testing.T) {
	a := openedWide()
	w := tuned(t, &a)
	all := w.heard()
	listen, paused := w.hear, 0
	w.hear = func(to Client, msg proto.Message) {
		if m, ok := msg.(*wire.Pulse); ok && m.GetCause() == wire.Cause_PAUSED && m.GetWaitingMs() == 60_000 {
			paused++
		}
		listen(to, msg)
	}
	asked := map[string]int{}
	w.asked = func(p *Probe) { asked[p.Address.Local]++ }
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(1500 * time.Millisecond))
	a.Pause = throttle.PauseYes
	w.wake()
	w.run(w.now.Add(3 * time.Second))
	before := len(w.rcpts)
	w.run(w.now.Add(10 * time.Minute))
	if len(w.open) > 0 || len(w.rcpts) > before || before == 0 || paused < 500 {
		t.Errorf("%d sessions, %d RCPTs before and %d in the pause, told %d times", len(w.open), before,
			len(w.rcpts)-before, paused)
	}
	effort.Is(t, len(all["d.example"]), before, "RCPTs asked")
	a.Pause = throttle.PauseNo
	w.wake()
	w.run(w.now.Add(time.Second))
	effort.Not(t, len(w.rcpts), before, "nothing is asked a second after the pause")
	w.run(w.now.Add(time.Minute))
	effort.Is(t, len(all["d.example"]), wire.AddressesMax, "answers")
	for local, n := range asked {
		effort.Is(t, n, 1, local, "was asked times")
	}
	w.checkEmpty()
}

// TestDrained: sessions go on until they end by themselves, and none is opened.
func TestDrained(t *testing.T) {
	a := openedWide()
	a.RcptsPerConnection = 40
	w := tuned(t, &a)
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(1500 * time.Millisecond))
	dials, rcpts := len(w.dials), len(w.rcpts)
	a.Pause = throttle.PauseDrain
	w.wake()
	w.run(w.now.Add(time.Minute))
	if len(w.dials) != dials || len(w.rcpts) != dials*40 || len(w.rcpts) == rcpts || len(w.open) > 0 {
		t.Errorf("%d sessions more, %d RCPTs in %d sessions, %d open", len(w.dials)-dials, len(w.rcpts), dials,
			len(w.open))
	}
	if b := w.scheduler.explainBlocked(w.now); b.Cause != wire.Cause_PAUSED || b.Why == "" {
		t.Errorf("%s: %s", b.Cause, b.Why)
	}
	a.Pause = throttle.PauseNo
	w.wake()
	w.run(w.now.Add(time.Minute))
	effort.Is(t, len(w.rcpts), wire.AddressesMax, "asked in the end")
}

// TestChangesKeepSessions: another rate ends no session, and fewer connections end only those that are too many.
func TestChangesKeepSessions(t *testing.T) {
	a := openedWide()
	w := tuned(t, &a)
	for n := range uint64(2) {
		w.offer(offerOf(1, "d.example", n+1, wire.AddressesMax, hosts("mx1")))
	}
	w.run(begin.Add(2 * time.Second))
	dials := len(w.dials)
	effort.MustBe(t, len(w.open), 4, "sessions")
	w.wake() // the same again
	a.RcptRate = throttle.Rate{Events: 20, Per: time.Second}
	w.wake()
	w.run(w.now.Add(5 * time.Second))
	if len(w.open) != 4 || len(w.dials) != dials {
		t.Errorf("%d sessions are left, %d were opened, after a smaller rate", len(w.open), len(w.dials)-dials)
	}
	a.Connections = 3
	w.wake()
	w.run(w.now.Add(2 * time.Second))
	if len(w.open) != 3 || len(w.dials) != dials {
		t.Errorf("%d sessions are left of three, %d were opened", len(w.open), len(w.dials)-dials)
	}
}

// TestFieldsTakeEffect: the times of a session, its encryption and the family of hosts.
func TestFieldsTakeEffect(t *testing.T) {
	six := wire.Host{Name: "mx6", Addrs: [][]byte{make([]byte, 16)}}
	six.Addrs[0][0] = 0x20
	for _, tc := range []struct {
		name  string
		allow func(a *throttle.Limits)
		route []*wire.Host
		check func(w *world, all map[string][]*wire.Answer) bool
	}{
		{"session age", func(a *throttle.Limits) {
			a.SessionAge, a.RcptRate = 2*time.Second, throttle.Rate{Events: 5, Per: time.Second}
		}, hosts("mx1"), func(w *world, _ map[string][]*wire.Answer) bool { return len(w.dials) > 4 }},
		{"idle time", func(a *throttle.Limits) { a.IdleTime = 50 * time.Second }, hosts("mx1"),
			func(w *world, _ map[string][]*wire.Answer) bool { return len(w.open) > 0 }},
		{"idle time of two seconds", func(*throttle.Limits) {}, hosts("mx1"),
			func(w *world, _ map[string][]*wire.Answer) bool { return len(w.open) == 0 }},
		{"other family", func(a *throttle.Limits) { a.Family = throttle.FamilyV6 }, hosts("mx1"),
			func(w *world, all map[string][]*wire.Answer) bool {
				return len(w.dials) == 0 && len(all["d.example"]) == 100 &&
					smtp.Reason(all["d.example"][0].GetReason()) == smtp.ConnectionFailed &&
					len(all["d.example"][0].GetAttempts()) == 1
			}},
		{"one family of two", func(a *throttle.Limits) { a.Family = throttle.FamilyV6 },
			[]*wire.Host{hosts("mx1")[0], &six}, func(w *world, all map[string][]*wire.Answer) bool {
				return w.greeted["mx6"] > 0 && w.greeted["mx1"] == 0 && len(all["d.example"]) == 100
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.allow(&a)
			w := tuned(t, &a)
			all := w.heard()
			w.offer(offerOf(1, "d.example", 1, 100, tc.route))
			w.run(begin.Add(30 * time.Second))
			if !tc.check(w, all) {
				t.Errorf("%d dials, %d open, %d answers: %v", len(w.dials), len(w.open), len(all["d.example"]),
					all["d.example"][:min(1, len(all["d.example"]))])
			}
		})
	}
}

// TestTLSAsWanted: what an operator wants goes before what was learned, and a receiver that
// demands what an operator has switched off is not asked for ever.
func TestTLSAsWanted(t *testing.T) {
	demands := smtp.Reply{Code: 530, Enhanced: smtp.EnhancedCode{5, 7, 0},
		Lines: []string{"issue a starttls command first"}}
	for _, tc := range []struct {
		tls  throttle.TLS
		want smtp.TLSMode
	}{{throttle.TLSOff, smtp.TLSOff}, {throttle.TLSRequired, smtp.TLSRequired},
		{throttle.TLSOpportunistic, smtp.TLSOpportunistic}} {
		a := openedWide()
		a.TLS = tc.tls
		w := tuned(t, &a)
		all := w.heard()
		if tc.tls == throttle.TLSOff {
			w.reply = func(*Probe, *simSession) smtp.Reply { return demands }
		}
		w.offer(offerOf(1, "d.example", 1, 1, hosts("mx1")))
		for _, s := range w.scheduler.sessions.all {
			effort.Is(t, s.tls, tc.want, tc.tls, "opened with")
		}
		w.run(begin.Add(time.Minute))
		if len(all["d.example"]) != 1 || len(w.rcpts) != 1 {
			t.Errorf("%s: %d answers after %d RCPTs", tc.tls, len(all["d.example"]), len(w.rcpts))
		}
	}
	a := openedWide() // sessions in clear are given nothing any more
	w := tuned(t, &a)
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(time.Second))
	a.TLS = throttle.TLSRequired
	w.wake()
	w.run(w.now.Add(3 * time.Second))
	for _, s := range w.scheduler.sessions.all {
		effort.Is(t, s.tls, smtp.TLSRequired, "a session that was opened with goes on")
	}
}

// TestSourcePaused: another source takes over, and without one the receiver waits.
func TestSourcePaused(t *testing.T) {
	w := newWorldFrom(t, sourceA, sourceB)
	pauses := map[string]throttle.Pause{}
	w.scheduler.options.SourceOf = func(name string) throttle.Limits {
		return throttle.Limits{Pause: pauses[name]}
	}
	w.rebind()
	all := w.heard()
	froms := func() []string {
		var out []string
		for _, s := range w.open {
			out = append(out, s.source)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(time.Second))
	first, other := w.scheduler.paths.all[0].name, w.scheduler.paths.all[1].name
	if got := froms(); len(got) != 1 || got[0] != first {
		t.Fatalf("from %v", got)
	}
	pauses[first] = throttle.PauseYes
	w.wake()
	w.run(w.now.Add(2 * time.Second))
	if got := froms(); len(got) != 1 || got[0] != other {
		t.Errorf("from %v instead of %s", got, other)
	}
	pauses[other] = throttle.PauseYes
	w.wake()
	w.run(w.now.Add(2 * time.Second))
	rcpts := len(w.rcpts)
	w.run(w.now.Add(time.Minute))
	b := w.scheduler.explainBlocked(w.now)
	if len(w.open) > 0 || len(w.rcpts) > rcpts || b.Cause != wire.Cause_PAUSED {
		t.Errorf("%d sessions, %d RCPTs more, %s: %s", len(w.open), len(w.rcpts)-rcpts, b.Cause, b.Why)
	}
	effort.Is(t, len(all["d.example"]), rcpts, "RCPTs asked")
	clear(pauses)
	w.wake()
	w.run(w.now.Add(time.Minute))
	effort.Is(t, len(all["d.example"]), wire.AddressesMax, "answers")
}

// TestSpentSourceWaits: a source that has used its daily cap goes on after midnight.
func TestSpentSourceWaits(t *testing.T) {
	a := openedWide()
	w := tuned(t, &a)
	w.scheduler.options.SourceOf = func(string) throttle.Limits { return throttle.Limits{RcptsPerDay: 50} }
	w.rebind()
	w.scheduler.options.Clock = func() time.Time { return w.now }
	w.offer(offerOf(1, "d.example", 1, 80, hosts("mx1")))
	w.run(begin.Add(time.Minute))
	b := w.scheduler.explainBlocked(w.now)
	if len(w.rcpts) != 50 || b.Cause != wire.Cause_NO_SOURCE || b.Until.Sub(w.now) != untilMidnight(w.now) {
		t.Errorf("%d RCPTs, %s until %s: %s", len(w.rcpts), b.Cause, b.Until, b.Why)
	}
	w.run(begin.Add(untilMidnight(begin) + time.Minute))
	effort.Is(t, len(w.rcpts), 80, "RCPTs after midnight")
}

// TestCloseSession: it ends after what is on the wire, and another one is opened.
func TestCloseSession(t *testing.T) {
	a := openedWide()
	a.Connections = 1
	w := tuned(t, &a)
	w.offer(offerOf(1, "d.example", 1, 200, hosts("mx1")))
	w.run(begin.Add(time.Second))
	if !w.scheduler.sessions.closeSession(1) || w.scheduler.sessions.closeSession(99) {
		t.Error("not the session that there is")
	}
	w.wake()
	w.run(w.now.Add(3 * time.Second))
	if w.open[1] != nil || len(w.dials) != 2 {
		t.Errorf("%d sessions were opened; the first is open: %v", len(w.dials), w.open[1] != nil)
	}
}

// TestHolds: each cause is told when it is what holds the receiver back.
func TestHolds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		allow func(a *throttle.Limits)
		set   func(w *world)
		want  wire.Cause
		until bool
	}{
		{"nothing", func(*throttle.Limits) {}, func(*world) {}, wire.Cause_CONNECTIONS, false},
		{"rate", func(a *throttle.Limits) { a.RcptRate = throttle.Rate{Events: 5, Per: time.Second} },
			func(*world) {}, wire.Cause_ALLOWANCE, true},
		{"slow rate", func(a *throttle.Limits) { a.RcptRate = throttle.Rate{Events: 3, Per: time.Minute} },
			func(*world) {}, wire.Cause_ALLOWANCE, true},
		{"connection rate", func(a *throttle.Limits) {
			a.ConnectionRate, a.RcptsPerConnection = throttle.Rate{Events: 6, Per: time.Minute}, 1
		}, func(*world) {}, wire.Cause_CONNECTIONS, true},
		{"budget", func(a *throttle.Limits) { a.RefusedPerHour = 5 }, func(w *world) {
			w.reply = func(*Probe, *simSession) smtp.Reply {
				return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}
			}
		}, wire.Cause_BUDGET, true},
		{"paused", func(a *throttle.Limits) { a.Pause = throttle.PauseYes }, func(*world) {}, wire.Cause_PAUSED, false},
		{"penalty", func(*throttle.Limits) {}, func(w *world) {
			w.scheduler.paths.pauseReceiver(w.now, Judgement{Verdict: again(smtp.ReceiverBusy, "test")})
			w.scheduler.paths.receiver.until = begin.Add(time.Hour)
		}, wire.Cause_PENALTY, true},
		{"no share", func(*throttle.Limits) {}, func(w *world) { inForce(w.living, of(0, 2)) },
			wire.Cause_NO_SHARE, false},
		{"unreached", func(*throttle.Limits) {}, func(w *world) {
			w.greet = func(string) error { return errNoSource }
			w.scheduler.options.Waits = []time.Duration{time.Hour}
		}, wire.Cause_UNREACHED, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.allow(&a)
			w := tuned(t, &a)
			tc.set(w)
			w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
			w.run(begin.Add(5 * time.Second))
			b := w.scheduler.explainBlocked(w.now)
			if b.Cause != tc.want || b.Why == "" || b.Until.After(w.now) != tc.until {
				t.Errorf("%s until %s: %s", b.Cause, b.Until, b.Why)
			}
		})
	}
	w := newWorld(t, openedWide(), 1) // little work is no reason for more sessions
	w.offer(offerOf(1, "d.example", 1, 20, hosts("mx1")))
	w.run(begin.Add(500 * time.Millisecond))
	if b := w.scheduler.explainBlocked(w.now); b.Cause != wire.Cause_FREE {
		t.Errorf("%s: %s", b.Cause, b.Why)
	}
}

// TestPerHour: by what holds the receiver back, and by the part of a verification.
func TestPerHour(t *testing.T) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 10, Per: time.Second}
	w := tuned(t, &a)
	w.offer(offerOf(1, "d.example", 1, wire.AddressesMax, hosts("mx1")))
	w.run(begin.Add(2 * time.Second))
	d := w.scheduler
	mine := d.queues.tasks.all[offerOf(1, "d.example", 1, 0, nil).GetTask().Key()]
	effort.Is(t, d.perHourOf(w.now, mine), 36_000, "an hour at ten a second")
	d.paths.all[0].pace.Recall(throttle.RateMemory{Rate: 7, Edge: 9}, w.now)
	if got := d.perHourOf(w.now, mine); got < 18_000 || got >= 36_000 {
		t.Errorf("%d an hour at a receiver that wants less", got)
	}
	d.paths.all[0].pace = throttle.NewPace(d.allowance.rateBounds(a), w.now)
	w.offer(offerOf(2, "e.example", 1, wire.AddressesMax, hosts("mx1")))
	effort.Is(t, d.perHourOf(w.now, mine), 18_000, "an hour beside another one")
	a.RefusedPerHour = 100
	w.wake()
	accepted, _ := d.paths.all.answered()
	for n := range 80 {
		if got := d.perHourOf(w.now, mine); n < tellingRefusals && got != 18_000 {
			t.Errorf("%d an hour after %d refusals beside %d", got, n, accepted)
		}
		d.paths.all[0].refusals.Begin(1)
		d.paths.all[0].refusals.Refused(w.now)
	}
	_, refused := d.paths.all.answered()
	want := int64(100 * float64(accepted+refused) / float64(refused) / 2)
	if got := d.perHourOf(w.now, mine); 10*got < 9*want || 10*got > 11*want || refused != 80 { // in steps of 61 min
		t.Errorf("%d an hour instead of about %d, of %d refused and %d accepted", got, want, refused, accepted)
	}
	a.Pause = throttle.PauseYes
	w.wake()
	effort.Is(t, d.perHourOf(w.now, mine), 0, "an hour in a pause")
}
