package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

const (
	// sweepMax bounds the verifications that one sweep changes for one cause; the next sweep continues.
	sweepMax = 100
	// silentMax is how many failures in a row end a sweep if the database answered none: each takes a caller's whole
	// timeout. A single one may be a locked row.
	silentMax = 3
	// These bound one transaction's erasures, so that other writers wait some ten milliseconds at most: 16 MiB of
	// the first two, and usually of the third.
	chunksErased   = transitions.ErasedMax
	payloadsErased = 512
	evidenceErased = 64
	dueErased      = 1000 // rows of a fixed age, some hundred bytes each
	// endedKept is how long a process's row is kept after its end, for people who look for the process. Guess: a
	// night and a day.
	endedKept = 24 * time.Hour
	// overridesKept is how long an override is kept after its end, for people who ask about last week. The operator
	// log stays.
	overridesKept = 30 * 24 * time.Hour
	// sessionsKept and linksKept are the same for people's sessions and one-time links.
	sessionsKept = 24 * time.Hour
	linksKept    = 30 * 24 * time.Hour
)

// aged are rows that are due a fixed time after a time column. The table has an index of such rows by that column.
type aged struct {
	what, table, id string
	time, which     string // a column and a condition; "": all rows
}

// The rows that a sweep handles.
var (
	dueUploading = aged{"expire upload", "verifications", "id", "upload_expires", `status = 'uploading'`}
	dueFunding   = aged{"expire funding", "verifications", "id", "waiting_since", `issue_code = 'credits_required'`}
	dueUploads   = aged{"erase upload", "verifications", "id", "completed", `completed > 0 AND upload_deleted = 0`}
	dueResults   = aged{"erase results", "verifications", "id", "completed", `completed > 0 AND results_deleted = 0`}
	// dueUnread are verifications that were refused or cancelled with uploaded bytes left.
	dueUnread = aged{"erase unread upload", "verifications", "id", "completed",
		`completed > 0 AND upload_deleted = 0 AND total < 0`}
	// dueUnpaid are verifications that never held a credit.
	dueUnpaid    = aged{"forget unpaid", "verifications", "id", "completed", `completed > 0 AND paid = 0`}
	dueFacts     = aged{"delete expired facts", "receiver_facts", "receiver", "expires", ""}
	dueOverrides = aged{"delete old overrides", "throttle_overrides", "id", "ends", ""}
	dueSessions  = aged{"delete old sessions", "user_sessions", "id", "ends", ""}
	dueLinks     = aged{"delete old links", "links", "id", "ends", ""}
	dueAttempts  = aged{"forget failed sign-ins", "sign_in_attempts", "subject", "ends", ""}
)

// ask returns a query for columns of the due rows, oldest first. Its placeholders are two times, both included, and
// the limit.
func (a aged) ask(columns string) string {
	which := a.which
	if which != "" {
		which += ` AND `
	}
	return `SELECT ` + columns + ` FROM ` + a.table + ` WHERE ` + which + a.time + ` >= ? AND ` + a.time + ` <= ?
		ORDER BY ` + a.time + ` LIMIT ?`
}

// errStillDue means that a verification's row contradicts itself, so that sweeping it changes nothing.
var errStillDue = errors.New("it is still due after it was swept: its row contradicts itself, see `rollcall audit`")

// Sweep handles what is due, at most 100 verifications for each cause. Each verification has its own transaction. So
// an interrupted sweep has only done less, and a failure does not stop the others: the error has the number of
// failures and the log each of them. Later sweeps retry the failed ones, some at a time, after all others. Erased
// data is then in no file of an embedded ledger, unless somebody still reads an older snapshot; then the next sweep
// removes it. While the ledger's clock is doubtful Sweep only returns ledger.ErrClock.
func (s sweeper) Sweep(ctx context.Context, r ledger.Retention) (int, error) {
	w := sweep{sweeper: s}
	if w.now, w.first = s.db.BelievedNow(ctx); w.first == nil {
		w.all(ctx, r)
	}
	s.unswept.Set(float64(s.late.count()))
	if erased := s.erased.Load(); s.folded.Load() != erased {
		done, err := s.db.Checkpoint(ctx)
		w.done(err, "fold the log", uuid.Nil)
		if done {
			s.folded.Store(erased)
		}
	}
	switch {
	case w.failed > 1:
		return w.changed, fmt.Errorf("sweep: the first of %d failures: %w", w.failed, w.first)
	case w.first != nil:
		return w.changed, fmt.Errorf("sweep: %w", w.first)
	}
	return w.changed, nil
}

