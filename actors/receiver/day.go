package receiver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"rollcall/smtp/throttle"
)

const (
	// dayBlock is one part of a day's RCPTs in how many are noted ahead, and dayLeast how
	// many at least: so many are lost with a process, and none is asked twice over. Guess.
	dayBlock = 20
	dayLeast = 10

	// dayEvery is how often the days of a node's sources are noted at most, dayWithin how
	// long that may take, and dayFor how long it is kept.
	dayEvery  = 2 * time.Second
	dayWithin = 2 * time.Second
	dayFor    = 48 * time.Hour

	// dayCounted is the same as dayEvery for a source that may ask as much as it likes: so
	// much is not counted when a process ends without a word. Guess.
	dayCounted = 10 * time.Second

	// wantFor is how long a receiver keeps its part of a day without asking for it. Guess.
	wantFor = time.Minute
)

// day is what one source may ask and has asked since midnight UTC. Guarded by Sources.mu.
type day struct {
	number int64 // of the day, counted from 1970
	used   int   // RCPTs, those that were taken and are not asked yet counted in
	noted  int   // that many are used up for a process that begins anew; at least used
	read   bool  // what earlier processes used is known

	wants  map[string]*want // receivers that ask for some
	wanted int              // sum of what these have used
	swept  time.Time        // when they were looked through
}

// want is one receiver of a day.
type want struct {
	used int
	last time.Time // when it asked
}

// dayFact is a day as it is kept.
type dayFact struct {
	V    int   `json:"v"`
	Day  int64 `json:"day"`
	Used int   `json:"used"`
}

// dayVersion is the version of a dayFact's text.
const dayVersion = 1

// dayOf gives the number of a day.
func dayOf(now time.Time) int64 { return now.UTC().Unix() / (24 * 60 * 60) }

// untilMidnight is how long the day of now still lasts.
func untilMidnight(now time.Time) time.Duration {
	return time.Unix((dayOf(now)+1)*24*60*60, 0).Sub(now)
}

// perDay is how many RCPTs a source may send in a day; 0: not bounded. In a warm-up that
// doubles each day from the first one, until it bounds nothing any more.
func perDay(a throttle.Limits, now time.Time) int {
	if a.RcptsPerDay == 0 || a.WarmUpFrom.IsZero() {
		return a.RcptsPerDay
	}
	most := a.RcptsPerDay
	for range min(30, dayOf(now)-dayOf(a.WarmUpFrom)) {
		if most *= 2; most > throttle.CountMax {
			return 0
		}
	}
	return most
}

// bind lets the sources know what operators want of them, and keep their days beyond the
// life of the process. The first call counts.
func (s *Sources) bind(o Options) { s.options.CompareAndSwap(nil, &o) }

// facts is where days are kept; nil: nowhere.
func (s *Sources) facts() Facts {
	if o := s.options.Load(); o != nil {
		return o.Facts
	}
	return nil
}

// allowance gives what an operator wants of a source.
func (s *Sources) allowance(i int) throttle.Limits {
	if o := s.options.Load(); o != nil && o.SourceOf != nil {
		return o.SourceOf(s.list[i].Name())
	}
	return throttle.Limits{}
}

// today gives the day of a source, which begins anew at midnight. Under mu.
func (s *Sources) today(i int, now time.Time) *day {
	d := &s.days[i]
	if number := dayOf(now); number > d.number { // a clock that goes back ends no day
		*d = day{number: number, wants: map[string]*want{}}
	}
	if o := s.options.Load(); o != nil && o.Facts == nil { // else it is not known yet, or to be read
		d.read = true
	}
	return d
}

// left is how many RCPTs a source may still send to a receiver today, of this node's clock,
// and how long it takes until it may send more if there are none; key "" leaves out what is
// the part of others. A receiver of which something waits keeps its part.
func (s *Sources) left(i int, key string, now time.Time, waits bool) (int, time.Duration) {
	most := perDay(s.allowance(i), now)
	if most == 0 {
		return throttle.CountMax, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.today(i, now)
	if !d.read {
		s.noteDays(now)
		return 0, dayEvery
	}
	if d.used >= most {
		return 0, untilMidnight(now)
	}
	w := d.wants[key]
	if w == nil {
		return most - d.used, 0
	}
	if waits {
		w.last = now
	}
	d.prune(now)
	if d.wants[key] == w && w.used >= d.part(most) {
		return 0, dayEvery
	}
	return most - d.used, 0
}

// take gives up to n RCPTs of a source's day to a receiver. Each of those who ask for some
// may use an equal part of what they have used and what is left.
func (s *Sources) take(i int, key string, now time.Time, n int) (int, time.Duration) {
	most := perDay(s.allowance(i), now)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.today(i, now)
	if most == 0 {
		d.used += n
		d.noted = max(d.noted, d.used)
		if s.facts() != nil && now.Sub(s.noted) >= dayCounted {
			s.noteDays(now)
		}
		return n, 0
	}
	w := d.want(key, now)
	got := max(0, min(n, most-d.used, d.part(most)-w.used))
	next := dayEvery
	if s.facts() != nil {
		if ahead := max(dayLeast, most/dayBlock); !d.read || d.used+got > d.noted-ahead/2 && d.noted < most {
			s.noteDays(now)
		}
		if !d.read {
			return 0, next
		}
		got = max(0, min(got, d.noted-d.used))
	}
	d.used += got
	w.used += got
	d.wanted += got
	if d.used >= most {
		next = untilMidnight(now)
	}
	return got, next
}

// want finds or makes the place of a receiver among those who ask for some.
func (d *day) want(key string, now time.Time) *want {
	w := d.wants[key]
	if w == nil {
		w = &want{}
		d.wants[key] = w
	}
	w.last = now
	d.prune(now)
	return w
}

// part is what each of those who ask for some may use. It is rounded up, else some of a
// day that many share would be used by nobody.
func (d *day) part(most int) int {
	n := max(1, len(d.wants))
	return max(1, (most-d.used+d.wanted+n-1)/n)
}

// prune forgets who has not asked for some for long.
func (d *day) prune(now time.Time) {
	if now.Sub(d.swept) < wantFor/10 {
		return
	}
	d.swept = now
	for k, o := range d.wants {
		if now.Sub(o.last) > wantFor {
			d.wanted -= o.used
			delete(d.wants, k)
		}
	}
}

// giveBack says that n RCPTs that a receiver took on a day were not sent. They are no part
// of a day that began since.
func (s *Sources) giveBack(i int, key string, number int64, n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.days[i]
	if number != d.number {
		return
	}
	d.used = max(0, d.used-n)
	if w := d.wants[key]; w != nil {
		back := min(w.used, n)
		w.used -= back
		d.wanted -= back
	}
}

// noteDays notes ahead what sources may use, unless that is being done or was a moment
// ago. Under mu.
func (s *Sources) noteDays(now time.Time) {
	if since := now.Sub(s.noted); s.noting || since >= 0 && since < dayEvery {
		return
	}
	s.noting, s.noted = true, now
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), dayWithin)
		defer cancel()
		err := s.keepDays(ctx, now, true)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noting = false
		if err != nil {
			s.options.Load().Log.Warn("what our sources asked today was not kept", "err", err)
		}
	}()
}

