package transitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Create makes a verification, or returns the one with the same workspace and identity. The key (workspace, identity)
// is unique while the verification is kept: for ever, if it ever held a credit.
func (e Engine) Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error) {
	var v *Row
	var created bool
	n.MadeBy = ledger.Actor(ctx)
	err := e.db.Update(ctx, Scope{Workspace: n.Workspace}, func(t Tables) (err error) {
		v, created, err = create(t, n, "")
		// If an earlier run was committed, the row has this call's id.
		created = err == nil && (created || t.Doubt() && v.ID == n.ID)
		return err
	})
	if err != nil {
		err = fmt.Errorf("create verification in workspace %s: %w", n.Workspace, err)
		return ledger.Verification{}, false, err
	}
	return v.Verification, created, nil
}

// create makes a verification, or returns the one with the same workspace and identity; single is the address of a
// check, "" for a file.
func create(t Tables, n ledger.NewVerification, single string) (v *Row, created bool, err error) {
	if _, err := t.Account(n.Workspace); err != nil {
		return nil, false, err
	}
	v, err = t.ReadIdentity(n.Workspace, n.Identity)
	switch {
	case err == nil && !sameFile(v, n, single):
		return nil, false, ledger.ErrIdentityReused
	case err == nil:
		return v, false, nil
	case !errors.Is(err, ledger.ErrNoSuchVerification):
		return nil, false, err
	}
	if n.Bytes > n.BytesMax {
		return nil, false, ledger.ErrFileTooLarge
	}
	if err := admit(t, n); err != nil {
		return nil, false, err
	}
	if n.Bytes < 1 {
		return nil, false, fmt.Errorf("length %d: %w", n.Bytes, ledger.ErrIllegal)
	}
	if err := errors.Join(ledger.CheckText(n.Filename), ledger.CheckOperatorText("actor", n.MadeBy)); err != nil {
		return nil, false, err
	}
	if err := insert(t, n, single); err != nil {
		return nil, false, err
	}
	if v, err = t.Read(n.ID); err != nil || single == "" {
		return v, true, err
	}
	return v, true, store(t, v, 0, record(single))
}

// Unpaid counts the verifications of a workspace for ledger.Limits.Unpaid.
type Unpaid struct {
	Count  int64
	Oldest int64 // creation time of the oldest, milliseconds; 0: there is none
	Now    int64 // milliseconds, by the database's clock
}

// admit refuses a new verification when its workspace is at a limit, or the ledger has no room. It returns the first
// refusal in the order of package ledger.
func admit(t Tables, n ledger.NewVerification) error {
	own, err := t.Limits(n.Workspace)
	if err != nil {
		return fmt.Errorf("read limits: %w", err)
	}
	limits := own.Or(n.Limits)
	open, err := t.Open(n.Workspace)
	if err != nil {
		return fmt.Errorf("count open ones: %w", err)
	}
	if open >= limits.Open {
		return ledger.ErrTooManyOpen
	}
	stored, err := t.Stored(n.Workspace)
	if err != nil {
		return fmt.Errorf("add up stored bytes: %w", err)
	}
	if n.Bytes > limits.Stored-stored {
		return ledger.ErrTooManyBytes
	}
	unpaid, err := t.Unpaid(n.Workspace)
	if err != nil {
		return fmt.Errorf("count unpaid ones: %w", err)
	}
	if unpaid.Count >= limits.Unpaid {
		return &ledger.Later{Err: ledger.ErrTooManyUnpaid, After: unpaid.after()}
	}
	return t.Room()
}

// after returns how long the oldest unpaid verification still counts.
func (u Unpaid) after() time.Duration {
	if u.Oldest == 0 {
		return ledger.UnpaidWithin // the limit allows none
	}
	return time.Duration(u.Oldest-u.Now)*time.Millisecond + ledger.UnpaidWithin
}

// sameFile reports whether a verification is the file, or the check of an address, that is asked for. If its address
// was erased after the retention, the length decides, as for a file.
func sameFile(v *Row, n ledger.NewVerification, address string) bool {
	if address == "" {
		return v.Kind == ledger.Bulk && v.Bytes == n.Bytes
	}
	return v.Kind == ledger.Single && v.Bytes == n.Bytes && (v.SingleEmail == address || v.ResultsDeleted)
}

// OpenUpload makes the caller the newest writer and fences the older ones. For a finished upload it only returns the
// state.
func (e Engine) OpenUpload(ctx context.Context, id uuid.UUID) (ledger.Upload, error) {
	return ledger.Run(ctx, e.db.writeFree, func(t Tables) (u ledger.Upload, err error) {
		v, err := t.Read(id)
		if err != nil {
			return u, err
		}
		u = v.Upload()
		if u.Status != ledger.Uploading || u.Expired {
			return u, nil
		}
		u.Writer++
		n, err := t.Fence(id, v.Writer, u.Writer)
		return u, one(n, err, "open upload")
	}, "open upload %s", id)
}

// AppendChunk stores data at offset: the bytes are durable before it returns. Repeating the last call (same writer,
// offset and data) gives the same answer. The state is also returned with ErrFenced, ErrUploadClosed, ErrGap and
// ErrNoRoom. A chunk above ledger.ChunkBytesMax, or beyond the declared length, is ErrIllegal.
func (e Engine) AppendChunk(ctx context.Context, id uuid.UUID, writer, offset int64, data []byte) (
	u ledger.Upload, err error) {
	early := false // by any run: an earlier one may have been committed without our knowledge
	err = e.db.writeFree(ctx, func(t Tables) error {
		v, err := t.Read(id)
		if err != nil {
			u = ledger.Upload{}
			return err
		}
		early = early || !v.Upload().Expired
		u, err = appendChunk(t, v, part{writer: writer, offset: offset, data: data, early: early})
		return err
	})
	return u, ledger.Wrap(err, "append to upload %s at byte %d", id, offset)
}