type sweeper struct {
	*base
	moves transitions.Engine
}

type sweep struct {
	sweeper
	now     int64 // by the ledger's clock, read once
	changed int
	failed  int
	first   error // of the failures
	silent  int   // failures in a row without an answer of the database
}

// all handles what is due, and then retries some earlier failures.
func (w *sweep) all(ctx context.Context, r ledger.Retention) {
	causes := w.causes(r)
	for _, c := range causes {
		w.verifications(ctx, c)
	}
	w.ended(ctx)
	w.tryLate(ctx, causes)
	if left := w.late.count(); left > 0 {
		w.db.Log.Warn("verifications are left unswept because they fail again and again", "count", left)
	}
}

// cause is a reason to sweep verifications.
type cause struct {
	due   aged
	after time.Duration
	do    func(ctx context.Context, id uuid.UUID) error
}

// causes lists the causes with a configured time.
func (w *sweep) causes(r ledger.Retention) []cause {
	return slices.DeleteFunc([]cause{
		{dueUploading, time.Nanosecond, w.moves.ExpireUpload},
		{dueFunding, r.Funding, func(ctx context.Context, id uuid.UUID) error { return w.moves.ExpireFunding(ctx, id, r.Funding) }},
		{dueUnpaid, r.Results, w.forgetUnpaid},
		{dueUnread, time.Nanosecond, w.eraseUpload},
		{dueUploads, r.Uploads, w.eraseUpload},
		{dueResults, r.Results, w.eraseResults},
	}, func(c cause) bool { return c.after == 0 })
}

// verifications sweeps up to sweepMax verifications for a cause. If some fail it asks for more.
func (w *sweep) verifications(ctx context.Context, c cause) {
	for left, more := sweepMax, true; more && left > 0 && !w.away(ctx); {
		due, err := w.due(ctx, c.due, w.until(c), left+w.late.count())
		w.done(err, c.due.what, uuid.Nil)
		more = false
		for _, id := range due {
			at := task{c.due.what, id}
			if w.late.has(at) {
				continue
			}
			if left == 0 || w.away(ctx) {
				return
			}
			if w.sweeps(ctx, c, id) {
				left--
			} else if w.late.add(at) {
				more = true
			}
		}
	}
}

// sweeps handles one verification, and reports whether that succeeded.
func (w *sweep) sweeps(ctx context.Context, c cause, id uuid.UUID) bool {
	w.erased.Add(1)
	err := c.do(ctx, id)
	if err == nil {
		var still bool
		if still, err = w.isDue(ctx, c, id); still {
			err = errStillDue
		}
	}
	if !w.done(err, c.due.what, id) {
		return false
	}
	w.changed++
	return true
}

// tryLate retries some of the verifications that failed earlier.
func (w *sweep) tryLate(ctx context.Context, causes []cause) {
	for _, at := range w.late.some() {
		i := slices.IndexFunc(causes, func(c cause) bool { return c.due.what == at.what })
		if w.away(ctx) {
			return
		}
		if i < 0 {
			w.late.drop(at)
			continue
		}
		due, err := w.isDue(ctx, causes[i], at.id)
		if err != nil {
			w.done(err, at.what, at.id)
		} else if !due || w.sweeps(ctx, causes[i], at.id) {
			w.late.drop(at)
		}
	}
}

// away reports whether continuing is useless: the caller or the database has gone.
func (w *sweep) away(ctx context.Context) bool { return ctx.Err() != nil || w.silent >= silentMax }

// done records the result of one part, and reports whether it succeeded.
func (w *sweep) done(err error, what string, id uuid.UUID) bool {
	if !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrUnknown) {
		w.silent = 0
	}
	if err == nil {
		return true
	}
	if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUnknown) {
		w.silent++
	}
	if id != uuid.Nil {
		what += " of verification " + id.String()
	}
	if w.failed++; w.first == nil {
		w.first = fmt.Errorf("%s: %w", what, err)
	}
	w.db.Log.Warn("a part of a sweep failed", "part", what, "err", err)
	return false
}

