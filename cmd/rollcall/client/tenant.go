package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"rollcall/cmd/rollcall/term"
)

// Tenant is a workspace of our own with a key, kept in a file for this user only.
type Tenant struct {
	Workspace string `json:"workspace"`
	Key       string `json:"key"`
}

// TenantOptions say which tenant is wanted.
type TenantOptions struct {
	File      string // where it is kept
	Workspace string // its name
	Credits   int64  // how many must be available
}

// OpenTenant gives the tenant that o.file remembers, or makes one, and grants
// what its balance is short of.
func OpenTenant(ctx context.Context, admin *Admin, o TenantOptions) (Tenant, error) {
	var t Tenant
	if admin.Author == "" { // the program makes it, on nobody's command
		admin.Author = "rollcall " + o.Workspace
	}
	text, err := os.ReadFile(o.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("read the workspace of this folder: %w", err)
	}
	if json.Unmarshal(text, &t) != nil || t.Key == "" {
		if t, err = makeTenant(ctx, admin, o); err != nil {
			return t, err
		}
	}
	balance, err := admin.Balance(ctx, t.Workspace)
	if err != nil {
		return t, err
	}
	if short := o.Credits - balance.Available; short > 0 {
		_, err = admin.Grant(ctx, t.Workspace, short, "for "+o.Workspace)
	}
	return t, err
}

func makeTenant(ctx context.Context, admin *Admin, o TenantOptions) (Tenant, error) {
	w, err := admin.CreateWorkspace(ctx, o.Workspace)
	if err != nil {
		return Tenant{}, err
	}
	k, err := admin.CreateKey(ctx, w.ID, o.Workspace)
	if err != nil {
		return Tenant{}, err
	}
	t := Tenant{Workspace: w.ID, Key: k.Key}
	return t, term.WriteJSON(o.File, t)
}
