package ledger_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var tenant = uuid.MustParse("11111111-2222-4333-8444-555555555555")

// line is one entry of a file's books.
type line struct {
	workspace uuid.UUID
	kind      ledger.EntryKind
	number    int64
	amount    ledger.Credits
}

// batch is one settlement of a file's books.
type batch struct {
	number, epoch int64
	counts        ledger.Counts
	results       []ledger.Result // nil: erased
}

// books are all that an audit reads about one verification.
type books struct {
	v       ledger.Verification
	entries []line
	batches []batch
}

// sound is a cancelled file of five addresses: two settlements with a valid, an
// error and an unknown, and two addresses that were never checked.
func sound() books {
	unknown, fault := result(4), result(0)
	unknown.Outcome, fault.Outcome = smtp.Unknown, smtp.Error
	return books{
		v: ledger.Verification{ID: uuid.Max, Workspace: tenant, Kind: ledger.Bulk, Status: ledger.Cancelled,
			Completed: time.UnixMilli(1).UTC(), Rows: 6, Duplicates: 1, Total: 5, Epoch: 3, Settlements: 2,
			Counts: ledger.Counts{Valid: 1, Error: 1, Unknown: 1, Cancelled: 2}},
		entries: []line{
			{tenant, ledger.EntryHold, 0, 5}, {tenant, ledger.EntryRelease, 0, 2},
			{tenant, ledger.EntryCharge, 1, 1}, {tenant, ledger.EntryRelease, 1, 1},
			{tenant, ledger.EntryCharge, 2, 1},
		},
		batches: []batch{
			{1, 2, ledger.Counts{Valid: 1, Unknown: 1}, []ledger.Result{result(1), unknown}},
			{2, 3, ledger.Counts{Error: 1}, []ledger.Result{fault}},
		},
	}
}

// check audits the books.
func (b books) check(t *testing.T) []ledger.Violation {
	t.Helper()
	c := ledger.NewFileCheck(b.v)
	for _, e := range b.entries {
		c.Entry(e.workspace, e.kind, e.number, e.amount)
	}
	for _, s := range b.batches {
		if s.results == nil {
			c.Settlement(s.number, s.epoch, s.counts, nil)
			continue
		}
		p, err := ledger.EncodeResults(s.results)
		var opened ledger.Batch
		if err == nil {
			err = opened.Decode(p.Bytes)
		}
		effort.OK(t, err)
		c.Settlement(s.number, s.epoch, s.counts, &opened)
	}
	return c.Finish()
}

// working is a file of five addresses in the middle of its work: one of each price.
func working() books {
	b := sound()
	b.v.Status, b.v.Completed, b.v.Held, b.v.Settlements = ledger.Verifying, time.Time{}, 3, 1
	b.v.Counts = ledger.Counts{Valid: 1, Unknown: 1}
	b.entries = slices.Delete(b.entries, 1, 2)[:3]
	b.batches = b.batches[:1]
	return b
}

// finished is a file of one address with its outcome.
func finished(status ledger.Status, o smtp.Outcome) books {
	r := result(0)
	r.Outcome = o
	b := books{v: ledger.Verification{ID: uuid.Max, Workspace: tenant, Kind: ledger.Bulk, Status: status,
		Completed: time.UnixMilli(1).UTC(), Rows: 1, Total: 1, Epoch: 1, Settlements: 1},
		entries: []line{{tenant, ledger.EntryHold, 0, 1}, {tenant, ledger.EntryCharge, 1, 1}}}
	b.v.Counts.Add(o)
	b.batches = []batch{{1, 1, b.v.Counts, []ledger.Result{r}}}
	return b
}

// unmeasured is a file before its intake.
func unmeasured(status ledger.Status) books {
	b := books{v: ledger.Verification{ID: uuid.Max, Workspace: tenant, Kind: ledger.Bulk, Status: status}}
	b.v.Total = -1
	if status.Final() {
		b.v.Completed = time.UnixMilli(1).UTC()
	}
	return b
}

// wide is a file of so many addresses that are all settled at once.
func wide(total int64) books {
	b := finished(ledger.Completed, smtp.Valid)
	b.v.Rows, b.v.Total, b.v.Counts = total, total, ledger.Counts{Valid: total}
	b.entries[0].amount, b.entries[1].amount = ledger.Credits(total), ledger.Credits(total)
	b.batches[0].counts = b.v.Counts
	for o := int64(1); o < total; o++ {
		b.batches[0].results = append(b.batches[0].results, result(o))
	}
	return b
}

func TestSoundBooksHaveNoViolation(t *testing.T) {
	erased, waits, cancelling := sound(), working(), working()
	erased.batches[0].results, erased.batches[1].results = nil, nil
	waits.v.Status, cancelling.v.Status = ledger.Waiting, ledger.Cancelling
	unfunded := unmeasured(ledger.Waiting)
	unfunded.v.Rows, unfunded.v.Total, unfunded.v.Issue = 3, 3, &ledger.Issue{Code: ledger.CreditsRequired}
	never := unfunded
	never.v.Status, never.v.Counts.Cancelled, never.v.Completed = ledger.Cancelled, 3, time.UnixMilli(1).UTC()
	single := finished(ledger.Completed, smtp.Valid)
	single.v.Kind, single.v.SingleOutcome = ledger.Single, smtp.Valid
	early := unmeasured(ledger.Uploading)
	early.v.Kind = ledger.Single
	for name, b := range map[string]books{
		"cancelled half-way": sound(), "after its retention": erased, "waits for credits": unfunded,
		"cancelled before it was funded": never, "verifying": working(), "waits for receivers": waits,
		"cancelling": cancelling, "completed": finished(ledger.Completed, smtp.Invalid),
		"completed with errors": finished(ledger.CompletedWithErrors, smtp.Error), "a single": single,
		"a single without its bytes": early, "preparing": unmeasured(ledger.Preparing),
		"refused": unmeasured(ledger.Failed), "cancelled at once": unmeasured(ledger.Cancelled),
		"64 addresses": wide(64), "65 addresses": wide(65), "200 addresses": wide(200),
	} {
		effort.Is(t, len(b.check(t)), 0, name)
	}
}

