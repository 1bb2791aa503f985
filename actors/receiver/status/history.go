package status

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// historyMinutes is how far back a history reaches.
	historyMinutes = 6 * 60

	// historiesMax bounds the receivers of which a node keeps a history. Those that no
	// actor speaks to go first, the one that was used least recently before the others.
	// A history of six hours without a gap takes 17 KB: 17 MB for all.
	historiesMax = 1_000

	// heardMax bounds the texts that are told apart of one receiver in an hour.
	heardMax = 64

	// heardBytesMax bounds all texts of a node; with what is kept beside each the
	// histories of a node stay below 80 MB: four times what 1,000 receivers said in
	// six hours of lab runs.
	heardBytesMax = 32 << 20

	// heardBeside is about what is kept of a text beside the text.
	heardBeside = 256
)

// Histories is what a node keeps of the last hours, whether the receivers' actors still
// live or not. Safe for concurrent use; the zero value is ready.
type Histories struct {
	mu      sync.Mutex
	of      map[string]*History // guarded by mu; by receiver key
	dropped int                 // guarded by mu; receivers that found no room
	bytes   atomic.Int64        // of texts
}

// History is what is kept of one receiver. Safe for concurrent use.
type History struct {
	all     *Histories
	key     string
	writers int       // guarded by all.mu; actors that write to it
	used    time.Time // guarded by all.mu; when one began or ended with it

	mu      sync.Mutex
	domain  string                // guarded by mu; one of its mail domains
	minutes []minuteRow           // guarded by mu; oldest first, with gaps where nothing happened
	held    [Causes]time.Duration // guarded by mu; how long each cause was there in the newest minute
	texts   map[text]*heard       // guarded by mu; of all hours
	hours   map[int32]int         // guarded by mu; texts of each hour
	lost    int                   // guarded by mu
}

// minuteRow is a inspect.Minute in 44 bytes.
type minuteRow struct {
	at                                 int32 // minutes since 1970
	asked, accepted, refused, deferred int32
	opened, sessions, queued           int32
	allowed, last                      float32
	cause                              uint8
}

// text tells apart what a receiver said.
type text struct {
	hour     int32 // hours since 1970
	stage    smtp.Stage
	code     int16
	enhanced smtp.EnhancedCode
	trouble  evidence.Trouble
	tls      bool
	said     string
	rule     string
	did      string
	reason   smtp.Reason
}

// heard is how often something was said.
type heard struct {
	host  string // the first that said so
	times int
}

// Open gives the history of a receiver to an actor, nil when there is no room; first says
// that this actor asks for the first time.
func (r *Histories) Open(key string, now time.Time, first bool) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[key]
	if one == nil {
		if len(r.of) >= historiesMax && !r.evict() {
			if first {
				r.dropped++
			}
			return nil
		}
		if r.of == nil {
			r.of = map[string]*History{}
		}
		one = &History{all: r, key: key, texts: map[text]*heard{}, hours: map[int32]int{}}
		r.of[key] = one
	}
	one.writers++
	one.used = now
	return one
}

// evict makes room for a history. Under mu.
func (r *Histories) evict() bool {
	var oldest *History
	for _, one := range r.of {
		if one.writers == 0 && (oldest == nil || one.used.Before(oldest.used)) {
			oldest = one
		}
	}
	if oldest == nil {
		return false
	}
	delete(r.of, oldest.key)
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	for t := range oldest.texts {
		oldest.forget(t)
	}
	return true
}

// Close says that an actor is done with its history.
func (r *History) Close(now time.Time) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.writers--
	r.used = now
}

// Asked counts RCPTs that were sent. Domain is that of one of them, if it is known.
func (r *History) Asked(now time.Time, n int32, domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now).asked += n
	if r.domain == "" {
		r.domain = domain
	}
}

// Opened counts a session that is dialled.
func (r *History) Opened(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now).opened++
}

// Heard counts what a receiver said so many times, or that it did not. Said is its redacted text.
func (r *History) Heard(now time.Time, a *evidence.Attempt, v *verdict.Verdict, said string, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Code != 0 && a.Stage == smtp.StageRcpt {
		m := r.minute(now)
		switch a.Code / 100 {
		case 2:
			m.accepted += int32(times)
		case 5:
			m.refused += int32(times)
		default:
			m.deferred += int32(times)
		}
	}
	r.say(now, a, v, said, times)
}

// Moment is what a receiver does at one time.
type Moment struct {
	Sessions, Queued int
	Permitted        float64 // RCPTs a second
	Cause            wire.Cause
}

// Observe puts a moment into its minute. Before is the cause since an earlier moment, which is
// zero when there was none.
func (r *History) Observe(now time.Time, is Moment, before wire.Cause, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.minute(now)
	m.sessions = max(m.sessions, int32(is.Sessions))
	m.queued = int32(is.Queued)
	m.last = float32(is.Permitted)
	if m.allowed < 0 || m.last < m.allowed {
		m.allowed = m.last
	}
	if !since.IsZero() {
		if began := now.Truncate(time.Minute); since.Before(began) {
			since = began
		}
		r.held[before] += now.Sub(since)
	}
	longest := is.Cause
	for c, long := range r.held {
		if long > r.held[longest] {
			longest = wire.Cause(c)
		}
	}
	m.cause = uint8(longest)
}

