package scheduler

import (
	"cmp"
	"container/heap"
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/actors/facts"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// How a stranger says that it doesn't want something now.
const (
	byDeferral = iota // 4xx
	byClosing         // 421, and it closes
	byReset           // it closes without a word
	ways
)

// limitOf is a limit that a stranger keeps and tells nobody.
type limitOf struct {
	rcpts, opens throttle.Rate // none: zero
	sessions     int           // none: 0
	inSession    int           // RCPTs; any number: 0
	ofDomain     throttle.Rate // RCPTs for each mail domain; none: zero
	fixed        bool          // counted by the clock's seconds or minutes, else over any window
	even         bool          // or evenly: a bucket that holds a twentieth, one at least
	decays       bool          // or as a mean that decays with time, as Exim's ratelimit
	countsBad    bool          // what it deferred counts too
	way          int
	penalty      time.Duration // how long nothing is served after one too many
	greets       bool          // it accepts sessions meanwhile
	refusal      int           // the code of a session that it doesn't accept; 0: 421
}

// oddOf are mailboxes that always answer something odd, or that are greylisted each by itself.
type oddOf struct {
	share float64 // from 0 to 1
	of    int     // of the customer of this number only, from 1; 0: of all
	at    string  // of addresses with this end only
	reply smtp.Reply
	cut   bool          // it closes after that, or resets when there is no reply
	grey  time.Duration // how long it answers so before it answers like others; 0: for ever

	forever bool // stays, as the trial finds
}

// stays reports whether such a mailbox never gets an outcome by what it answers.
func (o *oddOf) stays() bool {
	if o.grey > 0 || o.reply.Code == 0 || o.cut {
		return o.grey == 0
	}
	judgement := judged(smtp.Address{Local: "a", Domain: "d.example"},
		&smtp.Failure{Stage: smtp.StageRcpt, Reply: o.reply})
	return !judgement.Verdict.Outcome.Final()
}

// unknownReceiver is a simulated receiver whose truth is known.
type unknownReceiver struct {
	limit   limitOf
	odd     []oddOf
	says    smtp.Reply    // to a RCPT that it doesn't want now; code 0: 451
	words   string        // of everything that speaks of us
	grey    time.Duration // how long each address is deferred; 0: none is
	greys   smtp.Reply    // how; code 0: as at a limit
	apart   bool          // by each host, as if there were no other
	trusts  int           // it ends greylisting when this many have come back; 0: never
	visits  time.Duration // after the first RCPT: sessions that begin sooner defer every address; 0: none
	slow    slowAnswers
	outages []stretch // it refuses connections, and resets those that are open
	silent  []stretch // it says nothing, and what it says comes at the end
	breaks  bool      // it ends each session at its first RCPT
	flaky   float64   // share of RCPTs that it puts off at random, at any pace
	mute    bool      // it never greets
	dumb    dumb
	invalid float64   // share of mailboxes that don't exist
	known   float64   // share of mailboxes that are missing and refused before greylisting
	listed  []float64 // the same by tenant; nil: of all alike
	blocked []stretch // every RCPT is refused as "client host blocked"
	stalls  []stretch // every RCPT is deferred, or all above the rate few
	few     throttle.Rate
	ill     illHost
	change  changeOf

	meter
	greeted time.Time // the session that asks
	turns   *rand.Rand
	salt    string // which addresses are odd or don't exist
	seen    map[string]time.Time

	cameBack int // of those greylisted
	fews     []time.Time
}

// dumb is the share of sessions that stay silent, from the greeting on or after some answers; zero: none.
type dumb struct {
	share   float64
	answers int
}

// slowAnswers delay the answers after a number of RCPTs in a session, or all refusals; zero: none.
type slowAnswers struct {
	after    int
	by       time.Duration
	refusals bool
}

// late returns the delay of the answer to the nth RCPT of a session.
func (s *slowAnswers) late(nth int, reply smtp.Reply) time.Duration {
	if nth <= s.after || s.refusals && !reply.Permanent() {
		return 0
	}
	return s.by
}

// changeOf is a limit that applies from a time on; zero: there is no change.
type changeOf struct {
	at time.Time
	to limitOf
}

// meter has the counts by which a receiver applies its limits.
type meter struct {
	rcpts, opens []time.Time
	mean         float64 // of RCPTs in a period, where it decays
	meant        time.Time
	ofDomain     map[string]*[]time.Time
	open         int
	until        time.Time // of a penalty
}

// illHost is a host that answers everybody badly, or a part of them.
type illHost struct {
	name  string // "": none
	when  stretch
	share float64
	reply smtp.Reply // code 0: it resets the connection
}

// stretch is a stretch of time.
type stretch struct{ from, to time.Time }

func in(list []stretch, now time.Time) bool {
	return slices.ContainsFunc(list, func(s stretch) bool { return !now.Before(s.from) && now.Before(s.to) })
}

// silence is how long one of them still lasts.
func silence(list []stretch, now time.Time) time.Duration {
	for _, s := range list {
		if in([]stretch{s}, now) {
			return s.to.Sub(now)
		}
	}
	return 0
}

// overEvenly counts one more event in a bucket and reports whether that is one too many. The list has one time: when
// the bucket will be full again.
func overEvenly(list *[]time.Time, r throttle.Rate, now time.Time) bool {
	if r.Events == 0 {
		return false
	}
	full, each := now, r.Per/time.Duration(r.Events)
	if len(*list) > 0 && (*list)[0].After(now) {
		full = (*list)[0]
	}
	if full = full.Add(each); full.Sub(now) > each*time.Duration(max(1, r.Events/20)) {
		return true
	}
	*list = []time.Time{full}
	return false
}

// overMean counts one more RCPT in the mean and reports whether it is above the limit.
func (m *meter) overMean(l limitOf, now time.Time) bool {
	passed := max(1e-9, now.Sub(m.meant).Seconds()/l.rcpts.Per.Seconds())
	mean := (1-math.Exp(-passed))/passed + math.Exp(-passed)*m.mean
	bad := mean >= float64(l.rcpts.Events)
	if !bad || l.countsBad {
		m.mean, m.meant = mean, now
	}
	return bad
}

// over counts one more event and reports whether that is one too many.
func over(list *[]time.Time, r throttle.Rate, fixed, countsBad bool, now time.Time) bool {
	if r.Events == 0 {
		return false
	}
	first := now.Add(-r.Per)
	if fixed {
		first = now.Truncate(r.Per).Add(-1)
	}
	kept := *list
	for len(kept) > 0 && !kept[0].After(first) {
		kept = kept[1:]
	}
	bad := len(kept) >= r.Events
	if !bad || countsBad {
		kept = append(kept, now)
	}
	*list = kept
	return bad
}

// chance is a number from 0 to 1 that an address has, the same each time.
func chance(salt, address string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(salt + address))
	x := h.Sum64() ^ h.Sum64()>>29
	x *= 0x9e3779b97f4a7c15
	return float64(x>>40) / float64(1<<24)
}

