package throttle

import "time"

const (
	// windowSteps is the number of steps a Window cuts its length into: events that happened in one step are kept as
	// one entry, as if all had happened at its end. It bounds the memory (16 bytes a step) and costs at most one part
	// in windowSteps of the rate, far below what a timer costs.
	windowSteps = 2048

	// groupSpan is how much of a fast rate is granted at once. 20 ms is well
	// above the lateness of timers (1 ms), so that waking up late loses nothing,
	// and well below what a receiver counts over (1 s or more).
	groupSpan = 20 * time.Millisecond

	// earlyShare is the part of an interval by which an event may be early on
	// its schedule, to make up for a late one: 1/50, so events are spaced by at
	// least 0.98 of the interval.
	earlyShare = 50

	// losersMax is how many other nodes may have used, until just now, the part by which a Window's rate is raised: the
	// other sides of a partition, rarely more than two. With more, the far side may see one event too many for each.
	losersMax = 2

	// wakeShare is the part of a group that has to be free before Ready says to
	// ask again: a quarter, so that a fast rate wakes its caller every 5 ms and
	// not for each event.
	wakeShare = 4
)

// Window keeps to a Rate exactly, as the far side counts it: in any window of
// length Per, at most Events happen.
//
// What leaves us at one time arrives at another, so an event is not a moment
// but a span: from Begin it is open and may happen any time; Done says when it
// happened at the latest. Open events count always, done ones until Per after
// that time. Times are in one frame: a caller that measures round trips passes
// sent + (round trip - lowest round trip) to Done. Then a constant latency costs
// nothing and jitter cannot break the limit, as long as the lowest round trip is
// known; until it is, pass the time of the reply.
//
// Beside the limit, events are spread: up to 50 a second they are granted one
// by one, at least 0.98 × Per/Events apart; above that in groups of at most
// groupSpan's worth.
//
// Several Windows may keep to one rate together, each to its share of the events
// (Limits.Share). When shares change, those that lose are Set first; one that
// gains waits some intervals of its new rate, because the far side still counts
// what the others did.
//
// Asked at the times that it names and with no jitter, a Window grants at least
// 97 % of its rate. Jitter j costs about j/Per of it, because the guarantee holds.
//
// Every call costs the same for any rate, and memory is bounded by windowSteps
// entries. Not safe for concurrent use.
type Window struct {
	base time.Time // all offsets are from here; keeps the monotonic reading

	rate     Rate
	interval time.Duration // Per / Events
	group    int           // most events granted at once

	open  int
	done  []moment // by time, oldest first
	doneN int      // sum of done's counts

	last time.Duration // of the newest Begin
	due  time.Duration // when the next event is due by the even schedule

	raised bool          // the share was raised, and what it waits for is not known yet
	rest   time.Duration // nothing is granted before
}

// moment is a number of events that happened no later than at.
type moment struct {
	at time.Duration
	n  int
}

// NewWindow begins as if one event had just been made: after a restart nobody
// may see a burst. When the restart took longer than groupSpan and 4 % of an
// interval together, and latency is constant, the far side sees the limit kept
// over the restart too, because events are spread.
//
// The rate has to be valid (Rate.Validate); a rate of no events grants nothing.
func NewWindow(r Rate, now time.Time) *Window {
	w := &Window{base: now}
	w.setRate(r)
	w.due = time.Duration(w.group) * w.interval
	w.add(0, 1)
	return w
}

// Set changes the rate at once. Events that are remembered count against the
// new rate; a longer Per does not bring back what the shorter one had forgotten.
// More events in the same Per are a larger share of a rate: see Window.
func (w *Window) Set(r Rate) {
	if r == w.rate {
		return
	}
	w.raised = w.raised || r.Per == w.rate.Per && r.Events > w.rate.Events
	behind, before := w.due-w.last, w.interval
	w.setRate(r)
	most := time.Duration(w.group)*w.interval + w.interval/earlyShare
	if before > 0 {
		scaled := float64(behind) * float64(w.interval) / float64(before)
		w.due = w.last + time.Duration(min(scaled, float64(most)))
	} else {
		w.due = w.last + most
	}
}

func (w *Window) setRate(r Rate) {
	w.rate = r
	w.interval, w.group = 0, 1
	if r.Events < 1 {
		return
	}
	w.interval = r.Per / time.Duration(r.Events)
	if w.interval > 0 {
		w.group = max(1, min(r.Events, int(groupSpan/w.interval)))
	}
}