// minute gives the row of now; what is too old goes. Under mu.
func (r *History) minute(now time.Time) *minuteRow {
	at := int32(now.Unix() / 60)
	if n := len(r.minutes); n > 0 && r.minutes[n-1].at >= at { // the clock may be set back
		return &r.minutes[n-1]
	}
	clear(r.held[:])
	r.expire(at)
	r.minutes = append(r.minutes, minuteRow{at: at, allowed: -1})
	return &r.minutes[len(r.minutes)-1]
}

// expire drops what is older than the record reaches back. Under mu.
func (r *History) expire(at int32) {
	old := 0
	for old < len(r.minutes) && r.minutes[old].at <= at-historyMinutes {
		old++
	}
	if old > 0 {
		r.minutes = append(r.minutes[:0], r.minutes[old:]...)
	}
	first := (at - historyMinutes) / 60
	for hour := range r.hours {
		if hour >= first {
			continue
		}
		delete(r.hours, hour)
		for t := range r.texts {
			if t.hour == hour {
				r.forget(t)
			}
		}
	}
}

// forget drops a text. Under mu.
func (r *History) forget(t text) {
	delete(r.texts, t)
	r.all.bytes.Add(-int64(len(t.said) + heardBeside))
}

// say counts what was said. Nothing is allocated for what is known. Under mu.
func (r *History) say(now time.Time, a *evidence.Attempt, v *verdict.Verdict, said string, times int) {
	t := text{hour: int32(now.Unix() / 3600), stage: a.Stage, code: int16(a.Code), enhanced: a.Enhanced,
		trouble: a.Trouble, tls: a.TLS, said: said, rule: v.Rule, did: did(v), reason: v.Reason}
	if known := r.texts[t]; known != nil {
		known.times += times
		return
	}
	size := int64(len(said) + heardBeside)
	if r.hours[t.hour] >= heardMax || r.all.bytes.Load()+size > heardBytesMax {
		r.lost += times
		return
	}
	r.all.bytes.Add(size)
	r.hours[t.hour]++
	t.said, t.rule = strings.Clone(said), strings.Clone(v.Rule)
	r.texts[t] = &heard{host: strings.Clone(a.Host), times: times}
}

// did is what was made of an answer, as a word.
func did(v *verdict.Verdict) string {
	if v.Outcome.Final() {
		return v.Outcome.String()
	}
	return v.Action.String()
}

// Last returns the minutes of a time before now, oldest first.
func (r *History) Last(now time.Time, minutes int32) []inspect.Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last(now, minutes)
}

// last is Last under mu.
func (r *History) last(now time.Time, minutes int32) []inspect.Minute {
	var out []inspect.Minute
	for i := range r.minutes {
		if m := &r.minutes[i]; m.at > int32(now.Unix()/60)-minutes {
			out = append(out, m.view())
		}
	}
	return out
}

func (m *minuteRow) view() inspect.Minute {
	return inspect.Minute{At: time.Unix(int64(m.at)*60, 0).UTC(), Asked: int(m.asked), Accepted: int(m.accepted),
		Refused: int(m.refused), Deferred: int(m.deferred), Opened: int(m.opened), Sessions: int(m.sessions),
		Queued: int(m.queued), Allowed: max(0, float64(m.allowed)),
		AllowedLast: float64(m.last), Cause: inspect.Causes[m.cause]}
}

// replies gives what was said, by hour and then most often first. Under mu.
func (r *History) replies() []inspect.Heard {
	var out []inspect.Heard
	for t, h := range r.texts {
		enhanced := ""
		if t.enhanced != (smtp.EnhancedCode{}) {
			enhanced = t.enhanced.String()
		}
		out = append(out, inspect.Heard{Hour: int64(t.hour) * 3600, Stage: uint8(t.stage), Code: int(t.code),
			Enhanced: enhanced, Text: t.said, Trouble: uint8(t.trouble), Host: h.host, TLS: t.tls, Rule: t.rule,
			Did: t.did, Reason: t.reason.String(), Times: h.times})
	}
	slices.SortFunc(out, func(a, b inspect.Heard) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(b.Times, a.Times), cmp.Compare(a.Text, b.Text),
			cmp.Compare(a.Rule, b.Rule))
	})
	return out
}

// Record returns what this node kept of the receivers whose keys come after a key, in
// their order, and whether that is all: it ends when most bytes of JSON are about full.
func (r *Histories) Record(now time.Time, after string, most int) (out inspect.Record, whole bool) {
	r.mu.Lock()
	all := maps.Clone(r.of)
	out.Dropped = r.dropped
	r.mu.Unlock()
	out.Receivers = []inspect.ReceiverRecord{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= after {
			continue
		}
		if most <= 0 {
			return out, false
		}
		one := all[key].view(now)
		if len(one.Minutes) == 0 {
			continue
		}
		most -= sizeOf(&one)
		out.From = earlier(out.From, one.Minutes[0].At.Unix())
		out.Receivers = append(out.Receivers, one)
	}
	return out, true
}

// view gives what was kept of a receiver.
func (r *History) view(now time.Time) inspect.ReceiverRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(int32(now.Unix() / 60))
	return inspect.ReceiverRecord{Key: r.key, Domain: r.domain, Minutes: r.last(now, historyMinutes),
		Replies: r.replies(), Lost: r.lost}
}

// sizeOf is about how much JSON a record takes.
func sizeOf(r *inspect.ReceiverRecord) int {
	const minute, reply = 190, 260
	size := len(r.Key) + len(r.Domain) + minute*len(r.Minutes)
	for i := range r.Replies {
		size += reply + len(r.Replies[i].Text)
	}
	return size
}

// earlier gives the smaller of two times that is not zero.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
