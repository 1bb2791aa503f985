package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
)

// Book is the ledger. Every method is one transaction and may be repeated: run
// again with the same arguments it changes nothing more. All times are by the
// database's clock. Safe for concurrent use.
//
// An error that is none of this package's sentinels says nothing about the
// commit: call again, or answer "unavailable".
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
	// UseKeys notes that keys were used now: one write for many, which the caller collects for a minute. Of unknown and
	// revoked ones it notes nothing. ErrIllegal for more than BatchMax.
	UseKeys(ctx context.Context, ids []string) error

	// Grant adds credits once per grant id and funds waiting verifications,
	// oldest first; one that does not fit does not stop a newer one that does.
	// ErrIllegal for an amount below 1, for more than 2^53 in all, and for a grant
	// id that was used with another amount or workspace, or is a verification's.
	Grant(ctx context.Context, id, workspace uuid.UUID, n Credits, reason string) (Balance, error)
	Balance(ctx context.Context, workspace uuid.UUID) (Balance, error) // ErrNoSuchWorkspace
	// Entries gives one page of the entries of a verification, newest first, with
	// the sums of all. ErrNoSuchVerification also for those of other workspaces.
	Entries(ctx context.Context, q EntriesQuery) (Statement, error)

	// Evidence calls yield for each settlement whose number is above after, by number,
	// up to those of the start, with memory for one at a time. It answers the
	// verification, whatever its workspace, as it was at the start.
	// ErrNoSuchVerification; ErrResultsExpired after retention, also in the middle, beside
	// the verification.
	Evidence(ctx context.Context, id uuid.UUID, after int64, yield func(StoredSettlement) error) (Verification, error)

	// Secret gives the named random value, made once at first use.
	Secret(ctx context.Context, name string, bytes int) ([]byte, error)
	Audit(ctx context.Context) (AuditReport, error)
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
}

// Files is the part that a customer's requests need.
type Files interface {
	// Create makes a verification, or recovers the one of the same workspace and
	// identity (created is false). ErrIdentityReused when the lengths differ,
	// then ErrFileTooLarge, then ErrTooManyOpen, ErrTooManyBytes, ErrTooManyUnpaid (in a
	// Later), ErrNoRoom. Who is noted as its maker is told by WithActor.
	Create(ctx context.Context, n NewVerification) (v Verification, created bool, err error)
	// Verification reads one of a workspace: ErrNoSuchVerification also for those of others.
	Verification(ctx context.Context, workspace, id uuid.UUID) (Verification, error)
	History(ctx context.Context, q HistoryQuery) ([]Verification, error)
	// OpenVerifications gives those of all workspaces that are not over, the oldest first, at most limit, and which node
	// has each.
	OpenVerifications(ctx context.Context, limit int) ([]Verification, error)
	// VerificationsLike gives the ids of all workspaces from one to another, at most limit, in their order.
	VerificationsLike(ctx context.Context, from, to uuid.UUID, limit int) ([]uuid.UUID, error)
	// Cancel asks for the end: Cancelled at once when nothing runs (uploading,
	// preparing, waiting for credits, or not leased and at most SettlementMax
	// left), otherwise Cancelling; a final verification is returned as it is. The bytes of
	// one that was uploading or preparing are erased with it.
	Cancel(ctx context.Context, workspace, id uuid.UUID) (Verification, error)
	// Results calls yield for each settled address in ordinal order, as of one
	// moment, with memory that does not grow with the file. ErrResultsExpired
	// after retention.
	Results(ctx context.Context, workspace, id uuid.UUID, yield func(Result) error) error

	UploadState(ctx context.Context, id uuid.UUID) (Upload, error) // ErrNoSuchVerification
	// OpenUpload makes the caller the newest writer and fences the older ones.
	OpenUpload(ctx context.Context, id uuid.UUID) (Upload, error)
	// AppendChunk stores data at offset, which must be what is durable now, and
	// answers the state after it. With the last byte the status becomes
	// Preparing in the same transaction. ErrFenced, ErrUploadClosed, ErrGap, ErrNoRoom, each
	// beside the state; ErrIllegal above ChunkBytesMax or the declared length. The
	// newest chunk repeated by its writer is answered again.
	AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (Upload, error)
}

