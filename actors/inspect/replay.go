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
	minutes := map[string][]Minute{}
	for _, record := range records {
		for _, r := range record.Receivers {
			minutes[r.Key] = append(minutes[r.Key], r.Minutes...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(minutes)) {
		q := newFluidQueue(minutes[key])
		if n := len(q.list); n > 0 {
			from, to = min(from, q.list[0].At.Unix()), max(to, q.list[n-1].At.Unix()) // the newest may have just begun
		}
		out.Asked += q.sum.Asked
		if one, never := q.compare(now.For(key), candidate.For(key)); one.Changes == nil {
			out.Same++
		} else {
			one.Key = key
			out.Receivers = append(out.Receivers, one)
			if never {
				out.Warnings = append(out.Warnings, fmt.Sprintf(
					"%s: the last of the recorded addresses would not have been asked within %d days", key, replayDays))
			}
		}
		// The record doesn't say which part of the mail would go to a receiver that a rule of the candidate splits off.
		known := narrower(now, throttle.NameOf(key))
		for _, name := range narrower(candidate, throttle.NameOf(key)) {
			if !slices.Contains(known, name) {
				out.Warnings = append(out.Warnings, fmt.Sprintf(
					"%s would be a receiver of its own beside %s: the record does not tell them apart", name, key))
			}
		}
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
	list    []Minute // in order, gaps filled
	sum     Minute   // of all
	tried   int      // asked in a minute, at most
	fastest float64  // RCPTs that one session asked in a minute, in the best one
	hidden  []bool   // of list: more waited than was recorded
}

// newFluidQueue puts the minutes of all nodes in a row.
func newFluidQueue(minutes []Minute) *fluidQueue {
	q := &fluidQueue{}
	slices.SortStableFunc(minutes, func(a, b Minute) int { return a.At.Compare(b.At) })
	for _, m := range minutes {
		m.At = m.At.Truncate(time.Minute)
		n := len(q.list)
		for ; n > 0 && q.list[n-1].At.Add(time.Minute).Before(m.At); n++ { // nothing waited and nothing was asked
			q.list = append(q.list, Minute{At: q.list[n-1].At.Add(time.Minute), Cause: Causes[0]})
		}
		if n > 0 && q.list[n-1].At.Equal(m.At) {
			q.list[n-1].addCounts(m)
		} else {
			q.list = append(q.list, m)
		}
	}
	q.hidden = make([]bool, len(q.list))
	var next *Minute // in which something was asked
	for i := len(q.list) - 1; i >= 0; i-- {
		m := &q.list[i]
		q.sum.addCounts(*m)
		q.tried = max(q.tried, m.Asked)
		if m.Sessions > 0 {
			q.fastest = max(q.fastest, float64(m.Asked)/float64(m.Sessions))
		}
		// More waited than was recorded where something held the receiver back, and more was asked in the next minute,
		// still held back, than had waited.
		q.hidden[i] = next != nil && m.heldBack() && next.heldBack() && max(m.Queued, next.Queued) < next.Asked
		if m.Asked > 0 {
			next = m
		}
	}
	return q
}

// heldBack reports whether something kept the receiver from being asked more.
func (m *Minute) heldBack() bool { return m.Cause != Causes[0] && m.Queued > 0 }

// addCounts adds the counts of the same minute at another node. The busier one's cause stays.
func (m *Minute) addCounts(other Minute) {
	if other.Asked > m.Asked {
		m.Cause = other.Cause
	}
	m.Asked += other.Asked
	m.Accepted += other.Accepted
	m.Refused += other.Refused
	m.Deferred += other.Deferred
	m.Opened += other.Opened
	m.Sessions += other.Sessions
	m.Queued += other.Queued
	m.Allowed += other.Allowed
}

// compare runs the model with two limits; no Changes: they are the same for the receiver. never: under the second ones
// the last address is not asked within replayDays.
func (q *fluidQueue) compare(before, after throttle.Limits) (out ReceiverReplay, never bool) {
	var more []string
	for _, f := range throttle.Fields() {
		if f.OfReceiver() && before.Text(f) != after.Text(f) {
			out.Changes = append(out.Changes, FieldChange{Field: f.String(), Now: before.Text(f), Would: after.Text(f)})
		}
		if f.OfReceiver() && after.More(before, f) {
			more = append(more, f.String())
		}
	}
	if out.Changes == nil {
		return out, false
	}
	was, would := q.runModel(before, before), q.runModel(before, after)
	out.Asked, out.Fired = q.sum.Asked, would.fired
	out.Would = max(0, out.Asked+int(math.Round(would.sum-was.sum)))
	out.Delay = math.Round(would.last - was.last)
	if more != nil {
		out.Unknown = fmt.Sprintf("more is allowed than now (%s): the receiver's reaction is unknown",
			strings.Join(more, ", "))
		if would.most > float64(q.tried) {
			out.Unknown += fmt.Sprintf("; at most %d were asked in a minute, and %d would have been", q.tried, int(would.most))
		}
	}
	out.AtLeast = would.starved && more != nil
	return out, would.never
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
	n, demand := len(q.list), 0.0
	var calm Minute // each one after the record
	if q.sum.Asked > 0 {
		last := q.list[n-1]
		demand = float64(q.sum.Asked + last.Queued)
		calm = Minute{Cause: last.Cause, Queued: last.Queued}
		if last.wasUnavailable(base) {
			calm.Cause = Causes[0]
		}
	}
	backlog, queued, sum := 0.0, 0, 0.0
	var accepted, refused []float64 // by minute
	for i := 0; i < n || sum < demand-0.5 && i < n+replayDays*24*60; i++ {
		m, within := &calm, i < n
		if within {
			m = &q.list[i]
		}
		backlog += max(0, float64(m.Asked+m.Queued-queued))
		queued = m.Queued
		yes, no := q.fractions(m)
		hour := max(0, i-59)
		most, field := q.capacityOf(base, a, m, no, refusalsLeft(a, total(accepted[hour:]), total(refused[hour:])))
		if within && field != 0 && backlog > most+0.5 {
			out.fired[field.String()]++
		}
		out.starved = out.starved || within && q.hidden[i] && backlog < most-0.5
		asked := min(backlog, most)
		backlog -= asked
		accepted, refused = append(accepted, asked*yes), append(refused, asked*no)
		if sum < demand-0.5 && sum+asked >= demand-0.5 {
			out.last = 60 * (float64(i) + min(1, max(0, demand-sum)/max(most, 1e-9)))
		}
		sum += asked
		out.most = max(out.most, asked)
		if within {
			out.sum = sum
		}
	}
	if out.never = sum < demand-0.5; out.never {
		out.last = float64(replayDays * 24 * 3600)
	}
	return out
}

func total(of []float64) (sum float64) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// fractions returns which fractions of a minute's replies accept and refuse; for a minute without replies, of all.
func (q *fluidQueue) fractions(m *Minute) (accepted, refused float64) {
	replies := m.Accepted + m.Refused + m.Deferred
	if replies == 0 {
		m, replies = &q.sum, max(1, q.sum.Asked)
	}
	return float64(m.Accepted) / float64(replies), float64(m.Refused) / float64(replies)
}

// refusalsLeft is how many refusals are left of an hour in which so many were accepted and refused.
func refusalsLeft(a throttle.Limits, accepted, refused float64) float64 {
	most := float64(a.RefusedPerHour)
	if a.RefusedShare > 0 {
		most = max(most, accepted*float64(a.RefusedShare)/float64(100-a.RefusedShare))
	}
	return max(0, most-refused)
}

// capacityOf returns how many may be asked in a minute of which a fraction is refused, and the field that says so; no
// field: it isn't the rules that hold back. left is what the hour has left of refusals.
func (q *fluidQueue) capacityOf(base, a throttle.Limits, m *Minute, refused, left float64) (float64, throttle.Field) {
	if a.Pause != throttle.PauseNo && a.Pause != "" {
		return 0, throttle.FieldPause
	}
	if m.wasUnavailable(base) {
		return float64(m.Asked), 0
	}
	most, field := math.Inf(1), throttle.Field(0)
	least := func(n float64, f throttle.Field) {
		if n < most {
			most, field = n, f
		}
	}
	perMinute := func(r throttle.Rate) float64 { return r.PerSecond() * 60 }
	before, _ := sessionMost(base, refused)
	perSession, of := sessionMost(a, refused)
	// So many were asked in a session, which ended for reasons of its own.
	seen := float64(q.sum.Asked) / float64(max(1, q.sum.Opened))
	if seen > 0 && (perSession >= before || perSession > seen) {
		perSession, of = seen, throttle.FieldConnectionRate
	}
	if a.ConnectionRate != base.ConnectionRate {
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
		field := throttle.FieldRefusedPerHour
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

// sessionMost returns how many addresses a session may ask of which a fraction is refused, and the field that says so.
func sessionMost(a throttle.Limits, refused float64) (float64, throttle.Field) {
	if most := float64(a.RefusedPerSession) / max(refused, 1e-9); most < float64(a.RcptsPerConnection) {
		return most, throttle.FieldRefusedPerSession
	}
	return float64(a.RcptsPerConnection), throttle.FieldRcptsPerConnection
}

// wasUnavailable reports whether nothing could be asked in a minute, whatever the candidate says.
func (m *Minute) wasUnavailable(base throttle.Limits) bool {
	if m.Cause == "paused" {
		return base.Pause == throttle.PauseNo || base.Pause == ""
	}
	return slices.Contains([]string{"penalty", "no healthy source", "no share", "unreached"}, m.Cause)
}
