package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp/throttle"
)

// finish is what was told at a quarter, a half and three quarters, as parts of what it was.
type finish struct {
	told [3]float64 // 0: nothing was told
	took time.Duration
	done bool
}

// finishOf plays a world until all addresses are answered, at most for a time. It compares the predicted end with
// the real one.
func finishOf(tr *trial, most time.Duration) (f finish) {
	var at [3]time.Duration
	var told [3]float64
	part := 0
	for !tr.done() && tr.now.Sub(begin) < most {
		tr.play(tr.now.Add(time.Second))
		answered := 0
		for _, t := range tr.tasks {
			answered += t.answered
		}
		for part < 3 && 4*answered >= (part+1)*tr.all {
			if n := tr.scheduler.perHour(tr.now); n > 0 {
				told[part] = float64(tr.all-answered) / n
			}
			at[part] = tr.now.Sub(begin)
			part++
		}
	}
	f.took, f.done = tr.now.Sub(begin), tr.done()
	for i, t := range told[:part] {
		f.told[i] = t / (f.took - at[i]).Hours()
	}
	return f
}

// TestToldFinish: after a quarter of a file the predicted end is within 25 % of the real one, in drawn worlds without
// penalties, hidden openings, outages, greylisting and odd mailboxes. With -long it also prints the figures of all
// worlds, and of the shipped settings, with which the share of bad addresses is known from twenty of them only.
func TestToldFinish(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	report := func(name string, f finish, judge bool) {
		if effort.Long() {
			fmt.Printf("| %s | %s | %.2f | %.2f | %.2f |\n", name, f.took.Round(time.Second), f.told[0], f.told[1], f.told[2])
		}
		if !judge || !f.done {
			return
		}
		for _, x := range f.told {
			if math.Abs(x-1) > 0.25 {
				t.Errorf("%s: told %.2f of what it was", name, f.told)
				break
			}
		}
	}
	for _, bad := range []float64{0.02, 0.05, 0.2, 0.5} {
		a := throttle.DefaultLimits()
		tr := newTrial(t, a, false, &unknownReceiver{invalid: bad}, 1)
		tr.turn, tr.jitter = 40*time.Millisecond, 10*time.Millisecond
		n := int(6 * 20 / bad)
		for d := range 4 {
			tr.add(0, fmt.Sprintf("d%d.example", d), n/4, hosts("mx1.example"))
		}
		report(fmt.Sprintf("shipped defaults, %.0f %% bad, %d addresses", 100*bad, n), finishOf(tr, 12*time.Hour), false)
	}
	for seed := range effort.Seeds(t, 20) {
		w := drawMixed(rand.New(rand.NewPCG(seed, 7)))
		l := w.far.limit
		easy := l.penalty == 0 && l.rcpts.Per <= time.Second && l.opens.Events == 0 && len(w.far.outages) == 0 && len(w.far.odd) == 0 && w.far.grey == 0
		if !easy && !effort.Long() {
			continue
		}
		tr := w.begin(t, seed)
		report(fmt.Sprintf("seed %d, easy %v, %s", seed, easy, w.what), finishOf(tr, 2*time.Hour), easy)
	}
}

// TestToldFinishBesideABudget: where twenty refusals an hour are what holds a file back, what is told about its
// end from a quarter on is within 25 % of what it is, on average: an end moves by whole hours, as the budget does.
func TestToldFinishBesideABudget(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	const worlds = 3
	for _, bad := range []float64{0.05, 0.2, 0.5} {
		var mean [3]float64
		for seed := range uint64(worlds) {
			tr := newTrial(t, throttle.DefaultLimits(), false, &unknownReceiver{invalid: bad}, seed)
			tr.turn, tr.jitter = 40*time.Millisecond, 10*time.Millisecond
			for d := range 4 {
				tr.add(0, fmt.Sprintf("d%d.x%d.example", d, seed), int(6*20/bad)/4, hosts("mx1.example"))
			}
			f := finishOf(tr, 12*time.Hour)
			for i, told := range f.told {
				if mean[i] += told / worlds; told == 0 {
					t.Errorf("%.0f %% bad, seed %d: nothing was told at one of %.2f", 100*bad, seed, f.told)
				}
			}
		}
		if t.Logf("%.0f %% bad: told %.2f of what it was", 100*bad, mean); math.Abs(mean[0]-1) > 0.25 || math.Abs(mean[1]-1) > 0.25 {
			t.Errorf("%.0f %% bad: told %.2f of what it was", 100*bad, mean)
		}
	}
}
