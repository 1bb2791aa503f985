package registry

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// openedWide is an allowance for tests that are about something else.
func openedWide() throttle.Limits {
	return throttle.Limits{Connections: 4, ConnectionRate: throttle.Rate{Events: 1000, Per: time.Second},
		RcptRate: throttle.Rate{Events: 1000, Per: time.Second}, RefusedPerHour: 100}
}

// of gives every receiver k of n parts.
func of(k, n int) func(string) (int, int) { return func(string) (int, int) { return k, n } }

// granted makes a registry with one actor for a key that allows a number of connections.
func granted(connections int) (*Registry, *Handle) {
	l := New()
	l.Alone()
	return l, l.Enter("x", func(string) throttle.Limits {
		a := openedWide()
		a.Connections = connections
		return a
	})
}

// dialled takes n connections and begins work with each.
func dialled(t *testing.T, s *Handle, n int, cancel func()) []*ConnSlot {
	t.Helper()
	slots := NewSlots(2 * n)
	var out []*ConnSlot
	for range n {
		effort.FatalIf(t, !slots.Take(uuid.Nil, 1), "no slot")
		one := s.Dial(s.share.Load().Version, n, uuid.Nil, slots, Line{})
		effort.FatalIf(t, one == nil || !one.Begin(s.share.Load().Version, cancel), "no socket")
		out = append(out, one)
	}
	return out
}

// TestNothingBeforeTheFirstShares: a node that knows no share uses none.
func TestNothingBeforeTheFirstShares(t *testing.T) {
	l := New()
	s := l.Enter("x", func(string) throttle.Limits { return openedWide() })
	if !s.share.Load().IsNone() {
		t.Errorf("share %v", s.share.Load().Fraction)
	}
	told := 0
	s.Listen(func(any) { told++ })
	effort.OK(t, l.ApplyShares(t.Context(), of(1, 3)))
	effort.OK(t, l.ApplyShares(t.Context(), of(2, 6)))
	if now := s.share.Load(); now.K*3 != now.N || now.Version != 0 || told != 1 {
		t.Errorf("share %v at turn %d, told %d times of one change", now.Fraction, now.Version, told)
	}
	effort.Is(t, l.Count(), 1, "actors")
	s.Leave()
	s.Leave()
	effort.ErrorIf(t, l.Count() != 0 || len(l.entries) != 0,
		"%d actors and %d places when it is gone", l.Count(), len(l.entries))
}

// TestApplyingSharesWaits: it waits for work begun under a larger share, and for connections above the new share,
// those of a stopped actor included.
func TestApplyingSharesWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		k, n int
		ends func(sockets []*ConnSlot)
	}{
		{"nothing left: all closed", 0, 1, func(s []*ConnSlot) {
			for _, one := range s {
				one.Close()
			}
		}},
		{"half: two closed, two at rest", 1, 2, func(s []*ConnSlot) {
			s[0].Close()
			s[1].MarkIdle()
			s[2].MarkIdle()
			s[3].Close()
			s[3].Close()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, slot := granted(4)
				sockets := dialled(t, slot, 4, func() {})
				slot.Leave()
				done := make(chan error, 1)
				go func() { done <- l.ApplyShares(t.Context(), of(tc.k, tc.n)) }()
				synctest.Wait()
				select {
				case err := <-done:
					t.Fatalf("complied with four sockets at work: %v", err)
				default:
				}
				tc.ends(sockets)
				effort.OK(t, <-done)
			})
		})
	}
}

// TestApplyingSharesIsHardAfterAWhile: what does not end is ended, and ApplyShares waits for that too.
func TestApplyingSharesIsHardAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slot := granted(2)
		var cut sync.WaitGroup
		cut.Add(2)
		sockets := dialled(t, slot, 2, cut.Done)
		begun := time.Now()
		done := make(chan error, 1)
		go func() { done <- l.ApplyShares(t.Context(), of(0, 1)) }()
		cut.Wait()
		effort.Is(t, time.Since(begun), HardAfter, "ended after")
		sockets[0].Close()
		synctest.Wait()
		effort.ErrorIf(t, len(done) > 0, "complied with one socket left")
		sockets[1].Close()
		effort.ErrIs(t, <-done, nil)
	})
}

