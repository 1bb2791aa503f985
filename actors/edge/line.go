package edge

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// want is what a request wants of its key.
type want uint8

const (
	wantRead want = iota
	wantCreate
	wantDownload
	wants = iota // how many kinds there are
)

// rates is how many wants, the first, are for tokens of a rate; the other is for a slot.
const rates = int(wantDownload)

// limitNames are the values of the metrics' label limit, by want; those of the API's metrics.
var limitNames = [wants]string{wantRead: "reads", wantCreate: "creates", wantDownload: "downloads"}

// waiter is one request that waits for its answer.
type waiter struct {
	want    want
	settled bool          // guarded by its line's mu
	ok      bool          // guarded by its line's mu until done is closed
	wait    time.Duration // likewise; when not ok
	done    chan struct{}
}

func (w *waiter) settle(ok bool, wait time.Duration) {
	w.settled, w.ok, w.wait = true, ok, wait
	close(w.done)
}

// line is what this node knows of one key and of the actor that counts it.
// mu guards all fields but the first two.
type line struct {
	key    string
	limits Limits

	mu      sync.Mutex
	gone    bool          // forgotten: there may be another line for the key
	owner   *actor.PID    // nil: not known
	found   time.Time     // when the owner was found
	finding bool          // it is being looked for
	retry   time.Time     // it is not looked for before
	pause   time.Duration // of the last rest; 0: it answered since

	number  uint64    // of the question under way; 0: none
	sent    time.Time // of that question
	stated  int       // slots held, as that question says
	waiting []*waiter // not asked for
	asked   []*waiter // in the question under way
	broken  bool      // requests do not wait for the owner until it answers again
	renew   bool      // the owner must hear what we hold
	probe   bool      // an owner that is broken may be asked whether it still is

	held       int              // slots that requests of this node hold
	told       int              // slots that we hold or want, as the owner was told last
	activation uint64           // of the owner that told the debts
	debts      [rates]debt      // as last heard, and what was granted here since
	empty      [rates]time.Time // no token before
	spare      [rates]debt      // granted here without the owner
}

// setOwner changes the owner. The next one must hear what we hold.
func (s *line) setOwner(owner *actor.PID) { s.owner, s.renew = owner, s.held > 0 }

// question makes the next question out of what waits.
func (s *line) question(now time.Time, node nodeID, number uint64) *Ask {
	s.number, s.sent, s.stated, s.renew, s.probe = number, now, s.held, false, false
	s.asked, s.waiting = s.waiting, nil
	var n [wants]uint32
	for _, w := range s.asked {
		n[w.want]++
	}
	s.told = s.held + int(n[wantDownload])
	return &Ask{Key: s.key, Node: node[:], Number: number, Reads: n[wantRead], Creates: n[wantCreate],
		Downloads: n[wantDownload], Held: uint32(s.held), Activation: s.activation,
		ReadsDebt: s.debt(now, wantRead), CreatesDebt: s.debt(now, wantCreate)}
}

// debt is what of a rate is used, as far as this node knows.
func (s *line) debt(now time.Time, w want) float64 {
	return s.debts[w].pass(now, s.limits.rate(w).PerSecond)
}

// answered takes the answer to the question under way, and says whether it is that.
func (s *line) answered(now time.Time, m *Answer) bool {
	if s.number == 0 || m.Number != s.number {
		return false
	}
	granted := [wants]uint32{wantRead: m.Reads, wantCreate: m.Creates, wantDownload: m.Downloads}
	waits := [wants]time.Duration{wantRead: time.Duration(m.ReadsWaitNs),
		wantCreate: time.Duration(m.CreatesWaitNs)}
	s.activation = m.Activation
	s.debts[wantRead] = debt{m.ReadsDebt, now}
	s.debts[wantCreate] = debt{m.CreatesDebt, now}
	s.told = s.stated + int(m.Downloads)
	for _, w := range s.asked {
		ok := granted[w.want] > 0
		if ok {
			granted[w.want]--
		}
		if ok && w.want == wantDownload {
			s.held++
		}
		if !ok && int(w.want) < rates { // since the question: rather ask too early than too late
			s.empty[w.want] = s.sent.Add(waits[w.want])
		}
		w.settle(ok, waits[w.want])
	}
	s.number, s.asked, s.broken, s.pause = 0, nil, false, 0
	return true
}

// lost ends the question under way; what it asked for waits again.
func (s *line) lost(now time.Time) {
	s.waiting = append(s.asked, s.waiting...)
	s.number, s.asked = 0, nil
	s.rest(now)
}

// rest puts off the next look for the owner, longer each time.
func (s *line) rest(now time.Time) {
	s.pause = min(max(2*s.pause, pauseFirst), pauseMax)
	s.retry = now.Add(s.pause)
}

// fail gives up the owner for the moment: everything that waits gets of our part.
func (s *line) fail(now time.Time, part Limits) (fallbacks [wants]int) {
	s.lost(now)
	s.broken, s.probe = true, true
	for _, w := range s.waiting {
		fallbacks[w.want]++
		w.settle(s.grant(now, w.want, part))
	}
	s.waiting = nil
	return fallbacks
}

// grant takes from our part of the limits, without the owner.
func (s *line) grant(now time.Time, w want, part Limits) (ok bool, wait time.Duration) {
	if w == wantDownload {
		if s.held >= part.Downloads {
			return false, 0
		}
		s.held++
		return true, 0
	}
	taken, wait := s.spare[w].take(now, 1, part.rate(w))
	s.debts[w].tokens = s.debt(now, w) + float64(taken)
	return taken > 0, wait
}

// asks says whether there is something to ask or to tell.
func (s *line) asks() bool {
	return len(s.waiting) > 0 || s.held != s.told || s.renew || s.probe
}

// busy says whether the line must not be forgotten.
func (s *line) busy() bool {
	return len(s.waiting) > 0 || len(s.asked) > 0 || s.held > 0 || s.told > 0 || s.finding
}

// blank says whether a new line would be the same but for the owner.
func (s *line) blank(now time.Time) bool {
	return !s.broken && s.debt(now, wantRead) == 0 && s.debt(now, wantCreate) == 0
}
