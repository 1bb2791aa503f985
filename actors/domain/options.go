package domain

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
)

// Options is what every domain actor of a node shares. All fields are required.
type Options struct {
	Route func(ctx context.Context, domain string) (mx.Route, error)
	Match func(r mx.Route) string // the key of the receiver of a route
	// Version changes when the answers of Match or Waits may have changed; the key is then looked up anew. It must not
	// block.
	Version func() uint64
	Resolve func(identity string) *actor.PID // of a receiver's key; may wait a second; nil: not now
	Facts   *Facts
	Load    *Load
	// Waits returns the waits between attempts at one address if its receiver, by its key, names no time: at least
	// one, all positive. The last one repeats.
	Waits func(key string) []time.Duration
	// GiveUpAfter is how long an address stays open after its first attempt.
	GiveUpAfter time.Duration
	// ControlPauses are the pauses between control probes of one domain; the last one repeats. They have to be long
	// enough for another session, and for a guard that counts by the minute.
	ControlPauses []time.Duration
	Log           *slog.Logger
}

// Validate returns an error that names a missing option.
func (o Options) Validate() error {
	switch {
	case o.Route == nil || o.Match == nil || o.Version == nil || o.Resolve == nil || o.Waits == nil:
		return errors.New("domain options: route, match, version, resolve or waits is nil")
	case o.Facts == nil || o.Load == nil || o.Log == nil:
		return errors.New("domain options: no facts, load or logger")
	case len(o.ControlPauses) == 0 || slices.Min(o.ControlPauses) <= 0 || o.GiveUpAfter <= 0:
		return errors.New("domain options: no pauses between control probes, one that is not positive, or no time to give up")
	}
	return nil
}

// Work is what a domain actor is made for.
type Work struct {
	Verification uuid.UUID
	Workspace    uuid.UUID // for its share of a receiver
	Epoch        int64
	Domain       string   // lower-case A-label
	Tries        int      // how often an actor for the same work and epoch was begun before
	Ordinals     []uint32 // not settled, each once, at least one; read only
	Local        func(ordinal uint32) string
	Deadline     time.Time // what is open then becomes unknown; zero: no deadline
	Left         *Parked   // the state another actor left of this work; nil: none

	// LedgerBehind: too many outcomes wait for the ledger, so no more addresses are offered until CaughtUp. Nil: never.
	LedgerBehind *atomic.Bool
}

// Final is the outcome of one address.
type Final struct {
	Ordinal uint32
	Outcome smtp.Outcome
	Reason  smtp.Reason
	At      time.Time // of the evidence
	Case    evidence.Case
}

// Finals are outcomes that a domain sends its parent, each ordinal once. With Done nothing is left and the actor may be
// stopped.
type Finals struct {
	Domain string
	Finals []Final
	Done   bool
}

// Hold is what a parent sends its domains when outcomes can't be settled: they take back what isn't asked yet and offer
// nothing until Hold with On false, so that a node that takes the work over has little to ask again.
type Hold struct{ On bool }

// CaughtUp is what a parent sends its domains when Work.LedgerBehind is over.
type CaughtUp struct{}

// Quiet is what a domain sends its parent when all its open addresses wait for a time, and again, with the zero time,
// when it resumes.
type Quiet struct {
	Domain string
	Until  time.Time
}
