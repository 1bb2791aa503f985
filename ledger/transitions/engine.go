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
	db      rowsOf
	settled *settledSets
}

// New makes the transitions of a database.
func New(db Database) Engine {
	return Engine{db: rowsOf{db}, settled: &settledSets{sets: map[uuid.UUID]*settledSet{}, most: settledBytesMax}}
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
		v, err := e.db.readRow(ctx, l.Verification)
		if err != nil {
			return ledger.Verification{}, err
		}
		in.Workspace = v.Workspace
	}
	return e.workedIn(ctx, in, l, again, do)
}

// rowsOf are the transactions about one verification.
type rowsOf struct{ Database }

// readRow reads one verification.
func (db rowsOf) readRow(ctx context.Context, id uuid.UUID) (v *Row, err error) {
	err = db.View(ctx, func(t Tables) (err error) {
		v, err = t.Read(id)
		return err
	})
	return v, err
}

// workedIn is worked in a scope.
func (e Engine) workedIn(ctx context.Context, in Scope, l ledger.Lease, again func(v *Row) bool,
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

// updateRow runs do in one transaction, and returns the verification that it returns.
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
	// Update runs do in one serialisable transaction and commits it. do may run
	// several times: it has no effect outside the transaction but on variables
	// that it sets anew each time.
	Update(ctx context.Context, in Scope, do func(t Tables) error) error
	// View runs do for reading only, each question at its own moment.
	View(ctx context.Context, do func(t Tables) error) error
}

// Scope says what a transaction is about, so that those which would meet at the same rows can take turns
// before they begin. It changes nothing of what they do.
type Scope struct {
	Workspace uuid.UUID // zero: of whom the context says, see ledger.TenantOf
	Account   bool      // the account of the workspace may change
}

// Row is one verification as its table has it, at the time Now.
type Row struct {
	ledger.Verification
	Writer         int64     // fence of the upload: only the newest writer may append
	Node           uuid.UUID // who has the lease; the zero value: nobody
	LeaseExpires   int64     // milliseconds
	WaitingSince   int64     // for credits, milliseconds; 0: it does not
	WakeAt         int64     // no node takes it before, milliseconds
	Crashes        int       // of those who worked on it
	Paid           bool      // it held credits, now or before
	ResultsDeleted bool
	Now            int64 // milliseconds, by the database's clock
}

// Entry is one immutable line of the book.
type Entry struct {
	Subject   uuid.UUID // the grant, or the verification
	Number    int64     // of the settlement; 0: none
	Kind      ledger.EntryKind
	Workspace uuid.UUID
	Amount    ledger.Credits
	Reason    string
	Author    string // of a grant
}

// Step is a change of a verification's row, made only if the row is still as it
// was read: the same status, epoch and number of settlements.
type Step struct {
	Before, After *Row
}

