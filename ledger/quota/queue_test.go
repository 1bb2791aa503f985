package quota

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"rollcall/config/effort"
)

const house = 0 // the tenant that goes first

// course runs a queue in a bubble, where Wait returns when everybody stands in line.
type course struct {
	t     *testing.T
	q     *Queue[int]
	mu    sync.Mutex
	got   []int // tenants, in the order in which they got a place
	lines sync.WaitGroup
}

// enter has a tenant wait for a place and keep it.
func (c *course) enter(ctx context.Context, tenant int) {
	c.lines.Go(func() {
		if _, err := c.q.Take(ctx, tenant); err == nil {
			c.mu.Lock()
			c.got = append(c.got, tenant)
			c.mu.Unlock()
		}
	})
	synctest.Wait()
}

// leave gives a tenant's place back.
func (c *course) leave(tenant int) {
	c.q.Return(tenant)
	synctest.Wait()
}

// order is who got a place since the last call.
func (c *course) order() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

func newCourse(t *testing.T, places int64, weight int) *course {
	return &course{t: t, q: NewQueue(places, weight, house)}
}

func (c *course) want(what string, want ...int) {
	c.t.Helper()
	effort.Equal(c.t, c.order(), want, what, "places went")
}

// TestAFloodDelaysOthersByOnePlace: behind 64 of one tenant, each other one waits for the place that is
// taken, and the house for it alone.
func TestAFloodDelaysOthersByOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourse(t, 1, 1)
		for range 65 {
			c.enter(t.Context(), 1)
		}
		c.want("a place is free", 1)
		c.enter(t.Context(), 2)
		c.enter(t.Context(), 3)
		c.enter(t.Context(), house)
		c.leave(1)
		c.want("the house first", house)
		c.leave(house)
		c.want("who came new", 2)
		c.leave(2)
		c.want("who came new after", 3)
		c.enter(t.Context(), 2)
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
	})
}

// TestTheHouseCannotStopTheOthers: one place in firstInRow goes to a tenant even so.
func TestTheHouseCannotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourse(t, 1, 1)
		for range 3 * firstInRow {
			c.enter(t.Context(), house)
		}
		c.enter(t.Context(), 1)
		for range firstInRow {
			c.leave(house)
		}
		got := c.order()
		effort.ErrorIf(t, slices.Contains(got, 1), "the tenant came in among the first %d: %v", firstInRow, got)
		c.leave(house)
		c.want("after so many", 1)
		c.leave(1)
		for range 2*firstInRow - 1 {
			c.leave(house)
		}
	})
}

func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCourse(t, 1, 1)
		c.enter(t.Context(), 1)
		ctx, end := context.WithCancel(t.Context())
		c.enter(ctx, 2)
		c.enter(t.Context(), 3)
		end()
		synctest.Wait()
		effort.Denied(c.q.Take(ctx, 2))(t, context.Canceled)
		c.leave(1)
		c.want("who is still there", 1, 3)
		c.enter(t.Context(), 1)
		c.q.Close()
		synctest.Wait()
		c.want("after the close nobody")
		effort.Denied(c.q.Take(t.Context(), 1))(t, ErrClosed)
		c.leave(3)
	})
}

// TestAnyCourseIsFair draws who comes, who gives up and who leaves. At each moment no place is free that
// somebody may have; and two tenants that both wait all the time get as many.
func TestAnyCourseIsFair(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			places := int64(1 + r.IntN(4))
			c := newCourse(t, places, 1+r.IntN(3))
			inside := map[int]int{}
			note := func() (got []int) {
				got = c.order()
				for _, tenant := range got {
					inside[tenant]++
				}
				return got
			}
			for range 150 {
				tenant := r.IntN(6)
				switch r.IntN(3) {
				case 0:
					c.enter(t.Context(), tenant)
				case 1:
					ctx, end := context.WithCancel(t.Context())
					c.enter(ctx, tenant)
					end()
					synctest.Wait()
				default:
					if note(); inside[tenant] > 0 {
						inside[tenant]--
						c.leave(tenant)
					}
				}
				note()
				c.check(inside, places)
			}
			c.fair(inside)
			c.q.Close()
		})
	}
}

// check wants sound sums, and nobody waiting for what he may have.
func (c *course) check(inside map[int]int, places int64) {
	c.t.Helper()
	sum := int64(0)
	for tenant, n := range inside {
		sum += int64(n)
		effort.MustBe(c.t, c.q.places.Has(tenant), int64(n), "tenant", tenant, "has", n)
	}
	if used := c.q.places.Used(); used != sum || used > places {
		c.t.Fatalf("%d of %d places are used, the tenants have %d", used, places, sum)
	}
	for _, l := range c.q.busy {
		effort.FatalIf(c.t, l.tenant == house && sum < places || l.tenant != house &&
			c.q.places.Fits(l.tenant, c.q.weight, 1), "tenant %d waits for a place that it may have", l.tenant)
	}
}

// fair fills two lines and counts what each gets while both wait, when each place is held as long.
func (c *course) fair(inside map[int]int) {
	c.t.Helper()
	var holders []int
	for tenant, n := range inside {
		holders = append(holders, slices.Repeat([]int{tenant}, n)...)
	}
	for range 40 {
		c.enter(c.t.Context(), 7)
		c.enter(c.t.Context(), 8)
	}
	got := map[int]int{}
	for range 60 {
		for _, tenant := range c.order() {
			got[tenant]++
			holders = append(holders, tenant)
		}
		c.leave(holders[0])
		holders = holders[1:]
	}
	// One that has as many places as it may lets the other go before it until it gives one back.
	if most := 1 + int(c.q.places.Size()); got[7]-got[8] > most || got[8]-got[7] > most {
		c.t.Errorf("of two that always waited, one got %d places and the other %d", got[7], got[8])
	}
}

// TestManyAtOnce has goroutines come, give up and leave without any order, for the race detector.
func TestManyAtOnce(t *testing.T) {
	q := NewQueue(3, 1, house)
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
					if _, err := q.Take(ctx, tenant); err == nil {
						effort.ErrorIf(t, inside.Add(1) > 3, "more are inside than there are places")
						inside.Add(-1)
						q.Return(tenant)
					}
					end()
				}
			})
		}
	}
	all.Wait()
	effort.Is(t, q.Waiting(), 0)
	effort.Is(t, q.places.Used(), 0)
	effort.ErrorIf(t, len(q.queues) > queuesMin+16, "%d lines are remembered", len(q.queues))
}

// TestWhoRunsAgainGoesBeforeOthersOfItsTenant, and not before those of another.
func TestWhoRunsAgainGoesBeforeOthersOfItsTenant(t *testing.T) {
	q := NewQueue(1, 2, "own")
	effort.Must(q.Take(t.Context(), "a"))(t)
	came := make(chan string, 3)
	for i, c := range []struct {
		name, tenant string
		take         func(ctx context.Context, tenant string) (bool, error)
	}{{"new", "a", q.Take}, {"other", "b", q.Take}, {"again", "a", q.TakeAgain}} {
		go func() {
			waited, err := c.take(t.Context(), c.tenant)
			effort.ErrorIf(t, err != nil || !waited, "%s: waited %v, %v", c.name, waited, err)
			came <- c.name
			q.Return(c.tenant)
		}()
		for q.Waiting() <= i {
			runtime.Gosched()
		}
	}
	q.Return("a")
	for _, want := range []string{"other", "again", "new"} {
		effort.Is(t, <-came, want)
	}
}
