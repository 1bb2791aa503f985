package receiver

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/scheduler"
	"rollcall/ledger/tracing"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Messages of a session actor to its receiver. These messages are local and never sent to other nodes.
type (
	sessionOpened struct {
		id     int
		failed *scheduler.Judgement
		shown  throttle.Shown // set if the session opened
	}
	sessionClosed struct{ id int }
)

// graceFor is how long a stopped session may take to finish and say QUIT: five round trips of 200 ms.
const graceFor = time.Second

// quitSoon is how long a session that is overdue waits for the answer to QUIT. Near servers answer in time; distant
// servers have at least been sent QUIT.
const quitSoon = 50 * time.Millisecond

// lateEvery is how often a session that waits for a heartbeat looks for it: 20 times in the second between two
// heartbeats.
const lateEvery = 50 * time.Millisecond

// sessionActor owns one SMTP session. sessionActor does one thing at a time, in a goroutine, and tells its parent when
// that is done. Nothing blocks its mailbox.
type sessionActor struct {
	options scheduler.Options
	pauses  func() uint64   // Options.pauses
	spans   *tracing.Tracer // nil: nothing is traced
	socket  *registry.ConnSlot
	source  *egress.Source  // the source of the session; set when the session opens
	ctx     context.Context // when it ends, the goroutine stops
	cancel  context.CancelFunc
	smtp    *smtp.Session // used by the one goroutine only
	working atomic.Bool   // the goroutine runs
	leaving atomic.Bool   // the actor is stopped: finish
	end     sync.Once
	tracer  *tracer // nil until the session opens

	at      netip.Addr // address of the host
	greeter string     // another server that greeted in place of the host (egress.Greeter); empty: the host did
	refuses bool       // the host has refused an address with 5xx
	doubts  bool       // the host may repeat a refusal for the next address

	repeated scheduler.Repeated // used by the one goroutine only
	span     tracing.Span       // used by the one goroutine only
	broken   bool               // the session failed; used by the one goroutine only

	ending *smtp.Ending // Failure.Ending of smtp, if smtp couldn't be opened
}

func newSessionActor(o scheduler.Options, pauses func() uint64, spans *tracing.Tracer, s *registry.ConnSlot) *sessionActor {
	ctx, cancel := context.WithCancel(context.Background())
	return &sessionActor{options: o, pauses: pauses, spans: spans, socket: s, ctx: ctx, cancel: cancel}
}

func (a *sessionActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case scheduler.OpenSession:
		a.runBeside(c, m.ID, func() any { return a.open(m) })
	case scheduler.AskProbes:
		a.runBeside(c, m.ID, func() any { return a.begin(m) })
	case scheduler.QuitSession:
		a.runBeside(c, m.ID, func() any {
			a.quit()
			return sessionClosed{id: m.ID}
		})
	case *actor.Stopping:
		a.leaving.Store(true)
		if a.working.Load() {
			time.AfterFunc(a.options.Stretched(graceFor), a.cancel)
		} else {
			a.options.Guard.Go("session", a.leave, a.drop)
		}
	}
}

// leave says QUIT for a stopped actor, unless its session has ended.
func (a *sessionActor) leave() {
	a.end.Do(func() {
		if a.smtp != nil {
			a.quit()
		}
		a.untraced()
		a.cancel()
		a.free()
	})
}

// drop ends a session because of a fault of ours.
func (a *sessionActor) drop() {
	if a.smtp != nil {
		a.smtp.Close()
	}
	a.untraced()
	a.cancel()
	a.free()
}

// free returns the session's slot when the receiver no longer holds the session.
func (a *sessionActor) free() {
	if a.smtp != nil {
		a.ending = a.smtp.Ending()
	}
	if a.ending == nil { // nothing was dialled
		a.socket.Close()
		return
	}
	a.socket.CloseWhen(a.ending)
}

// quit says QUIT. If the session is overdue, it waits only briefly for the answer.
func (a *sessionActor) quit() {
	if a.socket.WasEnded() {
		a.smtp.QuitWithin(quitSoon)
		return
	}
	a.smtp.Quit()
}

