package scheduler

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// TestTheSchedulerIsReplayed: in drawn worlds, what a scheduler believed is what the log of its trials leads to
// again; those that it shows to people are among them.
func TestTheSchedulerIsReplayed(t *testing.T) {
	beliefs, shown, tried := 0, 0, 0
	for seed := range effort.Seeds(t, 10) {
		tried++
		w := drawMixed(rand.New(rand.NewPCG(seed, 10)))
		w.span = 2 * time.Minute
		_, tr := w.play(t, seed)
		if log := tr.scheduler.Trials(tr.now); len(log) > 1 { // there is one source
			recorded := throttle.RecordedDecisions(log)
			got, err := throttle.ReplayTrials(log)
			if err != nil || !reflect.DeepEqual(got, recorded) {
				t.Fatalf("seed %d: %v\nreplayed %v\nrecorded %v", seed, err, got, recorded)
			}
			beliefs += len(got)
			begins := log[1].At
			for _, b := range tr.scheduler.suspicions.beliefs {
				if b.First.IsZero() || b.First.Before(begins) || b.Why == "an address was put off, and then no session could be opened" {
					continue // of an experiment, from before the log, or of sessions
				}
				if shown++; !slices.ContainsFunc(got, func(d throttle.Decision) bool {
					return d.Why == b.Why && d.Scope == b.Scope.String() && d.Refused == b.Refused
				}) {
					t.Errorf("seed %d: %q is not in the log", seed, b.sentence())
				}
			}
		}
	}
	if tried >= 5 && (beliefs == 0 || shown == 0) { // fewer are tried where the machine is busy
		t.Errorf("%d beliefs, %d of them shown: too little was tried", beliefs, shown)
	}
}

// TestTheLogEndsWithItsScheduler: the room is given back.
func TestTheLogEndsWithItsScheduler(t *testing.T) {
	w := drawMixed(rand.New(rand.NewPCG(2, 10)))
	w.far.odd, w.span = []oddOf{{share: 0.2, cut: true}}, 30*time.Second
	_, tr := w.play(t, 2)
	if len(tr.scheduler.Trials(tr.now)) == 0 {
		t.Fatal("nothing was kept")
	}
	if tr.scheduler.Close(tr.now); len(tr.scheduler.Trials(tr.now)) != 0 {
		t.Error("the log is still there")
	}
}