// oddAt returns the odd behaviour for an address, always the same; nil: it is ordinary.
func (s *unknownReceiver) oddAt(tenant int, address string) *oddOf {
	if len(s.odd) == 0 {
		return nil
	}
	x := chance(s.salt, address)
	for i := range s.odd {
		o := &s.odd[i]
		if !strings.HasSuffix(address, o.at) {
			continue
		}
		if x -= o.share; x < 0 {
			if o.of == 0 || o.of == tenant+1 {
				return o
			}
			return nil
		}
	}
	return nil
}

// isOdd reports whether an address never gets an outcome.
func (s *unknownReceiver) isOdd(tenant int, address string) bool {
	o := s.oddAt(tenant, address)
	return o != nil && o.forever
}

func (s *unknownReceiver) isInvalid(tenant int, address string) bool {
	share := s.invalid
	if tenant >= 0 && tenant < len(s.listed) {
		share = s.listed[tenant]
	}
	return s.isKnown(address) || chance("x"+s.salt, address) < share
}

// off is how it says "not now".
func (s *unknownReceiver) off() (smtp.Reply, bool) {
	switch s.limit.way {
	case byClosing:
		return smtp.Reply{Code: 421, Enhanced: s.says.Enhanced, Lines: []string{s.words}}, true
	case byReset:
		return smtp.Reply{}, true
	}
	return s.later(), false
}

