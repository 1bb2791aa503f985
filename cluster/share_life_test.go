package cluster

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

// forgets is after how long without a word a receiver forgets a session.
const forgets = 5 * time.Minute

// silence is what receivers may still hold of a key though the process has ended it.
type silence struct {
	part  *big.Rat
	until time.Time // they do
	told  time.Time // the process believes so; later, as it cannot know better
}

// life is one process in a world of which only the ledger is common.
type life struct {
	self     ledger.Incarnation
	view     []ledger.Incarnation // whom it sees at present: anything may happen to that
	voted    []ledger.Incarnation
	began    bool
	unsure   bool
	table    *ShareTable // what it read
	used     *ShareTable // what it keeps to: what it uses is never more than table and used allow
	turn     int64       // of table
	complied int64
	sent     time.Time // of its last good heartbeat
	sockets  bool      // it has SMTP sessions, for all that used allows
	exists   bool
	paused   bool
	cut      bool // receivers do not hear it
	silent   map[string]silence
}

// world is the ledger, the time, and the processes.
type world struct {
	now   time.Time
	turn  int64
	rows  map[uuid.UUID]*ledger.NodeRow
	lives []*life
	keys  []string
}

func (w *world) fenced(l *life) bool { return l.sent.IsZero() || w.now.Sub(l.sent) >= guard }

func (w *world) roll() ledger.NodeSnapshot {
	r := ledger.NodeSnapshot{Now: w.now, Generation: w.turn}
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
	case row == nil || row.Status != ledger.NodeIn:
		w.turn++
		w.rows[l.self.Session] = &ledger.NodeRow{Heartbeat: ledger.Heartbeat{Incarnation: l.self}, Generation: w.turn}
	case !slices.Equal(row.View, l.voted):
		w.turn++
		row.Generation, row.Before = w.turn, row.View
	}
	row = w.rows[l.self.Session]
	row.View, row.Read, row.Seen, row.Silent = l.voted, l.complied, w.now, w.told(l)
}

// told are the hashes of the keys of which a process believes that receivers hold sessions.
func (w *world) told(l *life) (hashes []uint64) {
	for key, s := range l.silent {
		if w.now.Before(s.told) {
			hashes = append(hashes, Hash(key))
		}
	}
	slices.Sort(hashes)
	return hashes
}

// hush makes what a process has of a key silent, if it has some: what it said last was at a time.
func (w *world) hush(l *life, key string, last time.Time) {
	w.keep(l, key, w.uses(l, key), last)
}

// keep makes a part silent, beside what was before.
func (w *world) keep(l *life, key string, part *big.Rat, last time.Time) {
	if part.Sign() == 0 {
		return
	}
	s := silence{part: part, until: last.Add(forgets), told: w.now.Add(forgets)}
	if was := l.silent[key]; was.until.After(s.until) {
		s.until = was.until
	}
	l.silent[key] = s
}

// end closes what a process has of all keys, if receivers hear it.
func (w *world) end(l *life, last time.Time) {
	if l.cut && l.sockets {
		for _, key := range w.keys {
			w.hush(l, key, last)
		}
	}
	l.sockets = false
}

// read is the second half.
func (w *world) read(l *life, sent time.Time) {
	roll := w.roll()
	l.sent, l.turn = sent, roll.Generation
	l.table = ComputeShares(roll, l.self.Session, LingerMax)
}

// retire counts out who was not seen for too long.
func (w *world) retire(l *life) {
	for _, row := range w.roll().Nodes {
		other := w.rows[row.Session]
		dead := !slices.ContainsFunc(w.lives, func(o *life) bool {
			return o.self == row.Incarnation && o.exists && (o.paused || o.sockets || len(w.told(o)) > 0)
		})
		switch {
		case other.Status == ledger.NodeIn && w.now.Sub(other.Seen) >= lost:
			w.turn++
			if other.Read >= other.Generation {
				other.Before = nil
			}
			other.Status, other.Generation, other.Dead = ledger.NodeLost, w.turn, dead
		case other.Status == ledger.NodeLost && dead:
			other.Dead = true
		}
	}
}

// uses is the part of a key that a process uses at most: of what it read last, and, until it has complied with that, of
// what it read before. What is silent has its place in that, and may be more.
func (w *world) uses(l *life, key string) *big.Rat {
	most := new(big.Rat)
	if s := l.silent[key]; w.now.Before(s.until) {
		most.Set(s.part)
	}
	if !l.exists || !l.sockets || !w.now.Before(l.sent.Add(guard+forgets)) {
		return most
	}
	for _, t := range []*ShareTable{l.table, l.used} {
		if k, n := t.Of(key); k > 0 {
			if part := big.NewRat(int64(k), int64(n)); part.Cmp(most) > 0 {
				most = part
			}
		}
	}
	return most
}

