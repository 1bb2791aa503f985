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

// wide is a file of total addresses that are all settled at once.
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

// TestAnOrdinalBelowTheFirstIsNamed: no payload can hold a negative ordinal, so the batch is made by hand.
func TestAnOrdinalBelowTheFirstIsNamed(t *testing.T) {
	v := working().v
	c := ledger.NewFileCheck(v)
	batch := ledger.Batch{Ordinals: []int64{-1}, Outcomes: []smtp.Outcome{smtp.Valid}}
	c.Settlement(1, 1, ledger.Counts{}, &batch)
	effort.Has(t, told(t, v.ID, c.Finish()), "I12 settlement 1 has ordinal -1 of 5")
}

// TestListedViolationsAreBounded: violations beyond the bound are only counted.
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

// broken are sound books, what spoils them, and the violations of that.
type broken struct {
	name  string
	books books
	spoil func(b *books)
	want  string // a line for each
}

// brokenBooks are books with one thing wrong each.
func brokenBooks() []broken {
	return []broken{
		{"entry of no known kind", sound(), func(b *books) { b.entries[1].kind = "gift" }, `
			I3 an entry of kind "gift"
			I4 the row holds 0, its entries leave 2
			I7 1 released for 3 free outcomes and cancelled addresses`},
		{"grant inside a file", sound(), func(b *books) { b.entries[1].kind = ledger.EntryGrant }, `
			I3 an entry of kind "grant"
			I4 the row holds 0, its entries leave 2
			I7 1 released for 3 free outcomes and cancelled addresses`},
		{"withdrawal inside a file", sound(), func(b *books) { b.entries[1].kind = ledger.EntryWithdrawal }, `
			I3 an entry of kind "withdrawal"
			I4 the row holds 0, its entries leave 2
			I7 1 released for 3 free outcomes and cancelled addresses`},
		{"refund inside a file", sound(), func(b *books) { b.entries[1].kind = ledger.EntryRefund }, `
			I3 an entry of kind "refund"
			I4 the row holds 0, its entries leave 2
			I7 1 released for 3 free outcomes and cancelled addresses`},
		{"entry in another workspace", sound(), func(b *books) { b.entries[0].workspace = uuid.Nil }, `
			I3 an entry in workspace ` + uuid.Nil.String() + `, the verification is in ` + tenant.String()},
		{"negative entry", sound(), func(b *books) { b.entries[4].amount = -1 }, `
			I2 an entry of -1 credits
			I6 settlement 2 charged -1 for 1 outcomes
			I4 the row holds 0, its entries leave 2
			I6 0 charged for 2 charged outcomes`},
		{"entry of nothing", sound(), func(b *books) {
			b.entries = append(b.entries, line{tenant, ledger.EntryRelease, 9, 0})
		}, `I2 an entry of 0 credits`},
		{"held twice", sound(), func(b *books) { b.entries = append(b.entries, b.entries[0]) }, `
			I4 the row holds 0, its entries leave 5
			I4 10 credits were held for 5 addresses`},
		{"held for another number", sound(), func(b *books) { b.entries[0].amount = 4 }, `
			I4 the row holds 0, its entries leave -1
			I4 4 credits were held for 5 addresses`},
		{"final and holds", sound(), func(b *books) { b.v.Held = 1 }, `
			I4 the row holds 1, its entries leave 0
			I5 cancelled and holds 1`},
		{"charged twice", sound(), func(b *books) { b.entries = append(b.entries, b.entries[2]) }, `
			I6 settlement 1 charged 2 for 1 outcomes
			I4 the row holds 0, its entries leave -1
			I6 3 charged for 2 charged outcomes`},
		{"charged with another settlement", sound(), func(b *books) { b.entries[4].number = 1 }, `
			I6 settlement 1 charged 2 for 1 outcomes
			I6 settlement 2 charged 0 for 1 outcomes`},
		{"unknown charged", sound(), func(b *books) { b.entries[3].kind = ledger.EntryCharge }, `
			I6 settlement 1 charged 2 for 1 outcomes
			I7 settlement 1 released 0 for 1 unknown
			I6 3 charged for 2 charged outcomes
			I7 2 released for 3 free outcomes and cancelled addresses`},
		{"error released", sound(), func(b *books) { b.entries[4].kind = ledger.EntryRelease }, `
			I6 settlement 2 charged 0 for 1 outcomes
			I7 settlement 2 released 1 for 0 unknown
			I6 1 charged for 2 charged outcomes
			I7 4 released for 3 free outcomes and cancelled addresses`},
		{"unchecked not released", sound(), func(b *books) {
			b.entries = slices.Delete(b.entries, 1, 2)
		}, `
			I4 the row holds 0, its entries leave 2
			I7 1 released for 3 free outcomes and cancelled addresses`},
		{"counter off", sound(), func(b *books) { b.v.Counts.Valid++ }, `
			I8 the settlements count {Valid:1 Unknown:1 Error:1}, the row {Valid:2 Unknown:1 Error:1}
			I12 the payloads hold {Valid:1 Unknown:1 Error:1}, the row counts {Valid:2 Unknown:1 Error:1}
			I6 2 charged for 3 charged outcomes
			I8 6 of 5 addresses are settled
			I8 cancelled with 6 of 5 settled`},
		{"final with addresses left", sound(), func(b *books) { b.v.Counts.Cancelled = 1 }, `
			I7 3 released for 2 free outcomes and cancelled addresses
			I8 cancelled with 4 of 5 settled`},
		{"not final with none left", sound(), func(b *books) { b.v.Status = ledger.Cancelling }, `
			I8 cancelling with 5 of 5 settled
			I10 cancelling with completed at 1970-01-01 00:00:00.001 +0000 UTC`},
		{"figures do not add up", sound(), func(b *books) { b.v.Duplicates = 0 }, `
			I8 total 5 of 6 rows and 0 duplicates`},
		{"ordinal twice", sound(), func(b *books) { b.batches[1].results[0].Ordinal = 1 }, `
			I9 ordinal 1 has a second outcome in settlement 2`},
		{"ordinal beyond the file", sound(), func(b *books) { b.batches[1].results[0].Ordinal = 5 }, `
			I12 settlement 2 has ordinal 5 of 5`},
		{"a status that is a state", sound(), func(b *books) { b.v.Status = "waiting_receivers" }, `
			I8 waiting_receivers with 5 of 5 settled
			I10 status "waiting_receivers", kind "bulk"
			I10 waiting_receivers with completed at 1970-01-01 00:00:00.001 +0000 UTC`},
		{"no kind", sound(), func(b *books) { b.v.Kind = "" }, `I10 status "cancelled", kind ""`},
		{"final without a time", sound(), func(b *books) { b.v.Completed = time.Time{} }, `
			I10 cancelled with completed at 0001-01-01 00:00:00 +0000 UTC`},
		{"completed with cancelled ones", sound(), func(b *books) {
			b.v.Status = ledger.CompletedWithErrors
		}, `
			I10 completed_with_errors with {Valid:1 Unknown:1 Error:1 Cancelled:2}`},
		{"payload with another outcome", sound(), func(b *books) {
			b.batches[1].results[0].Outcome = smtp.Valid
		}, `
			I12 settlement 2 counts {Error:1} and holds {Valid:1}
			I12 the payloads hold {Valid:2 Unknown:1}, the row counts {Valid:1 Unknown:1 Error:1}`},
		{"settlement missing", sound(), func(b *books) { b.batches = b.batches[:1] }, `
			settlements 1 settlements, the row says 2
			I8 the settlements count {Valid:1 Unknown:1}, the row {Valid:1 Unknown:1 Error:1}
			I12 the payloads hold {Valid:1 Unknown:1}, the row counts {Valid:1 Unknown:1 Error:1}`},
		{"settlement skipped", sound(), func(b *books) { b.batches[1].number = 3 }, `
			settlements settlement 3 follows 1
			I6 settlement 3 charged 0 for 1 outcomes
			settlements 3 settlements, the row says 2`},
		{"epoch goes back", sound(), func(b *books) { b.batches[1].epoch = 1 }, `
			settlements settlement 2 has epoch 1 after 2, the lease's is 3`},
		{"epoch of the future", sound(), func(b *books) { b.batches[1].epoch = 4 }, `
			settlements settlement 2 has epoch 4 after 2, the lease's is 3`},
		{"holds more than is left", working(), func(b *books) { b.v.Held++ }, `
			I4 the row holds 4, its entries leave 3
			I4 4 held with 3 addresses left`},
		{"held for more than there are", working(), func(b *books) {
			b.entries[0].amount++
			b.v.Held++
		}, `
			I4 6 credits were held for 5 addresses
			I4 4 held with 3 addresses left`},
		{"waits for credits and holds", working(), func(b *books) {
			b.v.Status, b.v.Issue = ledger.Waiting, &ledger.Issue{Code: ledger.CreditsRequired}
		}, `I5 waiting_credits and holds 3`},
		{"outcomes before its intake", working(), func(b *books) { b.v.Total = -1 }, `
			I12 settlement 1 has ordinal 1 of -1
			I12 settlement 1 has ordinal 4 of -1
			I4 5 credits were held for -1 addresses
			I4 3 held with 0 addresses left
			I8 2 of -1 addresses are settled
			I8 verifying with a total of -1
			I8 6 rows and 1 duplicates of a file that was not read`},
		{"at work before its intake", unmeasured(ledger.Verifying), func(*books) {}, `
			I8 verifying with a total of -1`},
		{"waiting before its intake", unmeasured(ledger.Waiting), func(*books) {}, `
			I8 waiting_receivers with a total of -1`},
		{"completed without an address", unmeasured(ledger.Completed), func(b *books) { b.v.Total = 0 }, `
			I8 completed with a total of 0`},
		{"read before its intake", unmeasured(ledger.Preparing), func(b *books) { b.v.Rows, b.v.Total = 2, 2 }, `
			I8 preparing with a total of 2`},
		{"duplicates before its intake", unmeasured(ledger.Failed), func(b *books) { b.v.Duplicates = 2 }, `
			I8 0 rows and 2 duplicates of a file that was not read`},
		{"more outcomes than addresses", working(), func(b *books) { b.v.Total, b.v.Rows = 1, 2 }, `
			I12 settlement 1 has ordinal 1 of 1
			I12 settlement 1 has ordinal 4 of 1
			I4 5 credits were held for 1 addresses
			I4 3 held with -1 addresses left
			I8 2 of 1 addresses are settled`},
		{"a time and not final", working(), func(b *books) { b.v.Completed = time.UnixMilli(1).UTC() }, `
			I10 verifying with completed at 1970-01-01 00:00:00.001 +0000 UTC`},
		{"released before it was held", working(), func(b *books) { b.entries[0].amount = 0 }, `
			I2 an entry of 0 credits
			I4 the row holds 3, its entries leave -2`},
		{"errors that are none", finished(ledger.Completed, smtp.Valid), func(b *books) {
			b.v.Status = ledger.CompletedWithErrors
		}, `
			I10 completed_with_errors with {Valid:1}`},
		{"errors that are not told", finished(ledger.CompletedWithErrors, smtp.Error), func(b *books) {
			b.v.Status = ledger.Completed
		}, `
			I10 completed with {Error:1}`},
		{"completed and cancelled", finished(ledger.Completed, smtp.Valid), func(b *books) {
			b.v.Counts.Cancelled, b.v.Total, b.v.Rows = 1, 2, 2
		}, `
			I4 1 credits were held for 2 addresses
			I7 0 released for 1 free outcomes and cancelled addresses
			I10 completed with {Valid:1 Cancelled:1}`},
		{"single without its outcome", finished(ledger.Completed, smtp.Valid), func(b *books) {
			b.v.Kind = ledger.Single
		}, `I10 completed and no outcome`},
		{"single error without its outcome", finished(ledger.CompletedWithErrors, smtp.Error), func(b *books) {
			b.v.Kind = ledger.Single
		}, `
			I10 completed_with_errors and no outcome`},
		{"each ordinal at the edge of a word twice", wide(130), func(b *books) {
			more := []ledger.Result{result(63), result(64), result(127), result(128)}
			b.batches = append(b.batches, batch{2, 1, ledger.Counts{Valid: 4}, more})
		}, `
			I6 settlement 2 charged 0 for 4 outcomes
			I9 ordinal 63 has a second outcome in settlement 2
			I9 ordinal 64 has a second outcome in settlement 2
			I9 ordinal 127 has a second outcome in settlement 2
			I9 ordinal 128 has a second outcome in settlement 2
			settlements 2 settlements, the row says 1
			I8 the settlements count {Valid:134}, the row {Valid:130}
			I12 the payloads hold {Valid:134}, the row counts {Valid:130}`},
		{"no address at all", unmeasured(ledger.Preparing), func(b *books) {
			b.v.Total, b.v.Rows = 0, 2
		}, `
			I8 preparing with 0 of 0 settled
			I8 total 0 of 2 rows and 0 duplicates`},
		{"released and never held", unmeasured(ledger.Cancelled), func(b *books) {
			b.v.Total, b.v.Rows, b.v.Counts.Cancelled = 3, 3, 3
			b.entries = []line{{tenant, ledger.EntryRelease, 0, 2}}
		}, `
			I4 the row holds 0, its entries leave -2
			I7 2 released for 3 free outcomes and cancelled addresses`},
	}
}
