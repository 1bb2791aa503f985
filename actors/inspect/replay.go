package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"rollcall/smtp/throttle"
)

// Record is one node's history of the last hours: bounded, and lost with the process.
type Record struct {
	Node      string           `json:"node"`
	From      int64            `json:"from"` // Unix seconds of the oldest minute
	Receivers []ReceiverRecord `json:"receivers"`
	Dropped   int              `json:"dropped"` // receivers that found no room
}

// ReceiverRecord is what was kept of one receiver.
type ReceiverRecord struct {
	Key     string   `json:"key"`
	Domain  string   `json:"domain,omitempty"` // one of its mail domains, for an example
	Minutes []Minute `json:"minutes"`
}

// Replayed is how the recorded hours would have gone with candidate rules.
type Replayed struct {
	Hours     float64           `json:"hours"` // covered by the record, without its newest minute
	Asked     int               `json:"asked"`
	Receivers []ReceiverReplay  `json:"receivers"` // that would differ, the most asked first
	Same      int               `json:"same"`      // receivers for which nothing would differ
	Warnings  []string          `json:"warnings"`  // as throttle check has them
	Silent    []UnreachableNode `json:"silent"`
}

// ReceiverReplay is one receiver under the candidate rules.
type ReceiverReplay struct {
	Key     string        `json:"key"`
	Changes []FieldChange `json:"changes"`
	Asked   int           `json:"asked"` // in the record
	Would   int           `json:"would"` // how many, at most, the candidate would have allowed in the same time
	// AtLeast: Would is a lower bound and Delay an upper bound, because more addresses waited than the record has.
	AtLeast bool `json:"at_least,omitempty"`
	// Delay is how many seconds later the last address of the record would have been asked, including those
	// that still waited at its end. Below 0: sooner.
	Delay float64 `json:"delay"`
	// Minutes in which each field of the candidate would have been the limit.
	Fired map[string]int `json:"fired"`
	// Why the receiver's reaction can't be known, where more is allowed.
	Unknown string `json:"unknown,omitempty"`
}

// FieldChange is a field whose value would change.
type FieldChange struct {
	Field string `json:"field"`
	Now   string `json:"now"`
	Would string `json:"would"`
}

const (
	// replayDays bounds how long a backlog is followed beyond the end of the record.
	replayDays = 7

	// replayedMax bounds the receivers that are listed, the most asked first.
	replayedMax = 500

	// found is below which part of what the rules permit a recorded rate has to be, to be
	// what the receiver was found to bear rather than what the rules said. Guess.
	found = 0.98
)

