package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// parkedFill inserts verifications that are parked for some hours, one address each, and the
// state of their work.
const parkedFill = `INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, durable,
	upload_expires, status, created, records, total, held, next_try, wake_at, epoch, paid)
	SELECT %[1]s, $1, %[1]s, 'bulk', 'list.csv', 20, 20, $2 + i, 'waiting', $2 + i, 1, 1, 0, $2 + 3600000 + i * 100, $2 + 3600000 + i * 100,
	1, 1 FROM %[2]s`

// BenchmarkLeaseBesideParked is the question that each node asks each second for work, beside so many
// verifications that are parked: nothing is due, then one is, which is leased and given back.
func BenchmarkLeaseBesideParked(b *testing.B) {
	for _, e := range engines() {
		for _, rows := range []int64{0, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", e.name, rows), func(b *testing.B) {
				book, bare := e.start(b).open(b)
				d := ledgertest.NewDesk(b, book, 9)
				due := d.Takes(d.Uploads().ID) // before its workspace has many
				fill := fmt.Sprintf(parkedFill, e.randomID, e.series)
				now := time.Now().UnixMilli()
				_, err := bare.ExecContext(b.Context(), fill, d.Workspace[:], now, rows)
				if err == nil {
					_, err = bare.ExecContext(b.Context(), e.analyze)
				}
				if err != nil {
					b.Fatal(err)
				}
				full := []uuid.UUID{uuid.New(), uuid.New()}
				b.Run("nothing due", func(b *testing.B) {
					for b.Loop() {
						if list, err := book.Lease(b.Context(), d.Node, 1, time.Minute, full...); err != nil || len(list) > 0 {
							b.Fatalf("%d leased, %v", len(list), err)
						}
					}
				})
				if err := book.Release(b.Context(), due); err != nil {
					b.Fatal(err)
				}
				b.Run("one due", func(b *testing.B) {
					for b.Loop() {
						list, err := book.Lease(b.Context(), d.Node, 1, time.Minute, full...)
						if err != nil || len(list) != 1 {
							b.Fatalf("%d leased, %v", len(list), err)
						}
						l := ledger.Lease{Verification: list[0].ID, Node: d.Node, Epoch: list[0].Epoch}
						if err := book.Release(b.Context(), l); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}
