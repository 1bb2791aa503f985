package cluster

import (
	"encoding/binary"
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

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rowOf makes the row of a member that has read everything and votes for a view.
func rowOf(n int, view []ledger.Incarnation) ledger.NodeRow {
	return ledger.NodeRow{Heartbeat: ledger.Heartbeat{Incarnation: processOf(n), View: view, Read: 10}, Seen: midnight,
		Generation: 1}
}

// keyOf finds a key that a process owns in each of some views.
func keyOf(t *testing.T, n int, views ...[]ledger.Incarnation) string {
	t.Helper()
	for i := range 10_000 {
		key := uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(i), byte(i >> 8)}).String()
		ok := true
		for _, v := range views {
			ok = ok && Owner(v, key) == processOf(n).Session
		}
		if ok {
			return key
		}
	}
	t.Fatal("no such key")
	return ""
}

func TestShares(t *testing.T) {
	all, pair, single := viewOf(0, 1, 2), viewOf(0, 1), viewOf(2)
	mine := keyOf(t, 0, all, pair) // owned by 0 with and without 2
	moved := keyOf(t, 2, all)      // owned by 2 while 2 is there,
	for Owner(pair, moved) != processOf(0).Session {
		moved += "x"
		if Owner(all, moved) != processOf(2).Session {
			moved += "y"
		}
	}
	for Owner(all, moved) != processOf(2).Session || Owner(pair, moved) != processOf(0).Session {
		moved += "z"
	}
	for _, c := range []struct {
		name   string
		key    string
		change func(rows []ledger.NodeRow)
		k, n   int
	}{
		{"all agree", mine, func([]ledger.NodeRow) {}, 3, 3},
		{"another's key", moved, func([]ledger.NodeRow) {}, 0, 3},
		{"a partition, for the key that stays", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View, r[2].View = pair, pair, single
		}, 2, 3},
		{"a partition, for the key of the other side", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View, r[2].View = pair, pair, single
		}, 2, 3},
		{"votes that nobody has read count for nobody", moved, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = pair, all, 11
			r[1].View, r[1].Before, r[1].Generation = pair, all, 11
		}, 0, 3},
		{"a vote that means the same before and after counts", mine, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = pair, all, 11
			r[1].View, r[1].Before, r[1].Generation = pair, all, 11
		}, 3, 3},
		{"one slow reader keeps votes from counting", moved, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation, r[0].Read = pair, all, 5, 6
			r[1].View, r[1].Before, r[1].Generation, r[1].Read = pair, all, 6, 6
			r[2].Read = 4
		}, 0, 3},
		{"a lost process that is not known to be dead keeps its receivers at rest", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 0, 2},
		{"who leaves itself out has nothing, although the others vote for it", mine, func(r []ledger.NodeRow) {
			r[0].View = nil
		}, 0, 3},
		{"nor while its vote may still mean that", mine, func(r []ledger.NodeRow) {
			r[0].View, r[0].Before, r[0].Generation = all, []ledger.Incarnation{}, 11
		}, 0, 3},
		{"but no others", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 2, 2},
		{"one that was lost in the middle of a change, of what it had before", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before = all, single
			r[2].Status, r[2].Generation = ledger.NodeLost, 9
		}, 0, 2},
		{"what another process calls silent is nobody else's, though all vote for it", mine, func(r []ledger.NodeRow) {
			r[2].Silent = []uint64{Hash(mine)}
		}, 0, 3},
		{"other keys are", mine, func(r []ledger.NodeRow) {
			r[2].Silent = []uint64{Hash(mine) - 1, Hash(mine) + 1}
		}, 3, 3},
		{"what it calls silent itself has its place in its own share", mine, func(r []ledger.NodeRow) {
			r[0].Silent = []uint64{Hash(mine)}
		}, 3, 3},
		{"a dead process leaves what is silent", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Dead, r[2].Silent = ledger.NodeLost, 9, true, []uint64{Hash(mine)}
		}, 0, 2},
		{"so does one who left", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Silent = ledger.NodeLeft, 9, []uint64{Hash(mine)}
		}, 0, 2},
		{"until receivers have forgotten it", mine, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Silent = ledger.NodeLeft, 9, []uint64{Hash(mine)}
			r[2].Seen = midnight.Add(-LingerMax)
		}, 2, 2},
		{"until it is known to be dead", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Dead = ledger.NodeLost, 9, true
		}, 2, 2},
		{"or receivers have ended its sessions", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Seen = ledger.NodeLost, 9, midnight.Add(-LingerMax)
		}, 2, 2},
		{"the instant before they rest", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation, r[2].Seen = ledger.NodeLost, 9, midnight.Add(time.Millisecond-LingerMax)
		}, 0, 2},
		{"an end that somebody has not read counts the process in", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLeft, 11
		}, 2, 3},
		{"one who left", moved, func(r []ledger.NodeRow) {
			r[0].View, r[1].View = pair, pair
			r[2].Status, r[2].Generation = ledger.NodeLeft, 9
		}, 2, 2},
		{"who begins counts for nobody at first", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before, r[2].Generation = single, nil, 11
		}, 2, 3},
		{"unless it can only mean this process", mine, func(r []ledger.NodeRow) {
			r[2].View, r[2].Before, r[2].Generation = all, nil, 11
		}, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := []ledger.NodeRow{rowOf(0, all), rowOf(1, all), rowOf(2, all)}
			c.change(rows)
			table := ComputeShares(ledger.NodeSnapshot{Now: midnight, Generation: 11, Nodes: rows},
				processOf(0).Session, LingerMax)
			k, n := table.Of(c.key)
			effort.FatalIf(t, k != c.k || n != c.n, "may use %d of %d, want %d of %d", k, n, c.k, c.n)
		})
	}
}

