package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The heap is collected when it reaches heapFree, or earlier when it has grown by gcMost percent. A larger heap is
// collected when it has grown by gcLeast percent. GOGC replaces this. With 40 % throughout, a list of 200,000
// addresses, 70 MB in use, takes 23 µs of processor an address and at most 184 MB; with these numbers it takes 17 µs
// and 200 MB. For 1,000,000 addresses, 100 MB in use, 30 % would take 17 µs and 202 MB, 40 % 16 µs and 217 MB, 50 %
// 15 µs and 241 MB (TestSpeed).
const (
	gcLeast, gcMost = 40, 150
	heapFree        = 128 << 20
)

// tuneCollections sets when the heap is collected next, again after each collection.
func tuneCollections() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent, live := 0, []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	type collected struct{ _ *int } // is garbage at once, so each collection runs its finalizer
	var adjust func(c *collected)
	adjust = func(c *collected) {
		metrics.Read(live)
		if now := gcPercent(int(live[0].Value.Uint64())); now != percent {
			percent = now
			debug.SetGCPercent(now)
		}
		runtime.SetFinalizer(c, adjust)
	}
	adjust(&collected{})
}

// gcPercent returns the percentage by which a heap with live bytes in use may grow.
func gcPercent(live int) int { return min(max(gcLeast, 100*(heapFree-live)/max(1, live)), gcMost) }
