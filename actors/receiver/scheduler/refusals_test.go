package scheduler

import (
	"testing"
	"time"

	"rollcall/actors/wire"
	"rollcall/config/effort"
)

// poisoned is a list of bad addresses beside a good list, at a receiver that may refuse twenty addresses in an hour.
type poisoned struct {
	name     string
	invalid  []float64 // of each list
	oneOwner bool      // both lists are of one customer
	apart    bool      // each has a set of hosts of its own
	late     bool      // the poisoned list came first, an hour before
	fast     bool      // thirty a second are allowed
}

// play returns how many addresses of the last list were answered in four hours.
func (p poisoned) play(t *testing.T, lists []float64, seed uint64) (int, *trial) {
	t.Helper()
	a := openedWide()
	a.RcptRate, a.ConnectionRate, a.Connections = rate(1, time.Second), rate(1, time.Second), 2
	if p.fast {
		a.RcptRate = rate(30, time.Second)
	}
	a.RefusedPerHour, a.RcptsPerConnection, a.RefusedPerSession = 20, 100, 10
	tr := newTrial(t, a, true, &unknownReceiver{listed: lists}, seed)
	tr.turn, tr.jitter = 40*time.Millisecond, 10*time.Millisecond
	begun := 0
	for i, share := range lists {
		if share < 0 { // the other one is alone
			continue
		}
		route := hosts("mx1.example")
		if p.apart {
			route = []*wire.Host{hosts("mx1.example", "mx2.example")[i%2]}
		}
		if p.late && i == len(lists)-1 && i > 0 {
			tr.play(begin.Add(time.Hour))
			begun = 3600
		}
		tr.add(i, "d.example", 20_000, route)
		if p.oneOwner {
			tr.tasks[len(tr.tasks)-1].workspace = id(100)
		}
	}
	tr.play(begin.Add(time.Duration(begun)*time.Second + 4*time.Hour))
	return tr.between(begun, begun+4*3600).goodOf[len(lists)-1], tr
}

// TestOnePoisonedListLeavesOthersTheirPart: where twenty refusals an hour are allowed, a list beside one that is full
// of invalid addresses gets at least a third of what it gets alone: about half of the refusals are its own. So does a
// file beside another one of the same customer, and who comes later. The poisoned list gets its own half.
func TestOnePoisonedListLeavesOthersTheirPart(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	for seed, p := range []poisoned{
		{name: "two customers", invalid: []float64{1, 0.05}},
		{name: "a quarter bad", invalid: []float64{0.8, 0.25}},
		{name: "one in fifty bad", invalid: []float64{1, 0.02}},
		{name: "two files of one customer", invalid: []float64{1, 0.05}, oneOwner: true},
		{name: "hosts of their own", invalid: []float64{1, 0.05}, apart: true},
		{name: "hosts of their own, fast", invalid: []float64{1, 0.05}, apart: true, fast: true},
		{name: "two customers, fast", invalid: []float64{1, 0.05}, fast: true},
		{name: "who comes later", invalid: []float64{1, 0.05}, late: true},
	} {
		last := p.invalid[1]
		alone, _ := poisoned{fast: p.fast}.play(t, []float64{-1, last}, uint64(seed))
		beside, tr := p.play(t, p.invalid, uint64(seed))
		from := 0
		if p.late {
			from = 3600
		}
		other := tr.between(from, from+4*3600).goodOf[0]
		t.Logf("%s: alone %d, beside %d (%.0f %%); the other one %d", p.name, alone, beside,
			100*float64(beside)/float64(alone), other)
		if 3*beside < alone { // half of them, and 40 refusals of one in fifty are 2,000 answers give or take a sixth
			t.Errorf("%s: %d answers beside a poisoned list, %d alone", p.name, beside, alone)
		}
		if other < 25 { // of 80 refusals in four hours 40 are its own
			t.Errorf("%s: the poisoned list had %d answers", p.name, other)
		}
	}
	first, _ := poisoned{}.play(t, []float64{1}, 9)
	if first < 80 {
		t.Errorf("a poisoned list alone had %d answers in four hours, 80 are allowed", first)
	}
}
