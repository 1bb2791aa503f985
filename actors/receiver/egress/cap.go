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
	// The use of a daily cap is stored before it happens, in blocks of 1/blockShare of the cap, at least blockLeast. If
	// the process dies, at most one block is lost, and the cap is never exceeded. Ten deaths in a day cost at most half a
	// cap.
	blockShare = 20
	blockLeast = 10

	// noteEvery is the least time between two writes of a node's caps. noteWithin bounds one write, and keepFor is how
	// long stored caps are kept.
	noteEvery  = 2 * time.Second
	noteWithin = 2 * time.Second
	keepFor    = 48 * time.Hour

	// noteUncapped is noteEvery for a source without a cap. If the process dies, RCPTs of that time aren't counted.
	noteUncapped = 10 * time.Second

	// claimFor is how long a receiver keeps its part of a cap without asking for RCPTs of that part. claimFor is longer
	// than the pause between two of its groups, and short for receivers that wait.
	claimFor = time.Minute
)

// dailyCap is how much one source has asked since midnight UTC, and which receivers claim what is left. Guarded by
// Pool.mu.
type dailyCap struct {
	day   int64 // day number, counted from 1970
	used  int   // RCPTs, including those that are claimed and not sent
	noted int   // the stored use, which is ahead of used
	read  bool  // what earlier processes used is known

	claims  map[string]*claim // claims by receiver key
	claimed int               // sum of what the claims used
	swept   time.Time         // when prune last ran
}

type claim struct {
	used int
	last time.Time // when the receiver last asked
}

// capFact is the stored form of a dailyCap.
type capFact struct {
	V    int   `json:"v"`
	Day  int64 `json:"day"`
	Used int   `json:"used"`
}

const capVersion = 1

// DayOf returns the number of a day in UTC, counted from 1970.
func DayOf(now time.Time) int64 { return now.UTC().Unix() / (24 * 60 * 60) }

func untilMidnight(now time.Time) time.Duration {
	return time.Unix((DayOf(now)+1)*24*60*60, 0).Sub(now)
}

// DailyCap returns how many RCPTs a source may send in a day; 0: any number. In a warm-up the number doubles each day
// until it reaches the configured cap.
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

// Settings is what a pool gets from its node.
type Settings struct {
	// Limits returns what an operator has set for a source now, by its name: whether it is paused, and its daily cap; nil:
	// nothing is set.
	Limits func(name string) throttle.Limits
	Facts  facts.Store      // where daily caps are kept; nil: nowhere
	Clock  func() time.Time // the ledger's clock; nil: this host's
	Log    *slog.Logger
	Guard  *process.PanicGuard // guards goroutines against panics; nil: no guard
}

func (p *Pool) boundSettings() Settings {
	if s := p.settings.Load(); s != nil {
		return *s
	}
	return Settings{}
}

func (s Settings) clock(now time.Time) time.Time {
	if s.Clock != nil {
		return s.Clock()
	}
	return now
}

// Bind sets the operators' settings for the sources, and a store for daily caps. Only the first call counts.
func (p *Pool) Bind(s Settings) { p.settings.CompareAndSwap(nil, &s) }

// facts returns where daily caps are kept; nil: nowhere.
func (p *Pool) facts() facts.Store { return p.boundSettings().Facts }

// Limits returns what an operator has set for a source.
func (p *Pool) Limits(i int) throttle.Limits {
	if s := p.boundSettings(); s.Limits != nil {
		return s.Limits(p.list[i].Name())
	}
	return throttle.Limits{}
}

// today returns the cap of a source. The cap starts again at midnight. Under mu.
func (p *Pool) today(i int, now time.Time) *dailyCap {
	d := &p.caps[i]
	if day := DayOf(now); day > d.day { // a clock that goes back ends no day
		*d = dailyCap{day: day, claims: map[string]*claim{}}
	}
	if s := p.settings.Load(); s != nil && s.Facts == nil { // else the use isn't known yet, or must be read
		d.read = true
	}
	return d
}

// Remaining returns how many RCPTs a source may still send to a receiver today, by this node's clock. If no RCPT is
// left, Remaining also returns how long until more are allowed. A receiver with work waiting keeps its part. Key ""
// ignores the parts of receivers.
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

// Claim gives up to n RCPTs of a source's day to a receiver. Claim also returns how long until the receiver may have
// more. Claiming receivers have equal parts of what they have used and what is left together.
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

// claim returns the claim of a receiver, or makes a new one.
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

// part is how much each claiming receiver may use. part is rounded up, so that no remainder stays unused.
func (d *dailyCap) part(most int) int {
	n := max(1, len(d.claims))
	return max(1, (most-d.used+d.claimed+n-1)/n)
}

// prune drops claims that weren't used for claimFor.
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

// Return gives back n RCPTs that a receiver claimed on a day and didn't send. When that day is over, Return does
// nothing.
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

// noteCaps stores the next blocks of the caps. Nothing is stored if a write is under way, or began within noteEvery.
// Under mu.
func (p *Pool) noteCaps(now time.Time) {
	if since := now.Sub(p.noted); p.noting || since >= 0 && since < noteEvery {
		return
	}
	p.noting, p.noted = true, now
	p.begin(func(ctx context.Context) error { return p.keepCaps(ctx, now, true) },
		"today's RCPTs of our sources were not saved")
}

// begin runs a read or write of daily caps in a goroutine. noting is true until it ends.
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

// Flush stores exactly what sources have used, at a clean end of the process.
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

// keepCaps first reads what earlier processes used on this day, if that isn't known. Then keepCaps writes what this
// process has used. ahead: it adds the next block.
func (p *Pool) keepCaps(ctx context.Context, now time.Time, ahead bool) error {
	p.keeping.Lock() // so that the last write has the last count
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

// usedToday returns the facts to store and, by source, the use that they state.
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
			panic(err) // three numbers can always be written
		}
		found = append(found, facts.Fact{Key: p.factKey(i), Data: data, Expires: now.Add(keepFor)})
		uses[i] = used
	}
	return found, uses
}

// factKey is the key of a source's fact. No receiver key begins like this key.
func (p *Pool) factKey(i int) string { return throttle.SourcePrefix + p.list[i].Name() }

// readCaps reads how much of today's caps earlier processes used, if that isn't known.
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

// addCap adds to a source's state the operator's settings and how much of its daily cap is used. Before Bind neither is
// known. Under mu.
func (p *Pool) addCap(i int, now time.Time, st *SourceState) {
	now = p.boundSettings().clock(now)
	a, d := p.Limits(i), p.today(i, now)
	if !d.read {
		p.recallCaps(now)
	}
	st.Pause, st.PerDay, st.Today = a.Pause, DailyCap(a, now), d.used
}
