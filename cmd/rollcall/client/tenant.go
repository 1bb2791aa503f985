package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
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
func OpenTenant(ctx context.Context, operator *Admin, o TenantOptions) (Tenant, error) {
	var t Tenant
	if operator.Author == "" { // the program makes it, on nobody's command
		operator.Author = "rollcall " + o.Workspace
	}
	text, err := os.ReadFile(o.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("read the workspace of this folder: %w", err)
	}
	if json.Unmarshal(text, &t) != nil || t.Key == "" {
		if t, err = makeTenant(ctx, operator, o); err != nil {
			return t, err
		}
	}
	balance, err := operator.Balance(ctx, t.Workspace)
	if err != nil {
		return t, err
	}
	if short := o.Credits - balance.Available; short > 0 {
		_, err = operator.Grant(ctx, t.Workspace, short, "for "+o.Workspace)
	}
	return t, err
}

func makeTenant(ctx context.Context, operator *Admin, o TenantOptions) (Tenant, error) {
	w, err := operator.CreateWorkspace(ctx, o.Workspace)
	if err != nil {
		return Tenant{}, err
	}
	k, err := operator.CreateKey(ctx, w.ID, o.Workspace)
	if err != nil {
		return Tenant{}, err
	}
	t := Tenant{Workspace: w.ID, Key: k.Key}
	return t, term.WriteJSON(o.File, t)
}

// Workspaces lists the workspaces.
func (c *Admin) Workspaces(ctx context.Context) ([]Workspace, error) {
	var list struct {
		Workspaces []Workspace `json:"workspaces"`
	}
	err := c.Ask(ctx, "GET", "/v1/workspaces", nil, &list)
	return list.Workspaces, err
}

// Named is something that somebody may mean by its id, the beginning of its id, or its name.
type Named struct{ ID, Name string }

// Pick gives the id of what somebody has typed: the whole id, the name, also in another case, or the beginning of the
// id. The error says what kind of thing it is and which command lists them.
func Pick(kind, list, typed string, all []Named) (string, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id.String(), nil
	}
	prefix := strings.ToLower(strings.TrimSuffix(typed, "…"))
	for _, fits := range []func(Named) bool{
		func(n Named) bool { return n.Name == typed },
		func(n Named) bool { return strings.EqualFold(n.Name, typed) },
		func(n Named) bool { return len(prefix) >= prefixLeast && strings.HasPrefix(n.ID, prefix) },
	} {
		var alike []string
		for _, n := range all {
			if typed != "" && fits(n) {
				alike = append(alike, n.ID)
			}
		}
		switch {
		case len(alike) == 1:
			return alike[0], nil
		case len(alike) > 1:
			return "", fmt.Errorf("%d %ss are called or begin with %q: give the id of one of them, %s", len(alike), kind,
				typed, term.Some(alike))
		}
	}
	return "", fmt.Errorf("there is no %s %q: see `%s`", kind, typed, list)
}

// WorkspaceID gives the id of a workspace that somebody has typed, as Pick does.
func (c *Admin) WorkspaceID(ctx context.Context, typed string) (string, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id.String(), nil
	}
	all, err := c.Workspaces(ctx)
	if err != nil {
		return "", err
	}
	list := make([]Named, len(all))
	for i, w := range all {
		list[i] = Named{w.ID, w.Name}
	}
	return Pick("workspace", "rollcall workspace list", typed, list)
}

// Keys lists the API keys of a workspace; of all workspaces if it is "".
func (c *Admin) Keys(ctx context.Context, workspace string) (keys []Key, err error) {
	of := []Workspace{{ID: workspace}}
	if workspace == "" {
		if of, err = c.Workspaces(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range of {
		var list struct {
			Keys []Key `json:"keys"`
		}
		if err = c.Ask(ctx, "GET", "/v1/workspaces/"+w.ID+"/keys", nil, &list); err != nil {
			return nil, err
		}
		keys = append(keys, list.Keys...)
	}
	return keys, nil
}

// VerificationsLike lists the verifications, of all workspaces, whose ids begin with a text.
func (c *Admin) VerificationsLike(ctx context.Context, prefix string) ([]uuid.UUID, error) {
	var found admin.Alike
	path := "/v1/verifications?prefix=" + url.QueryEscape(strings.TrimSuffix(prefix, "…"))
	err := c.Ask(ctx, "GET", path, nil, &found)
	return found.Verifications, err
}
