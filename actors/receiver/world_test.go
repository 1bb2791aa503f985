package receiver

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// slotsOfWorld is more than any scheduler of a test needs.
const slotsOfWorld = 1000

// begin is any time.
var begin = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// opened is a wide allowance for tests that are about something else.
func openedWide() throttle.Limits {
	return throttle.Limits{
		Connections: 4, ConnectionRate: throttle.Rate{Events: 1000, Per: time.Second},
		RcptRate:           throttle.Rate{Events: throttle.RateEventsMax, Per: time.Second},
		RcptsPerConnection: throttle.CountMax, RcptsPerTransaction: 1,
		RefusedPerSession: throttle.CountMax, RefusedPerHour: throttle.CountMax,
		SessionAge: 5 * time.Minute, IdleTime: 2 * time.Second, TLS: throttle.TLSOpportunistic,
		Family: throttle.FamilyAny, Pause: throttle.PauseNo,
	}
}

func testOptions(a throttle.Limits) Options {
	living := NewLiving()
	living.Alone()
	return Options{
		Living: living, Fenced: func() bool { return false },
		Allow: func(string) throttle.Limits { return a },
		Waits: []time.Duration{time.Second, 5 * time.Second}, Slots: NewSlots(slotsOfWorld),
		Rules: verdict.Builtin(), Sources: sourcesOf(noSession), Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// openFunc is the type of Source.Open.
type openFunc = func(ctx context.Context, host string, at netip.Addr, tls smtp.TLSMode) (*smtp.Session, error)

// noSession is for schedulers whose sessions are simulated.
func noSession(context.Context, string, netip.Addr, smtp.TLSMode) (*smtp.Session, error) {
	return nil, errors.New("there are no sessions here")
}

// sourcesOf makes sources with these addresses; without any, the one that the system chooses.
func sourcesOf(open openFunc, addresses ...string) *egress.Pool {
	list := make([]egress.Source, max(1, len(addresses)))
	for i := range list {
		list[i] = egress.Source{Hello: "probe.example", Open: open}
		if len(addresses) > 0 {
			list[i].Addr = netip.MustParseAddr(addresses[i])
		}
	}
	s, err := egress.NewPool(list)
	if err != nil {
		panic(err)
	}
	return s
}

// rebind gives the scheduler its sources anew, in a pool that follows the options as a test
// changes them.
func (w *world) rebind() {
	o := &w.desk.options
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
	t     tester
	desk  *Scheduler
	limit throttle.Limits
	rand  *rand.Rand
	now   time.Time
	queue events
	order int
	due   time.Time // of the newest wake-up that waits

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
	from    string         // the source that is greeted
	greeted map[string]int // times, by host
	hear    func(to Client, msg proto.Message)
	asked   func(p *Probe) // may be nil
}

type simSession struct {
	host    string
	source  string
	socket  *socket
	rcpts   int
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

// tester is what *testing.T and *rapid.T share.
type tester interface {
	Errorf(format string, args ...any)
	Helper()
}

func newWorld(t tester, a throttle.Limits, seed uint64) *world {
	w := &world{t: t, desk: New("example", testOptions(a), begin), limit: a, now: begin,
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
			w.desk.inbox.takeAck(w.now, &wire.ResultsAck{Task: m.GetTask(), Chunk: m.GetChunk(), Batch: m.GetBatch()})
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
	steps, wake := w.desk.Plan(w.now)
	for _, s := range steps {
		w.do(s)
	}
	if !wake.IsZero() && (!w.due.After(w.now) || wake.Before(w.due)) {
		w.due = wake
		w.after(max(0, wake.Sub(w.now)), func() {})
	}
}

func (w *world) do(s Step) {
	if _, told := s.(Send); !told && w.now.Before(w.desk.penalties.paused) {
		switch s.(type) {
		case OpenSession, AskProbes:
			w.t.Errorf("%T while the receiver rests", s)
		}
	}
	switch s := s.(type) {
	case Send:
		w.hear(s.To, s.Msg)
	case OpenSession:
		if !s.Slot.start(s.Turn, nil) { // the share has changed since
			w.open[s.ID] = &simSession{socket: s.Slot}
			w.after(0, func() { w.desk.outcomes.sessionClosed(w.now, s.ID) })
			return
		}
		w.dials = append(w.dials, w.now)
		w.open[s.ID] = &simSession{host: s.host.host, source: s.Source.Name(), socket: s.Slot}
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
		w.after(w.turn, func() { w.desk.outcomes.sessionClosed(w.now, s.ID) })
	case DropSession:
		if w.open[s.ID] == nil {
			w.t.Errorf("session %d dropped twice", s.ID)
		}
		w.open[s.ID].socket.close()
		delete(w.open, s.ID)
	}
}

func (w *world) opened(s OpenSession) {
	s.Slot.rest()
	w.from = s.Source.Name()
	w.greeted[s.host.host]++
	err := w.greet(s.host.host)
	if err == nil {
		w.desk.outcomes.sessionOpened(w.now, s.ID, nil)
		return
	}
	told := judgedAt(w.now, s.host.host, smtp.Address{}, err)
	w.desk.outcomes.sessionOpened(w.now, s.ID, &told)
}

// judged gives the verdict on a failure, of whatever host.
func judged(address smtp.Address, err error) Judgement {
	return judgedAt(begin, "mx1.example", address, err)
}

// judgedAt gives the verdict on what a host said or did.
func judgedAt(at time.Time, host string, address smtp.Address, err error) Judgement {
	f := &smtp.Failure{Stage: smtp.StageConnect, Err: err}
	errors.As(err, &f)
	o := Options{Rules: verdict.Builtin(), Sources: &egress.Pool{}}
	return o.Judge(evidence.Raw{At: at, Host: host, Stage: f.Stage, Reply: f.Reply, Err: f.Err, Address: address,
		Hello: "probe.example"})
}

// step gives one turn; every other one has some jitter, so that the shortest is seen.
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
	if !s.socket.start(m.Turn, nil) {
		w.after(0, func() { w.desk.outcomes.sessionWorked(w.now, Report{ID: m.ID, Rest: m.Probes}) })
		return
	}
	if len(m.Probes) == 0 || m.PerTransaction > w.limit.RcptsPerTransaction {
		w.t.Errorf("%d probes, %d in a transaction", len(m.Probes), m.PerTransaction)
	}
	r := Report{ID: m.ID, Rest: m.Probes}
	t := w.now.Add(m.After)
	for len(r.Rest) > 0 && r.Failure == nil && r.Refused < m.RefusedMax {
		if s.rcpts > 0 {
			t = t.Add(w.turn) // RSET
		}
		t = t.Add(w.turn) // MAIL
		var stop bool
		if t, stop = w.transaction(s, &r, m, t); stop {
			break
		}
	}
	w.after(t.Sub(w.now), func() {
		s.socket.rest()
		w.desk.outcomes.sessionWorked(w.now, r)
	})
}

func (w *world) transaction(s *simSession, r *Report, m AskProbes, t time.Time) (time.Time, bool) {
	for nth := 1; nth <= m.PerTransaction && len(r.Rest) > 0 && r.Refused < m.RefusedMax; nth++ {
		p, took := r.Rest[0], w.step()
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
		if reply.Code == 0 {
			told := judgedAt(t, s.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Err: errors.New("reset")})
			r.Failure, r.Cut, r.OnWire = &told, true, 1
			return t, true
		}
		told := judgedAt(t, s.host, p.Address, &smtp.Failure{Stage: smtp.StageRcpt, Reply: reply})
		r.Answered = append(r.Answered, Answered{Probe: p, Told: told, Sent: sent, At: t, Nth: nth})
		r.Rest = r.Rest[1:]
		if reply.Permanent() {
			r.Refused++
			s.refused++
		}
		switch {
		case reply.Code == 421:
			r.Failure, r.Cut = &told, true
			return t, true
		case told.Verdict.Action == verdict.ActVoid:
			r.Failure, r.Poisoned = &told, true
			return t, true
		case stopsSession(told.Verdict.Action):
			return t, true
		}
	}
	return t, false
}

// checkRate fails when in any window of a rate there were more events than it allows.
func checkRate(t tester, what string, times []time.Time, r throttle.Rate) {
	t.Helper()
	for i := r.Events; i < len(times); i++ {
		if span := times[i].Sub(times[i-r.Events]); span <= r.Per {
			t.Errorf("%s: %d within %s, the rate is %s", what, r.Events+1, span, r)
			return
		}
	}
}

// checkEmpty fails when the scheduler remembers anything long after all is done.
func (w *world) checkEmpty() {
	w.t.Helper()
	w.run(w.now.Add(2 * time.Hour))
	d := w.desk
	if n := d.options.Slots.free.Load(); n != slotsOfWorld || len(d.pool.sessions) > 0 || len(w.open) > 0 ||
		len(d.pool.free) > 0 || d.pool.closing != 0 {
		w.t.Errorf("left: %d slots of %d, %d sessions, %d open, %d free, %d closing",
			n, slotsOfWorld, len(d.pool.sessions), len(w.open), len(d.pool.free), d.pool.closing)
	}
	if len(d.queues.all) > 0 || len(d.pool.served) > 0 || d.queues.aside.Len() > 0 || d.inbox.unsent.Len() > 0 ||
		len(d.inbox.finished) > 0 {
		w.t.Errorf("left: %d lanes, %d manned, %d aside, %d unsent, %d finished",
			len(d.queues.all), len(d.pool.served), d.queues.aside.Len(), d.inbox.unsent.Len(), len(d.inbox.finished))
	}
	if t := &d.inbox.tasks; len(t.all) > 0 || len(t.busy) > 0 || t.resting.Len() > 0 || t.queue.Tenants() > 0 ||
		t.queue.Queued() != 0 || t.queue.Unserved() != 0 {
		w.t.Errorf("left: %d tasks, %d busy, %d resting, %d workspaces, %d queued, %d host queues unserved",
			len(t.all), len(t.busy), t.resting.Len(), t.queue.Tenants(), t.queue.Queued(), t.queue.Unserved())
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

// offerOf makes an offer of n probes.
func offerOf(verification byte, domain string, chunk uint64, n int, route []*wire.Host) *wire.Offer {
	m := &wire.Offer{Task: &wire.Task{Verification: id(verification), Epoch: 1, Domain: domain}, Chunk: chunk,
		Hosts: route}
	for i := range n {
		m.Probes = append(m.Probes, &wire.Probe{Ordinal: uint32(chunk)*1000 + uint32(i),
			Local: fmt.Sprintf("a%d", i)})
	}
	return m
}

func id(n byte) []byte {
	u := uuid.UUID{15: n}
	return u[:]
}

// silent is the logger of an actor system under test.
func silent(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }
