package fairqueue_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/config/effort"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// item is what waits in these tests: the flow that it belongs to.
type item struct{ tenant, flow byte }

// queue is a Queue of items whose tenants have weights by their numbers.
type queue struct{ *fairqueue.Queue[item] }

func newQueue(weights map[byte]int) queue {
	return queue{fairqueue.New[item](func(w uuid.UUID) int { return weights[w[0]] })}
}

func (q queue) flow(one item) *fairqueue.Flow[item] {
	return q.Flow(uuid.UUID{one.tenant}, uuid.UUID{one.flow})
}

func (q queue) push(h *fairqueue.HostQueue[item], one item) {
	h.Push(q.flow(one), one, fairqueue.Normal)
}

// serve takes an item out and books that it was asked.
func (q queue) serve(h *fairqueue.HostQueue[item]) item {
	one, f := h.Pop()
	q.Charge(begin, f)
	return one
}

// TestItemsGoByWeight: once all tenants wait, each is served by its weight, even if one was alone before. The flows of
// a tenant are served equally. Nobody gets more than two turns ahead.
func TestItemsGoByWeight(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		weights := map[byte]int{}
		q := newQueue(weights)
		h := q.NewHostQueue("mx")
		var all []item
		for tenant := range byte(rapid.IntRange(1, 4).Draw(rt, "tenants")) {
			weights[tenant] = rapid.IntRange(1, 5).Draw(rt, "weight")
			for flow := range byte(rapid.IntRange(1, 3).Draw(rt, "flows")) {
				all = append(all, item{tenant, flow})
			}
		}
		const before = 100
		for range 2 * before { // nobody who has begun runs dry
			q.push(h, all[0])
		}
		for range rapid.IntRange(0, before).Draw(rt, "before") {
			if one := rapid.SampledFrom(all).Draw(rt, "who"); q.flow(one).Queued() == 0 {
				for range 2 * before {
					q.push(h, one)
				}
			}
			q.serve(h)
		}
		for _, one := range all {
			q.push(h, one)
			q.push(h, one)
		}
		tenants, flows := map[byte]float64{}, map[item]float64{}
		for range 200 {
			one := q.serve(h)
			q.push(h, one)
			tenants[one.tenant] += 1 / float64(weights[one.tenant])
			flows[one]++
			apart(rt, "tenants", all, 2, func(i item) float64 { return tenants[i.tenant] })
			for tenant := range weights {
				of := slices.DeleteFunc(slices.Clone(all), func(i item) bool { return i.tenant != tenant })
				apart(rt, "flows", of, 2, func(i item) float64 { return flows[i] })
			}
		}
	})
}

// apart fails if one was served more than another one by more than a number of turns.
func apart(rt *rapid.T, what string, all []item, turns float64, served func(item) float64) {
	least, most := math.Inf(1), 0.0
	for _, one := range all {
		least, most = min(least, served(one)), max(most, served(one))
	}
	effort.FatalIf(rt, most-least > turns, "%s: %v and %v turns", what, least, most)
}

// TestEqualsHaveNoFixedOrder: a receiver that lets every second RCPT through lets both of two tenants through.
func TestEqualsHaveNoFixedOrder(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	for tenant := range byte(2) {
		for range 200 {
			q.push(h, item{tenant: tenant})
		}
	}
	var passed [2]int
	for k := range 200 {
		if one := q.serve(h); k%2 == 0 {
			passed[one.tenant]++
		}
	}
	effort.ErrorIf(t, min(passed[0], passed[1]) < 30, "of 100 that pass %v are theirs", passed)
}

// TestLatestComesFirst: among tenants that were served equally, the latest arrival is next.
func TestLatestComesFirst(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	for tenant := range byte(5) {
		q.push(h, item{tenant: tenant})
	}
	for want := byte(4); h.Queued() > 0; want-- {
		got := q.serve(h)
		effort.FatalIf(t, got.tenant != want, "tenant %d is served, want %d", got.tenant, want)
	}
}

