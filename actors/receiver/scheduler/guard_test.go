package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// noSuchUser and harvestWord are replies to RCPT.
var (
	noSuchUser  = smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}
	harvestWord = smtp.Reply{Code: 550, Lines: []string{"too many invalid recipients"}}
)

// TestNothingAfterTheHarvestWord: what other sessions were answered after it is void and asked again, the receiver
// rests for an hour, and nobody is called invalid by the guard. A shorter hour is a shorter rest.
func TestNothingAfterTheHarvestWord(t *testing.T) {
	for _, hour := range []throttle.Hour{0, throttle.Hour(2 * time.Minute)} { // above shortPause
		t.Run(time.Duration(hour).String(), func(t *testing.T) { nothingAfterTheHarvestWord(t, hour) })
	}
}

func nothingAfterTheHarvestWord(t *testing.T, hour throttle.Hour) {
	a := openedWide()
	a.RcptRate = throttle.Rate{Events: 200, Per: time.Second}
	w := newWorld(t, a, 1)
	w.scheduler = begunAlone("example", hourly(testOptions(a), hour), begin)
	var woken time.Time
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if len(w.rcpts)%50 == 0 && woken.IsZero() {
			return noSuchUser // it counts these
		}
		if len(w.rcpts) >= 200 && woken.IsZero() {
			woken = w.rcpts[len(w.rcpts)-1]
			return harvestWord
		}
		if !woken.IsZero() && !w.rcpts[len(w.rcpts)-1].Before(woken) &&
			w.rcpts[len(w.rcpts)-1].Sub(woken) < hour.Of(harvestFor)/2 {
			return noSuchUser // to everybody: a lie
		}
		return smtp.Reply{Code: 250}
	}
	valid, invalid, voids := 0, 0, 0
	var waits []time.Duration
	w.collect(1, func(_ string, a heard) {
		a.agrees(t)
		switch a.outcome {
		case smtp.Valid:
			valid++
		case smtp.Invalid: // those that it counted
			if invalid++; !woken.IsZero() && !a.attempts[len(a.attempts)-1].At.Before(woken) {
				t.Errorf("invalid by %+v", a.attempts)
			}
		default:
			waits = append(waits, a.wait)
			effort.Is(t, a.reason, smtp.HarvestGuard, "put off because")
		}
		for _, one := range a.attempts {
			if one.Void {
				voids++
			}
		}
	})
	w.offer(offerOf(1, "d.example", 1, 500, hosts("mx1")))
	w.run(begin.Add(hour.Of(10 * time.Minute)))
	if woken.IsZero() || len(w.open) > 0 || invalid < guardLeast || valid+invalid+len(waits) != 500 {
		t.Fatalf("%d valid, %d invalid, %d put off, %d sessions", valid, invalid, len(waits), len(w.open))
	}
	if least := slices.Min(waits); least < hour.Of(harvestFor-time.Minute) ||
		least > hour.Of(harvestFor+time.Minute) || voids == 0 {
		t.Errorf("put off for %s, %d answers are void", slices.Min(waits), voids)
	}
	asked := len(w.rcpts)
	w.offer(offerOf(1, "d.example", 2, 10, hosts("mx1")))
	if w.run(begin.Add(hour.Of(50 * time.Minute))); len(w.rcpts) > asked {
		t.Errorf("%d RCPTs within the hour", len(w.rcpts)-asked)
	}
	w.run(begin.Add(hour.Of(2 * time.Hour)))
	before := valid
	w.offer(offerOf(1, "d.example", 3, 100, hosts("mx1")))
	if w.run(w.now.Add(time.Minute)); valid-before != 100 {
		t.Errorf("%d of 100 answered when the hour is over", valid-before)
	}
}

