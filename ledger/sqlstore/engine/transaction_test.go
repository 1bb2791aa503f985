package engine

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"rollcall/config/effort"
	"rollcall/ledger"
)

// spoiled changes the account and then fails with err.
func spoiled(w uuid.UUID, err error) func(t *Tx) error {
	return func(t *Tx) error {
		const steal = `UPDATE workspaces SET granted = granted + 1, available = available + 1 WHERE id = ?`
		if _, failed := t.Exec(steal, w[:]); failed != nil {
			return failed
		}
		return err
	}
}

// TestAFailedTransactionLeavesNothing: whatever ends it, nothing it did is there, and the next one runs.
func TestAFailedTransactionLeavesNothing(t *testing.T) {
	s, w := openForTest(t)
	wrong := errors.New("wrong")
	for name, run := range map[string]func() error{
		"refused": func() error { return s.Update(t.Context(), spoiled(w, wrong)) },
		"cancelled before the commit": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			return s.Update(ctx, func(t *Tx) error {
				err := spoiled(w, nil)(t)
				cancel()
				_, stopped := t.Exec(`UPDATE workspaces SET name = 'late'`)
				return errors.Join(err, stopped)
			})
		},
		"rolled back by the database itself": func() error {
			return s.Update(t.Context(), func(t *Tx) error {
				err := spoiled(w, nil)(t)
				_, rolled := t.Exec(`ROLLBACK`)
				return errors.Join(err, rolled, wrong)
			})
		},
	} {
		effort.Not(t, run(), nil, name, "no error")
		effort.Is(t, effort.Must(granted(t.Context(), s, w))(t), 0, name, "the account is")
		next := func(t *Tx) error { return spoiled(uuid.New(), nil)(t) }
		effort.ErrIs(t, s.Update(t.Context(), next), nil, name, "the next transaction")
	}
}

