package transitions

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Engine is the half of a ledger.Book that writes verifications and credits. Safe
// for concurrent use if its database is.
type Engine struct {
	db      Database
	settled *settledSets
}

// New makes the transitions of a database.
func New(db Database) Engine {
	return Engine{db: db, settled: &settledSets{sets: map[uuid.UUID]*settledSet{}, most: settledBytesMax}}
}

// one checks that a conditional change met exactly its row.
func one(n int64, err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n != 1 {
		return fmt.Errorf("%s: %d rows changed, 1 expected", what, n)
	}
	return nil
}

// ErasedMax bounds the chunks that one transaction erases, so that other writers do not wait
// for long: 16 MiB as uploads are cut. The rest of a larger file goes right after it.
const ErasedMax = 64

// move is a step of a verification to another state. Everything that changes a
// status goes through it.
type move struct {
	to    ledger.Status
	issue *ledger.Issue // of the new state
	next  int64         // when something is due, milliseconds; for waiting for receivers only
	// expected is when the last address is expected to be final, milliseconds; 0: not
	// known, as while cancelling and when it is over.
	expected int64
	held     ledger.Credits
	more     int64 // addresses that are cancelled by the step
	lease    bool  // whether the lease stays
	wake     int64 // no node takes it before, milliseconds; 0: as it was, or at once if there was no work in it before
}

// WakeBack is how far in the past the time may be from which there is work in a verification, when it comes to have some:
// who looks for work looks from some time before now. Within that time files are leased in the order of their creates.
const WakeBack = 30 * time.Second

// step makes a move in the row and in v. ErrIllegal when there is no such step.
func step(t Tables, v *Row, m move) error {
	before := *v
	v.Status, v.Issue, v.NextTry, v.Held = m.to, m.issue, ledger.Clock(m.next), m.held
	v.Expected = ledger.Clock(m.expected)
	v.Counts.Cancelled += m.more
	if err := ledger.Step(before.State(), v.State()); err != nil {
		return err
	}
	if v.Issue != nil && v.Issue.Code == ledger.ReceiversWait && v.State() != ledger.WaitingReceivers {
		return fmt.Errorf("%s and waits for receivers: %w", v.State(), ledger.ErrIllegal)
	}
	if m.to.Final() && before.unread() {
		// Nobody will read these bytes: they go with the step, not after a time.
		left, err := t.EraseUpload(v.ID, ErasedMax)
		if err != nil {
			return fmt.Errorf("erase upload: %w", err)
		}
		v.UploadDeleted = !left
	}
	if m.to.Final() {
		v.Completed = ledger.Clock(max(v.Now, ledger.Millis(v.Created))) // a clock set back makes no negative time
	}
	v.WaitingSince = 0
	if v.State() == ledger.WaitingCredits {
		v.WaitingSince = v.Now
	}
	if !m.lease {
		v.Node, v.LeaseExpires = uuid.Nil, 0
	}
	if m.wake == 0 && v.State().Runnable() && !before.State().Runnable() {
		m.wake = ledger.Millis(v.Created)
	}
	if m.wake > 0 {
		v.WakeAt = max(m.wake, v.Now-WakeBack.Milliseconds())
	}
	n, err := t.Move(Step{Before: &before, After: v})
	if err := one(n, err, "move to "+string(m.to)); err != nil {
		return err
	}
	if before.mayBeParked() && (m.to.Final() || m.to == ledger.Cancelling) {
		return t.ForgetParked(v.ID)
	}
	return nil
}

// worked runs do on a verification that the caller has leased, in one
// transaction. again says that an earlier run of the same call was committed, so
// that its result stands although the lease may be gone. ErrNoSuchVerification,
// ErrStaleEpoch.
func (e Engine) worked(ctx context.Context, l ledger.Lease, again func(v *Row) bool,
	do func(t Tables, v *Row) error) (ledger.Verification, error) {
	return e.workedIn(ctx, Scope{}, l, again, do)
}

// paid is worked for what may change the account of the verification's workspace. The context mostly says
// whose that is; otherwise it is looked up.
func (e Engine) paid(ctx context.Context, l ledger.Lease, again func(v *Row) bool,
	do func(t Tables, v *Row) error) (ledger.Verification, error) {
	in := Scope{Workspace: ledger.TenantOf(ctx), Account: true}
	if in.Workspace == uuid.Nil {
		err := e.db.View(ctx, func(t Tables) error {
			v, err := t.Read(l.Verification)
			if err == nil {
				in.Workspace = v.Workspace
			}
			return err
		})
		if err != nil {
			return ledger.Verification{}, err
		}
	}
	return e.workedIn(ctx, in, l, again, do)
}

// workedIn is worked in a scope.
func (e Engine) workedIn(ctx context.Context, in Scope, l ledger.Lease, again func(v *Row) bool,
	do func(t Tables, v *Row) error) (ledger.Verification, error) {
	var v *Row
	err := e.db.Update(ctx, in, func(t Tables) (err error) {
		if v, err = t.Read(l.Verification); err != nil {
			return err
		}
		switch {
		case v.Epoch == l.Epoch && again(v):
			return nil
		case !v.HeldBy(l):
			return ledger.ErrStaleEpoch
		}
		return do(t, v)
	})
	if err != nil {
		return ledger.Verification{}, err
	}
	return v.Verification, nil
}
