package ledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/smtp"
)

// Credits is the unit of money: whole credits, one for each charged outcome.
type Credits int64

// Balance is a workspace's account: Granted = Available + Held + Spent, none negative.
type Balance struct {
	Granted   Credits `json:"granted"`
	Available Credits `json:"available"`
	Held      Credits `json:"held"`
	Spent     Credits `json:"spent"`
}

// Workspace is the paying tenant.
type Workspace struct {
	ID      uuid.UUID
	Name    string
	Created time.Time
	Weight  int // its turns for one of another workspace: 1 to WeightMax
}

// Key is an API key without its secret.
type Key struct {
	ID           string // public part, 12 lower-case letters and digits
	Workspace    uuid.UUID
	Label        string
	SecretSHA256 [32]byte
	Created      time.Time
	Revoked      time.Time // zero: not revoked
	Suspended    bool      // while the user who made it is disabled or no longer an owner of the workspace
	MadeBy       string    // who made and who revoked it, as Actor names them; "": unknown
	RevokedBy    string
	LastUsed     time.Time // from UseKeys; zero: never
}

// Works reports whether requests with the key are accepted.
func (k Key) Works() bool { return k.Revoked.IsZero() && !k.Suspended }

// Status is the state of a verification, in the API's words.
type Status string

// The nine statuses.
const (
	Uploading           Status = "uploading"
	Preparing           Status = "preparing"
	Verifying           Status = "verifying"
	Waiting             Status = "waiting"
	Cancelling          Status = "cancelling"
	Completed           Status = "completed"
	CompletedWithErrors Status = "completed_with_errors"
	Cancelled           Status = "cancelled"
	Failed              Status = "failed"
)

// Final reports whether the status will never change.
func (s Status) Final() bool {
	return s == Completed || s == CompletedWithErrors || s == Cancelled || s == Failed
}

// Kind is how a verification was made.
type Kind string

// The two kinds.
const (
	Bulk   Kind = "bulk"
	Single Kind = "single"
)

// Issue is a problem of a verification, for its customer.
type Issue struct {
	Code    string
	Message string
	Row     int64 // 1-based CSV record number; 0: none

	// Text is that row, at most IssueTextMax bytes; "": none. It quotes the file: only pages for members of the
	// workspace show it, and it is deleted with the verification.
	Text string
}

// IssueTextMax bounds the row quoted in an issue, in bytes.
const IssueTextMax = 320

// Counts are final outcomes by kind, and addresses that were never checked.
type Counts struct {
	Valid, Invalid, CatchAll, Unknown, Error, Cancelled int64
}

// Charged returns the number of outcomes that cost a credit.
func (c Counts) Charged() int64 { return c.Valid + c.Invalid + c.CatchAll + c.Error }

// Sum returns the number of addresses that were settled or cancelled.
func (c Counts) Sum() int64 { return c.Charged() + c.Unknown + c.Cancelled }

// Add counts one outcome.
func (c *Counts) Add(o smtp.Outcome) {
	switch o {
	case smtp.Valid:
		c.Valid++
	case smtp.Invalid:
		c.Invalid++
	case smtp.CatchAll:
		c.CatchAll++
	case smtp.Unknown:
		c.Unknown++
	case smtp.Error:
		c.Error++
	}
}

// Plus adds counts.
func (c Counts) Plus(o Counts) Counts {
	return Counts{Valid: c.Valid + o.Valid, Invalid: c.Invalid + o.Invalid, CatchAll: c.CatchAll + o.CatchAll,
		Unknown: c.Unknown + o.Unknown, Error: c.Error + o.Error, Cancelled: c.Cancelled + o.Cancelled}
}

// Verification is one customer file from creation to results.
type Verification struct {
	ID, Workspace uuid.UUID
	Identity      uuid.UUID // the idempotency key, once per workspace; for ever if credits were held
	Kind          Kind
	Filename      string // "" when none was given
	SingleEmail   string // "" for bulk
	Bytes         int64  // declared length
	Durable       int64  // bytes stored so far
	UploadExpires time.Time
	Status        Status
	Issue         *Issue
	Created       time.Time
	Completed     time.Time // zero while unfinished
	Rows          int64     // 0 until intake is done
	Duplicates    int64
	Total         int64 // distinct addresses; -1 until intake is done
	Counts        Counts
	SingleOutcome smtp.Outcome // of a finished single; Undecided otherwise
	NextTry       time.Time    // waiting for receivers: when work is due again; zero otherwise
	Expected      time.Time    // when its last address is expected to be final; zero: unknown, or over
	Held          Credits      // credits it still holds
	UploadDeleted bool         // its bytes are erased
	Epoch         int64        // grows each time its lease changes hands
	Settlements   int64        // number of settlements so far
	LeasedUntil   time.Time    // end of the lease; zero: none. Only from Evidence and OpenVerifications
	LeasedBy      uuid.UUID    // node of the last lease; zero: none. Only from Evidence and OpenVerifications
	ParkedUntil   time.Time    // parked until then, perhaps in the past. Only from Evidence and OpenVerifications
	MadeBy        string       // who created it, as Actor names them; "": unknown
}

