package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
)

// Book is the ledger. Every method is one transaction and may be repeated: run again with the same arguments it
// changes nothing more. All times are by the database's clock. Safe for concurrent use.
//
// An error other than this package's sentinels does not say whether the change was committed: call again, or report
// "unavailable".
type Book interface {
	Tenants
	Files
	Work
	Nodes
	Facts
	Operators
	People
	Pages
	Close() error
}

// Tenants is the part about workspaces, keys and credits.
type Tenants interface {
	CreateWorkspace(ctx context.Context, id uuid.UUID, name string) (Workspace, error)
	Workspaces(ctx context.Context) ([]Workspace, error)
	CreateKey(ctx context.Context, k Key) (Key, error) // ErrNoSuchWorkspace
	Keys(ctx context.Context, workspace uuid.UUID) ([]Key, error)
	KeyByID(ctx context.Context, id string) (Key, error)   // ErrNoSuchKey
	RevokeKey(ctx context.Context, id string) (Key, error) // ErrNoSuchKey
	// UseKeys records that keys were used now: one write for many, which the caller collects for a minute. It
	// ignores unknown and revoked ones. ErrIllegal for more than BatchMax.
	UseKeys(ctx context.Context, ids []string) error

	// Grant adds credits once per grant id and funds waiting verifications, oldest first; one that does not fit does
	// not stop a newer one that does. ErrIllegal if the amount is below 1, the sum above 2^53, or the id that of
	// another grant or of a verification.
	Grant(ctx context.Context, id, workspace uuid.UUID, n Credits, reason string) (Balance, error)
	Balance(ctx context.Context, workspace uuid.UUID) (Balance, error) // ErrNoSuchWorkspace
	// Entries returns one page of the entries of a verification, newest first, with the sums of all.
	// ErrNoSuchVerification also for those of other workspaces.
	Entries(ctx context.Context, q EntriesQuery) (Statement, error)

	// Evidence calls yield for each settlement with a number above after, in order, up to the last one at the start,
	// with memory for one at a time. It returns the verification, of any workspace, as it was at the start.
	// ErrNoSuchVerification; ErrResultsExpired after retention, even in the middle, together with the verification.
	Evidence(ctx context.Context, id uuid.UUID, after int64, yield func(StoredSettlement) error) (Verification, error)

	// Secret returns the named random value, made once at first use.
	Secret(ctx context.Context, name string, bytes int) ([]byte, error)
	Audit(ctx context.Context) (AuditReport, error)
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
}

// Files is the part for customers' requests.
type Files interface {
	// Create makes a verification, or returns the one with the same workspace and identity (created is false).
	// ErrIdentityReused when the lengths differ, then ErrFileTooLarge, then ErrTooManyOpen, ErrTooManyBytes,
	// ErrTooManyUnpaid (in a Later), ErrNoRoom. WithActor names its maker.
	Create(ctx context.Context, n NewVerification) (v Verification, created bool, err error)
	// Verification reads a verification of a workspace. ErrNoSuchVerification also for those of other workspaces.
	Verification(ctx context.Context, workspace, id uuid.UUID) (Verification, error)
	History(ctx context.Context, q HistoryQuery) ([]Verification, error)
	// OpenVerifications returns the open verifications of all workspaces with their nodes, oldest first, at most limit.
	OpenVerifications(ctx context.Context, limit int) ([]Verification, error)
	// VerificationsLike returns the verifications' ids in a range, of all workspaces, in order, at most limit.
	VerificationsLike(ctx context.Context, from, to uuid.UUID, limit int) ([]uuid.UUID, error)
	// Cancel cancels a verification: Cancelled at once when nothing runs (uploading, preparing, waiting for credits,
	// or not leased and at most SettlementMax left), otherwise Cancelling. It returns a final verification
	// unchanged. If it was uploading or preparing, its bytes are erased, too.
	Cancel(ctx context.Context, workspace, id uuid.UUID) (Verification, error)
	// Results calls yield for each settled address in ordinal order, from one snapshot, with memory that does not
	// grow with the file. ErrResultsExpired after retention.
	Results(ctx context.Context, workspace, id uuid.UUID, yield func(Result) error) error

	UploadState(ctx context.Context, id uuid.UUID) (Upload, error) // ErrNoSuchVerification
	// OpenUpload makes the caller the newest writer and fences the older ones.
	OpenUpload(ctx context.Context, id uuid.UUID) (Upload, error)
	// AppendChunk stores data at offset, which must be the current durable length, and returns the new state. With
	// the last byte the status becomes Preparing in the same transaction. ErrFenced, ErrUploadClosed, ErrGap,
	// ErrNoRoom, each with the state; ErrIllegal above ChunkBytesMax or the declared length. If the writer repeats
	// its newest chunk it gets the same answer.
	AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (Upload, error)
}

