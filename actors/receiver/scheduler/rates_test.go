package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rollcall/smtp/throttle"
)

// TestRatesAreUsed: once the way is known, a scheduler uses nearly all of what it may, near and
// far away, and where nothing but latency bounds it no session waits but for the receiver.
func TestRatesAreUsed(t *testing.T) {
	perSecond := func(n int) throttle.Rate { return throttle.Rate{Events: n, Per: time.Second} }
	rcpts := func(w *world) float64 { return share(w.rcpts[len(w.rcpts)/2:], w.limit.RcptRate) }
	dials := func(w *world) float64 {
		third := len(w.dials) / 3
		return share(w.dials[third:2*third+1], w.limit.ConnectionRate)
	}
	for _, tc := range []struct {
		name      string
		turn      time.Duration
		addresses int
		allow     func(*throttle.Limits)
		used      func(*world) float64
		least     float64
	}{
		{"rcpt rate of a stranger", time.Millisecond, 100, func(a *throttle.Limits) { a.RcptRate = perSecond(5) },
			rcpts, 0.97},
		{"rcpt rate", time.Millisecond, 1000, func(a *throttle.Limits) { a.RcptRate = perSecond(200) }, rcpts, 0.97},
		{"rcpt rate, 100 ms away", 100 * time.Millisecond, 100, func(a *throttle.Limits) {
			a.RcptRate, a.Connections = perSecond(10), 6
		}, rcpts, 0.95},
		{"connection rate", time.Millisecond, 80, func(a *throttle.Limits) {
			a.ConnectionRate, a.RcptsPerConnection, a.Connections = perSecond(20), 1, 10
		}, dials, 0.97},
		{"connection rate, 100 ms away", 100 * time.Millisecond, 80, func(a *throttle.Limits) {
			a.ConnectionRate, a.RcptsPerConnection, a.Connections = perSecond(12), 1, 40
		}, dials, 0.95},
		{"nothing but latency", 100 * time.Millisecond, 1000, func(a *throttle.Limits) {
			a.Connections, a.RcptsPerTransaction = 10, 10
		}, func(w *world) float64 {
			times := w.rcpts[len(w.rcpts)/4 : len(w.rcpts)*3/4]
			turns := float64(w.limit.RcptsPerTransaction+2) / float64(w.limit.RcptsPerTransaction)
			return share(times, throttle.Rate{Events: w.limit.Connections, Per: time.Duration(turns * float64(w.turn))})
		}, 0.95},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := openedWide()
			tc.allow(&a)
			w := newWorld(t, a, 1)
			w.turn = tc.turn
			all := w.heard()
			for n := range tc.addresses / 100 {
				w.offer(offerOf(1, fmt.Sprintf("d%d.example", n), 1, min(100, tc.addresses), hosts("mx1")))
			}
			if tc.addresses < 100 {
				w.offer(offerOf(1, "d.example", 1, tc.addresses, hosts("mx1")))
			}
			w.run(begin.Add(time.Minute))
			slices.SortFunc(w.rcpts, time.Time.Compare)
			used := tc.used(w)
			if t.Logf("used %.1f %% of what is allowed", 100*used); used < tc.least || used > 1.001 {
				t.Errorf("used %.1f %%, %d RCPTs in %d sessions, answers for %d domains", 100*used, len(w.rcpts),
					len(w.dials), len(all))
			}
		})
	}
}