// TestNobodySavesUpTurns: a tenant that was away for a thousand turns of another one gets one
// turn more than that one when it comes, and not a thousand.
func TestNobodySavesUpTurns(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	q.push(h, item{tenant: 1})
	q.push(h, item{tenant: 2})
	for range 1000 {
		q.push(h, item{tenant: 2})
		q.serve(h)
	}
	ahead := 0
	for range 100 {
		q.push(h, item{tenant: 1})
		q.push(h, item{tenant: 2})
		if q.serve(h).tenant == 1 {
			ahead++
		} else {
			ahead--
		}
		effort.FatalIf(t, ahead > 2, "%d turns more", ahead)
	}
}

// TestServedElsewhereStillGetsOn: who gets a lot in one host queue gets a quarter of another one,
// and the rest is for who gets nothing elsewhere, be that another tenant or another flow.
func TestServedElsewhereStillGetsOn(t *testing.T) {
	for name, c := range map[string]struct{ rich, poor item }{
		"tenants": {item{1, 1}, item{2, 1}}, "flows": {item{1, 1}, item{1, 2}},
	} {
		q := newQueue(nil)
		here, elsewhere := q.NewHostQueue("here"), q.NewHostQueue("elsewhere")
		got := map[item]int{}
		for range 1000 {
			q.push(elsewhere, c.rich)
			q.push(elsewhere, c.rich)
			q.serve(elsewhere)
			q.serve(elsewhere)
			q.push(here, c.rich)
			q.push(here, c.poor)
			got[q.serve(here)]++
		}
		effort.ErrorIf(t, got[c.rich] < 200 || got[c.poor] < 700, "%s: turns %v", name, got)
	}
}

// TestEverybodyGetsSessions: with more host queues than sessions, none gets a second one while
// others have none, and no tenant gets less than half of what its weight says.
func TestEverybodyGetsSessions(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		weights := map[byte]int{1: 1, 2: rapid.IntRange(1, 5).Draw(rt, "weight")}
		turns := rapid.SampledFrom([]float64{0.1, 1, 3}).Draw(rt, "turns")
		most := rapid.IntRange(1, 10).Draw(rt, "sessions")
		q := newQueue(weights)
		const hosts, rounds = 20, 600
		for n := range hosts {
			for tenant := byte(1); tenant <= 2; tenant++ {
				q.push(q.NewHostQueue(fmt.Sprintf("%d-%d", tenant, n)), item{tenant: tenant})
			}
		}
		effort.FatalIf(rt, q.Unserved() != 2*hosts, "%d of %d host queues wait for a session", q.Unserved(), 2*hosts)
		type session struct {
			h *fairqueue.HostQueue[item]
			f *fairqueue.Flow[item]
		}
		var open []session
		tenants := map[byte]int{}
		for range rounds {
			h, f := q.Next()
			if h.Sessions() > 0 {
				rt.Fatalf("%s has a session and gets another one", h.Key())
			}
			h.Opened(f)
			q.Next() // whoever opens sessions asks until there are no more
			open = append(open, session{h, f})
			one := q.serve(h)
			tenants[one.tenant]++
			q.push(h, one)
			if len(open) == most {
				open[0].h.Closed(open[0].f, turns)
				open = open[1:]
			}
		}
		for tenant, weight := range weights {
			if share := rounds * weight / (weights[1] + weights[2]); tenants[tenant] < share/2 {
				rt.Errorf("tenant %d got %d sessions, its share is %d", tenant, tenants[tenant], share)
			}
		}
	})
}

// TestHostQueuesWithASessionAreNotNext: Next leaves out those that have a session, those that
// are set aside and those in which nothing waits any more; each comes back.
func TestHostQueuesWithASessionAreNotNext(t *testing.T) {
	q := newQueue(nil)
	one, f := q.NewHostQueue("one"), q.flow(item{})
	next := func(want *fairqueue.HostQueue[item], when string) {
		t.Helper()
		got, _ := q.Next()
		effort.ErrorIf(t, got != want, "%s: %v is next, want %v", when, got, want)
	}
	next(nil, "nothing waits")
	q.push(one, item{})
	next(one, "one waits")
	one.Opened(f)
	next(nil, "it has a session")
	one.Closed(f, 1)
	next(one, "it has none any more")
	one.SetAside()
	next(nil, "it is aside")
	q.push(one, item{})
	next(nil, "more waits, and it is aside")
	one.Readmit()
	next(one, "it is back")
	one.Remove(func(item) bool { return true })
	next(nil, "all was removed")
	effort.ErrorIf(t, q.Queued() != 0 || q.Unserved() != 0 || one.Queued() != 0,
		"%d items, %d host queues, %d here", q.Queued(), q.Unserved(), one.Queued())
}

