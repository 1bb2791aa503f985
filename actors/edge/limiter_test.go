package edge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// TestNodesTakeOneBurstAndOneRate hits one key through three nodes at once, and
// gets what is promised of all together: no more, and hardly less.
func TestNodesTakeOneBurstAndOneRate(t *testing.T) {
	const length = 10 * time.Second
	for _, c := range []struct {
		name string
		rate Rate
		take func(l *Limiter) func(key string) time.Duration
	}{
		{"reads", contract.Reads, func(l *Limiter) func(string) time.Duration { return l.Read }},
		{"creates", contract.Creates, func(l *Limiter) func(string) time.Duration { return l.Create }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, contract, 3, func(w *world) {
				var g taken
				var done sync.WaitGroup
				for _, n := range w.nodes {
					g.hammer(&done, c.take(n), 5, time.Now().Add(length))
				}
				done.Wait()
				g.within(t, c.rate, 0)
				want := c.rate.Burst + int(c.rate.PerSecond*length.Seconds())
				if got := g.count(); got < want-2 || got > want {
					t.Errorf("%d were granted in %v, want %d", got, length, want)
				}
				for i, n := range w.nodes {
					if got := metric(t, n.options.Metrics.fallbacks, c.name); got != 0 {
						t.Errorf("node %d did not ask %d times", i, got)
					}
				}
			})
		})
	}
}

func TestKeysAndKindsDoNotMeet(t *testing.T) {
	inBubble(t, contract, 2, func(w *world) {
		for i := range 40 {
			if w.nodes[i%2].Read("key") != 0 {
				t.Fatal("the burst is not 40")
			}
		}
		if wait := w.nodes[0].Read("key"); wait != 50*time.Millisecond {
			t.Errorf("the next read is in %v, want 50ms", wait)
		}
		if w.nodes[0].Create("key") != 0 || w.nodes[1].Read("another") != 0 {
			t.Error("creates or another key are counted with the reads")
		}
		if _, ok := w.nodes[1].Download("key"); !ok {
			t.Error("downloads are counted with the reads")
		}
	})
}

// TestEmptyBucketIsRemembered: a node does not ask for what it was told not to be there.
func TestEmptyBucketIsRemembered(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		for w.nodes[0].Create("key") == 0 {
		}
		asks := metric(t, w.nodes[0].options.Metrics.asks, "answered")
		for range 1000 {
			if w.nodes[0].Create("key") == 0 {
				t.Fatal("a token out of nothing")
			}
		}
		if got := metric(t, w.nodes[0].options.Metrics.asks, "answered"); got != asks {
			t.Errorf("%d questions to hear again that there is nothing", got-asks)
		}
	})
}

// TestQuestionsAreSharedByRequests: those that wait ask together.
func TestQuestionsAreSharedByRequests(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		// The owner is found only after a while, when all wait.
		found := make(chan struct{})
		n := w.node(func(kind, key string) *actor.PID {
			<-found
			return w.place.resolve(kind, key)
		}, newOptions(contract, whole))
		var done sync.WaitGroup
		var g taken
		for range 100 {
			done.Go(func() {
				if n.Read("key") == 0 {
					g.note(time.Now())
				}
			})
		}
		synctest.Wait()
		close(found)
		done.Wait()
		if got := g.count(); got != 40 {
			t.Errorf("%d of 100 were granted, want 40", got)
		}
		if got := metric(t, n.options.Metrics.asks, "answered"); got != 1 {
			t.Errorf("100 requests asked %d times", got)
		}
	})
}

func TestDownloadsAtOnceAcrossNodes(t *testing.T) {
	inBubble(t, contract, 2, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		var releases []func()
		for i := range 4 {
			release, ok := w.nodes[i%2].Download("key")
			if !ok {
				t.Fatalf("download %d of 4 is refused", i+1)
			}
			releases = append(releases, release)
		}
		refused := func(when string) {
			t.Helper()
			for i, n := range w.nodes {
				if _, ok := n.Download("key"); ok {
					t.Fatalf("%s: node %d got a fifth", when, i)
				}
			}
		}
		refused("at once")
		after(10 * time.Minute)
		refused("much later")
		releases[0]()
		synctest.Wait()
		if releases[0], _ = b.Download("key"); releases[0] == nil {
			t.Fatal("a slot that came back on one node is not free on the other")
		}
		refused("again")
		for _, release := range releases {
			release()
		}
		synctest.Wait()
		for range 4 {
			if _, ok := a.Download("key"); !ok {
				t.Fatal("not all slots came back")
			}
		}
	})
}