// recallDays reads what earlier processes used of this day, unless that is being done. Under mu.
func (s *Sources) recallDays(now time.Time) {
	if s.noting || s.facts() == nil {
		return
	}
	s.noting = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), dayWithin)
		defer cancel()
		s.keeping.Lock()
		err := s.readDays(ctx, now)
		s.keeping.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noting = false
		if err != nil {
			s.options.Load().Log.Warn("what our sources asked today cannot be read", "err", err)
		}
	}()
}

// flushDays notes what sources have used and not more, for a process that ends well.
func (s *Sources) flushDays(ctx context.Context) error {
	o := s.options.Load()
	if o == nil || o.Facts == nil {
		return nil
	}
	if err := s.keepDays(ctx, o.clock(time.Now()), false); err != nil {
		return fmt.Errorf("what our sources asked today was not kept: %w", err)
	}
	return nil
}

// keepDays reads what earlier processes used of this day, where that is not known, and
// notes what this one uses, with what it may use in the next while when it goes on.
func (s *Sources) keepDays(ctx context.Context, now time.Time, ahead bool) error {
	s.keeping.Lock() // what is written last must be what was counted last
	defer s.keeping.Unlock()
	if err := s.readDays(ctx, now); err != nil {
		return err
	}
	var facts []Fact
	var noted []int // of these, which source
	var uses []int
	s.mu.Lock()
	for i := range s.list {
		most := perDay(s.allowance(i), now)
		d := s.today(i, now)
		if most == 0 && d.used == 0 {
			continue
		}
		used := d.used
		if ahead && most > 0 {
			used = max(d.noted, min(most, used+max(dayLeast, most/dayBlock)))
		}
		data, err := json.Marshal(dayFact{V: dayVersion, Day: d.number, Used: used})
		if err != nil {
			s.mu.Unlock()
			return err
		}
		facts = append(facts, Fact{Key: s.dayKey(i), Data: data, Expires: now.Add(dayFor)})
		noted, uses = append(noted, i), append(uses, used)
	}
	s.mu.Unlock()
	if len(facts) == 0 {
		return nil
	}
	if err := s.facts().Learn(ctx, facts); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, i := range noted {
		if d := &s.days[i]; d.number == dayOf(now) {
			d.noted = uses[n]
		}
	}
	return nil
}

// dayKey is the key of the fact of a source. No receiver key begins so.
func (s *Sources) dayKey(i int) string { return throttle.SourcePrefix + s.list[i].Name() }

// readDays reads what earlier processes used of this day.
func (s *Sources) readDays(ctx context.Context, now time.Time) error {
	var keys []string
	which := map[string]int{}
	s.mu.Lock()
	for i := range s.list {
		if d := s.today(i, now); !d.read {
			keys = append(keys, s.dayKey(i))
			which[s.dayKey(i)] = i
		}
	}
	s.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	facts, err := s.facts().Known(ctx, keys)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range facts {
		i, ours := which[f.Key]
		var was dayFact
		if d := &s.days[i]; ours && json.Unmarshal(f.Data, &was) == nil && was.V == dayVersion &&
			was.Day == d.number && !d.read {
			d.used += max(0, was.Used)
			d.noted = max(d.noted, was.Used)
		}
	}
	for _, i := range which {
		if s.days[i].number == dayOf(now) {
			s.days[i].read = true
		}
	}
	return nil
}

// stateOfDay tells what an operator wants of a source and what is used of its day. Before
// the sources are bound nobody knows. Under mu.
func (s *Sources) stateOfDay(i int, now time.Time, st *SourceState) {
	o := s.options.Load()
	if o == nil {
		return
	}
	now = o.clock(now)
	a, d := s.allowance(i), s.today(i, now)
	if !d.read {
		s.recallDays(now)
	}
	st.Pause, st.PerDay, st.Today = a.Pause, perDay(a, now), d.used
}
