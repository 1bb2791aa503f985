package scheduler

import (
	"fmt"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// allowance is what we may ask here: the configured limits, our share of them, and what we learned of the receiver's
// own limits and speed.
type allowance struct {
	*env
	handle    *registry.Handle
	version   uint64            // version of the share in use
	share     registry.Fraction // the share in use; none while we are fenced
	before    throttle.Limits   // limits without the share and without what was learned
	learned   throttle.Learned
	software  shownSoftware
	groups    bool // the newest session's host takes groups of commands
	decides   bool // the receiver's software decides how many refusals are allowed
	bySession bool // that software counts refusals by the session, not by the hour
	tarpits   int  // sessions in which each refusal took longer than the one before
	dials     *throttle.Window
	rcpts     *throttle.Window // counts RCPTs when they are sent: lead after they are given
	replies   throttle.Turnaround
	openings  throttle.Turnaround
	lead      throttle.Turnaround // time from giving a probe to sending its RCPT, with RSET and MAIL
	waits     time.Duration       // average time of an answer with the commands before it
}

func newAllowance(e *env, h *registry.Handle, now time.Time) *allowance {
	stand := h.Share()
	a := stand.Of(e.options.Allow(e.key))
	e.limits = a
	return &allowance{env: e, handle: h, version: stand.Version, share: stand.Fraction,
		dials: throttle.NewWindow(a.ConnectionRate, now), rcpts: throttle.NewWindow(a.RcptRate, now)}
}

// tlsMode returns the TLS mode for the next session of a queue: the mode that an operator set, or the mode that the
// hosts need.
func (al *allowance) tlsMode(now time.Time, l *hostQueue) smtp.TLSMode {
	switch al.limits.TLS {
	case throttle.TLSRequired:
		return smtp.TLSRequired
	case throttle.TLSOff:
		if l.tlsModeNow(now) == smtp.TLSOffHELO {
			return smtp.TLSOffHELO
		}
		return smtp.TLSOff
	}
	return l.tlsModeNow(now)
}

// shownSoftware is the software that the receiver's hosts have shown, until an operator drops it. We count refusals for
// the receiver as a whole. So if one host counts refusals by the hour, or its software isn't known, the hourly budget
// holds for all hosts.
type shownSoftware struct {
	least     throttle.Software // software that counts by the session and tolerates least; zero: none
	host      string            // the host that first showed the software in least
	keepsHour bool              // one host's software isn't known to count by the session
	// keeps is such software: the one that tolerates least in an hour, or the first with a name.
	keeps    throttle.Software
	keepHost string // the host that showed the software in keeps
}

func (ss *shownSoftware) note(shown throttle.Shown) {
	s := throttle.SoftwareOf(shown)
	switch {
	case !s.CountsBySession():
		fewer := s.PerHour > 0 && (ss.keeps.PerHour == 0 || s.PerHour < ss.keeps.PerHour)
		if !ss.keepsHour || fewer || ss.keeps.Name == "" && s.Name != "" {
			ss.keepsHour, ss.keeps, ss.keepHost = true, s, shown.Host
		}
	case !ss.least.CountsBySession(), s.PerSession < ss.least.PerSession:
		ss.least, ss.host = s, shown.Host
	}
}

// noteShown records what a host showed in a session. s is nil if the session is over.
func (al *allowance) noteShown(s *session, shown throttle.Shown) {
	al.software.note(shown)
	if al.groups = shown.Groups; s != nil {
		s.groups, s.perMail = shown.Groups, throttle.SoftwareOf(shown).PerMail
	}
}

// countsBySession reports whether all software that hosts showed counts by the session.
func (ss *shownSoftware) countsBySession() bool {
	return !ss.keepsHour && ss.least.CountsBySession()
}

// deciding returns the software that decides how many RCPTs may be refused; zero: none does.
func (ss *shownSoftware) deciding() throttle.Software {
	switch {
	case ss.countsBySession():
		return ss.least
	case ss.keeps.PerHour > 0:
		return ss.keeps
	}
	return throttle.Software{}
}

// words says what is known of the software; "": nothing.
func (ss *shownSoftware) words() string {
	switch {
	case ss.countsBySession():
		return fmt.Sprintf("that it runs %s, by %s", ss.least.Name, ss.least.By)
	case ss.keeps.Name != "":
		return fmt.Sprintf("that %s runs %s, by %s", ss.keepHost, ss.keeps.Name, ss.keeps.By)
	case ss.keepsHour:
		return fmt.Sprintf("that %s shows no software that is known", ss.keepHost)
	}
	return ""
}

// allowedWhole returns the limits of the receiver as a whole. The limits are those that are configured. If only the
// default limits the refusals, the receiver's software decides how many are allowed.
func (al *allowance) allowedWhole() throttle.Limits {
	a := al.options.Allow(al.key)
	al.decides, al.bySession = false, false
	if s := al.software.deciding(); s.Name != "" {
		said := al.whoSaid(al.key, throttle.FieldRefusedPerHour)
		al.decides = len(said) == 1 && said[0].Layer == throttle.LayerDefault
		al.bySession = al.decides && s.CountsBySession()
	}
	if al.decides {
		a = al.software.deciding().Apply(a)
	}
	return throttle.StrangerLimits(a)
}

// softwareStatus describes the receiver's software, and whether it decides how many addresses may be refused; nil:
// nothing is known.
func (al *allowance) softwareStatus() *inspect.Software {
	ss := &al.software
	s, host := ss.least, ss.host
	if ss.keepsHour {
		s, host = ss.keeps, ss.keepHost
		if s.Name == "" && !ss.least.CountsBySession() {
			return nil // the receiver counts as a stranger
		}
	} else if !s.CountsBySession() {
		return nil // no session was open yet
	}
	return &inspect.Software{Name: s.Name, By: s.By, Where: s.Where, Host: host, PerSession: s.PerSession,
		PerHour: s.PerHour, Decides: al.decides}
}

// errorsLeft returns how many more RCPTs a session may send if all get bad answers. If the receiver counts by the
// session, deferrals count too. If the receiver tolerates refusals, all RCPTs of the session may fail; otherwise only
// as many RCPTs may fail as a stranger tolerates.
func (al *allowance) errorsLeft(now time.Time, s *session, a throttle.Limits) int {
	switch {
	case al.bySession, al.learned.Refused.Holds(now):
		return a.RefusedPerSession - s.errors - s.greyed
	case throttle.ToleratesRefusals(a):
		return a.RcptsPerConnection
	}
	return throttle.StrangerRefused - s.errors
}

// slowness watches how long one kind of answer takes in a session.
type slowness struct {
	fastest time.Duration // 0: no answer yet
	row     int           // slow answers in a row
	from    int           // how many answers came before that row of slow ones
}

// noteTime records how long an answer took. behind is how many answers came before. noteTime reports whether the answer
// took much longer than the fastest.
func (w *slowness) noteTime(took time.Duration, behind int) bool {
	if w.fastest == 0 || took < w.fastest {
		w.fastest = took
	}
	if took < w.fastest+slowBy {
		w.row = 0
		return false
	}
	if w.row++; w.row == 1 {
		w.from = behind
	}
	return true
}

// noteSlowRefusal learns from a refusal that took much longer than the fastest one of its session. From this number of
// refusals on the receiver delays answers, and it may end the session soon. Courier doubles each delay (courier(8):
// TARPIT). So noteSlowRefusal ends the session. before is the number of earlier refusals in the same report.
func (al *allowance) noteSlowRefusal(now time.Time, s *session, a Answered, before int) {
	n := s.refused + before
	if !a.Judgement.isPermanent() || a.Judgement.Verdict.Outcome == smtp.Undecided ||
		!s.slowRefusals.noteTime(a.waited, n) {
		return
	}
	s.doomed = true
	if s.slowRefusals.fastest >= slowBy { // every refusal is delayed
		al.tarpits++
	}
	if n >= slowRefusals || al.tarpits >= tarpitsAgree {
		al.learned.Refused.Tighten(n, now)
		al.dirty = true
	}
}

// noteSlowLead learns from the time that RSET and MAIL took. If that time is much longer than before, twice in a row
// and after errors, the receiver delays all its replies. Postfix does so from the tenth error on (postconf(5):
// smtpd_soft_error_limit). The session ends, and later sessions end before that point. before is the number of earlier
// errors in the same report.
func (al *allowance) noteSlowLead(now time.Time, s *session, led time.Duration, before int) {
	if led > 0 && s.slowLeads.noteTime(led, s.errors+s.greyed+before) && s.slowLeads.row > 1 &&
		s.slowLeads.from >= slowRefusals {
		s.doomed, al.dirty = true, true
		al.learned.Refused.Tighten(s.slowLeads.from, now)
	}
}

// noteSlowAnswer learns from an answer that took much longer than the fastest of its session. Refusals don't count,
// because many receivers delay each of them. A receiver may delay answers from some count on (qmail's tarpit; Exim:
// smtp_ratelimit_rcpt). Two slow answers in a row show a delay, or one slow answer at the same count as in the session
// before. After this the session ends. Several sessions that agree show the length of sessions.
func (al *allowance) noteSlowAnswer(now time.Time, s *session, a Answered) {
	if a.Judgement.isPermanent() {
		return
	}
	w, behind := &s.slowAnswers, s.slowAnswers.row > 0
	switch slow := w.noteTime(a.waited, s.answers); {
	case !slow && behind:
		al.learned.NotSlow(now)
	case slow && !s.doomed && al.learned.IsSlow(w.row, w.from, now):
		s.doomed, al.dirty = true, true
		al.learned.SessionSlow(w.from, now)
	}
}

// noteWait averages how long an answer took, with the commands before it. The average rises faster than it falls.
func (al *allowance) noteWait(took time.Duration) {
	if took > al.waits {
		al.waits += (took - al.waits) / waitsUp
	} else {
		al.waits -= (al.waits - took) / waitsDown
	}
}

// rateBounds returns the bounds of every rate: the limit for the whole receiver, and our share.
func (al *allowance) rateBounds(whole throttle.Limits) throttle.RateBounds {
	b := throttle.RateBounds{Ceiling: whole.RcptRate, Stated: al.options.isStated(al.key)}
	if !al.share.IsNone() {
		b.Share = float64(al.share.K) / float64(al.share.N)
	}
	return b
}

func (al *allowance) undoRcpts(s *session, n int) {
	al.rcpts.Undo(n)
	s.path.rcpts.Undo(n)
}

// finishRcpts notes that the receiver had seen n RCPTs by the time at.
func (al *allowance) finishRcpts(s *session, at time.Time, n int) {
	al.rcpts.Done(at, n)
	s.path.rcpts.Done(at, n)
}

func (al *allowance) turnsPerAddress() float64 {
	a := al.limits
	if a.Pipelining && al.groups {
		return 1 / float64(min(a.PipeliningDepth, workMax))
	}
	n := float64(min(a.RcptsPerTransaction, workMax))
	return (turnsPerProbe - 1 + n) / n
}

// sizes returns how many RCPTs go into a transaction and into a group, and how far both may grow in a session.
func (al *allowance) sizes(now time.Time) (transaction, group throttle.Growing) {
	allowed, l := &al.before, &al.learned
	return throttle.Growing{Together: l.Transaction, Least: al.limits.RcptsPerTransaction,
			Most: l.PerTransaction.Apply(allowed.RcptsPerTransaction, now)},
		throttle.Growing{Together: l.Group, Least: al.limits.PipeliningDepth, Most: allowed.PipeliningDepth}
}

// ofWhole scales n from our share to the whole receiver. Learned limits are for the whole receiver, and shared out when
// used.
func (al *allowance) ofWhole(n int) int {
	if al.share.IsNone() {
		return n
	}
	k := int64(al.share.K)
	return int((int64(n)*int64(al.share.N) + k - 1) / k) // rounded up, so that our share of it is n again
}

// nothingAllowed reports whether our share of the limits is too small to ask anything.
func nothingAllowed(a throttle.Limits) bool {
	return a.Connections <= 0 || a.ConnectionRate.Events <= 0 || a.RcptRate.Events <= 0
}

// makeView gathers the values from which one plan decides.
func (al *allowance) makeView(now time.Time) View {
	v := View{now: now, limits: al.limits, turn: al.replies.Lowest, expect: al.replies.Lowest,
		opening: al.openings.Lowest, turns: al.turnsPerAddress(), busy: al.options.Busy != nil && al.options.Busy()}
	if size, _ := al.sizes(now); size.Most <= 1 { // otherwise a RCPT may go into an open transaction at once
		v.lead = al.lead.Least()
	}
	if al.replies.Samples == 0 {
		v.expect = v.opening / 3
	}
	if !v.busy && al.waits > v.expect+workFor {
		v.held = al.waits
	}
	return v
}