// until returns the newest time that is due for a cause.
func (w *sweep) until(c cause) int64 { return w.now - c.after.Milliseconds() }

// due lists due verifications with a time up to until, oldest first, at most the given number.
func (s sweeper) due(ctx context.Context, a aged, until int64, most int) (ids []uuid.UUID, err error) {
	from, whole := s.since(a, until)
	oldest := until
	err = s.view(ctx, func(t *tx) error {
		return t.Each(func(rows *sql.Rows) error {
			var id uuid.UUID
			var at int64
			err := rows.Scan(&id, &at)
			ids, oldest = append(ids, id), min(oldest, at)
			return err
		}, a.ask(a.id+`, `+a.time), from, until, most)
	})
	if err == nil && whole {
		s.bounds.set(a.what, bound{from: oldest - lateMax.Milliseconds()})
	}
	return ids, err
}

// since returns the bound for a query up to until, and whether it is the beginning. The bound is always before
// until, even after a change of retention or of the ledger's clock.
func (s sweeper) since(a aged, until int64) (from int64, whole bool) {
	at, whole := s.bounds.get(a.what)
	return min(at.from, until-lateMax.Milliseconds()), whole
}

func (w *sweep) isDue(ctx context.Context, c cause, id uuid.UUID) (due bool, err error) {
	err = w.view(ctx, func(t *tx) error {
		return t.Row(`SELECT EXISTS (SELECT 1 FROM verifications WHERE `+c.due.which+` AND `+c.due.time+` <= ? AND id = ?)`,
			w.until(c), id[:]).Scan(&due)
	})
	return due, err
}

// forgetUnpaid deletes a final verification that never held a credit, with its bytes. It has no settlements, because
// these are paid for. It also checks for entries: a verification with one is part of the accounts, whatever its row
// says.
func (s sweeper) forgetUnpaid(ctx context.Context, id uuid.UUID) error {
	if err := s.eraseUpload(ctx, id); err != nil {
		return err
	}
	return s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`DELETE FROM verifications WHERE id = ? AND completed > 0 AND paid = 0
			AND NOT EXISTS (SELECT 1 FROM entries WHERE subject = verifications.id)`, id[:])
		return err
	})
}

const eraseChunks = `DELETE FROM upload_chunks WHERE verification = ? AND at_byte IN
	(SELECT at_byte FROM upload_chunks WHERE verification = ? ORDER BY at_byte LIMIT ?)`

// eraseUpload deletes the uploaded bytes of a final verification, in slices.
func (s sweeper) eraseUpload(ctx context.Context, id uuid.UUID) error {
	s.erased.Add(1)
	if err := s.eraseSlices(ctx, id, eraseChunks, chunksErased); err != nil {
		return err
	}
	return s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`UPDATE verifications SET upload_deleted = {now} WHERE id = ?`, id[:])
		return err
	})
}

const eraseEvidence = `DELETE FROM evidence WHERE verification = ? AND number IN
	(SELECT number FROM evidence WHERE verification = ? ORDER BY number LIMIT ?)`