// later is how it puts an address off.
func (s *unknownReceiver) later() smtp.Reply {
	return smtp.Reply{Code: cmp.Or(s.says.Code, 451), Enhanced: s.says.Enhanced, Lines: []string{s.words}}
}

// greet answers a connection. A reply of 0 with refused is none.
func (s *unknownReceiver) greet(now time.Time) (reply smtp.Reply, refused bool) {
	if in(s.outages, now) {
		return smtp.Reply{}, true
	}
	bad := over(&s.opens, s.limit.opens, s.limit.fixed, s.limit.countsBad, now)
	bad = bad || s.limit.sessions > 0 && s.open >= s.limit.sessions
	if bad && s.limit.penalty > 0 && !now.Before(s.until) {
		s.until = now.Add(s.limit.penalty)
	}
	if bad || now.Before(s.until) && !s.limit.greets {
		if s.limit.way == byReset {
			return smtp.Reply{}, true
		}
		return smtp.Reply{Code: cmp.Or(s.limit.refusal, 421), Lines: []string{s.words}}, true
	}
	return smtp.Reply{}, false
}

// what a RCPT came to, as the truth knows it.
const (
	wasGood = iota
	wasOdd
	wasLimited
	wasGrey
	wasDown
	wasIll
	truths
)

// rcpt answers one; closed: the session is over.
func (s *unknownReceiver) rcpt(now time.Time, host string, tenant int, address string) (reply smtp.Reply, closed bool,
	truth int) {
	if in(s.outages, now) {
		return smtp.Reply{}, true, wasDown
	}
	if host == s.ill.name && in([]stretch{s.ill.when}, now) && s.turns.Float64() < s.ill.share {
		return s.ill.reply, s.ill.reply.Code == 0 || s.ill.reply.Code == 421, wasIll
	}
	if in(s.blocked, now) {
		return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 7, 1}, Lines: []string{"client host blocked"}},
			false, wasDown
	}
	if in(s.stalls, now) && (s.few.Events == 0 || over(&s.fews, s.few, s.limit.fixed, s.limit.countsBad, now)) {
		reply, closed = s.off()
		return reply, closed, wasDown
	}
	if !s.change.at.IsZero() && !now.Before(s.change.at) {
		s.limit, s.change = s.change.to, changeOf{}
	}
	bad := s.overOfDomain(address, now)
	switch {
	case s.limit.even:
		bad = bad || overEvenly(&s.rcpts, s.limit.rcpts, now)
	case s.limit.decays:
		bad = bad || s.overMean(s.limit, now)
	default:
		bad = over(&s.rcpts, s.limit.rcpts, s.limit.fixed, s.limit.countsBad, now) || bad
	}
	if bad && s.limit.penalty > 0 && !now.Before(s.until) {
		s.until = now.Add(s.limit.penalty)
	}
	if bad || now.Before(s.until) {
		reply, closed = s.off()
		return reply, closed, wasLimited
	}
	if s.breaks {
		return smtp.Reply{}, true, wasDown
	}
	if s.visits > 0 && s.waits(s.greeted, "", s.visits) {
		return s.later(), false, wasGrey
	}
	if s.flaky > 0 && s.turns.Float64() < s.flaky {
		return s.later(), false, wasGrey
	}
	if s.isKnown(address) {
		return missingUser, false, wasGood
	}
	odd := s.oddAt(tenant, address)
	switch {
	case odd == nil:
	case odd.grey == 0:
		return odd.reply, odd.cut, wasOdd
	case s.waits(now, address, odd.grey):
		return odd.reply, false, wasGrey
	}
	seen := address
	if s.apart {
		seen += " " + host
	}
	if s.grey > 0 && !s.isTrusted(now, seen) && s.waits(now, seen, s.grey) {
		if s.greys.Code > 0 {
			return s.greys, false, wasGrey
		}
		return s.later(), false, wasGrey
	}
	if s.isInvalid(tenant, address) {
		return missingUser, false, wasGood
	}
	return smtp.Reply{Code: 250}, false, wasGood
}

