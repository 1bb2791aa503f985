package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/actors/view"
	"rollcall/ledger"
)

// WorkspacesShown is how many workspaces Desk.Workspaces gives with their balances.
const WorkspacesShown = 50

// WorkspaceLine is a workspace with what it has.
type WorkspaceLine struct {
	ledger.Workspace
	Balance ledger.Balance
}

// Workspaces gives those whose name or id holds a text, by name, at most WorkspacesShown, and how many more there are.
func (d *Desk) Workspaces(ctx context.Context, find string) (out []WorkspaceLine, more int, err error) {
	found, err := d.Names(ctx)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	find = strings.ToLower(strings.TrimSpace(find))
	slices.SortStableFunc(found, func(a, b ledger.Workspace) int { return cmp.Compare(a.Name, b.Name) })
	for _, w := range found {
		if !strings.Contains(strings.ToLower(w.Name), find) && !strings.HasPrefix(w.ID.String(), find) {
			continue
		}
		if len(out) == WorkspacesShown {
			more++
			continue
		}
		b, err := d.options.Book.Balance(ctx, w.ID)
		if err != nil {
			return nil, 0, d.ofLedger("read a balance", err)
		}
		out = append(out, WorkspaceLine{w, b})
	}
	return out, more, nil
}

// Names gives all workspaces.
func (d *Desk) Names(ctx context.Context) ([]ledger.Workspace, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.Workspaces(ctx)
	if err != nil {
		return nil, d.ofLedger("list workspaces", err)
	}
	return found, nil
}

// GrantCall grants credits. The same ID again is the same grant.
type GrantCall struct {
	ID        uuid.UUID
	Workspace uuid.UUID
	Credits   int64
	Reason    string
}

// Grant grants credits, and lets what waits for them go on.
func (d *Desk) Grant(ctx context.Context, in GrantCall) (ledger.Balance, error) {
	problem := ""
	switch {
	case in.ID == uuid.Nil:
		problem = "id must be a UUID of your own for this grant; sent again with the same id it is granted once"
	case in.Credits < 1 || in.Credits > creditsMax:
		problem = fmt.Sprintf("credits must be a whole number from 1 to %d", int64(creditsMax))
	}
	if err := named("reason", in.Reason, 0); err != nil {
		return ledger.Balance{}, err
	}
	if problem != "" {
		return ledger.Balance{}, refusal(http.StatusBadRequest, "invalid_request", problem)
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	b, err := d.options.Book.Grant(ctx, in.ID, in.Workspace, ledger.Credits(in.Credits), in.Reason)
	if err != nil {
		return b, d.ofLedger("grant credits", err)
	}
	d.options.Log.Info("credits granted", "workspace", in.Workspace, "credits", in.Credits)
	if d.options.Wake != nil {
		d.options.Wake()
	}
	return b, nil
}

// Open gives verifications of all workspaces that are not done, the oldest first, at most limit.
func (d *Desk) Open(ctx context.Context, limit int) ([]ledger.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.OpenVerifications(ctx, limit)
	if err != nil {
		return nil, d.ofLedger("list open verifications", err)
	}
	return found, nil
}

// Log gives one page of the operator log, newest first.
func (d *Desk) Log(ctx context.Context, q ledger.LogQuery) ([]ledger.LogLine, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	found, err := d.options.Book.OperatorLog(ctx, q)
	if err != nil {
		return nil, d.ofLedger("list the operator log", err)
	}
	return found, nil
}

// Sources gives our addresses on all nodes, and the nodes that do not answer.
func (d *Desk) Sources(ctx context.Context) ([]view.Source, []view.Silent, error) {
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return nil, nil, err
	}
	found, silent, err := d.options.Survey.Sources(ctx)
	if err != nil {
		return nil, nil, d.ofSurvey("list sources", err)
	}
	return full(found), full(silent), nil
}

// Identity is what this node found of its identity; false: it checks none.
func (d *Desk) Identity() (Identity, bool) {
	if d.options.Identity == nil {
		return Identity{}, false
	}
	return d.options.Identity(), true
}

// Health is what every node found of its identity, this node first, then those that take no probing work; and the nodes that
// do not answer. When nobody can be asked it gives this node alone beside the error.
func (d *Desk) Health(ctx context.Context) ([]view.Health, []view.Silent, error) {
	var own []view.Health
	if i, known := d.Identity(); known {
		h := HealthOf(i)
		h.This = true
		own = append(own, h)
	}
	ctx, cancel, err := d.surveyed(ctx)
	defer cancel()
	if err != nil {
		return own, nil, err
	}
	found, silent, err := d.options.Survey.Health(ctx)
	if err != nil {
		return own, nil, d.ofSurvey("ask for the health of all nodes", err)
	}
	return found, full(silent), nil
}

// Audit checks the whole ledger. It takes as long as the ledger is large.
func (d *Desk) Audit(ctx context.Context) (ledger.AuditReport, error) {
	report, err := d.options.Book.Audit(ctx)
	if err != nil {
		return report, d.ofLedger("audit", err)
	}
	report.Violations, report.Corrections = full(report.Violations), full(report.Corrections)
	return report, nil
}

// Long is the context of what goes on behind a page: it ends when the listener drains.
func (d *Desk) Long() context.Context { return d.long }
