package smtplab

import (
	"fmt"
	"sync"
	"time"
)

// LimitKind is how a receiver counts against its limit.
type LimitKind int

// The ways to count.
const (
	// LimitSliding allows at most Rcpts in any window of length Per.
	LimitSliding LimitKind = iota
	// LimitFixed starts a new count every Per.
	LimitFixed
	// LimitBucket fills evenly with Rcpts in Per, and holds a twentieth of them, at least one.
	LimitBucket
)

// String returns the kind in a word.
func (k LimitKind) String() string { return [...]string{"sliding", "fixed", "bucket"}[k] }

// bucketPart is the divisor of a limit that gives the size of a LimitBucket.
const bucketPart = 20

// Limit is what one receiver allows all its clients together, in addition to the limits of its personality. It may
// change at any time; clients are not told.
type Limit struct {
	Rcpts int           // RCPT commands allowed in Per; 0: no limit
	Per   time.Duration // 10 ms or more
	Kind  LimitKind
	All   bool   // deferred commands count, too
	Reply string // of a deferral; "": 450 4.7.1; with 421 the session ends

	Sessions bool          // the limit counts sessions, not RCPT commands, and refuses with Words.Crowded
	Penalty  time.Duration // after an excess, everything is deferred for this long
}

// Use is the use of a receiver's limit during some time.
type Use struct {
	Asked    int     // RCPT commands, or sessions
	Let      int     // of Asked, allowed by the limit
	Held     int     // of Asked, deferred by the limit
	Possible float64 // number that the limits would have allowed
}

// Share returns the used part of the possible RCPTs or sessions; 0 if none were possible.
func (u Use) Share() float64 {
	if u.Possible == 0 {
		return 0
	}
	return float64(u.Let) / u.Possible
}

// HeldShare returns the deferred part of the RCPT commands; 0 when there were none.
func (u Use) HeldShare() float64 {
	if u.Asked == 0 {
		return 0
	}
	return float64(u.Held) / float64(u.Asked)
}

// secondsMax bounds a meter's memory, one entry a second. Guess: more than any trial takes.
const secondsMax = 4 * 3600

// meter has a Limit and counts its use. Safe for concurrent use.
type meter struct {
	mu      sync.Mutex // guards the fields below
	limit   Limit
	reply   phrase
	since   time.Time // time of the first limit; seconds count from here
	let     window    // LimitSliding
	asked   window    // LimitSliding with All
	begun   time.Time // LimitFixed: start of the current period
	used    int       // in it
	penalty time.Time // its end
	level   float64   // LimitBucket: what is left
	filled  time.Time // time of level
	seconds []Use     // one for each second since
	steps   []limitStep
}

// limitStep is a limit and the start of its validity.
type limitStep struct {
	at        time.Time
	perSecond float64
}

// SetLimit sets the limit of a receiver, by its registrable name, from now on. If Per is unchanged, earlier commands
// count against the new limit. The error wraps ErrOptions.
func (l *Lab) SetLimit(receiver string, limit Limit) error {
	name, err := canonical(receiver)
	if err != nil || limit.Rcpts < 0 || limit.Rcpts > 0 && limit.Per < 10*time.Millisecond {
		return fmt.Errorf("%w: limit of %q: %d RCPTs in %v", ErrOptions, receiver, limit.Rcpts, limit.Per)
	}
	if limit.Reply == "" {
		limit.Reply = "450 4.7.1 Too many recipients, slow down"
	}
	found, _ := l.meters.LoadOrStore(name, &meter{since: time.Now()})
	found.(*meter).set(limit, time.Now())
	return nil
}

// UseOf returns the use of a receiver's limits between two times, in whole seconds; zero for a receiver without a
// limit.
func (l *Lab) UseOf(receiver string, from, to time.Time) Use {
	name, _ := canonical(receiver)
	if found, ok := l.meters.Load(name); ok {
		return found.(*meter).between(from, to)
	}
	return Use{}
}

