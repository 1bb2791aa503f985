package fairqueue_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/config/effort"
)

// TestClassOf: what is spelled as people and roles spell it is normal.
func TestClassOf(t *testing.T) {
	for _, normal := range []string{"anna", "info", "hr", "a.schmidt", "maria.lopez", "jsmith", "j.smith84",
		"bob1984", "jschmidt",
		"jean-luc.picard", "sales", "postmaster", "O'Brien", "albrecht", "grzegorz.k", "li.wei", "søren", "мария",
		"given.family+tag", "ng", "tj"} {
		effort.Not(t, fairqueue.ClassOf(normal), fairqueue.Suspect, normal, "looks invented")
	}
	for _, suspect := range []string{"xkcdqrtz", "a8f3k29d7", "84729384", "qwrtpsdfg", "user1234567",
		"thisisaverylongnameofnobodyatall", "zzxcvbnm"} {
		effort.Not(t, fairqueue.ClassOf(suspect), fairqueue.Normal, suspect, "looks like a name")
	}
}

// numbered is an item of a test.
type numbered struct {
	number int
	class  fairqueue.Class
}

// TestSuspectsComeFewInARow: nothing is lost, those of a class keep their order, first ones come first, no more than
// two suspect ones come in a row while normal ones wait, and of those that are due again two for each other.
func TestSuspectsComeFewInARow(t *testing.T) {
	effort.Check(t, func(rt *rapid.T) {
		q := fairqueue.New[numbered](nil)
		h := q.NewHostQueue("mx")
		f := q.Flow(uuid.UUID{1}, uuid.UUID{2})
		waiting, last, row, retries := map[fairqueue.Class]int{}, map[fairqueue.Class]int{}, 0, 0
		pop := func() {
			normal := waiting[fairqueue.Normal] > 0
			one, _ := h.Pop()
			effort.FatalIf(rt, waiting[fairqueue.First] > 0 && one.class != fairqueue.First,
				"%d came while %d first ones wait", one.number, waiting[fairqueue.First])
			others := waiting[fairqueue.Normal]+waiting[fairqueue.Suspect] > 0
			if isRetry := one.class == fairqueue.Retry; one.class != fairqueue.First && others && waiting[fairqueue.Retry] > 0 &&
				isRetry != (retries < fairqueue.RetriesInRow) {
				rt.Fatalf("%d came after %d retries in a row while %v wait", one.number, retries, waiting)
			}
			waiting[one.class]--
			switch one.class {
			case fairqueue.Normal:
				row, retries = 0, 0
			case fairqueue.Suspect:
				row, retries = row+1, 0
			case fairqueue.Retry:
				retries++
			}
			effort.FatalIf(rt, normal && one.class == fairqueue.Suspect && row > fairqueue.SuspectsInRow,
				"%d suspects in a row while %d normal ones wait", row, waiting[fairqueue.Normal])
			effort.FatalIf(rt, one.number <= last[one.class], "%d came after %d", one.number, last[one.class])
			last[one.class] = one.number
		}
		for n := range rapid.IntRange(1, 100).Draw(rt, "items") {
			class := rapid.SampledFrom([]fairqueue.Class{fairqueue.Normal, fairqueue.Suspect, fairqueue.First,
				fairqueue.Retry}).Draw(rt, "class")
			h.Push(f, numbered{n + 1, class}, class)
			waiting[class]++
			for h.Queued() > 0 && rapid.Bool().Draw(rt, "pop") {
				pop()
			}
		}
		for h.Queued() > 0 {
			pop()
		}
		if waiting[fairqueue.Normal]+waiting[fairqueue.Suspect]+waiting[fairqueue.First]+
			waiting[fairqueue.Retry] != 0 {
			rt.Fatalf("lost: %v", waiting)
		}
	})
}
