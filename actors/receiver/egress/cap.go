package egress

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/process"
	"rollcall/smtp/throttle"
)

const (
	// A cap is written ahead of its use in blocks of 1/blockShare of it, at least blockLeast: a process that dies loses
	// up to one block and never exceeds the cap. Ten deaths in a day cost half a cap at most.
	blockShare = 20
	blockLeast = 10

	// noteEvery is the least time between two writes of a node's caps, noteWithin bounds one write, and keepFor is
	// how long the stored caps are kept.
	noteEvery  = 2 * time.Second
	noteWithin = 2 * time.Second
	keepFor    = 48 * time.Hour

	// noteUncapped is noteEvery for a source without a cap. If the process dies, RCPTs of that time are not counted.
	noteUncapped = 10 * time.Second

	// claimFor is how long a receiver keeps its part of a cap without asking for it: longer than the pause between two
	// of its groups, and short for the others.
	claimFor = time.Minute
)

// dailyCap is how much one source has asked since midnight UTC, and which receivers claim the rest. Guarded by Pool.mu.
type dailyCap struct {
	day   int64 // counted from 1970
	used  int   // RCPTs, claimed and not yet sent ones included
	noted int   // stored before they are used, so that a new process counts them as used; at least used
	read  bool  // what earlier processes used is known

	claims  map[string]*claim // by receiver
	claimed int               // sum of their used
	swept   time.Time         // when prune last ran
}

type claim struct {
	used int
	last time.Time // when it asked
}

// capFact is the stored form of a dailyCap.
type capFact struct {
	V    int   `json:"v"`
	Day  int64 `json:"day"`
	Used int   `json:"used"`
}

const capVersion = 1

// DayOf returns the number of a day, UTC, counted from 1970.
func DayOf(now time.Time) int64 { return now.UTC().Unix() / (24 * 60 * 60) }

// untilMidnight is how long the day of now still lasts.
func untilMidnight(now time.Time) time.Duration {
	return time.Unix((DayOf(now)+1)*24*60*60, 0).Sub(now)
}

// DailyCap returns how many RCPTs a source may send in a day; 0: no bound. In a warm-up it doubles each day until the
// full allowance is reached.
func DailyCap(a throttle.Limits, now time.Time) int {
	if a.RcptsPerDay == 0 || a.WarmUpFrom.IsZero() {
		return a.RcptsPerDay
	}
	most := a.RcptsPerDay
	for range min(30, DayOf(now)-DayOf(a.WarmUpFrom)) {
		if most *= 2; most > throttle.CountMax {
			return 0
		}
	}
	return most
}

// Settings is what a pool knows from the node that it belongs to.
type Settings struct {
	// Limits says what an operator wants of a source now, by its name: whether it is paused,
	// and what it may ask in a day; nil: nothing.
	Limits func(name string) throttle.Limits
	Facts  facts.Store      // where daily caps are kept; nil: nowhere
	Clock  func() time.Time // the time of the ledger; nil: that of this host
	Log    *slog.Logger
	Guard  *process.PanicGuard // of goroutines; nil: none
}

// boundSettings returns the settings; before Bind there are none.
func (p *Pool) boundSettings() Settings {
	if s := p.settings.Load(); s != nil {
		return *s
	}
	return Settings{}
}

// clock returns the time of the ledger.
func (s Settings) clock(now time.Time) time.Time {
	if s.Clock != nil {
		return s.Clock()
	}
	return now
}

// Bind sets the operators' settings for the sources, and a store for daily caps. The first call counts.
func (p *Pool) Bind(s Settings) { p.settings.CompareAndSwap(nil, &s) }

// facts is where daily caps are kept; nil: nowhere.
func (p *Pool) facts() facts.Store { return p.boundSettings().Facts }

// Limits returns what an operator wants of a source.
func (p *Pool) Limits(i int) throttle.Limits {
	if s := p.boundSettings(); s.Limits != nil {
		return s.Limits(p.list[i].Name())
	}
	return throttle.Limits{}
}

