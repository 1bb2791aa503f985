package people

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// attempts are the failed sign-ins of one subject.
type attempts struct {
	subject  ledger.Hash
	failures int
	since    int64     // milliseconds
	refused  int64     // until when, milliseconds; 0: it is not
	ends     int64     // when all of it is forgotten, milliseconds
	call     uuid.UUID // which counted last
}

// readAttempts reads those of some subjects.
func (t rows) readAttempts(subjects []ledger.Hash) (list []attempts, err error) {
	err = engine.In(subjects, hashArg, func(in string, hashes []any) error {
		more, err := engine.List(t, "read failed sign-ins", func(scan engine.Scan) (a attempts, err error) {
			err = scan(hashed{&a.subject}, &a.failures, &a.since, &a.refused, &a.ends, &a.call)
			return a, err
		}, `SELECT subject, failures, since, refused, ends, last_call FROM sign_in_attempts WHERE subject`+in, hashes...)
		list = append(list, more...)
		return err
	})
	return list, err
}

// keepAttempts writes those of a subject, in place of what was.
func (t rows) keepAttempts(a attempts) error {
	_, err := t.Exec(`INSERT INTO sign_in_attempts (subject, failures, since, refused, ends, last_call)
		VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET failures = excluded.failures,
		since = excluded.since, refused = excluded.refused, ends = excluded.ends, last_call = excluded.last_call`,
		a.subject[:], a.failures, a.since, a.refused, a.ends, a.call[:])
	return ledger.Wrap(err, "write failed sign-ins")
}

// FailedSignIn counts a failed sign-in under some subjects.
func (b *Book) FailedSignIn(ctx context.Context, subjects []ledger.Hash, r ledger.AttemptRule) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	call := uuid.New()
	err := r.Check()
	if err == nil {
		err = checkBatch(subjects)
	}
	if err == nil && len(subjects) > 0 {
		err = b.runUpdate(ctx, func(t rows) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			until, err := fail(t, subjects, r, call, now.UnixMilli())
			for i, s := range subjects {
				waits[i] = until[s]
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("count a failed sign-in: %w", err)
	}
	return waits, nil
}

// fail counts a failure under each subject, and says until when each is refused.
func fail(t rows, subjects []ledger.Hash, r ledger.AttemptRule, call uuid.UUID, now int64) (
	map[ledger.Hash]time.Time, error) {
	subjects = differing(subjects)
	known, err := t.readAttempts(subjects)
	if err != nil {
		return nil, err
	}
	until := map[ledger.Hash]time.Time{}
	for _, subject := range subjects {
		a := attempts{subject: subject, since: now}
		at := slices.IndexFunc(known, func(a attempts) bool { return a.subject == subject })
		if at >= 0 && known[at].ends > now {
			a = known[at]
		}
		if a.call != call { // a run before this one may have counted
			a.failures++
			a.call, a.refused = call, 0
			a.ends = a.since + r.Window.Milliseconds()
			if wait := r.Wait(a.failures); wait > 0 {
				a.refused = now + wait.Milliseconds()
				a.ends = max(a.ends, a.refused+r.Window.Milliseconds())
			}
			if err := t.keepAttempts(a); err != nil {
				return nil, err
			}
		}
		until[subject] = refused(a, now)
	}
	return until, nil
}

// refused is until when, if that is to come.
func refused(a attempts, now int64) time.Time {
	if a.refused <= now {
		return time.Time{}
	}
	return ledger.Clock(a.refused)
}

// differing returns each subject once, in one order, so that two who count the same wait for each other.
func differing(subjects []ledger.Hash) []ledger.Hash {
	subjects = slices.SortedFunc(slices.Values(subjects), func(a, b ledger.Hash) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(subjects)
}

// SignInWaits answers until when subjects are refused.
func (b *Book) SignInWaits(ctx context.Context, subjects []ledger.Hash) ([]time.Time, error) {
	waits := make([]time.Time, len(subjects))
	err := checkBatch(subjects)
	if err == nil && len(subjects) > 0 {
		err = b.runView(ctx, func(t rows) error {
			now, err := t.Now()
			if err != nil {
				return err
			}
			known, err := t.readAttempts(differing(subjects))
			for i, s := range subjects {
				if at := slices.IndexFunc(known, func(a attempts) bool { return a.subject == s }); at >= 0 {
					waits[i] = refused(known[at], now.UnixMilli())
				}
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read how long sign-ins wait: %w", err)
	}
	return waits, nil
}

// ForgetFailures forgets those of a subject.
func (b *Book) ForgetFailures(ctx context.Context, subject ledger.Hash) error {
	return ledger.Wrap(b.runUpdate(ctx, func(t rows) error {
		_, err := t.Exec(`DELETE FROM sign_in_attempts WHERE subject = ?`, subject[:])
		return err
	}), "forget failed sign-ins")
}
