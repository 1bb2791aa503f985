package scheduler

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// settled is when what others may have used of the rates before the scheduler began is over.
var settled = begin.Add(time.Second)

// slotWorkspaces offer one address each to a receiver on a node with four slots.
func slotWorkspaces(t *testing.T, slots *registry.Slots, of ...byte) *Scheduler {
	t.Helper()
	o := testOptions(openedWide())
	o.Slots = slots
	sc := begunAlone("example", o, begin)
	for i, w := range of {
		m := offerOf(w, "d.example", 1, 1, hosts("mx1"))
		space := uuid.UUID{w}
		m.Workspace = space[:]
		sc.Offer(settled, Client{Name: string('a' + rune(i))}, m)
	}
	return sc
}

// opened is how many sessions a plan opens.
func opened(sc *Scheduler) (n int) {
	steps, _ := sc.Plan(settled)
	for _, s := range steps {
		if _, ok := s.(OpenSession); ok {
			n++
		}
	}
	return n
}

// TestASessionIsOpenedForWhoMayHaveOne: the workspace whose turn it is has all that it may at other
// receivers; the other that waits here may have one, and the session serves both.
func TestASessionIsOpenedForWhoMayHaveOne(t *testing.T) {
	slots := registry.NewSlots(4)
	for range 2 {
		slots.Take(uuid.UUID{1}, 1)
	}
	sc := slotWorkspaces(t, slots, 1, 2)
	effort.MustBe(t, opened(sc), 1, "sessions are opened")
	for _, s := range sc.sessions.all {
		effort.Is(t, s.name.Workspace(), uuid.UUID{2}, "opened in the name of")
	}
	effort.Is(t, slots.Free(), 1, "slots are free")
}

// TestWithoutASlotTheReceiverWaitsAndSaysSo: and goes on when one is free.
func TestWithoutASlotTheReceiverWaitsAndSaysSo(t *testing.T) {
	slots := registry.NewSlots(4)
	for range 2 {
		slots.Take(uuid.UUID{1}, 1)
	}
	sc := slotWorkspaces(t, slots, 1)
	effort.MustBe(t, opened(sc), 0, "sessions are opened above the share of the workspace")
	if b := sc.explainBlocked(settled); b.Cause != wire.Cause_CONNECTIONS || !strings.Contains(b.Why, "of this node") {
		t.Errorf("it waits for %s: %s", b.Cause, b.Why)
	}
	slots.Give(uuid.UUID{1})
	if _, wake := sc.Plan(settled); wake.IsZero() || wake.Sub(settled) > slotEvery {
		t.Errorf("it looks again at %s", wake)
	}
	steps, _ := sc.Plan(settled.Add(slotEvery))
	found := false
	for _, s := range steps {
		_, open := s.(OpenSession)
		found = found || open
	}
	if !found {
		t.Error("it does not go on")
	}
}

// silenced is a scheduler whose silent sessions hold all sessions of the receiver. Each ends a minute after another.
func silenced(t *testing.T) (sc *Scheduler, ends []*smtp.Ending) {
	sc = slotWorkspaces(t, registry.NewSlots(4), 1)
	most := sc.options.Allow(sc.key).Connections
	line := registry.Line{Host: sc.queues.hostQueue(begin, hosts("mx1")).candidates[0].at}
	for n := range most {
		one := sc.allowance.handle.Dial(0, most, uuid.Nil, registry.NewSlots(most), line)
		ends = append(ends, &smtp.Ending{Gone: make(chan struct{}), Until: settled.Add(time.Duration(n+1) * time.Minute)})
		one.CloseWhen(ends[n])
	}
	return sc, ends
}

// TestSilentSessionsSayForHowLong: and nothing is opened beside them.
func TestSilentSessionsSayForHowLong(t *testing.T) {
	sc, ends := silenced(t)
	effort.MustBe(t, opened(sc), 0, "sessions are opened beside those that the receiver may count")
	b := sc.explainBlocked(settled)
	if want := fmt.Sprintf("may also count %d that", len(ends)); b.Cause != wire.Cause_CONNECTIONS ||
		!b.Until.Equal(settled.Add(time.Minute)) || !strings.Contains(b.Why, want) {
		t.Errorf("it waits for %s until %s: %s", b.Cause, b.Until, b.Why)
	}
}

// TestALostSessionsPortTeachesNothingBesideOthers: the next session is dialled from there. If that fails while the host
// serves another session, the port is the cause; otherwise the host is down.
func TestALostSessionsPortTeachesNothingBesideOthers(t *testing.T) {
	for served, failures := range map[bool]int{true: 0, false: 1} {
		sc, ends := silenced(t)
		from := netip.MustParseAddrPort("10.0.0.1:4000")
		ends[0].Lost.Store(&from)
		effort.MustBe(t, opened(sc), 1, "sessions are opened")
		var s *session
		for _, s = range sc.sessions.all {
			effort.Is(t, s.slot.From, from, "dialled from")
		}
		if served {
			sc.sessions.all[0] = &session{host: s.host, path: s.path, queue: s.queue, ready: true, slot: &registry.ConnSlot{}}
		}
		failed := judged(smtp.Address{}, &smtp.Failure{Stage: smtp.StageConnect, Err: os.ErrDeadlineExceeded})
		sc.SessionOpened(settled, s.id, throttle.Shown{}, &failed)
		effort.Is(t, s.host.failures, failures, "failures of a host that serves another one:", served)
		effort.Is(t, sc.allowance.learned.Connections.Most, 0, "sessions that it allows")
	}
}
