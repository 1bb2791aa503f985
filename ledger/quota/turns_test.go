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