func TestSame(t *testing.T) {
	all, pair := viewOf(0, 1, 2), viewOf(0, 1)
	for _, c := range []struct {
		name   string
		change func(r *ledger.NodeSnapshot)
		same   bool
	}{
		{"seen later, and a turn that was read", func(r *ledger.NodeSnapshot) {
			r.Now, r.Nodes[1].Seen, r.Nodes[1].Leases = r.Now.Add(time.Second), r.Now, 7
		}, true},
		{"another view", func(r *ledger.NodeSnapshot) { r.Nodes[1].View = pair }, false},
		{"a vote that is not settled", func(r *ledger.NodeSnapshot) {
			r.Nodes[1].Generation, r.Nodes[1].Before = 11,
				pair
		}, false},
		{"one who left", func(r *ledger.NodeSnapshot) { r.Nodes[1].Status = ledger.NodeLeft }, false},
		{"one who is lost", func(r *ledger.NodeSnapshot) { r.Nodes[1].Status = ledger.NodeLost }, false},
		{"one more", func(r *ledger.NodeSnapshot) { r.Nodes = append(r.Nodes, rowOf(3, all)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh := func() ledger.NodeSnapshot {
				return ledger.NodeSnapshot{Now: midnight, Generation: 11, Nodes: []ledger.NodeRow{rowOf(0, all), rowOf(1, all),
					rowOf(2, all)}}
			}
			before, after := fresh(), fresh()
			c.change(&after)
			self := processOf(0).Session
			effort.MustBe(t, ComputeShares(before, self, LingerMax).Same(ComputeShares(after, self, LingerMax)), c.same, "same")
		})
	}
	some := ComputeShares(ledger.NodeSnapshot{Nodes: []ledger.NodeRow{rowOf(0, all)}}, processOf(0).Session, LingerMax)
	if none := (*ShareTable)(nil); !none.Same(nil) || none.Same(some) || some.Same(none) {
		t.Fatal("Same is wrong about a missing table: it equals only another missing one")
	}
}

func TestWhoIsNotInMayUseNothing(t *testing.T) {
	roll := ledger.NodeSnapshot{Now: midnight, Generation: 1, Nodes: []ledger.NodeRow{rowOf(1, viewOf(1))}}
	table := ComputeShares(roll, processOf(0).Session, LingerMax)
	k, _ := table.Of("example.net")
	effort.FatalIf(t, k != 0 || table.Settled() || table.Voters() != 0, "a process without a row may use %d parts", k)
	roll.Nodes[0].Status = ledger.NodeLost
	k, _ = ComputeShares(roll, processOf(1).Session, LingerMax).Of("example.net")
	effort.FatalIf(t, k != 0, "a process that was counted out may use %d parts", k)
}

// processOf makes a process. Small numbers give identities that differ in few bits, the hardest case for the hash.
func processOf(n int) ledger.Incarnation {
	var p ledger.Incarnation
	binary.BigEndian.PutUint32(p.Session[12:], uint32(n+1))
	binary.BigEndian.PutUint32(p.Node[12:], uint32(n+1000))
	return p
}

func viewOf(numbers ...int) []ledger.Incarnation {
	var view []ledger.Incarnation
	for _, n := range slices.Sorted(slices.Values(numbers)) {
		view = append(view, processOf(n))
	}
	return view
}

func TestOwnersSpreadEvenlyAndMoveLittle(t *testing.T) {
	const keys = 30000
	three, four := viewOf(0, 1, 2), viewOf(0, 1, 2, 3)
	count, moved := map[uuid.UUID]int{}, 0
	for i := range keys {
		key := fmt.Sprintf("domain-%d.example", i)
		before, after := Owner(three, key), Owner(four, key)
		count[before]++
		if before != after {
			moved++
			effort.MustBe(t, after, processOf(3).Session, key, "moved from", before)
		}
	}
	for session, n := range count {
		effort.ErrorIf(t, n < keys/3*95/100 || n > keys/3*105/100,
			"%s owns %d of %d keys, want a third", session, n, keys)
	}
	effort.ErrorIf(t, moved < keys/4*95/100 || moved > keys/4*105/100,
		"%d of %d keys moved to a fourth member, want a quarter", moved, keys)
}

func TestALaterLifeOfANodeOwnsWhatTheEarlierHad(t *testing.T) {
	before := viewOf(0, 1, 2)
	after := slices.Clone(before)
	after[1].Session = uuid.UUID{15: 200}
	for i := range 1000 {
		key := fmt.Sprintf("domain-%d.example", i)
		old, now := Owner(before, key), Owner(after, key)
		if old == before[1].Session {
			old = after[1].Session
		}
		effort.MustBe(t, old, now, key, "moved when a node began anew")
	}
}

func TestNobodyOwnsWhatNobodySees(t *testing.T) {
	effort.MustBe(t, Owner(nil, "example.net"), uuid.Nil, "owner of an empty view")
}

// The times of the protocol, as package cluster has them.
const (
	lost  = 10 * time.Second
	guard = 8 * time.Second
)

// forgets is the time without a command after which a receiver forgets a session.
const forgets = 5 * time.Minute

// silence is a part of a key that receivers may still count although the process has ended its sessions.
type silence struct {
	part  *big.Rat
	until time.Time // they do
	told  time.Time // until when the process believes that; it is later, because the process cannot know better
}

// life is one process; of other processes it knows only what the ledger says.
type life struct {
	self     ledger.Incarnation
	view     []ledger.Incarnation // processes that it sees at present, changed at random
	voted    []ledger.Incarnation
	began    bool
	unsure   bool
	table    *ShareTable // what it read
	used     *ShareTable // the table that it follows: it never uses more than both table and used allow
	turn     int64       // of table
	complied int64
	sent     time.Time // of its last good heartbeat
	sockets  bool      // it has as many SMTP sessions as used allows
	exists   bool
	paused   bool
	cut      bool // receivers do not hear this process
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

// write is the first half of a heartbeat: the write.
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

// told returns the hashed keys of receivers that, as a process believes, hold sessions.
func (w *world) told(l *life) (hashes []uint64) {
	for key, s := range l.silent {
		if w.now.Before(s.told) {
			hashes = append(hashes, Hash(key))
		}
	}
	slices.Sort(hashes)
	return hashes
}

// hush makes what a process uses of a key silent. last is when receivers heard it last.
func (w *world) hush(l *life, key string, last time.Time) {
	w.keep(l, key, w.uses(l, key), last)
}

// keep adds a silent part to earlier ones.
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

// end closes what a process uses of all keys, if receivers hear it.
func (w *world) end(l *life, last time.Time) {
	if l.cut && l.sockets {
		for _, key := range w.keys {
			w.hush(l, key, last)
		}
	}
	l.sockets = false
}

// read is the second half of a heartbeat: the read.
func (w *world) read(l *life, sent time.Time) {
	roll := w.roll()
	l.sent, l.turn = sent, roll.Generation
	l.table = ComputeShares(roll, l.self.Session, LingerMax)
}

// retire counts out every process that was not seen for too long.
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

// uses returns the largest part of a key that a process may use. That is what the last table it read allows, and,
// until it has applied that table, what the one before allowed. Silent sessions have their place in that part, and
// may exceed it.
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

// TestNeverMoreThanTheWhole lets views, heartbeats, pauses and deaths happen in any order. After each step it checks
// that all processes together can't use more than the whole of any key.
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

// livesMax bounds how many processes there are, including those that start again.
const livesMax = 7

// seen returns some of all processes as a view.
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

// act lets a process do something itself.
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

// applyShares lets a process keep to the shares that it read. If it is cut off, its surplus sessions become silent.
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

// die ends a process; its system closes its connections. Silent sessions that its row does not name are forgotten, as
// cluster/README.md allows.
func (w *world) die(l *life) {
	l.exists, l.sockets = false, false
	for key := range l.silent {
		row := w.rows[l.self.Session]
		if row == nil || !slices.Contains(row.Silent, Hash(key)) {
			delete(l.silent, key)
		}
	}
}

// leave is a clean end: the process stops using anything, then its row says so.
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
