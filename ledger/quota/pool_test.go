package quota

import (
	"math/rand/v2"
	"testing"

	"rollcall/config/effort"
)

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
