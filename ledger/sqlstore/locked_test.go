package sqlstore

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore/engine"
)

// TestALockedAccountStopsNobodyElse: a node that was frozen holds the row of one workspace's account. Eight
// writers of that workspace want it, again and again; a write of another workspace, a lease and a
// beat take their own time. What is compared is how often the eight came back from a wait for the row.
func TestALockedAccountStopsNobodyElse(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	s.does(t, `BEGIN`)
	effort.Must(s.aside.Exec(t.Context(), `UPDATE workspaces SET name = name WHERE id = $1`, s.a[:]))(t)
	const writers, writes = 8, 20
	ctx, stop := context.WithCancel(ledger.WithTenant(t.Context(), s.a))
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := s.Grant(ctx, uuid.New(), s.a, 1, "")
				effort.ErrorIf(t, err == nil, "the row was not locked")
			}
		})
	}
	defer all.Wait()
	defer stop()
	returned := func() float64 { return s.waited(t) }
	waiting := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	for returned() < 4 { // so that some have waited more than once
		select {
		case <-t.Context().Done():
			t.Fatal("nobody waits for the row")
		case <-time.After(5 * time.Millisecond):
		}
	}
	var sessions int
	if err := s.aside.QueryRow(t.Context(), waiting).Scan(&sessions); err != nil || sessions > 1 {
		t.Errorf("%d sessions wait for one row, %v: want one, the other writers wait in the process", sessions, err)
	}
	node := ledger.Incarnation{Session: uuid.New(), Node: uuid.New()}
	for name, write := range map[string]func() error{
		"another workspace's grant": func() error {
			_, err := s.Grant(ledger.WithTenant(t.Context(), s.b), uuid.New(), s.b, 1, "")
			return err
		},
		"a lease": func() error {
			_, err := s.Lease(t.Context(), node.Node, 1, time.Hour)
			return err
		},
		"a beat": func() error {
			_, err := s.WriteHeartbeat(t.Context(), ledger.Heartbeat{Incarnation: node, Cluster: "one", Started: time.Unix(1,
				0)})
			return err
		},
	} {
		before, took := returned(), make([]time.Duration, writes)
		for i := range took {
			began := time.Now()
			effort.ErrIs(t, write(), nil, name)
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		came := returned() - before
		t.Logf("%s: %v at the median, %v at most; meanwhile %v waits for the row ended", name, took[writes/2],
			took[writes-1], came)
		effort.ErrorIf(t, came > writes/4, "%d times %s took as long as %v waits for the row", writes, name, came)
	}
}

// uploaded makes a verification that can be leased.
func (s *server) uploaded(t *testing.T, workspace uuid.UUID) uuid.UUID {
	t.Helper()
	return (&ledgertest.Fixture{Book: s.Store, T: t, Workspace: workspace}).Uploads().ID
}

// TestALeasePassesOverWhatASilentTransactionHolds: the file of another workspace is handed out.
func TestALeasePassesOverWhatASilentTransactionHolds(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		first, second := s.uploaded(t, s.a), s.uploaded(t, s.b)
		s.does(t, `BEGIN; UPDATE verifications SET filename = filename WHERE id = '\x`+hex(first)+`'`)
		node := uuid.New()
		for _, want := range [][]uuid.UUID{{second}, nil, {first}} {
			leased, err := s.Lease(t.Context(), node, 2, time.Hour)
			var got []uuid.UUID
			for _, v := range leased {
				got = append(got, v.ID)
			}
			effort.ErrorIf(t, err != nil || !slices.Equal(got, want), "leased %v, %v, want %v", got, err, want)
			if want == nil {
				s.does(t, `ROLLBACK`)
			}
		}
	})
}

// TestWhatARunBeforeDidIsWaitedFor: its commit is decided while the next run looks for what it did.
func TestWhatARunBeforeDidIsWaitedFor(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		id, node := s.uploaded(t, s.a), uuid.New()
		o := effort.Must(s.SetOverride(t.Context(), ledger.ThrottleOverride{ID: uuid.New(), Key: "a.test",
			Fields: map[string]string{"rate": "5"}}, time.Hour))(t)
		for name, c := range map[string]struct {
			before string
			seen   func(t *tx) (bool, error)
		}{
			"lease": {`UPDATE verifications SET lease_node = '\x` + hex(node) + `' WHERE id = '\x` + hex(id) + `'`,
				func(t *tx) (bool, error) {
					v, err := t.Await(id)
					return err == nil && v.Node == node, err
				}},
			"clearing": {`UPDATE throttle_overrides SET ends = ends - 1 WHERE id = '\x` + hex(o.ID) + `'`,
				func(t *tx) (bool, error) { return t.Lifted(o.ID) }},
		} {
			s.does(t, `BEGIN; `+c.before)
			was, seen, done := s.waited(t), false, make(chan error, 1)
			go func() {
				done <- s.update(t.Context(), func(t *tx) (err error) {
					seen, err = c.seen(t)
					return err
				})
			}()
			for s.waited(t) == was && len(done) == 0 { // until it has waited
				<-time.After(5 * time.Millisecond)
			}
			s.does(t, `COMMIT`)
			err := <-done
			effort.ErrorIf(t, err != nil || !seen, "%s: seen %v, %v", name, seen, err)
		}
	})
}
