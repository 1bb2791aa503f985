package sqlstore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

const (
	// historyPage is the limit of a page that the API has when none is asked for.
	historyPage = 20
	// historyStart is when the first verification was made; one each second follows.
	historyStart = 1_700_000_000_000
	// One in a hundred is a single, so that a filter has to skip something.
	historySingles = 100
)

// historyFill inserts verifications that were completed and erased long ago: it is
// told how to make a random id, how to count from 0, and historySingles.
const historyFill = `INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, durable,
	upload_expires, status, created, completed, records, total, count_valid, upload_deleted, results_deleted)
	SELECT %[1]s, $1, %[1]s, CASE i %% %[3]d WHEN 0 THEN 'single' ELSE 'bulk' END, 'list.csv', 1000, 1000,
	$2 + i * 1000 + 500, 'completed', $2 + i * 1000, $2 + i * 1000 + 500, 10, 10, 10, 1, 1 FROM %[2]s`

// BenchmarkHistory reads pages of the history of a workspace with 1,000 and with
// 1,000,000 verifications: the first page, one in the middle, and the same of
// one kind. Each is one range read of an index, so that the number hardly counts.
func BenchmarkHistory(b *testing.B) {
	for _, e := range engines() {
		for _, rows := range []int64{1_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, rows), func(b *testing.B) {
				book, bare := e.start(b).open(b)
				d := ledgertest.NewDesk(b, book, 0)
				fillHistory(b, e, bare, d.Workspace, rows)
				middle := &ledger.Position{Created: time.UnixMilli(historyStart + rows/2*1000), ID: uuid.Max}
				for _, c := range []struct {
					name  string
					query ledger.HistoryQuery
				}{
					{"first", ledger.HistoryQuery{}},
					{"middle", ledger.HistoryQuery{After: middle}},
					{"first of a kind", ledger.HistoryQuery{Kind: ledger.Single}},
					{"middle of a kind", ledger.HistoryQuery{Kind: ledger.Single, After: middle}},
				} {
					c.query.Workspace, c.query.Limit = d.Workspace, historyPage
					want := historyPage
					if c.query.Kind != "" { // a small workspace has fewer than a page of them
						want = min(want, int(rows)/historySingles)
						if c.query.After != nil {
							want = min(want, int(rows)/2/historySingles+1)
						}
					}
					b.Run(c.name, func(b *testing.B) { readPages(b, book, c.query, want) })
				}
			})
		}
	}
}

// fillHistory makes a workspace's verifications, past the rules of the ledger.
func fillHistory(b *testing.B, e engine, bare *sql.DB, workspace uuid.UUID, rows int64) {
	b.Helper()
	fill := fmt.Sprintf(historyFill, e.randomID, e.series, historySingles)
	_, err := bare.ExecContext(b.Context(), fill, workspace[:], int64(historyStart), rows)
	if err == nil {
		_, err = bare.ExecContext(b.Context(), e.analyze)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// readPages reads one page again and again.
func readPages(b *testing.B, book ledger.Book, q ledger.HistoryQuery, want int) {
	b.ReportAllocs()
	for b.Loop() {
		page, err := book.History(b.Context(), q)
		if err != nil || len(page) != want {
			b.Fatalf("%d of %d verifications, %v", len(page), want, err)
		}
	}
}
