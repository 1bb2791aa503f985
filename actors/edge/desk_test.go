package edge

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// contract are the limits that customers are promised.
var contract = Limits{Reads: Rate{20, 40}, Creates: Rate{5, 20}, Downloads: 4}

func TestPartOfTheLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		k, n int
		want Limits
	}{
		{"all", 3, 3, contract},
		{"two of three", 2, 3, Limits{Rate{40.0 / 3, 26}, Rate{10.0 / 3, 13}, 2}},
		{"one of three", 1, 3, Limits{Rate{20.0 / 3, 13}, Rate{5.0 / 3, 6}, 1}},
		{"one of a hundred is the floor", 1, 100, Limits{Rate{1, 5}, Rate{1, 5}, 1}},
		{"none", 0, 3, Limits{Rate{1, 5}, Rate{1, 5}, 1}},
		{"nobody knows of how many", 0, 0, Limits{Rate{1, 5}, Rate{1, 5}, 1}},
		{"more than all", 4, 3, contract},
		{"less than none", -1, 3, Limits{Rate{1, 5}, Rate{1, 5}, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := contract.part(c.k, c.n)
			if !near(got.Reads, c.want.Reads) || !near(got.Creates, c.want.Creates) ||
				got.Downloads != c.want.Downloads {
				t.Errorf("%d/%d is %+v, want %+v", c.k, c.n, got, c.want)
			}
		})
	}
	small := Limits{Reads: Rate{0.1, 1}, Creates: Rate{0.5, 2}, Downloads: 1}
	if got := small.part(0, 3); got != small {
		t.Errorf("the floor of %+v is %+v: never more than the limits", small, got)
	}
}

func near(a, b Rate) bool { return math.Abs(a.PerSecond-b.PerSecond) < 1e-9 && a.Burst == b.Burst }

// TestWhoWaitsAsToldGetsAToken also for rates that no nanosecond divides.
func TestWhoWaitsAsToldGetsAToken(t *testing.T) {
	for _, r := range []Rate{{20, 40}, {3, 7}, {1.0 / 3, 1}, {0.7, 2}, {997, 13}} {
		now, d := time.Now(), debt{}
		if n, _ := d.take(now, r.Burst+1, r); n != r.Burst {
			t.Fatalf("%+v: a full bucket gives %d", r, n)
		}
		for range 1000 {
			n, wait := d.take(now, 1, r)
			if n != 0 || wait <= 0 {
				t.Fatalf("%+v: an empty bucket gives %d and says to wait %v", r, n, wait)
			}
			now = now.Add(wait)
			if n, _ := d.take(now, 1, r); n != 1 {
				t.Fatalf("%+v: after the wait of %v there is no token", r, wait)
			}
		}
		if n, _ := d.take(now.Add(-time.Hour), 1, r); n != 0 {
			t.Errorf("%+v: a clock that went back gives %d", r, n)
		}
	}
}

// asker makes the questions of one node.
type asker struct {
	id     byte
	number uint64
}

func (a *asker) ask(change func(m *Ask)) *Ask {
	a.number++
	node := nodeID{a.id}
	m := &Ask{Key: "key", Node: node[:], Number: a.number}
	change(m)
	return m
}

func TestDeskGrantsWhatThereIs(t *testing.T) {
	now, a, b := time.Now(), &asker{id: 1}, &asker{id: 2}
	d := newDesk("key", 7, contract)
	first := d.ask(now, a.ask(func(m *Ask) { m.Reads, m.Creates, m.Downloads = 30, 3, 3 }), 1, 1)
	if first.Reads != 30 || first.Creates != 3 || first.Downloads != 3 || first.ReadsWaitNs != 0 ||
		first.ReadsDebt != 30 || first.CreatesDebt != 3 || first.Activation != 7 || first.Number != 1 {
		t.Fatalf("the first gets %v", first)
	}
	second := d.ask(now, b.ask(func(m *Ask) { m.Reads, m.Downloads = 30, 2 }), 1, 1)
	if second.Reads != 10 || second.ReadsWaitNs != int64(50*time.Millisecond) || second.Downloads != 1 {
		t.Fatalf("the second gets %v", second)
	}
	third := d.ask(now, a.ask(func(m *Ask) { m.Held, m.Downloads = 1, 2 }), 1, 1)
	if third.Downloads != 2 {
		t.Fatalf("after two slots came back there are %v", third)
	}
	if got := d.ask(now, a.ask(func(m *Ask) { m.Held, m.Reads = 3, math.MaxUint32 }), 1, 1); got.Reads != 0 {
		t.Fatalf("an empty bucket gives %v", got)
	}
}