// overOfDomain counts one more RCPT for the domain of an address and reports whether that is one too many.
func (s *unknownReceiver) overOfDomain(address string, now time.Time) bool {
	_, domain, _ := strings.Cut(address, "@")
	list := s.ofDomain[domain]
	if list == nil {
		list = &[]time.Time{}
		s.ofDomain[domain] = list
	}
	return over(list, s.limit.ofDomain, s.limit.fixed, s.limit.countsBad, now)
}

// isTrusted reports whether we have come back for enough addresses that the receiver greylists us no more (Postgrey).
func (s *unknownReceiver) isTrusted(now time.Time, address string) bool {
	if s.trusts == 0 {
		return false
	}
	if first, known := s.seen[address]; known && s.cameBack < s.trusts && now.Sub(first) >= s.grey {
		s.cameBack++
	}
	return s.cameBack >= s.trusts
}

// waits reports whether an address was first seen less than a wait ago.
func (s *unknownReceiver) waits(now time.Time, address string, grey time.Duration) bool {
	first, known := s.seen[address]
	if !known {
		s.seen[address] = now
		first = now
	}
	return now.Sub(first) < grey
}

// trial runs a scheduler against a stranger, with clients that behave as domains do.
type trial struct {
	*world
	stranger *unknownReceiver
	live     map[int]*liveSession
	tasks    []*taskOf
	named    map[*wire.Task]*taskOf
	clients  map[string]*taskOf
	waits    []time.Duration
	remember bool // what is learned is kept for the next scheduler
	kept     facts.Fact
	told     bool // the scheduler was told something and hasn't planned since

	counts    [truths]int
	series    map[int64]*seconds // by second since the beginning
	all, left int                // addresses, and those that were not offered yet
	others    bool               // nobody waits for addresses that can't get an outcome
	unsettled int                // addresses without an outcome that can get one
	little    int                // a tenth of all those
	wrong     int                // outcomes that are not true
	drained   int                // the second in which only so little was left; 0: more is
	sent      []time.Time        // RCPTs
}

// seconds is what happened in one second.
type seconds struct {
	asked, good, odd, grey, limited, down, ill int
	opens, refused                             int
	goodOf                                     [4]int // by tenant
}

type liveSession struct {
	of     *Scheduler
	s      *simSession
	host   string
	open   bool
	closed bool
	dumb   bool
}

func newTrial(t tester, a throttle.Limits, stated bool, s *unknownReceiver, seed uint64) *trial {
	tr := &trial{world: newWorld(t, a, seed), stranger: s, live: map[int]*liveSession{}, named: map[*wire.Task]*taskOf{},
		clients: map[string]*taskOf{}, series: map[int64]*seconds{},
		waits: []time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute}}
	s.ofDomain = map[string]*[]time.Time{}
	s.seen, s.turns = map[string]time.Time{}, rand.New(rand.NewPCG(seed, 2))
	s.salt = strconv.FormatUint(seed, 10)
	for i := range s.odd {
		s.odd[i].forever = s.odd[i].stays()
	}
	tr.beginScheduler(stated, []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute})
	tr.hear = tr.heardOf
	return tr
}

// beginScheduler makes a scheduler, as on a node of its own.
func (tr *trial) beginScheduler(stated bool, waits []time.Duration) {
	o := testOptions(tr.limit)
	o.Stated = func(string) bool { return stated }
	o.Waits = waits
	tr.scheduler, tr.living = begun("example", o, tr.now)
	if tr.remember {
		tr.scheduler.options.Facts = nowhere{} // which the sources know nothing of: they write beside the scheduler
	}
	tr.due, tr.told = time.Time{}, true
}

