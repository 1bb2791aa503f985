package main

import (
	"encoding/base32"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/admin"
	"rollcall/http/dashboard/signin"
)

// pageOf requests a page of a node as a browser does, and returns the status, the text and a new session's cookie.
func pageOf(t *testing.T, method, page, cookie string, form url.Values) (status int, text, session string) {
	t.Helper()
	if cookie != "" {
		cookie = "__Host-rollcall=" + cookie
	}
	a := browse(t, method, page, cookie, form)
	return a.Status, a.Body, a.Cookie("__Host-rollcall")
}

// browse makes a request as a browser does.
func browse(t *testing.T, method, page, cookie string, form url.Values) nettest.Answer {
	t.Helper()
	headers := []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}
	if cookie != "" {
		headers = append(headers, "Cookie", cookie)
	}
	return nettest.Send(t, method, page, form.Encode(), headers...)
}

// accept uses a link, and returns the session that begins.
func accept(t *testing.T, link, password string) string {
	t.Helper()
	if status, text, _ := pageOf(t, "GET", link, "", nil); status != 200 {
		t.Fatalf("the link: %d %s", status, text)
	}
	status, text, session := pageOf(t, "POST", link, "", url.Values{"form": {uuid.NewString()}, "password": {password}})
	effort.FatalIf(t, status != 303 || session == "", "use the link: %d %s", status, text)
	return session
}

// signInTo signs in with email and password.
func signInTo(t *testing.T, api, email, password string) (status int, text, session string) {
	t.Helper()
	return pageOf(t, "POST", api+"/sign-in", "", url.Values{"form": {uuid.NewString()}, "email": {email},
		"password": {password}})
}

// switchOn switches two-step sign-in on for somebody.
func switchOn(t *testing.T, api, email, password string) {
	t.Helper()
	_, _, session := signInTo(t, api, email, password)
	_, page, _ := pageOf(t, "GET", api+"/you/codes", session, nil)
	form := regexp.MustCompile(`name="form" value="([0-9a-f-]{36})"`).FindStringSubmatch(page)
	text := regexp.MustCompile(`<code>([A-Z2-7 ]+)</code>`).FindStringSubmatch(page)
	effort.FatalIf(t, form == nil || text == nil, "no secret: %s", page)
	secret := effort.Must(base32.StdEncoding.DecodeString(strings.ReplaceAll(text[1], " ", "")))(t)
	status, page, _ := pageOf(t, "POST", api+"/you/codes", session, url.Values{"form": {form[1]}, "password": {password},
		"code": {signin.TOTPCode(secret, signin.TOTPStep(time.Now()))}})
	effort.MustBe(t, status, 200, "switch codes on", page)
	if status, _, session := signInTo(t, api, email, password); status != 200 || session != "" {
		t.Errorf("the password alone signs in: %d", status)
	}
}

// signedOut waits until a session no longer opens a page: 5 seconds at most.
func signedOut(t *testing.T, page, cookie string) {
	t.Helper()
	effort.Within(t, "the session to open no page", func() bool {
		status, _, _ := pageOf(t, "GET", page, cookie, nil)
		return status == http.StatusSeeOther
	})
}

