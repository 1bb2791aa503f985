package domain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// TestCaseOfAnAddress: all attempts, in order, with what else the outcome rests on.
func TestCaseOfAnAddress(t *testing.T) {
	b := newBench(t, testOptions(), 1)
	b.reach()
	b.answers(b.offered(), 1, greylisted)
	b.pass(time.Minute)
	b.answers(b.offered(), 1, judgement{reason: smtp.TimedOut, code: 450})
	b.pass(5 * time.Minute)
	evidence, told := b.now, b.offered()
	b.now = b.now.Add(3 * time.Second) // the answer takes a while
	b.takeResults(b.now, results(told, 1, evidence, told.GetProbes(), refused.toAll))
	b.look()
	c := b.done[0].Case
	var reasons []smtp.Reason
	for _, a := range c.Attempts {
		reasons = append(reasons, a.Reason)
		effort.ErrorIf(t, a.Text != "as the receiver said" || a.Rule != "a-rule" || a.Source != "192.0.2.77",
			"an attempt has lost something: %+v", a)
	}
	effort.Equal(t, reasons, []smtp.Reason{smtp.Greylisted, smtp.TimedOut, smtp.MailboxNotFound}, "attempts")
	effort.ErrorIf(t, c.Hosts != 1 || c.GaveUp || c.Omitted != 0 || !c.Attempts[1].At.Equal(morning.Add(time.Minute)) ||
		!b.done[0].At.Equal(evidence) || !c.Attempts[2].At.Equal(evidence), "the case is %+v, the outcome of %v", c,
		b.done[0].At)
}

// TestCasesOfWhatIsGivenUp: why nobody asks any more is in the case.
func TestCasesOfWhatIsGivenUp(t *testing.T) {
	long := 2 * time.Hour
	for _, c := range []struct {
		name    string
		do      func(b *bench)
		noRoute smtp.Reason
		why     smtp.Reason
		reason  smtp.Reason // of the outcome
	}{
		{"the receiver's last word", func(b *bench) {
			b.answers(b.offered(), 1, judgement{reason: smtp.Greylisted, wait: long})
		}, 0, 0, smtp.Greylisted},
		{"nobody was asked at last", func(b *bench) {
			b.answers(b.offered(), 1, greylisted)
			b.pass(time.Minute)
			b.answers(b.offered(), 1, judgement{reason: smtp.ReceiverBusy, wait: long, silent: true})
		}, 0, smtp.ReceiverBusy, smtp.ReceiverBusy},
		{"nobody was asked at all", func(b *bench) {
			for range 2 {
				b.answers(b.offered(), 1, judgement{reason: smtp.ReceiverBusy, wait: long, silent: true})
				b.pass(2 * long)
			}
		}, 0, smtp.ReceiverBusy, smtp.ReceiverBusy},
		{"an outcome without evidence", func(b *bench) {
			for range 2 {
				b.answers(b.offered(), 1, judgement{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, wait: long,
					silent: true})
				b.pass(2 * long)
			}
		}, 0, smtp.MailboxNotFound, smtp.MailboxNotFound},
		{"the session was poisoned", func(b *bench) {
			b.answers(b.offered(), 1, judgement{outcome: smtp.Valid, reason: smtp.HarvestGuard, wait: long, void: true})
		}, 0, smtp.HarvestGuard, smtp.HarvestGuard},
		{"the deadline, while it waits", func(b *bench) {
			b.work.Deadline = b.now.Add(59 * time.Minute)
			b.answers(b.offered(), 1, judgement{reason: smtp.Greylisted, wait: 50 * time.Minute})
			b.work.Deadline = b.now.Add(30 * time.Minute)
			b.pass(30 * time.Minute)
		}, 0, 0, smtp.Greylisted},
		{"the deadline, while the receiver does not let us ask", func(b *bench) {
			b.answers(b.offered(), 1, greylisted)
			b.work.Deadline = b.now.Add(30 * time.Minute)
			b.pass(time.Minute)
			b.lives(29 * time.Minute)
			b.holdWork(b.now, true)
			b.look()
		}, 0, smtp.ReceiverRateLimited, smtp.ReceiverRateLimited},
		{"name servers are silent at last", func(b *bench) {
			b.answers(b.offered(), 1, greylisted)
			b.route.Expires = b.now
			for range 20 {
				if b.pass(5 * time.Minute); b.route.asked {
					b.takeRoute(b.now, mx.Route{}, errDNS)
					b.look()
				}
			}
		}, smtp.DNSFailed, 0, smtp.DNSFailed},
		{"receivers fail over it", func(b *bench) {
			for len(b.done) == 0 {
				b.backlog.receiver.lost = lostMax
				if b.receivers(true); len(b.backlog.chunks) == 0 {
					b.pass(5 * time.Minute)
					b.receivers(true)
				}
				b.backlog.loseReceiver(b.now, lostSure)
				b.look()
			}
		}, 0, smtp.Internal, smtp.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.reach()
			c.do(b)
			b.is(0, smtp.Unknown, c.reason)
			got := b.done[0].Case
			effort.ErrorIf(t, !got.GaveUp || got.NoRoute != c.noRoute || got.Why != c.why,
				"gave up: %v, no route: %v, why: %v; want %v and %v", got.GaveUp, got.NoRoute, got.Why, c.noRoute,
				c.why)
		})
	}
}

