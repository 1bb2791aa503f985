package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
)

// creditsMax bounds one grant. It catches typing errors, and sums stay far below an overflow.
const creditsMax = 1_000_000_000_000

// limitMax bounds a limit, because some readers of JSON have no exact numbers above 2^53.
const limitMax = 1 << 53

// WorkspacesShown is how many workspaces Service.Workspaces returns.
const WorkspacesShown = 50

// Workspace is a workspace in an answer.
type Workspace struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt *api.Time `json:"created_at,omitempty"`
	Weight    int       `json:"weight,omitempty"` // turns at a receiver while a workspace of weight 1 gets one
}

// WorkspaceList are all workspaces.
type WorkspaceList struct {
	Workspaces []Workspace `json:"workspaces"`
}

func shownWorkspace(w ledger.Workspace) Workspace {
	return Workspace{ID: w.ID.String(), Name: w.Name, CreatedAt: new(api.Time(w.Created)), Weight: w.Weight}
}

// Key is an API key in an answer, without its secret.
type Key struct {
	ID        string    `json:"id"`
	Label     string    `json:"label"`
	CreatedAt api.Time  `json:"created_at"`
	RevokedAt *api.Time `json:"revoked_at"` // null while it works
}

// Keys are the API keys of a workspace, the oldest first.
type Keys struct {
	Keys []Key `json:"keys"`
}

// NewKey is a new key with its secret, which is shown only now.
type NewKey struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

// RevokedKey says when a key was revoked.
type RevokedKey struct {
	ID        string    `json:"id"`
	RevokedAt *api.Time `json:"revoked_at"`
}

func shownKey(k ledger.Key) Key {
	return Key{ID: k.ID, Label: k.Label, CreatedAt: api.Time(k.Created), RevokedAt: api.TimeOrNull(k.Revoked)}
}

// WorkspaceLine is a workspace with its balance.
type WorkspaceLine struct {
	ledger.Workspace
	Balance ledger.Balance
}

// GrantCall grants credits. A repeated call with the same ID grants them once.
type GrantCall struct {
	ID        uuid.UUID `json:"id"`
	Workspace uuid.UUID `json:"-"`
	Credits   int64     `json:"credits"`
	Reason    string    `json:"reason"`
}

// Limit is one limit of a workspace.
type Limit struct {
	Limit   int64 `json:"limit"`
	Default bool  `json:"default"` // the limit is not set for this workspace
	Used    int64 `json:"used"`    // at this moment
}

// WorkspaceLimits are the limits of a workspace and their present use.
type WorkspaceLimits struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Weight int    `json:"weight"`
	Open   Limit  `json:"open"`   // unfinished verifications
	Stored Limit  `json:"stored"` // declared bytes of uploads that are not erased
	Unpaid Limit  `json:"unpaid"` // verifications of the last 24 hours that never held a credit
}