// runBeside runs work in a goroutine and sends its result to the parent. A panic is a fault of ours in this session
// alone. After a panic the session ends, and the parent asks its batch again.
func (a *sessionActor) runBeside(c actor.Context, id int, work func() any) {
	root, parent := c.ActorSystem().Root, c.Parent()
	a.working.Store(true)
	a.options.Guard.Go("session", func() {
		result := work()
		if a.smtp == nil || !a.smtp.Open() {
			a.untraced()
			a.free() // free the slot before the parent may open another session
		}
		a.working.Store(false)
		if a.leaving.Load() {
			a.leave()
		}
		root.Send(parent, result)
	}, func() {
		a.drop()
		a.working.Store(false)
		root.Send(parent, sessionCrashed{id: id})
	})
}

// sessionCrashed says that a fault of ours ended a session. Its batch is lost.
type sessionCrashed struct{ id int }

// open dials, if that is still permitted. If ApplyShares ended the session, that says nothing about the host.
func (a *sessionActor) open(m scheduler.OpenSession) any {
	if a.options.Fenced() || !a.socket.Begin(m.Version, a.cancel) {
		return sessionClosed{id: m.ID}
	}
	defer a.socket.MarkIdle()
	a.source = m.Source
	a.traced(m.Host)
	a.trace(m)
	s, err := a.source.Open(smtp.DialFrom(smtp.WithTracer(a.ctx, a.tracer), a.socket.From), m.Host, m.At, m.TLS)
	failed, is := errors.AsType[*smtp.Failure](err)
	if is {
		a.ending = failed.Ending()
	}
	if err == nil || is && failed.Reached() {
		a.socket.Reached()
	}
	if err != nil {
		if a.socket.From.IsValid() && errors.Is(err, syscall.EADDRINUSE) {
			a.socket.NotBound()
			return sessionClosed{id: m.ID}
		}
		if a.socket.WasEnded() {
			return sessionClosed{id: m.ID}
		}
		a.tracedFailure(err)
		judged := a.judgeFailure(m.Host, err)
		return sessionOpened{id: m.ID, failed: &judged}
	}
	a.smtp = s
	a.tracer.opened(s)
	a.at, a.greeter, a.refuses = m.At, egress.Greeter(m.Host, s.Greeting(), s.HelloReply()), false
	if a.options.Sources.Intercepts(a.greeter, time.Now()) {
		judged := a.intercepted(m.Host)
		return sessionOpened{id: m.ID, failed: &judged}
	}
	shown := throttle.Shown{Greeting: s.Greeting(), Hello: s.HelloReply(), Host: m.Host, Groups: s.Pipelining()}
	a.doubts = throttle.SoftwareOf(shown).Repeats
	return sessionOpened{id: m.ID, shown: shown}
}

func (a *sessionActor) judgeFailure(host string, err error) scheduler.Judgement {
	a.tracer.ended(err)
	f := &smtp.Failure{Stage: smtp.StageConnect, Err: err}
	errors.As(err, &f)
	judged := a.options.Judge(evidence.Raw{At: time.Now(), Host: host, Stage: f.Stage, Reply: f.Reply, Err: f.Err,
		Hello: a.source.Hello, ReturnPath: a.source.ReturnPath, Source: nameOf(f.Source, a.source),
		TLS: a.smtp != nil && a.smtp.TLS()})
	judged.NoHELO, judged.Lost = f.NoHELO, f.Lost()
	return judged
}

// intercepted ends a session in which another server answers in place of the host. Nothing is judged from such a
// session.
func (a *sessionActor) intercepted(host string) scheduler.Judgement {
	a.options.Metrics.CountIntercepted()
	judged := a.judgeFailure(host, a.foreign(smtp.StageGreeting))
	a.smtp.Quit()
	return judged
}

// foreign is the reason why an answer of another server, in place of the host, doesn't count.
func (a *sessionActor) foreign(stage smtp.Stage) *smtp.Failure {
	return &smtp.Failure{Stage: stage, Err: smtp.ErrIntercepted, Source: a.smtp.Source()}
}