// TestOneWithASessionWaitsBehind: while a flow has a session, the other one is next, and what it
// had is booked when the session ends.
func TestOneWithASessionWaitsBehind(t *testing.T) {
	q := newQueue(nil)
	for n := range 4 {
		for tenant := range byte(2) {
			q.push(q.NewHostQueue(fmt.Sprint(tenant, n)), item{tenant: tenant})
		}
	}
	first, f := q.Next()
	first.Opened(f)
	second, g := q.Next()
	second.Opened(g)
	effort.Not(t, f, g, "one flow got both sessions")
	first.Closed(f, 10)
	second.Closed(g, 0)
	for range 3 {
		h, next := q.Next()
		effort.Is(t, next, g, "the flow that had ten turns is next")
		h.Opened(next)
		h.Closed(next, 1)
	}
}

// TestOpeningCosts: who opens sessions that are closed at once does not get all of them.
func TestOpeningCosts(t *testing.T) {
	q := newQueue(nil)
	for n := range 10 {
		for tenant := range byte(2) {
			q.push(q.NewHostQueue(fmt.Sprint(tenant, n)), item{tenant: tenant})
		}
	}
	got := map[*fairqueue.Flow[item]]int{}
	for range 10 {
		h, f := q.Next()
		h.Opened(f)
		q.Next()
		h.Closed(f, 0)
		got[f]++
	}
	for f, n := range got {
		effort.ErrorIf(t, len(got) != 2 || n != 5, "%v got %d of 10 sessions", f, n)
	}
}

// TestWeightsAreAskedForAgain: a sweep reads the weights again.
func TestWeightsAreAskedForAgain(t *testing.T) {
	weights := map[byte]int{1: 2}
	q := newQueue(weights)
	f := q.flow(item{tenant: 1})
	q.push(q.NewHostQueue("mx"), item{tenant: 1})
	weights[1] = 5
	q.Sweep(begin)
	effort.ErrorIf(t, f.Weight() != 5, "weight %d", f.Weight())
	weights[1] = -1
	q.Sweep(begin)
	effort.ErrorIf(t, f.Weight() != 1, "weight %d", f.Weight())
}

// TestEachHasRoom: one flow may use a quarter of all room, or half of what the other flows of its tenant leave, so
// that a new flow finds some.
func TestEachHasRoom(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	const most = 100_000
	fill := func(one item) int {
		n := 0
		for q.Room(q.flow(one), most) > 0 {
			q.push(h, one)
			n++
		}
		return n
	}
	for n, one := range []item{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}} {
		got, want := fill(one), []int{25_000, 12_500, 15_625, 7_813, 9_766}[n]
		effort.ErrorIf(t, got != want, "flow %d finds room for %d, want %d", n, got, want)
	}
	effort.ErrorIf(t, q.Queued() >= most, "%d items wait, at most %d may", q.Queued(), most)
}

// TestFraction: what a flow can expect, by weights and by the flows of its tenant.
func TestFraction(t *testing.T) {
	q := newQueue(map[byte]int{1: 3, 2: 1})
	h := q.NewHostQueue("mx")
	q.push(h, item{1, 1})
	for _, c := range []struct {
		one  item
		want float64
		push bool
	}{
		{item{1, 1}, 1, false},
		{item{2, 1}, 0.25, false}, // as if it waited
		{item{2, 1}, 0.25, true},
		{item{1, 1}, 0.75, false},
		{item{1, 2}, 0.375, true},
		{item{1, 1}, 0.375, false},
	} {
		if c.push {
			q.push(h, c.one)
		}
		effort.Is(t, q.Fraction(q.flow(c.one)), c.want, fmt.Sprintf("%v can expect", c.one))
	}
	effort.Is(t, q.flow(item{1, 1}).Weight(), 3, "weight")
}

