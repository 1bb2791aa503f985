package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// TestOperatorsSignInByTheirCommand, and every page answers on a node as it is built.
func TestOperatorsSignInByTheirCommand(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	startDev(c)
	code, stdout, stderr := c.run("operate", "--author", "eve")
	if code != exitDone || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "used once") {
		t.Fatalf("got code %d, %q and %q", code, stdout, stderr)
	}
	in := operatorOf(t, strings.TrimSpace(stdout))
	base, _, _ := strings.Cut(stdout, "/link/")
	for _, path := range []string{"/", "/receivers/live", "/receivers/google.com", "/verifications", "/throttles",
		"/throttles?name=google.com", "/cluster", "/sources", "/workspaces", "/log", "/health",
		"/throttles/live", "/sources/live"} {
		if status, text := in.ask("GET", base+path, nil); status != http.StatusOK || !strings.Contains(text, "<h1") &&
			!strings.HasSuffix(path, "live") {
			t.Errorf("%s: %d %.300s", path, status, text)
		}
	}
	if status, text := in.ask("GET", base+"/workspaces", nil); status != http.StatusOK || !strings.Contains(text,
		">dev<") {
		t.Errorf("the workspaces: %d %s", status, text)
	}
	if status, text := in.ask("GET", base+"/health", nil); status != http.StatusOK || !strings.Contains(text,
		"<h2>This node, ") {
		t.Errorf("the health of the node: %d %s", status, text)
	}
	in.pauseSource(base)
	form := url.Values{"form": {"5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2b"}, "name": {"acme-clean.test"},
		"field": {"rcpt_rate"},
		"value": {"1/s"}, "for": {"1h"}, "reason": {"a test"}}
	if status, text := in.ask("POST", base+"/throttles/preview", form); status != http.StatusOK ||
		!strings.Contains(text, "Set the override") {
		t.Errorf("preview: %d %s", status, text)
	}
	if status, text := in.ask("POST", base+"/throttles/set", form); status != http.StatusSeeOther {
		t.Errorf("set: %d %s", status, text)
	}
	if code, stdout, _ := c.run("throttle", "explain", "acme-clean.test"); code != exitDone || !strings.Contains(stdout,
		"eve") {
		t.Errorf("the command does not see it: %s", stdout)
	}

	var link operateAnswer
	_, stdout, _ = c.run("operate", "--read-only", "--json")
	if err := json.Unmarshal([]byte(stdout), &link); err != nil || !link.ReadOnly {
		t.Fatalf("%v in %s", err, stdout)
	}
	observer := operatorOf(t, link.URL)
	if status, _ := observer.ask("GET", base+"/", nil); status != http.StatusOK {
		t.Errorf("an observer sees nothing: %d", status)
	}
	form.Set("form", "5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2c")
	if status, _ := observer.ask("POST", base+"/throttles/set", form); status != http.StatusForbidden {
		t.Errorf("an observer sets an override: %d", status)
	}
}

// operator is who signed in to the operator's pages.
type operator struct {
	t      *testing.T
	cookie string
}

// operatorOf uses a link.
func operatorOf(t *testing.T, link string) *operator {
	t.Helper()
	o := &operator{t: t}
	if status, text := o.ask("POST", link, nil); status != http.StatusSeeOther || o.cookie == "" {
		t.Fatalf("the link %s: %d %s", link, status, text)
	}
	return o
}

// pauseSource pauses the first source of a node and resumes it.
func (o *operator) pauseSource(base string) {
	o.t.Helper()
	_, text := o.ask("GET", base+"/sources", nil)
	found := regexp.MustCompile(`/sources/change\?source=([^&]*)&amp;to=pause`).FindStringSubmatch(text)
	if found == nil {
		o.t.Fatalf("no source can be paused: %s", text)
	}
	source, err := url.QueryUnescape(found[1])
	if err != nil {
		o.t.Fatal(err)
	}
	form := url.Values{"form": {"5f2c91aa-8f6e-4b1c-9d53-0c9b7c1f1a2d"}, "source": {source}, "to": {"pause"},
		"for": {"1h"}, "reason": {"a test of pausing"}}
	for _, to := range []string{"pause", "resume"} {
		form.Set("to", to)
		if status, text := o.ask("POST", base+"/sources/change", form); status != http.StatusSeeOther {
			o.t.Errorf("%s: %d %s", to, status, text)
		}
		_, text := o.ask("GET", base+"/throttles", nil)
		if held := strings.Contains(text, "a test of pausing"); held != (to == "pause") {
			o.t.Errorf("after %s an override holds: %v", to, held)
		}
	}
}

// ask makes a request as a browser does.
func (o *operator) ask(method, page string, form url.Values) (status int, text string) {
	o.t.Helper()
	status, text, set := browse(o.t, method, page, o.cookie, form)
	for _, c := range set {
		if strings.HasPrefix(c.Name, "__Host-rollcall-operator") && !strings.HasSuffix(c.Name, "-next") {
			o.cookie = c.Name + "=" + c.Value
		}
	}
	return status, text
}
