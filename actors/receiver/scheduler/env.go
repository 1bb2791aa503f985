package scheduler

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/facts"
	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/receiver/registry"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// env is what all parts of a scheduler share: the limits in force, and values by which one part tells another
// something. The values are steps for the shell, halts for the sessions, and notes for people.
type env struct {
	options    Options
	key        string
	rand       *rand.Rand               // random numbers, so that waits don't all end at once
	steps      []Step                   // steps for the next plan to return
	now        time.Time                // time of the newest plan
	limits     throttle.Limits          // the limits in force: our share, lowered by what was learned
	fair       *fairqueue.Queue[*Probe] // the waiting probes, shared out fairly
	halts      []Halt                   // halts that aren't carried out yet
	notes      []note                   // recent findings, for people
	wake       time.Time                // the earliest reason to plan again
	dirty      bool                     // something was learned that isn't stored yet
	handingOff bool                     // the receiver has moved to another node
}

func (e *env) emitTo(to Client, msg proto.Message) {
	e.steps = append(e.steps, Send{To: to, Msg: msg})
}

func (e *env) jitter(most time.Duration) time.Duration {
	return time.Duration(e.rand.Int64N(int64(max(1, most))))
}

// wakeAt asks for a plan no later than t.
func (e *env) wakeAt(t time.Time) {
	e.wake = sooner(e.wake, t)
}

// Halt selects sessions that must begin no more of their probes. A zero field selects all.
type Halt struct {
	path  *egressPath
	route *route
	host  string
}

// names reports whether the halt selects a session.
func (h *Halt) names(s *session) bool {
	return (h.path == nil || s.path == h.path) && (h.route == nil || s.queue.route == h.route) &&
		(h.host == "" || s.host.host == h.host)
}

// halt stops sessions from beginning more of their probes.
func (e *env) halt(h Halt) { e.halts = append(e.halts, h) }

// notesMax bounds the notes that are kept.
const notesMax = 8

// note is a finding about a receiver: a sentence and its time.
type note struct {
	at  time.Time
	why string
}

func (n *note) sentence() string { return n.at.UTC().Format(time.TimeOnly) + ": " + n.why }

// noteChange keeps a finding, for people.
func (e *env) noteChange(now time.Time, why string) {
	e.notes = append(e.notes, note{now, why})
	if len(e.notes) > notesMax {
		e.notes = e.notes[1:]
	}
}

func (e *env) flowOf(t *task) *flow { return e.fair.Flow(t.space, t.key.Verification) }

// Step is an instruction to the shell.
type Step any

// Send sends a message to a client.
type Send struct {
	To  Client
	Msg proto.Message
}

// OpenSession dials a candidate.
type OpenSession struct {
	ID      int
	Source  *egress.Source
	Host    string
	At      netip.Addr
	TLS     smtp.TLSMode
	Version uint64 // version of the share that permits this step
	Slot    *registry.ConnSlot
}

// AskProbes gives probes to an open session.
type AskProbes struct {
	ID          int
	After       time.Duration // delay before the first one
	Probes      []*Probe
	RefusedMax  int
	Pipelining  bool
	Transaction throttle.Growing // RCPTs in a transaction
	Group       throttle.Growing // RCPTs in a group of commands
	WasIdle     bool             // the session was idle for long, so it may be dead
	Version     uint64           // version of the share that permits this step
	Pauses      uint64           // earlier long pauses of the process; set by the shell
}

// QuitSession ends a session with QUIT.
type QuitSession struct{ ID int }

// DropSession forgets a session that is over.
type DropSession struct{ ID int }

// KnowFact asks for the stored snapshot of a receiver.
type KnowFact struct{ Key string }

// KeepFact stores what was learned of a receiver.
type KeepFact struct{ Fact facts.Fact }

// Depart ends the actor. The actor's clients have been notified.
type Depart struct {
	Fact *facts.Fact // a fact to be stored first; nil: none
}
