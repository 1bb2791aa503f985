package scheduler

import (
	"container/heap"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

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
	fixed        bool          // counted by the clock's seconds or minutes, else over any window
	countsBad    bool          // what it put off counts too
	way          int
	penalty      time.Duration // nothing is served for so long after one too many
}

// oddOf are mailboxes that always answer something odd.
type oddOf struct {
	share  float64 // from 0 to 1
	tenant int     // of one tenant only; -1: of all
	reply  smtp.Reply
	cut    bool // it closes after that, or resets when there is no reply
}

// unknownReceiver is a simulated receiver whose truth is known.
type unknownReceiver struct {
	limit   limitOf
	odd     oddOf
	words   string        // of everything that speaks of us
	grey    time.Duration // each address is put off for so long; 0: none
	outages []stretch
	invalid float64   // share of mailboxes that don't exist
	listed  []float64 // the same by tenant; nil: of all alike
	blocked []stretch // every RCPT is refused as "client host blocked"
	ill     illHost

	rcpts, opens []time.Time
	open         int
	turns        *rand.Rand
	until        time.Time // of a penalty
	seen         map[string]time.Time
}

// illHost is a host that answers everybody badly, or a part of them.
type illHost struct {
	name  string // "": none
	when  stretch
	share float64
	reply smtp.Reply // code 0: it resets the connection
}

// route is its hosts: two where the first one is ill.
func (s *unknownReceiver) route() []*wire.Host {
	if s.ill.name != "" {
		return hosts(s.ill.name, "mx2.example")
	}
	return hosts("mx1.example")
}

// stretch is a stretch of time.
type stretch struct{ from, to time.Time }

func in(list []stretch, now time.Time) bool {
	return slices.ContainsFunc(list, func(s stretch) bool { return !now.Before(s.from) && now.Before(s.to) })
}

// over counts one more event and says whether that is one too many.
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

// isOdd says whether an address is odd: the same each time.
func (s *unknownReceiver) isOdd(tenant int, address string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(address))
	x := h.Sum64() ^ h.Sum64()>>29
	x *= 0x9e3779b97f4a7c15
	return (s.odd.tenant < 0 || s.odd.tenant == tenant) && float64(x>>40)/float64(1<<24) < s.odd.share
}

func (s *unknownReceiver) isInvalid(tenant int, address string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte("x" + address))
	x := h.Sum64() * 0x9e3779b97f4a7c15
	share := s.invalid
	if tenant >= 0 && tenant < len(s.listed) {
		share = s.listed[tenant]
	}
	return float64(x>>40)/float64(1<<24) < share
}

// off is how it says "not now".
func (s *unknownReceiver) off() (smtp.Reply, bool) {
	switch s.limit.way {
	case byClosing:
		return smtp.Reply{Code: 421, Lines: []string{s.words}}, true
	case byReset:
		return smtp.Reply{}, true
	}
	return smtp.Reply{Code: 451, Lines: []string{s.words}}, false
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
	if bad || now.Before(s.until) {
		if s.limit.way == byReset {
			return smtp.Reply{}, true
		}
		return smtp.Reply{Code: 421, Lines: []string{s.words}}, true
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
func (s *unknownReceiver) rcpt(now time.Time, host string, tenant int, address string) (reply smtp.Reply, closed bool, truth int) {
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
	bad := over(&s.rcpts, s.limit.rcpts, s.limit.fixed, s.limit.countsBad, now)
	if bad && s.limit.penalty > 0 && !now.Before(s.until) {
		s.until = now.Add(s.limit.penalty)
	}
	if bad || now.Before(s.until) {
		reply, closed = s.off()
		return reply, closed, wasLimited
	}
	if s.isOdd(tenant, address) {
		return s.odd.reply, s.odd.cut, wasOdd
	}
	if s.grey > 0 {
		first, known := s.seen[address]
		if !known {
			s.seen[address] = now
			first = now
		}
		if now.Sub(first) < s.grey {
			reply, _ = smtp.Reply{Code: 451, Lines: []string{s.words}}, false
			return reply, false, wasGrey
		}
	}
	if s.isInvalid(tenant, address) {
		return smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}, false, wasGood
	}
	return smtp.Reply{Code: 250}, false, wasGood
}

// trial runs a scheduler against a stranger, with clients that behave as domains do.
type trial struct {
	*world
	stranger *unknownReceiver
	live     map[int]*liveSession
	tasks    []*taskOf
	waits    []time.Duration

	counts    [truths]int
	series    map[int64]*seconds // by second since the beginning
	all, left int                // addresses, and those that were not offered yet
	drained   int                // the second in which a tenth was left; 0: more is
}

// seconds is what happened in one second.
type seconds struct {
	asked, good, odd, limited, down, ill int
	opens, refused                       int
	goodOf                               [4]int // by tenant
}

type liveSession struct {
	s      *simSession
	host   string
	open   bool
	closed bool
}

type taskOf struct {
	tenant    int
	task      *wire.Task
	route     []*wire.Host
	fresh     []uint32
	later     []laterOf
	out       map[uint64]map[uint32]bool
	chunk     uint64
	tries     map[uint32]int
	settled   map[uint32]bool
	finals    map[uint32]smtp.Outcome
	answered  int
	undecided int
	waiting   bool
	workspace []byte
}

type laterOf struct {
	ordinal uint32
	due     time.Time
}

func newTrial(t tester, a throttle.Limits, stated bool, s *unknownReceiver, seed uint64) *trial {
	w := newWorld(t, a, seed)
	o := testOptions(a)
	o.Stated = func(string) bool { return stated }
	o.Waits = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}
	w.scheduler, w.living = begun("example", o, begin)
	s.seen, s.turns = map[string]time.Time{}, rand.New(rand.NewPCG(seed, 2))
	tr := &trial{world: w, stranger: s, live: map[int]*liveSession{},
		series: map[int64]*seconds{}, waits: []time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute}}
	w.hear = tr.heardOf
	return tr
}

