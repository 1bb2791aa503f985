package fairqueue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/config/effort"
)

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
