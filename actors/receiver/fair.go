package receiver

import (
	"time"

	"github.com/google/uuid"
)

// forgetFor is how long it is remembered how much somebody was given who has nothing
// waiting: his next chunk is behind what others got since. Guess.
const forgetFor = time.Minute

// smallFile is of how many addresses a verification is not interrupted for another one of
// which nothing was asked. Guess.
const smallFile = 50

// turn is somebody's place in a line.
type turn[T any] struct {
	of   T
	had  float64 // what he was given, in parts of his weight
	lent float64 // what he has and will be booked when he gives it back
	came uint64
	at   int // place in line.list, from 1; 0: not in line
}

// line keeps who waits in the order in which they are served: first who was given least
// for his weight, and of these who came last, because he was given nothing of late. Who
// comes anew is taken for one who was given as little as the first in line, so that
// nobody saves up turns while he has nothing to ask. The zero value is ready.
type line[T any] struct {
	list  []*turn[T] // a heap
	clock float64    // what the first in line had; never falls
	came  uint64
}

// before says whether t is served before o.
func (t *turn[T]) before(o *turn[T]) bool {
	a, b := t.had+t.lent, o.had+o.lent
	return a < b || a == b && t.came > o.came
}

// enter puts t in line; twice is fine.
func (l *line[T]) enter(t *turn[T]) {
	if t.at > 0 {
		return
	}
	l.came++
	t.had, t.came = max(t.had, l.clock), l.came
	l.list = append(l.list, t)
	t.at = len(l.list)
	l.up(t.at)
}

// leave takes t out of line; twice is fine.
func (l *line[T]) leave(t *turn[T]) {
	if t.at == 0 {
		return
	}
	at, last := t.at, len(l.list)
	l.swap(at, last)
	l.list[last-1] = nil
	l.list, t.at = l.list[:last-1], 0
	if at < last {
		l.down(at)
		l.up(at)
	}
	l.tick()
}

// first gives who is served next; nil when nobody waits.
func (l *line[T]) first() *turn[T] {
	if len(l.list) == 0 {
		return nil
	}
	return l.list[0]
}

// charge books that t was given something, whether it is in line or not.
func (l *line[T]) charge(t *turn[T], parts float64) {
	t.had = max(t.had, l.clock) + parts
	if t.at > 0 {
		l.down(t.at)
		l.tick()
	}
}

// lend notes that t has something for a while, or with parts below 0 that it is back.
func (l *line[T]) lend(t *turn[T], parts float64) {
	t.lent += parts
	if t.at > 0 {
		l.down(t.at)
		l.up(t.at)
		l.tick()
	}
}

// even says whether t would be served no later for having been away: it can be forgotten.
func (l *line[T]) even(t *turn[T]) bool { return t.at == 0 && (len(l.list) == 0 || t.had <= l.clock) }

func (l *line[T]) tick() {
	if len(l.list) > 0 {
		l.clock = max(l.clock, l.list[0].had)
	}
}

func (l *line[T]) swap(a, b int) {
	l.list[a-1], l.list[b-1] = l.list[b-1], l.list[a-1]
	l.list[a-1].at, l.list[b-1].at = a, b
}

func (l *line[T]) up(at int) {
	for at > 1 && l.list[at-1].before(l.list[at/2-1]) {
		l.swap(at, at/2)
		at /= 2
	}
}

func (l *line[T]) down(at int) {
	for {
		least := at
		for child := 2 * at; child <= 2*at+1 && child <= len(l.list); child++ {
			if l.list[child-1].before(l.list[least-1]) {
				least = child
			}
		}
		if least == at {
			return
		}
		l.swap(at, least)
		at = least
	}
}

// space is a workspace with something to ask here, or that had lately.
type space struct {
	id     uuid.UUID
	weight int
	queued int                 // probes that wait
	files  map[uuid.UUID]*file // by verification

	asking  turn[*space] // of RCPTs
	opening turn[*space] // of sessions; in line while one of its lanes has none
	asked   line[*file]
	opened  line[*file]
}

// file is one verification of a workspace.
type file struct {
	id     uuid.UUID
	space  *space
	queued int

	asking  turn[*file]
	opening turn[*file]
	waiting fifo[*batch] // in lanes without a session, and some that have one by now

	served  time.Time // when something of it was given to a session last; zero: never
	given   int       // so many probes of it
	lent    []float64 // for its sessions, to its workspace
	hurried bool      // a session was interrupted for it
}

// fair knows whose turn it is at a receiver, over all its lanes: first of the
// workspaces, by weight, then of the verifications of one. RCPTs and sessions are
// counted apart, because at some receivers the one is scarce and at others the other.
type fair struct {
	weight func(workspace uuid.UUID) int // nil: all have the same
	spaces map[uuid.UUID]*space
	asked  line[*space]
	opened line[*space]
	queued int // probes that wait
}