// TestContended: whether somebody waits beside the first at the receiver.
func TestContended(t *testing.T) {
	q := newQueue(nil)
	h, other := q.NewHostQueue("mx"), q.NewHostQueue("other")
	q.push(h, item{1, 1})
	q.push(h, item{1, 1})
	effort.ErrorIf(t, q.Contended(), "one flow contends with itself")
	q.push(other, item{1, 2})
	effort.ErrorIf(t, !q.Contended(), "a flow in another host queue does not contend")
}

// TestRankIsThatOfTheLeastServed: the host queue in which the one waits who was served least comes before the others.
func TestRankIsThatOfTheLeastServed(t *testing.T) {
	q := newQueue(nil)
	busy, poor := q.NewHostQueue("busy"), q.NewHostQueue("poor")
	q.push(busy, item{tenant: 1})
	q.push(poor, item{tenant: 2})
	for range 3 {
		q.push(busy, item{tenant: 1})
		q.serve(busy)
	}
	effort.ErrorIf(t, poor.Rank().Compare(busy.Rank()) >= 0 || busy.Rank().Compare(poor.Rank()) <= 0,
		"%v is not before %v", poor.Rank(), busy.Rank())
	effort.Is(t, busy.Rank().Compare(busy.Rank()), 0, "a rank differs from itself")
	effort.Is(t, busy.First(), q.flow(item{tenant: 1}), "is first")
	f := q.NewHostQueue("empty").First()
	effort.ErrorIf(t, f != nil, "%v is first where nobody waits", f)
}

// TestWhoIsGoneIsForgotten: who has nothing waiting is remembered for a minute, with what was
// served, and then no more; whoever waits or has a session is never forgotten.
func TestWhoIsGoneIsForgotten(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	q.push(h, item{1, 1})
	q.push(h, item{2, 1})
	gone := q.serve(h)
	f := q.flow(gone)
	effort.Is(t, f.Queued(), 0, "queued")
	q.Sweep(begin.Add(time.Hour))
	effort.ErrorIf(t, q.Tenants() != 2, "one in the order for sessions is forgotten")
	q.Next() // the one that is gone leaves the order for sessions
	h.Opened(q.flow(item{3 - gone.tenant, 1}))
	q.Next()
	q.Sweep(begin.Add(time.Minute - 1))
	effort.Is(t, q.flow(gone), f, "forgotten within a minute")
	h.Forget()
	q.Sweep(begin.Add(time.Minute))
	effort.ErrorIf(t, q.Tenants() != 1 || h.Queued() != 1, "%d tenants, %d wait", q.Tenants(), h.Queued())
	f = q.flow(item{3 - gone.tenant, 1})
	q.serve(h)
	q.Sweep(begin.Add(time.Hour))
	effort.Is(t, q.Tenants(), 1, "one with a session is forgotten")
	h.Closed(f, 1)
	q.Sweep(begin.Add(time.Hour))
	effort.Is(t, q.Tenants(), 0, "tenants in the end")
}

// TestFIFO: items come out in the order in which they went in, also after the queue has moved them in its memory.
func TestFIFO(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		var q fairqueue.FIFO[int]
		in, out := 0, 0
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			for range rapid.SampledFrom([]int{1, 10, 3000}).Draw(rt, "push") {
				q.Push(in)
				in++
			}
			for range rapid.IntRange(0, q.Len()).Draw(rt, "pop") {
				next := q.Peek()
				effort.FatalIf(rt, next != out, "%d is next, want %d", next, out)
				got := q.Pop()
				effort.FatalIf(rt, got != out, "%d came out, want %d", got, out)
				out++
			}
			effort.FatalIf(rt, q.Len() != in-out, "%d wait, want %d", q.Len(), in-out)
		}
	})
}

// TestScarceIsSharedByWeight: where each item may use up something scarce that is worth many turns, tenants get turns
// and scarce ones together by their weights, and the flows of a tenant alike, however many of their items do so.
func TestScarceIsSharedByWeight(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		weights, bad := map[byte]int{}, map[item]float64{}
		q := newQueue(weights)
		queues := []*fairqueue.HostQueue[item]{q.NewHostQueue("mx1"), q.NewHostQueue("mx2")}
		shared := rapid.Bool().Draw(rt, "shared") // else each tenant's items wait in one of them
		worth := float64(rapid.IntRange(0, 1000).Draw(rt, "worth"))
		var all []item
		for tenant := range byte(rapid.IntRange(1, 4).Draw(rt, "tenants")) {
			weights[tenant] = rapid.IntRange(1, 5).Draw(rt, "weight")
			for flow := range byte(rapid.IntRange(1, 3).Draw(rt, "flows")) {
				one := item{tenant, flow}
				all, bad[one] = append(all, one), rapid.Float64Range(0, 1).Draw(rt, "bad")
			}
		}
		queueOf := func(one item) *fairqueue.HostQueue[item] {
			if shared {
				return queues[0]
			}
			return queues[one.tenant%2]
		}
		for _, one := range all {
			q.push(queueOf(one), one)
			q.push(queueOf(one), one)
		}
		had, tenants, draws := map[item]float64{}, map[byte]float64{}, rapid.Uint32()
		for range 300 {
			h := queues[0]
			if other := queues[1]; h.Queued() == 0 || other.Queued() > 0 && other.Rank().Compare(h.Rank()) < 0 {
				h = other
			}
			one := q.serve(h)
			q.push(h, one)
			cost := 1.0
			if float64(draws.Draw(rt, "bad")%1000)/1000 < bad[one] {
				cost += worth
				h.ChargeScarce(begin, q.flow(one), worth, math.Inf(1))
			}
			had[one] += cost
			tenants[one.tenant] += cost / float64(weights[one.tenant])
			// One in four turns goes by what was served in one host queue, as before.
			apart(rt, "tenants", all, 3+2*worth, func(i item) float64 { return tenants[i.tenant] })
			for tenant := range weights {
				of := slices.DeleteFunc(slices.Clone(all), func(i item) bool { return i.tenant != tenant })
				apart(rt, "flows", of, 3+2*worth, func(i item) float64 { return had[i] })
			}
		}
	})
}

// TestNobodyIsPutBackForEver: who used up much while another one waited for a host that is down
// waits for it no longer than the most that was said; and who was alone waits for nobody.
func TestNobodyIsPutBackForEver(t *testing.T) {
	q := newQueue(nil)
	up, down := q.NewHostQueue("up"), q.NewHostQueue("down")
	poisoned, good := item{tenant: 1}, item{tenant: 2}
	q.push(down, good)
	for range 1000 {
		q.push(up, poisoned)
		effort.MustBe(t, q.serve(up), poisoned, "is served alone")
		up.ChargeScarce(begin, q.flow(poisoned), 100, 300)
	}
	q.push(up, poisoned)
	turns := 0
	for ; up.Rank().Compare(down.Rank()) > 0; turns++ {
		q.push(down, good)
		q.serve(down)
	}
	if turns < 200 || turns > 1302 { // one for each item, and 300 for what is scarce
		t.Errorf("another one has %d turns first", turns)
	}
	turns = 0
	for q.push(up, good); q.serve(up) == good; turns++ {
		q.push(up, good)
	}
	effort.ErrorIf(t, turns > 302, "another one has %d turns first in its host queue", turns)
}

// TestScarceIsRemembered: who comes back each few minutes with one more bad item is not new each
// time; after an hour it is.
func TestScarceIsRemembered(t *testing.T) {
	q := newQueue(nil)
	h := q.NewHostQueue("mx")
	h.SetAside() // nobody asks for sessions here
	poisoned, good := item{tenant: 1}, item{tenant: 2}
	q.push(h, good)
	q.push(h, good)
	serve := func(now time.Time) (first item) {
		q.Sweep(now)
		h.Forget()
		q.push(h, poisoned)
		if first = q.serve(h); first == poisoned {
			h.ChargeScarce(now, q.flow(poisoned), 1000, 10_000)
			return first
		}
		q.push(h, good)
		h.Remove(func(i item) bool { return i == poisoned })
		return first
	}
	effort.MustBe(t, serve(begin), poisoned, "the latest is not first")
	for minutes := 2; minutes < 60; minutes += 2 {
		effort.FatalIf(t, serve(begin.Add(time.Duration(minutes)*time.Minute)) == poisoned,
			"after %d minutes it is served as if it were new", minutes)
	}
	q.Sweep(begin.Add(2 * time.Hour))
	effort.ErrorIf(t, q.Tenants() != 1, "%d tenants are remembered after two hours", q.Tenants())
}