// second gives the second of a time.
func (tr *trial) second(at time.Time) *seconds {
	k := int64(at.Sub(begin) / time.Second)
	if tr.series[k] == nil {
		tr.series[k] = &seconds{}
	}
	return tr.series[k]
}

// add gives a tenant n addresses at a domain.
func (tr *trial) add(tenant int, domain string, n int, route []*wire.Host) {
	t := &taskOf{tenant: tenant, route: route, out: map[uint64]map[uint32]bool{}, tries: map[uint32]int{},
		finals: map[uint32]smtp.Outcome{}, settled: map[uint32]bool{}, workspace: id(byte(100 + tenant)),
		task: &wire.Task{Verification: id(byte(tenant)), Epoch: 1, Domain: domain}}
	for i := range n {
		t.fresh = append(t.fresh, uint32(i))
	}
	tr.all, tr.left = tr.all+n, tr.left+n
	tr.tasks = append(tr.tasks, t)
	tr.after(time.Duration(len(tr.tasks))*time.Millisecond, func() { tr.pump(t) })
}

// chunkOfTrial is how many addresses a task offers at once.
const chunkOfTrial = 200

// pump offers what a task has to ask now.
func (tr *trial) pump(t *taskOf) {
	for len(t.out) < 2 {
		var list []uint32
		kept := t.later[:0]
		for _, l := range t.later {
			if !l.due.After(tr.now) && len(list) < chunkOfTrial {
				list = append(list, l.ordinal)
			} else {
				kept = append(kept, l)
			}
		}
		t.later = kept
		for len(list) < chunkOfTrial && len(t.fresh) > 0 {
			list = append(list, t.fresh[0])
			t.fresh = t.fresh[1:]
			if tr.left--; tr.left == tr.all/10 {
				tr.drained = int(tr.now.Sub(begin) / time.Second)
			}
		}
		if len(list) == 0 {
			break
		}
		t.chunk++
		m := &wire.Offer{Task: t.task, Chunk: t.chunk, Hosts: t.route, Workspace: t.workspace,
			Behind: uint32(len(t.fresh))}
		t.out[t.chunk] = map[uint32]bool{}
		for _, o := range list {
			m.Probes = append(m.Probes, &wire.Probe{Ordinal: o, Local: fmt.Sprintf("a%d", o)})
			t.out[t.chunk][o] = true
		}
		tr.scheduler.Offer(tr.now, Client{Name: t.task.GetDomain() + fmt.Sprint(t.tenant)}, m)
	}
	if len(t.later) > 0 && !t.waiting {
		next := slices.MinFunc(t.later, func(a, b laterOf) int { return a.due.Compare(b.due) }).due
		t.waiting = true
		tr.after(max(10*time.Millisecond, next.Sub(tr.now)), func() {
			t.waiting = false
			tr.pump(t)
		})
	}
}

func (tr *trial) heardOf(to Client, msg proto.Message) {
	i := slices.IndexFunc(tr.tasks, func(t *taskOf) bool {
		return t.task.GetDomain()+fmt.Sprint(t.tenant) == to.Name
	})
	t := tr.tasks[i]
	switch m := msg.(type) {
	case *wire.OfferAck:
		if m.GetRefusal() == wire.Refusal_FULL {
			for o := range t.out[m.GetChunk()] {
				t.fresh = append(t.fresh, o)
			}
			delete(t.out, m.GetChunk())
			tr.after(time.Second, func() { tr.pump(t) })
		}
	case *wire.Results:
		tr.after(time.Millisecond, func() {
			tr.scheduler.inbox.takeAck(tr.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
			tr.results(t, m)
			tr.pump(t)
		})
	}
}

func (tr *trial) results(t *taskOf, m *wire.Results) {
	left := t.out[m.GetChunk()]
	for _, a := range m.GetAnswers() {
		o := a.GetOrdinal()
		if !left[o] {
			continue
		}
		delete(left, o)
		outcome, _ := a.Verdict()
		if outcome.Final() {
			t.finals[o] = outcome
			t.answered++
			continue
		}
		t.undecided++
		nth := t.tries[o]
		t.tries[o]++
		wait := a.Wait()
		if wait <= 0 {
			wait = tr.waits[min(nth, len(tr.waits)-1)]
		}
		t.later = append(t.later, laterOf{ordinal: o, due: tr.now.Add(wait)})
	}
	if len(left) == 0 {
		delete(t.out, m.GetChunk())
	}
}

// go on until a time, or until every address that isn't odd has an answer, which is looked at ten times a second.
func (tr *trial) play(until time.Time) {
	looked := tr.now
	for len(tr.queue) > 0 && !tr.queue[0].at.After(until) {
		e := heap.Pop(&tr.queue).(event)
		tr.now = e.at
		e.do()
		tr.step()
		if tr.now.Sub(looked) < time.Second/10 {
			continue
		}
		if looked = tr.now; tr.done() {
			return
		}
	}
	tr.now = until
}

func (tr *trial) done() bool {
	for _, t := range tr.tasks {
		if len(t.fresh) > 0 {
			return false
		}
		for _, left := range t.out {
			for o := range left {
				if !tr.stranger.isOdd(t.tenant, fmt.Sprintf("a%d@%s", o, t.task.GetDomain())) {
					return false
				}
			}
		}
		for _, l := range t.later {
			if !tr.stranger.isOdd(t.tenant, fmt.Sprintf("a%d@%s", l.ordinal, t.task.GetDomain())) {
				return false
			}
		}
	}
	return len(tr.tasks) > 0
}

func (tr *trial) step() {
	steps, wake := tr.scheduler.Plan(tr.now)
	for _, s := range steps {
		tr.carry(s)
	}
	if !wake.IsZero() && (!tr.due.After(tr.now) || wake.Before(tr.due)) {
		tr.due = wake
		tr.after(max(0, wake.Sub(tr.now)), func() {})
	}
}

// carry does what the shell does for one step.
func (tr *trial) carry(s Step) {
	switch s := s.(type) {
	case Send:
		tr.hear(s.To, s.Msg)
	case OpenSession:
		l := &liveSession{s: &simSession{socket: s.Slot, host: s.Host, source: s.Source.Name()}, host: s.Host}
		tr.live[s.ID] = l
		if !s.Slot.Begin(s.Version, nil) {
			tr.after(0, func() { tr.scheduler.outcomes.sessionClosed(tr.now, s.ID) })
			return
		}
		tr.after(tr.turn/2, func() { tr.arrived(s, l) })
	case AskProbes:
		l := tr.live[s.ID]
		if !l.s.socket.Begin(s.Version, nil) {
			tr.after(0, func() { tr.scheduler.SessionWorked(tr.now, Report{ID: s.ID, Rest: s.Probes}) })
			return
		}
		r := &Report{ID: s.ID, Rest: s.Probes}
		tr.after(s.After, func() { tr.next(s, l, r) })
	case QuitSession:
		tr.after(tr.turn/2, func() { tr.close(tr.live[s.ID]) })
		tr.after(tr.turn, func() { tr.scheduler.outcomes.sessionClosed(tr.now, s.ID) })
	case DropSession:
		l := tr.live[s.ID]
		l.s.socket.Close()
		tr.close(l)
		delete(tr.live, s.ID)
	}
}

// close ends a session at the receiver.
func (tr *trial) close(l *liveSession) {
	if l != nil && l.open && !l.closed {
		l.closed = true
		tr.stranger.open--
	}
}

func (tr *trial) arrived(s OpenSession, l *liveSession) {
	reply, refused := tr.stranger.greet(tr.now)
	tr.second(tr.now).opens++
	if refused {
		tr.second(tr.now).refused++
	} else {
		l.open = true
		tr.stranger.open++
	}
	took := tr.turn / 2
	if !refused || reply.Code != 0 {
		took += tr.turn
	}
	tr.after(took, func() {
		l.s.socket.Rest()
		if !refused {
			tr.scheduler.outcomes.sessionOpened(tr.now, s.ID, nil)
			return
		}
		err := error(&smtp.Failure{Stage: smtp.StageGreeting, Reply: reply})
		if reply.Code == 0 {
			err = errors.New("connection refused")
		}
		told := judgedAt(tr.now, s.Host, smtp.Address{}, err)
		tr.scheduler.outcomes.sessionOpened(tr.now, s.ID, &told)
	})
}

// next asks the next address of what a session was given, or reports.
func (tr *trial) next(m AskProbes, l *liveSession, r *Report) {
	if len(r.Rest) == 0 || r.Failure != nil || r.Refused >= m.RefusedMax || l.s.socket.Halted.Load() {
		tr.reported(l, r)
		return
	}
	turns := tr.turn // MAIL
	if l.s.rcpts > 0 {
		turns += tr.turn // RSET
	}
	tr.after(turns, func() {
		sent := tr.now
		way := tr.turn/2 + tr.world.stepJitter()
		tr.after(way, func() { tr.asked(m, l, r, sent) })
	})
}

// stepJitter is how much later than at best something comes.
func (w *world) stepJitter() time.Duration {
	if w.jitter == 0 || w.rand.IntN(2) == 0 {
		return 0
	}
	return time.Duration(w.rand.Int64N(int64(w.jitter)))
}

func (tr *trial) asked(m AskProbes, l *liveSession, r *Report, sent time.Time) {
	p := r.Rest[0]
	tenant := -1
	for _, t := range tr.tasks {
		if t.task == p.chunk.named {
			tenant = t.tenant
		}
	}
	l.s.rcpts++
	reply, closed, truth := tr.stranger.rcpt(tr.now, l.host, tenant, p.Address.String())
	tr.count(truth, tenant)
	if closed {
		tr.close(l)
	}
	tr.after(tr.turn/2, func() {
		if reply.Code == 0 {
			told := judgedAt(tr.now, l.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: errors.New("reset")})
			r.Failure, r.Cut, r.OnWire = &told, true, 1
			tr.reported(l, r)
			return
		}
		told := judgedAt(tr.now, l.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: reply})
		r.Answered = append(r.Answered, Answered{Probe: p, Told: told, Sent: sent, At: tr.now, Nth: 1})
		r.Rest = r.Rest[1:]
		if reply.Permanent() {
			r.Refused++
			l.s.refused++
		}
		switch {
		case reply.Code == 421:
			r.Failure, r.Cut = &told, true
			tr.reported(l, r)
		case told.Verdict.Action == verdict.ActVoid:
			r.Failure, r.Poisoned = &told, true
			tr.reported(l, r)
		case EndsBatch(&told):
			tr.reported(l, r)
		default:
			tr.next(m, l, r)
		}
	})
}

func (tr *trial) reported(l *liveSession, r *Report) {
	l.s.socket.Rest()
	tr.after(0, func() { tr.scheduler.SessionWorked(tr.now, *r) })
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

// gibberish is a sentence that no rule knows.
func gibberish(r *rand.Rand) string {
	out := ""
	for range 2 + r.IntN(5) {
		for range 3 + r.IntN(7) {
			out += string(rune('a' + r.IntN(26)))
		}
		out += " "
	}
	return out[:len(out)-1]
}

func rate(n int, per time.Duration) throttle.Rate { return throttle.Rate{Events: n, Per: per} }