// today returns the cap of a source; it starts again at midnight. Under mu.
func (p *Pool) today(i int, now time.Time) *dailyCap {
	d := &p.caps[i]
	if day := DayOf(now); day > d.day { // a clock that goes back ends no day
		*d = dailyCap{day: day, claims: map[string]*claim{}}
	}
	if s := p.settings.Load(); s != nil && s.Facts == nil { // else it is not known yet, or to be read
		d.read = true
	}
	return d
}

// Remaining returns how many RCPTs a source may still send to a receiver today, by this node's clock, and if none, how
// long until it may send more. Key "" ignores the parts of receivers. A receiver with work waiting keeps its part.
func (p *Pool) Remaining(i int, key string, now time.Time, waits bool) (int, time.Duration) {
	most := DailyCap(p.Limits(i), now)
	if most == 0 {
		return throttle.CountMax, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.today(i, now)
	if !d.read {
		p.noteCaps(now)
		return 0, noteEvery
	}
	if d.used >= most {
		return 0, untilMidnight(now)
	}
	w := d.claims[key]
	if w == nil {
		return most - d.used, 0
	}
	if waits {
		w.last = now
	}
	d.prune(now)
	if d.claims[key] == w && w.used >= d.part(most) {
		return 0, noteEvery
	}
	return most - d.used, 0
}

// Claim gives up to n RCPTs of a source's day to a receiver, and returns how long until it may have more. Claiming
// receivers have equal parts of the sum of what they have used and what is left.
func (p *Pool) Claim(i int, key string, now time.Time, n int) (int, time.Duration) {
	most := DailyCap(p.Limits(i), now)
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.today(i, now)
	if most == 0 {
		d.used += n
		d.noted = max(d.noted, d.used)
		if p.facts() != nil && now.Sub(p.noted) >= noteUncapped {
			p.noteCaps(now)
		}
		return n, 0
	}
	w := d.claim(key, now)
	got := max(0, min(n, most-d.used, d.part(most)-w.used))
	next := noteEvery
	if p.facts() != nil {
		if ahead := max(blockLeast, most/blockShare); !d.read || d.used+got > d.noted-ahead/2 && d.noted < most {
			p.noteCaps(now)
		}
		if !d.read {
			return 0, next
		}
		got = max(0, min(got, d.noted-d.used))
	}
	d.used += got
	w.used += got
	d.claimed += got
	if d.used >= most {
		next = untilMidnight(now)
	}
	return got, next
}

// claim returns the claim of a receiver, and makes it if there is none.
func (d *dailyCap) claim(key string, now time.Time) *claim {
	w := d.claims[key]
	if w == nil {
		w = &claim{}
		d.claims[key] = w
	}
	w.last = now
	d.prune(now)
	return w
}

// part is what each claiming receiver may use. It is rounded up: otherwise the remainder would stay unused.
func (d *dailyCap) part(most int) int {
	n := max(1, len(d.claims))
	return max(1, (most-d.used+d.claimed+n-1)/n)
}

// prune drops claims that haven't been used for claimFor.
func (d *dailyCap) prune(now time.Time) {
	if now.Sub(d.swept) < claimFor/10 {
		return
	}
	d.swept = now
	for k, o := range d.claims {
		if now.Sub(o.last) > claimFor {
			d.claimed -= o.used
			delete(d.claims, k)
		}
	}
}

// Return returns n RCPTs that a receiver claimed on a day and didn't send. It does nothing once that day is over.
func (p *Pool) Return(i int, key string, day int64, n int) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.caps[i]
	if day != d.day {
		return
	}
	d.used = max(0, d.used-n)
	if w := d.claims[key]; w != nil {
		back := min(w.used, n)
		w.used -= back
		d.claimed -= back
	}
}

// noteCaps stores the next blocks of the caps, unless a write is under way or began within noteEvery. Under mu.
func (p *Pool) noteCaps(now time.Time) {
	if since := now.Sub(p.noted); p.noting || since >= 0 && since < noteEvery {
		return
	}
	p.noting, p.noted = true, now
	p.begin(func(ctx context.Context) error { return p.keepCaps(ctx, now, true) },
		"today's RCPTs of our sources were not saved")
}

// begin runs a read or write of daily caps in a goroutine; noting is true until it ends.
func (p *Pool) begin(do func(ctx context.Context) error, failed string) {
	s := p.boundSettings()
	s.Guard.Go("sources", func() {
		ctx, cancel := context.WithTimeout(context.Background(), noteWithin)
		defer cancel()
		if err := do(ctx); err != nil {
			s.Log.Warn(failed, "err", err)
		}
		p.endNoting()
	}, p.endNoting)
}