// TestEveryHostMustDeny: that a domain is not served is believed when all hosts of
// the route say so, and those of a route that was there before.
func TestEveryHostMustDeny(t *testing.T) {
	denied := judgement{reason: smtp.DomainNotHosted, code: 550}
	two := testRoute
	two.Hosts = append(slices.Clone(two.Hosts), mx.Host{Name: "mx2.receiver.test", Addrs: two.Hosts[0].Addrs})
	for name, c := range map[string]struct {
		route mx.Route
		final bool
	}{"the only one": {testRoute, true}, "one of two": {two, false}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), 1)
			b.takeRoute(b.now, c.route, nil)
			b.look()
			b.finds(true)
			b.answers(b.offered(), 1, denied)
			effort.MustBe(t, len(b.done) == 1, c.final, len(b.done), "are final")
			if c.final {
				b.is(0, smtp.Invalid, smtp.DomainNotHosted)
				return
			}
			other := testRoute // the route changes to a host that was not asked
			other.Hosts = []mx.Host{{Name: "new.receiver.test", Addrs: testRoute.Hosts[0].Addrs}}
			b.route.Expires = b.now
			b.pass(time.Minute)
			b.takeRoute(b.now, other, nil)
			b.look()
			b.answers(b.offered(), 1, judgement{reason: smtp.TimedOut, code: 450, host: "new.receiver.test"})
			effort.ErrorIf(t, len(b.done) > 0,
				"final as %v: the denial of a host that is gone is not that of the new one", b.done[0])
		})
	}
}

// TestManyBecomeFinalInTurns: cases are large, so they are told some at a time.
func TestManyBecomeFinalInTurns(t *testing.T) {
	n := 2*finalsMax + 5
	for name, do := range map[string]func(b *bench){
		"closed":  func(b *bench) { b.takeRoute(b.now, mx.Route{NoMail: smtp.NoMailService}, nil) },
		"expired": func(b *bench) { b.work.Deadline = b.now },
		"silent": func(b *bench) {
			b.options.GiveUpAfter = time.Nanosecond
			b.planner.options.Waits = always(time.Hour)
			b.now = b.now.Add(time.Hour)
			b.takeRoute(b.now, mx.Route{}, errDNS)
			b.look()
			b.now = b.now.Add(time.Hour)
		},
		"believed": func(b *bench) {
			b.reach()
			for len(b.controls.accepted) < n {
				for _, o := range b.offersInOrder() {
					for _, p := range o.GetProbes() {
						if p.GetOrdinal() != controlOrdinal {
							b.answers(o, uint64(p.GetOrdinal()), accepted, p.GetOrdinal())
						}
					}
				}
			}
			for _, o := range b.offersInOrder() {
				b.answers(o, 1<<40, refused)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), n)
			do(b)
			for turn := 0; b.left > 0; turn++ {
				before := len(b.done)
				if b.look(); len(b.done)-before > finalsMax || turn > 10 {
					t.Fatalf("%d became final in turn %d", len(b.done)-before, turn)
				}
				if full := len(b.done)-before == finalsMax; b.left > 0 && full && !b.wakes.Equal(b.now.Add(drainPause)) {
					t.Fatalf("woken at %v, want soon", b.wakes)
				}
				switch {
				case b.route.asked:
					b.takeRoute(b.now, mx.Route{}, errDNS)
				case !b.draining:
					b.now = b.wakes
				}
			}
		})
	}
}

// anyAttempt draws an attempt of a few kinds, some with words that nobody else says.
func anyAttempt(t *rapid.T, i int) evidence.Attempt {
	a := evidence.Attempt{At: morning.Add(time.Duration(i) * time.Second), Host: "mx.test", Source: "192.0.2.1",
		Code: rapid.SampledFrom([]int{450, 451, 250}).Draw(t, "code"), Reason: smtp.Greylisted, Text: "wait"}
	if rapid.Bool().Draw(t, "unique") {
		a.Text = fmt.Sprint("ticket ", i)
	}
	return a
}