// TestAGuardThatEndsEachSession: who says 421 in a guard's words to the first address of each session, after some were
// refused, isn't dialled for each of the others.
func TestAGuardThatEndsEachSession(t *testing.T) {
	for _, text := range harvestWord.Lines {
		for _, refusals := range []int{5, 10, 30} {
			for _, most := range []int{1, 4} {
				a := openedWide()
				a.Connections = most
				w, refused, after := newWorld(t, a, uint64(refusals)), 0, 0
				w.reply = func(*Probe, *simSession) smtp.Reply {
					if refused >= refusals {
						after++
						return smtp.Reply{Code: 421, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{text}}
					}
					if w.rand.IntN(2) == 0 {
						return smtp.Reply{Code: 250}
					}
					refused++
					return noSuchUser
				}
				w.heard()
				w.offer(offerOf(1, "d.example", 1, 200, hosts("mx1")))
				if w.run(begin.Add(10 * time.Minute)); after > 3*most {
					t.Errorf("%d sessions, guarded after %d: %d RCPTs after that", most, refusals, after)
				}
			}
		}
	}
}

// TestAGuardOfOneSession: software that counts by the session shows at a guard's words how many refusals a session may
// have, and the next ones stay below that. If the guard counts all sessions, the receiver is paused all the same.
func TestAGuardOfOneSession(t *testing.T) {
	for seed := range effort.Seeds(t, 20) {
		r := rand.New(rand.NewPCG(seed, 4))
		bears, all, spoke := 3+r.IntN(5), r.IntN(2) == 0, 0
		a := openedWide()
		a.Connections = 1 + r.IntN(8)
		w := newWorld(t, a, seed)
		w.shown = map[string]throttle.Shown{"mx1": {Greeting: "mx1.example ESMTP Exim 4.98"}}
		refused, total := map[*simSession]int{}, 0
		w.reply = func(_ *Probe, s *simSession) smtp.Reply {
			switch {
			case !all && refused[s] >= bears, all && total >= bears:
				spoke++
				return harvestWord
			case w.rand.IntN(4) > 0:
				return smtp.Reply{Code: 250}
			}
			refused[s]++
			total++
			return noSuchUser
		}
		answers := w.heard()
		w.offer(offerOf(1, "d.example", 1, 200, hosts("mx1")))
		w.run(begin.Add(5 * time.Minute))
		if n := len(answers["d.example"]); !all && n < 200 {
			t.Errorf("seed %d: %d of 200 answered, where a session bears %d refusals", seed, n, bears)
		}
		if most := 3 * a.Connections; spoke > most {
			t.Errorf("seed %d: a guard that bears %d refusals (of all sessions: %v) spoke %d times", seed, bears, all, spoke)
		}
	}
}

// busyWith returns a world whose scheduler has sessions that are asking, from one source each.
func busyWith(t *testing.T, sources ...string) *world {
	t.Helper()
	w := newWorldFrom(t, sources...)
	w.turn = time.Second
	w.offer(offerOf(1, "d.example", 1, 400, hosts("mx1")))
	w.run(begin.Add(30 * time.Second))
	if len(w.scheduler.sessions.all) < 2 {
		t.Fatalf("%d sessions", len(w.scheduler.sessions.all))
	}
	return w
}

// halted counts the sessions that may ask nothing more.
func (w *world) halted() int {
	w.scheduler.sessions.carryOutHalts()
	n := 0
	for _, s := range w.scheduler.sessions.all {
		if s.slot.Halted.Load() {
			n++
		}
	}
	return n
}