// endNoting lets the next read or write begin.
func (p *Pool) endNoting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noting = false
}

// recallCaps begins readCaps, unless a read or write of caps is under way. Under mu.
func (p *Pool) recallCaps(now time.Time) {
	if p.noting || p.facts() == nil {
		return
	}
	p.noting = true
	p.begin(func(ctx context.Context) error {
		p.keeping.Lock()
		defer p.keeping.Unlock()
		return p.readCaps(ctx, now)
	}, "what our sources asked today cannot be read")
}

// Flush writes what sources have used and no more, at a clean end of the process.
func (p *Pool) Flush(ctx context.Context) error {
	s := p.boundSettings()
	if s.Facts == nil {
		return nil
	}
	if err := p.keepCaps(ctx, s.clock(time.Now()), false); err != nil {
		return fmt.Errorf("today's RCPTs of our sources were not saved: %w", err)
	}
	return nil
}

// keepCaps reads what earlier processes used of this day, if that isn't known, and writes what this one has used; ahead
// adds the next block.
func (p *Pool) keepCaps(ctx context.Context, now time.Time, ahead bool) error {
	p.keeping.Lock() // what is written last must be what was counted last
	defer p.keeping.Unlock()
	if err := p.readCaps(ctx, now); err != nil {
		return err
	}
	facts, uses := p.usedToday(now, ahead)
	if len(facts) == 0 {
		return nil
	}
	if err := p.facts().Learn(ctx, facts); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, used := range uses {
		if d := &p.caps[i]; d.day == DayOf(now) {
			d.noted = used
		}
	}
	return nil
}

// usedToday returns the facts to store, and the use that they state, by source.
func (p *Pool) usedToday(now time.Time, ahead bool) (found []facts.Fact, uses map[int]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uses = map[int]int{}
	for i := range p.list {
		most := DailyCap(p.Limits(i), now)
		d := p.today(i, now)
		if most == 0 && d.used == 0 {
			continue
		}
		used := d.used
		if ahead && most > 0 {
			used = max(d.noted, min(most, used+max(blockLeast, most/blockShare)))
		}
		data, err := json.Marshal(capFact{V: capVersion, Day: d.day, Used: used})
		if err != nil {
			panic(err) // three numbers are always written
		}
		found = append(found, facts.Fact{Key: p.factKey(i), Data: data, Expires: now.Add(keepFor)})
		uses[i] = used
	}
	return found, uses
}

// factKey is the key of the fact of a source. No receiver key begins so.
func (p *Pool) factKey(i int) string { return throttle.SourcePrefix + p.list[i].Name() }

// readCaps reads how much earlier processes used of today's caps, if that isn't known.
func (p *Pool) readCaps(ctx context.Context, now time.Time) error {
	which := map[string]int{}
	p.mu.Lock()
	for i := range p.list {
		if d := p.today(i, now); !d.read {
			which[p.factKey(i)] = i
		}
	}
	p.mu.Unlock()
	if len(which) == 0 {
		return nil
	}
	facts, err := p.facts().Known(ctx, slices.Sorted(maps.Keys(which)))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range facts {
		i, ours := which[f.Key]
		var was capFact
		if d := &p.caps[i]; ours && json.Unmarshal(f.Data, &was) == nil && was.V == capVersion &&
			was.Day == d.day && !d.read {
			d.used += max(0, was.Used)
			d.noted = max(d.noted, was.Used)
		}
	}
	for _, i := range which {
		if p.caps[i].day == DayOf(now) {
			p.caps[i].read = true
		}
	}
	return nil
}

// addCap adds the operator's settings for a source, and how much of its daily cap is used. Both are unknown before the
// pool is bound. Under mu.
func (p *Pool) addCap(i int, now time.Time, st *SourceState) {
	now = p.boundSettings().clock(now)
	a, d := p.Limits(i), p.today(i, now)
	if !d.read {
		p.recallCaps(now)
	}
	st.Pause, st.PerDay, st.Today = a.Pause, DailyCap(a, now), d.used
}
