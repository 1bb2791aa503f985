package share

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// The times of the protocol, as package cluster has them.
const (
	lost  = 10 * time.Second
	guard = 8 * time.Second
)

// life is one process in a world of which only the ledger is common.
type life struct {
	self     ledger.Process
	view     []ledger.Process // whom it sees at present: anything may happen to that
	voted    []ledger.Process
	began    bool
	unsure   bool
	table    *Table // what it read
	used     *Table // what it keeps to: what it uses is never more than table and used allow
	turn     int64  // of table
	complied int64
	sent     time.Time // of its last good heartbeat
	sockets  bool      // it has SMTP sessions, for all that used allows
	exists   bool
	paused   bool
}

// world is the ledger, the time, and the processes.
type world struct {
	now   time.Time
	turn  int64
	rows  map[uuid.UUID]*ledger.NodeRow
	lives []*life
}

func (w *world) fenced(l *life) bool { return l.sent.IsZero() || w.now.Sub(l.sent) >= guard }

func (w *world) roll() ledger.Roll {
	r := ledger.Roll{Now: w.now, Turn: w.turn}
	for _, row := range w.rows {
		r.Nodes = append(r.Nodes, *row)
	}
	slices.SortFunc(r.Nodes, func(a, b ledger.NodeRow) int {
		return slices.Compare(a.Session[:], b.Session[:])
	})
	return r
}

// write is the first half of a heartbeat.
func (w *world) write(l *life) {
	if !l.began || !l.unsure && l.table.Settled() {
		l.began, l.voted = true, l.view
	}
	row := w.rows[l.self.Session]
	switch {
	case row == nil || row.Standing != ledger.NodeIn:
		w.turn++
		w.rows[l.self.Session] = &ledger.NodeRow{Beat: ledger.Beat{Process: l.self}, Turn: w.turn}
	case !slices.Equal(row.View, l.voted):
		w.turn++
		row.Turn, row.Before = w.turn, row.View
	}
	row = w.rows[l.self.Session]
	row.View, row.Read, row.Seen = l.voted, l.complied, w.now
}

// read is the second half.
func (w *world) read(l *life, sent time.Time) {
	roll := w.roll()
	l.sent, l.turn = sent, roll.Turn
	l.table = Compute(roll, l.self.Session, RestFor)
}

// retire counts out who was not seen for too long.
func (w *world) retire(l *life) {
	for _, row := range w.roll().Nodes {
		other := w.rows[row.Session]
		dead := !slices.ContainsFunc(w.lives, func(o *life) bool {
			return o.self == row.Process && (o.exists && (o.paused || o.sockets))
		})
		switch {
		case other.Standing == ledger.NodeIn && w.now.Sub(other.Seen) >= lost:
			w.turn++
			if other.Read >= other.Turn {
				other.Before = nil
			}
			other.Standing, other.Turn, other.Dead = ledger.NodeLost, w.turn, dead
		case other.Standing == ledger.NodeLost && dead:
			other.Dead = true
		}
	}
}

// uses is the part of a key that a process uses at most: of what it read last,
// and, until it has complied with that, of what it read before.
func (w *world) uses(l *life, key string) *big.Rat {
	most := new(big.Rat)
	if !l.exists || !l.sockets {
		return most
	}
	for _, t := range []*Table{l.table, l.used} {
		if k, n := t.Of(key); k > 0 {
			if part := big.NewRat(int64(k), int64(n)); part.Cmp(most) > 0 {
				most = part
			}
		}
	}
	return most
}

// TestNeverMoreThanTheWhole lets views, heartbeats, pauses and deaths happen in
// any order, and looks after each step whether all processes together may use more
// of any key than there is.
func TestNeverMoreThanTheWhole(t *testing.T) {
	keys := make([]string, 24)
	for i := range keys {
		keys[i] = fmt.Sprintf("receiver-%d.example", i)
	}
	effort.Check(t, func(t *rapid.T) {
		w := &world{now: midnight, rows: map[uuid.UUID]*ledger.NodeRow{}}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			w.lives = append(w.lives, &life{self: processOf(i), view: viewOf(i), exists: true, sockets: true})
		}
		steps := rapid.IntRange(10, 150).Draw(t, "steps")
		for range steps {
			w.step(t)
			for _, key := range keys {
				sum := new(big.Rat)
				for _, l := range w.lives {
					sum.Add(sum, w.uses(l, key))
				}
				if sum.Cmp(big.NewRat(1, 1)) > 0 {
					t.Fatalf("of %s is used %s", key, sum)
				}
			}
		}
	})
}

func (w *world) step(t *rapid.T) {
	l := w.lives[rapid.IntRange(0, len(w.lives)-1).Draw(t, "who")]
	what := rapid.SampledFrom([]string{"beat", "beat", "comply", "comply", "look", "look", "write only",
		"all beat", "wait", "sleep", "retire", "pause", "wake", "die", "leave"}).Draw(t, "what")
	switch what {
	case "wait":
		w.now = w.now.Add(time.Second)
	case "sleep":
		w.now = w.now.Add(lost)
	case "look":
		l.view = viewOf(rapid.SliceOfNDistinct(rapid.IntRange(0, len(w.lives)-1), 0, -1, rapid.ID[int]).
			Draw(t, "view")...)
	case "wake":
		l.paused = false
	case "die":
		l.exists, l.sockets = false, false
	case "all beat":
		for _, l := range w.lives {
			w.act(l, "beat")
			w.act(l, "comply")
		}
	default:
		w.act(l, what)
	}
	for _, l := range w.lives {
		if l.exists && !l.paused && w.fenced(l) { // the fence goes up by itself
			l.table, l.used, l.sockets = nil, nil, false
		}
	}
}

// act is something that a process does itself.
func (w *world) act(l *life, what string) {
	if !l.exists || l.paused {
		return
	}
	switch what {
	case "beat":
		sent := w.now
		w.write(l)
		l.unsure = false
		l.sockets = true
		w.read(l, sent)
	case "write only":
		w.write(l)
		l.unsure = true
	case "comply":
		if !w.fenced(l) && l.table != nil {
			l.used, l.complied = l.table, l.turn
		}
	case "retire":
		w.retire(l)
	case "pause":
		l.paused = true
	case "leave":
		w.leave(l)
	}
}

// leave is a clean end: nothing is used any more, then the row says so.
func (w *world) leave(l *life) {
	l.exists, l.sockets = false, false
	if row := w.rows[l.self.Session]; row != nil && row.Standing == ledger.NodeIn {
		w.turn++
		row.Standing, row.Turn = ledger.NodeLeft, w.turn
	}
}
