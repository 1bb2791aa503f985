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

const house = 0 // the tenant that goes first

// course is the asking and leaving of some tenants.
type course struct {
	t   *testing.T
	q   *Slots[int]
	got []int // tenants, in the order in which they got a place
	has map[int][]*Slot[int]
}

func newCourse(t *testing.T, places int64, weight int) *course {
	return &course{t: t, q: NewSlotsFirst(places, func(int) int { return weight }, house), has: map[int][]*Slot[int]{}}
}

// enter has a tenant ask for a place and keep it.
func (c *course) enter(tenant int) (slot *Slot[int]) {
	gets := func() {
		c.got = append(c.got, tenant)
		c.has[tenant] = append(c.has[tenant], slot)
	}
	var now bool
	if slot, now = c.q.Ask(tenant, nil, func() { gets() }); now {
		gets()
	}
	return slot
}

// leave gives a tenant's place back.
func (c *course) leave(tenant int) {
	slot := c.has[tenant][0]
	c.has[tenant] = c.has[tenant][1:]
	slot.Done()
}

// order is who got a place since the last call.
func (c *course) order() []int {
	got := c.got
	c.got = nil
	return got
}

func (c *course) want(what string, want ...int) {
	c.t.Helper()
	effort.Equal(c.t, c.order(), want, what, "places went")
}

// TestAFloodDelaysOthersByOnePlace: behind 64 of one tenant, each other one waits for the place that is
// taken, and the house for it alone.
func TestAFloodDelaysOthersByOnePlace(t *testing.T) {
	c := newCourse(t, 1, 1)
	for range 65 {
		c.enter(1)
	}
	c.want("a place is free", 1)
	c.enter(2)
	c.enter(3)
	c.enter(house)
	c.leave(1)
	c.want("the house first", house)
	c.leave(house)
	c.want("who came new", 2)
	c.leave(2)
	c.want("who came new after", 3)
	c.enter(2)
	c.leave(3)
	c.want("the flood has had one place, as the others", 1)
	c.leave(1)
	c.want("turns go round", 2)
	c.leave(2)
	for range 63 {
		c.want("nobody else waits", 1)
		c.leave(1)
	}
	effort.Is(t, c.q.Waiting(), 0)
}

// TestTheHouseCannotStopTheOthers: one place in firstInRow goes to a tenant even so, whether the house asks for all at
// once or for one after the other.
func TestTheHouseCannotStopTheOthers(t *testing.T) {
	for name, ahead := range map[string]int{"at once": 3 * firstInRow, "one after the other": 2} {
		c := newCourse(t, 1, 1)
		for range ahead {
			c.enter(house)
		}
		c.enter(1)
		for range firstInRow {
			c.leave(house)
			c.enter(house)
		}
		got := c.order()
		effort.ErrorIf(t, slices.Contains(got, 1), "%s: the tenant came in among the first %d: %v", name, firstInRow, got)
		c.leave(house)
		c.want(name+", after so many", 1)
	}
}

func TestWhoCameFirstGoesFirst(t *testing.T) {
	c := newCourse(t, 1, 1)
	c.enter(1)
	gives := c.enter(2)
	c.enter(3)
	gives.Done()
	c.leave(1)
	c.want("who is still there", 1, 3)
	again := c.enter(3)
	c.enter(2)
	effort.ErrorIf(t, again.place == nil || !c.q.Waits(3) || c.q.Waits(1), "who waits is not said")
	c.leave(3)
	c.want("who has not had one", 2)
	c.leave(2)
	c.want("who has", 3)
	again.Done() // its place is given back once
	again.Done()
	effort.Is(t, c.q.Used(), 0)
}

