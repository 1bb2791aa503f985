package scheduler

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/status"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// recorder keeps the receiver's replies for status pages.
type recorder struct {
	*env
	handle *registry.Handle
	record record
}

const (
	// The newest firingsMax replies that made us slow down, pause or change are kept for firingsFor. A rule at a source
	// counts once within firingsApart. A scheduler keeps at most 10 KB of firings; 1,000 schedulers keep 10 MB.
	firingsMax   = 20
	firingsFor   = time.Hour
	firingsApart = 10 * time.Second

	// listedMax bounds the listed sessions and queues of one receiver.
	listedMax = 100

	// roomEvery is how often a scheduler asks again for room for its history.
	roomEvery = time.Minute
)

// record is what a scheduler keeps for status pages. The zero value is ready. Used only from the mailbox.
type record struct {
	history *status.History // nil: the history is not begun, or there is no room
	tried   time.Time       // when room was last asked for

	seconds status.Tallies // ten of them make the RCPTs a second
	minutes status.Tallies // ten of them make the fractions of refusals and deferrals

	last, telling remark   // the newest remark, and the newest about us or the receiver
	firings       []firing // oldest first
	fresh         int      // how many of the newest firings have no known consequence yet

	cause    wire.Cause // the cause that holds since observed
	observed time.Time
	queued   int // addresses that the metric counts under cause
}

// remark is one reply, and when it came.
type remark struct {
	judgement Judgement
	local     string // local part of the address asked
	at        time.Time
}

// firing is a remark that made us slow down, pause or change.
type firing struct {
	inspect.Reply
	route *route
	path  *egressPath
}

// endsInAnswer reports whether a report's last answer is its failure.
func endsInAnswer(r *Report) bool {
	n := len(r.Answered)
	return n > 0 && r.Answered[n-1].Judgement.Attempt == r.Failure.Attempt
}

// aboutUs reports whether a verdict is about us or the receiver rather than about an address.
func aboutUs(judged *Judgement) bool {
	v := &judged.Verdict
	ofUs := v.Blame == smtp.BlameReceiver || v.Blame == smtp.BlameSource
	return !v.Outcome.Final() && ofUs && v.Reason != smtp.Greylisted
}

// changesSending reports whether a verdict changes how we ask the receiver.
func changesSending(judged *Judgement) bool {
	switch judged.Verdict.Action {
	case verdict.ActSlow, verdict.ActPause, verdict.ActOtherSource, verdict.ActTLS, verdict.ActSplit,
		verdict.ActVoid:
		return true
	}
	return false
}

// view returns a remark in the form shown to people.
func (r *remark) view() inspect.Reply {
	a, v := &r.judgement.Attempt, &r.judgement.Verdict
	if r.at.IsZero() {
		return inspect.Reply{}
	}
	out := inspect.Reply{At: r.at, Stage: a.Stage.String(), Code: a.Code,
		Text: status.Clip(status.Redact(a.Text, r.local)),
		Rule: v.Rule, Reason: v.Reason.String(), Source: a.Source, Host: a.Host}
	if a.Code == 0 {
		out.Text = strings.TrimSuffix(evidence.TroubleSays(a.Trouble.String()), ".")
	}
	if !v.Outcome.Final() {
		out.Action = v.Action.String()
	}
	if a.Enhanced != (smtp.EnhancedCode{}) {
		out.Text = status.Clip(a.Enhanced.String() + " " + out.Text)
	}
	return out
}

// part32 returns n/all, from 0 to 1.
func part32(n, all int32) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}

func (s *session) status(now time.Time) inspect.Session {
	out := inspect.Session{ID: s.id, Source: s.path.name, Host: s.host.host, State: "idle",
		Age: now.Sub(s.opened).Seconds(), Rcpts: s.rcpts, Refused: s.refused, TLS: "not known yet"}
	switch {
	case s.closing || s.doomed:
		out.State = "closing"
	case !s.ready:
		out.State = "opening"
	case len(s.given) > 0:
		out.State = "asking"
	}
	switch {
	case s.encrypted:
		out.TLS = "yes"
	case s.rcpts > 0 || s.tls == smtp.TLSOff || s.tls == smtp.TLSOffHELO:
		out.TLS = "no"
	}
	return out
}

