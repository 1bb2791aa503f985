package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
)

// auditPage is the number of verifications that an audit reads at once. Guess.
const auditPage = 500

// Audit recomputes every invariant that the ledger can show, in one snapshot. Its memory does not grow with the
// ledger except for one number for each workspace, and for the current verification one bit for each address and one
// line for each settlement.
//
// If damage makes the ledger unreadable, the report is about ledger.Storage; an error means that the database did
// not answer.
func (s auditor) Audit(ctx context.Context) (ledger.AuditReport, error) {
	a, err := s.audit(ctx)
	if err != nil {
		return ledger.AuditReport{}, fmt.Errorf("audit: %w", err)
	}
	return a.report, nil
}

func (s auditor) audit(ctx context.Context) (*audit, error) {
	a := &audit{held: map[uuid.UUID]ledger.Credits{}, settled: map[ledger.Violation]bool{},
		known: map[uuid.UUID]bool{}, corrected: map[string]int64{}, accounts: map[string]ledger.AuditedAccount{},
		report: ledger.AuditReport{Violations: []ledger.Violation{}, Corrections: []ledger.Correction{}}}
	err := s.db.Snapshot(ctx, s.within(func(t *tx) error {
		for _, part := range []func(t *tx) error{a.storage, a.corrections, a.files, a.orphans, a.erased, a.identities,
			a.operators, a.workspaces, a.days} {
			if err := part(t); err != nil {
				return err
			}
		}
		return nil
	}))
	if errors.Is(err, errRow) || engine.Damaged(err) {
		a.addViolation(ledger.Storage, "ledger", "the audit ended here, the rest was not looked at: %v", err)
		err = nil
	}
	return a, err
}

type audit struct {
	report  ledger.AuditReport
	held    map[uuid.UUID]ledger.Credits // by workspace, for all its verifications
	entries int64                        // that belong to a verification
	batch   ledger.Batch

	settled   map[ledger.Violation]bool        // a correction has noted it as known
	known     map[uuid.UUID]bool               // corrections by id
	corrected map[string]int64                 // number of corrections of a subject
	accounts  map[string]ledger.AuditedAccount // with a difference, by subject
}

// addViolation adds a violation whose detail has the form of fmt.Sprintf.
func (a *audit) addViolation(invariant, subject, detail string, args ...any) {
	a.add(ledger.Violation{Invariant: invariant, Subject: subject, Detail: fmt.Sprintf(detail, args...)})
}

// add counts violations that are not corrected, and lists them up to the bound.
func (a *audit) add(list ...ledger.Violation) {
	list = slices.DeleteFunc(list, func(v ledger.Violation) bool { return a.settled[v] })
	a.report.Found += int64(len(list))
	room := ledger.ViolationsMax - len(a.report.Violations)
	a.report.Violations = append(a.report.Violations, list[:min(room, len(list))]...)
}

// errRow means that a row has an impossible value.
var errRow = errors.New("a row cannot be read")