// TestWhoRunsAgainGoesBeforeOthersOfItsTenant: it does not overtake other tenants.
func TestWhoRunsAgainGoesBeforeOthersOfItsTenant(t *testing.T) {
	q := NewSlots[string](1, nil)
	has, _ := q.Ask("a", nil, nil)
	var order []string
	for _, c := range []struct {
		name, tenant string
		ask          func(tenant string, flow any, granted func()) (*Slot[string], bool)
	}{{"new", "a", q.Ask}, {"other", "b", q.Ask}, {"again", "a", q.AskAgain}} {
		var slot *Slot[string]
		slot, now := c.ask(c.tenant, nil, func() { order, has = append(order, c.name), slot })
		effort.ErrorIf(t, now, "%s: got a place", c.name)
	}
	for range 3 {
		has.Done()
	}
	effort.Is(t, strings.Join(order, " "), "other again new")
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

// TestAnyCourseIsFair draws who comes, who gives up and who leaves. No place is ever free while a tenant that waits
// may take it; two tenants that always wait get equally many; and in the end every tenant had its place.
func TestAnyCourseIsFair(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		c := newCourse(t, int64(1+r.IntN(4)), 1+r.IntN(3))
		asked, given := 0, 0
		for range 300 {
			tenant := r.IntN(6)
			switch r.IntN(3) {
			case 0:
				asked++
				c.enter(tenant)
			case 1:
				if slot := c.enter(tenant); slot.place != nil {
					slot.Done()
				} else {
					asked++
				}
			default:
				if len(c.has[tenant]) > 0 {
					c.leave(tenant)
				}
			}
			given += len(c.order())
			c.check()
		}
		for c.q.Used() > 0 {
			for tenant := range c.has {
				if len(c.has[tenant]) > 0 {
					c.leave(tenant)
				}
			}
		}
		given += len(c.order())
		effort.FatalIf(t, asked != given || c.q.Waiting() != 0 || len(c.q.queues) > queuesMin,
			"seed %d: %d asked, %d had a place, %d wait", seed, asked, given, c.q.Waiting())
		c.fair()
	}
}

// check wants sound sums, and nobody waiting for what he may have.
func (c *course) check() {
	c.t.Helper()
	sum := int64(0)
	for tenant, slots := range c.has {
		sum += int64(len(slots))
		effort.MustBe(c.t, c.q.pool.Has(tenant), int64(len(slots)), "tenant", tenant)
	}
	effort.FatalIf(c.t, c.q.Used() != sum || sum > c.q.pool.Size(),
		"%d of %d places are used, the tenants have %d", c.q.Used(), c.q.pool.Size(), sum)
	for _, own := range c.q.busy {
		effort.FatalIf(c.t, c.q.pool.Fits(own.tenant, c.q.weight(own.tenant), 1),
			"tenant %d waits for a place that it may have", own.tenant)
	}
}

// fair fills two lines and counts what each gets while both wait, when each place is held as long.
func (c *course) fair() {
	c.t.Helper()
	for range 40 {
		c.enter(7)
		c.enter(8)
	}
	got, holders := map[int]int{}, []int{}
	for range 60 {
		for _, tenant := range c.order() {
			got[tenant]++
			holders = append(holders, tenant)
		}
		c.leave(holders[0])
		holders = holders[1:]
	}
	// One that has as many places as it may lets the other go before it until it gives one back.
	if most := 1 + int(c.q.pool.Size()); got[7]-got[8] > most || got[8]-got[7] > most {
		c.t.Errorf("of two that always waited, one got %d places and the other %d", got[7], got[8])
	}
}

// TestManyAtOnce has goroutines come, give up and leave without any order, for the race detector.
func TestManyAtOnce(t *testing.T) {
	q := NewSlotsFirst(3, func(int) int { return 1 }, house)
	var inside atomic.Int64
	var all sync.WaitGroup
	for tenant := range 8 {
		for range 4 {
			all.Go(func() {
				for n := range 200 {
					ctx, end := context.WithCancel(t.Context())
					if n%5 == 0 {
						end()
					}
					leave, err := q.Enter(ctx, tenant)
					if err == nil {
						effort.ErrorIf(t, inside.Add(1) > 3, "more are inside than there are places")
						inside.Add(-1)
						leave()
					}
					effort.ErrorIf(t, err != nil && !errors.Is(err, context.Canceled), "%v", err)
					end()
				}
			})
		}
	}
	all.Wait()
	effort.ErrorIf(t, q.Used() != 0 || q.Waiting() != 0 || len(q.queues) > queuesMin+16,
		"%d used and %d wait in the end, %d queues are remembered", q.Used(), q.Waiting(), len(q.queues))
}

func one(int) int { return 1 }

// greedy lets tenants take one place after the other in turn until none gets more.
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
