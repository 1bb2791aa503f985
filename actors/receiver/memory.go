package receiver

import (
	"encoding/json"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// memoVersion is the version of a memo's text. What another version wrote is not read.
	memoVersion = 3

	// memoMax bounds the text of a memo, as Facts does.
	memoMax = 4 << 10

	// memoHosts bounds the hosts of a memo; more have to be learned again. Guess.
	memoHosts = 16

	// memoText bounds what a receiver wrote in each attempt of a memo. Guess.
	memoText = 256

	// memoFor bounds how long anything that is read from a memo holds, whatever it
	// says: a clock that was wrong must not block a receiver for ever. Guess.
	memoFor = 24 * time.Hour

	// memoEvery is how often one receiver is noted at most. Guess.
	memoEvery = time.Second

	// memoCountMax bounds what is counted in a row. Guess: waits do not grow beyond some.
	memoCountMax = 100

	// worthShare: refusals are worth noting when they are one part in this many of
	// what an hour allows: most receivers see a few and need no place in the ledger.
	// A move can cost so many refusals more. Guess.
	worthShare = 4

	// knowWithin is how long an actor waits for what is known about its receiver.
	// Then it begins as after a loss. Guess: a ledger that takes longer has failed.
	knowWithin = 5 * time.Second

	// lossShare: after a loss one part in this many of the hour's refusals counts as
	// used. Guess.
	lossShare = 2
)

// memo is what a desk learned of its receiver, for the next desk. Times in it are
// what was left of them when it was written.
type memo struct {
	V        int          `json:"v"`
	At       int64        `json:"at"` // when it was written, by the ledger's clock, Unix milliseconds
	Limits   []memoLimit  `json:"limits,omitempty"`
	Capacity memoCapacity `json:"capacity,omitzero"`
	Pauses   int          `json:"pauses,omitempty"`
	Paused   int64        `json:"paused_ms,omitempty"`
	Excuse   memoAttempt  `json:"excuse,omitzero"`
	Sources  []memoSource `json:"sources,omitempty"`
	Lanes    []memoLane   `json:"lanes,omitempty"`
	Hosts    []memoHost   `json:"hosts,omitempty"`
}

// memoLimit is one limit of learned, by its place in learned.limits.
type memoLimit struct {
	Which int   `json:"which"`
	Most  int   `json:"most"`
	Left  int64 `json:"left_ms"`
}

// memoCapacity is how many sessions a receiver takes.
type memoCapacity struct {
	Most int   `json:"most"`
	Hold int64 `json:"hold_ms"`
	Left int64 `json:"left_ms,omitempty"`
}

// memoAttempt is an attempt that speaks of a host or of us. It is judged again by
// whoever reads it.
type memoAttempt struct {
	At       int64             `json:"at,omitempty"`
	Stage    uint8             `json:"stage,omitempty"`
	Host     string            `json:"host,omitempty"`
	Source   string            `json:"source,omitempty"`
	TLS      bool              `json:"tls,omitempty"`
	Code     int               `json:"code,omitempty"`
	Enhanced smtp.EnhancedCode `json:"enhanced,omitzero"`
	Text     []byte            `json:"text,omitempty"` // any bytes
	Trouble  uint8             `json:"trouble,omitempty"`
}

// memoLane is the TLS mode of a lane, and which of our sources it refuses.
type memoLane struct {
	Key   string     `json:"key"`
	TLS   uint8      `json:"tls,omitempty"`
	Left  int64      `json:"left_ms,omitempty"`
	Rests []memoRest `json:"rests,omitempty"`
}

// memoHost is one address of a host that failed.
type memoHost struct {
	Host     string      `json:"host"`
	At       string      `json:"at"`
	Left     int64       `json:"left_ms,omitempty"`
	Failures int         `json:"failures"`
	Last     memoAttempt `json:"last"`
}

// memory is what came of a memo and waits for its lanes to be made.
type memory struct {
	lanes map[string]memoLane
	hosts map[string]memoHost // by host and address
	read  time.Time
}

// note gives what is worth remembering, or false when nothing is and nothing was forgotten.
func (d *desk) note(now time.Time) (Fact, bool) {
	m := memo{V: memoVersion, At: d.options.clock(now).UnixMilli(), Pauses: min(d.pauses, memoCountMax),
		Limits: d.learned.note(now), Capacity: d.learned.connections.note(now), Sources: d.noteSources(now)}
	if left := d.paused.Sub(now); left > 0 {
		m.Paused, m.Excuse = left.Milliseconds(), noteAttempt(d.excuse.attempt)
	}
	for _, l := range d.lanes {
		m.noteLane(now, l)
	}
	if !d.emptied && m.Pauses == 0 && m.Paused == 0 && len(m.Limits) == 0 && m.Capacity == (memoCapacity{}) &&
		len(m.Sources) == 0 && len(m.Lanes) == 0 && len(m.Hosts) == 0 {
		return Fact{}, false
	}
	return Fact{Key: d.key, Data: m.text(), Expires: time.UnixMilli(m.At).Add(m.life())}, true
}