// TestASilentSessionKeepsItsPlace: until it is gone, and nobody waits for it meanwhile. It takes no slot of the node,
// unless too many do so.
func TestASilentSessionKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slot := granted(2)
		told := 0
		slot.Listen(func(any) { told++ })
		slots := NewSlots(1)
		dial := func() *ConnSlot {
			if !slots.Take(uuid.Nil, 1) {
				return nil
			}
			one := slot.Dial(slot.Share().Version, 2, uuid.Nil, slots, Line{})
			if one == nil {
				slots.Give(uuid.Nil)
			}
			return one
		}
		first, gone := dial(), make(chan struct{})
		first.CloseWhen(&smtp.Ending{Gone: gone})
		second, goneToo := dial(), make(chan struct{})
		effort.FatalIf(t, second == nil || dial() != nil,
			"the place of a silent session is free, or it takes a slot of the node")
		second.CloseWhen(&smtp.Ending{Gone: goneToo})
		effort.ErrorIf(t, slots.Take(uuid.Nil, 1),
			"as many as there are slots wait for their ends, and one more takes none")
		if keys := l.Silent(); len(keys) != 1 || keys[0] != "x" || l.SilentCount() != 2 {
			t.Errorf("%d silent sessions of %q", l.SilentCount(), keys)
		}
		effort.OK(t, l.ApplyShares(t.Context(), of(0, 1)))
		l.Alone()
		told = 0
		close(gone)
		synctest.Wait()
		effort.ErrorIf(t, told != 1 || l.SilentCount() != 1 || slots.Take(uuid.Nil, 1),
			"told %d times of one end, %d are silent", told, l.SilentCount())
		close(goneToo)
		synctest.Wait()
		if third := dial(); third == nil || l.SilentCount() != 0 || len(l.Silent()) != 0 {
			t.Errorf("%d are silent", l.SilentCount())
		} else {
			third.CloseWhen(&smtp.Ending{Gone: gone}) // it is already
		}
		effort.ErrorIf(t, !slots.Take(uuid.Nil, 1) || len(slot.slots) != 0, "a session that is gone keeps something")
	})
}

// TestALostSessionIsTakenOver: the next session on the same line is dialled from its port and needs no place beside it.
// Others see a silent session until the host has answered. If it doesn't, or the port is in use, all stays as it was.
func TestALostSessionIsTakenOver(t *testing.T) {
	l, slot := granted(1)
	slots, from := NewSlots(9), netip.MustParseAddrPort("10.0.0.1:4000")
	line := Line{Source: from.Addr(), Host: netip.MustParseAddr("10.0.0.9"), Now: time.Unix(0, 0)}
	dial := func(to Line) *ConnSlot { return slot.Dial(slot.Share().Version, 1, uuid.Nil, slots, to) }
	silent := func() int { return l.SilentCount() + len(l.Silent()) - 1 }
	first, end := dial(line), &smtp.Ending{Gone: make(chan struct{})}
	first.CloseWhen(end)
	effort.ErrorIf(t, dial(line) != nil, "the receiver may have the session, and there is another one")
	end.Lost.Store(&from)
	other := line
	other.Source = netip.MustParseAddr("10.0.0.2")
	effort.ErrorIf(t, dial(other) != nil || dial(Line{}) != nil, "taken over on another line")
	other = line
	other.Host = netip.MustParseAddr("9.9.9.9")
	first.line = other
	effort.ErrorIf(t, dial(other) != nil, "taken over through a translator of addresses")
	first.line = line
	second := dial(line)
	effort.MustBe(t, second.From, from, "dialled from")
	effort.ErrorIf(t, dial(line) != nil || silent() != 1 || l.Sessions() != 1, "taken over twice, or not silent any more")
	second.Close() // the host did not answer
	effort.ErrorIf(t, dial(line) != nil || silent() != 1, "tried again at once, or not silent any more")
	line.Now = line.Now.Add(2 * time.Second)
	third := dial(line)
	third.Reached()
	effort.ErrorIf(t, l.SilentCount() != 0 || dial(line) != nil, "the host has a new session, and perhaps the old one")
	third.CloseWhen(end)
	end.Lost.Store(&from)
	dial(line).NotBound()
	line.Now = line.Now.Add(time.Hour)
	effort.ErrorIf(t, dial(line) != nil || silent() != 1, "tried again from a port that is in use")
}