// file finds or makes the place of a verification.
func (f *fair) file(workspace, verification uuid.UUID) *file {
	s := f.spaces[workspace]
	if s == nil {
		s = &space{id: workspace, weight: f.weigh(workspace), files: map[uuid.UUID]*file{}}
		s.asking.of, s.opening.of = s, s
		f.spaces[workspace] = s
	}
	v := s.files[verification]
	if v == nil {
		v = &file{id: verification, space: s}
		v.asking.of, v.opening.of = v, v
		s.files[verification] = v
	}
	return v
}

// weigh gives the weight of a workspace, at least 1.
func (f *fair) weigh(workspace uuid.UUID) int {
	if f.weight == nil {
		return 1
	}
	return max(1, f.weight(workspace))
}

// count notes n more probes that wait, or fewer.
func (f *fair) count(v *file, n int) {
	f.queued += n
	v.queued += n
	v.space.queued += n
	if v.queued > 0 {
		v.space.asked.enter(&v.asking)
	} else {
		v.space.asked.leave(&v.asking)
	}
	if v.space.queued > 0 {
		f.asked.enter(&v.space.asking)
	} else {
		f.asked.leave(&v.space.asking)
	}
}

// ask books that a probe of a verification was given to a session.
func (f *fair) ask(now time.Time, v *file) {
	v.served = now
	v.given++
	v.space.asked.charge(&v.asking, 1)
	f.asked.charge(&v.space.asking, 1/float64(v.space.weight))
}

// room is how many more probes of a verification may wait, of most in all. A workspace
// may fill no more than what it leaves free, alone half of it, beside another one a
// third; and so may a verification of what is its workspace's.
func (f *fair) room(v *file, most int) int {
	return (most-(f.queued-v.space.queued))/2 - v.space.queued - v.queued
}

// want lists what a verification has in a lane without a session.
func (f *fair) want(b *batch) {
	if b.listed {
		return
	}
	b.listed = true
	v := b.file
	v.waiting.push(b)
	v.space.opened.enter(&v.opening)
	f.opened.enter(&v.space.opening)
}

// next gives what is to get the next session; nil: every lane has one.
func (f *fair) next() *batch {
	for {
		s := f.opened.first()
		if s == nil {
			return nil
		}
		v := s.of.opened.first().of
		if b := v.waiting.peek(); b.len() > 0 && b.lane.sessions == 0 && !b.lane.aside {
			return b
		}
		f.unlist(v)
	}
}

// unlist takes what is next of a verification out of the line for sessions.
func (f *fair) unlist(v *file) *batch {
	b := v.waiting.pop()
	b.listed = false
	if v.waiting.len() == 0 {
		v.space.opened.leave(&v.opening)
		if len(v.space.opened.list) == 0 {
			f.opened.leave(&v.space.opening)
		}
	}
	return b
}

// opensAs is how much of a session's full turn opening it counts. Guess.
const opensAs = 0.02

// open books that a verification has a session.
func (f *fair) open(v *file) {
	v.space.opened.lend(&v.opening, 1)
	f.opened.lend(&v.space.opening, 1/float64(v.space.weight))
	v.lent = append(v.lent, 1/float64(v.space.weight))
}

// close books for how many full turns it had it.
func (f *fair) close(v *file, turns float64) {
	last := len(v.lent) - 1
	v.space.opened.lend(&v.opening, -1)
	f.opened.lend(&v.space.opening, -v.lent[last])
	v.lent = v.lent[:last]
	turns = max(opensAs, turns)
	v.space.opened.charge(&v.opening, turns)
	f.opened.charge(&v.space.opening, turns/float64(v.space.weight))
}

// contended says whether more than one verification waits.
func (f *fair) contended() bool {
	return len(f.asked.list) > 1 || len(f.asked.list) == 1 && len(f.asked.list[0].of.asked.list) > 1
}

// sweep forgets who has had nothing waiting for a while, and looks at the weights.
func (f *fair) sweep(now time.Time) {
	for id, s := range f.spaces {
		s.weight = f.weigh(id)
		for id, v := range s.files {
			if v.queued == 0 && v.waiting.len() == 0 && len(v.lent) == 0 && now.Sub(v.served) >= forgetFor {
				delete(s.files, id)
			}
		}
		if len(s.files) == 0 {
			delete(f.spaces, id)
		}
	}
}

// part is which part of what is asked here a verification can expect, by the weights of
// those who have something waiting, itself counted in.
func (f *fair) part(v *file) float64 {
	weights, files := 0, len(v.space.asked.list)
	for _, t := range f.asked.list {
		weights += t.of.weight
	}
	if v.space.asking.at == 0 {
		weights += v.space.weight
	}
	if v.asking.at == 0 {
		files++
	}
	return float64(v.space.weight) / float64(weights) / float64(files)
}

// rank is the place of a lane in the line for RCPTs: that of whoever was given least of
// those who wait in it.
type rank struct{ space, file float64 }

func (r rank) compare(o rank) int {
	switch {
	case r.space != o.space && r.space < o.space, r.space == o.space && r.file < o.file:
		return -1
	case r == o:
		return 0
	}
	return 1
}
