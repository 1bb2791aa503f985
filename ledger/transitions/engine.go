package transitions

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Engine is the part of a ledger.Book that writes verifications and credits. Safe for concurrent use if its database
// is.
type Engine struct {
	db      rowsOf
	settled *settledSets
}

// New makes an Engine on a database.
func New(db Database) Engine {
	return Engine{db: rowsOf{db}, settled: &settledSets{sets: map[uuid.UUID]*settledSet{}, most: settledBytesMax}}
}

// one checks that a conditional change met exactly its row.
func one(n int64, err error, what string) error {
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed, 1 expected", n)
	}
	return ledger.Wrap(err, "%s", what)
}

// ErasedMax bounds the chunks that one transaction erases, so that other writers do not wait long: 16 MiB with
// uploads' usual chunks. The rest of a larger file is erased right after.
const ErasedMax = 64

// move is a verification's step to another state. Every change of status goes through it.
type move struct {
	to    ledger.Status
	issue *ledger.Issue // of the new state
	next  int64         // when something is due, milliseconds; only for waiting for receivers
	// expected is when the last address is expected to be final, milliseconds; 0: unknown, as while cancelling and
	// at the end.
	expected int64
	held     ledger.Credits
	more     int64 // addresses that the step cancels
	lease    bool  // whether the lease stays
	wake     int64 // nodes may take it from then on, milliseconds; 0: unchanged, or at once if it had no work before
}

// WakeBack is how far in the past the wake time of new work may be: queries for work begin some time before now.
// Files that become due within that time are leased in the order of their creation.
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
		// Nobody will read these bytes, so the step erases them.
		left, err := t.EraseUpload(v.ID, ErasedMax)
		if err != nil {
			return fmt.Errorf("erase upload: %w", err)
		}
		v.UploadDeleted = !left
	}
	if m.to.Final() {
		v.Completed = ledger.Clock(max(v.Now, ledger.Millis(v.Created))) // never before Created, even after a clock jump
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
	wasReturned := before.Epoch > 1 || before.Node == uuid.Nil // only then may the state of its work be stored
	if before.State().Funded() && wasReturned && (m.to.Final() || m.to == ledger.Cancelling) {
		return t.ForgetParked(v.ID)
	}
	return nil
}

// paid is worked for changes that may affect the workspace's account. The workspace usually comes from the context;
// otherwise it is looked up.
func (e Engine) paid(ctx context.Context, l ledger.Lease, again func(v *Row) bool,
	do func(t Tables, v *Row) error) (ledger.Verification, error) {
	in := Scope{Workspace: ledger.TenantOf(ctx), Account: true}
	if in.Workspace == uuid.Nil {
		v, err := e.db.readRow(ctx, l.Verification)
		if err != nil {
			return ledger.Verification{}, err
		}
		in.Workspace = v.Workspace
	}
	return e.worked(ctx, in, l, again, do)
}

// rowsOf runs transactions about one verification.
type rowsOf struct{ Database }

func (db rowsOf) readRow(ctx context.Context, id uuid.UUID) (v *Row, err error) {
	err = db.View(ctx, func(t Tables) (err error) {
		v, err = t.Read(id)
		return err
	})
	return v, err
}

// worked runs do on a verification that the caller has leased, in one transaction. If again reports that an earlier
// run of the same call was committed, that result counts even if the lease has ended since. ErrNoSuchVerification,
// ErrStaleEpoch.
func (e Engine) worked(ctx context.Context, in Scope, l ledger.Lease, again func(v *Row) bool,
	do func(t Tables, v *Row) error) (ledger.Verification, error) {
	return e.db.updateRow(ctx, in, func(t Tables) (*Row, error) {
		v, err := t.Read(l.Verification)
		switch {
		case err != nil:
		case v.Epoch == l.Epoch && again(v):
		case !v.HeldBy(l):
			err = ledger.ErrStaleEpoch
		default:
			err = do(t, v)
		}
		return v, err
	})
}

// writeFree runs do in one transaction that changes no account.
func (db rowsOf) writeFree(ctx context.Context, do func(t Tables) error) error {
	return db.Update(ctx, Scope{}, do)
}

// updateRow runs do in one transaction, and returns its verification.
func (db rowsOf) updateRow(ctx context.Context, in Scope, do func(t Tables) (*Row, error)) (
	ledger.Verification, error) {
	var v *Row
	err := db.Update(ctx, in, func(t Tables) (err error) {
		v, err = do(t)
		return err
	})
	if err != nil {
		return ledger.Verification{}, err
	}
	return v.Verification, nil
}

// Database runs transactions on the tables.
type Database interface {
	// Update runs do in one serialisable transaction and commits it. do may run several times: outside the
	// transaction it may only change variables that it sets anew in each run.
	Update(ctx context.Context, in Scope, do func(t Tables) error) error
	// View runs do for reading only; each query has its own snapshot.
	View(ctx context.Context, do func(t Tables) error) error
}