// TestASmallerShareTakesLostSessionsOver: as many at a time as it has sessions.
func TestASmallerShareTakesLostSessionsOver(t *testing.T) {
	l, slot := granted(4)
	for n, one := range dialled(t, slot, 4, func() {}) {
		from, end := netip.AddrPortFrom(netip.IPv6Loopback(), uint16(n+1)), &smtp.Ending{Gone: make(chan struct{})}
		end.Lost.Store(&from)
		one.CloseWhen(end)
	}
	l.apply(of(1, 4))
	for left := 3; left >= 0; left-- {
		one := slot.Dial(slot.Share().Version, 1, uuid.Nil, NewSlots(9), Line{})
		effort.FatalIf(t, one == nil || slot.Dial(slot.Share().Version, 1, uuid.Nil, NewSlots(9), Line{}) != nil,
			"not one session is opened with %d silent ones", left)
		one.Reached()
		effort.MustBe(t, l.SilentCount(), left, "silent sessions")
		one.Close()
	}
}

// TestSilentSessionsCountInAShare: others make room for them.
func TestSilentSessionsCountInAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slot := granted(4)
		sockets, gone := dialled(t, slot, 4, func() {}), make(chan struct{})
		for _, one := range sockets {
			one.MarkIdle()
		}
		sockets[0].CloseWhen(&smtp.Ending{Gone: gone})
		done := make(chan error, 1)
		go func() { done <- l.ApplyShares(t.Context(), of(1, 2)) }()
		synctest.Wait()
		sockets[1].Close()
		synctest.Wait()
		effort.ErrorIf(t, len(done) > 0, "complied with a silent session and two others, and two are allowed")
		sockets[2].Close()
		effort.ErrIs(t, <-done, nil)
		close(gone)
		synctest.Wait()
	})
}

// TestApplyingSharesEndsWithItsContext: the share holds nevertheless, also for the next call.
func TestApplyingSharesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slot := granted(1)
		one := dialled(t, slot, 1, func() {})[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		effort.ErrIs(t, l.ApplyShares(ctx, of(0, 1)), context.DeadlineExceeded, "error")
		effort.ErrorIf(t, one.MayGoOn(0) || slot.Dial(1, 1, uuid.Nil, NewSlots(1), Line{}) != nil, "the old share holds on")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		effort.ErrIs(t, l.ApplyShares(ctx, of(0, 1)), context.DeadlineExceeded, "error of the second call")
	})
}

// TestWhatWasPermittedBefore is not begun under a smaller share; under a larger one it is.
func TestWhatWasPermittedBefore(t *testing.T) {
	for _, tc := range []struct {
		name string
		k    int
		may  bool
	}{{"smaller", 1, false}, {"the same", 2, true}, {"larger", 3, true}} {
		l, slot := granted(9)
		l.apply(of(2, 3))
		turn := slot.share.Load().Version
		one := slot.Dial(turn, 9, uuid.Nil, NewSlots(9), Line{})
		l.apply(of(tc.k, 3))
		if got := one.Begin(turn, func() {}); got != tc.may || one.MayGoOn(turn) != tc.may {
			t.Errorf("%s: begun %v, may go on %v", tc.name, got, one.MayGoOn(turn))
		}
		next := slot.Dial(turn, 9, uuid.Nil, NewSlots(9), Line{})
		effort.ErrorIf(t, (next != nil) != tc.may, "%s: dialled %v", tc.name, next != nil)
	}
}

// TestSocketsAreCountedOverActors: a second actor for a key has only what the first left.
func TestSocketsAreCountedOverActors(t *testing.T) {
	l, first := granted(3)
	sockets := dialled(t, first, 3, func() {})
	first.Leave()
	second := l.Enter("x", first.allow)
	effort.ErrorIf(t, second.Dial(0, 3, uuid.Nil, NewSlots(3), Line{}) != nil, "a fourth socket of three")
	sockets[0].Close()
	effort.ErrorIf(t, second.Dial(0, 3, uuid.Nil, NewSlots(3), Line{}) == nil, "no socket though one is free")
}

