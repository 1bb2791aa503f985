package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// tenant is a workspace of our own with a key, kept in a file for this user only.
type tenant struct {
	Workspace string `json:"workspace"`
	Key       string `json:"key"`
}

// tenantOptions say which tenant is wanted.
type tenantOptions struct {
	file      string // where it is kept
	workspace string // its name
	credits   int64  // how many must be available
}

// openTenant gives the tenant that o.file remembers, or makes one, and grants
// what its balance is short of.
func openTenant(ctx context.Context, admin *adminClient, o tenantOptions) (tenant, error) {
	var t tenant
	if admin.author == "" { // the program makes it, on nobody's command
		admin.author = "rollcall " + o.workspace
	}
	text, err := os.ReadFile(o.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("read the workspace of this folder: %w", err)
	}
	if json.Unmarshal(text, &t) != nil || t.Key == "" {
		if t, err = makeTenant(ctx, admin, o); err != nil {
			return t, err
		}
	}
	balance, err := admin.balance(ctx, t.Workspace)
	if err != nil {
		return t, err
	}
	if short := o.credits - balance.Available; short > 0 {
		_, err = admin.grant(ctx, t.Workspace, short, "for "+o.workspace)
	}
	return t, err
}

func makeTenant(ctx context.Context, admin *adminClient, o tenantOptions) (tenant, error) {
	w, err := admin.createWorkspace(ctx, o.workspace)
	if err != nil {
		return tenant{}, err
	}
	k, err := admin.createKey(ctx, w.ID, o.workspace)
	if err != nil {
		return tenant{}, err
	}
	t := tenant{Workspace: w.ID, Key: k.Key}
	return t, writeFileSafely(o.file, t)
}
