package domain

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/mx"
)

// twoHosts is a domain with a primary, which comes and goes, and a backup.
type twoHosts struct {
	*fastReceiver
	rand     *rand.Rand
	away     func(now time.Time) bool
	gone     *told           // what the primary says while it is away, before the backup is asked; nil: nothing
	said     map[uint32]bool // that it has said so
	strict   bool            // the backup tells mailboxes apart, too
	relaxed  bool            // the backup answers 252
	controls [2]int
}

// waysToBeAway is what a domain's planner hears of a primary that is away: nothing, or a refusal of its host.
var waysToBeAway = map[string]*told{
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
func (w *twoHosts) answer(p *wire.Probe) told {
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
		rank uint16 // of the second host
		says *told  // by the first host; nil: only the second one is heard
		then bool   // the second one is asked
	}{
		{"P001", 20, nil, true},
		{"P004", 20, &told{reason: smtp.DomainNotHosted, code: 550, host: "mx1.test"}, true},
		{"P007", 20, &told{reason: smtp.ReceiverBusy, code: 451, host: "mx1.test"}, false},
		{"P092", 10, nil, true},
	} {
		w := newTwoHosts(t, rand.New(rand.NewPCG(1, 1)), 1) // user0, who does not exist
		w.route.Hosts[1].Preference = tc.rank
		w.options.Facts.Learn(behaviourKey("example.test", "mx1.test"), false, w.now)
		w.away = func(time.Time) bool { return true }
		asked := false
		w.truth = func(p *wire.Probe) told {
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
