package effort

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCheckDrawsAsManyAsTheRunIsLong(t *testing.T) {
	drawn := 0
	Check(t, func(r *rapid.T) { rapid.Int().Draw(r, "case"); drawn++ })
	if want := Cases(cases); drawn != want {
		t.Errorf("%d cases were drawn, want %d", drawn, want)
	}
}

func TestSomeAreAllUnlessTheRunIsShort(t *testing.T) {
	want := 45
	if testing.Short() {
		want = 3
	}
	if got := Some(make([]int, 45)); len(got) != want {
		t.Errorf("%d of 45 items, want %d", len(got), want)
	}
}

func TestSeedsEndWhenTheTimeIsOver(t *testing.T) {
	count := func() (n int) {
		for range Seeds(t, 200) {
			n++
		}
		return n
	}
	if got, want := count(), Cases(200); got != want {
		t.Errorf("with time left %d seeds were tried, want %d", got, want)
	}
	before := spent.Duration
	t.Cleanup(func() { spent.Duration = before })
	spent.Duration = time.Duration(Cases(int(budget))) + 1
	if got, want := count(), max(1, Cases(200)/10); got != want {
		t.Errorf("without time %d seeds were tried, want %d", got, want)
	}
}
