package receiver

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// blocked makes a scheduler that has learned everything, and whose source is refused by a lane and
// by the whole receiver.
func blocked(now time.Time) *Scheduler {
	d := taught(now)
	told := judgedAt(now, "mx1", smtp.Address{}, &smtp.Failure{Stage: smtp.StageMail,
		Reply: smtp.Reply{Code: 554, Lines: []string{"5.7.1 your address is on our block list"}}})
	o := d.paths.all[0]
	d.queues.all["mx1,mx2,"].refusalOf(o).extend(now, told, 0)
	o.extend(now, told, 0)
	o.grey.enough = 5 * time.Minute
	return d
}

// knows says what of the three parts a scheduler has learned.
func knows(d *Scheduler, now time.Time) (parts string) {
	o, l := d.paths.all[0], d.queues.all["mx1,mx2,"]
	if o.rate.Explain(now.Add(time.Minute)).Edge > 0 {
		parts += " pace"
	}
	if d.allowance.learned != (learned{}) {
		parts += " sessions"
	}
	if now.Before(d.penalties.paused) || d.penalties.pauses > 0 || now.Before(o.until) || l.refusals[o] != nil ||
		l.candidates[0].failures > 0 {
		parts += " block"
	}
	if o.grey != (greylist{}) || l.tlsModeNow(now) != smtp.TLSOpportunistic {
		parts += " rest"
	}
	return strings.TrimSpace(parts)
}

// TestWhatIsForgottenIsGone, what is not named stays, and each thing is told once: here, and
// in what the next scheduler reads.
func TestWhatIsForgottenIsGone(t *testing.T) {
	for _, tc := range []struct {
		what, left string
		told       []string
	}{
		{ForgetPace, "sessions block rest", []string{"the pace of our source default, "}},
		{ForgetSessions, "pace block rest", []string{"connections=3"}},
		{ForgetBlock, "pace sessions rest", []string{"the rest of the whole receiver until ",
			"the rest of our source default at the whole receiver until ",
			"the rest of our source default at mx1,mx2 until ", "the rest of the host mx1 ["}},
		{ForgetAll, "", []string{"the pace of ", "connections=3", "the rest of the whole receiver",
			"how long it greylists our source default: 5m0s sufficed", "the TLS mode of mx1,mx2"}},
	} {
		d := blocked(begin)
		if got := knows(d, begin); got != "pace sessions block rest" {
			t.Fatalf("before: %q", got)
		}
		refused := d.paths.all[0].refusals.refused(begin)
		dropped := d.memory.forgetLearned(begin, tc.what)
		if got := knows(d, begin); got != tc.left {
			t.Errorf("%s: %q is left, want %q", tc.what, got, tc.left)
		}
		for _, want := range tc.told {
			if n := strings.Count(strings.Join(dropped, "\n"), want); n != 1 {
				t.Errorf("%s: %q is told %d times in %q", tc.what, want, n, dropped)
			}
		}
		if got := d.paths.all[0].refusals.refused(begin); got != refused {
			t.Errorf("%s: %d refusals of the hour became %d", tc.what, refused, got)
		}
		if again := d.memory.forgetLearned(begin, tc.what); len(again) > 0 {
			t.Errorf("%s: a second time drops %q", tc.what, again)
		}
		fact, worth := d.memory.snapshot(begin)
		next := rememberer(begin, 0)
		next.memory.recallSnapshot(begin, fact.Data)
		next.queues.hostQueue(begin, hosts("mx1", "mx2"))
		if got := knows(next, begin); !worth || got != tc.left && got != strings.TrimSuffix(tc.left, " rest") {
			t.Errorf("%s: the next desk knows %q", tc.what, got)
		}
	}
}

// TestNothingTakesTheOldPlace: when nothing is left to remember, that is written over what
// was kept.
func TestNothingTakesTheOldPlace(t *testing.T) {
	d := rememberer(begin, 0)
	d.allowance.learned.connections.tighten(3, begin)
	d.memory.forgetLearned(begin, ForgetAll)
	d.memory.keepSnapshot(begin, true)
	for _, s := range d.steps {
		if kept, ok := s.(KeepFact); ok {
			next := rememberer(begin, 0)
			next.memory.recallSnapshot(begin, kept.Fact.Data)
			if got := next.takeAllowance(begin).Connections; got != 4 || !kept.Fact.Expires.After(begin) {
				t.Errorf("%d sessions, expires %s", got, kept.Fact.Expires)
			}
			return
		}
	}
	t.Error("nothing is written")
}

