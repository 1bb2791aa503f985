package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
)

const correctionColumns = `id, subject, number, workspace, created, author, reason, findings`

func scanCorrection(scan func(into ...any) error) (c ledger.Correction, err error) {
	var created int64
	var findings []byte
	err = scan(&c.ID, &c.Subject, &c.Number, &c.Workspace, &created, &c.Author, &c.Reason, &findings)
	if err != nil {
		return c, err
	}
	c.At = ledger.Clock(created)
	if err := json.Unmarshal(findings, &c.Findings); err != nil {
		return c, fmt.Errorf("%w: findings of correction %s: %w", errRow, c.ID, err)
	}
	return c, nil
}

// Correction reads a correction with its entries; nil when there is none.
func (t accountRows) Correction(id uuid.UUID) (*ledger.Correction, error) {
	const read = `SELECT ` + correctionColumns + ` FROM corrections WHERE id = ?`
	c, err := scanCorrection(t.Row(read, id[:]).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read correction: %w", err)
	}
	err = t.Each(func(rows *sql.Rows) error {
		var e ledger.CorrectionEntry
		err := rows.Scan(&e.Number, &e.Kind, &e.Amount)
		c.Entries = append(c.Entries, e)
		return err
	}, `SELECT number, kind, amount FROM entries WHERE subject = ? ORDER BY number, kind`, id[:])
	if err != nil {
		return nil, fmt.Errorf("read the entries of a correction: %w", err)
	}
	return &c, nil
}

// Corrected counts the corrections of a subject.
func (t accountRows) Corrected(subject string) (n int64, err error) {
	err = t.Row(`SELECT count(*) FROM corrections WHERE subject = ?`, subject).Scan(&n)
	return n, err
}

// Correct writes one.
func (t accountRows) Correct(c ledger.Correction) error {
	findings, err := json.Marshal(c.Findings)
	if err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	_, err = t.Exec(`INSERT INTO corrections (`+correctionColumns+`) VALUES (?, ?, ?, ?, {now}, ?, ?, ?)`,
		c.ID[:], c.Subject, c.Number, c.Workspace[:], c.Author, c.Reason, string(findings))
	return err
}

// Correct audits, and sets right what it finds about one subject.
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

// corrections reads what was set right: the report names the newest, and what they are about is
// no violation.
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
	if err != nil {
		return fmt.Errorf("count the entries of corrections: %w", err)
	}
	return nil
}
