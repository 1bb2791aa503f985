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

// Options are shared by all domain actors of a node. All fields are required.
type Options struct {
	Route func(ctx context.Context, domain string) (mx.Route, error)
	Match func(r mx.Route) string // the key of a route's receiver
	// Version changes when Match or Waits may return something else. The key is then looked up anew. Version must not
	// block.
	Version func() uint64
	Resolve func(identity string) *actor.PID // finds the receiver of a key; may take a second; nil: not now
	Facts   *Facts
	Load    *Load
	// Waits returns the waits between attempts at one address, by the key of its receiver. The waits hold when the
	// receiver names no time. The list has at least one wait, all are positive, and the last one repeats.
	Waits func(key string) []time.Duration
	// GiveUpAfter is how long an address stays open after its first attempt.
	GiveUpAfter time.Duration
	// ControlPauses are the pauses between control probes of one domain; the last one repeats. The pauses have to be long
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

// Work is what a domain actor works on.
type Work struct {
	Verification uuid.UUID
	Workspace    uuid.UUID // the workspace whose share of a receiver counts
	Epoch        int64
	Domain       string   // the mail domain as a lower-case A-label
	Tries        int      // how many actors were begun before for the same work and epoch
	Ordinals     []uint32 // ordinals that are not settled, each once, at least one; read only
	Local        func(ordinal uint32) string
	Deadline     time.Time // then open addresses become unknown; zero: no deadline
	Left         *Parked   // the state that another actor left; nil: none

	// LedgerBehind is true while too many outcomes wait for the ledger. No addresses are offered until CaughtUp. Nil:
	// never true.
	LedgerBehind *atomic.Bool
}

// Final is the outcome of one address.
type Final struct {
	Ordinal uint32
	Outcome smtp.Outcome
	Reason  smtp.Reason
	At      time.Time // time of the evidence
	Case    evidence.Case
}

// Finals are outcomes that a domain sends to its parent, each ordinal once. Done: nothing is left, and the actor may be
// stopped.
type Finals struct {
	Domain string
	Finals []Final
	Done   bool
}

// Hold is sent by a parent when outcomes can't be settled. The domains take back what isn't asked yet and offer
// nothing, so that another node has little to ask again if it takes the work over. Hold with On false ends this.
type Hold struct{ On bool }

// CaughtUp is sent by a parent when Work.LedgerBehind has become false.
type CaughtUp struct{}

// Quiet is sent by a domain when all its open addresses wait for a time. When it resumes, it sends the zero time.
type Quiet struct {
	Domain string
	Until  time.Time
}