// learnedStatus returns the learned limits in force.
func learnedStatus(l *throttle.Learned, now time.Time) []inspect.Limit {
	out := []inspect.Limit{}
	note := func(f throttle.Field, l throttle.LearnedLimit, lasts time.Duration, from string) {
		if now.Before(l.Until) {
			out = append(out, inspect.Limit{Field: f.String(), Value: strconv.Itoa(l.Most), Since: l.Until.Add(-lasts),
				From: from, Until: l.Until})
		}
	}
	c := &l.Connections
	note(throttle.FieldConnections, throttle.LearnedLimit{Most: c.Most, Until: c.Until}, c.Hold,
		"more at once were refused")
	note(throttle.FieldRcptsPerConnection, l.PerSession, throttle.LearnedFor, "it ended sessions after as many")
	note(throttle.FieldRefusedPerSession, l.Refused, throttle.LearnedFor, "it ended sessions after as many")
	note(throttle.FieldRcptsPerTransaction, l.PerTransaction, throttle.LearnedFor, "more in one were refused")
	return out
}

// openHistory returns the receiver's history; nil: there is no room.
func (re *recorder) openHistory(now time.Time) *status.History {
	st := &re.record
	if st.history == nil && (st.tried.IsZero() || now.Sub(st.tried) >= roomEvery) {
		first := st.tried.IsZero()
		st.tried = now
		st.history = re.handle.Histories().Open(re.key, now, first)
	}
	return st.history
}

func (re *recorder) recordReport(now time.Time, s *session, r *Report) {
	history := re.openHistory(now)
	asked := int32(r.OnWire)
	for i := range r.Answered {
		a := &r.Answered[i]
		if a.Judgement.Attempt.Code == 0 {
			continue // nothing was sent
		}
		asked++
		re.record.seconds.Of(a.Sent.Unix()).Asked++
		re.recordReply(now, s, &a.Judgement, a.Probe.Address.Local, a.At)
	}
	if r.Failure != nil && !r.Stale && !r.Poisoned && !endsInAnswer(r) {
		re.recordReply(now, s, r.Failure, "", now)
	}
	re.record.seconds.Of(now.Unix()).Asked += int32(r.OnWire)
	re.options.Metrics.rcpts.Add(float64(asked))
	if history != nil {
		domain := ""
		if len(r.Answered) > 0 {
			domain = r.Answered[0].Probe.Address.Domain
		}
		history.Asked(now, asked, domain)
	}
}

// recordFailure notes why a session did not open.
func (re *recorder) recordFailure(now time.Time, s *session, failed *Judgement) {
	re.recordReply(now, s, failed, "", now)
}

// recordReply records a reply to RCPT, or a missing reply.
func (re *recorder) recordReply(now time.Time, s *session, judged *Judgement, local string, at time.Time) {
	st, a := &re.record, &judged.Attempt
	s.encrypted = a.TLS
	st.last = remark{*judged, local, at}
	if a.Code == 0 || aboutUs(judged) {
		st.telling = st.last
	}
	if changesSending(judged) {
		re.recordFiring(s, st.last)
	}
	if a.Code != 0 && a.Stage == smtp.StageRcpt {
		t := st.minutes.Of(now.Unix() / 60)
		t.Answered++
		switch a.Code / 100 {
		case 5:
			t.Refused++
		case 4:
			t.Deferred++
		}
		if history := re.openHistory(now); history != nil {
			history.Answered(now, a.Code)
		}
	}
}

// recordFiring keeps a remark that changes how we ask the receiver.
func (re *recorder) recordFiring(s *session, r remark) {
	st := &re.record
	for i := len(st.firings) - 1; i >= 0; i-- {
		f := &st.firings[i]
		if r.at.Sub(f.At) >= firingsApart {
			break
		}
		if f.Rule == r.judgement.Verdict.Rule && f.path == s.path {
			return // the same cause has fired again
		}
	}
	if len(st.firings) == firingsMax {
		st.firings = slices.Delete(st.firings, 0, 1)
	}
	st.firings = append(st.firings, firing{r.view(), s.queue.route, s.path})
	st.fresh = min(st.fresh+1, firingsMax)
}

func (re *recorder) recordDial(now time.Time) {
	if history := re.openHistory(now); history != nil {
		history.Opened(now)
	}
}

// closeRecord takes the scheduler out of the node's metrics and histories.
func (re *recorder) closeRecord(now time.Time) {
	st := &re.record
	re.options.Metrics.removeWaiting(st)
	if st.history != nil {
		st.history.Close(now)
		st.history = nil
	}
}