// eraseSlices runs a statement that deletes at most that many lines of a verification, each time in its own
// transaction, until it finds fewer.
func (s sweeper) eraseSlices(ctx context.Context, id uuid.UUID, erase string, most int64) error {
	for erased := most; erased == most; {
		err := s.update(ctx, func(t *tx) (err error) {
			erased, err = t.Exec(erase, id[:], id[:], most)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseResults empties the payloads of a final verification, in slices: the addresses are erased, the counts and
// entries stay. It erases the evidence first, because that is useless without results, and an audit requires that it
// does not outlive them.
func (s sweeper) eraseResults(ctx context.Context, id uuid.UUID) error {
	v, err := s.verification(ctx, id)
	if err != nil {
		return err
	}
	if err := s.eraseSlices(ctx, id, eraseEvidence, evidenceErased); err != nil {
		return err
	}
	const erase = `UPDATE settlements SET payload = ? WHERE verification = ? AND number > ? AND number <= ?`
	for from := int64(0); from < v.Settlements; from += payloadsErased {
		err := s.update(ctx, func(t *tx) error {
			_, err := t.Exec(erase, []byte{}, id[:], from, from+payloadsErased)
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.update(ctx, func(t *tx) error {
		_, err := t.Exec(`UPDATE verifications SET results_deleted = {now}, single_email = '' WHERE id = ?`, id[:])
		return err
	})
}

const dueNodes = `SELECT session FROM nodes WHERE standing <> 0 AND since <= CAST(? AS BIGINT) - ? LIMIT ?`

// ended deletes outdated rows: processes that ended long ago, expired facts, old overrides, sessions and links, and
// old failed sign-ins. It reads before it writes, so that it does not conflict with heartbeats.
func (w *sweep) ended(ctx context.Context) {
	if !w.away(ctx) {
		w.done(w.forgetProcesses(ctx, w.now), "forget ended processes", uuid.Nil)
	}
	for _, due := range []struct {
		rows aged
		kept time.Duration // after their time
	}{{dueFacts, 0}, {dueOverrides, overridesKept}, {dueSessions, sessionsKept}, {dueLinks, linksKept}, {dueAttempts, 0}} {
		if !w.away(ctx) {
			w.done(w.deleteDue(ctx, due.rows, w.now-due.kept.Milliseconds()), due.rows.what, uuid.Nil)
		}
	}
}

// forgetProcesses deletes the rows of processes that ended long ago. A failure does not stop the others.
func (s sweeper) forgetProcesses(ctx context.Context, now int64) error {
	ended, err := ledger.Run(ctx, s.view, func(t *tx) ([]uuid.UUID, error) {
		return engine.List(t, "ask", engine.Only[uuid.UUID], dueNodes, now, endedKept.Milliseconds(), sweepMax)
	}, "list ended processes")
	if err != nil {
		return err
	}
	var failed []error
	for _, session := range ended {
		err := s.update(ctx, func(t *tx) error {
			_, err := t.Exec(`DELETE FROM nodes WHERE session = ? AND standing <> 0`, session[:])
			return err
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("process %s: %w", session, err))
		}
	}
	return errors.Join(failed...)
}

// deleteDue deletes due rows, in slices of a transaction each.
func (s sweeper) deleteDue(ctx context.Context, a aged, until int64) error {
	from, whole := s.since(a, until)
	for {
		var due int64
		err := s.view(ctx, func(t *tx) error {
			return t.Row(`SELECT count(*) FROM (`+a.ask(a.id)+`) AS due`, from, until, dueErased).Scan(&due)
		})
		if err != nil {
			return err
		}
		if due == 0 {
			break
		}
		err = s.update(ctx, func(t *tx) error {
			_, err := t.Exec(`DELETE FROM `+a.table+` WHERE `+a.id+` IN (`+a.ask(a.id)+`)`, from, until, dueErased)
			return err
		})
		if err != nil {
			return err
		}
	}
	if whole {
		s.bounds.set(a.what, bound{from: until - lateMax.Milliseconds()})
	}
	return nil
}

const (
	// lateKept bounds the failed verifications that a process remembers: a few dozen bytes each.
	lateKept = 1000
	// lateTried is how many of them one sweep retries.
	lateTried = 20
)

// task is one verification that is due for one cause.
type task struct {
	what string
	id   uuid.UUID
}

// failedTasks are the tasks that failed in a sweep. Sweeps handle all other tasks first, so that repeated failures do
// not block the tasks after them.
type failedTasks struct {
	mu  sync.Mutex
	all map[task]bool
}

// add remembers a task, and reports whether it is new and there was room for it.
func (l *failedTasks) add(c task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= lateKept || l.all[c] {
		return false
	}
	if l.all == nil {
		l.all = map[task]bool{}
	}
	l.all[c] = true
	return true
}

func (l *failedTasks) drop(c task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, c)
}

func (l *failedTasks) has(c task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[c]
}

func (l *failedTasks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// some returns lateTried of them at random, or all when there are fewer.
func (l *failedTasks) some() []task {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Collect(maps.Keys(l.all))
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), lateTried)]
}
