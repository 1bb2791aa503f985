package smtplab

import "time"

// windowMax bounds the events that one window remembers. A count that reaches it
// means "at least": no receiver has a limit near 65,536 a minute.
const windowMax = 1 << 16

// window counts the events of the last span, exactly, up to windowMax. It is
// not safe for concurrent use.
type window struct {
	span   time.Duration
	ring   []int64 // times in nanoseconds, oldest at first; length a power of two
	first  int
	latest int64
	n      int
	most   int // the largest n so far
}

// add notes an event at now and returns the number within (now-span, now].
// A time before the latest one counts as that.
func (w *window) add(now time.Time) int {
	w.latest = max(w.latest, now.UnixNano())
	w.drop(w.latest)
	if w.n == len(w.ring) {
		if w.n < windowMax {
			w.grow()
		} else {
			w.first = (w.first + 1) & (len(w.ring) - 1)
			w.n--
		}
	}
	w.ring[(w.first+w.n)&(len(w.ring)-1)] = w.latest
	w.n++
	w.most = max(w.most, w.n)
	return w.n
}

// count returns the number of events within (now-span, now].
func (w *window) count(now time.Time) int {
	w.drop(now.UnixNano())
	return w.n
}

func (w *window) drop(at int64) {
	oldest := at - int64(w.span)
	for w.n > 0 && w.ring[w.first] <= oldest {
		w.first = (w.first + 1) & (len(w.ring) - 1)
		w.n--
	}
}

func (w *window) grow() {
	ring := make([]int64, max(8, 2*len(w.ring)))
	for i := range w.n {
		ring[i] = w.ring[(w.first+i)&(len(w.ring)-1)]
	}
	w.ring, w.first = ring, 0
}