// zeros are what a figure of nothing looks like among others.
var zeros = regexp.MustCompile(`[A-Za-z]+:0 ?`)

// told puts violations of one subject on lines, without the figures that are 0.
func told(t *testing.T, subject uuid.UUID, list []ledger.Violation) string {
	t.Helper()
	var lines []string
	for _, v := range list {
		effort.Is(t, v.Subject, subject.String(), subject, v)
		lines = append(lines, v.Invariant+" "+strings.ReplaceAll(zeros.ReplaceAllString(v.Detail, ""), " }", "}"))
	}
	return strings.Join(lines, "\n")
}

// trimmed is a text without the white space around its lines.
func trimmed(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// TestEachBrokenInvariantIsNamed breaks sound books in one place each: what that
// breaks is told, with the figures, and nothing else.
func TestEachBrokenInvariantIsNamed(t *testing.T) {
	for _, c := range brokenBooks() {
		b := c.books
		c.spoil(&b)
		effort.Is(t, told(t, b.v.ID, b.check(t)), trimmed(c.want), c.name)
	}
}

// TestAnOrdinalBelowTheFirstIsNamed, which no payload can hold.
func TestAnOrdinalBelowTheFirstIsNamed(t *testing.T) {
	v := working().v
	c := ledger.NewFileCheck(v)
	batch := ledger.Batch{Ordinals: []int64{-1}, Outcomes: []smtp.Outcome{smtp.Valid}}
	c.Settlement(1, 1, ledger.Counts{}, &batch)
	effort.Has(t, told(t, v.ID, c.Finish()), "I12 settlement 1 has ordinal -1 of 5")
}

// TestListedViolationsAreBounded, and the rest is counted.
func TestListedViolationsAreBounded(t *testing.T) {
	v := sound().v
	c := ledger.NewFileCheck(v)
	for range 3 * ledger.ViolationsMax {
		c.Entry(v.Workspace, ledger.EntryGrant, 0, 1)
	}
	list := c.Finish()
	effort.ErrorIf(t, len(list) != ledger.ViolationsMax || c.Found() <= 3*ledger.ViolationsMax,
		"%d are listed of %d", len(list), c.Found())
}

func TestBalanceIsCheckedAgainstItsEntries(t *testing.T) {
	entries := ledger.Sums{Granted: 10, Held: 6, Charged: 2, Released: 1}
	for _, c := range []struct {
		name    string
		balance ledger.Balance
		entries ledger.Sums
		held    ledger.Credits
		want    string
	}{
		{"sound", ledger.Balance{Granted: 10, Available: 5, Held: 3, Spent: 2}, entries, 3, ""},
		{"nothing yet", ledger.Balance{}, ledger.Sums{}, 0, ""},
		{"sum off", ledger.Balance{Granted: 10, Available: 6, Held: 3, Spent: 2}, entries, 3, `
			I1 granted is not available + held + spent: {Granted:10 Available:6 Held:3 Spent:2}
			I3 the account is {Granted:10 Available:6 Held:3 Spent:2},` +
			` its entries make {Granted:10 Available:5 Held:3 Spent:2}`},
		{"available below nothing", ledger.Balance{Granted: 2, Available: -1, Held: 3},
			ledger.Sums{Granted: 2, Held: 3}, 3, `I2 a negative amount: {Granted:2 Available:-1 Held:3}`},
		{"held below nothing", ledger.Balance{Granted: 2, Available: 3, Held: -1},
			ledger.Sums{Granted: 2, Released: 1}, -1, `I2 a negative amount: {Granted:2 Available:3 Held:-1}`},
		{"spent below nothing", ledger.Balance{Granted: 2, Held: 3, Spent: -1},
			ledger.Sums{Granted: 2, Held: 2, Charged: -1}, 3, `I2 a negative amount: {Granted:2 Held:3 Spent:-1}`},
		{"granted below nothing", ledger.Balance{Granted: -1, Held: -1},
			ledger.Sums{Granted: -1, Held: -1}, -1, `I2 a negative amount: {Granted:-1 Held:-1}`},
		{"entry missing", ledger.Balance{Granted: 10, Available: 5, Held: 3, Spent: 2},
			ledger.Sums{Granted: 9, Held: 6, Charged: 2, Released: 1}, 3, `
			I3 the account is {Granted:10 Available:5 Held:3 Spent:2},` +
				` its entries make {Granted:9 Available:4 Held:3 Spent:2}`},
		{"files hold less", ledger.Balance{Granted: 10, Available: 5, Held: 3, Spent: 2}, entries, 2,
			`I4 held is 3, its verifications hold 2`},
	} {
		got := told(t, tenant, ledger.CheckBalance(tenant, c.balance, c.entries, c.held))
		effort.Is(t, got, trimmed(c.want), c.name)
	}
}
