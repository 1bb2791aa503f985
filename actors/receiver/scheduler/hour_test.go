package scheduler

import (
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
)

// hourly returns options with a scaled hour.
func hourly(o Options, hour throttle.Hour) Options {
	o.Sources.Hour = hour
	return o
}

// TestWaitsOfAShortHour: a wait that a rule names is scaled with the hour, a wait that a receiver names is not.
func TestWaitsOfAShortHour(t *testing.T) {
	o := hourly(testOptions(openedWide()), throttle.Hour(36*time.Second))
	for text, want := range map[string]time.Duration{
		"Too many recipients received this hour": 36 * time.Second, // the rule says 1h
		"Greylisted, try again in 300 seconds":   300 * time.Second,
		"Greylisted":                             0,
	} {
		judgement := o.Judge(evidence.Raw{At: begin, Host: "mx.example.org", Stage: smtp.StageRcpt,
			Reply: smtp.Reply{Code: 452, Lines: []string{text}}, Hello: "probe.example"})
		effort.Is(t, judgement.Verdict.Wait, want, text, "by", judgement.Verdict.Rule)
	}
}

// TestRestsOfAShortHour: a receiver that refuses a source is left alone by that hour.
func TestRestsOfAShortHour(t *testing.T) {
	hour := throttle.Hour(36 * time.Second)
	al := begunAlone("example", hourly(testOptions(openedWide()), hour), begin).allowance
	var r suspension
	want := hour.Of(suspendFirst)
	for range 3 {
		if r.extend(begin, Judgement{}, al.firstSuspension(), time.Hour); r.until.Sub(begin) != want {
			t.Errorf("suspended for %v, want %v", r.until.Sub(begin), want)
		}
	}
}

// TestQuotaOfAShortHour: it allows as many refusals as a real hour, counts them by its minutes, and passes them on.
func TestQuotaOfAShortHour(t *testing.T) {
	hour := throttle.Hour(time.Minute)
	d := begunAlone("example", hourly(testOptions(throttle.DefaultLimits()), hour), begin)
	q := d.paths.all[0].refusals
	most, _ := q.Ready(begin)
	for n := range most {
		q.Begin(1)
		q.Refused(begin.Add(time.Duration(n) * time.Second))
	}
	last := begin.Add(time.Duration(most-1) * time.Second)
	n, next := q.Ready(last)
	if n != 0 || next.Sub(begin) > hour.Of(time.Hour+time.Minute) {
		t.Fatalf("%d more, the next in %v", n, next.Sub(begin))
	}
	fact, worth := d.snapshot(last)
	if !worth || len(q.Minutes) != most {
		t.Fatalf("%d minutes are counted; noted: %v", len(q.Minutes), worth)
	}
	if n, _ = q.Ready(next); n != 1 {
		t.Errorf("%d may be refused then", n)
	}
	for after, want := range map[time.Duration]int{0: 0, hour.Of(90 * time.Minute): most} {
		now := last.Add(after)
		next := begunAlone("example", hourly(testOptions(throttle.DefaultLimits()), hour), now)
		next.Recall(now, fact.Data)
		if n, _ := next.paths.all[0].refusals.Ready(now); n != want {
			t.Errorf("%v later another actor may be refused %d times, want %d", after, n, want)
		}
	}
}