// TestWhatIsGivenIsHalted: sessions stop with the addresses they were given if the receiver or their source is
// paused, or if a harvest guard that has refused enough to wake speaks in another session. When they are given other
// addresses, they may go on.
func TestWhatIsGivenIsHalted(t *testing.T) {
	judgement := judgedAt(begin, "mx1", smtp.Address{}, &smtp.Failure{Stage: smtp.StageRcpt, Reply: harvestWord})
	w := busyWith(t, sourceA)
	effort.MustBe(t, w.halted(), 0, "halted for no reason")
	w.scheduler.paths.pauseReceiver(w.now, judgement)
	effort.Is(t, w.halted(), len(w.scheduler.sessions.all), "halted by a pause")
	w = busyWith(t, sourceA)
	w.scheduler.paths.suspendSource(w.now, w.scheduler.queues.all["mx1"].route, w.scheduler.paths.all[0], judgement)
	effort.Is(t, w.halted(), len(w.scheduler.sessions.all), "halted by a rest")
	w = busyWith(t, sourceA)
	for _, s := range w.scheduler.sessions.all {
		s.refused = guardLeast - 1
		w.scheduler.sessions.poisonOthers(begin, s, Report{Failure: &judgement, Poisoned: true})
		effort.Is(t, w.halted(), 0, "halted by one odd mailbox")
		s.refused = guardLeast
		w.scheduler.sessions.poisonOthers(begin, s, Report{Failure: &judgement, Poisoned: true})
		break
	}
	effort.Is(t, w.halted(), len(w.scheduler.sessions.all)-1, len(w.scheduler.sessions.all), "halted by a guard")
	v := w.scheduler.allowance.makeView(w.now)
	v.limits = openedWide()
	for _, s := range w.scheduler.sessions.all {
		if spent := w.scheduler.sessions.isSpent(&v, s); spent != s.slot.Halted.Load() {
			t.Errorf("a session is used again after a guard has spoken: %v", !spent)
		}
		w.scheduler.sessions.giveProbes(&v, s, []*Probe{{}})
	}
	effort.Is(t, w.halted(), 0, "halted for ever")
}

// TestLimitsForStrangers: a session ends before a guard that counts its refusals
// could step in, unless the receiver is allowed to refuse many in an hour.
func TestLimitsForStrangers(t *testing.T) {
	for _, tc := range []struct{ perHour, perSession, want int }{
		{20, 8, throttle.StrangerRefused}, {throttle.StrangerBelow - 1, 8, throttle.StrangerRefused}, {20, 1, 1}, {throttle.StrangerBelow, 8, 8},
	} {
		a := openedWide()
		a.RefusedPerHour, a.RefusedPerSession = tc.perHour, tc.perSession
		w := newWorld(t, a, 1)
		most := 0
		w.reply = func(_ *Probe, s *simSession) smtp.Reply {
			most = max(most, s.refused+1)
			return noSuchUser
		}
		w.offer(offerOf(1, "d.example", 1, 60, hosts("mx1")))
		if w.run(begin.Add(time.Minute)); most != tc.want {
			t.Errorf("%d an hour, %d a session: %d refused in one", tc.perHour, tc.perSession, most)
		}
	}
}

// TestErrorsOfASession: some guards count what is deferred like what is refused, also when an address
// is looked at again, which is once for each at most; greylisting is no error.
func TestErrorsOfASession(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply smtp.Reply
		want  int // in a session; 0: all
	}{
		{"full", smtp.Reply{Code: 452, Enhanced: smtp.EnhancedCode{4, 2, 2}, Lines: []string{"mailbox full"}},
			throttle.StrangerRefused},
		{"greylisted", smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{"greylisted"}}, 0},
	} {
		a := openedWide()
		a.RefusedPerHour, a.Connections = 20, 1
		w := newWorld(t, a, 1)
		most, answers := 0, w.heard()
		w.reply = func(_ *Probe, s *simSession) smtp.Reply {
			most = max(most, s.rcpts)
			return tc.reply
		}
		w.offer(offerOf(1, "d.example", 1, 10, hosts("mx1")))
		w.run(begin.Add(time.Minute))
		want := tc.want
		if want == 0 {
			want = len(w.rcpts) - greyedFew // after which another one was opened, once
		}
		if n := len(w.rcpts); most != want || n < 10 || n > 2*10 || len(answers["d.example"]) != 10 {
			t.Errorf("%s: %d RCPTs in a session, %d in all, %d answers", tc.name, most, n, len(answers["d.example"]))
		}
	}
}