// vanish makes a node say nothing any more, as a crash does.
func vanish(l *Limiter) { l.stop.Do(func() { close(l.ended) }) }

func TestSlotsOfANodeThatVanishesOrLeaves(t *testing.T) {
	for _, c := range []struct {
		name   string
		vanish func(w *world, l *Limiter)
		free   time.Duration // at the latest
		held   time.Duration // at least
	}{
		{"vanishes", func(_ *world, l *Limiter) { vanish(l) }, slotLife, slotLife - tellEvery - time.Second},
		{"leaves", func(w *world, l *Limiter) {
			if err := l.Stop(context.Background()); err != nil {
				w.t.Error(err)
			}
		}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, contract, 2, func(w *world) {
				for range 4 {
					if _, ok := w.nodes[0].Download("key"); !ok {
						t.Fatal("refused")
					}
				}
				after(time.Minute) // a node that lives keeps what it holds
				if _, ok := w.nodes[1].Download("key"); ok {
					t.Fatal("a fifth")
				}
				c.vanish(w, w.nodes[0])
				gone := time.Now()
				if c.held > 0 {
					after(c.held)
					if _, ok := w.nodes[1].Download("key"); ok {
						t.Fatal("a slot came back before it is sure that nobody holds it")
					}
				}
				after(max(0, c.free-time.Since(gone)) + time.Millisecond)
				for range 4 {
					if _, ok := w.nodes[1].Download("key"); !ok {
						t.Fatalf("after %v the slots are not back", time.Since(gone))
					}
				}
			})
		})
	}
}

// TestOwnerMovesWithoutASecondBurst: what the new owner does not know, nodes tell
// it, whichever asks first.
func TestOwnerMovesWithoutASecondBurst(t *testing.T) {
	inBubble(t, contract, 3, func(w *world) {
		var g taken
		var done sync.WaitGroup
		end := time.Now().Add(20 * time.Second)
		for _, n := range w.nodes {
			g.hammer(&done, n.Read, 4, end)
		}
		for range 6 {
			after(3 * time.Second)
			w.place.end("key")
		}
		done.Wait()
		g.within(t, contract.Reads, 0)
		if got, want := g.count(), 40+20*20; got > want || got < want-50 {
			t.Errorf("%d were granted, want up to %d", got, want)
		}
	})
}

// TestOwnerMovesAndKnowsTheDownloads that run, as soon as nodes know of the move.
func TestOwnerMovesAndKnowsTheDownloads(t *testing.T) {
	inBubble(t, contract, 2, func(w *world) {
		for range 4 {
			if _, ok := w.nodes[0].Download("key"); !ok {
				t.Fatal("refused")
			}
		}
		w.place.end("key")
		after(time.Second)
		if _, ok := w.nodes[1].Download("key"); ok {
			t.Error("a fifth download after the owner moved")
		}
	})
}

