package receiver

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/actors/view"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// recordMinutes is how far back a record reaches.
	recordMinutes = 6 * 60

	// recordsMax bounds the receivers of which a node keeps a record. Those that no
	// actor speaks to go first, the one that was used least recently before the others.
	// A record of six hours without a gap takes 17 KB: 17 MB for all.
	recordsMax = 1_000

	// heardMax bounds the texts that are told apart of one receiver in an hour.
	heardMax = 64

	// heardBytesMax bounds all texts of a node; with what is kept beside each the
	// records of a node stay below 80 MB. Guess: four times what 1,000 receivers said in
	// six hours of lab runs.
	heardBytesMax = 32 << 20

	// heardBeside is about what is kept of a text beside the text.
	heardBeside = 256
)

// records is what a node keeps of the last hours, whether the receivers' actors still
// live or not. Safe for concurrent use; the zero value is ready.
type records struct {
	mu      sync.Mutex
	of      map[string]*record // guarded by mu; by receiver key
	dropped int                // guarded by mu; receivers that found no room
	bytes   atomic.Int64       // of texts
}

// record is what is kept of one receiver.
type record struct {
	all   *records
	key   string
	desks int       // guarded by all.mu; that write to it
	used  time.Time // guarded by all.mu; when a desk began or ended with it

	mu      sync.Mutex
	domain  string      // guarded by mu; one of its mail domains
	minutes []minuteRow // guarded by mu; oldest first, with gaps where nothing happened
	held    [causes]time.Duration
	texts   map[text]*heard // guarded by mu; of all hours
	hours   map[int32]int   // guarded by mu; texts of each hour
	lost    int             // guarded by mu
}

// minuteRow is a view.Minute in 44 bytes.
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

// causes is how many causes there are.
const causes = len(view.Causes)

// open gives the record of a receiver to a desk, nil when there is no room; first says
// that this desk asks for the first time.
func (r *records) open(key string, now time.Time, first bool) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[key]
	if one == nil {
		if len(r.of) >= recordsMax && !r.evict() {
			if first {
				r.dropped++
			}
			return nil
		}
		if r.of == nil {
			r.of = map[string]*record{}
		}
		one = &record{all: r, key: key, texts: map[text]*heard{}, hours: map[int32]int{}}
		r.of[key] = one
	}
	one.desks++
	one.used = now
	return one
}

// evict makes room for a record. Under mu.
func (r *records) evict() bool {
	var oldest *record
	for _, one := range r.of {
		if one.desks == 0 && (oldest == nil || one.used.Before(oldest.used)) {
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

// close says that a desk is done with its record.
func (r *record) close(now time.Time) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	r.desks--
	r.used = now
}

// minute gives the row of now; what is too old goes. Under mu.
func (r *record) minute(now time.Time) *minuteRow {
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
func (r *record) expire(at int32) {
	old := 0
	for old < len(r.minutes) && r.minutes[old].at <= at-recordMinutes {
		old++
	}
	if old > 0 {
		r.minutes = append(r.minutes[:0], r.minutes[old:]...)
	}
	first := (at - recordMinutes) / 60
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
func (r *record) forget(t text) {
	delete(r.texts, t)
	r.all.bytes.Add(-int64(len(t.said) + heardBeside))
}

// say counts what was said. Nothing is allocated for what is known. Under mu.
func (r *record) say(now time.Time, told *verdictOf, said string) {
	a, v := &told.attempt, &told.verdict
	t := text{hour: int32(now.Unix() / 3600), stage: a.Stage, code: int16(a.Code), enhanced: a.Enhanced,
		trouble: a.Trouble, tls: a.TLS, said: said, rule: v.Rule, did: did(told), reason: v.Reason}
	if known := r.texts[t]; known != nil {
		known.times++
		return
	}
	size := int64(len(said) + heardBeside)
	if r.hours[t.hour] >= heardMax || r.all.bytes.Load()+size > heardBytesMax {
		r.lost++
		return
	}
	r.all.bytes.Add(size)
	r.hours[t.hour]++
	t.said, t.rule = strings.Clone(said), strings.Clone(v.Rule)
	r.texts[t] = &heard{host: strings.Clone(a.Host), times: 1}
}

// did is what was made of an answer, as a word.
func did(told *verdictOf) string {
	if told.verdict.Outcome.Final() {
		return told.verdict.Outcome.String()
	}
	return told.verdict.Action.String()
}

// last gives the minutes of a time before now, oldest first. Under mu.
func (r *record) last(now time.Time, minutes int32) []view.Minute {
	var out []view.Minute
	for i := range r.minutes {
		if m := &r.minutes[i]; m.at > int32(now.Unix()/60)-minutes {
			out = append(out, m.view())
		}
	}
	return out
}

func (m *minuteRow) view() view.Minute {
	return view.Minute{At: time.Unix(int64(m.at)*60, 0).UTC(), Asked: int(m.asked), Accepted: int(m.accepted),
		Refused: int(m.refused), Deferred: int(m.deferred), Opened: int(m.opened), Sessions: int(m.sessions),
		Queued: int(m.queued), Allowed: max(0, float64(m.allowed)),
		AllowedLast: float64(m.last), Cause: view.Causes[m.cause]}
}

// replies gives what was said, by hour and then most often first. Under mu.
func (r *record) replies() []view.Heard {
	var out []view.Heard
	for t, h := range r.texts {
		enhanced := ""
		if t.enhanced != (smtp.EnhancedCode{}) {
			enhanced = t.enhanced.String()
		}
		out = append(out, view.Heard{Hour: int64(t.hour) * 3600, Stage: uint8(t.stage), Code: int(t.code),
			Enhanced: enhanced, Text: t.said, Trouble: uint8(t.trouble), Host: h.host, TLS: t.tls, Rule: t.rule,
			Did: t.did, Reason: t.reason.String(), Times: h.times})
	}
	slices.SortFunc(out, func(a, b view.Heard) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(b.Times, a.Times), cmp.Compare(a.Text, b.Text),
			cmp.Compare(a.Rule, b.Rule))
	})
	return out
}

// Record gives what this node kept of the receivers whose keys come after a key, in
// their order, and whether that is all: it ends when most bytes of JSON are about full.
func (l *Living) Record(now time.Time, after string, most int) (out view.Record, whole bool) {
	r := &l.records
	r.mu.Lock()
	all := maps.Clone(r.of)
	out.Dropped = r.dropped
	r.mu.Unlock()
	out.Receivers = []view.ReceiverRecord{}
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
func (r *record) view(now time.Time) view.ReceiverRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(int32(now.Unix() / 60))
	return view.ReceiverRecord{Key: r.key, Domain: r.domain, Minutes: r.last(now, recordMinutes),
		Replies: r.replies(), Lost: r.lost}
}

// sizeOf is about how much JSON a record takes.
func sizeOf(r *view.ReceiverRecord) int {
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

// causeWord is a wire.Cause as the views have it.
func causeWord(c wire.Cause) string {
	if c < 0 || int(c) >= causes {
		return ""
	}
	return view.Causes[c]
}
