package ledger

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/smtp"
	"rollcall/smtp/flags"
)

// Credits is the unit of money: whole credits, one for each charged outcome.
type Credits int64

// Balance is a workspace's account: Granted = Available + Held + Spent, none negative.
type Balance struct {
	Granted, Available, Held, Spent Credits
}

// Workspace is the paying tenant.
type Workspace struct {
	ID      uuid.UUID
	Name    string
	Created time.Time
	Weight  int // turns at receivers for one of another workspace: 1 to WeightMax
}

// Key is an API key without its secret.
type Key struct {
	ID           string // public part, 12 lower-case letters and digits
	Workspace    uuid.UUID
	Label        string
	SecretSHA256 [32]byte
	Created      time.Time
	Revoked      time.Time // zero: it was not
	Suspended    bool      // it does not work while the user who made it is disabled or no owner of the workspace
	MadeBy       string    // who made it and who revoked it, as Actor names them; "": nobody said
	RevokedBy    string
	LastUsed     time.Time // as UseKeys noted it; zero: never
}

// Works reports whether requests with the key are let in.
func (k Key) Works() bool { return k.Revoked.IsZero() && !k.Suspended }

// Status is where a verification is, in the contract's words.
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

// Final reports whether nothing will change any more.
func (s Status) Final() bool {
	return s == Completed || s == CompletedWithErrors || s == Cancelled || s == Failed
}

// Kind is how a verification came in.
type Kind string

// The two kinds.
const (
	Bulk   Kind = "bulk"
	Single Kind = "single"
)

// Issue is what is wrong with a verification, for its customer.
type Issue struct {
	Code    string
	Message string
	Row     int64 // 1-based CSV record number; 0: none

	// Text is that row, at most IssueTextMax bytes; "": none. It quotes the file: only pages for members of the
	// workspace show it, and it goes with the verification.
	Text string
}

// IssueTextMax bounds the text of a row that an issue quotes, in bytes.
const IssueTextMax = 320

// Counts are final outcomes by kind, and addresses that were never checked.
type Counts struct {
	Valid, Invalid, CatchAll, Unknown, Error, Cancelled int64
}

// Charged is the number of outcomes that cost a credit.
func (c Counts) Charged() int64 { return c.Valid + c.Invalid + c.CatchAll + c.Error }

// Sum is the number of addresses that are settled one way or another.
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
	NextTry       time.Time    // waiting for receivers: when something is due again; zero otherwise
	Expected      time.Time    // when its last address is expected to be final; zero: not known, or over
	Held          Credits      // what it still holds
	UploadDeleted bool         // its bytes are erased
	Epoch         int64        // grows each time its lease changes hands
	Settlements   int64        // number of settlements so far
	LeasedUntil   time.Time    // until when a node has it if it renews nothing; zero: none has. Of Evidence and OpenVerifications only
	LeasedBy      uuid.UUID    // the node that has it, also when that time is over; zero: none. Of Evidence and OpenVerifications only
	RestsUntil    time.Time    // parked: no node takes it before; it may be over. Of Evidence and OpenVerifications only
	MadeBy        string       // who created it, as Actor names them; "": nobody said
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
	Limits       Limits        // the defaults, for a workspace that has none of its own
	UploadExpiry time.Duration // from now on the ledger's clock
	MadeBy       string        // filled in, as Actor says it
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
	MadeBy       string // who created it, as Actor names them: a user has to be let in for as long as it lasts
	Writer       int64  // the fence: only the newest writer may append
}

// Lease is the right of one node to work on one verification.
type Lease struct {
	Verification uuid.UUID
	Node         uuid.UUID
	Epoch        int64
}

const (
	// ParkedMax bounds the state of a verification that is parked, in bytes: CockroachDB
	// wants rows below 1 MiB.
	ParkedMax = 960 << 10

	// ExceptMax bounds the workspaces that Lease passes over.
	ExceptMax = 512

	// CrashesMax is how many times the work on a verification may end in a fault of the
	// program before it is set aside.
	CrashesMax = 2

	// CrashPause is how long it rests before it is tried again.
	CrashPause = time.Minute
)

// Result is one settled address.
type Result struct {
	Ordinal int64  // place among the distinct addresses of the file, from 0
	Email   string // first spelling, byte for byte
	Outcome smtp.Outcome
	Reason  smtp.Reason
	At      time.Time // of the final evidence; millisecond precision

	Operator flags.Operator // of the host that was asked last; 0: nobody known
}

// Settlement is one appended batch of outcomes.
type Settlement struct {
	Lease   Lease
	Number  int64    // Verification.Settlements + 1
	Results []Result // at least one, at most SettlementMax, each ordinal once in the life of the verification

	// Evidence is how the outcomes came about, at most EvidenceMax bytes in which
	// the ledger does not look. It is kept as long as the results; there may be none.
	Evidence []byte

	// Expected is when the last address is expected to be final; zero: not known. It
	// is news, and makes no other settlement: a repeat may bring another, which is
	// not kept.
	Expected time.Time

	// Why is news too, as in Outlook: what is waited for now. It is kept only while the
	// verification waits for receivers; "": what it was told before stays.
	Why string
}

// Outlook is what the engine expects of a verification that it works on.
type Outlook struct {
	Next     time.Time // when a receiver is due again; zero: there is work now
	Expected time.Time // when the last address is expected to be final; zero: not known

	// Why tells the customer in a sentence what is waited for, at most WhyMax bytes: the message of
	// the issue ReceiversWait. "": there is no issue. None without Next.
	Why string
}