func TestDeskIgnoresWhatIsNotForItOrLate(t *testing.T) {
	now, d := time.Now(), newDesk("key", 7, contract)
	node := nodeID{1}
	if d.ask(now, &Ask{Key: "key", Node: node[:], Number: 5, Reads: 1}, 1, 1) == nil {
		t.Fatal("a good question has no answer")
	}
	for _, c := range []struct {
		name string
		m    *Ask
	}{
		{"another key", &Ask{Key: "other", Node: node[:], Number: 6, Reads: 1}},
		{"no node", &Ask{Key: "key", Number: 6, Reads: 1}},
		{"a long node", &Ask{Key: "key", Node: make([]byte, 17), Number: 6, Reads: 1}},
		{"repeated", &Ask{Key: "key", Node: node[:], Number: 5, Reads: 1, Held: 4}},
		{"overtaken", &Ask{Key: "key", Node: node[:], Number: 4, Reads: 1, Held: 4}},
	} {
		if got := d.ask(now, c.m, 1, 1); got != nil || d.reads.tokens != 1 || d.held(nodeID{}) != 0 {
			t.Errorf("%s: %v, %v used, %d held", c.name, got, d.reads.tokens, d.held(nodeID{}))
		}
	}
}

// TestDeskTakesOverDebts of the one before it, once, whoever tells first.
func TestDeskTakesOverDebts(t *testing.T) {
	now, a, b := time.Now(), &asker{id: 1}, &asker{id: 2}
	d := newDesk("key", 7, contract)
	heard := func(reads float64, want uint32) func(*Ask) {
		return func(m *Ask) { m.Activation, m.ReadsDebt, m.Reads = 6, reads, want }
	}
	for _, c := range []struct {
		name   string
		after  time.Duration
		m      *Ask
		reads  uint32
		inDebt float64
	}{
		{"heard ten", 0, a.ask(heard(10, 5)), 5, 15},
		{"heard no more", 0, b.ask(heard(8, 1)), 1, 16},
		{"heard twelve", 0, b.ask(heard(12, 1)), 1, 19},
		{"the same again", 0, a.ask(heard(12, 1)), 1, 20},
		{"half a second later", 500 * time.Millisecond, a.ask(heard(2, 0)), 0, 10},
		{"no number", 0, a.ask(heard(math.NaN(), 0)), 0, 10},
		{"below nothing", 0, a.ask(heard(-7, 0)), 0, 10},
		{"more than a bucket holds", 0, a.ask(heard(math.Inf(1), 0)), 0, 48},
		{"too much in debt", 0, a.ask(heard(0, 1)), 0, 48},
		{"of ourselves", 0, a.ask(func(m *Ask) { m.Activation, m.ReadsDebt = 7, 40 }), 0, 48},
	} {
		now = now.Add(c.after)
		got := d.ask(now, c.m, 1, 1)
		if got.Reads != c.reads || math.Abs(got.ReadsDebt-c.inDebt) > 1e-9 {
			t.Errorf("%s: granted %d, debt %v; want %d, %v", c.name, got.Reads, got.ReadsDebt, c.reads, c.inDebt)
		}
	}
}

func TestDeskFollowsItsShare(t *testing.T) {
	now, a := time.Now(), &asker{id: 1}
	d := newDesk("key", 7, contract)
	reads := func(m *Ask) { m.Reads, m.Downloads = 100, 100 }
	for _, c := range []struct {
		name             string
		after            time.Duration
		k, n             int
		reads, downloads uint32
	}{
		{"a third", 0, 1, 3, 13, 1},
		{"all of it again", 0, 3, 3, 27, 4},
		{"a third of what is used", 0, 1, 3, 0, 1},
		{"a third comes back", 3 * time.Second, 1, 3, 0, 1}, // 40 - 20 is still above 13
		{"nothing but the floor", 16 * time.Second, 0, 3, 1, 1},
	} {
		now = now.Add(c.after)
		if got := d.ask(now, a.ask(reads), c.k, c.n); got.Reads != c.reads || got.Downloads != c.downloads {
			t.Errorf("%s: %v, want %d reads, %d downloads", c.name, got, c.reads, c.downloads)
		}
	}
}

