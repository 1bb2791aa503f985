package inspect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// ReplayOptions are the rules that a replay compares. Those of replies may be nil, both,
// which means that they stay as they are.
type ReplayOptions struct {
	Now, Candidate           *throttle.Table
	NowRules, CandidateRules *verdict.Rules
}

const (
	// replayDays bounds how long a backlog is followed beyond the end of the record.
	replayDays = 7

	// replayedMax and verdictsMax bound what is listed, the most asked and the most
	// heard first.
	replayedMax = 500
	verdictsMax = 500

	// found is below which part of what the rules permit a recorded rate has to be, to be
	// what the receiver was found to bear rather than what the rules said. Guess.
	found = 0.98
)

// Replay says what candidate rules would have made of the hours that nodes have kept. It
// changes nothing.
//
// Each receiver is a tank: what was offered comes in minute by minute, and what the rules
// permit goes out. The model runs once with the present rules and once with the candidate;
// what is told is the difference. What the receiver itself permitted, by penalties or by a
// rate that was found out, holds in both. Where the candidate permits more than was ever
// tried nobody knows what the receiver would have made of that, and Unknown says so.
func Replay(records []Record, o ReplayOptions) Replayed {
	out := Replayed{Receivers: []ReceiverReplay{}, Verdicts: []VerdictChange{}}
	from, to := int64(math.MaxInt64), int64(0)
	keys, tanks := []string{}, map[string]*tank{}
	for _, record := range records {
		for i := range record.Receivers {
			r := &record.Receivers[i]
			t := tanks[r.Key]
			if t == nil {
				t = &tank{key: r.Key, minutes: map[int64]*Minute{}}
				tanks[r.Key] = t
				keys = append(keys, r.Key)
			}
			t.add(r)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		t := tanks[key]
		t.order()
		if len(t.list) > 0 {
			from = min(from, t.list[0].At.Unix())
			to = max(to, t.list[len(t.list)-1].At.Unix()) // the newest minute may have just begun
		}
		out.Asked += t.asked
		if one, differs := t.replay(o); differs {
			out.Receivers = append(out.Receivers, one)
		} else {
			out.Same++
		}
		if t.never {
			out.Warnings = append(out.Warnings, fmt.Sprintf(
				"%s: the last of the recorded addresses would not have been asked within %d days", key, replayDays))
		}
		out.Verdicts = append(out.Verdicts, t.judge(o)...)
		out.Warnings = append(out.Warnings, t.strangers(o)...)
	}
	if to > from {
		out.Hours = float64(to-from) / 3600
	}
	bound(&out)
	return out
}

// bound puts the most asked and the most heard first, and leaves out what is too much.
func bound(out *Replayed) {
	slices.SortStableFunc(out.Receivers, func(a, b ReceiverReplay) int {
		return cmp.Compare(b.Asked, a.Asked)
	})
	slices.SortStableFunc(out.Verdicts, func(a, b VerdictChange) int {
		return cmp.Compare(b.Times, a.Times)
	})
	if n := len(out.Receivers); n > replayedMax {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%d more receivers would differ", n-replayedMax))
		out.Receivers = out.Receivers[:replayedMax]
	}
	if n := len(out.Verdicts); n > verdictsMax {
		out.Warnings = append(out.Warnings,
			fmt.Sprintf("%d more replies would be judged otherwise", n-verdictsMax))
		out.Verdicts = out.Verdicts[:verdictsMax]
	}
}

// tank is one receiver, all nodes together.
type tank struct {
	key     string
	domain  string
	minutes map[int64]*Minute // by their beginning
	list    []Minute          // in order, gaps filled
	replies []Heard

	asked, accepted, refused int
	fastest                  float64 // RCPTs that one session asked in a minute, in the best one
	perSession               float64 // RCPTs that a session asked
	hidden                   []bool  // of list: more waited than was recorded
	never                    bool    // under the candidate the last one is not asked within replayDays
}

// add takes the record of one node.
func (t *tank) add(r *ReceiverRecord) {
	if t.domain == "" {
		t.domain = r.Domain
	}
	t.replies = append(t.replies, r.Replies...)
	for _, m := range r.Minutes {
		at := m.At.Unix() / 60 * 60
		all := t.minutes[at]
		if all == nil {
			m.At = time.Unix(at, 0).UTC()
			t.minutes[at] = &m
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

// order puts the minutes in a row, and what can be seen in them together.
func (t *tank) order() {
	if len(t.minutes) == 0 {
		return
	}
	first, last := int64(math.MaxInt64), int64(0)
	for at := range t.minutes {
		first, last = min(first, at), max(last, at)
	}
	opened := 0
	for at := first; at <= last; at += 60 {
		m := t.minutes[at]
		if m == nil { // nothing waited and nothing was asked
			m = &Minute{At: time.Unix(at, 0).UTC(), Cause: Causes[0]}
		}
		t.list = append(t.list, *m)
		t.asked += m.Asked
		t.accepted += m.Accepted
		t.refused += m.Refused
		opened += m.Opened
		if m.Sessions > 0 {
			t.fastest = max(t.fastest, float64(m.Asked)/float64(m.Sessions))
		}
	}
	t.perSession = float64(t.asked) / float64(max(1, opened))
	t.unhide()
}

// unhide finds the minutes in which more waited than was recorded: something held the
// receiver back, and more was asked in the next one, still held back, than had waited.
func (t *tank) unhide() {
	t.hidden = make([]bool, len(t.list))
	held := func(m *Minute) bool { return m.Cause != Causes[0] && m.Queued > 0 }
	var next *Minute
	for i := len(t.list) - 1; i >= 0; i-- {
		m := &t.list[i]
		t.hidden[i] = next != nil && held(m) && held(next) && max(m.Queued, next.Queued) < next.Asked
		if m.Asked > 0 {
			next = m
		}
	}
}

// replay compares the rules for the receiver; false: they are the same.
func (t *tank) replay(o ReplayOptions) (out ReceiverReplay, differs bool) {
	if o.Now == nil || o.Candidate == nil {
		return out, false
	}
	before, after := o.Now.For(t.key), o.Candidate.For(t.key)
	for _, f := range throttle.Fields() {
		if f.OfReceiver() && before.Text(f) != after.Text(f) {
			out.Changes = append(out.Changes, FieldChange{Field: f.String(), Now: before.Text(f),
				Would: after.Text(f)})
		}
	}
	if len(out.Changes) == 0 {
		return out, false
	}
	was, would := t.run(before, before), t.run(before, after)
	out.Key, out.Asked, out.Fired = t.key, t.asked, would.fired
	out.Would = max(0, t.asked+int(math.Round(would.sum-was.sum)))
	out.Delay = math.Round(would.last - was.last)
	out.Unknown = t.unknown(before, after, would.most)
	out.AtLeast = would.starved && out.Unknown != ""
	t.never = would.never
	return out, true
}

// unknown says why nobody can tell what would have come of more.
func (t *tank) unknown(before, after throttle.Limits, most float64) string {
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
	for _, m := range t.list {
		tried = max(tried, m.Asked)
	}
	text := fmt.Sprintf("more is allowed than now (%s): nobody knows what the receiver would have made of it",
		strings.Join(more, ", "))
	if most > float64(tried) {
		text += fmt.Sprintf("; at most %d were asked in a minute, and %d would have been", tried, int(most))
	}
	return text
}

// outcome is what a run of the model comes to.
type outcome struct {
	sum   float64 // asked within the record
	last  float64 // seconds from its beginning until the last recorded address was asked
	most  float64 // asked in one minute
	never bool    // not even within replayDays; last is these then
	fired map[string]int
	// starved says that more could have been asked in a minute that had more waiting than
	// was recorded.
	starved bool
}

// run lets the recorded demand through the rules a; base are those under which it was
// recorded, as far as anybody knows.
func (t *tank) run(base, a throttle.Limits) outcome {
	out := outcome{fired: map[string]int{}}
	var hour window
	backlog, queued, done := 0.0, 0, false
	demand := float64(t.demand())
	minute := func(i int, m *Minute) {
		backlog += max(0, float64(m.Asked+m.Queued-queued))
		queued = m.Queued
		most, field := t.capacity(base, a, m, &hour)
		asked := min(backlog, most)
		if backlog > most+0.5 && field != 0 && i < len(t.list) {
			out.fired[field.String()]++
		}
		out.starved = out.starved || i < len(t.list) && t.hidden[i] && backlog < most-0.5
		backlog -= asked
		hour.add(asked*t.part(m, m.Accepted, t.accepted), asked*t.part(m, m.Refused, t.refused))
		if before := out.sum; !done && before+asked >= demand-0.5 && demand > 0 {
			done = true
			out.last = 60 * (float64(i) + min(1, max(0, demand-before)/max(most, 1e-9)))
		}
		out.sum += asked
		out.most = max(out.most, asked)
	}
	for i := range t.list {
		minute(i, &t.list[i])
	}
	sum := out.sum // what comes later is not of this time
	calm := Minute{Cause: Causes[0], Queued: queued}
	if n := len(t.list); n > 0 && !barred(&t.list[n-1], base) {
		calm.Cause = t.list[n-1].Cause
	}
	for i := len(t.list); !done && demand > 0 && i < len(t.list)+replayDays*24*60; i++ {
		minute(i, &calm)
	}
	if out.never = !done && demand > 0; out.never {
		out.last = float64(replayDays * 24 * 3600)
	}
	out.sum = sum
	return out
}

// demand is how many addresses there were to ask: those that were, and those that still
// waited at the end of the record. Of a receiver that was asked nothing it is not reckoned.
func (t *tank) demand() int {
	if t.asked == 0 {
		return 0
	}
	return t.asked + t.list[len(t.list)-1].Queued
}

// part is which part of a minute's answers were of a kind; of a minute without any, that
// of all.
func (t *tank) part(m *Minute, n, all int) float64 {
	if answers := m.Accepted + m.Refused + m.Deferred; answers > 0 {
		return float64(n) / float64(answers)
	}
	return float64(all) / float64(max(1, t.asked))
}

// capacity is how many may be asked in a minute, and the field that says so; no field: it
// is not the rules that hold back.
func (t *tank) capacity(base, a throttle.Limits, m *Minute, hour *window) (float64, throttle.Field) {
	if a.Pause != throttle.PauseNo && a.Pause != "" {
		return 0, throttle.FieldPause
	}
	if barred(m, base) {
		return float64(m.Asked), 0
	}
	most, field := math.Inf(1), throttle.Field(0)
	least := func(n float64, f throttle.Field) {
		if n < most {
			most, field = n, f
		}
	}
	perMinute := func(r throttle.Rate) float64 { return r.PerSecond() * 60 }
	refused := t.part(m, m.Refused, t.refused)
	perSession, of := t.session(base, a, refused)
	if of == 0 || a.ConnectionRate != base.ConnectionRate {
		of = throttle.FieldConnectionRate
	}
	least(perMinute(a.ConnectionRate)*perSession, of)
	// How fast a session could have gone is seen only where sessions held back; elsewhere
	// the fastest is the least that they can do, and speaks against fewer of them only.
	bySessions := m.Cause == "connections" || m.Cause == "free" || a.Connections < base.Connections
	if t.fastest > 0 && bySessions {
		least(float64(a.Connections)*t.fastest, throttle.FieldConnections)
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

// session is how many addresses a session asks under the rules a, and the field that makes
// these fewer than under base, if one does.
func (t *tank) session(base, a throttle.Limits, refused float64) (float64, throttle.Field) {
	most := func(a throttle.Limits) (float64, throttle.Field) {
		refusals := float64(a.RefusedPerSession) / max(refused, 1e-9)
		if refusals < float64(a.RcptsPerConnection) {
			return refusals, throttle.FieldRefusedPerSession
		}
		return float64(a.RcptsPerConnection), throttle.FieldRcptsPerConnection
	}
	before, _ := most(base)
	after, field := most(a)
	if t.perSession > 0 && (after >= before || after > t.perSession) {
		return t.perSession, 0 // they end for reasons of their own
	}
	return after, field
}

// barred reports whether nothing could be asked in a minute, whatever the candidate says.
func barred(m *Minute, base throttle.Limits) bool {
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

// left is how many refusals are left of an hour; the minute that is about to be replaced
// is an hour ago.
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

// strangers warns of rules of the candidate that would take a part of the receiver's mail
// out of it: the record does not say how much that is.
func (t *tank) strangers(o ReplayOptions) (out []string) {
	if o.Now == nil || o.Candidate == nil {
		return nil
	}
	for _, name := range narrower(o.Candidate, throttle.NameOf(t.key)) {
		if !slices.Contains(narrower(o.Now, throttle.NameOf(t.key)), name) {
			out = append(out, fmt.Sprintf(
				"%s would be a receiver of its own beside %s: the record does not tell them apart", name, t.key))
		}
	}
	return out
}
