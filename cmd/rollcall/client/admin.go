package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
)

// adminBytesMax bounds an answer of the admin listener. Guess: a hundred thousand workspaces with their names.
const adminBytesMax = 64 << 20

// ErrNoNode: nothing answers at the admin address.
var ErrNoNode = errors.New("no node answers")

// ReadToken reads the token from a node's data folder. It returns "" if there is none; then the node answers 401.
func ReadToken(dataDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, admin.TokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the admin token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Admin is a client of the admin listener of one node.
type Admin struct {
	Base   string // for people: as the operator wrote it
	url    string // of requests, without the path
	Token  string
	Author string // author of the changes; "": not given
	http   *http.Client
}

// NewAdmin makes a client; the caller's context bounds each call.
func NewAdmin(base, token string) *Admin {
	base = strings.TrimSuffix(base, "/")
	c := &Admin{Base: base, url: base, Token: token, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if path, unix := strings.CutPrefix(base, config.UnixPrefix); unix {
		c.url = "http://localhost"
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}, DisableKeepAlives: true}
	}
	return c
}

// Call sends in as JSON (nothing if nil) and reads the answer into out. It returns the errors of Do.
func (c *Admin) Call(ctx context.Context, method, path string, in, out any) error {
	answer, err := c.Do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, adminBytesMax))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Base, err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s does not answer like a Rollcall admin listener: check --admin", c.Base)
	}
	return nil
}

// Do sends in as JSON (nothing if nil) and returns a successful answer; the caller closes its body. The error is
// ErrNoNode if no connection can be made, and otherwise the node's message.
func (c *Admin) Do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	if c.Author != "" {
		request.Header.Set(admin.AuthorHeader, c.Author)
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("this user may not connect to %s: be its owner or in its group", c.Base)
		}
		if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
			return nil, fmt.Errorf("the certificate of %s is not trusted: %w; give the file of its issuer in SSL_CERT_FILE",
				c.Base, untrusted)
		}
		return nil, fmt.Errorf("%w at %s: start one with `rollcall serve`, or give --admin", ErrNoNode, c.Base)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, adminBytesMax))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.Base, err)
	}
	return nil, c.refusal(answer.StatusCode, text)
}

// refusal returns the error of an unsuccessful answer.
func (c *Admin) refusal(status int, body []byte) error {
	if status == http.StatusUnauthorized {
		return fmt.Errorf("the node at %s refuses the token: give --token, ROLLCALL_ADMIN_TOKEN, "+
			"or ROLLCALL_DATA_DIR with the node's data folder", c.Base)
	}
	var refused struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if json.Unmarshal(body, &refused) == nil && refused.Error.Message != "" {
		return errors.New(InCommands(refused.Error.Message))
	}
	return fmt.Errorf("the node at %s answers %d: check --admin", c.Base, status)
}

// commandsOf maps calls of the API, as a node's answers name them, to the commands that make these calls.
var commandsOf = strings.NewReplacer("GET /v1/receivers", "`rollcall receivers`",
	"GET /v1/throttle/explain", "`rollcall throttle explain`", "GET /v1/throttle", "`rollcall throttle list`",
	"GET /v1/cluster/members", "`rollcall cluster members`", "GET /v1/cluster/keys", "`rollcall cluster keys list`",
	"GET /v1/identity", "`rollcall doctor`", "GET /v1/workspaces/{id}/keys", "`rollcall key list`",
	"GET /v1/workspaces", "`rollcall workspace list`", "GET /v1/users", "`rollcall user list`",
	"GET /v1/audit", "`rollcall audit`", "GET /v1/verifications", "list of verifications")

// InCommands rewrites a message about API calls for somebody at a terminal.
func InCommands(message string) string { return commandsOf.Replace(message) }

// AdminTimeout bounds an operator's command other than an audit or a backup.
const AdminTimeout = 30 * time.Second