// Replay computes how the recorded hours would have gone with a candidate table, and with the present one. It changes
// nothing.
//
// Each receiver is a fluid queue: what was offered comes in minute by minute, and what the rules permit goes out. The
// model runs once with each table, and the difference is reported. Limits of the receiver itself, by penalties or by a
// rate that was found, apply in both. Where the candidate permits more than was ever tried, the receiver's reaction
// can't be known, and Unknown says so.
func Replay(records []Record, now, candidate *throttle.Table) Replayed {
	out := Replayed{Receivers: []ReceiverReplay{}}
	from, to := int64(math.MaxInt64), int64(0)
	queues := map[string]*fluidQueue{}
	for _, record := range records {
		for _, r := range record.Receivers {
			q := queues[r.Key]
			if q == nil {
				q = &fluidQueue{key: r.Key, minutes: map[int64]*Minute{}}
				queues[r.Key] = q
			}
			q.addRecord(r)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(queues)) {
		q := queues[key]
		q.orderMinutes()
		if len(q.list) > 0 {
			from = min(from, q.list[0].At.Unix())
			to = max(to, q.list[len(q.list)-1].At.Unix()) // the newest minute may have just begun
		}
		out.Asked += q.asked
		if one, differs := q.compare(now, candidate); differs {
			out.Receivers = append(out.Receivers, one)
		} else {
			out.Same++
		}
		if q.never {
			out.Warnings = append(out.Warnings, fmt.Sprintf(
				"%s: the last of the recorded addresses would not have been asked within %d days", key, replayDays))
		}
		out.Warnings = append(out.Warnings, newReceivers(key, now, candidate)...)
	}
	if to > from {
		out.Hours = float64(to-from) / 3600
	}
	slices.SortStableFunc(out.Receivers, func(a, b ReceiverReplay) int { return cmp.Compare(b.Asked, a.Asked) })
	if n := len(out.Receivers); n > replayedMax {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d more receivers would differ", n-replayedMax))
		out.Receivers = out.Receivers[:replayedMax]
	}
	return out
}

// fluidQueue is the recorded demand of one receiver, all nodes together.
type fluidQueue struct {
	key     string
	minutes map[int64]*Minute // by their beginning
	list    []Minute          // in order, gaps filled

	asked, accepted, refused int
	fastest                  float64 // RCPTs that one session asked in a minute, in the best one
	perSession               float64 // RCPTs that a session asked
	hidden                   []bool  // of list: more waited than was recorded
	never                    bool    // under the candidate the last one is not asked within replayDays
}

func (q *fluidQueue) addRecord(r ReceiverRecord) {
	for _, m := range r.Minutes {
		at := m.At.Unix() / 60 * 60
		all := q.minutes[at]
		if all == nil {
			m.At = time.Unix(at, 0).UTC()
			q.minutes[at] = &m
			continue
		}
		if m.Asked > all.Asked {
			all.Cause = m.Cause
		}
		all.Asked += m.Asked
		all.Accepted += m.Accepted
		all.Refused += m.Refused
		all.Deferred += m.Deferred
		all.Opened += m.Opened
		all.Sessions += m.Sessions
		all.Queued += m.Queued
		all.Allowed += m.Allowed
	}
}

// orderMinutes puts the minutes in a row and sums them up.
func (q *fluidQueue) orderMinutes() {
	if len(q.minutes) == 0 {
		return
	}
	first, last := int64(math.MaxInt64), int64(0)
	for at := range q.minutes {
		first, last = min(first, at), max(last, at)
	}
	opened := 0
	for at := first; at <= last; at += 60 {
		m := q.minutes[at]
		if m == nil { // nothing waited and nothing was asked
			m = &Minute{At: time.Unix(at, 0).UTC(), Cause: Causes[0]}
		}
		q.list = append(q.list, *m)
		q.asked += m.Asked
		q.accepted += m.Accepted
		q.refused += m.Refused
		opened += m.Opened
		if m.Sessions > 0 {
			q.fastest = max(q.fastest, float64(m.Asked)/float64(m.Sessions))
		}
	}
	q.perSession = float64(q.asked) / float64(max(1, opened))
	q.findHidden()
}

// findHidden finds the minutes in which more waited than was recorded: something held the
// receiver back, and more was asked in the next one, still held back, than had waited.
func (q *fluidQueue) findHidden() {
	q.hidden = make([]bool, len(q.list))
	held := func(m *Minute) bool { return m.Cause != Causes[0] && m.Queued > 0 }
	var next *Minute
	for i := len(q.list) - 1; i >= 0; i-- {
		m := &q.list[i]
		q.hidden[i] = next != nil && held(m) && held(next) && max(m.Queued, next.Queued) < next.Asked
		if m.Asked > 0 {
			next = m
		}
	}
}

// compare runs the model with both tables; false: they have the same limits for the receiver.
func (q *fluidQueue) compare(now, candidate *throttle.Table) (out ReceiverReplay, differs bool) {
	before, after := now.For(q.key), candidate.For(q.key)
	for _, f := range throttle.Fields() {
		if f.OfReceiver() && before.Text(f) != after.Text(f) {
			out.Changes = append(out.Changes, FieldChange{Field: f.String(), Now: before.Text(f), Would: after.Text(f)})
		}
	}
	if len(out.Changes) == 0 {
		return out, false
	}
	was, would := q.runModel(before, before), q.runModel(before, after)
	out.Key, out.Asked, out.Fired = q.key, q.asked, would.fired
	out.Would = max(0, q.asked+int(math.Round(would.sum-was.sum)))
	out.Delay = math.Round(would.last - was.last)
	out.Unknown = q.sayUnknown(before, after, would.most)
	out.AtLeast = would.starved && out.Unknown != ""
	q.never = would.never
	return out, true
}

// sayUnknown says why the effect of higher limits can't be predicted.
func (q *fluidQueue) sayUnknown(before, after throttle.Limits, most float64) string {
	var more []string
	for _, f := range throttle.Fields() {
		if f.OfReceiver() && after.More(before, f) {
			more = append(more, f.String())
		}
	}
	if len(more) == 0 {
		return ""
	}
	tried := 0
	for _, m := range q.list {
		tried = max(tried, m.Asked)
	}
	text := fmt.Sprintf("more is allowed than now (%s): the receiver's reaction is unknown",
		strings.Join(more, ", "))
	if most > float64(tried) {
		text += fmt.Sprintf("; at most %d were asked in a minute, and %d would have been", tried, int(most))
	}
	return text
}

// outcome is the result of one run of the model.
type outcome struct {
	sum   float64 // asked within the record
	last  float64 // seconds from its beginning until the last recorded address was asked
	most  float64 // asked in one minute
	never bool    // not even within replayDays; last is these then
	fired map[string]int
	// starved reports whether more could have been asked in a minute, if more waited than was recorded.
	starved bool
}

// runModel runs the recorded demand through the limits a; base are those under which it was
// recorded, as far as anybody knows.
func (q *fluidQueue) runModel(base, a throttle.Limits) outcome {
	out := outcome{fired: map[string]int{}}
	var hour window
	backlog, queued, done := 0.0, 0, false
	demand := float64(q.totalDemand())
	minute := func(i int, m *Minute) {
		backlog += max(0, float64(m.Asked+m.Queued-queued))
		queued = m.Queued
		most, field := q.capacityOf(base, a, m, &hour)
		asked := min(backlog, most)
		if backlog > most+0.5 && field != 0 && i < len(q.list) {
			out.fired[field.String()]++
		}
		out.starved = out.starved || i < len(q.list) && q.hidden[i] && backlog < most-0.5
		backlog -= asked
		hour.add(asked*q.fractionOf(m, m.Accepted, q.accepted), asked*q.fractionOf(m, m.Refused, q.refused))
		if before := out.sum; !done && before+asked >= demand-0.5 && demand > 0 {
			done = true
			out.last = 60 * (float64(i) + min(1, max(0, demand-before)/max(most, 1e-9)))
		}
		out.sum += asked
		out.most = max(out.most, asked)
	}
	for i := range q.list {
		minute(i, &q.list[i])
	}
	sum := out.sum // later entries are outside this time
	calm := Minute{Cause: Causes[0], Queued: queued}
	if n := len(q.list); n > 0 && !unavailable(&q.list[n-1], base) {
		calm.Cause = q.list[n-1].Cause
	}
	for i := len(q.list); !done && demand > 0 && i < len(q.list)+replayDays*24*60; i++ {
		minute(i, &calm)
	}
	if out.never = !done && demand > 0; out.never {
		out.last = float64(replayDays * 24 * 3600)
	}
	out.sum = sum
	return out
}

// totalDemand returns how many addresses there were to ask: those that were asked, and those that still
// waited at the end of the record; 0 for a receiver that was asked nothing.
func (q *fluidQueue) totalDemand() int {
	if q.asked == 0 {
		return 0
	}
	return q.asked + q.list[len(q.list)-1].Queued
}

// fractionOf returns which fraction of a minute's answers were of a kind; for a minute without answers, that of all.
func (q *fluidQueue) fractionOf(m *Minute, n, all int) float64 {
	if answers := m.Accepted + m.Refused + m.Deferred; answers > 0 {
		return float64(n) / float64(answers)
	}
	return float64(all) / float64(max(1, q.asked))
}

// capacityOf returns how many may be asked in a minute, and the field that says so; no field: it
// isn't the rules that hold back.
func (q *fluidQueue) capacityOf(base, a throttle.Limits, m *Minute, hour *window) (float64, throttle.Field) {
	if a.Pause != throttle.PauseNo && a.Pause != "" {
		return 0, throttle.FieldPause
	}
	if unavailable(m, base) {
		return float64(m.Asked), 0
	}
	most, field := math.Inf(1), throttle.Field(0)
	least := func(n float64, f throttle.Field) {
		if n < most {
			most, field = n, f
		}
	}
	perMinute := func(r throttle.Rate) float64 { return r.PerSecond() * 60 }
	refused := q.fractionOf(m, m.Refused, q.refused)
	perSession, of := q.perSessionUnder(base, a, refused)
	if of == 0 || a.ConnectionRate != base.ConnectionRate {
		of = throttle.FieldConnectionRate
	}
	least(perMinute(a.ConnectionRate)*perSession, of)
	// How fast a session could have gone is seen only where sessions held back; elsewhere
	// the fastest is the least that they can do, and speaks against fewer of them only.
	bySessions := m.Cause == "connections" || m.Cause == "free" || a.Connections < base.Connections
	if q.fastest > 0 && bySessions {
		least(float64(a.Connections)*q.fastest, throttle.FieldConnections)
	}
	least(perMinute(a.RcptRate), throttle.FieldRcptRate)
	if refused > 0 {
		field, left := throttle.FieldRefusedPerHour, hour.left(a)
		if a.RefusedShare > 0 {
			field = throttle.FieldRefusedShare
		}
		least(left/refused, field)
	}
	if borne := m.Allowed * 60; m.Allowed > 0 && borne < found*perMinute(base.RcptRate) && borne < most {
		return borne, 0 // that was found out, or this node's share
	}
	return most, field
}

// perSessionUnder returns how many addresses a session asks under the rules a, and the field that makes
// these fewer than under base, if one does.
func (q *fluidQueue) perSessionUnder(base, a throttle.Limits, refused float64) (float64, throttle.Field) {
	most := func(a throttle.Limits) (float64, throttle.Field) {
		refusals := float64(a.RefusedPerSession) / max(refused, 1e-9)
		if refusals < float64(a.RcptsPerConnection) {
			return refusals, throttle.FieldRefusedPerSession
		}
		return float64(a.RcptsPerConnection), throttle.FieldRcptsPerConnection
	}
	before, _ := most(base)
	after, field := most(a)
	if q.perSession > 0 && (after >= before || after > q.perSession) {
		return q.perSession, 0 // they end for reasons of their own
	}
	return after, field
}

// unavailable reports whether nothing could be asked in a minute, whatever the candidate says.
func unavailable(m *Minute, base throttle.Limits) bool {
	switch m.Cause {
	case "penalty", "no healthy source", "no share", "unreached":
		return true
	case "paused":
		return base.Pause == throttle.PauseNo || base.Pause == ""
	}
	return false
}

// window is what was accepted and refused in the last hour, by minute.
type window struct {
	accepted, refused [60]float64
	next              int
}

func (w *window) add(accepted, refused float64) {
	w.accepted[w.next], w.refused[w.next] = accepted, refused
	w.next = (w.next + 1) % len(w.refused)
}

// left is how many refusals are left of an hour; the minute that is about to be replaced is an hour ago.
func (w *window) left(a throttle.Limits) float64 {
	accepted, refused := 0.0, 0.0
	for i := range w.refused {
		if i != w.next {
			accepted += w.accepted[i]
			refused += w.refused[i]
		}
	}
	most := float64(a.RefusedPerHour)
	if a.RefusedShare > 0 {
		most = max(most, accepted*float64(a.RefusedShare)/float64(100-a.RefusedShare))
	}
	return max(0, most-refused)
}

// newReceivers warns if a rule of the candidate would split the receiver: the record doesn't say which part of the mail
// would go to the new receiver.
func newReceivers(key string, now, candidate *throttle.Table) (out []string) {
	known := narrower(now, throttle.NameOf(key))
	for _, name := range narrower(candidate, throttle.NameOf(key)) {
		if !slices.Contains(known, name) {
			out = append(out, fmt.Sprintf(
				"%s would be a receiver of its own beside %s: the record does not tell them apart", name, key))
		}
	}
	return out
}