func TestPeopleAreInvitedAndSignedOut(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	node, api := startDev(c)
	owner := accept(t, strings.TrimSpace(node.waitFor("/link/")), "the password of the first one")
	var all struct{ Workspaces []admin.Workspace }
	c.asks(&all, "workspace", "list")
	effort.MustBe(t, len(all.Workspaces), 1, "workspaces", all)
	workspace := all.Workspaces[0].ID
	list := api + "/w/" + workspace
	status, text, _ := pageOf(t, "GET", list, owner, nil)
	effort.ErrorIf(t, status != 200 || !strings.Contains(text, "1\u202f000\u202f000"),
		"the workspace of serve --dev: %d without its credits", status)
	code, link, stderr := c.run("user", "invite", "--workspace", workspace, "--role", "viewer", "anna@example.com")
	effort.FatalIf(t, code != exitDone || !strings.Contains(stderr, "not shown again"), "invite: %d %s", code, stderr)
	anna := accept(t, strings.TrimSpace(link), "the password of the second one")
	var found struct {
		Users []struct {
			Email, Role string
			Disabled    bool
		}
	}
	c.asks(&found, "user", "list", "--workspace", workspace)
	effort.ErrorIf(t, len(found.Users) != 2 || found.Users[0].Email != "anna@example.com" ||
		found.Users[0].Role != "viewer" || found.Users[1].Role != "owner", "user list: %+v", found)
	var ended struct{ Ended int }
	c.asks(&ended, "user", "end-sessions", "anna@example.com")
	effort.ErrorIf(t, ended.Ended != 1, "end-sessions: %+v", ended)
	signedOut(t, list, anna)
	anna = accept(t, strings.TrimSpace(c.does("user", "password", "anna@example.com")), "a new password of hers")
	var disabled struct{ Disabled bool }
	c.asks(&disabled, "user", "disable", "anna@example.com")
	effort.ErrorIf(t, !disabled.Disabled, "disable: %+v", disabled)
	signedOut(t, list, anna)
	var reset struct {
		HasCodes bool `json:"has_codes"`
	}
	c.asks(&reset, "user", "enable", "anna@example.com")
	effort.ErrorIf(t, reset.HasCodes, "codes of somebody who has none: %+v", reset)
	switchOn(t, api, "anna@example.com", "a new password of hers")
	var listed struct {
		Users []struct {
			Email    string
			HasCodes bool `json:"has_codes"`
		}
	}
	if c.asks(&listed, "user", "list"); len(listed.Users) != 2 || !listed.Users[0].HasCodes || listed.Users[1].HasCodes {
		t.Errorf("user list: %+v", listed)
	}
	c.asks(&reset, "user", "end-two-step", "anna@example.com")
	effort.ErrorIf(t, reset.HasCodes, "end-two-step: %+v", reset)
	status, _, session := signInTo(t, api, "anna@example.com", "a new password of hers")
	effort.ErrorIf(t, status != 303 || session == "", "after end-two-step the password alone: %d", status)
	c.asks(&disabled, "user", "enable", "anna@example.com")
	effort.ErrorIf(t, disabled.Disabled, "enable: %+v", disabled)
	for _, wrong := range [][]string{{"user", "disable", "nobody@example.com"}, {"user", "password",
		"nobody@example.com"}, {"user", "end-two-step", "nobody@example.com"},
		{"user", "invite", "--workspace", workspace, "no-email"}, {"user", "invite", "--workspace", workspace, "--role",
			"king", "a@b.test"}} {
		effort.Lacks(t, c.fails(exitFailed, wrong...), "/v1/", wrong)
	}
	node.terminate()
}

func TestThereAreNoPagesWhenTheyAreOff(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	node, api := startDev(c, "ROLLCALL_DASHBOARD_ENABLED=false")
	status, text, _ := pageOf(t, "GET", api+"/sign-in", "", nil)
	effort.ErrorIf(t, status != 404 || !strings.Contains(text, "route_not_found"), "sign-in: %d %s", status, text)
	holds(t, c.fails(exitFailed, "user", "invite", "--workspace", uuid.NewString(), "a@b.test"), "[dashboard]")
	node.terminate()
}