// Tables are the rows of one transaction. Each method is one statement; those
// that answer a number changed so many rows, 0 when their condition did not hold.
type Tables interface {
	// Doubt reports whether a run of this transaction before this one may have been committed.
	Doubt() bool

	// Account reads a workspace's balance. ledger.ErrNoSuchWorkspace.
	Account(workspace uuid.UUID) (ledger.Balance, error)
	// Credit adds by to a workspace's account if at least this much is available.
	Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error)
	// Enter writes entries, and adds each to those of its workspace, kind and day; their key (subject, number, kind)
	// refuses a second one. It comes after Credit: their
	// reference to the workspace reads the row of the account, and a transaction that reads a row before it changes
	// it can lose to another one that does the same.
	Enter(entries ...Entry) error
	// Granted reads the entry of a grant; false when there is none.
	Granted(id uuid.UUID) (Entry, bool, error)
	// Log writes a line of the operator log: its time is now, its author who makes the
	// changes of the context. A nil ID is made up, a line that is there is not written
	// again. ledger.ErrIllegal for an author that cannot be kept.
	Log(l ledger.LogLine) error

	// Read, ReadOf and ReadIdentity read one verification: by its id, if it is of a
	// workspace, and by its idempotency key. ledger.ErrNoSuchVerification.
	Read(id uuid.UUID) (*Row, error)
	ReadOf(workspace, id uuid.UUID) (*Row, error)
	ReadIdentity(workspace, identity uuid.UUID) (*Row, error)
	// Await is Read, and waits for a transaction that is changing the row. So when it answers, an earlier run whose
	// commit was not answered is either committed or not.
	Await(id uuid.UUID) (*Row, error)
	// Limits reads what was set for a workspace; 0 is the default.
	Limits(workspace uuid.UUID) (ledger.Limits, error)
	// Open counts the verifications of a workspace that are not final.
	Open(workspace uuid.UUID) (int64, error)
	// Stored adds up the declared bytes of those whose upload is not erased.
	Stored(workspace uuid.UUID) (int64, error)
	// Unpaid counts those of ledger.UnpaidWithin that never held a credit.
	Unpaid(workspace uuid.UUID) (Unpaid, error)
	// Room is ledger.ErrNoRoom while the ledger takes no new verification and no chunk.
	Room() error
	// Unfunded gives the oldest verification that waits for credits and needs no
	// more than are available; nil when there is none.
	Unfunded(workspace uuid.UUID) (*Row, error)
	// Short lists how much each verification of a workspace waits for.
	Short(workspace uuid.UUID) (map[uuid.UUID]int64, error)
	// Tell renews the message of a verification that waits for credits.
	Tell(id uuid.UUID, message string) error
	// Insert makes a verification that is uploading; single is the address of one of kind Single, "" for a file.
	Insert(n ledger.NewVerification, single string) error
	// Move writes status, issue, next try, what is expected, held, cancelled addresses, time of
	// completion, waiting since, when it wakes, crashes, the lease, and whether it was paid and its upload is erased.
	Move(s Step) (int64, error)
	// Measure writes what intake found: rows, duplicates, total.
	Measure(s Step) (int64, error)

	// Fence makes a newer writer of an upload.
	Fence(id uuid.UUID, from, to int64) (int64, error)
	// Chunk reads the stored bytes that begin at offset; nil when there are none.
	Chunk(id uuid.UUID, offset int64) ([]byte, error)
	// Append stores a chunk.
	Append(id uuid.UUID, offset int64, data []byte) error
	// EraseUpload deletes so many chunks at most, and says whether there may be more.
	EraseUpload(id uuid.UUID, most int64) (left bool, err error)
	// Lengthen counts stored bytes, for the newest writer only.
	Lengthen(id uuid.UUID, writer, from, to int64) (int64, error)

	// Free lists verifications that can be worked on now and that nobody has, by when they wake, none of
	// the workspaces in except.
	Free(limit int, except []uuid.UUID) ([]*Row, error)
	// Take gives a verification to a node at the epoch after this one.
	Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error)
	// Renew prolongs all leases of a node that have not expired and names them.
	Renew(node uuid.UUID, ttl time.Duration) ([]ledger.Lease, error)
	// Drop ends a lease.
	Drop(id uuid.UUID, epoch int64) (int64, error)
	// KeepParked writes the state of a verification's work, in place of the one before, and
	// ForgetParked deletes it.
	KeepParked(id uuid.UUID, state []byte) error
	ForgetParked(id uuid.UUID) error

	// Settle appends the results of one settlement.
	Settle(n ledger.Settlement, p ledger.Payload) error
	// KeepEvidence appends the evidence of a settlement that stands.
	KeepEvidence(n ledger.Settlement) error
	// Count writes settlements, counts of outcomes, the single outcome, held, what is expected and
	// the issue.
	Count(s Step) (int64, error)
	// Settled reads epoch and digest of a settlement. ledger.ErrStaleEpoch when
	// there is none with this number.
	Settled(id uuid.UUID, number int64) (epoch int64, digest []byte, err error)
	// Ordinals reads those of a settlement, growing; they are good until the next call.
	// ledger.ErrStaleEpoch when there is none with this number.
	Ordinals(id uuid.UUID, number int64) ([]int64, error)

	// NextGeneration takes the next turn from the counter.
	NextGeneration() (int64, error)
	// Refresh writes a heartbeat in its row, seen now, if that is in, has the same view
	// and names the same cluster.
	Refresh(b ledger.Heartbeat) (int64, error)
	// Publish writes a heartbeat in its row, if that is in; the view that stood becomes
	// the one before.
	Publish(b ledger.Heartbeat, turn int64) (int64, error)
	// Enrol writes a heartbeat in a new row, or in place of the one that stood.
	Enrol(b ledger.Heartbeat, turn int64) (int64, error)
	// End writes the end of a row if it is as before: the same standing and turn. The
	// view before the last publication goes if the process had read that.
	End(before *ledger.NodeRow, e Ending) (int64, error)
	// AskDrain notes in a row whether an operator wants its process to drain.
	AskDrain(session uuid.UUID, asked bool) (int64, error)
	// Remove deletes a row.
	Remove(session uuid.UUID) (int64, error)
	// Node reads one row, nil when there is none, and the time in milliseconds.
	Node(session uuid.UUID) (row *ledger.NodeRow, now int64, err error)
	// ReadNodes reads all rows and the counter at one moment.
	ReadNodes() (ledger.NodeSnapshot, error)

	// Correction reads a correction; nil when there is none. Corrected counts those of a subject.
	Correction(id uuid.UUID) (*ledger.Correction, error)
	Corrected(subject string) (int64, error)
	// Correct writes one: its time is now.
	Correct(c ledger.Correction) error

	// Learn writes facts, in place of those with the same keys. Their keys differ.
	Learn(facts []ledger.Fact) error
	// Known reads the facts of some keys, which differ, that have not expired.
	Known(keys []string) ([]ledger.Fact, error)

	// Override reads an override, whether it holds or not; nil when there is none.
	Override(id uuid.UUID) (*ledger.ThrottleOverride, error)
	// ActiveOverrides lists the overrides that hold, of a key or ("") of all, oldest first, and
	// HowMany counts them.
	ActiveOverrides(key string) ([]ledger.ThrottleOverride, error)
	HowMany() (int, error)
	// InsertOverride writes an override that holds from now on for so long.
	InsertOverride(o ledger.ThrottleOverride, holds time.Duration) error
	// EndOverride ends an override that holds, and Lifted reports whether one was ended so. It waits as Await does.
	EndOverride(id uuid.UUID) (int64, error)
	Lifted(id uuid.UUID) (bool, error)

	// LogIn writes a line of the log of a workspace: its time is now. A nil ID is made up, a line that is there is not
	// written again.
	LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error
}

