package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"rollcall/ledger"
	"rollcall/ledger/quota"
)

// session is one connection and its prepared statements. It is for one goroutine at a time.
type session struct {
	db       *sql.DB
	dialect  dialect
	conn     *sql.Conn // nil: not connected
	prepared map[string]*sql.Stmt
	retires  time.Time              // when the connection is old enough to close; zero: never
	broken   bool                   // in doubt; not used again
	turn     *quota.Slot[uuid.UUID] // of the workspace that uses it
}

// connect makes the session ready for use.
func (s *session) connect(ctx context.Context) error {
	if s.conn != nil && (s.broken || !s.retires.IsZero() && time.Now().After(s.retires)) {
		_ = s.close() // it was broken or is useless
	}
	if s.conn != nil {
		return nil
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.conn, s.prepared, s.broken, s.retires = conn, map[string]*sql.Stmt{}, false, time.Time{}
	if long := s.dialect.lifetime; long > 0 {
		// Connections made at the same time should not end together.
		s.retires = time.Now().Add(long - rand.N(long/4))
	}
	return nil
}

// statement prepares a statement once for the life of the connection. Statements are constants, so there are few.
func (s *session) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if known, ok := s.prepared[text]; ok {
		return known, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, s.dialect.text(text))
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	s.prepared[text] = stmt
	return stmt, nil
}

// begin starts a transaction. On a database server ctx may interrupt this, because the driver then ends the connection.
func (s *session) begin(ctx context.Context, statement string) error {
	if s.dialect.ending == 0 {
		return s.control(ctx, statement)
	}
	err := s.dialect.control(ctx, s.conn, statement)
	s.broken = s.broken || err != nil // it may have begun
	return err
}

// control runs a statement that begins or ends a transaction, even after the end of ctx.
func (s *session) control(ctx context.Context, statement string) error {
	ctx = context.WithoutCancel(ctx)
	if long := s.dialect.ending; long > 0 {
		bounded, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		ctx = bounded
	}
	return s.dialect.control(ctx, s.conn, statement)
}

// lost reports whether the connection has ended.
func (s *session) lost() bool { return s.conn == nil || s.connReports(s.dialect.lost) }

// connReports runs a check on the driver's connection; a lost connection counts as true.
func (s *session) connReports(what func(driverConn any) bool) bool {
	var answer bool
	err := s.conn.Raw(func(c any) error {
		answer = what(c)
		return nil
	})
	return answer || err != nil
}