// TestAProviderIsCheckedAndMayBeAway: the node checks the settings of a provider without asking the provider. If the
// provider is away, passwords still work.
func TestAProviderIsCheckedAndMayBeAway(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	secret := filepath.Join(c.folder, c.write("oidc.secret", "the secret of the client\n"))
	away := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	file := c.write("node.toml", fmt.Sprintf("[dashboard]\noidc_issuer = %q\noidc_client_id = "+
		"\"rollcall\"\noidc_secret_file = %q\n"+"oidc_name = \"Acme login\"\n", away, secret))
	asks := [][]string{{"config", "check", file}, {"doctor", "--config", file}, {"serve", "--config", file}}
	refused := func(want string) {
		t.Helper()
		for _, args := range asks {
			holds(t, c.fails(exitFailed, args...), "dashboard.oidc_secret_file: "+want)
		}
	}
	// The default ports may be in use on this machine.
	ports := []string{fmt.Sprintf("ROLLCALL_ADMIN_LISTEN=127.0.0.1:%d", freePort(t)),
		"ROLLCALL_HTTP_LISTEN=127.0.0.1:0", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0"}
	c.environ = slices.Clone(ports)
	effort.OK(t, os.Chmod(secret, 0o640))
	refused("provider: the secret cannot be used: others can read " + secret + "; run: chmod 600 " + secret)
	effort.OK(t, os.Chmod(secret, 0o600))
	holds(t, c.does("config", "check", file), "is fine")
	node, api := startDev(c, "ROLLCALL_DASHBOARD_OIDC_ISSUER="+away, "ROLLCALL_DASHBOARD_OIDC_CLIENT_ID=rollcall",
		"ROLLCALL_DASHBOARD_OIDC_SECRET_FILE="+secret, "ROLLCALL_DASHBOARD_OIDC_NAME=Acme login")
	status, text, _ := pageOf(t, "GET", api+"/sign-in", "", nil)
	effort.ErrorIf(t, status != 200 || !strings.Contains(text, "Sign in with Acme login"),
		"sign-in: %d %s", status, text)
	status, text, _ = pageOf(t, "GET", api+"/oidc/start", "", nil)
	effort.ErrorIf(t, status != 503 || !strings.Contains(text, "Acme login isn't answering"),
		"the provider is away: %d %s", status, text)
	node.terminate()
	effort.OK(t, os.WriteFile(secret, nil, 0o600))
	c.environ = ports
	refused("provider: the secret cannot be used: " + secret + " is empty; write the secret into it, or delete it")
	effort.OK(t, os.Remove(secret))
	refused("")
}

// TestOperatorsSignInByTheirCommand: rollcall operate signs in, and every page of a real node opens.
func TestOperatorsSignInByTheirCommand(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	startDev(c)
	code, stdout, stderr := c.run("operate", "--author", "eve")
	effort.FatalIf(t, code != exitDone || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "used once"),
		"got code %d, %q and %q", code, stdout, stderr)
	in := operatorOf(t, strings.TrimSpace(stdout))
	base, _, _ := strings.Cut(stdout, "/link/")
	for path, want := range map[string]string{"/": "<h1", "/receivers/google.com": "<h1", "/verifications": "<h1",
		"/throttles": "<h1", "/throttles?name=google.com": "<h1", "/cluster": "<h1", "/sources": "<h1", "/log": "<h1",
		"/workspaces": ">dev<", "/health": "<h2>This node, ", "/receivers/live": "", "/throttles/live": "",
		"/sources/live": ""} {
		status, text := in.ask("GET", base+path, nil)
		effort.ErrorIf(t, status != http.StatusOK || !strings.Contains(text, want), "%s: %d %.300s", path, status, text)
	}
	form := url.Values{"form": {"5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b"}, "name": {"acme-clean.test"},
		"field": {"rcpt_rate"},
		"value": {"1/s"}, "for": {"1h"}, "reason": {"a test"}}
	status, text := in.ask("POST", base+"/throttles/set", form)
	effort.ErrorIf(t, status != http.StatusSeeOther, "set: %d %s", status, text)
	holds(t, c.does("throttle", "explain", "acme-clean.test"), "eve")

	var link operateAnswer
	c.asks(&link, "operate", "--read-only")
	effort.MustBe(t, link.ReadOnly, true)
	observer := operatorOf(t, link.URL)
	status, _ = observer.ask("GET", base+"/", nil)
	effort.ErrorIf(t, status != http.StatusOK, "an observer sees nothing: %d", status)
	form.Set("form", "5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2c")
	status, _ = observer.ask("POST", base+"/throttles/set", form)
	effort.ErrorIf(t, status != http.StatusForbidden, "an observer sets an override: %d", status)
}

// operator is a browser that is signed in to the operator's pages.
type operator struct {
	t      *testing.T
	cookie string
}

// operatorOf signs in with a link.
func operatorOf(t *testing.T, link string) *operator {
	t.Helper()
	o := &operator{t: t}
	status, text := o.ask("POST", link, nil)
	effort.FatalIf(t, status != http.StatusSeeOther || o.cookie == "", "the link %s: %d %s", link, status, text)
	return o
}

// ask makes a request as a browser does.
func (o *operator) ask(method, page string, form url.Values) (status int, text string) {
	o.t.Helper()
	a := browse(o.t, method, page, o.cookie, form)
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if strings.HasPrefix(c.Name, "__Host-rollcall-operator") && !strings.HasSuffix(c.Name, "-next") {
			o.cookie = c.Name + "=" + c.Value
		}
	}
	return a.Status, a.Body
}
