package sqlstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
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

// TestATransactionOfAPausedNodeEnds: the database ends it, so that others get what it held, and it runs again.
func TestATransactionOfAPausedNodeEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	runs := 0
	err := s.update(t.Context(), func(tx *tx) error {
		runs++
		if err := rename(tx, s.a, "paused"); err != nil {
			return err
		}
		if runs == 1 {
			if _, err := tx.Exec(`SET idle_in_transaction_session_timeout = '50ms'`); err != nil { // idleTime in short
				return err
			}
			// It waits for the row, and only the end of the transaction lets it have that.
			s.does(t, `UPDATE workspaces SET name = 'other' WHERE id = '\x`+hex(s.a)+`'`)
		}
		return nil
	})
	if got := s.names(t); err != nil || runs != 2 || !slices.Contains(got, "paused") {
		t.Errorf("%v after %d runs: %q", err, runs, got)
	}
}

// prepared makes a verification whose bytes are all there, so that it can be leased.
func (s *Store) prepared(t *testing.T, workspace uuid.UUID) uuid.UUID {
	t.Helper()
	v := s.created(t, t.Context(), workspace, 1)
	u, err := s.OpenUpload(t.Context(), v.ID)
	if err == nil {
		_, err = s.AppendChunk(t.Context(), v.ID, u.Writer, 0, []byte{'x'})
	}
	effort.OK(t, err)
	return v.ID
}

// TestALeasePassesOverWhatASilentTransactionHolds: the file of another workspace is handed out.
func TestALeasePassesOverWhatASilentTransactionHolds(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		first, second := s.prepared(t, s.a), s.prepared(t, s.b)
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
		id, node := s.prepared(t, s.a), uuid.New()
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

// TestACommitIsNotStoppedByTheCaller: he gives up when all is done but the commit, which goes on.
func TestACommitIsNotStoppedByTheCaller(t *testing.T) {
	t.Parallel()
	onServer(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		err := s.update(ctx, func(tx *tx) error {
			defer cancel()
			return rename(tx, s.a, "committed")
		})
		got := s.names(t)
		effort.ErrorIf(t, err != nil || !slices.Contains(got, "committed"), "%v: %q", err, got)
	})
}

func (s *Store) created(t *testing.T, ctx context.Context, workspace uuid.UUID, size int64) ledger.Verification {
	t.Helper()
	v, _, err := s.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: workspace, Identity: uuid.New(),
		Filename: "list.csv", Bytes: size, BytesMax: size,
		Limits: ledger.Limits{Open: 1 << 20, Stored: 1 << 60, Unpaid: 1 << 20}, UploadExpiry: time.Hour})
	effort.OK(t, err)
	return v
}

// TestWritersAtOneAccountAllGetThrough lets all writers of two nodes change one
// account and its verifications: conflicts are many, refusals are none.
func TestWritersAtOneAccountAllGetThrough(t *testing.T) {
	t.Parallel()
	s := newServer(t, engine.Seams{})
	const nodes, writers, rounds = 2, 8, 5
	var all sync.WaitGroup
	for range nodes {
		node := effort.Must(Open(t.Context(), s.url, Options{}))(t)
		t.Cleanup(func() { _ = node.Close() })
		for range writers {
			all.Go(func() {
				for range rounds {
					_, granted := node.Grant(t.Context(), uuid.New(), s.a, 1, "")
					_, _, created := node.Create(t.Context(), ledger.NewVerification{ID: uuid.New(), Workspace: s.a,
						Identity: uuid.New(), Filename: "list.csv", Bytes: 1, BytesMax: 1,
						Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000}, UploadExpiry: time.Hour})
					effort.ErrIs(t, errors.Join(granted, created), nil)
				}
			})
		}
	}
	all.Wait()
	effort.Is(t, effort.Must(s.Balance(t.Context(), s.a))(t).Granted, nodes*writers*rounds)
	t.Logf("%d transactions", 2*nodes*writers*rounds)
}