// NewVerification is what a create asks for.
type NewVerification struct {
	ID        uuid.UUID // made by the caller for this call, used if the verification is new
	Workspace uuid.UUID
	Identity  uuid.UUID
	Filename  string
	Bytes     int64
	// The rules of the moment, which apply to new verifications only.
	BytesMax     int64         // ErrFileTooLarge above it
	Limits       Limits        // the defaults, for a workspace without its own
	UploadExpiry time.Duration // from now on the ledger's clock
	MadeBy       string        // filled in from Actor
}

// Upload is the state of one upload session.
type Upload struct {
	Verification uuid.UUID
	Workspace    uuid.UUID // whose it is
	Status       Status
	Issue        *Issue // of a failed verification
	Bytes        int64
	Durable      int64
	Expired      bool   // by the ledger's clock
	MadeBy       string // who created it, as Actor names them: a user needs access until its end
	Writer       int64  // the fence: only the newest writer may append
}

// Lease is the right of one node to work on one verification.
type Lease struct {
	Verification uuid.UUID
	Node         uuid.UUID
	Epoch        int64
}

const (
	// ParkedMax bounds the state of a parked verification, in bytes: CockroachDB needs rows below 1 MiB.
	ParkedMax = 960 << 10

	// ExceptMax bounds the workspaces that Lease excludes.
	ExceptMax = 512

	// CrashesMax is the number of program faults after which a verification is set aside.
	CrashesMax = 2

	// CrashPause is how long it is parked after a program fault.
	CrashPause = time.Minute
)

// Result is one settled address.
type Result struct {
	Ordinal int64  // place among the distinct addresses of the file, from 0
	Email   string // in the first spelling, byte for byte
	Outcome smtp.Outcome
	Reason  smtp.Reason
	At      time.Time // of the deciding evidence; millisecond precision

	Operator smtp.Operator // of the host that was asked last; 0: unknown
}

// Settlement is one appended batch of outcomes.
type Settlement struct {
	Lease   Lease
	Number  int64    // Verification.Settlements + 1
	Results []Result // at least one, at most SettlementMax; an ordinal is settled only once

	// Evidence is how the outcomes came about, at most EvidenceMax bytes, which the ledger does not interpret. It is
	// kept as long as the results; it may be empty.
	Evidence []byte

	// Expected is when the last address is expected to be final; zero: unknown. It does not distinguish settlements:
	// a repeat may bring another value, which is ignored.
	Expected time.Time

	// Why is as in Outlook, and also does not distinguish settlements. It is stored only while the verification
	// waits for receivers; "": the stored one stays.
	Why string
}

// Estimate is the engine's expectation for a verification in work.
type Estimate struct {
	Next     time.Time // when a receiver is due again; zero: there is work now
	Expected time.Time // when the last address is expected to be final; zero: unknown

	// Why is a sentence for the customer on why the file waits, at most WhyMax bytes: the message of the issue
	// ReceiversWait. "": no issue. Only with Next.
	Why string
}

// WhyMax bounds the sentence that tells a customer why a file waits for receivers, in bytes.
const WhyMax = 512

// CheckWhy checks whether a customer may see a text as the reason of a wait. ErrIllegal.
func CheckWhy(why string) error {
	if len(why) > WhyMax {
		return fmt.Errorf("%d bytes about a wait, at most %d: %w", len(why), WhyMax, ErrIllegal)
	}
	return CheckText(why)
}

// CheckText checks whether every database can store a text: valid UTF-8 without NUL, which PostgreSQL refuses.
// ErrIllegal.
func CheckText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("text that is not UTF-8 or holds NUL: %w", ErrIllegal)
	}
	return nil
}

// CheckName checks whether a text may be shown as a name: as CheckText, and without control characters, line
// separators and direction marks, which make .csv look like .exe (Unicode TR9 §2). ErrIllegal.
func CheckName(text string) error {
	if strings.ContainsFunc(text, misleads) {
		return fmt.Errorf("a name with control characters or direction marks: %w", ErrIllegal)
	}
	return CheckText(text)
}

// CleanName returns a text without what CheckName refuses.
func CleanName(text string) string {
	return strings.Map(func(c rune) rune {
		if misleads(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, ""))
}

func misleads(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Zl, unicode.Zp) ||
		c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069
}