// TestTheAttemptLogKeepsCases: what is taken out is what was put in, as evidence.Case keeps
// it, whatever is kept beside it; and at the end nothing is left.
func TestTheAttemptLogKeepsCases(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		r := newAttemptLog(NewLoad(equalWeight))
		records := make([]pending, rapid.IntRange(1, 5).Draw(t, "addresses"))
		want := make([]evidence.Case, len(records))
		for i := range rapid.IntRange(1, 120).Draw(t, "attempts") {
			n := rapid.IntRange(0, len(records)-1).Draw(t, "address")
			a := anyAttempt(t, i)
			c := r.takeCase(&records[n])
			c.Add(a)
			want[n].Add(a)
			r.keepCase(&records[n], c)
		}
		for i := range records {
			got := r.takeCase(&records[i])
			effort.FatalIf(t, got.Omitted != want[i].Omitted || len(got.Attempts) != len(want[i].Attempts) ||
				len(got.Attempts) > 0 && !reflect.DeepEqual(got.Attempts, want[i].Attempts),
				"address %d has %+v, want %+v", i, got, want[i])
		}
		effort.FatalIf(t, len(r.said) != 0, "%d are kept of nothing", len(r.said))
	})
}

// TestTheAttemptLogIsBounded: a receiver that never says the same twice costs older
// attempts first, then the newest, which are counted; an acceptance is always kept.
func TestTheAttemptLogIsBounded(t *testing.T) {
	load := NewLoad(equalWeight)
	r := newAttemptLog(load)
	say := func(i int, outcome smtp.Outcome) evidence.Attempt {
		return evidence.Attempt{At: morning, Stage: smtp.StageRcpt, Code: 451, Outcome: outcome,
			Reason: smtp.Greylisted, Text: fmt.Sprintf("%01000d", i),
			Enhanced: smtp.EnhancedCode{4, 2, uint16(i % 999)}}
	}
	var list []pending
	add := func(attempts ...evidence.Attempt) evidence.Case {
		var p pending
		r.keepCase(&p, evidence.Case{Attempts: attempts})
		list = append(list, p)
		c := r.takeCase(&p)
		r.keepCase(&p, c)
		list[len(list)-1] = p
		return c
	}
	n := 0
	next := func() evidence.Attempt { n++; return say(n, smtp.Undecided) }
	for len(r.said) < saidMax {
		c := add(next(), next())
		effort.FatalIf(t, len(c.Attempts) != 2, "below the bound %d attempts are kept of 2", len(c.Attempts))
	}
	if c := add(next(), next()); len(c.Attempts) != 1 || c.Omitted != 1 || c.Attempts[0].Text != say(n, 0).Text {
		t.Fatalf("beyond it: %+v", c)
	}
	if c := add(say(1, smtp.Undecided), next()); len(c.Attempts) != 2 {
		t.Fatalf("what is said often is not kept: %+v", c)
	}
	for load.texts.Load() < textsMax-2000 {
		add(next())
	}
	add(next())
	if c := add(next()); len(c.Attempts) != 0 || c.Omitted != 1 {
		t.Fatalf("beyond the node's bound: %+v", c)
	}
	c := add(next(), say(n+1, smtp.Valid))
	effort.FatalIf(t, len(c.Attempts) != 1 || c.Omitted != 1 || c.Attempts[0].Text != "" ||
		c.Attempts[0].Outcome != smtp.Valid, "an acceptance beyond all bounds: %+v", c)
	for i := range 1000 {
		add(say(n+i, smtp.Valid))
	}
	got := len(r.said)
	effort.ErrorIf(t, got > saidMax+textsMax/1000, "%d are kept", got)
	for i := range list {
		r.takeCase(&list[i])
	}
	used := load.texts.Load()
	effort.ErrorIf(t, used != 0 || len(r.said) != 0, "at the end %d bytes count, %d are kept", used, len(r.said))
}

// TestTheEndGivesBackTheNodesShare: also of what has no outcome.
func TestTheEndGivesBackTheNodesShare(t *testing.T) {
	load := NewLoad(equalWeight)
	r := newAttemptLog(load)
	for i := range saidMax + 10 {
		r.keepCase(&pending{}, evidence.Case{Attempts: []evidence.Attempt{{Text: fmt.Sprint(i)}}})
	}
	effort.FatalIf(t, load.texts.Load() == 0, "nothing counts")
	r.close()
	r.close()
	effort.Is(t, load.texts.Load(), 0, "bytes count")
}