// TestOwnerThatDoesNotAnswer: the first request waits no longer than it may, those
// after it not at all, and a node grants its part; when the owner is back it counts again.
func TestOwnerThatDoesNotAnswer(t *testing.T) {
	third := func(string) (int, int) { return 1, 3 }
	none := func(string) (int, int) { return 0, 3 }
	for _, c := range []struct {
		name  string
		share func(string) (int, int)
		spoil func(w *world)
		reads int // at once
		rate  float64
		downs int
	}{
		{"deaf, a third", third, func(w *world) { w.place.put("key", w.deaf()) }, 13, 20.0 / 3, 1},
		{"deaf, none", none, func(w *world) { w.place.put("key", w.deaf()) }, 5, 1, 1},
		{"deaf, all", whole, func(w *world) { w.place.put("key", w.deaf()) }, 40, 20, 4},
		{"not to be found", third, func(w *world) { w.place.close(true) }, 13, 20.0 / 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, contract, 0, func(w *world) {
				n := w.node(w.place.resolve, newOptions(contract, c.share))
				c.spoil(w)
				began := time.Now()
				if n.Read("key") != 0 || time.Since(began) > askTimeout {
					t.Fatalf("the first request waited %v", time.Since(began))
				}
				granted := 1
				for began = time.Now(); n.Read("key") == 0; granted++ {
				}
				if took := time.Since(began); took > 0 || granted != c.reads {
					t.Errorf("%d were granted at once in %v, want %d", granted, took, c.reads)
				}
				for downs := range c.downs + 1 {
					if _, ok := n.Download("key"); ok != (downs < c.downs) {
						t.Errorf("download %d: %v", downs+1, ok)
					}
				}
				var g taken
				var done sync.WaitGroup
				began = time.Now()
				g.hammer(&done, n.Read, 3, began.Add(30*time.Second))
				done.Wait()
				if got, want := g.count(), int(c.rate*30); got > want+1 || got < want-1 {
					t.Errorf("%d were granted in 30s, want %d", got, want)
				}
				w.place.end("key")
				w.place.close(false)
				n.Read("key") // finds out
				after(2 * pauseMax)
				lost := metric(t, n.options.Metrics.fallbacks, "reads")
				n.Read("key")
				n.Read("key")
				if got := metric(t, n.options.Metrics.fallbacks, "reads"); got != lost+0 || lost == 0 {
					t.Errorf("%d requests were not asked for, then %d, though the owner is back", lost, got)
				}
				if got := metric(t, n.options.Metrics.fallbacks, "downloads"); got != c.downs+1 {
					t.Errorf("%d downloads were not asked for, want %d", got, c.downs+1)
				}
			})
		})
	}
}

// TestWhatWasCountedHereIsTold to the owner that is found later.
func TestWhatWasCountedHereIsTold(t *testing.T) {
	inBubble(t, contract, 2, func(w *world) {
		w.place.close(true)
		var g taken
		for w.nodes[0].Create("key") == 0 {
			g.note(time.Now())
		}
		w.place.close(false)
		var done sync.WaitGroup
		g.hammer(&done, w.nodes[0].Create, 1, time.Now().Add(5*time.Second))
		after(2 * pauseMax) // by then the one node found the owner, and the other asks
		g.hammer(&done, w.nodes[1].Create, 1, time.Now().Add(5*time.Second))
		done.Wait()
		g.within(t, contract.Creates, 0)
	})
}

// TestOwnerThatLivesOnElsewhere is left for the one that others ask, though it answers.
func TestOwnerThatLivesOnElsewhere(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		var now atomic.Pointer[place]
		now.Store(w.place)
		moving := func(kind, key string) *actor.PID { return now.Load().resolve(kind, key) }
		n := w.node(moving, newOptions(contract, whole))
		for range 4 {
			if _, ok := n.Download("key"); !ok {
				t.Fatal("refused")
			}
		}
		next := newPlace(t, w.system, newOptions(contract, whole))
		now.Store(next)
		after(2 * ownerLife)
		n.Read("key")
		synctest.Wait()
		if got := value(t, next.options.Metrics.living); got != 1 {
			t.Errorf("%d new owners are asked, want 1", got)
		}
		other := w.node(next.resolve, newOptions(contract, whole))
		if _, ok := other.Download("key"); ok {
			t.Error("the new owner does not know what is held")
		}
		next.end("key")
	})
}

// TestSlowSearchHoldsNobodyUp: a resolve takes a second when nodes are lost.
func TestSlowSearchHoldsNobodyUp(t *testing.T) {
	inBubble(t, contract, 0, func(w *world) {
		n := w.node(func(string, string) *actor.PID {
			<-time.After(time.Second)
			return nil
		}, newOptions(contract, whole))
		var done sync.WaitGroup
		for i := range 1000 {
			done.Go(func() {
				began := time.Now()
				if n.Read(fmt.Sprint("key ", i)) != 0 {
					t.Error("refused")
				}
				if took := time.Since(began); took > askTimeout {
					t.Errorf("waited for %v", took)
				}
			})
		}
		done.Wait()
	})
}

// TestNobodyAsksForNobody: an owner that is lost is looked for because of requests only.
func TestNobodyAsksForNobody(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		w.place.close(true)
		w.nodes[0].Read("key")
		after(time.Minute)
		before := w.place.finds
		after(time.Hour)
		if w.place.finds != before {
			t.Errorf("looked %d times for an owner that nobody needs", w.place.finds-before)
		}
	})
}

