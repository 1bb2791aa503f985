package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"rollcall/ledger"
)

const (
	// apartMax is how much the clock of a server may differ from the node's before nothing is
	// erased any more. Time services keep both within milliseconds; 5 minutes are a fault. Guess.
	apartMax = 5 * time.Minute
	// jumpMax is by how much the ledger's clock may advance more than the time that a process ran. Above
	// the pauses of a virtual machine; what it erases too early, it erases an hour too early.
	jumpMax = time.Hour
	// standstillMax is how long nobody may have swept before a process began, as in a night
	// without nodes.
	standstillMax = 24 * time.Hour
	// trustAfter is how long a jump has to last before it is believed. Until then people have time to mend
	// the clock. After a long standstill the jump is real.
	trustAfter = 24 * time.Hour
	// sweptEvery is how exactly the time of the last sweep is kept.
	sweptEvery = time.Minute
)

// look is what the clocks said at one moment.
type look struct {
	ledger, swept time.Time     // by the ledger's clock: now, and at the last sweep
	node          time.Time     // of a ledger on a server: by this machine's clock; zero: they are one
	ran           time.Duration // of this process, by a clock that nobody can set
}

// clockWatch notices when the ledger's clock jumps ahead, by which all that is kept for a time
// would be over at once. A clock that is behind erases nothing.
type clockWatch struct {
	node func() time.Time
	ran  func() time.Duration

	mu     sync.Mutex
	last   look  // the last one that was believed; ledger is the latest time it can mean
	known  bool  // there was one
	jump   *look // the first look at a jump that stands; nil: none does
	doubts bool  // the last look was doubted
}

func newClockWatch() *clockWatch {
	began := time.Now()
	return &clockWatch{node: time.Now, ran: func() time.Duration { return time.Since(began) }}
}

// doubt says why a look is not believed; "": it is.
func (c *clockWatch) doubt(l look) string {
	if apart := l.ledger.Sub(l.node).Abs(); !l.node.IsZero() && apart > apartMax {
		c.jump = nil
		return fmt.Sprintf("it differs from this node's by %s", apart.Round(time.Second))
	}
	ahead, most, since := l.ledger.Sub(l.swept), standstillMax, "the last sweep"
	expected := l.ledger
	if c.known {
		expected = c.last.ledger.Add(l.ran - c.last.ran)
		ahead, most, since = l.ledger.Sub(expected), jumpMax, "this process was sure of it"
	}
	if ahead > most {
		if c.jump == nil || (l.ledger.Sub(c.jump.ledger)-(l.ran-c.jump.ran)).Abs() > jumpMax {
			c.jump = &l
		}
		if left := trustAfter - (l.ran - c.jump.ran); left > 0 {
			return fmt.Sprintf("it is %s ahead since %s, and is believed in %s",
				ahead.Round(time.Second), since, left.Round(time.Second))
		}
		expected = l.ledger
	}
	if l.ledger.Before(expected) {
		l.ledger = expected // when a clock that went back is right again, that is no jump
	}
	c.last, c.known, c.jump = l, true, nil
	return ""
}

// BelievedNow keeps a sweep from what time demands while the ledger's clock is in doubt, and
// tells when that begins and ends. It gives the time that is believed. ledger.ErrClock.
func (s *DB) BelievedNow(ctx context.Context) (now int64, err error) {
	var swept int64
	err = s.View(ctx, func(t *Tx) error {
		return t.Row(`SELECT {now}, swept FROM ledger_clock`).Scan(&now, &swept)
	})
	if err != nil {
		return 0, fmt.Errorf("read the ledger's clock: %w", err)
	}
	c := s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	l := look{ledger: ledger.Clock(now), swept: ledger.Clock(swept), ran: c.ran()}
	if !s.Embedded() {
		l.node = c.node()
	}
	why := c.doubt(l)
	s.tellDoubt(why)
	if why != "" {
		return 0, fmt.Errorf("%w: %s", ledger.ErrClock, why)
	}
	if l.ledger.Sub(l.swept).Abs() < sweptEvery {
		return now, nil
	}
	return now, s.Update(ctx, func(t *Tx) error {
		_, err := t.Exec(`UPDATE ledger_clock SET swept = ?`, now)
		return err
	})
}

// tellDoubt logs the beginning and the end of a doubt. mu is held.
func (s *DB) tellDoubt(why string) {
	c := s.clock
	switch {
	case why != "" && !c.doubts:
		s.Log.Error("nothing is erased or expired: the ledger's clock is not believed", "why", why)
	case why == "" && c.doubts:
		s.Log.Info("the ledger's clock is believed again")
	}
	c.doubts = why != ""
	value := 0.0
	if c.doubts {
		value = 1
	}
	s.meters.doubted.Set(value)
}
