package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// The statements for the transitions of package transitions.

const verificationColumns = `id, workspace, identity, kind, filename, single_email, single_outcome,
	bytes, durable, writer, upload_expires, status, issue_code, issue_message, issue_row, issue_text,
	created, completed, records, duplicates, total,
	count_valid, count_invalid, count_catch_all, count_unknown, count_error, count_cancelled,
	next_try, expected, held, lease_node, lease_expires, epoch, settlements,
	waiting_since, wake_at, crashes, paid, upload_deleted, results_deleted, made_by, {now}`

// scanVerification reads verificationColumns. ErrNoSuchVerification.
func scanVerification(scan engine.Scan) (*transitions.Row, error) {
	var v transitions.Row
	var issue ledger.Issue
	var outcome, upload, results int64
	c := &v.Counts
	err := scan(&v.ID, &v.Workspace, &v.Identity, &v.Kind, &v.Filename, &v.SingleEmail, &outcome,
		&v.Bytes, &v.Durable, &v.Writer, engine.At(&v.UploadExpires), &v.Status, &issue.Code, &issue.Message, &issue.Row,
		&issue.Text, engine.At(&v.Created), engine.At(&v.Completed), &v.Rows, &v.Duplicates, &v.Total, &c.Valid,
		&c.Invalid, &c.CatchAll, &c.Unknown, &c.Error, &c.Cancelled, engine.At(&v.NextTry), engine.At(&v.Expected),
		&v.Held, &v.Node, &v.LeaseExpires, &v.Epoch,
		&v.Settlements, &v.WaitingSince, &v.WakeAt, &v.Crashes, &v.Paid, &upload, &results, &v.MadeBy, &v.Now)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ledger.ErrNoSuchVerification
	}
	if err != nil {
		return nil, err
	}
	if issue.Code == "" && issue.Message != "" {
		issue.Code = ledger.ReceiversWait
	}
	if issue.Code != "" {
		v.Issue = &issue
	}
	v.SingleOutcome = smtp.Outcome(outcome)
	v.UploadDeleted, v.ResultsDeleted = upload != 0, results != 0
	return &v, nil
}

func (t verificationRows) Read(id uuid.UUID) (*transitions.Row, error) {
	const read = `SELECT ` + verificationColumns + ` FROM verifications WHERE id = ?`
	return scanVerification(t.Row(read, id[:]).Scan)
}

func (t verificationRows) Await(id uuid.UUID) (*transitions.Row, error) {
	const read = `SELECT ` + verificationColumns + ` FROM verifications WHERE id = ? {lock}`
	return scanVerification(t.Row(read, id[:]).Scan)
}

func (t verificationRows) ReadOf(workspace, id uuid.UUID) (*transitions.Row, error) {
	const read = `SELECT ` + verificationColumns + ` FROM verifications WHERE id = ? AND workspace = ?`
	return scanVerification(t.Row(read, id[:], workspace[:]).Scan)
}

func (t verificationRows) ReadIdentity(workspace, identity uuid.UUID) (*transitions.Row, error) {
	const read = `SELECT ` + verificationColumns + ` FROM verifications WHERE workspace = ? AND identity = ?`
	return scanVerification(t.Row(read, workspace[:], identity[:]).Scan)
}

const countOpen = `SELECT count(*) FROM verifications WHERE workspace = ? AND completed = 0`

func (t verificationRows) Open(workspace uuid.UUID) (n int64, err error) {
	err = t.Row(countOpen, workspace[:]).Scan(&n)
	return n, err
}

// covered is the condition that a verification waits for credits that are now available.
const covered = `workspace = ? AND issue_code = 'credits_required'
	AND total <= (SELECT available FROM workspaces WHERE id = ?)`

func (t verificationRows) Unfunded(workspace uuid.UUID) (*transitions.Row, error) {
	const next = `SELECT ` + verificationColumns + ` FROM verifications WHERE ` + covered + `
		ORDER BY created, id LIMIT 1`
	v, err := scanVerification(t.Row(next, workspace[:], workspace[:]).Scan)
	if errors.Is(err, ledger.ErrNoSuchVerification) {
		return nil, nil
	}
	return v, ledger.Wrap(err, "find verifications that wait for credits")
}

func (t verificationRows) Short(workspace uuid.UUID) (map[uuid.UUID]int64, error) {
	return engine.Pairs[uuid.UUID, int64](t, "list what waits for credits", `SELECT id, total FROM verifications
		WHERE workspace = ? AND issue_code = 'credits_required'`, workspace[:])
}

func (t verificationRows) Tell(id uuid.UUID, message string) error {
	_, err := t.Exec(`UPDATE verifications SET issue_message = ? WHERE id = ?`, message, id[:])
	return ledger.Wrap(err, "renew message")
}