// drawer is Facts in memory, for one goroutine.
type drawer map[string]state.Fact

func (d drawer) Learn(_ context.Context, facts []state.Fact) error {
	for _, f := range facts {
		d[f.Key] = f
	}
	return nil
}

func (d drawer) Known(_ context.Context, keys []string) (out []state.Fact, _ error) {
	for _, f := range d {
		if slices.Contains(keys, f.Key) {
			out = append(out, f)
		}
	}
	return out, nil
}

// TestWhatIsKeptOfASleepingReceiverIsForgotten: it lives nowhere, and would know it all again.
func TestWhatIsKeptOfASleepingReceiverIsForgotten(t *testing.T) {
	d := blocked(begin)
	fact, _ := d.memory.snapshot(begin)
	fact.Key = throttle.ShardKey("suffix:example.net", 1, 3)
	kept := drawer{fact.Key: fact}
	d.options.Facts = kept
	d.options.Living.stateWriter(d.options)
	got, err := d.options.Living.ForgetKept(t.Context(), "example.net", ForgetBlock)
	if err != nil || len(got) != 1 || got[0].Key != fact.Key || len(got[0].Dropped) < 3 {
		t.Fatalf("%v %+v", err, got)
	}
	next := rememberer(begin, 0)
	next.memory.recallSnapshot(begin, kept[fact.Key].Data)
	next.queues.hostQueue(begin, hosts("mx1", "mx2"))
	if left := knows(next, begin); left != "pace sessions rest" {
		t.Errorf("%q is left", left)
	}
	if got, err := d.options.Living.ForgetKept(t.Context(), "another.net", ForgetAll); err != nil || len(got) > 0 {
		t.Errorf("another: %v %v", got, err)
	}
	if m, err := state.Decode(kept[fact.Key].Data); err != nil || m.Paused != 0 {
		t.Errorf("%v %+v", err, m)
	}
}

// TestMoreAllowedBeginsANewSearch: what was learned below the old allowance is where more is
// tried at once; what never held anybody back, and an allowance that does not grow, change
// nothing.
func TestMoreAllowedBeginsANewSearch(t *testing.T) {
	allow := openedWide()
	o := testOptions(allow)
	allow.RcptsPerConnection = 100
	o.Allow = func(string) throttle.Limits { return allow }
	d := New("example", o, begin)
	d.takeAllowance(begin)
	for range 3 {
		d.allowance.learned.connections.most = 0
		d.allowance.learned.connections.tighten(2, begin)
	}
	d.allowance.learned.connections.hold = time.Hour
	d.allowance.learned.connections.until = begin.Add(time.Hour)
	d.allowance.learned.perSession.tighten(10, begin)
	allow.Pause = throttle.PauseDrain // a change that allows no more
	if a := d.takeAllowance(begin.Add(time.Second)); a.Connections != 2 || a.RcptsPerConnection != 10 {
		t.Errorf("something else changed: %+v", a)
	}
	allow.Connections, allow.RcptsPerConnection = 8, 200
	if a := d.takeAllowance(begin.Add(2 * time.Second)); a.Connections != 3 || a.RcptsPerConnection != 200 {
		t.Errorf("more is allowed: %d sessions, %d in each", a.Connections, a.RcptsPerConnection)
	}
	if a := d.takeAllowance(begin.Add(2*time.Second + capacityHold)); a.Connections < 4 {
		t.Errorf("a minute later: %d sessions", a.Connections)
	}
}

// TestLessonsSaySinceWhenAndFromWhat: each limit that was learned.
func TestLessonsSaySinceWhenAndFromWhat(t *testing.T) {
	var l learned
	l.connections.tighten(2, begin)
	l.perSession.tighten(10, begin)
	l.refused.tighten(3, begin)
	l.perTransaction.tighten(5, begin)
	got := l.status(begin.Add(time.Second))
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, one := range got {
		if !one.Since.Equal(begin) || one.From == "" || !one.Until.After(begin) {
			t.Errorf("%+v, learned at %s", one, begin)
		}
	}
}