// noteGreeter notes that the greeter of this session refused an address, or accepted a control probe. If this shows
// that the network is intercepted, the operator is told.
func (a *sessionActor) noteGreeter(code int, control bool) {
	sources, now := a.options.Sources, time.Now()
	switch {
	case code/100 == 5 && !a.refuses:
		a.refuses = true
		sources.NoteRefused(a.greeter, a.smtp.Host(), now)
	case code/100 == 2 && control && a.greeter != "" && sources.NoteAccepted(a.greeter, a.smtp.Host(), a.at, now):
		a.options.Log.Error("network intercepted: one server answers on port 25 in place of unrelated mail servers and accepts everything; "+
			"nothing is judged from it, let this node reach port 25 directly",
			"reason", smtp.Intercepted.String(), "greeting", a.greeter, "host", a.smtp.Host(),
			"source", nameOf(a.smtp.Source(), a.source))
	}
}

// begin asks, if that is still permitted. If ApplyShares ended the session, nothing is learned from that.
func (a *sessionActor) begin(m scheduler.AskProbes) scheduler.Report {
	if !a.socket.Begin(m.Version, a.cancel) {
		return scheduler.Report{ID: m.ID, Unanswered: m.Probes, Stale: a.socket.WasEnded()}
	}
	defer a.socket.MarkIdle()
	r := a.ask(m)
	if a.socket.WasEnded() {
		r.Failure, r.Cut, r.Poisoned, r.Stale = nil, false, false, true
	}
	return r
}

// mustStop reports whether no further RCPT of this batch may be sent. mustStop waits until that is known.
func (a *sessionActor) mustStop(m *scheduler.AskProbes) bool {
	over := func() bool {
		return a.leaving.Load() || a.socket.Halted.Load() || !a.socket.MayGoOn(m.Version) || a.options.Fenced() ||
			a.pauses() != m.Pauses
	}
	for a.options.Late != nil && a.options.Late() && !over() && a.ctx.Err() == nil {
		a.pause(lateEvery)
	}
	return over()
}

// ask sends the probes. ask stops when all are answered, when the session ends, or when an answer forbids more.
func (a *sessionActor) ask(m scheduler.AskProbes) scheduler.Report {
	r := scheduler.Report{ID: m.ID, Unanswered: m.Probes}
	if m.WasIdle && a.smtp.Poll() != nil {
		r.Stale = true
		return r
	}
	if a.options.Sources.Intercepts(a.greeter, time.Now()) {
		judged := a.intercepted(a.smtp.Host())
		r.Failure = &judged
		return r
	}
	if a.pause(m.After); m.RefusedMax <= 0 {
		return r
	}
	before := a.smtp.Counts()
	stop, err := a.probe(&r, &m)
	r.Unanswered = m.Probes[len(r.Answered):]
	now := a.smtp.Counts()
	r.Refused, r.Transactions = now.Refused-before.Refused, now.Mails-before.Mails
	r.OnWire = now.Rcpts - before.Rcpts - countAsked(r.Answered)
	switch {
	case stop == verdict.ActVoid: // answers after this one don't count
		last := r.Answered[len(r.Answered)-1].Judgement
		r.Failure, r.Poisoned = &last, true
		a.smtp.Quit()
	case err != nil:
		a.fail(&r, err)
	case !a.smtp.Open(): // ended by 421 to RCPT, or stopped
		a.over(&r)
	}
	return r
}

// over completes the report of a session that ended without an error: by a 421 to the last RCPT, or because its context
// ended just when the last reply came.
func (a *sessionActor) over(r *scheduler.Report) {
	if n := len(r.Answered); n > 0 && r.Answered[n-1].Judgement.Attempt.Code == 421 {
		last := r.Answered[n-1].Judgement
		r.Failure, r.Cut = &last, true
		return
	}
	judged := a.judgeFailure(a.smtp.Host(), smtp.ErrClosed)
	r.Failure = &judged
}

// pause waits, unless the actor is stopped.
func (a *sessionActor) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
	}
}

// countAsked returns how many of the answers came from the receiver.
func countAsked(got []scheduler.Answered) int {
	n := 0
	for _, one := range got {
		if one.Judgement.Attempt.Code != 0 {
			n++
		}
	}
	return n
}

// room is the memory for one batch. The next batch uses it again.
type room struct {
	addresses []smtp.Address
	answers   []smtp.Answer
}

var rooms = sync.Pool{New: func() any { return &room{} }}

// emptyRoom clears the room and makes it free for reuse.
func (w *room) emptyRoom() {
	clear(w.addresses)
	clear(w.answers)
	w.addresses, w.answers = w.addresses[:0], w.answers[:0]
	rooms.Put(w)
}

