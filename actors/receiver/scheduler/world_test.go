package scheduler

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/receivertest"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/wire"
	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

func TestMain(m *testing.M) {
	effort.CollectSeldom()
	m.Run()
}

// Short names of what tests of other packages share.
var (
	openedWide = receivertest.OpenedWide
	stranger   = receivertest.Stranger
	sourcesOf  = receivertest.SourcesOf
	letters    = receivertest.Letters
	checkRate  = receivertest.CheckRate
	id         = receivertest.ID
	noSession  = receivertest.NoSession
	offerOf    = receivertest.OfferOf
)

// tester is what *testing.T and *rapid.T share.
type tester = receivertest.Tester

// slotsOfWorld is more than any scheduler of a test needs.
const slotsOfWorld = 1000

// begin is any time.
var begin = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func testOptions(a throttle.Limits) Options {
	return Options{
		Fenced: func() bool { return false },
		Allow:  func(string) throttle.Limits { return a },
		Waits:  []time.Duration{time.Second, 5 * time.Second}, Slots: registry.NewSlots(slotsOfWorld),
		Rules: verdict.Builtin, Sources: sourcesOf(noSession), Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// begun makes a scheduler of its own node, which may use all that is allowed.
func begun(key string, o Options, now time.Time) (*Scheduler, *registry.Registry) {
	living := registry.New()
	living.Alone()
	return New(living.Enter(key, o.Allow), o, now), living
}

// begunAlone is begun for tests that need no registry.
func begunAlone(key string, o Options, now time.Time) *Scheduler {
	d, _ := begun(key, o, now)
	return d
}

// inForce puts a table of shares in force, and reports whether the node keeps to it already.
func inForce(l *registry.Registry, of func(key string) (k, n int)) bool {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	return l.ApplyShares(done, of) == nil
}

// rebind gives the scheduler its sources anew, in a pool that follows the options as a test changes them.
func (w *world) rebind() {
	o := &w.scheduler.options
	list := make([]egress.Source, o.Sources.Len())
	for i := range list {
		list[i] = *o.Sources.Source(i)
	}
	p, err := egress.NewPool(list)
	if err != nil {
		panic(err)
	}
	p.Hour = o.Sources.Hour
	p.Bind(egress.Settings{Limits: func(name string) throttle.Limits { return o.SourceOf(name) }, Facts: o.Facts,
		Clock: func() time.Time { return o.ledgerTime(w.now) }, Log: o.Log})
	o.Sources = p
}

const (
	suspendedFor = time.Hour        // a source that many receivers refuse, the first time
	trialFor     = 10 * time.Minute // for one receiver to take it again
)

// untilMidnight is how long a day of UTC still lasts.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// world runs a scheduler against simulated sessions and clients, event by event.
type world struct {
	greeting  string                    // of every host
	shown     map[string]throttle.Shown // by hosts that show something else
	t         tester
	scheduler *Scheduler
	living    *registry.Registry // of its node
	limit     throttle.Limits
	rand      *rand.Rand
	now       time.Time
	queue     events
	order     int
	due       time.Time // of the newest wake-up that waits

	open  map[int]*simSession
	knows int         // times that it was asked what is known
	keeps int         // facts to keep
	rcpts []time.Time // when the receiver saw them, less the constant way
	dials []time.Time

	// How the receiver behaves. reply gives the answer to a RCPT, code 0 for a
	// lost connection; greet why a session cannot be opened, nil when it can.
	turn    time.Duration
	jitter  time.Duration
	turns   int
	reply   func(p *Probe, s *simSession) smtp.Reply
	greet   func(host string) error
	greetAt func(at netip.Addr) error // nil: greet says it
	from    string                    // the source that is greeted
	greeted map[string]int            // times, by host
	hear    func(to Client, msg proto.Message)
	asked   func(p *Probe) // may be nil
	holds   time.Duration  // how long it holds a refusal back
	grows   bool           // and twice as long each time in a session
}

type simSession struct {
	host    string
	source  string
	socket  *registry.ConnSlot
	greeted time.Time
	rcpts   int
	inside  int // of its transaction
	refused int
}

type event struct {
	at    time.Time
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(v any)   { *e = append(*e, v.(event)) }
func (e *events) Pop() any {
	v := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return v
}

func newWorld(t tester, a throttle.Limits, seed uint64) *world {
	d, living := begun("example", testOptions(a), begin)
	w := &world{t: t, scheduler: d, living: living, limit: a, now: begin,
		rand: rand.New(rand.NewPCG(seed, 1)), open: map[int]*simSession{}, greeted: map[string]int{},
		turn:  20 * time.Millisecond,
		reply: func(*Probe, *simSession) smtp.Reply { return smtp.Reply{Code: 250} },
		greet: func(string) error { return nil },
	}
	w.hear = w.acknowledge
	return w
}

// acknowledge is what a client does that hears results.
func (w *world) acknowledge(_ Client, msg proto.Message) {
	if m, ok := msg.(*wire.Results); ok {
		w.after(0, func() {
			w.scheduler.queues.takeAck(w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
		})
	}
}

// after lets something happen to the scheduler d from now.
func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.queue, event{at: w.now.Add(d), order: w.order, do: do})
}

// run lets everything happen that happens until a time.
func (w *world) run(until time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(until) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
		w.plan()
	}
	w.now = until
	w.plan()
}

func (w *world) plan() {
	steps, wake := w.scheduler.Plan(w.now)
	for _, s := range steps {
		w.do(s)
	}
	if !wake.IsZero() && (!w.due.After(w.now) || wake.Before(w.due)) {
		w.due = wake
		w.after(max(0, wake.Sub(w.now)), func() {})
	}
}

func (w *world) do(s Step) {
	if _, told := s.(Send); !told && w.now.Before(w.scheduler.paths.receiver.until) {
		switch s.(type) {
		case OpenSession, AskProbes:
			w.t.Errorf("%T while the receiver is paused", s)
		}
	}
	switch s := s.(type) {
	case Send:
		w.hear(s.To, s.Msg)
	case OpenSession:
		if !s.Slot.Begin(s.Version, nil) { // the share has changed since
			w.open[s.ID] = &simSession{socket: s.Slot}
			w.after(0, func() { w.scheduler.SessionClosed(w.now, s.ID) })
			return
		}
		w.dials = append(w.dials, w.now)
		w.open[s.ID] = &simSession{host: s.Host, source: s.Source.Name(), socket: s.Slot}
		if len(w.open) > w.limit.Connections {
			w.t.Errorf("%d sessions at once", len(w.open))
		}
		w.after(3*w.turn, func() { w.opened(s) })
	case AskProbes:
		w.ask(s)
	case KnowFact:
		w.knows++
	case KeepFact:
		w.keeps++
	case QuitSession:
		w.after(w.turn, func() { w.scheduler.SessionClosed(w.now, s.ID) })
	case DropSession:
		if w.open[s.ID] == nil {
			w.t.Errorf("session %d dropped twice", s.ID)
		}
		w.open[s.ID].socket.Close()
		delete(w.open, s.ID)
	}
}

func (w *world) opened(s OpenSession) {
	s.Slot.MarkIdle()
	w.from = s.Source.Name()
	w.greeted[s.Host]++
	err := w.greet(s.Host)
	if w.greetAt != nil {
		err = w.greetAt(s.At)
	}
	if err == nil {
		w.scheduler.SessionOpened(w.now, s.ID, w.shownBy(s.Host), nil)
		return
	}
	judgement := judgedAt(w.now, s.Host, smtp.Address{}, err)
	w.scheduler.SessionOpened(w.now, s.ID, throttle.Shown{}, &judgement)
}

// shownBy is what a host shows of its software.
func (w *world) shownBy(host string) throttle.Shown {
	if shown, own := w.shown[host]; own {
		return shown
	}
	return throttle.Shown{Greeting: w.greeting, Host: host}
}

// judged returns the verdict on a failure of an unnamed host.
func judged(address smtp.Address, err error) Judgement {
	return judgedAt(begin, "mx1.example", address, err)
}

// judgedAt returns the verdict on a host's reply or failure.
func judgedAt(at time.Time, host string, address smtp.Address, err error) Judgement {
	f := &smtp.Failure{Stage: smtp.StageConnect, Err: err}
	errors.As(err, &f)
	o := Options{Rules: verdict.Builtin, Sources: &egress.Pool{}}
	return o.Judge(evidence.Raw{At: at, Host: host, Stage: f.Stage, Reply: f.Reply, Err: f.Err, Address: address,
		Hello: "probe.example"})
}

// step returns the time of one turn. Every second turn has jitter, so that the shortest turn occurs too.
func (w *world) step() time.Duration {
	w.turns++
	if w.jitter == 0 || w.turns%2 == 0 {
		return w.turn
	}
	return w.turn + time.Duration(w.rand.Int64N(int64(w.jitter)))
}

// ask does what a session actor does, without PIPELINING.
func (w *world) ask(m AskProbes) {
	s := w.open[m.ID]
	if !s.socket.Begin(m.Version, nil) {
		w.after(0, func() { w.scheduler.SessionWorked(w.now, Report{ID: m.ID, Unanswered: m.Probes}) })
		return
	}
	if len(m.Probes) == 0 || m.Transaction.Most > w.limit.RcptsPerTransaction {
		w.t.Errorf("%d probes, %d in a transaction", len(m.Probes), m.Transaction.Most)
	}
	r := Report{ID: m.ID, Unanswered: m.Probes}
	if w.holds > 0 {
		w.askOne(s, &r, &m)
		return
	}
	t := w.now.Add(m.After)
	for len(r.Unanswered) > 0 && r.Failure == nil && r.Refused < m.RefusedMax {
		var stop bool
		if t, stop = w.transaction(s, &r, &m, t); stop {
			break
		}
	}
	w.after(t.Sub(w.now), func() {
		s.socket.MarkIdle()
		w.scheduler.SessionWorked(w.now, r)
	})
}

// askOne asks one transaction after the other, until the session is halted.
func (w *world) askOne(s *simSession, r *Report, m *AskProbes) {
	t, stop := w.transaction(s, r, m, w.now)
	w.after(t.Sub(w.now), func() {
		if !stop && len(r.Unanswered) > 0 && r.Refused < m.RefusedMax && !s.socket.Halted.Load() {
			w.askOne(s, r, m)
			return
		}
		s.socket.MarkIdle()
		w.scheduler.SessionWorked(w.now, *r)
	})
}

func (w *world) transaction(s *simSession, r *Report, m *AskProbes, t time.Time) (time.Time, bool) {
	most := m.Transaction.Now()
	if s.inside == 0 || s.inside >= most {
		if s.rcpts > 0 {
			t = t.Add(w.turn) // RSET
		}
		t = t.Add(w.turn) // MAIL
		s.inside = 0
		r.Transactions++
	}
	for s.inside < most && len(r.Unanswered) > 0 && r.Refused < m.RefusedMax {
		s.inside++
		p, took := r.Unanswered[0], w.step()
		w.rcpts = append(w.rcpts, t.Add(took-w.turn)) // all jitter is on the way there
		if s.rcpts++; s.rcpts > w.limit.RcptsPerConnection || s.refused >= w.limit.RefusedPerSession {
			w.t.Errorf("RCPT %d of a session, after %d refusals", s.rcpts, s.refused)
		}
		if w.asked != nil {
			w.asked(p)
		}
		reply := w.reply(p, s)
		sent := t
		t = t.Add(took)
		if reply.Permanent() {
			if t = t.Add(w.holds); w.grows {
				t = t.Add(w.holds<<min(s.refused, 10) - w.holds)
			}
		}
		if reply.Code == 0 {
			judgement := judgedAt(t, s.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: errors.New("reset")})
			r.Failure, r.Cut, r.OnWire = &judgement, true, 1
			return t, true
		}
		judgement := judgedAt(t, s.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: reply})
		r.Answered = append(r.Answered, Answered{Probe: p, Judgement: judgement, Sent: sent, At: t, Nth: s.inside})
		r.Unanswered = r.Unanswered[1:]
		if judgement.Verdict.Outcome != smtp.Undecided {
			m.Transaction.OnPlain()
		}
		if reply.Permanent() {
			r.Refused++
			s.refused++
		}
		switch {
		case reply.Code == 421:
			r.Failure, r.Cut = &judgement, true
			return t, true
		case judgement.Verdict.Action == verdict.ActVoid:
			r.Failure, r.Poisoned = &judgement, true
			return t, true
		case stopsSession(judgement.Verdict.Action):
			return t, true
		}
	}
	return t, false
}

// checkEmpty fails when the scheduler remembers anything long after all is done.
func (w *world) checkEmpty() {
	w.t.Helper()
	w.run(w.now.Add(2 * time.Hour))
	d := w.scheduler
	if n := d.options.Slots.Free(); n != slotsOfWorld || len(d.sessions.all) > 0 || len(w.open) > 0 ||
		len(d.sessions.free) > 0 || d.sessions.closing != 0 {
		w.t.Errorf("left: %d slots of %d, %d sessions, %d open, %d free, %d closing",
			n, slotsOfWorld, len(d.sessions.all), len(w.open), len(d.sessions.free), d.sessions.closing)
	}
	if len(d.queues.all) > 0 || len(d.sessions.served) > 0 || d.queues.aside.Len() > 0 || d.queues.unsent.Len() > 0 ||
		len(d.queues.finished) > 0 {
		w.t.Errorf("left: %d lanes, %d manned, %d aside, %d unsent, %d finished",
			len(d.queues.all), len(d.sessions.served), d.queues.aside.Len(), d.queues.unsent.Len(), len(d.queues.finished))
	}
	if t := &d.queues.tasks; len(t.all) > 0 || len(t.busy) > 0 || t.retired.Len() > 0 || t.fair.Tenants() > 0 ||
		t.fair.Queued() != 0 || t.fair.Unserved() != 0 {
		w.t.Errorf("left: %d tasks, %d busy, %d resting, %d workspaces, %d queued, %d host queues unserved",
			len(t.all), len(t.busy), t.retired.Len(), t.fair.Tenants(), t.fair.Queued(), t.fair.Unserved())
	}
}

// hosts makes a route to hosts of one address each; the address tells the host.
func hosts(names ...string) []*wire.Host {
	out := make([]*wire.Host, len(names))
	for i, n := range names {
		out[i] = &wire.Host{Name: n, Addrs: [][]byte{{192, 0, 2, n[2]}}}
	}
	return out
}