// Ready returns how many events may begin now. If none may, next is the time to ask again; zero: ask again when an open
// event is Done or undone.
func (w *Window) Ready(now time.Time) (n int, next time.Time) {
	t := now.Sub(w.base)
	w.forget(t)
	w.await(t)
	room := w.rate.Events - w.open - w.doneN
	if room <= 0 {
		if len(w.done) == 0 {
			return 0, time.Time{}
		}
		return 0, w.base.Add(w.roomAt())
	}
	if t < w.rest {
		return 0, w.base.Add(w.rest)
	}
	early := time.Duration(w.group-1)*w.interval + w.interval/earlyShare
	start := w.due - early
	if t < start {
		return 0, w.base.Add(start + time.Duration(w.wake()-1)*w.interval)
	}
	if w.interval <= 0 {
		return min(room, w.group), time.Time{}
	}
	paced := min(int64((t-start)/w.interval)+1, int64(w.group))
	return min(room, int(paced)), time.Time{}
}

// await pauses after a raise: until now each other node, and this Window, may have been ahead of its even schedule by
// one event and earlyShare, or by a group. It waits as long as that many events take at the new rate. After Per nothing
// earlier counts.
func (w *Window) await(t time.Duration) {
	if !w.raised || w.rate.Events < 1 {
		return
	}
	w.raised = false
	ahead := (losersMax+1)*(w.interval+2*w.interval/earlyShare) + 2*time.Duration(w.group-1)*w.interval
	w.rest = max(w.rest, t+min(ahead, w.rate.Per+1))
}

// Begin says that n events begin at now. They are open until Done or Undo. If n is more than Ready granted, Begin
// counts them all the same: the caller must then keep the limit.
func (w *Window) Begin(now time.Time, n int) {
	if n <= 0 {
		return
	}
	t := now.Sub(w.base)
	w.open += n
	w.last = max(w.last, t)
	w.due = max(w.due, t) + time.Duration(n)*w.interval
}

// Done says that n open events happened, no later than at.
func (w *Window) Done(at time.Time, n int) {
	if n <= 0 {
		return
	}
	w.open = max(0, w.open-n)
	w.add(at.Sub(w.base), n)
}

// Undo says that n open events did not happen and never will. It frees their
// places in the window, not their turns on the even schedule.
func (w *Window) Undo(n int) {
	w.open = max(0, w.open-max(0, n))
}

// wake returns how many events must be free before the caller is woken.
func (w *Window) wake() int { return max(1, w.group/wakeShare) }

// expiry returns the first moment at which events of time at no longer count. The nanosecond makes the guarantee hold
// for windows with both ends included.
func (w *Window) expiry(at time.Duration) time.Duration { return at + w.rate.Per + 1 }

// roomAt returns when enough done events are forgotten to wake the caller, though not much later than the first.
func (w *Window) roomAt() time.Duration {
	first, free := w.done[0].at, 0
	latest := first
	for _, m := range w.done {
		if free >= w.wake() || m.at > first+time.Duration(w.wake())*w.interval {
			break
		}
		free += m.n
		latest = m.at
	}
	return w.expiry(latest)
}

// forget drops the events that are further back than Per.
func (w *Window) forget(t time.Duration) {
	k := 0
	for k < len(w.done) && w.expiry(w.done[k].at) <= t {
		w.doneN -= w.done[k].n
		k++
	}
	w.done = w.done[k:]
}

// add counts n events as if they were at the end of the step that contains at.
func (w *Window) add(at time.Duration, n int) {
	step := max(1, w.rate.Per/windowSteps)
	if rest := at % step; rest > 0 {
		at += step - rest
	}
	w.doneN += n
	i := len(w.done)
	for i > 0 && w.done[i-1].at > at {
		i--
	}
	if i > 0 && w.done[i-1].at == at {
		w.done[i-1].n += n
		return
	}
	w.done = append(w.done, moment{})
	copy(w.done[i+1:], w.done[i:])
	w.done[i] = moment{at: at, n: n}
	if len(w.done) > windowSteps+2 {
		// Only steps of an older Set, or far-off times, get here. Moving the oldest forward keeps the guarantee.
		w.done[1].n += w.done[0].n
		w.done = w.done[1:]
	}
}