// probe asks the remaining probes of a report and judges each answer as it comes. If an answer's action ends the
// probing early, probe returns that action. Later commands of the same group are answered too. After a harvest guard
// has spoken, no answer counts.
func (a *sessionActor) probe(r *scheduler.Report, m *scheduler.AskProbes) (verdict.Action, error) {
	w := rooms.Get().(*room)
	defer w.emptyRoom()
	for _, p := range r.Unanswered {
		w.addresses = append(w.addresses, p.Address)
	}
	stop := verdict.ActNone
	r.Answered = scheduler.MakeAnswered(len(r.Unanswered))
	judged := r.Answered[:len(r.Unanswered)] // judged by what was asked
	ask := smtp.Ask{Pipelining: m.Pipelining, RefusedMax: m.RefusedMax, Hold: func() bool { return a.mustStop(m) },
		Sizes: func() (int, int) { return m.Transaction.Now(), m.Group.Now() }, Doubt: a.doubts, Room: w.answers}
	at := 0 // index in r.Rest; what can't be asked is skipped
	ask.Stop = func(address smtp.Address, reply smtp.Reply) bool {
		for r.Unanswered[at].Address != address {
			at++
		}
		judgement := &judged[at].Judgement
		*judgement = a.judge(r.Unanswered[at], smtp.Answer{Reply: reply, At: time.Now()})
		at++
		if judgement.Verdict.Outcome == smtp.Undecided {
			m.Group.OnOther()
		} else {
			m.Group.OnPlain()
			m.Transaction.OnPlain()
		}
		if scheduler.EndsBatch(judgement) && (stop == verdict.ActNone || judgement.Verdict.Action == verdict.ActVoid) {
			stop = judgement.Verdict.Action
		}
		return stop != verdict.ActNone
	}
	answers, err := a.smtp.Probe(a.ctx, w.addresses, ask)
	w.answers = answers
	for i := range answers {
		one, got := &answers[i], &judged[i]
		if one.Err != nil || i >= at { // the probe can't be asked, or a 421 ended the session
			if one.Err != nil {
				one.At = time.Now()
			}
			got.Judgement = a.judge(r.Unanswered[i], *one)
		}
		got.Probe, got.Sent, got.At, got.Nth, got.Led = r.Unanswered[i], one.Sent, one.At, one.Nth, one.Led
		r.Answered = judged[:i+1]
		if stop == verdict.ActVoid && got.Judgement.Verdict.Action == verdict.ActVoid {
			break
		}
	}
	if len(r.Answered) == 0 { // the replies are out of step: none is an answer
		stop = verdict.ActNone
	}
	return stop, err
}

// nameOf names our address: the session's or, without a session, the source's.
func nameOf(used netip.Addr, s *egress.Source) string {
	if used.IsValid() {
		return used.String()
	}
	return s.Name()
}

func (a *sessionActor) judge(p *scheduler.Probe, one smtp.Answer) scheduler.Judgement {
	a.noteGreeter(one.Reply.Code, p.IsControl())
	raw := func() evidence.Raw {
		return evidence.Raw{At: one.At, Host: a.smtp.Host(), Stage: smtp.StageRcpt, Reply: one.Reply,
			Err: one.Err, Address: p.Address, Hello: a.source.Hello, ReturnPath: a.source.ReturnPath,
			Source: nameOf(a.smtp.Source(), a.source), TLS: a.smtp.TLS()}
	}
	if one.Reply.Code/100 == 2 && a.options.Sources.Doubts(a.greeter, a.smtp.Host(), time.Now()) {
		a.options.Metrics.CountIntercepted()
		one.Reply, one.Err = smtp.Reply{}, a.foreign(smtp.StageRcpt)
		return a.options.Judge(raw())
	}
	return a.repeated.Judge(&a.options, p.Address, one, raw)
}

func (a *sessionActor) fail(r *scheduler.Report, err error) {
	a.tracedFailure(err)
	judged := a.judgeFailure(a.smtp.Host(), err)
	r.Failure = &judged
	r.Cut = judged.Attempt.Stage >= smtp.StageRcpt || judged.Attempt.Code == 421
	if a.smtp.Open() {
		a.smtp.Quit()
	}
}
