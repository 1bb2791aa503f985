package transitions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rollcall/ledger"
)

// Actions of the log of a workspace.
const (
	actionCreate = "verification create" // its detail is the name of the file
	actionSingle = "check create"        // without the address
	actionCancel = "verification cancel"
)

// CreateSingle makes a verification of one address, or answers the one of the same workspace and identity. It takes the
// steps of an upload, in one transaction: nobody ever sees it without its bytes.
func (e Engine) CreateSingle(ctx context.Context, c ledger.CreateSingle) (ledger.Verification, error) {
	var v *Row
	err := c.Check()
	if err == nil {
		n := ledger.NewVerification{ID: c.ID, Workspace: c.Workspace, Identity: c.Identity, Bytes: int64(len(record(c.Address))),
			Limits: c.Limits, MadeBy: ledger.Actor(ctx)}
		err = e.db.Update(ctx, Scope{Workspace: c.Workspace}, func(t Tables) (err error) {
			v, err = createSingle(t, n, c.Address)
			return err
		})
	}
	if err != nil {
		return ledger.Verification{}, fmt.Errorf("create check in workspace %s: %w", c.Workspace, err)
	}
	return v.Verification, nil
}

func createSingle(t Tables, n ledger.NewVerification, address string) (*Row, error) {
	if _, err := t.Account(n.Workspace); err != nil {
		return nil, err
	}
	v, err := t.ReadIdentity(n.Workspace, n.Identity)
	switch {
	case err == nil && !sameSingle(v, n, address):
		return nil, ledger.ErrIdentityReused
	case err == nil:
		return v, nil
	case !errors.Is(err, ledger.ErrNoSuchVerification):
		return nil, err
	}
	if err := admit(t, n); err != nil {
		return nil, err
	}
	if err := ledger.CheckOperatorText("actor", n.MadeBy); err != nil {
		return nil, err
	}
	if err := insert(t, n, address); err != nil {
		return nil, err
	}
	if v, err = t.Read(n.ID); err != nil {
		return nil, err
	}
	return v, store(t, v, 0, record(address))
}

// sameSingle reports whether a verification is the check of an address. Of one past its retention the address is
// not known any more: then the length decides, as for a file.
func sameSingle(v *Row, n ledger.NewVerification, address string) bool {
	return v.Kind == ledger.Single && v.Bytes == n.Bytes && (v.SingleEmail == address || v.ResultsDeleted)
}

// record is the file of one address: a record of CSV in quotes, so that nothing in the address ends it.
func record(address string) []byte {
	return []byte(`"` + strings.ReplaceAll(address, `"`, `""`) + "\"\n")
}

// insert makes a verification that is uploading, and tells the log of its workspace.
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
