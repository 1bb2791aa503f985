package quota

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"rollcall/config/effort"
)

func TestANewTenantNeverWaitsForAGreedyOne(t *testing.T) {
	q := NewSlots[int](100, nil)
	for range 10_000 {
		q.Ask(0, nil, func() {})
	}
	effort.MustBe(t, q.Used(), 50, "one alone has")
	effort.MustBe(t, q.Waiting(), 9_950, "one alone has")
	for i := range 10 {
		_, now := q.Ask(1, nil, func() {})
		effort.ErrorIf(t, !now, "number %d of another tenant waits", i)
	}
}

func TestWhoCameFirstGoesFirst(t *testing.T) {
	q := NewSlots[int](2, nil)
	first, _ := q.Ask(0, nil, nil)
	var order []int
	var has []*Slot[int]
	for i := range 5 {
		turn, _ := q.Ask(0, nil, func() { order = append(order, i) })
		has = append(has, turn)
	}
	has[2].Done() // it does not want to wait any more
	first.Done()
	for _, i := range []int{0, 1, 3, 4} {
		has[i].Done()
		has[i].Done()
	}
	effort.ErrorIf(t, len(order) != 4 || order[0] != 0 || order[1] != 1 || order[2] != 3 || order[3] != 4 ||
		q.Used() != 0, "in the order %v, %d are still used", order, q.Used())
}

// TestEverybodyGetsItsTurn draws tenants that ask, end and give up in any order: nobody is left when
// all has come back, nothing is given that is not there, and nobody waits while it could have one.
func TestEverybodyGetsItsTurn(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		size, tenants := 1+r.Int64N(20), 1+r.IntN(5)
		q := NewSlots[int](size, func(t int) int { return 1 + t%2 })
		var all []*Slot[int]
		asked, granted := 0, 0
		for range 500 {
			if r.IntN(2) == 0 || len(all) == 0 {
				asked++
				turn, now := q.Ask(r.IntN(tenants), nil, func() { granted++ })
				if now {
					granted++
				}
				all = append(all, turn)
			} else {
				i := r.IntN(len(all))
				if all[i].place != nil {
					granted++ // it gives up
				}
				all[i].Done()
				all = append(all[:i], all[i+1:]...)
			}
			effort.FatalIf(t, q.Used() > size, "seed %d: %d of %d are used", seed, q.Used(), size)
			for tenant := range q.queues {
				effort.FatalIf(t, q.pool.Fits(tenant, q.weight(tenant), 1),
					"seed %d: tenant %d waits and could have one", seed, tenant)
			}
		}
		for len(all) > 0 { // those that have one end, the others get theirs
			has := slices.IndexFunc(all, func(turn *Slot[int]) bool { return turn.place == nil })
			if has < 0 {
				t.Fatalf("seed %d: %d wait and nothing is used", seed, q.Waiting())
			}
			all[has].Done()
			all = slices.Delete(all, has, has+1)
		}
		effort.FatalIf(t, granted != asked || q.Used() != 0 || q.Waiting() != 0 || len(q.ring) > tenants,
			"seed %d: %d asked, %d had their turn, %d used, %d wait", seed, asked, granted, q.Used(), q.Waiting())
	}
}

func TestManyAtOnceNeverHaveMoreThanThereIs(t *testing.T) {
	q := NewSlots[int](8, nil)
	var has, most atomic.Int64
	var all sync.WaitGroup
	for i := range 400 {
		all.Go(func() {
			leave, err := q.Enter(t.Context(), i%3)
			if err != nil {
				t.Error(err)
				return
			}
			if n := has.Add(1); n > most.Load() {
				most.Store(n)
			}
			has.Add(-1)
			leave()
		})
	}
	all.Wait()
	effort.ErrorIf(t, most.Load() > 8 || q.Used() != 0 || q.Waiting() != 0,
		"%d at once, %d used and %d wait in the end", most.Load(), q.Used(), q.Waiting())
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	q := NewSlots[int](1, nil)
	leave, _ := q.Enter(t.Context(), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Enter(ctx, 0)
	effort.ErrorIf(t, !errors.Is(err, context.Canceled) || q.Waiting() != 0, "%v, %d wait", err, q.Waiting())
	effort.ErrorIf(t, q.Take(1), "there are two of one")
	leave()
	effort.ErrorIf(t, !q.Take(1) || q.Take(2), "it is not there, or twice")
	q.Give(1)
	effort.ErrorIf(t, q.Used() != 0 || q.Waits(1), "it did not come back")
}

func TestEachFlowOfATenantHasItsTurn(t *testing.T) {
	q := NewSlots[int](2, nil)
	has, _ := q.Ask(0, "big", nil)
	var order []string
	ask := func(flow string) {
		var turn *Slot[int]
		turn, _ = q.Ask(0, flow, func() { order = append(order, flow); has = turn })
	}
	for range 1000 {
		ask("big")
	}
	ask("small")
	ask("small")
	for range 5 {
		has.Done()
	}
	effort.Is(t, strings.Join(order, " "), "big small big small big", "in the order")
}

func one(int) int { return 1 }

// greedy lets so many tenants take one after the other until none gets more.
func greedy(p *Pool[int], tenants int) {
	for more := true; more; {
		more = false
		for t := range tenants {
			more = p.Take(t, 1, 1) || more
		}
	}
}

func TestGreedyTenantsLeaveAsMuchAsOneOfThemHas(t *testing.T) {
	for _, size := range []int64{1, 2, 3, 64, 1000} {
		for _, tenants := range []int{1, 2, 3, 10} {
			p := New[int](size)
			greedy(p, tenants)
			free := size - p.Used()
			for i := range tenants {
				if has, share := p.Has(i), size/int64(tenants+1); has < share || free > 0 && has > free+1 {
					t.Errorf("of %d, %d tenants: one has %d with %d free, its share is %d", size, tenants, has, free, share)
				}
			}
			effort.ErrorIf(t, free > 0 && !p.Take(tenants, 1, 1),
				"of %d, %d tenants: %d are free and a new one gets none", size, tenants, free)
		}
	}
}

func TestAnyCourseKeepsTheSums(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		size := r.Int64N(1000)
		p := New[int](size)
		has := map[int]int64{}
		for range 500 {
			tenant, n := r.IntN(6), r.Int64N(40)
			if r.IntN(3) == 0 {
				p.Return(tenant, n)
				has[tenant] -= min(n, has[tenant])
				continue
			}
			free := size - p.Used()
			got := p.Take(tenant, 1, n)
			if want := n <= free && has[tenant]+n <= free; got != want {
				t.Fatalf("seed %d: %d more for one who has %d with %d free: %v", seed, n, has[tenant], free, got)
			}
			if got {
				has[tenant] += n
			}
		}
		sum := int64(0)
		for tenant, n := range has {
			sum += n
			effort.MustBe(t, p.Has(tenant), n, "seed", seed, "tenant", tenant, "has")
		}
		effort.FatalIf(t, sum != p.Used() || sum > size,
			"seed %d: %d used of %d, the tenants have %d", seed, p.Used(), size, sum)
	}
}

func TestFullNamesWhoHasItsShare(t *testing.T) {
	p := New[int](9)
	greedy(p, 1)
	full := p.Full(one)
	effort.ErrorIf(t, len(full) != 1 || full[0] != 0, "full: %v", full)
	p.Return(0, 2)
	effort.Is(t, len(p.Full(one)), 0, "tenants that are full, with room")
	p.Return(0, 99)
	effort.ErrorIf(t, p.Used() != 0 || p.Has(0) != 0, "%d used after all came back", p.Used())
}