// Work is the part for the engine. Methods with a Lease return ErrStaleEpoch when the lease is no longer the caller's.
type Work interface {
	// Lease leases at most limit free verifications with work (Preparing; or Verifying, Waiting for receivers,
	// Cancelling; not parked) for ttl, each at a new epoch. Verifications that have had work for the longest time
	// come first. Workspaces in except, at most ExceptMax, get none. It may skip verifications that another call is
	// changing. ErrIllegal for the zero node. An expired lease stays valid for writing until another node takes the
	// verification: the epoch decides, so that a paused node keeps the outcomes it has.
	Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) ([]Verification, error)
	// Renew extends all unexpired leases of a node and returns them.
	Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]Lease, error)
	// Release gives a lease back, so that any node may take it at once.
	Release(ctx context.Context, l Lease) error
	// OpenFile streams the uploaded bytes.
	OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error)
	// Refuse ends a verification in Preparing because of a defect in its file, and erases its bytes.
	Refuse(ctx context.Context, l Lease, issue Issue) (Verification, error)
	// Prepare ends intake. It writes rows and total, and holds total credits (Verifying), or none (Waiting with
	// credits_required; the lease ends).
	Prepare(ctx context.Context, l Lease, rows, duplicates, total int64) (Verification, error)
	// Settled calls yield with the ordinals of each settlement so far.
	Settled(ctx context.Context, id uuid.UUID, yield func(ordinals []int64) error) error
	// Settle commits the outcomes of one batch and moves their credits. With the last outcomes the verification
	// becomes Completed, CompletedWithErrors or, if it was Cancelling, Cancelled. For a settlement that is already
	// stored (same number, epoch and results) it returns the current state, even after the lease has ended; another
	// settlement with the same number is ErrStaleEpoch. Evidence is committed with the results and does not
	// distinguish settlements: in a repeat, the first evidence stays. ErrIllegal if EncodeResults refuses the
	// results, if they are outside of the file or more than are open, if an ordinal is in another settlement, if
	// evidence is above EvidenceMax, or if CheckWhy refuses s.Why.
	Settle(ctx context.Context, s Settlement) (Verification, error)
	// Wait marks a leased verification as Waiting for receivers until o.Next, or as Verifying with a zero time, and stores
	// its outlook. Cancelling stays as it is. ErrIllegal for o.Why without o.Next, or one that CheckWhy refuses.
	Wait(ctx context.Context, l Lease, o Estimate) (Verification, error)
	// Park marks a leased verification as Waiting for receivers until o.Next, stores the state of its work and returns the
	// lease: no node takes it before o.Next, unless it is cancelled. Cancelling stays as it is, with its lease. Without
	// o.Next the status stays, and any node may take it at once. ErrIllegal for o.Why that CheckWhy refuses, and for a
	// state above ParkedMax.
	Park(ctx context.Context, l Lease, o Estimate, state []byte) (Verification, error)
	// Parked returns the last stored state; nil when there is none.
	Parked(ctx context.Context, id uuid.UUID) ([]byte, error)
	// Crashed returns a lease after a program fault, and parks the verification for CrashPause. The second time it sets
	// the verification aside: Failed with internal_error, with its held credits released. Cancelling stays as it is.
	Crashed(ctx context.Context, l Lease) (Verification, error)
	// FinishCancel releases the held credits and makes the verification Cancelled.
	FinishCancel(ctx context.Context, l Lease) (Verification, error)
	// Sweep handles what is due. It expires uploads (upload_expired) and unfunded files (funding_expired). After
	// their retention it deletes uploaded bytes, results with their evidence, and whole verifications that never
	// held a credit. It deletes expired facts and failed sign-ins, people's sessions and processes a day after their
	// end, and overrides and links 30 days after theirs. It returns the number of changed verifications, even with
	// an error: a failure does not stop the rest. ErrClock while the ledger's clock may have jumped ahead.
	Sweep(ctx context.Context, r Retention) (int, error)
}

// The refusals of a Book. When several apply, it returns the first in this list.
var (
	ErrNoSuchWorkspace    = errors.New("ledger: no such workspace")
	ErrNoSuchKey          = errors.New("ledger: no such key")
	ErrNoSuchVerification = errors.New("ledger: no such verification")
	ErrResultsExpired     = errors.New("ledger: the results are past their retention")
	ErrIdentityReused     = errors.New("ledger: the idempotency key was used with another length")
	ErrFileTooLarge       = errors.New("ledger: the file is larger than allowed")
	ErrTooManyOpen        = errors.New("ledger: too many verifications are open")
	ErrTooManyBytes       = errors.New("ledger: the workspace has too many bytes stored")
	ErrTooManyUnpaid      = errors.New("ledger: too many verifications of a day never held a credit")
	ErrNoRoom             = errors.New("ledger: the disk of the ledger is nearly full")
	ErrStaleEpoch         = errors.New("ledger: the lease belongs to another epoch")
	ErrFenced             = errors.New("ledger: a newer writer has this upload")
	ErrUploadClosed       = errors.New("ledger: the upload has ended")
	ErrGap                = errors.New("ledger: the chunk does not start at the durable end")
	ErrNoSuchNode         = errors.New("ledger: no such node")
	ErrNodeAlive          = errors.New("ledger: the node was seen lately")
	ErrOtherCluster       = errors.New("ledger: nodes of a cluster with another name use this ledger")
	ErrTooManyOverrides   = errors.New("ledger: too many active overrides: clear some")
	ErrClock              = errors.New("ledger: its clock is not trusted, so nothing is erased or expired (docs/operators/runbooks/clock-wrong.md)")
	ErrNothingFound       = errors.New("ledger: the audit has no open finding for this subject")
	ErrUncorrectable      = errors.New("ledger: a correction cannot repair this")
	ErrNoSuchUser         = errors.New("ledger: no such user")
	ErrIdentityTaken      = errors.New("ledger: another user signs in with this identity")
	ErrChanged            = errors.New("ledger: it was changed in between")
	ErrNoSuchLink         = errors.New("ledger: no such link, or it was used or has expired")
	ErrNoSuchSession      = errors.New("ledger: no such session, or it has ended")
	ErrNotAllowed         = errors.New("ledger: the role of the user does not allow this")
	ErrLastOwner          = errors.New("ledger: a workspace keeps at least one owner")
	ErrNotOwner           = errors.New("ledger: only an owner may do this")
	ErrTooManyMembers     = errors.New("ledger: the workspace has too many members")
	ErrIllegal            = errors.New("ledger: the step is not allowed in this status")
)

