package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// The entries and their daily sums.

// enterOne writes an entry, enterMore each further one of the statement; countOne and countMore add to a day's sums.
const (
	enterOne = `INSERT INTO entries (subject, number, kind, workspace, amount, created, reason, author)
		VALUES (?, ?, ?, ?, ?, {now}, ?, ?)`
	enterMore = `, (?, ?, ?, ?, ?, {now}, ?, ?)`
	countOne  = `INSERT INTO credit_days (workspace, day, kind, credits) VALUES (?, ?, ?, ?)`
	countMore = `, (?, ?, ?, ?)`
	countDay  = ` ON CONFLICT (workspace, day, kind) DO UPDATE SET credits = credit_days.credits + excluded.credits`
)

type dayKind struct {
	workspace uuid.UUID
	day       int64
	kind      ledger.EntryKind
}

func (t accountRows) Enter(entries ...transitions.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	args := make([]any, 0, 7*len(entries))
	for _, e := range entries {
		args = append(args, e.Subject[:], e.Number, e.Kind, e.Workspace[:], e.Amount, e.Reason, e.Author)
	}
	created, err := engine.List(t, "write entries of kind "+string(entries[0].Kind), engine.Only[int64],
		enterOne+strings.Repeat(enterMore, len(entries)-1)+` RETURNING created`, args...)
	if err != nil {
		return err
	}
	return t.countOn(dayOf(created[0]), entries) // the same for all, because one statement wrote them
}

// dayOf returns the beginning of a time's day, in milliseconds.
func dayOf(created int64) int64 { return created - created%ledger.Day.Milliseconds() }

// countOn adds entries to a day: one row for each workspace and kind.
func (t accountRows) countOn(day int64, entries []transitions.Entry) error {
	var keys []dayKind
	sums := map[dayKind]ledger.Credits{}
	for _, e := range entries {
		key := dayKind{e.Workspace, day, e.Kind}
		if _, known := sums[key]; !known {
			keys = append(keys, key)
		}
		sums[key] += e.Amount
	}
	args := make([]any, 0, 4*len(keys))
	for _, key := range keys {
		args = append(args, key.workspace[:], key.day, key.kind, sums[key])
	}
	_, err := t.Exec(countOne+strings.Repeat(countMore, len(keys)-1)+countDay, args...)
	return ledger.Wrap(err, "count %s entry", entries[0].Kind)
}

const entryDays = `SELECT workspace, created - created % 86400000 AS day, kind, CAST(sum(amount) AS BIGINT) AS credits FROM entries`

// daysOff are the days whose stored sums differ from those of the entries, with the missing amount.
const daysOff = `SELECT workspace, day, kind, CAST(sum(credits) AS BIGINT) FROM (
		` + entryDays + ` GROUP BY workspace, created - created % 86400000, kind
		UNION ALL SELECT workspace, day, kind, -credits FROM credit_days) AS counted
	GROUP BY workspace, day, kind HAVING sum(credits) <> 0 ORDER BY workspace, day, kind`

// off calls yield for each day whose stored sums differ from those of the entries.
func (t accountRows) off(yield func(key dayKind, low ledger.Credits)) error {
	return ledger.Wrap(t.Each(func(rows *sql.Rows) error {
		var key dayKind
		var low ledger.Credits
		err := scan(rows, &key.workspace, &key.day, &key.kind, &low)
		if err == nil {
			yield(key, low)
		}
		return err
	}, daysOff), "add up the days of credits")
}

// days finds days whose stored sums differ from those of the entries.
func (a *audit) days(t *tx) error {
	return t.off(func(key dayKind, low ledger.Credits) {
		a.add(ledger.Violation{Invariant: ledger.Days, Subject: "credit_days",
			Detail: fmt.Sprintf("on %s the entries of kind %s of workspace %s make %d credits more than their day has",
				ledger.Clock(key.day).Format(time.DateOnly), key.kind, key.workspace, low)})
	})
}

func (t accountRows) Account(workspace uuid.UUID) (ledger.Balance, error) {
	var b ledger.Balance
	err := t.Row(`SELECT granted, available, held, spent FROM workspaces WHERE id = ?`, workspace[:]).
		Scan(&b.Granted, &b.Available, &b.Held, &b.Spent)
	if errors.Is(err, sql.ErrNoRows) {
		return b, ledger.ErrNoSuchWorkspace
	}
	return b, err
}

func (t accountRows) Credit(workspace uuid.UUID, by ledger.Balance, available ledger.Credits) (int64, error) {
	return t.Exec(`UPDATE workspaces SET granted = granted + ?, available = available + ?, held = held + ?,
		spent = spent + ? WHERE id = ? AND available >= ?`,
		by.Granted, by.Available, by.Held, by.Spent, workspace[:], available)
}