// noteLane adds what a lane knows.
func (m *memo) noteLane(now time.Time, l *lane) {
	one := memoLane{Key: l.key, Rests: l.noteRests(now)}
	if mode := l.mode(now); mode != smtp.TLSOpportunistic {
		one.TLS, one.Left = uint8(mode), l.tlsUntil.Sub(now).Milliseconds()
	}
	if (one.TLS > 0 || len(one.Rests) > 0) && len(m.Lanes) < memoHosts {
		m.Lanes = append(m.Lanes, one)
	}
	for _, c := range l.candidates {
		if c.failures > 0 && now.Before(c.until.Add(learnedFor)) && len(m.Hosts) < memoHosts {
			m.Hosts = append(m.Hosts, memoHost{c.host, c.at.String(), max(0, c.until.Sub(now).Milliseconds()),
				min(c.failures, memoCountMax), noteAttempt(c.last.attempt)})
		}
	}
}

// text gives the memo as it is kept. Of hosts that are too many for it, some are left out.
func (m *memo) text() []byte {
	for {
		text, err := json.Marshal(m)
		switch {
		case err == nil && len(text) <= memoMax:
			return text
		case len(m.Hosts) > 0:
			m.Hosts = m.Hosts[1:]
		case len(m.Lanes) > 0:
			m.Lanes = m.Lanes[1:]
		default:
			m.Sources = shorter(m.Sources) // the rest is far smaller
		}
	}
}

// life is how long a memo is of use: until all that it says is over.
func (m *memo) life() time.Duration {
	longest := learnedFor.Milliseconds() // failures and pauses in a row count so long
	longest = max(longest, m.Paused)
	for _, l := range m.Limits {
		longest = max(longest, l.Left)
	}
	for _, l := range m.Lanes {
		for _, r := range l.Rests {
			longest = max(longest, r.Left+learnedFor.Milliseconds())
		}
	}
	for _, s := range m.Sources {
		longest = max(longest, s.life().Milliseconds())
	}
	for _, h := range m.Hosts {
		longest = max(longest, h.Left+learnedFor.Milliseconds())
	}
	return min(time.Duration(longest)*time.Millisecond, memoFor)
}

func noteAttempt(a evidence.Attempt) memoAttempt {
	if a == (evidence.Attempt{}) {
		return memoAttempt{}
	}
	return memoAttempt{At: a.At.UnixMilli(), Stage: uint8(a.Stage), Host: a.Host, Source: a.Source, TLS: a.TLS,
		Code: a.Code, Enhanced: a.Enhanced, Text: []byte(cut(a.Text, memoText)), Trouble: uint8(a.Trouble)}
}

