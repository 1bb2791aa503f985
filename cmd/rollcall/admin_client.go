package main

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
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/http/admin"
)

// adminDefault is where a node's admin listener is when nothing else is said.
const adminDefault = "http://127.0.0.1:8081"

// adminBytesMax bounds an answer of the admin listener. Guess: a hundred
// thousand workspaces with their names.
const adminBytesMax = 64 << 20

// errNoNode says that nothing answers at the admin address.
var errNoNode = errors.New("no node answers")

// installedConfig is the configuration of the node that is installed on a machine, as deploy/ has it.
const installedConfig = "/etc/rollcall/rollcall.toml"

// adminFlags are the flags of every command that speaks to a node.
type adminFlags struct {
	environ    environment
	url, token string
	config     string // file of the node's configuration
	installed  string // the one to use when nothing else says where the node is; "": none
	by         string // who makes changes
}

// addAdminFlags adds --admin, --config and --token to a command and its subcommands.
func addAdminFlags(c *cobra.Command, e environment) *adminFlags {
	f := &adminFlags{environ: e, installed: installedConfig}
	c.PersistentFlags().StringVar(&f.url, "admin", "", "the node's admin listener, a URL or unix:PATH; also "+
		"ROLLCALL_ADMIN (default: as the configuration has it, else "+adminDefault+")")
	c.PersistentFlags().StringVar(&f.config, "config", "", "the node's configuration file (default: "+installedConfig+
		" if it is there and the environment names no node)")
	c.PersistentFlags().StringVar(&f.token, "token", "", "its token; also ROLLCALL_ADMIN_TOKEN (default: "+
		"DATA_DIR/admin.token)")
	c.PersistentFlags().StringVar(&f.by, "author", "", "who you are, for the operator log; also ROLLCALL_AUTHOR "+
		"(default: your user name and host)")
	return f
}

// author is who makes the changes of a command, for the operator log.
func (f *adminFlags) author() (string, error) {
	author := firstSet(f.by, f.environ.value("ROLLCALL_AUTHOR"))
	if author == "" {
		author = f.environ.value("USER")
		if who, err := user.Current(); author == "" && err == nil {
			author = who.Username
		}
		if host, err := os.Hostname(); err == nil && author != "" {
			author += "@" + host
		}
		if !admin.AuthorFits(author) { // nobody has chosen it
			author = ""
		}
	}
	if !admin.AuthorFits(author) {
		return "", usageError{fmt.Sprintf("--author must have at most %d bytes, all printable", admin.AuthorMax)}
	}
	return author, nil
}

// namedBy says by what the operator has named the node to ask; "" when by nothing.
func (f *adminFlags) namedBy() string {
	switch {
	case f.url != "":
		return "--admin"
	case f.environ.value("ROLLCALL_ADMIN") != "":
		return "ROLLCALL_ADMIN"
	}
	return ""
}

// load reads the configuration of the node: of the file that is named, else of the environment, else of the one that
// is installed here.
func (f *adminFlags) load() (config.Config, error) {
	file := f.config
	if file == "" && !slices.ContainsFunc(whereabouts, func(name string) bool { return f.environ.value(name) != "" }) {
		_, err := os.Stat(f.installed)
		if err == nil {
			file = f.installed
		}
		if errors.Is(err, fs.ErrPermission) {
			return config.Config{}, fmt.Errorf("this user may not read %s: be root or in its group, or give --admin and --token",
				f.installed)
		}
	}
	c, err := config.Load(file, f.environ)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: be root or in its group, or give --admin and --token", err)
	}
	return c, err
}

// whereabouts are the settings of the environment that say where a node is, or its ledger.
var whereabouts = []string{"ROLLCALL_ADMIN_LISTEN", "ROLLCALL_DATA_DIR", "ROLLCALL_LEDGER_URL"}

// client makes a client from flags, environment and configuration.
func (f *adminFlags) client() (*adminClient, error) {
	if f.url != "" && f.config != "" {
		return nil, usageError{"--admin and --config name a node each: give only one of them"}
	}
	base, token := f.url, firstSet(f.token, f.environ.value("ROLLCALL_ADMIN_TOKEN"))
	if f.config == "" {
		base = firstSet(base, f.environ.value("ROLLCALL_ADMIN"))
	}
	if base == "" || token == "" {
		c, err := f.load()
		if err != nil {
			return nil, err
		}
		base = firstSet(base, adminURL(c.Admin))
		if token == "" {
			if token, err = readToken(c.DataDir); err != nil {
				return nil, err
			}
		}
	}
	if err := checkAdmin(base); err != nil {
		return nil, err
	}
	client := newAdminClient(base, token)
	var err error
	client.author, err = f.author()
	return client, err
}