func (t accountRows) Granted(id uuid.UUID) (*transitions.Entry, error) {
	const known = `SELECT workspace, amount FROM entries WHERE subject = ? AND number = 0 AND kind = ?`
	return engine.Find(t, "read a grant", func(scan engine.Scan) (transitions.Entry, error) {
		e := transitions.Entry{Subject: id, Kind: ledger.EntryGrant}
		err := scan(&e.Workspace, &e.Amount)
		return e, err
	}, known, id[:], ledger.EntryGrant)
}

const correctionColumns = `id, subject, number, workspace, created, author, reason, findings`

func scanCorrection(scan engine.Scan) (c ledger.Correction, err error) {
	var findings []byte
	err = scan(&c.ID, &c.Subject, &c.Number, &c.Workspace, engine.At(&c.At), &c.Author, &c.Reason, &findings)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(findings, &c.Findings); err != nil {
		return c, fmt.Errorf("%w: findings of correction %s: %w", errRow, c.ID, err)
	}
	return c, nil
}

// Correction reads a correction with its entries; nil when there is none.
func (t accountRows) Correction(id uuid.UUID) (*ledger.Correction, error) {
	const read = `SELECT ` + correctionColumns + ` FROM corrections WHERE id = ?`
	c, err := engine.Find(t, "read correction", scanCorrection, read, id[:])
	if c == nil {
		return nil, err
	}
	c.Entries, err = engine.List(t, "read the entries of a correction",
		func(scan engine.Scan) (e ledger.CorrectionEntry, err error) {
			err = scan(&e.Number, &e.Kind, &e.Amount)
			return e, err
		}, `SELECT number, kind, amount FROM entries WHERE subject = ? ORDER BY number, kind`, id[:])
	return c, err
}

func (t accountRows) Corrected(subject string) (n int64, err error) {
	err = t.Row(`SELECT count(*) FROM corrections WHERE subject = ?`, subject).Scan(&n)
	return n, err
}

func (t accountRows) Correct(c ledger.Correction) error {
	findings, err := json.Marshal(c.Findings)
	if err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	_, err = t.Exec(`INSERT INTO corrections (`+correctionColumns+`) VALUES (?, ?, ?, ?, {now}, ?, ?, ?)`,
		c.ID[:], c.Subject, c.Number, c.Workspace[:], c.Author, c.Reason, string(findings))
	return err
}

// Correct audits the ledger and corrects the findings about one subject.
func (s *Store) Correct(ctx context.Context, call ledger.CorrectionCall) (ledger.Correction, error) {
	if err := call.Check(); err != nil {
		return ledger.Correction{}, fmt.Errorf("correct: %w", err)
	}
	a, err := s.audit(ctx)
	if err != nil {
		return ledger.Correction{}, fmt.Errorf("correct %s: %w", call.Subject, err)
	}
	c := ledger.Correction{ID: call.ID, Subject: call.Subject, Reason: call.Reason, Number: a.corrected[call.Subject] + 1}
	for _, v := range a.report.Violations {
		if v.Subject == call.Subject {
			c.Findings = append(c.Findings, v)
		}
	}
	var by ledger.Balance
	if account, off := a.accounts[call.Subject]; off {
		c.Workspace = account.Workspace
		c.Entries, by, err = account.Correct(call.Keep)
	}
	for _, v := range c.Findings {
		if err == nil && !v.Correctable() {
			err = fmt.Errorf("%s, %s: %w", v.Invariant, v.Detail, ledger.ErrUncorrectable)
		}
	}
	known := a.known[call.ID]
	if err == nil && len(c.Findings) == 0 && !known {
		err = ledger.ErrNothingFound
	}
	if err != nil && !known {
		return ledger.Correction{}, fmt.Errorf("correct %s: %w", call.Subject, err)
	}
	return s.EnterCorrection(ctx, c, by)
}

// corrections reads the corrections: the report names the newest, and their subjects are no violations.
func (a *audit) corrections(t *tx) error {
	err := t.Each(func(rows *sql.Rows) error {
		c, err := scanCorrection(func(into ...any) error { return scan(rows, into...) })
		if err != nil {
			return err
		}
		a.known[c.ID] = true
		a.corrected[c.Subject]++
		if len(a.report.Corrections) < ledger.ViolationsMax {
			a.report.Corrections = append(a.report.Corrections, c)
		}
		if c.Workspace == uuid.Nil {
			for _, v := range c.Findings {
				a.settled[v] = true
			}
		}
		return nil
	}, `SELECT `+correctionColumns+` FROM corrections ORDER BY created DESC, id`)
	if err != nil {
		return fmt.Errorf("read corrections: %w", err)
	}
	// Correction entries belong to neither a verification nor a grant.
	var n int64
	err = t.Row(`SELECT count(*) FROM entries e JOIN corrections c ON c.id = e.subject WHERE e.kind <> 'grant'`).Scan(&n)
	a.entries += n
	return ledger.Wrap(err, "count the entries of corrections")
}