func (m *meter) set(limit Limit, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit.Per != m.limit.Per || limit.Kind != m.limit.Kind {
		m.let, m.asked = window{span: limit.Per}, window{span: limit.Per}
		m.begun, m.used = now, 0
		m.level, m.filled = bucketOf(limit), now
	}
	m.limit, m.reply = limit, phraseOf(&Personality{}, limit.Reply)
	perSecond := 0.0
	if limit.Rcpts > 0 {
		perSecond = float64(limit.Rcpts) / limit.Per.Seconds()
	}
	m.steps = append(m.steps, limitStep{now, perSecond})
}

func bucketOf(l Limit) float64 { return max(1, float64(l.Rcpts)/bucketPart) }

// limitOn counts a RCPT command or a new session, and returns the deferral; nil: it is allowed.
func (s *session) limitOn(sessions bool, now time.Time) *phrase {
	if found, ok := s.lab.meters.Load(s.host.receiver.name); ok {
		return found.(*meter).count(sessions, now)
	}
	return nil
}

// count counts a RCPT command or a session, whichever the limit counts, and returns the deferral.
func (m *meter) count(sessions bool, now time.Time) *phrase {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sessions != m.limit.Sessions {
		return nil
	}
	let := m.limit.Rcpts == 0 || !now.Before(m.penalty) && m.room(now)
	if !let && m.limit.Penalty > 0 && !now.Before(m.penalty) {
		m.penalty = now.Add(m.limit.Penalty)
	}
	u := m.second(now)
	u.Asked++
	if let {
		u.Let++
		return nil
	}
	u.Held++
	return &m.reply
}

// room reports whether the limit allows one more, and counts it.
func (m *meter) room(now time.Time) bool {
	switch m.limit.Kind {
	case LimitFixed:
		if passed := now.Sub(m.begun); passed >= m.limit.Per {
			m.begun, m.used = m.begun.Add(passed.Truncate(m.limit.Per)), 0
		}
		let := m.used < m.limit.Rcpts
		if let || m.limit.All {
			m.used++
		}
		return let
	case LimitBucket:
		perSecond := float64(m.limit.Rcpts) / m.limit.Per.Seconds()
		m.level = min(bucketOf(m.limit), m.level+perSecond*now.Sub(m.filled).Seconds())
		m.filled = now
		let := m.level >= 1
		if let || m.limit.All {
			m.level = max(0, m.level-1)
		}
		return let
	}
	counted := &m.let
	if m.limit.All {
		counted = &m.asked
	}
	let := counted.count(now) < m.limit.Rcpts
	if let || m.limit.All {
		counted.add(now)
	}
	return let
}

// second returns the entry of now's second; times beyond secondsMax use the last entry.
func (m *meter) second(now time.Time) *Use {
	i := min(int(now.Sub(m.since)/time.Second), secondsMax-1)
	for len(m.seconds) <= i {
		m.seconds = append(m.seconds, Use{})
	}
	return &m.seconds[i]
}

func (m *meter) between(from, to time.Time) (sum Use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := max(0, int((from.Sub(m.since)+time.Second-1)/time.Second))
	last := int(to.Sub(m.since) / time.Second)
	for i := first; i < min(last, len(m.seconds)); i++ {
		sum.Asked += m.seconds[i].Asked
		sum.Let += m.seconds[i].Let
		sum.Held += m.seconds[i].Held
	}
	from, to = m.since.Add(time.Duration(first)*time.Second), m.since.Add(time.Duration(last)*time.Second)
	for i, s := range m.steps {
		begin, end := s.at, to
		if i+1 < len(m.steps) && m.steps[i+1].at.Before(to) {
			end = m.steps[i+1].at
		}
		if begin.Before(from) {
			begin = from
		}
		if end.After(begin) {
			sum.Possible += s.perSecond * end.Sub(begin).Seconds()
		}
	}
	return sum
}

// windowMax bounds the events in one window. A count of this size means "at least": no receiver has a limit near
// 65,536 a minute.
const windowMax = 1 << 16

// window counts the events of the last span exactly, up to windowMax. It is not safe for concurrent use.
type window struct {
	span   time.Duration
	ring   []int64 // times in nanoseconds, oldest at first; length a power of two
	first  int
	latest int64
	n      int
	most   int // the largest n so far
}

// add adds an event at now and returns the number within (now-span, now]. A time before the latest one counts as the
// latest.
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