// TestSlowRefusalsTeach: a receiver that holds back its nth refusal, as Postfix does with its tenth error, sees fewer
// in the sessions that follow; one that is slow from the first on teaches nothing.
func TestSlowRefusalsTeach(t *testing.T) {
	for _, tc := range []struct{ slowFrom, want int }{{10, 9}, {3, 2}, {1, 50}, {1000, 50}} {
		d := begunAlone("example", testOptions(openedWide()), begin)
		l := d.queues.hostQueue(begin, hosts("mx1"))
		s := &session{queue: l, host: l.candidates[0], path: d.paths.all[0]}
		now := begin
		for n := range throttle.TurnaroundSamples { // the usual turn is known from another session
			sent := now.Add(time.Duration(n) * time.Second)
			d.allowance.replies.Seen(sent, sent.Add(40*time.Millisecond))
		}
		for n := 1; n <= 15; n++ {
			took := 40 * time.Millisecond
			if n >= tc.slowFrom {
				took += time.Second
			}
			judgement := judgedAt(now.Add(took), "mx1", smtp.Address{},
				&smtp.Failure{Stage: smtp.StageRcpt, Reply: noSuchUser})
			a := Answered{Judgement: judgement, Sent: now, At: now.Add(took), waited: took}
			d.allowance.noteSlowRefusal(now, s, a, 0)
			s.refused++
			now = now.Add(took)
		}
		a := openedWide()
		a.RefusedPerSession = 50
		effort.Is(t, d.allowance.learned.Apply(a, true, now).RefusedPerSession, tc.want, "slow from refusal", tc.slowFrom,
			"on: in a session from now on")
	}
}

// TestAllHeldBackTeachesErrors: RSET and MAIL take a second from some error on, whatever the errors are.
func TestAllHeldBackTeachesErrors(t *testing.T) {
	const usual = 40 * time.Millisecond
	for _, tc := range []struct {
		slowFrom, times int
		want            int // errors of a session from now on
	}{{10, 99, 10}, {3, 99, 3}, {1, 99, 50}, {10, 1, 50}, {10, 0, 50}} {
		d := begunAlone("example", testOptions(openedWide()), begin)
		l := d.queues.hostQueue(begin, hosts("mx1"))
		s := &session{queue: l, host: l.candidates[0], path: d.paths.all[0]}
		for range throttle.TurnaroundSamples {
			d.allowance.replies.Seen(begin, begin.Add(usual))
		}
		for n := 0; n < 15; n++ {
			led := usual
			if n >= tc.slowFrom && n < tc.slowFrom+tc.times {
				led += time.Second
			}
			d.allowance.noteSlowLead(begin, s, led, 0)
			s.greyed += n % 2
			s.errors += 1 - n%2
		}
		a := openedWide()
		a.RefusedPerSession = 50
		a = d.allowance.learned.Apply(a, true, begin)
		got, left := a.RefusedPerSession, d.allowance.errorsLeft(begin, &session{}, a)
		if got != tc.want || s.doomed != (tc.want < 50) || s.doomed && left != got {
			t.Errorf("slow from error %d on, %d times: %d in a session from now on, ends: %v", tc.slowFrom, tc.times, got,
				s.doomed)
		}
	}
}

// TestTooManyErrorsTeachOneFewer: a server that ends sessions in such words is given one error less in each, because it
// may have ended this one behind the last (Postfix) or in place of the next answer (chasquid).
func TestTooManyErrorsTeachOneFewer(t *testing.T) {
	w := newWorld(t, openedWide(), 1)
	w.reply = func(_ *Probe, s *simSession) smtp.Reply {
		if s.refused >= 2 {
			return smtp.Reply{Code: 421, Enhanced: smtp.EnhancedCode{4, 5, 0},
				Lines: []string{"Too many errors, bye"}}
		}
		return noSuchUser
	}
	invalid := 0
	w.collect(1, func(_ string, a heard) {
		if a.agrees(t); a.outcome == smtp.Invalid {
			invalid++
		}
	})
	w.offer(offerOf(1, "d.example", 1, 40, hosts("mx1")))
	w.run(begin.Add(10 * time.Minute))
	if n := w.scheduler.takeAllowance(w.now).RefusedPerSession; n != 1 || invalid != 40 {
		t.Errorf("%d refusals in a session from now on, %d of 40 answered", n, invalid)
	}
}