func (t verificationRows) Insert(n ledger.NewVerification, single string) error {
	kind := ledger.Bulk
	if single != "" {
		kind = ledger.Single
	}
	_, err := t.Exec(`INSERT INTO verifications (id, workspace, identity, kind, filename, single_email, bytes,
		upload_expires, status, created, wake_at, made_by) VALUES (?, ?, ?, ?, ?, ?, ?, {now} + ?, ?, {now}, {now}, ?)`,
		n.ID[:], n.Workspace[:], n.Identity[:], kind, n.Filename, single, n.Bytes,
		n.UploadExpiry.Milliseconds(), ledger.Uploading, n.MadeBy)
	return err
}

// issueOf returns the issue of a verification as stored. While it waits for receivers, the stored code is empty: the
// index verifications_due uses the empty column to find work.
func issueOf(v *transitions.Row) ledger.Issue {
	if v.Issue == nil {
		return ledger.Issue{}
	}
	issue := *v.Issue
	if issue.Code == ledger.ReceiversWait {
		issue.Code = ""
	}
	return issue
}

func (t verificationRows) Move(s transitions.Step) (int64, error) {
	v, issue := s.After, issueOf(s.After)
	var node any // NULL for nobody
	if v.Node != uuid.Nil {
		node = v.Node[:]
	}
	return t.Exec(`UPDATE verifications SET status = ?, issue_code = ?, issue_message = ?, issue_row = ?,
		issue_text = ?, next_try = ?, expected = ?, held = ?, count_cancelled = ?, completed = ?, waiting_since = ?,
		wake_at = ?, crashes = ?, paid = ?,
		upload_deleted = CASE WHEN ? = 0 THEN 0 WHEN upload_deleted = 0 THEN {now} ELSE upload_deleted END,
		lease_node = ?, lease_expires = ?
		WHERE id = ? AND status = ? AND epoch = ? AND settlements = ?`,
		v.Status, issue.Code, issue.Message, issue.Row, issue.Text, ledger.Millis(v.NextTry), ledger.Millis(v.Expected),
		v.Held, v.Counts.Cancelled, ledger.Millis(v.Completed), v.WaitingSince, v.WakeAt, v.Crashes, stored(v.Paid),
		stored(v.UploadDeleted), node, v.LeaseExpires, v.ID[:], s.Before.Status, s.Before.Epoch, s.Before.Settlements)
}

func (t verificationRows) Measure(s transitions.Step) (int64, error) {
	v := s.After
	return t.Exec(`UPDATE verifications SET records = ?, duplicates = ?, total = ?
		WHERE id = ? AND status = ? AND epoch = ? AND settlements = ?`,
		v.Rows, v.Duplicates, v.Total, v.ID[:], s.Before.Status, s.Before.Epoch, s.Before.Settlements)
}

func (t verificationRows) Fence(id uuid.UUID, from, to int64) (int64, error) {
	return t.Exec(`UPDATE verifications SET writer = ? WHERE id = ? AND writer = ?`, to, id[:], from)
}

const fetchChunk = `SELECT data FROM upload_chunks WHERE verification = ? AND at_byte = ?`

func (t verificationRows) Chunk(id uuid.UUID, offset int64) (data []byte, err error) {
	return engine.Value[[]byte](t, "read a chunk", fetchChunk, id[:], offset)
}

func (t verificationRows) Append(id uuid.UUID, offset int64, data []byte) error {
	_, err := t.Exec(`INSERT INTO upload_chunks (verification, at_byte, data) VALUES (?, ?, ?)`, id[:], offset, data)
	return err
}

func (t verificationRows) Lengthen(id uuid.UUID, writer, from, to int64) (int64, error) {
	return t.Exec(`UPDATE verifications SET durable = ? WHERE id = ? AND durable = ? AND writer = ?`,
		to, id[:], from, writer)
}

// runnable repeats the condition of the index verifications_due word for word, so that the database can use the index.
const runnable = `(status IN ('preparing', 'verifying', 'cancelling')
	OR (status = 'waiting' AND issue_code = ''))`

// free has the queries for free verifications with work, except those of some workspaces. They are few, because each
// is prepared once.
var free = func() (texts [len(exceptSizes)]string) {
	for i, size := range exceptSizes {
		texts[i] = `SELECT ` + verificationColumns + ` FROM verifications WHERE ` + runnable + ` AND wake_at <= {now}
			AND wake_at >= ` + sinceBound + ` AND (lease_node IS NULL OR lease_expires <= {now})`
		if size > 0 {
			texts[i] += ` AND workspace NOT IN (?` + strings.Repeat(", ?", size-1) + `)`
		}
		texts[i] += ` ORDER BY wake_at, id LIMIT ?`
	}
	return texts
}()

// exceptSizes are the numbers of excepted workspaces for which free has a query.
var exceptSizes = [...]int{0, 8, 64, ledger.ExceptMax}

// passingLocked ends a query for rows to change and skips those that another transaction has locked.
const passingLocked = ` FOR UPDATE SKIP LOCKED`

// passing returns a query for rows to change. It skips locked rows if an earlier run of this transaction waited for
// one.
func (t verificationRows) passing(text string) string {
	if t.Passes && !t.Embedded() {
		return text + passingLocked
	}
	return text
}

func (t *tx) Free(limit int, except []uuid.UUID) ([]*transitions.Row, error) {
	at, _ := t.base.bounds.get(leasing)
	return t.free(at, limit, except)
}

