package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
)

// Tenant is a workspace that this program made, and a key to it. Both are stored in a file that only this user can
// read.
type Tenant struct {
	Workspace string `json:"workspace"`
	Key       string `json:"key"`
}

// TenantOptions describe the wanted tenant.
type TenantOptions struct {
	File      string // where it is kept
	Workspace string // its name
	Credits   int64  // credits that must be available
}

// OpenTenant returns the tenant stored in the file of o, or makes one. It grants the credits that the balance lacks.
func OpenTenant(ctx context.Context, operator *Admin, o TenantOptions) (Tenant, error) {
	var t Tenant
	if operator.Author == "" { // no person asked for this workspace
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
	if short := o.Credits - int64(balance.Available); short > 0 {
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
func (c *Admin) Workspaces(ctx context.Context) ([]admin.Workspace, error) {
	var list admin.WorkspaceList
	err := c.Ask(ctx, "GET", "/v1/workspaces", nil, &list)
	return list.Workspaces, err
}

// Named is something that people name by its id, the beginning of its id, or its name.
type Named struct{ ID, Name string }

// Pick returns the id for a typed text: the whole id, the name in any case, or the beginning of the id. Errors name the
// kind of thing and the command that lists them.
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
			return "", fmt.Errorf("%d %ss have this name or begin with %q: give the id of one of them, %s", len(alike), kind,
				typed, term.Some(alike))
		}
	}
	return "", fmt.Errorf("there is no %s %q: see `%s`", kind, typed, list)
}

// WorkspaceID returns the id of a workspace for a typed text, as Pick does.
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

// Keys lists the API keys of a workspace, or of all workspaces if it is "".
func (c *Admin) Keys(ctx context.Context, workspace string) (keys []admin.Key, err error) {
	of := []admin.Workspace{{ID: workspace}}
	if workspace == "" {
		if of, err = c.Workspaces(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range of {
		var list admin.Keys
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

const (
	// prefixLeast is how many characters of an id must be typed. Among a hundred UUIDs, two share the first four in
	// about one case of fourteen; then both are named.
	prefixLeast = 4

	// alikeShown bounds how many verifications with the same prefix are named.
	alikeShown = 10

	// issuesShown bounds for how many verifications the list shows what they wait for, because each costs a request.
	issuesShown = 5
)

// API is a client of the API, with additions for the command line.
type API struct{ *api.Client }

// NewAPI makes a client of the API at base. The client calls notice when it has to wait.
func NewAPI(base, key string, notice func(string)) *API {
	c := api.NewClient(base, key)
	c.Notice = notice
	return &API{c}
}

// Advised returns the text of an error, with advice for the command line.
func Advised(err error) string {
	switch {
	case errors.Is(err, api.ErrNoAnswer):
		return err.Error() + ": start a node with `rollcall serve`, or check --api"
	case errors.Is(err, api.ErrStranger):
		return err.Error() + ": check --api"
	case errors.Is(err, api.ErrUnfinished):
		return err.Error() + ": run the command again to continue"
	}
	return err.Error()
}

// FileName returns the name of a file for people.
func FileName(name *string) string {
	if name == nil || *name == "" {
		return "-"
	}
	return term.Printable(*name)
}

// VerificationID returns the id of a verification for a typed id or the beginning of one. A table's shortened id also
// works.
func (c *API) VerificationID(ctx context.Context, typed string) (string, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id.String(), nil
	}
	prefix := strings.ToLower(strings.TrimSuffix(typed, "…"))
	if len(prefix) < prefixLeast || len(prefix) > 36 || strings.Trim(prefix, "0123456789abcdef-") != "" {
		return "", term.UsageError(fmt.Sprintf("%q is not the id of a verification: give it whole, or at least its first %d "+
			"characters; "+
			"`rollcall list` has them", typed, prefixLeast))
	}
	var alike []api.Summary
	for page, err := range c.Pages(ctx, api.HistoryPageMax) {
		if err != nil {
			return "", err
		}
		for _, v := range page.Verifications {
			if strings.HasPrefix(v.ID, prefix) {
				alike = append(alike, v)
			}
		}
	}
	switch len(alike) {
	case 0:
		return "", fmt.Errorf("no verification of this workspace begins with %s: see `rollcall list`", prefix)
	case 1:
		return alike[0].ID, nil
	}
	text := fmt.Sprintf("%d verifications begin with %s, give more of the id:", len(alike), prefix)
	for i, v := range alike {
		if i == alikeShown {
			text += "\n  …"
			break
		}
		text += fmt.Sprintf("\n  %s  %s  %s", v.ID, term.Clock(time.Time(v.CreatedAt), time.Time{}), FileName(v.Filename))
	}
	return "", errors.New(text)
}

// Waiting reads the details of the newest waiting verifications of a list. It skips those for which the service does
// not answer.
func (c *API) Waiting(ctx context.Context, list []api.Summary) (found []api.Detail) {
	for _, v := range list {
		if v.Status != string(ledger.Waiting) {
			continue
		}
		if len(found) == issuesShown {
			break
		}
		d, _, err := c.Detail(ctx, v.ID)
		if err != nil {
			break
		}
		found = append(found, d)
	}
	return found
}

// Tally counts outcomes by their words.
type Tally map[string]int64

// Sum is the number of outcomes counted.
func (t Tally) Sum() (n int64) {
	for _, count := range t {
		n += count
	}
	return n
}

// countFresh bounds the outcomes of a file that is counted each time, which takes milliseconds. A larger file is
// counted again when a quarter more is settled, so all its counts together read it about five times.
const countFresh = 5_000

// Behind reports whether counting again is worthwhile when this many are settled.
func (t Tally) Behind(settled int64) bool {
	counted := t.Sum()
	return settled != counted && (settled <= countFresh || settled > counted+counted/4)
}

// Charged is the number of credits that the outcomes cost.
func (t Tally) Charged() int64 { return t.Sum() - t[smtp.Unknown.String()] }

// Tally counts the present outcomes.
func (c *API) Tally(ctx context.Context, id string) (Tally, error) {
	counted := Tally{}
	return counted, c.EachResult(ctx, id, io.Discard, func(row []string) error {
		counted[row[1]]++
		return nil
	})
}