// close ends the connection itself, so that no other session gets it.
func (s *session) close() error {
	if s.conn == nil {
		return nil
	}
	if s.dialect.embedded() {
		// database/sql does not close the statements of a connection that one goroutine has, and SQLite keeps the
		// connection, its files and its part of the write-ahead log until they are closed. A server, which may not
		// even answer, forgets them with the connection.
		for _, stmt := range s.prepared {
			_ = stmt.Close() // the connection returns the same error again
		}
	}
	err := s.conn.Raw(func(c any) error {
		s.dialect.hangUp(c)
		return driver.ErrBadConn // database/sql closes such a connection
	})
	s.conn, s.prepared = nil, nil
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// sessionWeight bounds a workspace's sessions at this many times the free ones: of 2 and 8 sessions one workspace
// alone gets 6, so that another still finds a session.
const sessionWeight = 2

// pool is a fixed number of sessions. Callers wait in turn by tenant. Work of the node itself has no tenant and goes
// first.
type pool struct {
	db     *sql.DB
	turns  *quota.Slots[uuid.UUID]
	waited func(who uuid.UUID, long time.Duration)
	free   chan *session
	closed chan struct{}
}

// newPool makes a pool of size sessions, which connect at first use. waited gets the time that each use had to wait.
func newPool(db *sql.DB, d dialect, size int, waited func(who uuid.UUID, long time.Duration)) *pool {
	p := &pool{db: db, free: make(chan *session, size), closed: make(chan struct{}), waited: waited,
		turns: quota.NewSlotsFirst(int64(size), func(uuid.UUID) int { return sessionWeight }, uuid.Nil)}
	for range size {
		p.free <- &session{db: db, dialect: d}
	}
	return p
}

// take waits for a session until ctx ends. If again is set, the repeated transaction precedes others of its tenant;
// has is how long it has already waited. Errors: ErrClosed after close, or that of ctx.
func (p *pool) take(ctx context.Context, again bool, has time.Duration) (*session, error) {
	who, began := ledger.TenantOf(ctx), time.Now()
	ask := p.turns.Ask
	if again {
		ask = p.turns.AskAgain
	}
	granted, free := make(chan struct{}), p.free
	turn, now := ask(who, nil, func() { close(granted) })
	if !now {
		select {
		case <-granted:
		case <-p.closed:
			free = nil
		case <-ctx.Done():
		}
		has += time.Since(began)
	}
	p.waited(who, has)
	if err := ctx.Err(); err != nil {
		turn.Done()
		return nil, fmt.Errorf("wait for a connection: %w", err)
	}
	select {
	case <-p.closed:
	case s := <-free:
		s.turn = turn
		return s, nil
	}
	turn.Done()
	return nil, ErrClosed
}

func (p *pool) put(s *session) {
	if s.broken {
		_ = s.close() // it was broken already
		s.broken = false
	}
	turn := s.turn
	p.free <- s
	turn.Done()
}

// close waits until all sessions are back, and ends them. Once only.
func (p *pool) close() error {
	close(p.closed)
	var errs []error
	for range cap(p.free) {
		errs = append(errs, (<-p.free).close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}

// writeGate makes transactions of one process wait here and not in the database. Those that change the account of
// one workspace take turns before they take a session. A transaction with repeated conflicts runs alone in its
// workspace. It also waits, at most aloneTime, for transactions of other workspaces: the rows of a small table share
// one index page, where all of them conflict.
type writeGate struct {
	node  *semaphore.Weighted // the places of all workspaces together
	mu    sync.Mutex
	locks map[uuid.UUID]*workspaceLock
}

// workspaceLock is the gate of one workspace. It exists while transactions use it.
type workspaceLock struct {
	users   int                 // transactions that run or wait
	account *semaphore.Weighted // for one
	places  *semaphore.Weighted // for many at once, or for one that runs alone
}

// placesMax is the number of places of a workspace, and of the node.
const placesMax = math.MaxInt32

func newWriteGate() *writeGate {
	return &writeGate{node: semaphore.NewWeighted(placesMax), locks: map[uuid.UUID]*workspaceLock{}}
}

// account waits for the turn at a workspace's account, until ctx ends.
func (g *writeGate) account(ctx context.Context, workspace uuid.UUID) (leave func(), err error) {
	l := g.join(workspace)
	if err := l.account.Acquire(ctx, 1); err != nil {
		g.quit(workspace)
		return nil, err
	}
	return func() {
		l.account.Release(1)
		g.quit(workspace)
	}, nil
}

// enter waits for a place in a workspace, or for all of its places, until ctx ends. A transaction that runs alone
// also gets all places of the node if they are free soon; then only is true.
func (g *writeGate) enter(ctx context.Context, workspace uuid.UUID, alone bool) (leave func(), only bool, err error) {
	l, places := g.join(workspace), int64(1)
	if alone {
		places = placesMax
	}
	if err := l.places.Acquire(ctx, places); err != nil {
		g.quit(workspace)
		return nil, false, err
	}
	taken, err := g.enterNode(ctx, alone)
	leave = func() {
		g.node.Release(taken)
		l.places.Release(places)
		g.quit(workspace)
	}
	if err != nil {
		leave()
		return nil, false, err
	}
	return leave, taken == placesMax, nil
}

// enterNode takes a place of the node, or all places if they are free soon. It does not wait longer, because a
// running transaction may itself wait for a lock.
func (g *writeGate) enterNode(ctx context.Context, alone bool) (places int64, err error) {
	if alone {
		soon, cancel := context.WithTimeout(ctx, aloneTime)
		defer cancel()
		if g.node.Acquire(soon, placesMax) == nil {
			return placesMax, nil
		}
	}
	if err := g.node.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	return 1, nil
}

func (g *writeGate) join(workspace uuid.UUID) *workspaceLock {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.locks[workspace]
	if l == nil {
		l = &workspaceLock{account: semaphore.NewWeighted(1), places: semaphore.NewWeighted(placesMax)}
		g.locks[workspace] = l
	}
	l.users++
	return l
}

// quit forgets the lock of a workspace when nobody uses it.
func (g *writeGate) quit(workspace uuid.UUID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.locks[workspace]
	if l.users--; l.users == 0 {
		delete(g.locks, workspace)
	}
}
