package pagetest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/dashboard"
	"rollcall/ledger"
)

// TestNothingMovesWhileAFileIsWatched: results come, what it waits for changes, and so does the expected end, while
// nothing on the page leaves its place. It watches for some seconds; with -long, for five minutes.
func TestNothingMovesWhileAFileIsWatched(t *testing.T) {
	t.Parallel()
	var step atomic.Int64
	n := ownNode(t, func(o *dashboard.Options) {
		o.Waits = func(context.Context, string) (inspect.Verification, error) {
			v := inspect.Verification{}
			for i := range step.Load() % 7 {
				v.Waits = append(v.Waits, inspect.Wait{Addresses: int(i) + 1, For: inspect.ForRetry, Reason: "greylisted",
					Receiver: fmt.Sprintf("mx%d.example", i), Until: time.Now().Add(time.Hour)})
			}
			return v, nil
		}
	})
	p := n.workspace(t, "acme", 5000)
	b := newTab(t, n).as(p.join(ledger.Member))
	v := p.verifying("contacts.csv", 5000, results(3)...)
	b.goTo(p.of(v))
	b.shows("3 of 5 000 checked")
	eval[bool](b, "(window.__shift = 0) === 0")
	from, updates := time.Now(), 0
	for i := 0; i < 3 || effort.Long() && time.Since(from) < 5*time.Minute; i++ {
		updates++
		done := 3 + 6*(i+1)
		step.Add(1)
		_, err := p.book.Settle(t.Context(), ledger.Settlement{Lease: p.held, Number: int64(i) + 2,
			Results: results(done)[done-6:]})
		if err == nil && i%2 == 1 {
			at := time.Now().Add(time.Duration(i) * time.Hour)
			_, err = p.book.Wait(t.Context(), p.held, ledger.Estimate{Next: at, Expected: at,
				Why: "81 addresses wait for mx1.example, which " +
					"makes strangers come back later, and 12 for 3 other receivers; the last is expected at 12:00 UTC."})
		}
		effort.OK(t, err)
		b.shows(fmt.Sprintf("%d of 5 000 checked", done))
		b.shows(fmt.Sprintf("person-%d@acme.test", done-1)) // among the newest results
	}
	if moved := b.shift(); moved != 0 {
		t.Errorf("after %d updates what was shown had moved: %f, by %s", updates, moved,
			eval[string](b, "window.__moved || ''"))
	}
}