// TestGuardThatForgives: a list that begins with fifty invented addresses doesn't trip a guard that ends sessions
// after ten refusals in a row, such as NoSpamToday's.
func TestGuardThatForgives(t *testing.T) {
	a := openedWide()
	a.Connections = 1
	w := newWorld(t, a, 1)
	row, longest := map[*simSession]int{}, 0
	w.reply = func(p *Probe, s *simSession) smtp.Reply {
		if fairqueue.ClassOf(p.Address.Local) == fairqueue.Normal {
			row[s] = 0
			return smtp.Reply{Code: 250}
		}
		row[s]++
		longest = max(longest, row[s])
		return noSuchUser
	}
	m := offerOf(1, "d.example", 1, 90, hosts("mx1"))
	for i, p := range m.GetProbes() {
		if p.Local = fmt.Sprintf("xkcdqrtz%c", 'a'+i%26); i >= 50 {
			p.Local = "anna." + letters(i)
		}
	}
	w.offer(m)
	if w.run(begin.Add(time.Minute)); longest > fairqueue.SuspectsInRow || len(w.rcpts) != 90 {
		t.Errorf("%d refused in a row, %d RCPTs", longest, len(w.rcpts))
	}
}

// TestGreylistIsLearned: what sufficed once is named to the next that is deferred,
// what did not is not, and a longer time that the receiver names wins.
func TestGreylistIsLearned(t *testing.T) {
	w := newWorldFrom(t, sourceA, sourceB)
	ours := w.scheduler.paths.all[0].name
	put := map[string]bool{}
	words := "greylisted"
	w.reply = func(p *Probe, _ *simSession) smtp.Reply {
		if put[p.Address.Local] {
			return smtp.Reply{Code: 451, Enhanced: smtp.EnhancedCode{4, 7, 1}, Lines: []string{words}}
		}
		return smtp.Reply{Code: 250}
	}
	var last heard
	w.collect(1, func(_ string, a heard) {
		a.agrees(t)
		last = a
	})
	chunk := uint64(0)
	ask := func(local string, greylisted bool, ago time.Duration, from string) time.Duration {
		chunk++
		put[local] = greylisted
		m := offerOf(1, "d.example", chunk, 1, hosts("mx1"))
		m.Probes[0] = &wire.Probe{Ordinal: uint32(chunk), Local: local, GreylistedMs: ago.Milliseconds(),
			GreylistedFrom: bytesOf(from)}
		last = heard{}
		w.offer(m)
		w.run(w.now.Add(recheckWithin)) // it may be looked at again as long
		if last.outcome.Final() == greylisted {
			t.Fatalf("%s: %s %s", local, last.outcome, last.reason)
		}
		return last.wait
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if got < want-2*recheckAfter || got > want+2*time.Second { // it counts from when it was first asked
			t.Errorf("%s: told to wait %s, want %s", what, got, want)
		}
	}
	near("nothing known", ask("a", true, 0, ""), 0)
	ask("b", false, 20*time.Minute, sourceSix) // from elsewhere: teaches nothing
	near("passed from another source", ask("c", true, 0, ""), 0)
	ask("a", false, 10*time.Minute, ours)
	near("ten minutes sufficed", ask("d", true, 0, ""), 10*time.Minute+time.Second)
	ask("e", false, 5*time.Second, ours)
	near("five seconds sufficed", ask("f", true, 0, ""), 5*time.Second+time.Second)
	words = "greylisted for 300 seconds"
	near("a longer time is named", ask("g", true, 0, ""), 300*time.Second)
	words = "greylisted for 2 seconds"
	near("a shorter time is named", ask("h", true, 0, ""), 5*time.Second+time.Second)
	words = "greylisted"
	for _, local := range []string{"i", "j"} { // deferred again after longer: different waits are tried
		if got := ask(local, true, 30*time.Second, ours); got > time.Minute {
			t.Errorf("%s: told to wait %s, want less than a minute", local, got)
		}
	}
}