// busy returns the database's own error for a locked file: it asks twice for the lock of one file.
func busy(t *testing.T, s *DB) error {
	t.Helper()
	var err error
	failed := s.Update(t.Context(), func(tx *Tx) error {
		conn, failed := s.writer.db.Conn(t.Context())
		if failed != nil {
			return failed
		}
		_, failed = conn.ExecContext(t.Context(), `PRAGMA busy_timeout(0)`)
		_, err = conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`)
		return errors.Join(failed, conn.Close())
	})
	var e *sqlite.Error
	effort.FatalIf(t, failed != nil || !errors.As(err, &e), "no busy error: %v, %v", err, failed)
	return err
}

func TestATransactionIsRunAgainForPassingReasonsOnly(t *testing.T) {
	s, w := openForTest(t)
	passing := busy(t, s)
	for _, c := range []struct {
		name   string
		err    error
		passes int // after how many failures
		want   int // runs
		ok     bool
	}{
		{"locked once", passing, 1, 2, true},
		{"locked for ever", passing, 1000, attemptsMax, false},
		{"refused", ledger.ErrIllegal, 1, 1, false},
	} {
		runs := 0
		err := s.Update(t.Context(), func(t *Tx) error {
			if runs++; runs > c.passes {
				return spoiled(w, nil)(t)
			}
			return spoiled(w, c.err)(t)
		})
		effort.ErrorIf(t, runs != c.want || (err == nil) != c.ok || !c.ok && !errors.Is(err, c.err),
			"%s: %d runs and %v, want %d", c.name, runs, err, c.want)
	}
	effort.Is(t, effort.Must(granted(t.Context(), s, w))(t), 1, "one of them was committed, once")
}

// TestAPanicLeavesTheEmbeddedLedgerUsable: its only session is given back outside of a transaction.
func TestAPanicLeavesTheEmbeddedLedgerUsable(t *testing.T) {
	s, w := openForTest(t)
	func() {
		defer func() {
			effort.Not(t, recover(), nil, "no panic")
		}()
		_ = s.Update(t.Context(), func(t *Tx) error {
			if err := spoiled(w, nil)(t); err != nil {
				return err
			}
			panic("a fault of ours")
		})
	}()
	effort.OK(t, s.Update(t.Context(), spoiled(w, nil)))
	effort.Is(t, effort.Must(granted(t.Context(), s, w))(t), 1, "what the second one granted")
}

// TestWritesCountsBothEndsOfATransaction: while a transaction runs, nothing that is read may be cached. After it,
// nothing that was read before is valid, whether it was committed or not.
func TestWritesCountsBothEndsOfATransaction(t *testing.T) {
	s, w := openForTest(t)
	for _, end := range []error{nil, errors.New("wrong")} {
		before, still := s.Writes()
		effort.ErrorIf(t, !still, "something is being written, before")
		during := before
		err := s.Update(t.Context(), func(tx *Tx) error {
			if during, still = s.Writes(); still || during == before {
				t.Errorf("inside of a transaction: count %d after %d, still %t", during, before, still)
			}
			return spoiled(w, end)(tx)
		})
		effort.ErrIs(t, err, end)
		if after, still := s.Writes(); !still || after == during || after == before {
			t.Errorf("afterwards: count %d after %d and %d, still %t", after, during, before, still)
		}
	}
	_, still := (&DB{dialect: postgresDialect(), writer: s.writer}).Writes()
	effort.ErrorIf(t, still, "a server keeps still, where other nodes write")
	path := filepath.Join(filepath.Dir(s.lock.Name()), "ledger.db")
	reader := effort.Must(OpenReadOnly(t.Context(), "sqlite:"+path, book, Options{}))(t)
	defer func() { _ = reader.Close() }()
	_, still = reader.Writes()
	effort.ErrorIf(t, still, "a ledger that another process may write keeps still")
}

// TestTheGateLetsOneAloneInAtATime goes through who is in, and who may come then.
func TestTheGateLetsOneAloneInAtATime(t *testing.T) {
	t.Parallel()
	a, b := uuid.New(), uuid.New()
	type visitor struct {
		workspace uuid.UUID
		alone     bool
	}
	beside, alone, other, otherAlone := visitor{a, false}, visitor{a, true}, visitor{b, false}, visitor{b, true}
	for _, c := range []struct {
		in       visitor
		may, not []visitor
	}{
		{beside, []visitor{beside, other, otherAlone}, []visitor{alone}},
		{alone, nil, []visitor{beside, alone, other, otherAlone}},
	} {
		g := newWriteGate()
		leave, only, err := g.enter(t.Context(), c.in.workspace, c.in.alone)
		effort.FatalIf(t, err != nil || only != c.in.alone, "%+v: alone in the process: %v, %v", c.in, only, err)
		for _, v := range c.not {
			soon, cancel := context.WithTimeout(t.Context(), 3*aloneTime) // longer than it waits to be alone
			effort.Denied(effort.First(g.enter(soon, v.workspace, v.alone)))(t, context.DeadlineExceeded, v, c.in)
			cancel()
		}
		for _, v := range c.may {
			soon, cancel := context.WithTimeout(t.Context(), 20*aloneTime)
			out, only, err := g.enter(soon, v.workspace, v.alone)
			cancel()
			effort.FatalIf(t, err != nil || only, "%+v beside %+v: alone in the process: %v, %v", v, c.in, only, err)
			out()
		}
		leave()
		effort.Is(t, len(g.locks), 0, "lanes are kept that nobody uses")
	}
}

// TestOneIsAtAnAccountAtATime: another account is free, and so are all other rows of the workspace.
func TestOneIsAtAnAccountAtATime(t *testing.T) {
	g, a := newWriteGate(), uuid.New()
	leave := effort.Must(g.account(t.Context(), a))(t)
	soon, cancel := context.WithTimeout(t.Context(), aloneTime)
	defer cancel()
	effort.Denied(g.account(soon, a))(t, context.DeadlineExceeded, "a second one")
	other := effort.Must(g.account(t.Context(), uuid.New()))(t)
	other()
	in := effort.Must(effort.First(g.enter(t.Context(), a, true)))(t)
	in()
	leave()
	leave = effort.Must(g.account(t.Context(), a))(t)
	leave()
	effort.Is(t, len(g.locks), 0, "lanes are kept that nobody uses")
}

// TestTheGateIsForOneAloneAfterTwoConflicts: every third run of a transaction that meets others again and again.
func TestTheGateIsForOneAloneAfterTwoConflicts(t *testing.T) {
	t.Parallel()
	s := newServer(t, postgresDialect())
	var alone []bool
	err := s.UpdateIn(t.Context(), Scope{Workspace: s.a}, func(*Tx) error {
		s.gate.mu.Lock()
		places := s.gate.locks[s.a].places
		s.gate.mu.Unlock()
		free := places.TryAcquire(1)
		if free {
			places.Release(1)
		}
		if alone = append(alone, !free); len(alone) < 2*(crowdedRuns+1) {
			return &pgconn.PgError{Code: "40001"}
		}
		return nil
	})
	want := []bool{false, false, true, false, false, true}
	effort.ErrorIf(t, err != nil || !slices.Equal(alone, want), "alone in its runs: %v, want %v; %v", alone, want, err)
}

// TestATransactionOfAPausedNodeEnds: the database ends it, so that others get what it held, and it runs again.
func TestATransactionOfAPausedNodeEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, postgresDialect())
	runs := 0
	err := s.Update(t.Context(), func(tx *Tx) error {
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

// TestAFloodDelaysAnothersWriteByOneTransaction: 32 writers of one workspace are at work or in line, at the one session
// of the embedded database and at those of a server. A writer of another workspace, and the node itself, has a session
// at once, or when the first of theirs ends.
func TestAFloodDelaysAnothersWriteByOneTransaction(t *testing.T) {
	t.Parallel()
	for size, atWork := range map[int]int{1: 1, writersMax: 6} {
		const writers = 32
		p := newPool(nil, dialect{}, size, func(uuid.UUID, time.Duration) {})
		flood, begun, end := uuid.New(), make(chan uuid.UUID, writers+2), make(chan struct{})
		var all sync.WaitGroup
		writes := func(who uuid.UUID) {
			all.Go(func() {
				s := effort.Must(p.take(ledger.WithTenant(t.Context(), who), false, 0))(t)
				if begun <- who; who == flood {
					<-end
				}
				p.put(s)
			})
		}
		for range writers {
			writes(flood)
		}
		for len(begun)+p.turns.Waiting() < writers {
			<-time.After(time.Millisecond)
		}
		effort.Is(t, len(begun), atWork, size, "sessions: at work")
		for range len(begun) {
			<-begun
		}
		for _, who := range []uuid.UUID{uuid.New(), uuid.Nil} {
			line := p.turns.Waiting()
			for writes(who); len(begun) == 0 && p.turns.Waiting() == line; {
				<-time.After(time.Millisecond)
			}
			if len(begun) == 0 { // it stands in line
				end <- struct{}{}
			}
			effort.MustBe(t, <-begun, who, size, "sessions: begins next")
			if size == 1 {
				effort.Is(t, <-begun, flood, "begins after it")
			}
		}
		close(end)
		all.Wait()
	}
}

// TestWhichClocksAreBelieved takes one process through a row of looks.
func TestWhichClocksAreBelieved(t *testing.T) {
	type step struct {
		ran, ledger, node time.Duration // the latter two beside the true time; node: of a server only
		doubted           bool
	}
	for _, c := range []struct {
		name   string
		idle   time.Duration // since the last sweep, when the process began
		server bool
		steps  []step
	}{
		{"both run", 0, false, []step{{}, {ran: time.Minute}, {ran: 90 * day}}},
		{"a pause of less than an hour", 0, false, []step{{}, {ran: time.Minute, ledger: jumpMax}}},
		{"a jump while a process runs", 0, false, []step{{},
			{ran: time.Minute, ledger: jumpMax + time.Second, doubted: true}}},
		{"a jump of many small ones", 0, false, []step{{}, {ledger: 20 * time.Minute}, {ledger: 40 * time.Minute},
			{ledger: 65 * time.Minute}, {ledger: 126 * time.Minute, doubted: true}}},
		{"a jump that is mended", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2}}},
		{"a jump that stands for a day is true", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day}, {ran: day + 2, ledger: 40 * day}}},
		{"a second jump waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true},
			{ran: day + 1, ledger: 80 * day, doubted: true}, {ran: 2 * day, ledger: 80 * day, doubted: true},
			{ran: 2*day + 1, ledger: 80 * day}}},
		{"a jump that comes and goes waits anew", 0, false, []step{{}, {ran: 1, ledger: 40 * day, doubted: true}, {ran: 2},
			{ran: day + 1, ledger: 40 * day, doubted: true}}},
		{"a clock that goes back, and is right again", 0, false, []step{{}, {ran: time.Minute, ledger: -9 * day},
			{ran: 2 * time.Minute}, {ran: 3 * time.Minute, ledger: 2 * jumpMax, doubted: true}}},
		{"a night without nodes", day, false, []step{{}}},
		{"a long standstill", 40 * day, false, []step{
			{doubted: true}, {ran: day - 1, doubted: true}, {ran: day}, {ran: day + 1}}},
		{"a server whose clock is near", 0, true, []step{{ledger: apartMax}, {ledger: -apartMax}, {node: apartMax}}},
		{"a server ahead of the node", 0, true, []step{{ledger: apartMax + 1, doubted: true}, {}}},
		{"a server behind the node", 0, true, []step{{node: apartMax + 1, doubted: true}, {}}},
		{"a server that stays ahead is never believed", 0, true, []step{{ledger: 40 * day, doubted: true},
			{ran: 3 * day, ledger: 40 * day, doubted: true}}},
		{"both jump", 0, true, []step{{}, {ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day + 1, ledger: 40 * day, node: 40 * day}}},
		{"both jump, and then the server alone", 0, true, []step{{},
			{ran: 1, ledger: 40 * day, node: 40 * day, doubted: true},
			{ran: day, ledger: 40 * day, doubted: true}, {ran: day + 1, ledger: 40 * day, node: 40 * day, doubted: true}}},
	} {
		began := time.UnixMilli(1_700_000_000_000)
		watch := newClockWatch()
		for i, s := range c.steps {
			l := clockReading{ledger: began.Add(s.ran + s.ledger), swept: began.Add(-c.idle), ran: s.ran}
			if c.server {
				l.node = began.Add(s.ran + s.node)
			}
			if why := watch.doubt(l); (why != "") != s.doubted {
				t.Errorf("%s, step %d: doubted because %q, want %v", c.name, i+1, why, s.doubted)
				break
			}
		}
	}
}

const day = 24 * time.Hour
