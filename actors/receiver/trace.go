package receiver

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/view"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

const (
	// tracesMax bounds the receivers that are traced at once on a node.
	tracesMax = 4

	// traceLines bounds the lines that are kept of each, some 300 KB: what is asked for
	// each second loses nothing below 1,000 lines a second.
	traceLines = 1_000

	// traceFor is how long a receiver is traced after it was asked for last.
	traceFor = 10 * time.Second
)

// ErrTraces says that as many receivers are traced as a node bears.
var ErrTraces = fmt.Errorf("receiver: %d receivers are traced already: end one of these first, it takes %s",
	tracesMax, traceFor)

// traces are the receivers of a node that somebody looks at. Safe for concurrent use; the
// zero value is ready.
type traces struct {
	on atomic.Int32 // how many; no session looks any further while it is 0

	mu     sync.Mutex
	of     map[string]*trace // guarded by mu; by key, as it was asked for
	number uint64            // guarded by mu; of the newest line
}

// trace is what the sessions of one receiver, or of what a rule's name stands for, say.
type trace struct {
	stands func(key string) bool
	until  atomic.Int64     // Unix nanoseconds
	lines  []view.TraceLine // guarded by traces.mu; a ring
	next   int              // guarded by traces.mu; its oldest, when it is full
}

// Trace gives the newest lines of a receiver's sessions, from one source or all ("*"),
// whose numbers are above after. The first call begins it, and it ends ten seconds after
// the last. The key may be the name of a rule. Errors: ErrTraces.
func (l *Living) Trace(now time.Time, key, source string, after uint64) ([]view.TraceLine, error) {
	t := &l.traces
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	one := t.of[key]
	if one == nil {
		if len(t.of) >= tracesMax {
			return nil, ErrTraces
		}
		if t.of == nil {
			t.of = map[string]*trace{}
		}
		one = &trace{stands: standsFor(key)}
		t.of[key] = one
		t.on.Store(int32(len(t.of)))
	}
	one.until.Store(now.Add(traceFor).UnixNano())
	out := []view.TraceLine{}
	for i := range one.lines {
		line := &one.lines[(one.next+i)%len(one.lines)]
		if line.Number > after && (source == AnySource || line.Source == source) {
			out = append(out, *line)
		}
	}
	return out, nil
}

// AnySource stands for all sources of a node; "" is the one that the system chooses.
const AnySource = "*"

// expire ends the traces that nobody asks for any more. Under mu.
func (t *traces) expire(now time.Time) {
	for key, one := range t.of {
		if now.UnixNano() >= one.until.Load() {
			delete(t.of, key)
		}
	}
	t.on.Store(int32(len(t.of)))
}

// add puts a line into the traces of a receiver.
func (t *traces) add(now time.Time, key string, line view.TraceLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if t.number == 0 { // whoever follows the lines does so beyond the life of the process
		t.number = uint64(max(0, now.UnixMicro()))
	}
	t.number++
	line.Number = t.number
	for _, one := range t.of {
		if !one.stands(key) {
			continue
		}
		if len(one.lines) < traceLines {
			one.lines = append(one.lines, line)
			continue
		}
		one.lines[one.next] = line
		one.next = (one.next + 1) % traceLines
	}
}

// tracer is the smtp.Tracer of one session.
type tracer struct {
	traces  *traces
	key     string // of the receiver
	session int
	source  *egress.Source
	host    string
}

// trace makes the tracer of a session that is about to be opened.
func (a *sessionActor) trace(m openSession) {
	a.tracer = &tracer{traces: &a.socket.place.living.traces, key: a.socket.place.key, session: m.id,
		source: m.source, host: m.host.host}
	if a.tracer.On() {
		a.tracer.line("* dialling " + m.host.at.String())
	}
}

// On implements smtp.Tracer.
func (t *tracer) On() bool { return t.traces.on.Load() > 0 }

// Said implements smtp.Tracer.
func (t *tracer) Said(command string) { t.line("> " + command) }

// Heard implements smtp.Tracer.
func (t *tracer) Heard(reply smtp.Reply, of smtp.Address) {
	text := scrub(evidence.Clean(evidence.Raw{Reply: reply, Address: of, Hello: t.source.Hello,
		ReturnPath: t.source.ReturnPath, Source: t.source.Name()}), of.Local)
	if reply.Enhanced != (smtp.EnhancedCode{}) {
		text = reply.Enhanced.String() + " " + text
	}
	t.line(fmt.Sprintf("< %d %s", reply.Code, text))
}

// opened notes that a session is ready.
func (t *tracer) opened(s *smtp.Session) {
	if !t.On() {
		return
	}
	if s.TLS() {
		t.line("* ready, encrypted")
	} else {
		t.line("* ready, in clear text")
	}
}

// ended notes why a session did not open, or ended.
func (t *tracer) ended(err error) {
	if t == nil || !t.On() {
		return
	}
	f := &smtp.Failure{Err: err}
	errors.As(err, &f)
	if f.Reply.Code != 0 {
		t.line(fmt.Sprintf("* over: the receiver ended it with %d at %s", f.Reply.Code, f.Stage))
		return
	}
	t.line(fmt.Sprintf("* over: %s at %s", evidence.Note(evidence.Raw{Err: f.Err}).Trouble, f.Stage))
}

func (t *tracer) line(text string) {
	now := time.Now()
	t.traces.add(now, t.key, view.TraceLine{At: now, Session: t.session, Source: t.source.Name(), Host: t.host,
		Line: text})
}