func (t verificationRows) free(from bound, limit int, except []uuid.UUID) ([]*transitions.Row, error) {
	at := slices.IndexFunc(exceptSizes[:], func(size int) bool { return len(except) <= size })
	if at < 0 {
		return nil, fmt.Errorf("pass over %d workspaces: %w", len(except), ledger.ErrIllegal)
	}
	list, err := t.below(from, limit, except)
	if err != nil {
		return nil, err
	}
	args := []any{from.from, from.from}
	for i := range exceptSizes[at] {
		one := uuid.Nil // no workspace has this id
		if i < len(except) {
			one = except[i]
		}
		args = append(args, one[:])
	}
	more, err := engine.List(t, "look for work", scanVerification, t.passing(free[at]), append(args, limit-len(list))...)
	return append(list, more...), err
}

func (t verificationRows) KeepParked(id uuid.UUID, state []byte) error {
	_, err := t.Exec(`INSERT INTO parked_work (verification, data) VALUES (?, ?)
		ON CONFLICT (verification) DO UPDATE SET data = excluded.data`, id[:], state)
	return err
}

func (t verificationRows) ForgetParked(id uuid.UUID) error {
	_, err := t.Exec(`DELETE FROM parked_work WHERE verification = ?`, id[:])
	return err
}

func (t verificationRows) Take(id, node uuid.UUID, epoch int64, ttl time.Duration) (int64, error) {
	return t.Exec(`UPDATE verifications SET lease_node = ?, lease_expires = {now} + ?, epoch = epoch + 1
		WHERE id = ? AND epoch = ?`, node[:], ttl.Milliseconds(), id[:], epoch)
}

const renewLeases = `UPDATE verifications SET lease_expires = {now} + ?
	WHERE lease_node = ? AND lease_expires > {now} RETURNING id, epoch`

func (t verificationRows) Renew(node uuid.UUID, ttl time.Duration) (leases []ledger.Lease, err error) {
	return engine.List(t, "renew leases", func(scan engine.Scan) (ledger.Lease, error) {
		l := ledger.Lease{Node: node}
		err := scan(&l.Verification, &l.Epoch)
		return l, err
	}, renewLeases, ttl.Milliseconds(), node[:])
}

func (t verificationRows) Drop(id uuid.UUID, epoch int64) (int64, error) {
	return t.Exec(`UPDATE verifications SET lease_node = NULL, lease_expires = 0 WHERE id = ? AND epoch = ?`, id[:], epoch)
}

func (t verificationRows) Settle(n ledger.Settlement, p ledger.Payload) error {
	c := p.Counts
	_, err := t.Exec(`INSERT INTO settlements (verification, number, epoch, created,
		first_ordinal, last_ordinal, count_valid, count_invalid, count_catch_all, count_unknown, count_error,
		digest, payload) VALUES (?, ?, ?, {now}, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		n.Lease.Verification[:], n.Number, n.Lease.Epoch, p.First, p.Last,
		c.Valid, c.Invalid, c.CatchAll, c.Unknown, c.Error, p.Digest[:], p.Bytes)
	return err
}

func (t verificationRows) KeepEvidence(n ledger.Settlement) error {
	_, err := t.Exec(`INSERT INTO evidence (verification, number, data) VALUES (?, ?, ?)`,
		n.Lease.Verification[:], n.Number, n.Evidence)
	return err
}

func (t verificationRows) Count(s transitions.Step) (int64, error) {
	v, c := s.After, s.After.Counts
	return t.Exec(`UPDATE verifications SET settlements = ?, held = ?, count_valid = ?, count_invalid = ?,
		count_catch_all = ?, count_unknown = ?, count_error = ?, single_outcome = ?, expected = ?, issue_message = ?
		WHERE id = ? AND status = ? AND epoch = ? AND settlements = ?`,
		v.Settlements, v.Held, c.Valid, c.Invalid, c.CatchAll, c.Unknown, c.Error, v.SingleOutcome,
		ledger.Millis(v.Expected), issueOf(v).Message, v.ID[:], s.Before.Status, s.Before.Epoch, s.Before.Settlements)
}

func (t verificationRows) Settled(id uuid.UUID, number int64) (epoch int64, digest []byte, err error) {
	const known = `SELECT epoch, digest FROM settlements WHERE verification = ? AND number = ?`
	err = t.Row(known, id[:], number).Scan(&epoch, &digest)
	if errors.Is(err, sql.ErrNoRows) {
		err = ledger.ErrStaleEpoch
	}
	return epoch, digest, err
}

func (t verificationRows) Ordinals(id uuid.UUID, number int64) ([]int64, error) {
	const one = `SELECT payload FROM settlements WHERE verification = ? AND number = ?`
	payload, err := engine.Find(t, "read a settlement", engine.Only[[]byte], one, id[:], number)
	if err == nil && payload == nil {
		err = ledger.ErrStaleEpoch
	}
	if err != nil {
		return nil, err
	}
	var batch ledger.Batch
	err = batch.Decode(*payload)
	return batch.Ordinals, err
}
