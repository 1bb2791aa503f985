package sqlstore

import (
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// drawn is a ledger whose clock and whose customers are drawn.
type drawn struct {
	*beside
	d        *ledgertest.Fixture
	random   *rand.Rand
	now      int64
	leases   []ledger.Verification
	compared int // looks from a bound that found something
}

// at sets the clock of the ledger.
func (h *drawn) at(now int64) {
	h.t.Helper()
	h.now = now
	effort.OK(h.t, h.store.update(h.t.Context(), runs(`UPDATE clock SET now = ? WHERE one = 1`, now)))
}

// passes lets time pass: mostly some seconds, sometimes far, sometimes back.
func (h *drawn) passes() {
	by := h.random.Int64N(40_000)
	switch h.random.IntN(12) {
	case 0:
		by = -h.random.Int64N(5000)
	case 1:
		by = h.random.Int64N((6 * time.Hour).Milliseconds())
	}
	h.ran += max(by, 0)
	h.at(h.now + by)
}

// acts does one thing that a customer, a node or time does. What is refused is refused.
func (h *drawn) acts() {
	ctx, d := h.t.Context(), h.d
	mine := func() (ledger.Verification, ledger.Lease) {
		if len(h.leases) == 0 {
			return ledger.Verification{}, ledger.Lease{}
		}
		v := h.leases[h.random.IntN(len(h.leases))]
		now, _ := d.Verification(ctx, d.Workspace, v.ID) // it may be forgotten
		return now, ledger.Lease{Verification: v.ID, Node: d.Node, Epoch: v.Epoch}
	}
	page, err := d.History(ctx, ledger.HistoryQuery{Workspace: d.Workspace, Limit: 30})
	effort.OK(h.t, err)
	any := ledger.Verification{ID: uuid.New()}
	if len(page) > 0 {
		any = page[h.random.IntN(len(page))]
	}
	next := ledger.Estimate{Next: time.UnixMilli(h.now + h.random.Int64N(400_000) - 200_000)}
	v, l := mine()
	switch h.random.IntN(12) {
	case 0, 1:
		n := d.Asks(9)
		n.UploadExpiry = time.Duration(h.random.Int64N(int64(2 * time.Hour)))
		_, _, err = d.Create(ctx, n)
	case 2, 3:
		if any.Status == ledger.Uploading {
			u, _ := d.OpenUpload(ctx, any.ID)
			_, err = d.AppendChunk(ctx, any.ID, u.Writer, 0, []byte("nine byte"))
		}
	case 4, 5:
		var list []ledger.Verification
		list, err = d.Lease(ctx, d.Node, 2, time.Duration(h.random.Int64N(int64(20*time.Minute))))
		h.leases = append(h.leases, list...)
	case 6:
		total := 1 + h.random.Int64N(2*ledger.SettlementMax)
		_, err = d.Prepare(ctx, l, total, 0, total)
	case 7:
		if v.State().Funded() && v.Left() <= ledger.SettlementMax {
			done := v.Total - v.Left()
			_, err = d.Settle(ctx, ledgertest.Batch(l, 1, done, v.Total-1, smtp.Valid))
		} else if v.ID != uuid.Nil {
			_, err = d.Refuse(ctx, l, ledger.Issue{Code: "csv_encoding"})
		}
	case 8:
		if h.random.IntN(3) == 0 {
			_, err = d.Cancel(ctx, d.Workspace, any.ID)
		} else {
			_, err = d.FinishCancel(ctx, l)
		}
	case 9:
		if h.random.IntN(2) == 0 {
			_, err = d.Park(ctx, l, next, []byte("state"))
		} else {
			err = d.Release(ctx, l)
		}
	case 10:
		if h.random.IntN(2) == 0 {
			_, err = d.Grant(ctx, uuid.New(), d.Workspace, ledger.Credits(1+h.random.Int64N(6000)), "test")
		} else {
			_, err = d.Crashed(ctx, l)
		}
	case 11:
		facts := []ledger.Fact{{Key: strconv.Itoa(h.random.IntN(9)), Expires: time.UnixMilli(h.now + h.random.Int64N(400_000))}}
		err = d.Learn(ctx, facts)
	}
	_ = err // a lease may be gone, a file may be over
}

// compares asks each question from its bound and from the beginning.
func (h *drawn) compares(r ledger.Retention) {
	h.t.Helper()
	s := h.store
	effort.OK(h.t, s.boundLeases(h.t.Context()))
	effort.OK(h.t, s.view(h.t.Context(), func(t *tx) error {
		from, _ := s.bounds.get(leasing)
		for range 2 {
			var lists [2][]string
			for i, at := range []bound{{}, from} {
				free, err := t.free(at, 1000, nil)
				if err != nil {
					return err
				}
				for _, v := range free {
					lists[i] = append(lists[i], v.ID.String())
				}
			}
			h.same("lease", lists)
		}
		for a, after := range map[aged]time.Duration{dueUploading: 0, dueFunding: r.Funding, dueUploads: r.Uploads, dueResults: r.Results,
			dueUnread: 0, dueUnpaid: r.Results, dueFacts: 0} {
			until := h.now - after.Milliseconds()
			from, whole := s.since(a, until)
			if whole {
				continue
			}
			var lists [2][]string
			for i, from := range []int64{0, from} {
				err := t.Each(func(rows *sql.Rows) error {
					var id string
					err := rows.Scan(&id)
					lists[i] = append(lists[i], id)
					return err
				}, a.ask(a.id), from, until, 1000)
				if err != nil {
					return err
				}
			}
			h.same(a.what, lists)
		}
		return nil
	}))
}

func (h *drawn) same(what string, lists [2][]string) {
	h.t.Helper()
	effort.FatalIf(h.t, !slices.Equal(lists[0], lists[1]),
		"%s: a look from the beginning finds %x, and one from the bound %x", what, lists[0], lists[1])
	if len(lists[1]) > 0 {
		h.compared++
	}
}

// TestALookFromABoundOverlooksNothing: in drawn histories a search from a bound finds the same rows as one from the
// beginning, in the same order.
func TestALookFromABoundOverlooksNothing(t *testing.T) {
	effort.Unraced(t, "one call after the other")
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	for seed := range uint64(effort.Cases(1)) {
		b := newBeside(t, NewFile(t))
		h := &drawn{beside: b, random: rand.New(rand.NewPCG(seed, 1))}
		h.at(1_700_000_000_000)
		b.store.bounds.ran = func() time.Duration { return time.Duration(b.ran) * time.Millisecond }
		h.d = ledgertest.NewFixture(t, b.store, 3*ledger.SettlementMax)
		for range 400 {
			h.acts()
			h.passes()
			// A retention that is lowered makes more due, and one that is raised less.
			r := ledger.Retention{Uploads: time.Hour, Results: 3 * time.Hour, Funding: 2 * time.Hour}
			if h.random.IntN(4) == 0 {
				r = ledger.Retention{Uploads: time.Minute, Results: 2 * time.Minute, Funding: time.Minute}
			}
			h.compares(r)
			if h.random.IntN(4) == 0 {
				w := sweep{sweeper: h.store.sweeper, now: h.now}
				w.all(t.Context(), r)
				effort.FatalIf(t, w.first != nil, "%v", w.first)
			}
		}
		effort.ErrorIf(t, h.compared < 100, "seed %d: %d looks found something", seed, h.compared)
		h.d.Audits()
	}
}

// TestWhatIsOverlookedIsFoundLater: rows that were put below a bound by hand are found by the next search from the
// beginning. After a clock was set back, rows are found at once.
func TestWhatIsOverlookedIsFoundLater(t *testing.T) {
	t.Parallel()
	b := newBeside(t, NewFile(t))
	h := &drawn{beside: b}
	h.at(1_700_000_000_000)
	d := ledgertest.NewFixture(t, b.store, 9)
	leased := func(want int) {
		t.Helper()
		effort.Is(t, len(effort.Must(d.Lease(t.Context(), d.Node, 9, 0))(t)), want, "leased")
	}
	leased(0) // from here on there is a bound
	h.at(h.now - 3000)
	v := d.Uploads()
	h.at(h.now + time.Hour.Milliseconds())
	leased(1) // what came with a clock that was set back a little is not below it
	run(t, b.store, `UPDATE verifications SET wake_at = 1 WHERE id = ?`, v.ID[:])
	leased(0)
	b.ran += wholeEvery.Milliseconds() - 1
	leased(0)
	b.ran++
	leased(1)
	h.at(h.now - (9 * time.Hour).Milliseconds())
	d.Uploads()
	leased(1) // the first is leased until the hour in which it was
}

// blocksRead returns how many pages PostgreSQL reads for a query.
func blocksRead(t *testing.T, s *server, query string, args ...string) (blocks int) {
	t.Helper()
	s.does(t, `PREPARE looks AS `+s.db.Text(query))
	defer s.does(t, `DEALLOCATE looks`)
	var plan []byte
	effort.OK(t, s.aside.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looks (`+
		strings.Join(args, ", ")+`)`).Scan(&plan))
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err := json.Unmarshal(plan, &explained)
	effort.FatalIf(t, err != nil || len(explained) != 1, "%s: %v", plan, err)
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// TestALookFromABoundReadsPastNothing: 5,000 files left the indexes, and no vacuum came. A search from the beginning
// reads past all of them, one from its bound does not.
func TestALookFromABoundReadsPastNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	s.does(t, `ALTER TABLE verifications SET (autovacuum_enabled = off); SET enable_seqscan = off; SET enable_sort = off;
		INSERT INTO workspaces (id, name, created) VALUES ('w', 'w', 0);
		INSERT INTO verifications (id, workspace, identity, kind, filename, bytes, upload_expires, status, created, wake_at, completed)
			SELECT decode(md5(n::text), 'hex'), 'w', decode(md5(n::text), 'hex'), 'bulk', '', 1, 1, 'verifying', n, n, n
			FROM generate_series(1, 5000) AS n;
		UPDATE verifications SET status = 'completed', upload_deleted = 1, results_deleted = 1, paid = 1`)
	const bound, now = "5000", "4000000000000"
	for _, c := range []struct {
		name, query  string
		whole, after []string
	}{
		{"lease", free[0], []string{"0", "0", "9"}, []string{bound, bound, "9"}},
		{"erase results", dueResults.ask("id"), []string{"0", now, "9"}, []string{bound, now, "9"}},
		{"erase upload", dueUploads.ask("id"), []string{"0", now, "9"}, []string{bound, now, "9"}},
	} {
		// From the bound first: who has read past an entry tells others that it is gone.
		after, whole := blocksRead(t, s, c.query, c.after...), blocksRead(t, s, c.query, c.whole...)
		t.Logf("%s: %d pages from the bound, %d from the beginning", c.name, after, whole)
		effort.ErrorIf(t, after > 10 || whole < 5*after,
			"%s: %d pages from the bound, %d from the beginning", c.name, after, whole)
	}
}

// TestWhatBecomesDueLateIsFoundAtOnce: files created long before the bound become due in every possible way, and are
// leased at once.
func TestWhatBecomesDueLateIsFoundAtOnce(t *testing.T) {
	t.Parallel()
	b := newBeside(t, NewFile(t))
	h := &drawn{beside: b}
	const began = 1_700_000_000_000
	h.at(began)
	d := ledgertest.NewFixture(t, b.store, 2*ledger.SettlementMax)
	leased := func(what string, want uuid.UUID) ledger.Lease {
		t.Helper()
		list, err := d.Lease(t.Context(), d.Node, 9, 9*time.Hour)
		effort.FatalIf(t, err != nil || len(list) != 1 || list[0].ID != want, "%s: leased %d, %v", what, len(list), err)
		return ledger.Lease{Verification: want, Node: d.Node, Epoch: list[0].Epoch}
	}
	parks := func(l ledger.Lease, until int64) {
		t.Helper()
		effort.Must(d.Park(t.Context(), l, ledger.Estimate{Next: time.UnixMilli(until)}, []byte("state")))(t)
	}
	parked, l := d.Prepares(ledger.SettlementMax + 1)
	parks(l, began+(9*time.Hour).Milliseconds())
	unfunded, _ := d.Prepares(2 * ledger.SettlementMax)
	n := d.Asks(7)
	n.UploadExpiry = 9 * time.Hour
	uploading := effort.Must(effort.First(d.Create(t.Context(), n)))(t)
	h.at(began + (2 * time.Hour).Milliseconds())
	b.ran += wholeEvery.Milliseconds()
	if list, err := d.Lease(t.Context(), d.Node, 9, 0); err != nil || len(list) != 0 { // the bound is an hour behind them
		t.Fatalf("leased %d, %v", len(list), err)
	}
	d.Fills(uploading)
	l = leased("an upload that ends", uploading.ID)
	effort.Must(d.Prepare(t.Context(), l, 2, 0, 2))(t)
	parks(l, began)
	leased("what was parked until a time that is over", uploading.ID)
	effort.Must(d.Cancel(t.Context(), d.Workspace, parked.ID))(t)
	leased("what was parked, and is cancelled", parked.ID)
	d.Grants(2 * ledger.SettlementMax)
	leased("what is funded", unfunded.ID)
}

// TestWhatComesLateForASweep: files that expire while the clock is set back are found, after three seconds as after
// nine hours.
func TestWhatComesLateForASweep(t *testing.T) {
	t.Parallel()
	b := newBeside(t, NewFile(t))
	h := &drawn{beside: b}
	const began = 1_700_000_000_000
	h.at(began)
	d := ledgertest.NewFixture(t, b.store, 0)
	due := func(what string, want int) {
		t.Helper()
		effort.Is(t, len(effort.Must(b.store.due(t.Context(), dueUploading, h.now, sweepMax))(t)), want, what, "are due")
	}
	creates := func() {
		t.Helper()
		n := d.Asks(7)
		n.UploadExpiry = time.Millisecond
		_, _, err := d.Create(t.Context(), n)
		effort.FatalIf(t, err != nil, "%v", err)
	}
	due("from the beginning", 0)
	h.at(began - 3000)
	creates()
	h.at(began + time.Hour.Milliseconds())
	due("set back by three seconds", 1)
	h.at(began - (9 * time.Hour).Milliseconds())
	creates()
	h.at(h.now + 9)
	due("set back by nine hours", 1)
}