// bytesOf returns an IP address in the form of messages.
func bytesOf(source string) []byte {
	if source == "" {
		return nil
	}
	return netip.MustParseAddr(source).AsSlice()
}

// TestAGreylistedConnectionIsNotComeBackTo: if all addresses of a connection were deferred, they are asked again in
// another connection.
func TestAGreylistedConnectionIsNotComeBackTo(t *testing.T) {
	opened := begin.Add(time.Minute)
	for _, c := range []struct {
		name       string
		told, well int
		queued     int
		putOff     time.Duration // behind opened
		stale      bool
	}{
		{"all were put off, and one comes back", 3, 0, 1, time.Second, true},
		{"one was let through", 3, 2, 1, time.Second, false},
		{"it was put off in a session before", 3, 0, 1, -time.Second, false},
		{"nobody waits", 3, 0, 0, time.Second, false},
		{"nothing was asked yet", 0, 0, 1, time.Second, false},
	} {
		queue := fairqueue.New[*Probe](nil)
		l := &hostQueue{waiting: queue.NewHostQueue("mx1.example")}
		for range c.queued {
			l.Push(queue.Flow(uuid.Nil, uuid.Nil), &Probe{}, fairqueue.Normal)
		}
		l.greyed = opened.Add(c.putOff)
		s := &session{sessionRecord: sessionRecord{answers: c.told, well: c.well}, opened: opened, queue: l}
		effort.Is(t, s.stale(), c.stale, c.name, "stale")
	}
	w := newWorld(t, openedWide(), 1)
	m := offerOf(1, "d.example", 1, 2, hosts("mx1"))
	m.Probes[0].GreylistedMs = 5_000
	w.offer(m)
	for _, l := range w.scheduler.queues.all {
		if want := w.now.Add(-5 * time.Second); !l.greyed.Equal(want) {
			t.Errorf("put off at %s, want %s", l.greyed, want)
		}
	}
}

// TestOnlyBadAddressesForHours: a list of bad addresses is answered to its end, so slowly that a guard that allows 25
// refusals in an hour, by any clock, stays asleep.
func TestOnlyBadAddressesForHours(t *testing.T) {
	w := newWorld(t, stranger(), 1)
	w.reply = func(*Probe, *simSession) smtp.Reply { return noSuchUser }
	invalid := 0
	w.collect(1, func(_ string, a heard) {
		if a.agrees(t); a.outcome == smtp.Invalid {
			invalid++
		}
	})
	w.offer(offerOf(1, "d.example", 1, 100, hosts("mx1")))
	w.run(begin.Add(6 * time.Hour))
	slices.SortFunc(w.rcpts, time.Time.Compare)
	checkRate(t, "refused", w.rcpts, throttle.Rate{Events: 24, Per: time.Hour})
	effort.Is(t, invalid, 100, "100 answered in six hours")
}

// TestHalfBadAddresses: beyond the refusals that an hour allows, refusals stay fewer than acceptances.
func TestHalfBadAddresses(t *testing.T) {
	w := newWorld(t, stranger(), 1)
	refused, accepted := 0, 0
	w.reply = func(*Probe, *simSession) smtp.Reply {
		if w.rand.IntN(10) < 7 {
			if refused++; refused > 20 && refused > accepted {
				t.Errorf("%d refused, %d accepted", refused, accepted)
			}
			return noSuchUser
		}
		accepted++
		return smtp.Reply{Code: 250}
	}
	w.offer(offerOf(1, "d.example", 1, 500, hosts("mx1")))
	if w.run(begin.Add(59 * time.Minute)); refused < 20 || accepted < 5 {
		t.Errorf("%d refused, %d accepted", refused, accepted)
	}
}