func TestSlotsOfSilentNodesComeBack(t *testing.T) {
	now, a, b := time.Now(), &asker{id: 1}, &asker{id: 2}
	d := newDesk("key", 7, contract)
	one := func(m *Ask) { m.Downloads = 1 }
	four := func(m *Ask) { m.Downloads = 4 }
	d.ask(now, a.ask(four), 1, 1)
	if got := d.ask(now.Add(slotLife-1), b.ask(one), 1, 1); got.Downloads != 0 {
		t.Fatal("a slot came back too early")
	}
	if d.idle(now.Add(slotLife-1), 1, 1) {
		t.Fatal("a desk with slots is idle")
	}
	if got := d.ask(now.Add(slotLife), b.ask(one), 1, 1); got.Downloads != 1 {
		t.Fatal("the slots of a node that is gone do not come back")
	}
	// It was not gone: what it holds counts, even though there is no room for it.
	d.ask(now.Add(slotLife), a.ask(func(m *Ask) { m.Held = 4 }), 1, 1)
	if got := d.held(nodeID{}); got != 5 {
		t.Fatalf("%d slots are held, want 5", got)
	}
	if !d.idle(now.Add(3*slotLife), 1, 1) || d.held(nodeID{}) != 0 {
		t.Fatal("nothing is held and nothing owed, yet the desk is not idle")
	}
}

func TestDeskIsNotIdleInDebt(t *testing.T) {
	now, a := time.Now(), &asker{id: 1}
	slow := newDesk("key", 7, Limits{Reads: Rate{0.01, 1}, Creates: Rate{1, 1}, Downloads: 1})
	slow.ask(now, a.ask(func(m *Ask) { m.Reads = 1 }), 1, 1)
	if slow.idle(now.Add(99*time.Second), 1, 1) {
		t.Error("a token that is not back is forgotten")
	}
	if !slow.idle(now.Add(101*time.Second), 1, 1) {
		t.Error("a full bucket is not forgotten")
	}
}

func TestDeskHoldsForBoundedNodes(t *testing.T) {
	now, d := time.Now(), newDesk("key", 7, contract)
	for i := range nodesMax + 10 {
		node := nodeID{byte(i), byte(i >> 8)}
		if d.ask(now, &Ask{Key: "key", Node: node[:], Number: 1, Reads: 1}, 1, 1) == nil {
			t.Fatal("no answer")
		}
	}
	if len(d.holds) != nodesMax {
		t.Errorf("%d nodes are remembered, want %d", len(d.holds), nodesMax)
	}
}

func TestOptionsAreCompleteOrRefused(t *testing.T) {
	good := Options{Limits: contract, Share: func(string) (int, int) { return 1, 1 },
		Metrics: NewMetrics(prometheus.NewRegistry())}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no share":      func(o *Options) { o.Share = nil },
		"no metrics":    func(o *Options) { o.Metrics = nil },
		"no reads":      func(o *Options) { o.Limits.Reads.PerSecond = 0 },
		"reads NaN":     func(o *Options) { o.Limits.Reads.PerSecond = math.NaN() },
		"no read burst": func(o *Options) { o.Limits.Reads.Burst = 0 },
		"no creates":    func(o *Options) { o.Limits.Creates.PerSecond = -1 },
		"no downloads":  func(o *Options) { o.Limits.Downloads = 0 },
	} {
		o := good
		spoil(&o)
		_, kinds := Kinds(o)
		_, start := Start(nil, nil, o)
		if !errors.Is(kinds, ErrOptions) || !errors.Is(start, ErrOptions) {
			t.Errorf("%s: %v, %v", name, kinds, start)
		}
	}
	if _, err := Start(nil, nil, good); !errors.Is(err, ErrOptions) {
		t.Errorf("no system: %v", err)
	}
}