// EvidenceMax bounds the evidence of one settlement: 768 KiB before compression, and an eighth more, because
// compressed data may grow a little. CockroachDB needs rows below 1 MiB.
const EvidenceMax = 864 << 10

// StoredSettlement is one settlement with its evidence, for operators. Its slices are valid until the function that
// got it returns.
type StoredSettlement struct {
	Number, Epoch int64
	At            time.Time // of the commit
	Results       *Batch
	Evidence      []byte // as settled; empty: there was none, or a sweep is erasing it
}

// Strangers is the tenant of requests with an unknown tenant, such as those about API keys.
var Strangers = uuid.Max

type tenantKey struct{}

// WithTenant sets the tenant of the calls with ctx. Tenants take turns, so that many calls of one do not delay the
// few of another. Calls without a tenant are the node's own and precede all others: heartbeats, leases, sweeps, and
// operators' queries.
func WithTenant(ctx context.Context, workspace uuid.UUID) context.Context {
	return context.WithValue(ctx, tenantKey{}, workspace)
}

// TenantOf returns the tenant of ctx; uuid.Nil for the node's own work.
func TenantOf(ctx context.Context) uuid.UUID {
	workspace, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return workspace
}

// Wrap prefixes an error with what was done; nil stays nil.
func Wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}

// Run runs do in a transaction and returns its result. Its error begins with what; the value is then zero.
func Run[X, T any](ctx context.Context, transaction func(context.Context, func(X) error) error, do func(X) (T, error),
	what string, args ...any) (value T, err error) {
	err = transaction(ctx, func(t X) (err error) {
		value, err = do(t)
		return err
	})
	if err != nil {
		var none T
		return none, Wrap(err, what, args...)
	}
	return value, nil
}

const (
	// FactsMax bounds the facts of one Learn and the keys of one Known, so that a transaction takes some ten
	// milliseconds. Guess.
	FactsMax = 1000
	// FactBytesMax bounds the data of one fact. Guess: facts about a receiver take some hundred bytes.
	FactBytesMax = 4 << 10
	// FactKeyBytesMax bounds the key of a fact: a domain name of 253 bytes (RFC 1035 §2.3.4) and a prefix.
	FactKeyBytesMax = 300
)

// Fact is knowledge about a receiver, in a form that only its writer reads.
type Fact struct {
	Key     string    // of the receiver; at most FactKeyBytesMax, not empty
	Data    []byte    // at most FactBytesMax
	Expires time.Time // by the database's clock, in milliseconds; not zero
}

// Facts is the part about facts learned about receivers. A lost fact is learned again.
type Facts interface {
	// Learn stores facts, at most FactsMax, in one transaction. A fact replaces one with the same key; of two in one
	// call the last counts. ErrIllegal for too many or too long facts, and for one without a key or an end.
	Learn(ctx context.Context, facts []Fact) error
	// Known returns the unexpired facts of some keys, at most FactsMax, in no order; their data is not nil.
	// ErrIllegal for more keys.
	Known(ctx context.Context, keys []string) ([]Fact, error)
}

// CheckFacts returns ErrIllegal when facts cannot be stored.
func CheckFacts(facts []Fact) error {
	if len(facts) > FactsMax {
		return fmt.Errorf("%d facts at once, %d are allowed: %w", len(facts), FactsMax, ErrIllegal)
	}
	for _, f := range facts {
		switch {
		case f.Key == "" || len(f.Key) > FactKeyBytesMax:
			return fmt.Errorf("a fact's key of %d bytes, 1 to %d are allowed: %w", len(f.Key), FactKeyBytesMax, ErrIllegal)
		case len(f.Data) > FactBytesMax:
			return fmt.Errorf("a fact of %d bytes, %d are allowed: %w", len(f.Data), FactBytesMax, ErrIllegal)
		case f.Expires.UnixMilli() <= 0:
			return fmt.Errorf("a fact without an end: %w", ErrIllegal)
		}
		if err := CheckText(f.Key); err != nil {
			return err
		}
	}
	return nil
}
