package http

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// panickyBook panics on the first question about a balance and waits in the second.
type panickyBook struct {
	Book
	asked   atomic.Int64
	entered chan struct{}
	open    chan struct{}
}

func (b *panickyBook) Balance(context.Context, uuid.UUID) (ledger.Balance, error) {
	n := b.asked.Add(1)
	b.entered <- struct{}{}
	<-b.open
	if n == 2 {
		panic("in a goroutine of its own")
	}
	return ledger.Balance{Available: ledger.Credits(n)}, nil
}

// TestQuestionsAreShared lets ten requests arrive while a question runs:
// they share one question that begins after them, and its panic reaches them as
// an error. The next one is asked anew.
func TestQuestionsAreShared(t *testing.T) {
	book := &panickyBook{entered: make(chan struct{}, 20), open: make(chan struct{})}
	var panics atomic.Int64
	b := newReads(book.Balance, nil, func() { panics.Add(1) })
	workspace := uuid.New()
	first := make(chan error, 1)
	go func() {
		balance, err := b.read(t.Context(), workspace)
		if balance.Available != 1 {
			err = fmt.Errorf("balance %+v, %w", balance, err)
		}
		first <- err
	}()
	<-book.entered
	late := make(chan error, 10)
	for range 10 {
		go func() {
			_, err := b.read(t.Context(), workspace)
			late <- err
		}()
	}
	for waiting := false; !waiting; { // until at least one waits for the next question
		b.mu.Lock()
		waiting = b.running[workspace].next != nil
		b.mu.Unlock()
		runtime.Gosched()
	}
	close(book.open)
	if err := <-first; err != nil {
		t.Errorf("first: %v", err)
	}
	failed := 0
	for range 10 {
		if err := <-late; errors.Is(err, errNoAnswer) {
			failed++
		}
	}
	if failed == 0 || panics.Load() != 1 || book.asked.Load() > 11 {
		t.Errorf("%d failed, %d panics, %d questions", failed, panics.Load(), book.asked.Load())
	}
	if balance, err := b.read(t.Context(), workspace); err != nil || balance.Available < 3 {
		t.Errorf("afterwards: %+v %v", balance, err)
	}
}

// TestAnswersAreKeptWhileNothingIsWritten reads one answer again and again, while things are written between.
func TestAnswersAreKeptWhileNothingIsWritten(t *testing.T) {
	var asked, count uint64
	var fails, writing, begins bool
	r := newReads(func(context.Context, int) (uint64, error) {
		asked++
		if begins {
			count++
		}
		if fails {
			return 0, errNoAnswer
		}
		return asked, nil
	}, func() (uint64, bool) { return count, !writing }, func() {})
	for _, c := range []struct {
		name  string
		then  func()
		asked uint64
	}{
		{"first", func() {}, 1},
		{"nothing was written", func() {}, 1},
		{"something was written", func() { count += 2 }, 2},
		{"nothing since", func() {}, 2},
		{"something is being written", func() { count++; writing = true }, 3},
		{"and still is", func() {}, 4},
		{"it is written", func() { count++; writing = false }, 5},
		{"the ledger fails", func() { count += 2; fails = true }, 6},
		{"and again", func() {}, 7},
		{"something is written while it is asked", func() { fails, begins = false, true }, 8},
		{"which may be in it or not", func() { begins = false; count++ }, 9},
		{"nothing since that", func() {}, 9},
	} {
		c.then()
		answer, err := r.read(t.Context(), 1)
		if asked != c.asked || (err != nil) != fails || err == nil && answer != c.asked {
			t.Errorf("%s: answer %d of question %d, want question %d; %v", c.name, answer, asked, c.asked, err)
		}
	}
	for of := range 2 * keptMax {
		if _, err := r.read(t.Context(), of); err != nil || len(r.kept) > keptMax {
			t.Fatalf("%d answers are kept, %v; want %d at most", len(r.kept), err, keptMax)
		}
	}
}