// Work is the part that the engine needs. Methods with a Lease answer
// ErrStaleEpoch when the lease is no longer the caller's.
type Work interface {
	// Lease hands out at most limit verifications that can be worked on now
	// (Preparing; or Verifying, Waiting for receivers, Cancelling; not parked) and
	// that nobody has, for ttl, each at a new epoch: those first that can be worked on
	// for the longest time, and none of the workspaces in except, at most
	// ExceptMax. It may pass over what another call is changing. ErrIllegal for the zero node,
	// which is nobody. An expired lease stays good for writing until somebody takes it: the epoch
	// decides, so that a node that was paused loses no outcome it has.
	Lease(ctx context.Context, node uuid.UUID, limit int, ttl time.Duration, except ...uuid.UUID) (
		[]Verification, error)
	// Renew prolongs all leases of a node that have not expired and names them.
	Renew(ctx context.Context, node uuid.UUID, ttl time.Duration) ([]Lease, error)
	// Release gives a lease back, so that any node may take it at once.
	Release(ctx context.Context, l Lease) error
	// OpenFile streams the uploaded bytes.
	OpenFile(ctx context.Context, id uuid.UUID) (io.ReadCloser, error)
	// Refuse ends a verification in Preparing with the defect of its file, and erases its bytes.
	Refuse(ctx context.Context, l Lease, issue Issue) (Verification, error)
	// Prepare ends intake: rows and total are written and total credits are held
	// (Verifying), or none (Waiting with credits_required; the lease is gone).
	Prepare(ctx context.Context, l Lease, rows, duplicates, total int64) (Verification, error)
	// Settled calls yield with the ordinals of each settlement so far.
	Settled(ctx context.Context, id uuid.UUID, yield func(ordinals []int64) error) error
	// Settle commits the outcomes of one batch and moves their credits. With the
	// last one the verification becomes Completed, CompletedWithErrors or, when
	// it was Cancelling, Cancelled. A settlement that is in the book already (same
	// number, epoch and results) is answered with the state of now, also when the
	// lease is gone; another one for its number is ErrStaleEpoch. The evidence is
	// committed with the results and makes no other settlement: with a repeat, that
	// of the first stays. ErrIllegal for results that EncodeResults refuses, that lie
	// outside of the file, that are more than what is left, or of which another settlement
	// has an ordinal, for evidence above EvidenceMax, and for s.Why that CheckWhy refuses.
	Settle(ctx context.Context, s Settlement) (Verification, error)
	// Wait marks a leased verification as Waiting for receivers until o.Next, or,
	// with a zero time, as Verifying, and notes what is expected of it. Cancelling
	// stays as it is. ErrIllegal for o.Why without o.Next, or one that CheckWhy refuses.
	Wait(ctx context.Context, l Lease, o Outlook) (Verification, error)
	// Park marks a leased verification as Waiting for receivers until o.Next, keeps the
	// state of its work and gives the lease back: no node takes it before o.Next, unless it is
	// cancelled. Cancelling stays as it is, with its lease. ErrIllegal without o.Next, for
	// o.Why that CheckWhy refuses, and for a state above ParkedMax.
	Park(ctx context.Context, l Lease, o Outlook, state []byte) (Verification, error)
	// Parked gives the state that was kept last; nil when there is none.
	Parked(ctx context.Context, id uuid.UUID) ([]byte, error)
	// Crashed gives back a lease whose work ended in a fault of the program, for
	// CrashPause. The second time the verification is set aside: Failed with internal_error, and what is
	// held is released. Cancelling stays as it is.
	Crashed(ctx context.Context, l Lease) (Verification, error)
	// FinishCancel releases what is still held and makes it Cancelled.
	FinishCancel(ctx context.Context, l Lease) (Verification, error)
	// Sweep does what time demands: expires uploads (upload_expired) and files
	// nobody funded (funding_expired), deletes uploaded bytes, results with their evidence,
	// and whole verifications that never held a credit, after their retention, and forgets processes that ended a day
	// ago, facts that expired, overrides and links that were over 30 days ago, sessions of people that were over a day
	// ago, and failed sign-ins whose time is over. It answers how many verifications it changed, also with an error: a
	// failure stops nothing else. ErrClock while the ledger's clock may have jumped ahead.
	Sweep(ctx context.Context, r Retention) (int, error)
}