// recalled gives the verdict on what was noted, which is to come back later: what
// the rules of today take for an answer about an address is none for another one.
func (o *Options) recalled(m memoAttempt) verdictOf {
	a := evidence.Attempt{At: time.UnixMilli(m.At).UTC(), Host: cut(m.Host, evidence.NameMax),
		Source: cut(m.Source, evidence.NameMax), TLS: m.TLS, Text: cut(string(m.Text), evidence.TextMax)}
	if m.Code >= 200 && m.Code <= 599 {
		a.Code, a.Enhanced = m.Code, m.Enhanced
	}
	if s := smtp.Stage(m.Stage); s <= smtp.StageRset {
		a.Stage = s
	}
	if t := evidence.Trouble(m.Trouble); t.Known() {
		a.Trouble = t
	}
	told := verdictOf{attempt: a}
	told.verdict = o.Rules.Decide(&told.attempt)
	if told.verdict.Outcome != smtp.Undecided || m.At == 0 {
		return verdictOf{verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	told.verdict.Action, told.verdict.Wait = verdict.ActRetry, 0
	return told
}

// cut gives at most the first n bytes of a text.
func cut(text string, n int) string { return text[:min(len(text), n)] }

// recall takes what an earlier actor noted of this receiver. Of what is known
// already the stricter holds. Nil, or what cannot be read: nothing is known.
func (d *desk) recall(now time.Time, data []byte) {
	var m memo
	d.known = true
	if len(data) == 0 || len(data) > memoMax {
		return
	}
	if err := json.Unmarshal(data, &m); err != nil || m.V != memoVersion {
		d.options.Log.Debug("memory of a receiver cannot be read", "receiver", d.key, "version", m.V, "err", err)
		return
	}
	age := max(0, d.options.clock(now).Sub(time.UnixMilli(m.At)))
	left := func(ms int64) time.Time { // the time that ms meant
		return now.Add(min(time.Duration(clamp(ms, memoFor.Milliseconds()))*time.Millisecond-age, memoFor))
	}
	d.learned.recall(now, m.Limits, left)
	if age < learnedFor {
		d.learned.connections.recall(now, m.Capacity, left(m.Capacity.Left))
	}
	if until := left(m.Paused); m.Paused > 0 && until.After(now) && until.After(d.paused) {
		d.paused, d.excuse = until, d.options.recalled(m.Excuse)
		d.rested(now)
	}
	if age < learnedFor {
		d.pauses = max(d.pauses, count(m.Pauses))
	}
	d.recallSources(now, age, m.Sources)
	d.memory = &memory{lanes: map[string]memoLane{}, hosts: map[string]memoHost{}, read: now.Add(-age)}
	for _, l := range m.Lanes {
		d.memory.lanes[l.Key] = l
	}
	for _, h := range m.Hosts {
		d.memory.hosts[h.Host+" "+h.At] = h
	}
	for _, l := range d.lanes {
		d.remind(now, l)
	}
}

// remind tells a lane what is remembered of its hosts.
func (d *desk) remind(now time.Time, l *lane) {
	m := d.memory
	if m == nil {
		return
	}
	until := func(ms int64) time.Time {
		return m.read.Add(time.Duration(clamp(ms, memoFor.Milliseconds())) * time.Millisecond)
	}
	one, ok := m.lanes[l.key]
	if ok {
		d.remindRests(now, l, one.Rests, until)
	}
	if ok && one.Left > 0 && one.TLS <= uint8(smtp.TLSRequired) && now.Before(until(one.Left)) {
		l.tls, l.tlsUntil = smtp.TLSMode(one.TLS), until(one.Left)
	}
	for _, c := range l.candidates {
		h, ok := m.hosts[c.host+" "+c.at.String()]
		if !ok || c.failures > 0 || !now.Before(until(h.Left).Add(learnedFor)) {
			continue
		}
		c.until, c.failures, c.last = until(h.Left), count(h.Failures), d.options.recalled(h.Last)
	}
}

// note gives the limits that hold.
func (l *learned) note(now time.Time) []memoLimit {
	var out []memoLimit
	for i, one := range l.limits() {
		if now.Before(one.until) {
			out = append(out, memoLimit{i, one.most, one.until.Sub(now).Milliseconds()})
		}
	}
	return out
}

// recall tightens the limits to those that were noted.
func (l *learned) recall(now time.Time, noted []memoLimit, left func(ms int64) time.Time) {
	limits := l.limits()
	for _, n := range noted {
		if until := left(n.Left); n.Which >= 0 && n.Which < len(limits) && until.After(now) {
			one := limits[n.Which]
			until = later(until, one.until)
			one.tighten(n.Most, now)
			one.until = until
		}
	}
}

// note gives what is known; nothing when it is not.
func (c *capacity) note(now time.Time) memoCapacity {
	if c.most == 0 {
		return memoCapacity{}
	}
	return memoCapacity{c.most, c.hold.Milliseconds(), max(0, c.until.Sub(now).Milliseconds())}
}

// recall takes what was noted. Of what is known already the stricter holds.
func (c *capacity) recall(now time.Time, m memoCapacity, until time.Time) {
	if m.Most <= 0 || c.most > 0 && c.most <= m.Most {
		return
	}
	hold := time.Duration(clamp(m.Hold, capacityHoldMost.Milliseconds())) * time.Millisecond
	c.most, c.hold = m.Most, max(capacityHold, hold)
	c.until = later(now, until)
	if limit := now.Add(capacityHoldMost); c.until.After(limit) {
		c.until = limit
	}
}

// limits gives all limits in the order in which a memo numbers them.
func (l *learned) limits() []*limit {
	return []*limit{&l.perSession, &l.refused, &l.perTransaction}
}

// clamp gives n, at least 0 and at most most.
func clamp(n, most int64) int64 { return min(max(0, n), most) }

// count bounds what was counted in a row.
func count(n int) int { return min(max(0, n), memoCountMax) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// clock gives the time of the ledger.
func (o Options) clock(now time.Time) time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return now
}

// remember notes what was learned, when it is time.
func (d *desk) remember(now time.Time, urgent bool) {
	if d.options.Facts == nil || !d.dirty {
		return
	}
	if due := d.noted.Add(memoEvery); !urgent && now.Before(due) {
		d.at(due)
		return
	}
	d.dirty, d.noted = false, now
	if fact, worth := d.note(now); worth {
		d.steps = append(d.steps, keepFact{fact})
	}
}

// know says whether the desk knows what it can know, and sees to it that it will.
// A place that had no share must look again: others may have been here.
func (d *desk) know(now time.Time, share part) bool {
	switch {
	case d.options.Facts == nil:
		return true
	case share.none():
		d.remember(now, true)
		d.known, d.asked = false, time.Time{}
	case !d.known && d.asked.IsZero():
		d.asked = now
		d.steps = append(d.steps, knowFact{d.key})
		d.at(now.Add(knowWithin))
	case !d.known && now.Sub(d.asked) >= knowWithin:
		d.forgotten(now)
	case !d.known:
		d.at(d.asked.Add(knowWithin))
	}
	return d.known
}