// checkAdmin refuses what is neither a base URL nor a unix socket.
func checkAdmin(base string) error {
	if path, unix := strings.CutPrefix(base, config.UnixPrefix); unix && path != "" {
		return nil
	}
	return checkBase("--admin", base, adminDefault)
}

// readToken reads the token that a node has left in its data folder; "" when
// there is none, which a node then answers with 401.
func readToken(dataDir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, admin.TokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the admin token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// adminClient speaks to the admin listener of one node.
type adminClient struct {
	base   string // for people: as the operator has it
	url    string // that requests begin with
	token  string
	author string // of what is changed; "": it is not said
	http   *http.Client
}

// newAdminClient makes a client; the caller's context bounds each call.
func newAdminClient(base, token string) *adminClient {
	base = strings.TrimSuffix(base, "/")
	c := &adminClient{base: base, url: base, token: token, http: &http.Client{
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

// call sends in (nothing if nil) as JSON and reads the answer into out. Errors as of do.
func (c *adminClient) call(ctx context.Context, method, path string, in, out any) error {
	answer, err := c.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, adminBytesMax))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return c.stranger()
	}
	return nil
}

// stranger is the error about an answer that no node of ours gives.
func (c *adminClient) stranger() error {
	return fmt.Errorf("%s is no Rollcall admin listener: its answer is not one of ours: check --admin", c.base)
}

// do sends in (nothing if nil) as JSON and gives the answer of a success, whose
// body the caller closes. The error is errNoNode when no connection can be made,
// and otherwise says what the node says.
func (c *adminClient) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
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
	request.Header.Set("Authorization", "Bearer "+c.token)
	if c.author != "" {
		request.Header.Set(admin.AuthorHeader, c.author)
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
			return nil, fmt.Errorf("this user may not connect to %s: be its owner or in its group", c.base)
		}
		if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
			return nil, fmt.Errorf("the certificate of %s is not trusted: %w; give the file of its issuer in SSL_CERT_FILE",
				c.base, untrusted)
		}
		return nil, fmt.Errorf("%w at %s: start one with `rollcall serve`, or give --admin", errNoNode, c.base)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, adminBytesMax))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return nil, c.refusal(answer.StatusCode, text)
}

// refusal makes an error of an answer that is no success.
func (c *adminClient) refusal(status int, body []byte) error {
	if status == http.StatusUnauthorized {
		return fmt.Errorf("the node at %s refuses the token: give --token, ROLLCALL_ADMIN_TOKEN, "+
			"or ROLLCALL_DATA_DIR with the node's data folder", c.base)
	}
	var refused struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if json.Unmarshal(body, &refused) == nil && refused.Error.Message != "" {
		return errors.New(inCommands(refused.Error.Message))
	}
	return fmt.Errorf("the node at %s answers %d: check --admin", c.base, status)
}

// commandsOf are the commands that do what the calls do that answers of a node name.
var commandsOf = strings.NewReplacer(
	"GET /v1/receivers", "`rollcall receivers`",
	"GET /v1/throttle/explain", "`rollcall throttle explain`",
	"GET /v1/throttle", "`rollcall throttle list`",
	"GET /v1/cluster/members", "`rollcall cluster members`",
	"GET /v1/cluster/keys", "`rollcall cluster keys list`",
	"GET /v1/identity", "`rollcall doctor`",
	"GET /v1/workspaces/{id}/keys", "`rollcall key list`",
	"GET /v1/workspaces", "`rollcall workspace list`",
	"GET /v1/users", "`rollcall user list`",
	"GET /v1/audit", "`rollcall audit`",
	"GET /v1/verifications", "list of verifications")

// inCommands rewrites a message for callers of the API for somebody at a terminal.
func inCommands(message string) string { return commandsOf.Replace(message) }

// adminTimeout bounds an operator's command that is no audit and no backup.
const adminTimeout = 30 * time.Second

// checkBase refuses what is no base URL; such is one for the message.
func checkBase(flag, base, such string) error {
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return usageError{fmt.Sprintf("%s %q is not a URL: write one such as %s", flag, base, such)}
	}
	return nil
}

// firstSet gives the first text that is not empty.
func firstSet(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