// Ending is how a process's row ends.
type Ending struct {
	Status     ledger.NodeStatus
	Dead       bool
	Generation int64
	Forgotten  bool // nothing of it is silent any more
}

// Leased reports whether a node has the verification at this moment.
func (r *Row) Leased() bool { return r.Node != uuid.Nil && r.LeaseExpires > r.Now }

// HeldBy reports whether l is still the caller's. An expired lease stays good until
// somebody takes it: the epoch alone decides, so that a node that was paused
// loses no outcome it already has. What nobody has is not the zero node's.
func (r *Row) HeldBy(l ledger.Lease) bool {
	return r.Node != uuid.Nil && r.Node == l.Node && r.Epoch == l.Epoch
}

// mayBeParked reports whether the state of its work may be kept: then a lease of it was given back.
func (r *Row) mayBeParked() bool { return r.State().Funded() && (r.Epoch > 1 || r.Node == uuid.Nil) }

// unread reports whether no intake has read the file to its end.
func (r *Row) unread() bool { return r.Status == ledger.Uploading || r.Status == ledger.Preparing }

// Upload is the state of the row's upload.
func (r *Row) Upload() ledger.Upload {
	return ledger.Upload{
		Verification: r.ID, Workspace: r.Workspace, Status: r.Status, Issue: r.Issue, Bytes: r.Bytes,
		Durable: r.Durable, Expired: ledger.Millis(r.UploadExpires) <= r.Now, Writer: r.Writer,
		MadeBy: r.MadeBy}
}