// Members asks a node for the members of the cluster.
func (c *Admin) Members(ctx context.Context) (m admin.Membership, err error) {
	return m, c.Ask(ctx, "GET", "/v1/cluster/members", nil, &m)
}

// Grant gives credits. Because the grant has an id, a repeated request grants them only once.
func (c *Admin) Grant(ctx context.Context, workspace string, n int64, reason string) (b ledger.Balance, err error) {
	body := map[string]any{"id": uuid.NewString(), "credits": n, "reason": reason}
	return b, c.Ask(ctx, "POST", "/v1/workspaces/"+workspace+"/credits", body, &b)
}

// Balance reads the account of a workspace.
func (c *Admin) Balance(ctx context.Context, workspace string) (b ledger.Balance, err error) {
	return b, c.Ask(ctx, "GET", "/v1/workspaces/"+workspace+"/credits", nil, &b)
}

// CreateKey makes an API key of a workspace; label is for people.
func (c *Admin) CreateKey(ctx context.Context, workspace, label string) (k admin.NewKey, err error) {
	return k, c.Ask(ctx, "POST", "/v1/workspaces/"+workspace+"/keys", map[string]string{"label": label}, &k)
}

// CreateWorkspace makes a workspace; name is for people.
func (c *Admin) CreateWorkspace(ctx context.Context, name string) (w admin.Workspace, err error) {
	return w, c.Ask(ctx, "POST", "/v1/workspaces", map[string]string{"name": name}, &w)
}

// Ask is Call, bounded by AdminTimeout.
func (c *Admin) Ask(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, AdminTimeout)
	defer cancel()
	return c.Call(ctx, method, path, in, out)
}

// Receiver asks a node for everything about one receiver.
func (c *Admin) Receiver(ctx context.Context, key string) (d admin.Details, err error) {
	return d, c.Ask(ctx, "GET", "/v1/receivers/detail?key="+url.QueryEscape(key), nil, &d)
}

// Rules asks a node for the rules of all layers.
func (c *Admin) Rules(ctx context.Context) (r admin.ThrottleRules, err error) {
	return r, c.Ask(ctx, "GET", "/v1/throttle", nil, &r)
}

// ExplainRules asks a node which values its rules give for a name. It needs no DNS.
func (c *Admin) ExplainRules(ctx context.Context, name string) (x inspect.Explanation, err error) {
	return x, c.Ask(ctx, "GET", "/v1/throttle/explain?by=name&name="+url.QueryEscape(name), nil, &x)
}

// Explain asks a node which values are in effect for a name.
func (c *Admin) Explain(ctx context.Context, name string) (x inspect.Explanation, err error) {
	return x, c.Ask(ctx, "GET", "/v1/throttle/explain?name="+url.QueryEscape(name), nil, &x)
}

// Receivers asks a node for the live table of the cluster.
func (c *Admin) Receivers(ctx context.Context) (r inspect.Receivers, err error) {
	return r, c.Ask(ctx, "GET", "/v1/receivers", nil, &r)
}

// Sources asks a node for the sources of all nodes.
func (c *Admin) Sources(ctx context.Context) (s admin.Sources, err error) {
	return s, c.Ask(ctx, "GET", "/v1/sources", nil, &s)
}

// Clear asks a node to end overrides.
func (c *Admin) Clear(ctx context.Context, call admin.ClearCall) (ended admin.Cleared, err error) {
	return ended, c.Ask(ctx, "POST", "/v1/throttle/clear", call, &ended)
}

// Users reads all pages of a list of users.
func (c *Admin) Users(ctx context.Context, path string) (all []admin.UserLine, err error) {
	all = []admin.UserLine{}
	for after := ""; ; {
		var page admin.UserPage
		to := path
		if after != "" {
			to += "?after=" + url.QueryEscape(after)
		}
		if err := c.Ask(ctx, "GET", to, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Users...)
		if page.Next == "" {
			return all, nil
		}
		after = page.Next
	}
}
