package throttle

import "time"

const (
	// windowSteps is the number of steps into which a Window divides its length. The events of one step are kept as one
	// entry, as if all had happened at the end of the step. So the memory is 16 bytes a step. The steps cost at most one
	// part in windowSteps of the rate, far less than timers cost.
	windowSteps = 2048

	// groupSpan is how much of a fast rate is granted at once. 20 ms is well above the lateness of timers (1 ms), so late
	// wakeups lose nothing. groupSpan is well below what a receiver counts over (1 s or more).
	groupSpan = 20 * time.Millisecond

	// earlyShare: an event may be early by this part of an interval, to make up for a late one. So events are at least
	// 0.98 of an interval apart.
	earlyShare = 50

	// losersMax is how many other nodes may just have used the part that a Window gained: these are the other sides of a
	// partition, rarely more than two. For each node more, the receiver may see one event too many.
	losersMax = 2

	// wakeShare is the part of a group that must be free before Ready says to ask again. With a quarter of a group, a fast
	// rate wakes its caller every 5 ms and not for each event.
	wakeShare = 4
)

// Window keeps to a Rate exactly, as the receiver counts it: at most Events happen in any window of length Per.
//
// An event sent at one time arrives at another, so a Window treats it as a span. From Begin on the event is open and
// may happen any time; Done says by when it happened. Open events always count. Done events count until Per after they
// happened. A caller that measures round trips passes "sent + round trip - lowest round trip" to Done. Once the lowest
// round trip is known, a constant latency then costs nothing, and jitter can't break the limit. Until then, pass the
// time of the reply.
//
// A Window also spreads events. Up to 50 a second it grants them one by one, at least 0.98 × Per/Events apart. At a
// higher rate it grants groups of at most groupSpan's worth.
//
// Several Windows may keep to one rate together, each to its share of the events (Limits.Share). When shares change,
// first call Set for the Windows that lose. A Window that gains waits for some intervals of its new rate, because the
// receiver still counts the events of other Windows.
//
// If asked at the times that it names and without jitter, a Window grants at least 97 % of its rate. Jitter j costs
// about j/Per of it, because the limit is guaranteed.
//
// Every call costs the same at any rate, and memory is bounded by windowSteps entries. Not safe for concurrent use.
type Window struct {
	base time.Time // all offsets count from this time, which has a monotonic reading

	rate     Rate
	interval time.Duration // Per / Events
	group    int           // most events granted at once

	open  int
	done  []moment // done events by time, oldest first
	doneN int      // sum of the counts in done

	last time.Duration // time of the newest Begin
	due  time.Duration // when the next event is due if events are evenly spread

	raised bool          // the share was raised, and the wait after the raise isn't known yet
	rest   time.Duration // nothing is granted before this time
}

// moment is a number of events that had happened by a time.
type moment struct {
	at time.Duration
	n  int
}

// NewWindow begins as if one event had just happened, so that nobody sees a burst after a restart. The receiver sees
// the limit kept over the restart too, because events are spread. This is so if latency is constant and the restart
// took longer than groupSpan and 4 % of an interval together.
//
// The rate must be valid (Rate.Validate). A rate of no events grants nothing.
func NewWindow(r Rate, now time.Time) *Window {
	w := &Window{base: now}
	w.setRate(r)
	w.due = time.Duration(w.group) * w.interval
	w.add(0, 1)
	return w
}

// Set changes the rate at once. Remembered events count against the new rate, but a longer Per doesn't bring back
// events that the shorter one forgot. More events in the same Per are a larger share of a rate: see Window.
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

// Ready returns how many events may begin now. If no event may begin, next is when to ask again; zero: when an open
// event is done or undone.
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

// await waits after a raise. Until now each other node, and this Window, may have been ahead of schedule by one event
// and earlyShare, or by a group. await waits as long as that many events take at the new rate. After Per nothing
// earlier counts.
func (w *Window) await(t time.Duration) {
	if !w.raised || w.rate.Events < 1 {
		return
	}
	w.raised = false
	ahead := (losersMax+1)*(w.interval+2*w.interval/earlyShare) + 2*time.Duration(w.group-1)*w.interval
	w.rest = max(w.rest, t+min(ahead, w.rate.Per+1))
}

// Begin notes that n events begin at now. These events are open until Done or Undo. Begin counts all of them even if
// Ready granted fewer; the caller must then keep the limit.
func (w *Window) Begin(now time.Time, n int) {
	if n <= 0 {
		return
	}
	t := now.Sub(w.base)
	w.open += n
	w.last = max(w.last, t)
	w.due = max(w.due, t) + time.Duration(n)*w.interval
}

// Done notes that n open events have happened, at the latest at the time at.
func (w *Window) Done(at time.Time, n int) {
	if n <= 0 {
		return
	}
	w.open = max(0, w.open-n)
	w.add(at.Sub(w.base), n)
}

// Undo notes that n open events never happen. The places of these events in the window are free again, but not their
// turns on the even schedule.
func (w *Window) Undo(n int) {
	w.open = max(0, w.open-max(0, n))
}

func (w *Window) wake() int { return max(1, w.group/wakeShare) }

// expiry returns when events of time at no longer count. The added nanosecond makes the guarantee hold for windows that
// include both ends.
func (w *Window) expiry(at time.Duration) time.Duration { return at + w.rate.Per + 1 }

// roomAt returns when enough done events are forgotten to wake the caller, but not much later than the first of them.
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

func (w *Window) forget(t time.Duration) {
	k := 0
	for k < len(w.done) && w.expiry(w.done[k].at) <= t {
		w.doneN -= w.done[k].n
		k++
	}
	w.done = w.done[k:]
}

// add counts n events at the end of the step that contains at.
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
		// Only steps of an older Set, or times far away, get here. Moving the oldest entry forward keeps the guarantee.
		w.done[1].n += w.done[0].n
		w.done = w.done[1:]
	}
}