// TestSharesAreAppliedToManyAtOnce: actors come, dial, work and go while shares change.
func TestSharesAreAppliedToManyAtOnce(t *testing.T) {
	l := New()
	l.Alone()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for ctx.Err() == nil {
				s := l.Enter("x", func(string) throttle.Limits { return openedWide() })
				s.Listen(func(any) {})
				now, slots := s.share.Load(), NewSlots(1)
				if one := s.Dial(now.Version, now.Of(openedWide()).Connections, uuid.Nil, slots, Line{}); one != nil && slots.Take(uuid.Nil, 1) {
					if one.Begin(now.Version, func() {}) {
						one.MarkIdle()
					}
					one.Close()
				}
				s.Leave()
			}
		})
	}
	for n := range 200 {
		effort.OK(t, l.ApplyShares(t.Context(), of(n%5, 4)))
		l.mu.Lock()
		p := l.entries["x"]
		effort.ErrorIf(t, p != nil && len(p.excess()) > 0, "above the share after Comply")
		l.mu.Unlock()
	}
	cancel()
	running.Wait()
	effort.ErrorIf(t, len(l.entries) != 0 || l.Count() != 0, "%d places, %d actors left", len(l.entries), l.Count())
}

// guest is a receiver of the test: it notes what it is told.
type guest struct {
	slot    *ReceiverSlot
	granted bool
	yielded int
}

// come lets a guest ask for a slot.
func come(s *ReceiverSlots, workspace byte) *guest {
	g := &guest{}
	g.slot, g.granted = s.Take(uuid.UUID{workspace}, uuid.Nil, func(msg any) {
		switch msg.(type) {
		case SlotGranted:
			g.granted = true
		case Yield:
			g.yielded++
		}
	})
	return g
}

func TestThoseGoFirstWhoRestedLongest(t *testing.T) {
	s := NewReceiverSlots(8, nil)
	var all []*guest
	for range 4 {
		all = append(all, come(s, 1))
	}
	all[3].slot.SetIdle(true)
	all[1].slot.SetIdle(true)
	all[0].slot.SetIdle(true)
	all[3].slot.SetIdle(false)
	come(s, 1)
	effort.ErrorIf(t, all[1].yielded != 1 || all[0].yielded+all[3].yielded != 0,
		"asked to end: %d %d %d", all[0].yielded, all[1].yielded, all[3].yielded)
	all[1].slot.Stay() // it got work just then: the next one is asked
	effort.Is(t, all[0].yielded, 1, "nobody else was asked")
}

// TestNobodyIsLeftWaiting draws guests of three workspaces that come, rest, work and go in any order,
// and answer when they are asked to end: there are never more than slots, the newcomer's workspace
// always finds one, and in the end all had theirs.
func TestNobodyIsLeftWaiting(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		size := 4 + r.IntN(20)
		s := NewReceiverSlots(size, nil)
		var all []*guest
		answer := func() {
			for i := 0; i < len(all); i++ {
				if g := all[i]; g.yielded > 0 {
					g.yielded = 0
					if r.IntN(4) == 0 {
						g.slot.Stay()
						continue
					}
					g.slot.Leave()
					all = append(all[:i], all[i+1:]...)
					i = -1 // others may have been asked meanwhile
				}
			}
		}
		for range 400 {
			switch n := r.IntN(4); {
			case n < 2 || len(all) == 0:
				all = append(all, come(s, byte(r.IntN(2))))
			case n == 2:
				if g := all[r.IntN(len(all))]; g.granted {
					g.slot.SetIdle(true)
				}
			default:
				if g := all[r.IntN(len(all))]; g.granted && g.yielded == 0 {
					g.slot.SetIdle(false)
				}
			}
			answer()
			effort.FatalIf(t, int(s.quota.Used()) > size, "seed %d: %d of %d", seed, int(s.quota.Used()), size)
		}
		if g := come(s, 9); !g.granted {
			t.Fatalf("seed %d: who comes new waits with %d of %d used", seed, int(s.quota.Used()), size)
		} else {
			g.slot.Leave()
		}
		for rounds := 0; s.Waiting() > 0; rounds++ {
			if rounds > 10_000 {
				t.Fatalf("seed %d: %d wait for ever, %d of %d used", seed, s.Waiting(), int(s.quota.Used()), size)
			}
			for _, g := range all {
				if g.granted {
					g.slot.SetIdle(true)
				}
			}
			answer()
		}
		for _, g := range all {
			effort.FatalIf(t, !g.granted, "seed %d: one never had its turn", seed)
			g.slot.Leave()
			g.slot.Leave()
		}
		effort.FatalIf(t, int(s.quota.Used()) != 0 || s.asked != 0 || s.idle.Len() != 0,
			"seed %d: %d used, %d asked, %d rest in the end", seed, int(s.quota.Used()), s.asked, s.idle.Len())
	}
}