type part struct {
	writer, offset int64
	data           []byte
	early          bool // it came before the upload expired
}

func appendChunk(t Tables, v *Row, p part) (ledger.Upload, error) {
	id, writer, offset, data := v.ID, p.writer, p.offset, p.data
	end := offset + int64(len(data))
	if v.Writer == writer && v.Durable == end {
		before, err := t.Chunk(id, offset)
		if err != nil {
			return ledger.Upload{}, fmt.Errorf("look for the chunk: %w", err)
		}
		if len(data) > 0 && bytes.Equal(before, data) {
			return v.Upload(), nil
		}
	}
	switch u := v.Upload(); {
	case v.Writer != writer:
		return u, ledger.ErrFenced
	case v.Status != ledger.Uploading || !p.early:
		return u, ledger.ErrUploadClosed
	case v.Durable != offset:
		return u, ledger.ErrGap
	case len(data) > ledger.ChunkBytesMax || end > v.Bytes:
		return u, fmt.Errorf("%d bytes: %w", len(data), ledger.ErrIllegal)
	case len(data) == 0:
		return u, nil
	}
	if err := t.Room(); err != nil {
		return v.Upload(), err
	}
	if err := store(t, v, offset, data); err != nil {
		return ledger.Upload{}, err
	}
	return v.Upload(), nil
}

// store stores the next bytes of a file. After the last ones intake may begin.
func store(t Tables, v *Row, offset int64, data []byte) error {
	if err := t.Append(v.ID, offset, data); err != nil {
		return fmt.Errorf("insert chunk: %w", err)
	}
	end := offset + int64(len(data))
	n, err := t.Lengthen(v.ID, v.Writer, offset, end)
	if err := one(n, err, "count bytes"); err != nil {
		return err
	}
	if v.Durable = end; end < v.Bytes {
		return nil
	}
	return step(t, v, move{to: ledger.Preparing})
}

// ExpireUpload ends an upload that expired with bytes missing; it does not change other verifications.
func (e Engine) ExpireUpload(ctx context.Context, id uuid.UUID) error {
	return e.db.writeFree(ctx, func(t Tables) error {
		v, err := t.Read(id)
		if err != nil || v.Status != ledger.Uploading || !v.Upload().Expired {
			return err
		}
		return step(t, v, move{to: ledger.Failed, issue: &ledger.Issue{Code: ledger.UploadExpired, Message: "The file was " +
			"not uploaded in time. Create a new verification with a new idempotency key."}})
	})
}

// ExpireFunding ends a verification that has waited for credits for the given time; it does not change others.
func (e Engine) ExpireFunding(ctx context.Context, id uuid.UUID, after time.Duration) error {
	return e.db.writeFree(ctx, func(t Tables) error {
		v, err := t.Read(id)
		if err != nil || v.State() != ledger.WaitingCredits || v.WaitingSince > v.Now-after.Milliseconds() {
			return err
		}
		return step(t, v, move{to: ledger.Failed, more: v.Left(), issue: &ledger.Issue{Code: ledger.FundingExpired,
			Message: "No credits were added in time. Create a new verification with a new idempotency key."}})
	})
}

// Actions of the log of a workspace.
const (
	actionCreate = "verification create" // its detail is the file's name
	actionSingle = "check create"        // without the address
	actionCancel = "verification cancel"
)

// CreateSingle makes a verification of one address, or returns the one with the same workspace and identity. It
// takes the steps of an upload in one transaction, so nobody sees the verification without its bytes.
func (e Engine) CreateSingle(ctx context.Context, c ledger.CreateSingle) (ledger.Verification, error) {
	v, err := ledger.Verification{}, c.Check()
	if err == nil {
		size := int64(len(record(c.Address)))
		n := ledger.NewVerification{ID: c.ID, Workspace: c.Workspace, Identity: c.Identity, Bytes: size, BytesMax: size,
			Limits: c.Limits, MadeBy: ledger.Actor(ctx)}
		v, err = e.db.updateRow(ctx, Scope{Workspace: c.Workspace}, func(t Tables) (*Row, error) {
			v, _, err := create(t, n, c.Address)
			return v, err
		})
	}
	return v, ledger.Wrap(err, "create check in workspace %s", c.Workspace)
}

// record returns the file of one address: a quoted CSV record, so that nothing in the address ends it.
func record(address string) []byte {
	return []byte(`"` + strings.ReplaceAll(address, `"`, `""`) + "\"\n")
}

// insert makes a verification that is uploading, and logs it in the workspace's log.
func insert(t Tables, n ledger.NewVerification, single string) error {
	if err := ledger.Step(ledger.New, ledger.State(ledger.Uploading)); err != nil {
		return err
	}
	if err := t.Insert(n, single); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	l := ledger.WorkspaceLine{Actor: n.MadeBy, Action: actionCreate, Subject: n.ID.String(), Detail: ledger.Shortened(n.Filename)}
	if single != "" {
		l.Action = actionSingle
	}
	return t.LogIn(n.Workspace, l)
}