// Scope is what a transaction is about. Transactions with conflicting scopes can wait for each other before they
// begin. It does not change their effect.
type Scope struct {
	Workspace uuid.UUID // zero: the one in the context, see ledger.TenantOf
	Account   bool      // the workspace's account may change
}

// Row is one verification as stored, read at the time Now.
type Row struct {
	ledger.Verification
	Writer         int64     // fence of the upload: only the newest writer may append
	Node           uuid.UUID // the lease's node; the zero value: none
	LeaseExpires   int64     // milliseconds
	WaitingSince   int64     // for credits, milliseconds; 0: not waiting
	WakeAt         int64     // nodes may take it from then on, milliseconds
	Crashes        int       // of nodes that worked on it
	Paid           bool      // it holds or held credits
	ResultsDeleted bool
	Now            int64 // milliseconds, by the database's clock
}

// Entry is one immutable movement of credits.
type Entry struct {
	Subject   uuid.UUID // the grant, or the verification
	Number    int64     // of the settlement; 0: none
	Kind      ledger.EntryKind
	Workspace uuid.UUID
	Amount    ledger.Credits
	Reason    string
	Author    string // of a grant
}

// Step is a change of a verification's row. It takes effect only if status, epoch and number of settlements are
// still as they were read.
type Step struct {
	Before, After *Row
}

// Tables are the rows of one transaction. Each method is one statement. Those that return a number changed that many
// rows, 0 when their condition did not hold.
type Tables interface {
	// Doubt reports whether an earlier run of this transaction may have been committed.
	Doubt() bool

	// Account reads a workspace's balance. ledger.ErrNoSuchWorkspace.
	Account(workspace uuid.UUID) (ledger.Balance, error)
	// Credit adds by to a workspace's account if the given amount is available.
	Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error)
	// Enter writes entries, and adds each to the sum of its workspace, kind and day; their key (subject, number,
	// kind) refuses duplicates. Call it after Credit: entries refer to the workspace, so writing them reads the
	// account's row, and a transaction that reads a row before changing it can lose against a concurrent one.
	Enter(entries ...Entry) error
	// Granted reads the entry of a grant; nil when there is none.
	Granted(id uuid.UUID) (*Entry, error)
	// Log writes a line of the operator log with the time now and the context's author. It makes an id for a nil ID,
	// and does not write an existing line again. ledger.ErrIllegal for an author that cannot be stored.
	Log(l ledger.LogLine) error

	// Read reads a verification by its id, ReadOf by id and workspace, ReadIdentity by idempotency key.
	// ledger.ErrNoSuchVerification.
	Read(id uuid.UUID) (*Row, error)
	ReadOf(workspace, id uuid.UUID) (*Row, error)
	ReadIdentity(workspace, identity uuid.UUID) (*Row, error)
	// Await is Read, and waits for a transaction that is changing the row. Afterwards, an earlier run with an
	// unknown commit is certainly either committed or not.
	Await(id uuid.UUID) (*Row, error)
	// Limits reads the limits set for a workspace; 0 is the default.
	Limits(workspace uuid.UUID) (ledger.Limits, error)
	// Open counts the verifications of a workspace that are not final.
	Open(workspace uuid.UUID) (int64, error)
	// Stored adds up the declared bytes of uploads that are not erased.
	Stored(workspace uuid.UUID) (int64, error)
	// Unpaid counts the verifications of ledger.UnpaidWithin that never held a credit.
	Unpaid(workspace uuid.UUID) (Unpaid, error)
	// Room returns ledger.ErrNoRoom while the ledger accepts no new verification and no chunk.
	Room() error
	// Unfunded returns the oldest waiting verification that the available credits cover; nil when there is none.
	Unfunded(workspace uuid.UUID) (*Row, error)
	// Short lists the credits that each waiting verification of a workspace needs.
	Short(workspace uuid.UUID) (map[uuid.UUID]int64, error)
	// Tell updates the message of a verification that waits for credits.
	Tell(id uuid.UUID, message string) error
	// Insert makes a verification that is uploading; single is the address of one of kind Single, "" for a file.
	Insert(n ledger.NewVerification, single string) error
	// Move writes status, issue, next try, expected end, held credits, cancelled addresses, times of completion,
	// waiting and waking, crashes, the lease, and whether it was paid and its upload erased.
	Move(s Step) (int64, error)
	// Measure writes what intake found: rows, duplicates, total.
	Measure(s Step) (int64, error)

	// Fence makes the caller the newest writer of an upload.
	Fence(id uuid.UUID, from, to int64) (int64, error)
	// Chunk reads the stored chunk at offset; nil when there is none.
	Chunk(id uuid.UUID, offset int64) ([]byte, error)
	// Append stores a chunk.
	Append(id uuid.UUID, offset int64, data []byte) error
	// EraseUpload deletes at most that many chunks, and reports whether more may be left.
	EraseUpload(id uuid.UUID, most int64) (left bool, err error)
	// Lengthen adds to the number of stored bytes, for the newest writer only.
	Lengthen(id uuid.UUID, writer, from, to int64) (int64, error)

	// Free lists free verifications with work in the order of their wake times, without the workspaces in except.
	Free(limit int, except []uuid.UUID) ([]*Row, error)
	// Take leases a verification to a node at the next epoch.
	Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error)
	// Renew extends all unexpired leases of a node and returns them.
	Renew(node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error)
	// Drop ends a lease.
	Drop(id uuid.UUID, epoch int64) (int64, error)
	// KeepParked replaces the stored state of a verification's work, and ForgetParked deletes it.
	KeepParked(id uuid.UUID, state []byte) error
	ForgetParked(id uuid.UUID) error

	// Settle appends the results of one settlement.
	Settle(n ledger.Settlement, p ledger.Payload) error
	// KeepEvidence adds the evidence of a stored settlement.
	KeepEvidence(n ledger.Settlement) error
	// Count writes settlements, counts of outcomes, the single outcome, held credits, expected end and issue.
	Count(s Step) (int64, error)
	// Settled reads the epoch and digest of a settlement. ledger.ErrStaleEpoch when the number does not exist.
	Settled(id uuid.UUID, number int64) (epoch int64, digest []byte, err error)
	// Ordinals reads the ordinals of a settlement, ascending; they are valid until the next call.
	// ledger.ErrStaleEpoch when the number does not exist.
	Ordinals(id uuid.UUID, number int64) ([]int64, error)

	// NextGeneration returns the next generation.
	NextGeneration() (int64, error)
	// Refresh writes a heartbeat into its row, with the time now, if the process is in and has the same view and
	// cluster name.
	Refresh(b ledger.Heartbeat) (int64, error)
	// Publish writes a heartbeat into its row if the process is in; the row's view becomes the previous one.
	Publish(b ledger.Heartbeat, turn int64) (int64, error)
	// Enrol writes a heartbeat in a new row, or replaces an old one.
	Enrol(b ledger.Heartbeat, turn int64) (int64, error)
	// End writes the end of a row if its status and generation are unchanged. It removes the view before the last
	// publication if the process had read that publication.
	End(before *ledger.NodeRow, e Ending) (int64, error)
	// AskDrain writes whether an operator wants the row's process to drain.
	AskDrain(session uuid.UUID, asked bool) (int64, error)
	// Remove deletes a row.
	Remove(session uuid.UUID) (int64, error)
	// Node reads one row, nil when there is none, and the ledger's time in milliseconds.
	Node(session uuid.UUID) (row *ledger.NodeRow, now int64, err error)
	// ReadNodes reads all rows and the counter at one moment.
	ReadNodes() (ledger.NodeSnapshot, error)

	// Correction reads a correction, nil if there is none; Corrected counts the corrections of a subject.
	Correction(id uuid.UUID) (*ledger.Correction, error)
	Corrected(subject string) (int64, error)
	// Correct writes a correction with the time now.
	Correct(c ledger.Correction) error

	// Learn writes facts and replaces those with the same keys. All keys differ.
	Learn(facts []ledger.Fact) error
	// Known reads the unexpired facts of some keys, which all differ.
	Known(keys []string) ([]ledger.Fact, error)

	// Override reads an override, active or not; nil when there is none.
	Override(id uuid.UUID) (*ledger.ThrottleOverride, error)
	// ActiveOverrides lists the active overrides of a key or ("") of all, oldest first, and HowMany counts them.
	ActiveOverrides(key string) ([]ledger.ThrottleOverride, error)
	HowMany() (int, error)
	// InsertOverride writes an override that is active from now on for the time holds.
	InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error
	// EndOverride ends an active override. Lifted reports whether one was ended before its time; it waits as Await does.
	EndOverride(id uuid.UUID) (int64, error)
	Lifted(id uuid.UUID) (bool, error)

	// LogIn writes a line of a workspace's log with the time now. It makes an id for a nil ID, and does not write an
	// existing line again.
	LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error
}