// The refusals of a Book. When several apply, the first of this list is given.
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
	ErrUploadClosed       = errors.New("ledger: the upload is over")
	ErrGap                = errors.New("ledger: the chunk does not start at the durable end")
	ErrNoSuchNode         = errors.New("ledger: no such node")
	ErrNodeAlive          = errors.New("ledger: the node was seen lately")
	ErrOtherCluster       = errors.New("ledger: nodes of a cluster with another name use this ledger")
	ErrTooManyOverrides   = errors.New("ledger: too many overrides hold: clear some that are not needed any more")
	ErrClock              = errors.New("ledger: its clock is not believed, so nothing is erased or expired (docs/operators/runbooks/clock-wrong.md)")
	ErrNothingFound       = errors.New("ledger: an audit finds nothing about it that is not set right already")
	ErrUncorrectable      = errors.New("ledger: a correction cannot set this right")
	ErrNoSuchUser         = errors.New("ledger: no such user")
	ErrIdentityTaken      = errors.New("ledger: another user signs in with this identity")
	ErrChanged            = errors.New("ledger: it was changed in between")
	ErrNoSuchLink         = errors.New("ledger: no such link, or it was used or is over")
	ErrNoSuchSession      = errors.New("ledger: no such session, or it is over")
	ErrNotAllowed         = errors.New("ledger: the role of the user does not allow this")
	ErrLastOwner          = errors.New("ledger: a workspace keeps at least one owner")
	ErrNotOwner           = errors.New("ledger: only an owner may do this")
	ErrTooManyMembers     = errors.New("ledger: the workspace has too many members")
	ErrIllegal            = errors.New("ledger: the step is not allowed in this status")
)

// EvidenceMax bounds the evidence of one settlement: 768 KiB before it is compressed,
// and an eighth more, since what is compressed already may grow a little. CockroachDB
// wants rows below 1 MiB.
const EvidenceMax = 864 << 10

// StoredSettlement is one settlement with what it rests on, as it is shown to an operator.
// What it points to is good until the call that it was given to returns.
type StoredSettlement struct {
	Number, Epoch int64
	At            time.Time // of the commit
	Results       *Batch
	Evidence      []byte // as it was settled; empty: there was none, or a sweep is erasing it
}

// Strangers is the tenant of questions whose tenant is not known yet, such as those about API keys.
var Strangers = uuid.Max

// tenantKey is the name of the tenant in a context.
type tenantKey struct{}

// WithTenant names the tenant of the calls with ctx. Calls wait in turn by tenant, so that many calls of one do not
// delay the few of another. Calls without a tenant are the node's own and go before all others: its heartbeats,
// leases, sweeps, and what operators ask.
func WithTenant(ctx context.Context, workspace uuid.UUID) context.Context {
	return context.WithValue(ctx, tenantKey{}, workspace)
}

// TenantOf returns the tenant of ctx; uuid.Nil for the node's own work.
func TenantOf(ctx context.Context) uuid.UUID {
	workspace, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return workspace
}

// Wrap begins an error with what was done; nil stays nil.
func Wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}

// Run runs do in a transaction and returns its answer. An error begins with what, and the answer is then the zero
// value.
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
	// FactsMax bounds the facts of one Learn and the keys of one Known, so that one
	// transaction takes some ten milliseconds. Guess.
	FactsMax = 1000
	// FactBytesMax bounds the data of one fact. Guess: what is known about a receiver
	// takes some hundred bytes.
	FactBytesMax = 4 << 10
	// FactKeyBytesMax bounds the key of a fact: a domain name of 253 bytes (RFC 1035
	// §2.3.4) and a prefix.
	FactKeyBytesMax = 300
)

// Fact is what was learned about a receiver, as bytes that its writer understands.
type Fact struct {
	Key     string    // of the receiver; at most FactKeyBytesMax, not empty
	Data    []byte    // at most FactBytesMax
	Expires time.Time // by the database's clock, in milliseconds; not zero
}

// Facts is the part about what was learned about receivers. It is a memory, not
// work: a fact that is lost is learned again.
type Facts interface {
	// Learn keeps facts, at most FactsMax, in one transaction. One with the key of
	// another takes its place; of two with one key the last counts. ErrIllegal for
	// more or longer ones, and for one without a key or an end.
	Learn(ctx context.Context, facts []Fact) error
	// Known gives the facts of some keys, at most FactsMax, that have not expired, in
	// no order; their data is not nil. ErrIllegal for more keys.
	Known(ctx context.Context, keys []string) ([]Fact, error)
}

// CheckFacts reports whether facts can be kept. ErrIllegal.
func CheckFacts(facts []Fact) error {
	if len(facts) > FactsMax {
		return fmt.Errorf("%d facts at once, %d are allowed: %w", len(facts), FactsMax, ErrIllegal)
	}
	for _, f := range facts {
		switch {
		case f.Key == "" || len(f.Key) > FactKeyBytesMax:
			return fmt.Errorf("a fact's key of %d bytes, 1 to %d are allowed: %w",
				len(f.Key), FactKeyBytesMax, ErrIllegal)
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