// WhyMax bounds the sentence that tells a customer why a file waits for receivers, in bytes.
const WhyMax = 512

// CheckWhy reports whether a text can be shown to a customer as the reason of a wait. ErrIllegal.
func CheckWhy(why string) error {
	if len(why) > WhyMax {
		return fmt.Errorf("%d bytes about a wait, at most %d: %w", len(why), WhyMax, ErrIllegal)
	}
	return CheckText(why)
}

// CheckText reports whether every database can keep a text: valid UTF-8 without NUL,
// which PostgreSQL has no place for. ErrIllegal.
func CheckText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("text that is not UTF-8 or holds NUL: %w", ErrIllegal)
	}
	return nil
}

// CheckName reports whether people may be shown a text as the name of something: what CheckText says, without
// controls, separators of lines and marks that turn the direction of text, which make .csv look like .exe (Unicode
// TR9 §2). ErrIllegal.
func CheckName(text string) error {
	if strings.ContainsFunc(text, misleads) {
		return fmt.Errorf("a name with controls or marks that turn text: %w", ErrIllegal)
	}
	return CheckText(text)
}

// CleanName is a text without what CheckName refuses.
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

// SettlementMax bounds the outcomes of one settlement; the interface asks for
// batches so that the balance row does not become the hot spot.
const SettlementMax = 4096

// Position is a place in the history of a workspace, newest first.
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

// Violation is one broken invariant that an audit found.
type Violation struct {
	Invariant string `json:"invariant"` // of Invariants
	Subject   string `json:"subject"`   // workspace or verification id, or a table
	Detail    string `json:"detail"`    // what was found and what was expected; no address
}

// AuditReport is what an audit looked at and what it found.
type AuditReport struct {
	Workspaces    int64 `json:"workspaces"`
	Verifications int64 `json:"verifications"`
	Chunks        int64 `json:"chunks"` // of uploads that are kept
	Settlements   int64 `json:"settlements"`
	Outcomes      int64 `json:"outcomes"`
	Entries       int64 `json:"entries"` // never fewer than before: no entry is ever deleted

	// Newest is the time of the newest entry, zero without any. In a restored
	// backup, what happened later is not known.
	Newest time.Time `json:"newest_entry,omitzero"`

	Found      int64       `json:"found"`      // violations that no correction set right, listed or not
	Violations []Violation `json:"violations"` // at most ViolationsMax

	Corrections []Correction `json:"corrections"` // newest first, at most ViolationsMax
}

// Retention says how long what is kept after a verification is final. 0 is for ever.
type Retention struct {
	Uploads, Results time.Duration
	Funding          time.Duration // how long a file may wait for credits; 0 is for ever
}

// ViolationsMax bounds the violations that an audit lists; it goes on counting
// them after that. Guess: more than a person reads.
const ViolationsMax = 1000

// ChunkBytesMax bounds one stored chunk of an upload, and so the memory of whoever
// reads the file. Uploads are cut into 256 KiB; this leaves room, and is below the
// 1 MiB that CockroachDB wants of a row.
const ChunkBytesMax = 512 << 10

// Millis is the number that is stored for a time; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Clock is the time of a stored number; the zero time for 0.
func Clock(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// UnpaidWithin is how long a verification that never held a credit counts against Limits.Unpaid.
const UnpaidWithin = 24 * time.Hour

// Limits bound what a workspace may have, so that none fills the ledger for the others. In
// those that were set for one workspace 0 is the default.
type Limits struct {
	// Open is the number of its verifications that are not final.
	Open int64 `json:"open"`
	// Stored is the sum of the declared bytes of those whose upload is not erased.
	Stored int64 `json:"stored"`
	// Unpaid is the number of those that were created within UnpaidWithin and never held a
	// credit: that are not prepared yet, were refused or cancelled before, or wait for credits.
	Unpaid int64 `json:"unpaid"`
}

// Or fills in what is not set.
func (l Limits) Or(defaults Limits) Limits {
	for _, field := range []struct {
		own     *int64
		instead int64
	}{{&l.Open, defaults.Open}, {&l.Stored, defaults.Stored}, {&l.Unpaid, defaults.Unpaid}} {
		if *field.own == 0 {
			*field.own = field.instead
		}
	}
	return l
}

// String is how a line of the operator log has limits of a workspace.
func (l Limits) String() string {
	text := func(n int64) string {
		if n == 0 {
			return "default"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("open=%s stored=%s unpaid=%s", text(l.Open), text(l.Stored), text(l.Unpaid))
}

// Usage is a workspace with its limits and what it has at a moment.
type Usage struct {
	Workspace
	Own  Limits // 0: the default
	Used Limits
}

// LimitsChange is what an operator sets for a workspace: every field that is not nil, and
// 0 is the default.
type LimitsChange struct {
	Workspace            uuid.UUID
	Open, Stored, Unpaid *int64
	Reason               string
}

// Apply returns limits as they are after a change.
func (c LimitsChange) Apply(l Limits) Limits {
	for _, field := range []struct{ to, from *int64 }{{&l.Open, c.Open}, {&l.Stored, c.Stored}, {&l.Unpaid, c.Unpaid}} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	return l
}

// Check reports whether a change can be made. ErrIllegal.
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

// Error implements error.
func (l *Later) Error() string { return l.Err.Error() }

// Unwrap returns the refusal.
func (l *Later) Unwrap() error { return l.Err }