// Ending is the end of a process's row.
type Ending struct {
	Status     ledger.NodeStatus
	Dead       bool
	Generation int64
	Forgotten  bool // none of its receivers is silent any longer
}

// Leased reports whether a node has the verification now.
func (r *Row) Leased() bool { return r.Node != uuid.Nil && r.LeaseExpires > r.Now }

// HeldBy reports whether l is still the caller's lease. An expired lease stays valid until another node takes the
// verification: only the epoch decides, so a node that was paused keeps the outcomes it has. A free row does not
// match the zero node.
func (r *Row) HeldBy(l ledger.Lease) bool {
	return r.Node != uuid.Nil && r.Node == l.Node && r.Epoch == l.Epoch
}

// unread reports whether no intake has read the file to its end.
func (r *Row) unread() bool { return r.Status == ledger.Uploading || r.Status == ledger.Preparing }

// Upload is the state of the row's upload.
func (r *Row) Upload() ledger.Upload {
	return ledger.Upload{
		Verification: r.ID, Workspace: r.Workspace, Status: r.Status, Issue: r.Issue, Bytes: r.Bytes,
		Durable: r.Durable, Expired: ledger.Millis(r.UploadExpires) <= r.Now, Writer: r.Writer,
		MadeBy: r.MadeBy}
}