// takeOver throws the scheduler away, as when its node is lost: another one begins with what was kept, and what has no
// answer is offered to it anew.
func (tr *trial) takeOver() {
	o := tr.scheduler.options
	tr.scheduler.Close(tr.now)
	for _, l := range tr.live {
		tr.close(l)
	}
	tr.live = map[int]*liveSession{}
	tr.beginScheduler(o.Stated("example"), o.Waits)
	for _, t := range tr.tasks {
		tr.after(time.Second, func() { tr.offerAnew(t) })
	}
}

// second returns the second of a time.
func (tr *trial) second(at time.Time) *seconds {
	k := int64(at.Sub(begin) / time.Second)
	if tr.series[k] == nil {
		tr.series[k] = &seconds{}
	}
	return tr.series[k]
}

// play goes on until a time, or until every address has an outcome that can get one.
func (tr *trial) play(until time.Time) {
	atOnce := 0
	for len(tr.queue) > 0 && !tr.queue[0].at.After(until) {
		e := heap.Pop(&tr.queue).(event)
		if atOnce++; e.at.After(tr.now) {
			atOnce = 0
		}
		if atOnce > 100_000 {
			tr.t.Errorf("no end at %s", tr.now.Sub(begin))
			return
		}
		tr.now = e.at
		if e.do(); tr.told {
			tr.step()
		}
		if tr.done() {
			return
		}
	}
	tr.now = until
}

func (tr *trial) done() bool {
	return len(tr.tasks) > 0 && tr.unsettled == 0 && (tr.left == 0 || tr.others)
}

func (tr *trial) step() {
	tr.told = false
	steps, wake := tr.scheduler.Plan(tr.now)
	for _, s := range steps {
		tr.carry(s)
	}
	if !wake.IsZero() && (!tr.due.After(tr.now) || wake.Before(tr.due)) {
		tr.due = wake
		tr.after(max(0, wake.Sub(tr.now)), func() { tr.told = true })
	}
}

// tell lets the scheduler of a session know something, later; one that is no more isn't told.
func (tr *trial) tell(after time.Duration, l *liveSession, do func(*Scheduler)) {
	tr.after(after, func() {
		if l.of == tr.scheduler {
			do(l.of)
			tr.told = true
		}
	})
}

// carry does what the shell does for one step.
func (tr *trial) carry(s Step) {
	switch s := s.(type) {
	case Send:
		tr.hear(s.To, s.Msg)
	case OpenSession:
		l := &liveSession{of: tr.scheduler, host: s.Host,
			s: &simSession{socket: s.Slot, host: s.Host, source: s.Source.Name()}}
		if tr.live[s.ID] = l; len(tr.live) > tr.limit.Connections {
			tr.t.Errorf("%d sessions at once", len(tr.live))
		}
		if !s.Slot.Begin(s.Version, nil) {
			tr.tell(0, l, func(sc *Scheduler) { sc.SessionClosed(tr.now, s.ID) })
			return
		}
		tr.dials = append(tr.dials, tr.now)
		l.dumb = tr.stranger.dumb.share > 0 && tr.rand.Float64() < tr.stranger.dumb.share
		tr.after(tr.turn/2, func() { tr.arrived(s, l) })
	case AskProbes:
		l := tr.live[s.ID]
		r := &Report{ID: s.ID, Unanswered: s.Probes}
		if !l.s.socket.Begin(s.Version, nil) {
			tr.tell(0, l, func(sc *Scheduler) { sc.SessionWorked(tr.now, *r) })
			return
		}
		tr.after(s.After, func() { tr.next(s, l, r) })
	case QuitSession:
		l := tr.live[s.ID]
		tr.after(tr.turn/2, func() { tr.close(l) })
		tr.tell(tr.turn, l, func(sc *Scheduler) { sc.SessionClosed(tr.now, s.ID) })
	case DropSession:
		l := tr.live[s.ID]
		l.s.socket.Close()
		tr.close(l)
		delete(tr.live, s.ID)
	case KeepFact:
		tr.kept = s.Fact
	case KnowFact:
		sc, known := tr.scheduler, tr.kept
		tr.after(5*time.Millisecond, func() {
			if sc == tr.scheduler {
				sc.Recall(tr.now, known.Data)
				tr.told = true
			}
		})
	}
}