// TestClassOf: what is spelled as people and roles spell it is normal.
func TestClassOf(t *testing.T) {
	for _, normal := range []string{"anna", "info", "hr", "a.schmidt", "maria.lopez", "jsmith", "j.smith84",
		"bob1984", "jschmidt",
		"jean-luc.picard", "sales", "postmaster", "O'Brien", "albrecht", "grzegorz.k", "li.wei", "søren", "мария",
		"given.family+tag", "ng", "tj"} {
		effort.Not(t, fairqueue.ClassOf(normal), fairqueue.Suspect, normal, "looks invented")
	}
	for _, suspect := range []string{"xkcdqrtz", "a8f3k29d7", "84729384", "qwrtpsdfg", "user1234567",
		"thisisaverylongnameofnobodyatall", "zzxcvbnm"} {
		effort.Not(t, fairqueue.ClassOf(suspect), fairqueue.Normal, suspect, "looks like a name")
	}
}

// numbered is an item of a test.
type numbered struct {
	number int
	class  fairqueue.Class
}

// TestSuspectsComeFewInARow: nothing is lost, those of a class keep their order, first ones come first, no more than
// two suspect ones come in a row while normal ones wait, and of those that are due again two for each other.
func TestSuspectsComeFewInARow(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		q := fairqueue.New[numbered](nil)
		h := q.NewHostQueue("mx")
		f := q.Flow(uuid.UUID{1}, uuid.UUID{2})
		waiting, last, row, retries := map[fairqueue.Class]int{}, map[fairqueue.Class]int{}, 0, 0
		pop := func() {
			normal := waiting[fairqueue.Normal] > 0
			one, _ := h.Pop()
			effort.FatalIf(rt, waiting[fairqueue.First] > 0 && one.class != fairqueue.First,
				"%d came while %d first ones wait", one.number, waiting[fairqueue.First])
			others := waiting[fairqueue.Normal]+waiting[fairqueue.Suspect] > 0
			if isRetry := one.class == fairqueue.Retry; one.class != fairqueue.First && others && waiting[fairqueue.Retry] > 0 &&
				isRetry != (retries < fairqueue.RetriesInRow) {
				rt.Fatalf("%d came after %d retries in a row while %v wait", one.number, retries, waiting)
			}
			waiting[one.class]--
			switch one.class {
			case fairqueue.Normal:
				row, retries = 0, 0
			case fairqueue.Suspect:
				row, retries = row+1, 0
			case fairqueue.Retry:
				retries++
			}
			effort.FatalIf(rt, normal && one.class == fairqueue.Suspect && row > fairqueue.SuspectsInRow,
				"%d suspects in a row while %d normal ones wait", row, waiting[fairqueue.Normal])
			effort.FatalIf(rt, one.number <= last[one.class], "%d came after %d", one.number, last[one.class])
			last[one.class] = one.number
		}
		for n := range rapid.IntRange(1, 100).Draw(rt, "items") {
			class := rapid.SampledFrom([]fairqueue.Class{fairqueue.Normal, fairqueue.Suspect, fairqueue.First,
				fairqueue.Retry}).Draw(rt, "class")
			h.Push(f, numbered{n + 1, class}, class)
			waiting[class]++
			for h.Queued() > 0 && rapid.Bool().Draw(rt, "pop") {
				pop()
			}
		}
		for h.Queued() > 0 {
			pop()
		}
		if waiting[fairqueue.Normal]+waiting[fairqueue.Suspect]+waiting[fairqueue.First]+
			waiting[fairqueue.Retry] != 0 {
			rt.Fatalf("lost: %v", waiting)
		}
	})
}