// TestTwoOwnersForAWhile: each side counts by its share, so that a side's owner and
// the other's together keep the limit; after the heal the owner that stays is told
// what the other granted.
func TestTwoOwnersForAWhile(t *testing.T) {
	inBubble(t, contract, 0, func(w *world) {
		var split atomic.Bool
		split.Store(true)
		share := func(k int) func(string) (int, int) {
			return func(string) (int, int) {
				if split.Load() {
					return k, 3
				}
				return 1, 1
			}
		}
		left := newPlace(t, w.system, newOptions(contract, share(2)))
		right := newPlace(t, w.system, newOptions(contract, share(1)))
		healed := func(kind, key string) *actor.PID {
			if split.Load() {
				return right.resolve(kind, key)
			}
			return left.resolve(kind, key)
		}
		a := w.node(left.resolve, newOptions(contract, share(2)))
		b := w.node(healed, newOptions(contract, share(1)))
		var g taken
		var done sync.WaitGroup
		g.hammer(&done, a.Read, 3, time.Now().Add(10*time.Second))
		g.hammer(&done, b.Read, 3, time.Now().Add(10*time.Second))
		done.Wait()
		g.within(t, contract.Reads, 0)
		if got := g.count(); got < 39+195 {
			t.Errorf("both sides together granted %d, want about 240", got)
		}
		synctest.Wait()
		split.Store(false)
		right.end("key")
		after(20 * time.Millisecond)
		b.Read("key") // tells
		g.hammer(&done, a.Read, 3, time.Now().Add(10*time.Second))
		g.hammer(&done, b.Read, 3, time.Now().Add(10*time.Second))
		done.Wait()
		// What the other side granted is told as of when its node last heard, less
		// what came back by the whole rate: up to three tokens too little.
		g.within(t, contract.Reads, 3)
		left.end("key")
	})
}

// TestIdleOwnersEnd, and those that are needed do not.
func TestIdleOwnersEnd(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		n := w.nodes[0]
		n.Read("idle")
		release, ok := n.Download("busy")
		if !ok {
			t.Fatal("refused")
		}
		after(idleLife - time.Second)
		if got := value(t, w.place.options.Metrics.living); got != 2 {
			t.Fatalf("%v actors live, want 2", got)
		}
		after(time.Minute)
		if got := value(t, w.place.options.Metrics.living); got != 1 {
			t.Fatalf("%v actors live, want 1", got)
		}
		w.place.put("idle", nil)
		if n.Read("idle") != 0 || metric(t, n.options.Metrics.fallbacks, "reads") != 0 {
			t.Error("an owner that ended is not found again")
		}
		release()
		after(2 * idleLife)
		if got := value(t, w.place.options.Metrics.living); got != 0 {
			t.Fatalf("%v actors live, want none", got)
		}
		w.place.put("idle", nil)
		w.place.put("busy", nil)
	})
}

// TestKeysAreBounded, and nothing that is held is forgotten.
func TestKeysAreBounded(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		n := w.nodes[0]
		release, ok := n.Download("held")
		if !ok {
			t.Fatal("refused")
		}
		n.Read("spent")
		for i := range 2 * linesMax {
			n.line(fmt.Sprint("flood ", i)).mu.Unlock()
		}
		if n.lines["held"] == nil || n.lines["spent"] == nil {
			t.Error("a key in use was forgotten before those that are not")
		}
		for i := range 2 * linesMax {
			s := n.line(fmt.Sprint("flood ", i))
			s.spare[wantRead].tokens, s.debts[wantRead] = 40, debt{40, time.Now()}
			s.mu.Unlock()
		}
		if len(n.lines) > linesMax {
			t.Errorf("%d keys are kept, want at most %d", len(n.lines), linesMax)
		}
		if n.lines["held"] == nil {
			t.Error("a key with a download was forgotten")
		}
		release()
		synctest.Wait()
		for range 4 {
			if _, ok := n.Download("held"); !ok {
				t.Error("the slot did not come back")
			}
		}
	})
}

// TestAfterStopNobodyWaits: what comes late is counted without the owner.
func TestAfterStopNobodyWaits(t *testing.T) {
	inBubble(t, contract, 1, func(w *world) {
		n := w.nodes[0]
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if n.Read("key") != 0 || time.Since(began) != 0 {
			t.Errorf("refused or waited for %v", time.Since(began))
		}
		release, ok := n.Download("key")
		if !ok {
			t.Fatal("refused")
		}
		release()
	})
}
