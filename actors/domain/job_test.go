package domain

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	b.answers(b.offered(), 1, told{reason: smtp.TimedOut, code: 450})
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
			b.answers(b.offered(), 1, told{reason: smtp.Greylisted, wait: long})
		}, 0, 0, smtp.Greylisted},
		{"nobody was asked at last", func(b *bench) {
			b.answers(b.offered(), 1, greylisted)
			b.pass(time.Minute)
			b.answers(b.offered(), 1, told{reason: smtp.ReceiverBusy, wait: long, silent: true})
		}, 0, smtp.ReceiverBusy, smtp.ReceiverBusy},
		{"nobody was asked at all", func(b *bench) {
			for range 2 {
				b.answers(b.offered(), 1, told{reason: smtp.ReceiverBusy, wait: long, silent: true})
				b.pass(2 * long)
			}
		}, 0, smtp.ReceiverBusy, smtp.ReceiverBusy},
		{"an outcome without evidence", func(b *bench) {
			for range 2 {
				b.answers(b.offered(), 1, told{outcome: smtp.Invalid, reason: smtp.MailboxNotFound, wait: long,
					silent: true})
				b.pass(2 * long)
			}
		}, 0, smtp.MailboxNotFound, smtp.MailboxNotFound},
		{"the session was poisoned", func(b *bench) {
			b.answers(b.offered(), 1, told{outcome: smtp.Valid, reason: smtp.HarvestGuard, wait: long, void: true})
		}, 0, smtp.HarvestGuard, smtp.HarvestGuard},
		{"the deadline, while it waits", func(b *bench) {
			b.work.Deadline = b.now.Add(59 * time.Minute)
			b.answers(b.offered(), 1, told{reason: smtp.Greylisted, wait: 50 * time.Minute})
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
	denied := told{reason: smtp.DomainNotHosted, code: 550}
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
			b.answers(b.offered(), 1, told{reason: smtp.TimedOut, code: 450, host: "new.receiver.test"})
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