// LimitsCall changes the limits of a workspace that it names; 0 resets a limit to the default.
type LimitsCall struct {
	Open   *int64 `json:"open,omitempty"`
	Stored *int64 `json:"stored,omitempty"`
	Unpaid *int64 `json:"unpaid,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// CorrectionCall asks for a correction of an audit's findings about one subject.
type CorrectionCall struct {
	ID      string `json:"id"` // a repeated id corrects once
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
	Keep    bool   `json:"keep_account,omitempty"` // leave the workspace's account as it is
}

func (d workspaceOps) addRoutes(add addCall) {
	type named struct {
		Name string `json:"name"`
	}
	type labelled struct {
		Label string `json:"label"`
	}
	type weighed struct {
		Weight int `json:"weight"`
	}
	add("POST /v1/workspaces", handle(body[named], func(ctx context.Context, in named) (Workspace, error) {
		made, err := d.createWorkspace(ctx, in.Name)
		return Workspace{ID: made.ID.String(), Name: made.Name}, err
	}))
	add("GET /v1/workspaces", plainCall(func(ctx context.Context) (WorkspaceList, error) {
		found, err := d.Names(ctx)
		return WorkspaceList{mapped(found, shownWorkspace)}, err
	}))
	add("POST /v1/workspaces/{id}/weight", callAbout(workspaceID,
		func(ctx context.Context, id uuid.UUID, in weighed) (Workspace, error) {
			changed, err := d.SetWeight(ctx, id, in.Weight)
			return shownWorkspace(changed), err
		}))
	add("GET /v1/workspaces/{id}/limits", handle(workspaceID, d.ReadLimits))
	add("POST /v1/workspaces/{id}/limits", callAbout(workspaceID, d.SetLimits))
	add("POST /v1/workspaces/{id}/keys", callAbout(workspaceID,
		func(ctx context.Context, id uuid.UUID, in labelled) (NewKey, error) {
			return d.createKey(ctx, id, in.Label)
		}))
	add("GET /v1/workspaces/{id}/keys", handle(workspaceID, func(ctx context.Context, id uuid.UUID) (Keys, error) {
		found, err := d.ListKeys(ctx, id)
		return Keys{mapped(found, shownKey)}, err
	}))
	keyID := func(r *http.Request) (string, error) { return r.PathValue("id"), nil }
	add("POST /v1/keys/{id}/revoke", handle(keyID, func(ctx context.Context, id string) (RevokedKey, error) {
		k, err := d.RevokeKey(ctx, id)
		return RevokedKey{k.ID, shownKey(k).RevokedAt}, err
	}))
	add("POST /v1/workspaces/{id}/credits", callAbout(workspaceID,
		func(ctx context.Context, id uuid.UUID, in GrantCall) (ledger.Balance, error) {
			in.Workspace = id
			return d.Grant(ctx, in)
		}))
	add("GET /v1/workspaces/{id}/credits", handle(workspaceID,
		func(ctx context.Context, id uuid.UUID) (ledger.Balance, error) {
			return askLedger(ctx, d.common, "read balance", with(d.options.Book.Balance, id))
		}))
	add("GET /v1/audit", plainCall(func(ctx context.Context) (ledger.AuditReport, error) {
		ctx, cancel := d.longCall(ctx)
		defer cancel()
		return d.Audit(ctx)
	}))
	add("POST /v1/audit/corrections", handle(body[CorrectionCall], d.correct))
}

// Workspaces returns the workspaces whose name or id contains a text, by name, at most WorkspacesShown, and how many
// more there are.
func (d workspaceOps) Workspaces(ctx context.Context, find string) (out []WorkspaceLine, more int, err error) {
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

// Names returns all workspaces.
func (d workspaceOps) Names(ctx context.Context) ([]ledger.Workspace, error) {
	return askLedger(ctx, d.common, "list workspaces", d.options.Book.Workspaces)
}

func (d workspaceOps) createWorkspace(ctx context.Context, name string) (ledger.Workspace, error) {
	if err := named("name", name, 1); err != nil {
		return ledger.Workspace{}, err
	}
	made, err := askLedger(ctx, d.common, "create workspace", func(ctx context.Context) (ledger.Workspace, error) {
		return d.options.Book.CreateWorkspace(ctx, uuid.New(), name)
	})
	if err == nil {
		d.options.Log.Info("workspace created", "workspace", made.ID)
	}
	return made, err
}

// ReadWorkspace returns a workspace with its balance.
func (d workspaceOps) ReadWorkspace(ctx context.Context, id uuid.UUID) (WorkspaceLine, error) {
	return askLedger(ctx, d.common, "read a workspace", func(ctx context.Context) (out WorkspaceLine, err error) {
		u, err := d.options.Book.Usage(ctx, id)
		if err == nil {
			out.Workspace = u.Workspace
			out.Balance, err = d.options.Book.Balance(ctx, id)
		}
		return out, err
	})
}

// SetWeight sets how many turns a workspace gets at a receiver while a workspace of weight 1 gets one: 1 to
// ledger.WeightMax.
func (d workspaceOps) SetWeight(ctx context.Context, id uuid.UUID, weight int) (ledger.Workspace, error) {
	if weight < 1 || weight > ledger.WeightMax {
		return ledger.Workspace{}, invalid(fmt.Sprintf("weight must be a whole number from 1 to %d", ledger.WeightMax))
	}
	changed, err := askLedger(ctx, d.common, "set weight", func(ctx context.Context) (ledger.Workspace, error) {
		return d.options.Book.SetWeight(ctx, id, weight)
	})
	if err == nil {
		d.options.Log.Info("weight set", "workspace", id, "weight", weight)
		d.options.Tuned()
	}
	return changed, err
}

// ReadLimits returns the limits of a workspace and their present use.
func (d workspaceOps) ReadLimits(ctx context.Context, id uuid.UUID) (WorkspaceLimits, error) {
	u, err := askLedger(ctx, d.common, "read limits", with(d.options.Book.Usage, id))
	return d.limitsOf(u), err
}

// SetLimits changes limits of a workspace, from its next create on.
func (d workspaceOps) SetLimits(ctx context.Context, id uuid.UUID, in LimitsCall) (WorkspaceLimits, error) {
	if err := named("reason", in.Reason, 0); err != nil {
		return WorkspaceLimits{}, err
	}
	for _, n := range []*int64{in.Open, in.Stored, in.Unpaid} {
		if n != nil && (*n < 0 || *n > limitMax) {
			return WorkspaceLimits{}, invalid(
				"open, stored and unpaid must be whole numbers from 1 to 2^53, or 0 for the default")
		}
	}
	u, err := askLedger(ctx, d.common, "set limits", func(ctx context.Context) (ledger.Usage, error) {
		return d.options.Book.SetLimits(ctx, ledger.LimitsChange{Workspace: id, Open: in.Open, Stored: in.Stored,
			Unpaid: in.Unpaid, Reason: in.Reason})
	})
	if err == nil {
		d.options.Log.Info("limits set", "workspace", id, "limits", u.Own)
	}
	return d.limitsOf(u), err
}

// limitsOf fills in this node's defaults.
func (d workspaceOps) limitsOf(u ledger.Usage) WorkspaceLimits {
	is := u.Own.Or(d.options.Limits)
	return WorkspaceLimits{ID: u.ID.String(), Name: u.Name, Weight: u.Weight,
		Open: Limit{is.Open, u.Own.Open == 0, u.Used.Open}, Stored: Limit{is.Stored, u.Own.Stored == 0, u.Used.Stored},
		Unpaid: Limit{is.Unpaid, u.Own.Unpaid == 0, u.Used.Unpaid}}
}

// createKey makes an API key and returns its text, which is never shown again.
func (d workspaceOps) createKey(ctx context.Context, workspace uuid.UUID, label string) (NewKey, error) {
	if err := named("label", label, 0); err != nil {
		return NewKey{}, err
	}
	text, k := api.NewKey()
	made, err := askLedger(ctx, d.common, "create key",
		with(d.options.Book.CreateKey, ledger.Key{ID: k.ID, Workspace: workspace, Label: label, SecretSHA256: k.SHA256}))
	if err == nil {
		d.options.Log.Info("key created", "workspace", workspace, "key", made.ID)
	}
	return NewKey{made.ID, text}, err
}

// ListKeys returns the API keys of a workspace, revoked ones too, oldest first.
func (d workspaceOps) ListKeys(ctx context.Context, workspace uuid.UUID) ([]ledger.Key, error) {
	return askLedger(ctx, d.common, "list keys", with(d.options.Book.Keys, workspace))
}

// RevokeKey revokes an API key by its public part. A revoked key stays as it is.
func (d workspaceOps) RevokeKey(ctx context.Context, id string) (ledger.Key, error) {
	k, err := askLedger(ctx, d.common, "revoke key", with(d.options.Book.RevokeKey, id))
	if err == nil {
		d.options.Log.Info("key revoked", "workspace", k.Workspace, "key", k.ID)
	}
	return k, err
}

// Grant grants credits, and wakes verifications that wait for them.
func (d workspaceOps) Grant(ctx context.Context, in GrantCall) (ledger.Balance, error) {
	if err := named("reason", in.Reason, 0); err != nil {
		return ledger.Balance{}, err
	}
	switch {
	case in.ID == uuid.Nil:
		return ledger.Balance{}, invalid(
			"id must be a UUID of your own for this grant; sent again with the same id it is granted once")
	case in.Credits < 1 || in.Credits > creditsMax:
		return ledger.Balance{}, invalid(fmt.Sprintf("credits must be a whole number from 1 to %d", int64(creditsMax)))
	}
	b, err := askLedger(ctx, d.common, "grant credits", func(ctx context.Context) (ledger.Balance, error) {
		return d.options.Book.Grant(ctx, in.ID, in.Workspace, ledger.Credits(in.Credits), in.Reason)
	})
	if err == nil {
		d.options.Log.Info("credits granted", "workspace", in.Workspace, "credits", in.Credits)
		d.options.Wake()
	}
	return b, err
}

// ListOpen returns the unfinished verifications of a workspace, newest first, at most limit.
func (d workspaceOps) ListOpen(ctx context.Context, workspace uuid.UUID, limit int) ([]ledger.Verification, error) {
	return askLedger(ctx, d.common, "list open verifications",
		with(d.options.Book.History, ledger.HistoryQuery{Workspace: workspace, Open: true, Limit: limit}))
}

// ListGrants returns the grants of a workspace, newest first, at most limit, and whether there are older ones.
func (d workspaceOps) ListGrants(
	ctx context.Context, workspace uuid.UUID, limit int,
) (grants []ledger.Move, more bool, err error) {
	found, err := askLedger(ctx, d.common, "list grants", func(ctx context.Context) (ledger.WorkspaceStatement, error) {
		return d.options.Book.Statement(ctx, ledger.StatementQuery{Workspace: workspace, Only: ledger.MoveGrant,
			Limit: limit})
	})
	return found.Moves, found.More, err
}

// Audit checks the whole ledger, which takes longer for larger ledgers.
func (d workspaceOps) Audit(ctx context.Context) (ledger.AuditReport, error) {
	report, err := d.options.Book.Audit(ctx)
	if err != nil {
		return report, d.ofLedger("audit", err)
	}
	report.Violations, report.Corrections = full(report.Violations), full(report.Corrections)
	return report, nil
}

func (d workspaceOps) correct(ctx context.Context, in CorrectionCall) (c ledger.Correction, err error) {
	if err := errors.Join(named("subject", in.Subject, 1), named("reason", in.Reason, 1)); err != nil {
		return c, err
	}
	id, err := uuid.Parse(in.ID)
	if err != nil || id == uuid.Nil {
		return c, invalid("id must be a UUID that you made for this correction")
	}
	ctx, cancel := d.longCall(ctx)
	defer cancel()
	c, err = d.options.Book.Correct(ctx, ledger.CorrectionCall{ID: id, Subject: in.Subject, Reason: in.Reason,
		Keep: in.Keep})
	switch {
	case errors.Is(err, ledger.ErrNothingFound):
		return c, refusal(http.StatusNotFound, "nothing_to_correct",
			"nothing to correct: the audit has no open finding for this subject; see GET /v1/audit")
	case errors.Is(err, ledger.ErrUncorrectable):
		return c, refusal(http.StatusConflict, "uncorrectable", err.Error())
	case err != nil:
		return c, d.ofLedger("correct", err)
	}
	d.options.Log.Warn("the ledger was corrected", "subject", c.Subject, "correction", c.ID, "findings", len(c.Findings))
	d.options.Wake()
	return c, nil
}
