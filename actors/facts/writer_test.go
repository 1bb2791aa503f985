package facts_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/receivertest"
	"rollcall/config/effort"
)

const (
	writeEvery = 2 * time.Second // at most
	factsMax   = 1_000           // of one write or question
	waitingMax = 20_000          // facts
)

// writerOf makes a writer.
func writerOf(s *receivertest.Shelf) *facts.Writer {
	return facts.NewWriter(facts.Options{Store: s, Of: "receivers", Log: slog.New(slog.DiscardHandler)})
}

func aFact(key, data string) facts.Fact {
	return facts.Fact{Key: key, Data: []byte(data), Expires: time.Now().Add(time.Hour)}
}

// TestWritesInBatches: all that changed, every two seconds at most, newest only.
func TestWritesInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		w := writerOf(s)
		for n := range 100 { // for ten seconds
			w.Keep(aFact(fmt.Sprint(n%20), fmt.Sprint(n)), nil)
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(writeEvery + time.Second)
		synctest.Wait()
		_, learns, _ := s.Calls()
		n := len(learns)
		effort.ErrorIf(t, n < 5 || n > 7, "%d writes in ten seconds", n)
		effort.ErrorIf(t, s.Len() != 20 || string(s.Fact("3").Data) != "83",
			"%d facts, the newest of 3 is %s", s.Len(), s.Fact("3").Data)
	})
}

// TestWritesSoonForWhoLeaves, a thousand at a time, and tells each when it was tried.
func TestWritesSoonForWhoLeaves(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &receivertest.Shelf{}
			s.Fail(fails)
			s.Take(10 * time.Millisecond)
			w := writerOf(s)
			var told sync.WaitGroup
			w.Keep(aFact("first", ""), nil)
			<-time.After(time.Second)
			begun := time.Now()
			told.Add(2500)
			for n := range 2500 {
				w.Keep(aFact(fmt.Sprint(n), ""), told.Done)
			}
			told.Wait()
			took := time.Since(begun)
			effort.ErrorIf(t, took > 200*time.Millisecond, "told after %s", took)
			effort.OK(t, w.Flush(t.Context()))
			if _, learns, _ := s.Calls(); s.Len() != 2501 || slices.Max(learns) > factsMax {
				t.Errorf("%d facts, writes of %v", s.Len(), learns)
			}
		})
	}
}

// TestFlushEnds with its context when the ledger does not answer.
func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Take(time.Hour)
		w := writerOf(s)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		effort.ErrIs(t, w.Flush(ctx), nil, "nothing to write")
		w.Keep(aFact("a", ""), nil)
		effort.ErrIs(t, w.Flush(ctx), context.DeadlineExceeded, "error")
		s.Take(0)
		err := w.Flush(t.Context())
		effort.ErrorIf(t, err != nil || s.Len() != 1, "%v, %d facts", err, s.Len())
	})
}

// TestAsksInBatches, and again when the ledger fails, but not for ever.
func TestAsksInBatches(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails int
		told  int
	}{{"at once", 0, 1500}, {"a failure", 2, 1500}, {"no ledger", 1000, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := receivertest.Holding(aFact("7", "seven"))
			s.Fail(tc.fails)
			w := writerOf(s)
			var mu sync.Mutex
			told := map[int]string{}
			for n := range 1500 {
				w.Know(fmt.Sprint(n), func(f facts.Fact) {
					mu.Lock()
					defer mu.Unlock()
					told[n] = string(f.Data)
				})
			}
			<-time.After(facts.KnowWithin + 5*time.Second)
			synctest.Wait()
			effort.ErrorIf(t, len(told) != tc.told || tc.told > 0 && (told[7] != "seven" || told[8] != ""),
				"%s: %d told, of 7: %q", tc.name, len(told), told[7])
			calls, _, knowns := s.Calls()
			effort.ErrorIf(t, tc.told > 0 && (len(knowns) != 2 || slices.Max(knowns) != factsMax),
				"%s: questions of %v keys", tc.name, knowns)
			<-time.After(time.Minute)
			later, _, _ := s.Calls()
			effort.ErrorIf(t, later > calls, "%s: asks for ever", tc.name)
		})
	}
}

// TestWriterIsBounded: a ledger that is gone costs no memory without end. What was not lost is written when it is back.
func TestWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Fail(1 << 30)
		w := writerOf(s)
		for n := range waitingMax + 500 {
			w.Keep(aFact(fmt.Sprint(n), ""), nil)
		}
		<-time.After(time.Minute)
		s.Fail(0)
		err := w.Flush(t.Context())
		effort.ErrorIf(t, err != nil || s.Len() != waitingMax, "%d facts are written: %v", s.Len(), err)
		calls, _, _ := s.Calls()
		<-time.After(time.Minute)
		synctest.Wait()
		later, _, _ := s.Calls()
		effort.ErrorIf(t, later > calls, "it goes on")
	})
}

// TestALongOutageFillsNoLog: it says less the longer it lasts.
func TestALongOutageFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &receivertest.Shelf{}
		s.Fail(40)
		var log bytes.Buffer
		w := facts.NewWriter(facts.Options{Store: s, Of: "domains", Log: slog.New(slog.NewTextHandler(&log, nil))})
		w.Keep(aFact("a", ""), nil)
		<-time.After(50 * writeEvery)
		synctest.Wait()
		if lines := strings.Count(log.String(), "\n"); lines < 3 || lines > 8 || s.Len() != 1 {
			t.Errorf("%d lines about 40 failures, %d facts", lines, s.Len())
		}
	})
}

// TestQuestionsAreBounded: those beyond the bound get no answer.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := writerOf(&receivertest.Shelf{})
		var told atomic.Int64
		for n := range waitingMax + 10 {
			w.Know(fmt.Sprint(n), func(facts.Fact) { told.Add(1) })
		}
		<-time.After(time.Minute)
		effort.Is(t, told.Load(), waitingMax, "are told")
	})
}
