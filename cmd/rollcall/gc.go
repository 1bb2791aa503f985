package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much the heap grows between two collections, unless GOGC is set: to heapFree if it is smaller than that, within
// gcLeast and gcMost percent. Amid a list of 200,000 addresses 70 MB live, of 1,000,000 addresses 100 MB. The latter
// needs 17 µs of processor an address and at most 202 MB with 30 %, 16 µs and 217 MB with 40 %, 15 µs and 241 MB with
// 50 %; the former 23 µs and 184 MB with 40 %, 17 µs and 200 MB with up to 150 % (TestSpeed).
const (
	gcLeast, gcMost = 40, 150
	heapFree        = 128 << 20
)

// tuneCollections sets the percentage after each collection.
func tuneCollections() {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent, live := 0, []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	type collected struct{ _ *int } // it becomes garbage at once, so each collection runs its finalizer
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

// gcPercent returns how much a heap may grow of which so many bytes live.
func gcPercent(live int) int { return min(max(gcLeast, 100*(heapFree-live)/max(1, live)), gcMost) }
