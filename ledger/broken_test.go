package ledger_test

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

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