// twoHosts is a domain with a primary, which comes and goes, and a backup.
type twoHosts struct {
	*fastReceiver
	rand     *rand.Rand
	away     func(now time.Time) bool
	gone     *judgement      // what the primary says while it is away, before the backup is asked; nil: nothing
	said     map[uint32]bool // that it has said so
	strict   bool            // the backup tells mailboxes apart, too
	relaxed  bool            // the backup answers 252
	controls [2]int
}

// waysToBeAway is what a domain's planner hears of a primary that is away: nothing, or a refusal of its host.
var waysToBeAway = map[string]*judgement{
	"refuses, resets, has no address, never greets": nil,
	"greets 421":      {reason: smtp.ReceiverBusy, stage: smtp.StageGreeting, code: 421, host: "mx1.test", others: true},
	"greets 554":      {reason: smtp.SourceBlocked, stage: smtp.StageGreeting, code: 554, host: "mx1.test", others: true},
	"denies relaying": {reason: smtp.DomainNotHosted, code: 550, host: "mx1.test"},
	"breaks":          {reason: smtp.ConnectionFailed, stage: smtp.StageConnect, host: "mx1.test", others: true},
}

// exists says which mailboxes there are. Nobody has a control probe's.
func (w *twoHosts) exists(p *wire.Probe) bool {
	return p.GetOrdinal() != controlOrdinal && p.GetOrdinal()%3 != 0
}

// answer is what the host says that is asked now.
func (w *twoHosts) answer(p *wire.Probe) judgement {
	say := refused
	if w.exists(p) {
		say = accepted
	}
	say.host = "mx1.test"
	i := 0
	if w.away(w.now) {
		if w.gone != nil && !w.said[p.GetOrdinal()] {
			w.said[p.GetOrdinal()] = true
			return *w.gone
		}
		if say.host, i = "mx2.test", 1; !w.strict {
			say.outcome, say.reason = smtp.Valid, smtp.MailboxExists
			if w.relaxed {
				say.outcome, say.reason = smtp.CatchAll, smtp.NoRcptAnswer
			}
		}
	}
	if p.GetOrdinal() == controlOrdinal {
		w.controls[i]++
	}
	return say
}

