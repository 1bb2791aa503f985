package scheduler

import (
	"strings"
	"testing"
	"time"

	"rollcall/actors/facts"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// blocked makes a scheduler that has learned everything, and whose source is refused by a queue and
// by the whole receiver.
func blocked(now time.Time) *Scheduler {
	d := taught(now)
	judgement := judgedAt(now, "mx1", smtp.Address{}, &smtp.Failure{Stage: smtp.StageMail,
		Reply: smtp.Reply{Code: 554, Lines: []string{"5.7.1 your address is on our block list"}}})
	o := d.paths.all[0]
	d.queues.all["mx1,mx2,"].refusalOf(o).extend(now, judgement, suspendFirst, suspendMost)
	o.extend(now, judgement, suspendFirst, suspendMost)
	mx1 := d.queues.all["mx1,mx2,"].candidates[0]
	mx1.aside, mx1.doubts = now.Add(time.Minute), 3
	o.grey.Enough = 5 * time.Minute
	return d
}

// knows says what of the three parts a scheduler has learned.
func knows(d *Scheduler, now time.Time) (parts string) {
	o, l := d.paths.all[0], d.queues.all["mx1,mx2,"]
	if o.pace.Explain().Edge > 0 {
		parts += " pace"
	}
	if d.allowance.learned != (throttle.Learned{}) {
		parts += " sessions"
	}
	if now.Before(d.paths.receiver.until) || d.paths.receiver.inRow > 0 || now.Before(o.until) || l.refusals[o] != nil ||
		l.candidates[0].failures > 0 || l.candidates[0].doubts > 0 || now.Before(l.candidates[0].aside) {
		parts += " block"
	}
	if o.grey != (throttle.Greylist{}) || l.tlsModeNow(now) != smtp.TLSOpportunistic {
		parts += " rest"
	}
	return strings.TrimSpace(parts)
}

// TestWhatIsForgottenIsGone: what is not named stays, and each thing is listed once. The same is true for the stored
// facts that the next scheduler reads.
func TestWhatIsForgottenIsGone(t *testing.T) {
	for _, tc := range []struct {
		what, left string
		told       []string
	}{
		{ForgetPace, "sessions block rest", []string{"the pace of our source default, "}},
		{ForgetSessions, "pace block rest", []string{"connections=3"}},
		{ForgetBlock, "pace sessions rest", []string{"the pause of the whole receiver until ",
			"the suspension of our source default at the whole receiver until ",
			"the suspension of our source default at mx1,mx2 until ", "the pause of the host mx1 [",
			"that the host mx1 is asked after the others until "}},
		{ForgetAll, "", []string{"the pace of ", "connections=3", "the pause of the whole receiver",
			"how long it greylists our source default: 5m0s sufficed", "the TLS mode of mx1,mx2"}},
	} {
		d := blocked(begin)
		effort.MustBe(t, knows(d, begin), "pace sessions block rest", "before")
		refused := d.paths.all[0].refusals.RefusedAt(begin)
		dropped := d.Forget(begin, tc.what)
		effort.Is(t, knows(d, begin), tc.left, tc.what, "left")
		for _, want := range tc.told {
			effort.Is(t, strings.Count(strings.Join(dropped, "\n"), want), 1, tc.what, want, "told in", dropped)
		}
		effort.Is(t, d.paths.all[0].refusals.RefusedAt(begin), refused, tc.what, "refusals of the hour became")
		if again := d.Forget(begin, tc.what); len(again) > 0 {
			t.Errorf("%s: a second time drops %q", tc.what, again)
		}
		fact, worth := d.snapshot(begin)
		next := rememberer(begin, 0)
		next.Recall(begin, fact.Data)
		next.queues.hostQueue(begin, hosts("mx1", "mx2"))
		if got := knows(next, begin); !worth || got != tc.left && got != strings.TrimSuffix(tc.left, " rest") {
			t.Errorf("%s: the next desk knows %q", tc.what, got)
		}
	}
}

// TestNothingTakesTheOldPlace: when nothing is left to remember, that is written over what was kept.
func TestNothingTakesTheOldPlace(t *testing.T) {
	d := rememberer(begin, 0)
	d.allowance.learned.Connections.Tighten(3, begin)
	d.Forget(begin, ForgetAll)
	d.keepSnapshot(begin, true)
	for _, s := range d.steps {
		if kept, ok := s.(KeepFact); ok {
			next := rememberer(begin, 0)
			next.Recall(begin, kept.Fact.Data)
			if got := next.takeAllowance(begin).Connections; got != 4 || !kept.Fact.Expires.After(begin) {
				t.Errorf("%d sessions, expires %s", got, kept.Fact.Expires)
			}
			return
		}
	}
	t.Error("nothing is written")
}

// TestWhatIsKeptIsForgotten: who has the receiver next does not know it again.
func TestWhatIsKeptIsForgotten(t *testing.T) {
	d := blocked(begin)
	fact, _ := d.snapshot(begin)
	m := effort.Must(facts.Decode(fact.Data))(t)
	if dropped := ForgetSnapshot(&m, ForgetBlock); len(dropped) < 3 || m.Paused != 0 {
		t.Fatalf("%q %+v", dropped, m)
	}
	next := rememberer(begin, 0)
	next.Recall(begin, m.Encode())
	next.queues.hostQueue(begin, hosts("mx1", "mx2"))
	effort.Is(t, knows(next, begin), "pace sessions rest", "left")
}

// TestMoreAllowedBeginsANewSearch: what was learned below the old allowance is where more is tried at once; what never
// held anybody back, and an allowance that does not grow, change nothing.
func TestMoreAllowedBeginsANewSearch(t *testing.T) {
	allow := openedWide()
	o := testOptions(allow)
	allow.RcptsPerConnection = 100
	o.Allow = func(string) throttle.Limits { return allow }
	d := begunAlone("example", o, begin)
	d.takeAllowance(begin)
	for range 3 {
		d.allowance.learned.Connections.Most = 0
		d.allowance.learned.Connections.Tighten(2, begin)
	}
	d.allowance.learned.Connections.Hold = time.Hour
	d.allowance.learned.Connections.Until = begin.Add(time.Hour)
	d.allowance.learned.PerSession.Tighten(10, begin)
	allow.Pause = throttle.PauseDrain // a change that allows no more
	if a := d.takeAllowance(begin.Add(time.Second)); a.Connections != 2 || a.RcptsPerConnection != 10 {
		t.Errorf("something else changed: %+v", a)
	}
	allow.Connections, allow.RcptsPerConnection = 8, 200
	if a := d.takeAllowance(begin.Add(2 * time.Second)); a.Connections != 3 || a.RcptsPerConnection != 200 {
		t.Errorf("more is allowed: %d sessions, %d in each", a.Connections, a.RcptsPerConnection)
	}
	if a := d.takeAllowance(begin.Add(2*time.Second + throttle.CapacityHold)); a.Connections < 4 {
		t.Errorf("a minute later: %d sessions", a.Connections)
	}
}

// TestLessonsSaySinceWhenAndFromWhat: each limit that was learned.
func TestLessonsSaySinceWhenAndFromWhat(t *testing.T) {
	var l throttle.Learned
	l.Connections.Tighten(2, begin)
	l.PerSession.Tighten(10, begin)
	l.Refused.Tighten(3, begin)
	l.PerTransaction.Tighten(5, begin)
	got := learnedStatus(&l, begin.Add(time.Second))
	effort.MustBe(t, len(got), 4, got)
	for _, one := range got {
		if !one.Since.Equal(begin) || one.From == "" || !one.Until.After(begin) {
			t.Errorf("%+v, learned at %s", one, begin)
		}
	}
}