// TestNeverMoreThanTheWhole lets views, heartbeats, pauses and deaths happen in any order, and looks after each step
// whether all processes together may use more of any key than there is.
func TestNeverMoreThanTheWhole(t *testing.T) {
	keys := make([]string, 24)
	for i := range keys {
		keys[i] = fmt.Sprintf("receiver-%d.example", i)
	}
	effort.Check(t, func(t *rapid.T) {
		w := &world{now: midnight, rows: map[uuid.UUID]*ledger.NodeRow{}, keys: keys}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			w.begin(processOf(i))
		}
		steps := rapid.IntRange(10, 150).Draw(t, "steps")
		for range steps {
			w.step(t)
			for _, key := range keys {
				sum := new(big.Rat)
				for _, l := range w.lives {
					sum.Add(sum, w.uses(l, key))
				}
				effort.FatalIf(t, sum.Cmp(big.NewRat(1, 1)) > 0, "of %s is used %s", key, sum)
			}
		}
	})
}

// begin adds a process.
func (w *world) begin(p ledger.Incarnation) {
	w.lives = append(w.lives, &life{self: p, view: []ledger.Incarnation{p}, exists: true, sockets: true,
		silent: map[string]silence{}})
}

// livesMax is how many processes there are at most, those that begin anew included.
const livesMax = 7

// seen are some of all processes, as a view.
func (w *world) seen(numbers []int) (view []ledger.Incarnation) {
	for _, i := range numbers {
		view = append(view, w.lives[i].self)
	}
	slices.SortFunc(view, func(a, b ledger.Incarnation) int { return slices.Compare(a.Session[:], b.Session[:]) })
	return view
}

func (w *world) step(t *rapid.T) {
	l := w.lives[rapid.IntRange(0, len(w.lives)-1).Draw(t, "who")]
	what := rapid.SampledFrom([]string{"beat", "beat", "comply", "comply", "look", "look", "write only",
		"all beat", "wait", "sleep", "sleep long", "retire", "pause", "wake", "die", "leave", "restart",
		"cut", "heal", "silent"}).Draw(t, "what")
	switch what {
	case "wait":
		w.now = w.now.Add(time.Second)
	case "sleep":
		w.now = w.now.Add(lost)
	case "sleep long":
		w.now = w.now.Add(100 * time.Second)
	case "look":
		l.view = w.seen(rapid.SliceOfNDistinct(rapid.IntRange(0, len(w.lives)-1), 0, -1, rapid.ID[int]).
			Draw(t, "view"))
	case "cut", "heal":
		l.cut = what == "cut"
	case "silent":
		if l.exists && !l.paused && !w.fenced(l) {
			w.hush(l, rapid.SampledFrom(w.keys).Draw(t, "key"), w.now)
		}
	case "wake":
		l.paused = false
	case "die":
		w.die(l)
	case "restart":
		if !l.exists && len(w.lives) < livesMax {
			w.begin(ledger.Incarnation{Session: processOf(len(w.lives)).Session, Node: l.self.Node})
		}
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
			w.end(l, l.sent.Add(guard))
			l.table, l.used = nil, nil
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
			w.applyShares(l)
		}
	case "retire":
		w.retire(l)
	case "pause":
		l.paused = true
	case "leave":
		w.leave(l)
	}
}

// comply lets a process keep to what it read. What it had above that is silent when it is cut off.
func (w *world) applyShares(l *life) {
	had := map[string]*big.Rat{}
	for _, key := range w.keys {
		had[key] = w.uses(l, key)
	}
	l.used, l.complied = l.table, l.turn
	for _, key := range w.keys {
		if l.cut && w.uses(l, key).Cmp(had[key]) < 0 {
			w.keep(l, key, had[key], w.now)
		}
	}
}

// die is the end of a process whose system says so to receivers. Those that do not hear it are not
// known to anybody, but for those that its row names: cluster/README.md says so.
func (w *world) die(l *life) {
	l.exists, l.sockets = false, false
	for key := range l.silent {
		row := w.rows[l.self.Session]
		if row == nil || !slices.Contains(row.Silent, Hash(key)) {
			delete(l.silent, key)
		}
	}
}

// leave is a clean end: nothing is used any more, then the row says so.
func (w *world) leave(l *life) {
	w.end(l, w.now)
	l.exists = false
	if row := w.rows[l.self.Session]; row != nil && row.Status == ledger.NodeIn {
		w.turn++
		row.Status, row.Generation, row.Seen, row.Silent = ledger.NodeLeft, w.turn, w.now, w.told(l)
	} else {
		w.die(l)
	}
}