// scan reads one row; its error wraps errRow.
func scan(rows *sql.Rows, into ...any) error {
	if err := rows.Scan(into...); err != nil {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return nil
}

// files checks all verifications, page by page, in the order of their ids.
func (a *audit) files(t *tx) error {
	after := []byte{}
	for {
		var page []*transitions.Row
		err := t.Each(func(rows *sql.Rows) error {
			v, err := scanVerification(func(into ...any) error { return scan(rows, into...) })
			page = append(page, v)
			return err
		}, `SELECT `+verificationColumns+` FROM verifications WHERE id > ? ORDER BY id LIMIT ?`, after, auditPage)
		if err != nil {
			return fmt.Errorf("read verifications: %w", err)
		}
		for _, v := range page {
			if err := a.file(t, v); err != nil {
				return fmt.Errorf("verification %s: %w", v.ID, err)
			}
			after = v.ID[:]
		}
		if len(page) < auditPage {
			return nil
		}
	}
}

func (a *audit) file(t *tx, v *transitions.Row) error {
	a.report.Verifications++
	a.held[v.Workspace] += v.Held
	check := ledger.NewFileCheck(v.Verification)
	n := 0 // entries that a verification may have
	err := t.Each(func(rows *sql.Rows) error {
		var number int64
		var kind ledger.EntryKind
		var workspace uuid.UUID
		var amount ledger.Credits
		err := scan(rows, &number, &kind, &workspace, &amount)
		if kind != ledger.EntryGrant { // grants are counted elsewhere
			n++
		}
		check.Entry(workspace, kind, number, amount)
		return err
	}, `SELECT number, kind, workspace, amount FROM entries WHERE subject = ? ORDER BY number, kind`, v.ID[:])
	if err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	a.entries += int64(n)
	if v.Paid != (n > 0) {
		a.addViolation(ledger.Paid, v.ID.String(), "the row says %v, there are %d entries", v.Paid, n)
	}
	err = t.Each(func(rows *sql.Rows) error { return a.settlement(check, v, rows) }, `SELECT number, epoch,
		first_ordinal, last_ordinal, count_valid, count_invalid, count_catch_all, count_unknown, count_error,
		digest, payload FROM settlements WHERE verification = ? ORDER BY number`, v.ID[:])
	if err != nil {
		return fmt.Errorf("read settlements: %w", err)
	}
	a.add(check.Finish()...)
	a.report.Found += max(check.Found()-ledger.ViolationsMax, 0) // the violations that are not listed
	var chunks, bytes int64
	err = t.Row(`SELECT count(*), coalesce(CAST(sum(length(data)) AS BIGINT), 0) FROM upload_chunks
		WHERE verification = ?`, v.ID[:]).Scan(&chunks, &bytes)
	if err != nil {
		return fmt.Errorf("read chunks: %w", err)
	}
	a.report.Chunks += chunks
	if v.UploadDeleted && chunks > 0 {
		a.addViolation(ledger.Erased, v.ID.String(), "%d bytes of its upload are there, which is erased", bytes)
	}
	if bytes != v.Durable && !v.UploadDeleted && !v.Status.Final() {
		a.addViolation("I13", v.ID.String(), "%d bytes are stored, %d were answered as durable", bytes, v.Durable)
	}
	return nil
}

func (a *audit) settlement(check *ledger.FileCheck, v *transitions.Row, rows *sql.Rows) error {
	var number, epoch, first, last int64
	var c ledger.Counts
	var digest, payload sql.RawBytes
	err := scan(rows, &number, &epoch, &first, &last, &c.Valid, &c.Invalid, &c.CatchAll, &c.Unknown, &c.Error,
		&digest, &payload)
	if err != nil {
		return err
	}
	a.report.Settlements++
	a.report.Outcomes += c.Sum()
	if len(payload) == 0 && v.Status.Final() {
		check.Settlement(number, epoch, c, nil)
		return nil
	}
	wrong := func(invariant, format string, args ...any) {
		a.addViolation(invariant, v.ID.String(), "settlement %d "+format, append([]any{number}, args...)...)
	}
	if err := a.batch.Decode(payload); err != nil {
		wrong("I12", "cannot be read: %v", err)
		check.Settlement(number, epoch, c, nil)
		return nil
	}
	if was := a.batch.Digest(); !bytes.Equal(was[:], digest) {
		wrong("I9", "is not what was committed: its digest is another")
	}
	if from, to := a.batch.Ordinals[0], a.batch.Ordinals[a.batch.Len()-1]; from != first || to != last {
		wrong("I12", "says ordinals %d to %d and holds %d to %d: results leave some out", first, last, from, to)
	}
	check.Settlement(number, epoch, c, &a.batch)
	return nil
}

// orphans finds rows whose verification, workspace or user does not exist.
func (a *audit) orphans(t *tx) error {
	for _, o := range []struct{ table, of, owners, owner, only string }{
		{"settlements", "verification", "verifications", "id = r.verification", ""},
		{"evidence", "settlement", "settlements", "verification = r.verification AND number = r.number", ""},
		{"parked_work", "verification", "verifications", "id = r.verification AND completed = 0", ""},
		{"upload_chunks", "verification", "verifications", "id = r.verification", ""},
		{"verifications", "workspace", "workspaces", "id = r.workspace", ""},
		{"entries", "workspace", "workspaces", "id = r.workspace", ""},
		{"workspace_weights", "workspace", "workspaces", "id = r.workspace", ""},
		{"workspace_limits", "workspace", "workspaces", "id = r.workspace", ""},
		{"memberships", "workspace", "workspaces", "id = r.workspace", ""},
		{"memberships", "user", "users", "id = r.user_id", ""},
		{"user_sessions", "user", "users", "id = r.user_id", ""},
		{"links", "workspace", "workspaces", "id = r.workspace", " AND purpose = 'invite'"},
		{"credit_days", "workspace", "workspaces", "id = r.workspace", ""},
		{"workspace_log", "workspace", "workspaces", "id = r.workspace", ""},
	} {
		n, err := engine.Value[int64](t, "look for "+o.table+" without "+o.of, `SELECT count(*) FROM `+o.table+` r
			WHERE NOT EXISTS (SELECT 1 FROM `+o.owners+` WHERE `+o.owner+`)`+o.only)
		if err != nil {
			return err
		}
		if n > 0 {
			a.addViolation(ledger.Owned, o.table, "%d are of a %s that is not there, or over", n, o.of)
		}
	}
	return nil
}

// erased finds evidence without its results: customers were promised that both are erased.
func (a *audit) erased(t *tx) error {
	err := t.Each(func(rows *sql.Rows) error {
		var id uuid.UUID
		var n int64
		err := scan(rows, &id, &n)
		a.addViolation(ledger.Erased, id.String(), "the evidence of %d settlements is there, their results are erased", n)
		return err
	}, `SELECT e.verification, count(*) FROM evidence e
		JOIN settlements s ON s.verification = e.verification AND s.number = e.number
		WHERE length(s.payload) = 0 GROUP BY e.verification`)
	return ledger.Wrap(err, "look for evidence without results")
}

// identities finds two verifications of one workspace with one idempotency key (I11).
func (a *audit) identities(t *tx) error {
	err := t.Each(func(rows *sql.Rows) error {
		var workspace, identity uuid.UUID
		var n int64
		err := scan(rows, &workspace, &identity, &n)
		a.addViolation("I11", workspace.String(), "%d verifications have idempotency key %s", n, identity)
		return err
	}, `SELECT workspace, identity, count(*) FROM verifications
		GROUP BY workspace, identity HAVING count(*) > 1`)
	return ledger.Wrap(err, "read identities")
}

// operators finds weights, limits and overrides that are out of bounds.
func (a *audit) operators(t *tx) error {
	for _, o := range []struct{ query, detail string }{
		{`SELECT workspace, weight FROM workspace_weights WHERE weight < 1 OR weight > ` +
			strconv.Itoa(ledger.WeightMax), "the workspace has weight %d"},
		{`SELECT workspace, CASE WHEN open < 1 THEN open WHEN stored < 1 THEN stored ELSE unpaid END
			FROM workspace_limits WHERE open < 1 OR stored < 1 OR unpaid < 1`, "the workspace has a limit of %d"},
		{`SELECT id, ends - expires FROM throttle_overrides WHERE ends > expires OR expires <= created`,
			"the override ends %d ms after it expires, or expired before it began"},
	} {
		err := t.Each(func(rows *sql.Rows) error {
			var id uuid.UUID
			var n int64
			err := scan(rows, &id, &n)
			a.addViolation(ledger.Bounds, id.String(), o.detail, n)
			return err
		}, o.query)
		if err != nil {
			return fmt.Errorf("read weights, limits and overrides: %w", err)
		}
	}
	return nil
}

// workspaces checks all accounts against their entries and verifications.
func (a *audit) workspaces(t *tx) error {
	sums := map[uuid.UUID]*ledger.Sums{}
	var newest int64
	err := t.Each(func(rows *sql.Rows) error {
		var workspace uuid.UUID
		var kind ledger.EntryKind
		var n, last int64
		var amount ledger.Credits
		if err := scan(rows, &workspace, &kind, &n, &amount, &last); err != nil {
			return err
		}
		if sums[workspace] == nil {
			sums[workspace] = &ledger.Sums{}
		}
		sums[workspace].Add(kind, amount) // the sums below find an unknown kind
		a.report.Entries += n
		newest = max(newest, last)
		if kind == ledger.EntryGrant {
			a.entries += n
		}
		return nil
	}, `SELECT workspace, kind, count(*), CAST(sum(amount) AS BIGINT), max(created) FROM entries
		GROUP BY workspace, kind`)
	if err != nil {
		return fmt.Errorf("add up entries: %w", err)
	}
	a.report.Newest = ledger.Clock(newest)
	if a.entries != a.report.Entries {
		a.addViolation("I3", "entries", "%d belong to no verification", a.report.Entries-a.entries)
	}
	return ledger.Wrap(t.Each(func(rows *sql.Rows) error {
		var id uuid.UUID
		var b ledger.Balance
		if err := scan(rows, &id, &b.Granted, &b.Available, &b.Held, &b.Spent); err != nil {
			return err
		}
		a.report.Workspaces++
		if sums[id] == nil {
			sums[id] = &ledger.Sums{}
		}
		off := ledger.CheckBalance(id, b, *sums[id], a.held[id])
		if len(off) > 0 {
			a.accounts[id.String()] = ledger.AuditedAccount{Workspace: id, Account: b, Entries: *sums[id], Files: a.held[id]}
		}
		a.add(off...)
		return nil
	}, `SELECT id, granted, available, held, spent FROM workspaces ORDER BY id`), "read workspaces")
}

// storageFindings bounds the embedded database's reports about its own damage. Guess.
const storageFindings = 20

// storage makes the embedded database check its pages, indexes and constraints. Its messages name tables and pages,
// but no values. Database servers check themselves.
func (a *audit) storage(t *tx) error {
	if !t.Embedded() {
		return nil
	}
	return ledger.Wrap(t.Each(func(rows *sql.Rows) error {
		var said string
		err := scan(rows, &said)
		if err == nil && said != "ok" {
			a.add(ledger.Violation{Invariant: ledger.Storage, Subject: "database", Detail: said})
		}
		return err
	}, fmt.Sprintf("PRAGMA integrity_check(%d)", storageFindings)), "check the database")
}