func newTwoHosts(t *testing.T, r *rand.Rand, addresses int) *twoHosts {
	t.Helper()
	b := newBench(t, testOptions(), addresses)
	w := &twoHosts{fastReceiver: &fastReceiver{bench: b, probes: map[uint64][]*wire.Probe{}}, rand: r,
		said: map[uint32]bool{}}
	w.truth = w.answer
	b.takeRoute(b.now, mx.Route{Domain: "example.test", Receiver: "receiver.test", Expires: morning.Add(24 * time.Hour),
		Hosts: []mx.Host{{Name: "mx1.test", Preference: 10, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
			{Name: "mx2.test", Preference: 20, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}}}, nil)
	b.look()
	b.finds(true)
	w.take()
	return w
}

// run lets some time pass, or less when all addresses are final.
func (w *twoHosts) run(d time.Duration) {
	for end := w.now.Add(d); w.left > 0 && w.now.Before(end); {
		w.tick(1+w.rand.IntN(5), time.Second)
		if len(w.open) == 0 && w.wakes.After(w.now.Add(2*time.Second)) {
			w.now = w.wakes.Add(-time.Second) // nothing happens until then
		}
	}
}

// TestABehaviourIsItsHosts: a backup that accepts everything makes no missing mailbox valid, whatever the primary
// has shown before it went away; and nothing that the backup does makes a mailbox catch_all whose primary was
// heard and comes back, nor has the domain rest as for a guard.
func TestABehaviourIsItsHosts(t *testing.T) {
	for seed := range uint64(effort.Cases(40)) {
		r := rand.New(rand.NewPCG(seed, 28))
		for name, gone := range waysToBeAway {
			w := newTwoHosts(t, r, 10+r.IntN(60))
			w.gone, w.strict, w.relaxed = gone, r.IntN(4) == 0, r.IntN(4) == 0
			up := time.Duration(r.IntN(10)) * time.Second // at first
			down := time.Duration(1+r.IntN(20*60)) * time.Second
			if r.IntN(3) == 0 {
				down = time.Duration(1+r.IntN(50)) * time.Second
			}
			known := r.IntN(2) == 0
			if known {
				w.options.Facts.Learn(behaviourKey("example.test", "mx1.test"), false, w.now)
			}
			if r.IntN(4) == 0 { // the backup was asked for another file, while the primary was away
				for range 3 {
					w.options.Facts.Learn(behaviourKey("example.test", "mx2.test"), true, w.now)
				}
			}
			w.away = func(now time.Time) bool { at := now.Sub(morning); return at >= up && at < up+down }
			w.run(3 * time.Hour)
			what := fmt.Sprintf("seed %d, %s, up %v, down %v, known %v, strict %v", seed, name, up, down, known, w.strict)
			if w.left > 0 || w.route.isPaused(w.now) || w.options.Facts.guarded.Load() {
				t.Fatalf("%s: %d are left, rests until %v", what, w.left, w.route.pausedUntil())
			}
			for o, f := range w.done {
				exists := w.exists(&wire.Probe{Ordinal: o})
				switch {
				case f.Outcome == smtp.Valid && !exists, f.Outcome == smtp.Invalid && exists:
					t.Fatalf("%s: %d, which exists: %v, is %v: %+v", what, o, exists, f.Outcome, f.Case)
				case f.Outcome == smtp.CatchAll && known && !w.strict:
					t.Fatalf("%s: %d is %v though the primary is known: %+v", what, o, f.Outcome, f.Case)
				case f.Outcome == smtp.CatchAll && up+down < backupFor && !w.strict:
					t.Fatalf("%s: %d is %v though the primary was away for a moment: %+v", what, o, f.Outcome, f.Case)
				case f.Outcome == smtp.Unknown && down < 30*time.Minute:
					t.Fatalf("%s: %d is %v %v: %+v", what, o, f.Outcome, f.Reason, f.Case)
				}
			}
		}
	}
}

// TestABackupAloneIsNoAnswer: while the primary that was heard stays away, what its backup accepts ends as
// unknown, which is free.
func TestABackupAloneIsNoAnswer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 28))
	w := newTwoHosts(t, r, 60)
	w.away = func(now time.Time) bool { return now.Sub(morning) > 5*time.Second }
	w.run(4 * time.Hour)
	effort.FatalIf(t, w.left > 0, "%d are left", w.left)
	unknown := 0
	for o, f := range w.done {
		effort.Not(t, f.Outcome, smtp.CatchAll, o)
		if f.Outcome == smtp.Unknown {
			unknown++
			effort.ErrorIf(t, f.Reason != smtp.BackupOnly, "%d is unknown for %v", o, f.Reason)
		}
	}
	effort.ErrorIf(t, unknown == 0 || w.controls[1] == 0,
		"%d are unknown, the backup was asked %d control probes", unknown, w.controls[1])
}

// TestBehaviourKeysFit: the store takes the key of every domain and host.
func TestBehaviourKeysFit(t *testing.T) {
	long := fmt.Sprintf("%0250d", 1)
	k := behaviourKey(long, long+"a")
	effort.ErrorIf(t, len(factPrefix)+len(k) > 300 || k == behaviourKey(long, long+"b"), "key %q", k)
}

// TestPublicBackups are the public samples P001, P004 and P007: the behaviour is learned at the primary, which then
// refuses the connection, denies relaying, or says 451 to RCPT, and a missing mailbox is asked; and P092: two
// hosts of one preference, of which one accepts everything.
func TestPublicBackups(t *testing.T) {
	for _, tc := range []struct {
		id   string
		rank uint16     // of the second host
		says *judgement // by the first host; nil: only the second one is heard
		then bool       // the second one is asked
	}{
		{"P001", 20, nil, true},
		{"P004", 20, &judgement{reason: smtp.DomainNotHosted, code: 550, host: "mx1.test"}, true},
		{"P007", 20, &judgement{reason: smtp.ReceiverBusy, code: 451, host: "mx1.test"}, false},
		{"P092", 10, nil, true},
	} {
		w := newTwoHosts(t, rand.New(rand.NewPCG(1, 1)), 1) // user0, who does not exist
		w.route.Hosts[1].Preference = tc.rank
		w.options.Facts.Learn(behaviourKey("example.test", "mx1.test"), false, w.now)
		w.away = func(time.Time) bool { return true }
		asked := false
		w.truth = func(p *wire.Probe) judgement {
			if tc.says != nil && (!tc.then || !asked) {
				asked = true
				return *tc.says
			}
			return w.answer(p)
		}
		w.run(4 * time.Hour)
		if f := w.done[0]; w.left > 0 || f.Outcome != smtp.Unknown {
			t.Errorf("%s: %d are left, %v %v", tc.id, w.left, f.Outcome, f.Reason)
		}
	}
}