// close ends a session at the receiver.
func (tr *trial) close(l *liveSession) {
	if l != nil && l.open && !l.closed {
		l.closed = true
		tr.stranger.open--
	}
}

// How long is waited for a connection, for a greeting and for the reply to a RCPT: smtp/limits.go.
const (
	connectWithin = 10 * time.Second
	greetWithin   = time.Minute
	rcptWithin    = 90 * time.Second
)

// failedToOpen tells that a session couldn't be opened.
func (tr *trial) failedToOpen(after time.Duration, s OpenSession, l *liveSession, err error) {
	tr.tell(after, l, func(sc *Scheduler) {
		l.s.socket.MarkIdle()
		judgement := judgedAt(tr.now, s.Host, smtp.Address{}, err)
		sc.SessionOpened(tr.now, s.ID, throttle.Shown{}, &judgement)
	})
}

func (tr *trial) arrived(s OpenSession, l *liveSession) {
	if wait := silence(tr.stranger.silent, tr.now); wait > connectWithin {
		tr.second(tr.now).opens++
		tr.failedToOpen(connectWithin, s, l, &smtp.Failure{Stage: smtp.StageConnect, Err: os.ErrDeadlineExceeded})
		return
	} else if wait > 0 {
		tr.after(wait, func() { tr.arrived(s, l) })
		return
	}
	reply, refused := tr.stranger.greet(tr.now)
	tr.second(tr.now).opens++
	if tr.stranger.mute || l.dumb && tr.stranger.dumb.answers == 0 {
		tr.failedToOpen(greetWithin, s, l, &smtp.Failure{Stage: smtp.StageGreeting, Err: os.ErrDeadlineExceeded})
		return
	}
	if refused {
		tr.second(tr.now).refused++
		if reply.Code == 0 {
			tr.failedToOpen(tr.turn/2, s, l, &smtp.Failure{Stage: smtp.StageConnect, Err: errors.New("connection refused")})
			return
		}
		// An opened session takes a turn more, for EHLO.
		tr.failedToOpen(tr.turn/2, s, l, &smtp.Failure{Stage: smtp.StageGreeting, Reply: reply})
		return
	}
	l.open, l.s.greeted = true, tr.now
	tr.stranger.open++
	tr.tell(tr.turn*3/2, l, func(sc *Scheduler) {
		l.s.socket.MarkIdle()
		sc.SessionOpened(tr.now, s.ID, throttle.Shown{}, nil)
	})
}

// next asks the next address of what a session was given, or reports.
func (tr *trial) next(m AskProbes, l *liveSession, r *Report) {
	if len(r.Unanswered) == 0 || r.Failure != nil || r.Refused >= m.RefusedMax || l.s.socket.Halted.Load() {
		tr.reported(l, r)
		return
	}
	turns := tr.turn // MAIL
	if l.s.rcpts > 0 {
		turns += tr.turn // RSET
	}
	way := tr.turn/2 + tr.stepJitter()
	tr.after(turns+way, func() { tr.asked(m, l, r, tr.now.Add(-way)) })
}

// stepJitter is how much later than at best something comes.
func (w *world) stepJitter() time.Duration {
	if w.jitter == 0 || w.rand.IntN(2) == 0 {
		return 0
	}
	return time.Duration(w.rand.Int64N(int64(w.jitter)))
}