// SettlementMax bounds the outcomes of one settlement. Settlements are batches so that the balance row does not
// become a hot spot.
const SettlementMax = 4096

// Position is a position in the history of a workspace, newest first.
type Position struct {
	Created time.Time
	ID      uuid.UUID
}

// HistoryQuery asks for one page of a workspace's verifications, newest first.
type HistoryQuery struct {
	Workspace uuid.UUID
	Kind      Kind      // "": both
	Open      bool      // only those that are not final
	After     *Position // nil: from the newest
	Limit     int
}

// Violation is one violated invariant.
type Violation struct {
	Invariant string `json:"invariant"` // of Invariants
	Subject   string `json:"subject"`   // workspace or verification id, or a table
	Detail    string `json:"detail"`    // found and expected values; no address
}

// AuditReport is what an audit read and found.
type AuditReport struct {
	Workspaces    int64 `json:"workspaces"`
	Verifications int64 `json:"verifications"`
	Chunks        int64 `json:"chunks"` // of uploads that are kept
	Settlements   int64 `json:"settlements"`
	Outcomes      int64 `json:"outcomes"`
	Entries       int64 `json:"entries"` // never fewer than before, because no entry is deleted

	// Newest is the time of the newest entry, zero without any. A restored backup has lost everything later.
	Newest time.Time `json:"newest_entry,omitzero"`

	Found      int64       `json:"found"`      // uncorrected violations, listed or not
	Violations []Violation `json:"violations"` // at most ViolationsMax

	Corrections []Correction `json:"corrections"` // newest first, at most ViolationsMax
}

// Retention is how long data is kept after a verification is final. 0 is for ever.
type Retention struct {
	Uploads, Results time.Duration
	Funding          time.Duration // how long a file may wait for credits; 0 is for ever
}

// ViolationsMax bounds the violations that an audit lists; further ones are only counted. Guess: more than a person
// reads.
const ViolationsMax = 1000

// ChunkBytesMax bounds one stored chunk of an upload, and so a reader's memory. Uploads are cut into 256 KiB; this
// leaves room, and is below CockroachDB's 1 MiB for a row.
const ChunkBytesMax = 512 << 10

// Millis returns the stored number of a time; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Clock returns the time of a stored number; the zero time for 0.
func Clock(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// UnpaidWithin is how long a verification that never held a credit counts against Limits.Unpaid.
const UnpaidWithin = 24 * time.Hour

// Limits bound the usage of a workspace, so that none fills the ledger for the others. In a workspace's own limits 0
// means the default.
type Limits struct {
	// Open is the number of its verifications that are not final.
	Open int64 `json:"open"`
	// Stored is the sum of declared bytes of uploads that are not erased.
	Stored int64 `json:"stored"`
	// Unpaid is the number of verifications created within UnpaidWithin that never held a credit: they are not yet
	// prepared, were refused or cancelled before, or wait for credits.
	Unpaid int64 `json:"unpaid"`
}

// Or replaces limits that are not set by the defaults.
func (l Limits) Or(defaults Limits) Limits {
	return Limits{Open: cmp.Or(l.Open, defaults.Open), Stored: cmp.Or(l.Stored, defaults.Stored),
		Unpaid: cmp.Or(l.Unpaid, defaults.Unpaid)}
}

// String returns the limits as text for the operator log.
func (l Limits) String() string {
	text := func(n int64) string {
		if n == 0 {
			return "default"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("open=%s stored=%s unpaid=%s", text(l.Open), text(l.Stored), text(l.Unpaid))
}

// Usage is a workspace with its limits and its current usage.
type Usage struct {
	Workspace
	Own  Limits // 0: the default
	Used Limits
}

// LimitsChange is an operator's change of a workspace's limits: nil keeps a limit, and 0 sets the default.
type LimitsChange struct {
	Workspace            uuid.UUID
	Open, Stored, Unpaid *int64
	Reason               string
}

// Apply returns the limits after a change.
func (c LimitsChange) Apply(l Limits) Limits {
	for _, field := range []struct{ to, from *int64 }{{&l.Open, c.Open}, {&l.Stored, c.Stored}, {&l.Unpaid, c.Unpaid}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	return l
}

// Check returns ErrIllegal if a limit would be negative, or the reason cannot be stored.
func (c LimitsChange) Check() error {
	if l := c.Apply(Limits{}); min(l.Open, l.Stored, l.Unpaid) < 0 {
		return fmt.Errorf("limits %s, none may be negative: %w", l, ErrIllegal)
	}
	return CheckOperatorText("reason", c.Reason)
}

// Later is a refusal that ends by itself.
type Later struct {
	Err   error
	After time.Duration // when to ask again
}

func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the refusal.
func (l *Later) Unwrap() error { return l.Err }
