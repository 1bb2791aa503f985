package main

import "testing"

func TestSmallHeapsAreCollectedSeldom(t *testing.T) {
	for live, want := range map[int]int{0: gcMost, 40 << 20: gcMost, 64 << 20: 100, 80 << 20: 60, heapFree: gcLeast,
		1 << 40: gcLeast} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d MB: %d %%, want %d %%", live>>20, got, want)
		}
	}
}