func (tr *trial) asked(m AskProbes, l *liveSession, r *Report, sent time.Time) {
	if l.of != tr.scheduler {
		return
	}
	p := r.Unanswered[0]
	broken := func(after time.Duration, err error) {
		tr.tell(after, l, func(sc *Scheduler) {
			l.s.socket.MarkIdle()
			judgement := judgedAt(tr.now, l.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: err})
			r.Failure, r.Cut, r.OnWire = &judgement, true, 1
			sc.SessionWorked(tr.now, *r)
		})
	}
	falls := l.dumb && l.s.rcpts >= tr.stranger.dumb.answers-1
	if wait := silence(tr.stranger.silent, tr.now); falls || wait > rcptWithin {
		tr.count(wasDown, -1)
		broken(rcptWithin, os.ErrDeadlineExceeded)
		return
	} else if wait > 0 {
		tr.after(wait, func() { tr.asked(m, l, r, sent) })
		return
	}
	tenant := -1
	if t := tr.named[p.chunk.named]; t != nil {
		tenant = t.tenant
		if c := &t.cases[p.ordinal]; c.since.IsZero() {
			c.since = tr.now
		}
	}
	if l.s.rcpts++; l.s.rcpts > tr.limit.RcptsPerConnection {
		tr.t.Errorf("RCPT %d of a session", l.s.rcpts)
	}
	tr.sent = append(tr.sent, sent)
	tr.stranger.greeted = l.s.greeted
	reply, closed, truth := tr.stranger.rcpt(tr.now, l.host, tenant, p.Address.String())
	if n := tr.stranger.limit.inSession; n > 0 && l.s.rcpts > n {
		reply, closed = tr.stranger.off()
		truth = wasLimited
	}
	tr.count(truth, tenant)
	if closed {
		tr.close(l)
	}
	if reply.Code == 0 {
		broken(tr.turn/2, errors.New("reset"))
		return
	}
	tr.after(tr.turn/2+tr.stranger.slow.late(l.s.rcpts, reply), func() { tr.answered(m, l, r, reply, sent) })
}

func (tr *trial) answered(m AskProbes, l *liveSession, r *Report, reply smtp.Reply, sent time.Time) {
	p := r.Unanswered[0]
	judgement := judgedAt(tr.now, l.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: reply})
	r.Answered = append(r.Answered, Answered{Probe: p, Judgement: judgement, Sent: sent, At: tr.now, Nth: 1})
	r.Unanswered = r.Unanswered[1:]
	if reply.Permanent() {
		r.Refused++
		l.s.refused++
	}
	switch {
	case reply.Code == 421:
		r.Failure, r.Cut = &judgement, true
	case judgement.Verdict.Action == verdict.ActVoid:
		r.Failure, r.Poisoned = &judgement, true
	case !EndsBatch(&judgement):
		tr.next(m, l, r)
		return
	}
	tr.reported(l, r)
}

func (tr *trial) reported(l *liveSession, r *Report) {
	tr.tell(0, l, func(sc *Scheduler) {
		l.s.socket.MarkIdle()
		sc.SessionWorked(tr.now, *r)
	})
}

func (tr *trial) count(truth, tenant int) {
	s := tr.second(tr.now)
	s.asked++
	tr.counts[truth]++
	switch truth {
	case wasGood:
		s.good++
		if tenant >= 0 {
			s.goodOf[tenant]++
		}
	case wasOdd:
		s.odd++
	case wasGrey:
		s.grey++
	case wasLimited:
		s.limited++
	case wasDown:
		s.down++
	case wasIll:
		s.ill++
	}
}

// between adds up the seconds from one to another.
func (tr *trial) between(from, to int) (all seconds) {
	for k := from; k < to; k++ {
		if s := tr.series[int64(k)]; s != nil {
			all.asked += s.asked
			all.good += s.good
			all.odd += s.odd
			all.grey += s.grey
			all.limited += s.limited
			all.down += s.down
			all.ill += s.ill
			all.opens += s.opens
			all.refused += s.refused
			for i := range s.goodOf {
				all.goodOf[i] += s.goodOf[i]
			}
		}
	}
	return all
}
