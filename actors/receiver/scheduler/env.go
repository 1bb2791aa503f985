package scheduler

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/receiver/egress"
	"rollcall/actors/receiver/registry"
	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// env is what every part of a scheduler has in common.
type env struct {
	options    Options
	key        string
	rand       *rand.Rand // for waits that should not all end at once
	steps      []Step     // that the next plan gives
	now        time.Time  // of the newest plan
	wake       time.Time  // earliest reason to plan again
	dirty      bool       // something was learned and not noted
	handingOff bool       // the place has moved
}

func (e *env) emitTo(to Client, msg proto.Message) {
	e.steps = append(e.steps, Send{To: to, Msg: msg})
}

// jitter returns a random time below most.
func (e *env) jitter(most time.Duration) time.Duration {
	return time.Duration(e.rand.Int64N(int64(max(1, most))))
}

// wakeAt asks to be woken no later than t.
func (e *env) wakeAt(t time.Time) {
	if !t.IsZero() && (e.wake.IsZero() || t.Before(e.wake)) {
		e.wake = t
	}
}

// Step is one thing that the shell has to do.
type Step any

// Send gives a message to a client.
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
	Version uint64 // under which that is permitted
	Slot    *registry.ConnSlot
}

// AskProbes gives probes to an open session.
type AskProbes struct {
	ID          int
	After       time.Duration // to wait first
	Probes      []*Probe
	RefusedMax  int
	Pipelining  bool
	Transaction throttle.Growing // RCPTs of one
	Group       throttle.Growing // RCPTs of a group of commands
	Rested      bool             // the session was idle for long: it may be gone
	Version     uint64           // under which that is permitted
	Pauses      uint64           // long pauses of the process before; the shell knows
}

// QuitSession ends a session politely.
type QuitSession struct{ ID int }

// DropSession forgets a session that is over.
type DropSession struct{ ID int }

// KnowFact asks for what is known of a receiver.
type KnowFact struct{ Key string }

// KeepFact keeps what was learned of a receiver.
type KeepFact struct{ Fact state.Fact }

// Depart ends the actor: all that could be told has been told.
type Depart struct {
	Fact   *state.Fact // to be kept before; nil: nothing
	InTime bool        // every session has ended by itself
}
