package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
)

// TestACustomerNeedsNoCurl: every operation of the API by a command, in text and JSON.
func TestACustomerNeedsNoCurl(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	c.environ = slices.DeleteFunc(c.environ, func(line string) bool { return strings.HasPrefix(line, "ROLLCALL_ADMIN") })
	read := func(into any, args ...string) {
		t.Helper()
		code, stdout, stderr := c.run(append(args, "--json")...)
		if err := json.Unmarshal([]byte(stdout), into); code != exitDone || err != nil {
			t.Fatalf("rollcall %q: got code %d, %v, %q and %q", args, code, err, stdout, stderr)
		}
	}
	says := func(want string, args ...string) {
		t.Helper()
		code, stdout, stderr := c.run(args...)
		if code != exitDone || !strings.Contains(stdout, want) {
			t.Errorf("rollcall %q: got code %d, %q and %q, want %q", args, code, stdout, stderr, want)
		}
	}
	const anna = "anna.smith@acme-clean.test"
	var before, after api.Credits
	var checked, again checkedView
	read(&before, "credits")
	read(&checked, "check", anna)
	if checked.Email != anna || checked.Result != "valid" || !strings.HasPrefix(checked.Message, "mailbox_exists ") {
		t.Errorf("check: got %+v", checked)
	}
	says(anna+": valid: mailbox_exists", "check", anna, "--api", service)
	if read(&after, "credits"); before.Credits-after.Credits != 1 {
		t.Errorf("two checks cost %d credits, want 1", before.Credits-after.Credits)
	}
	if read(&again, "check", anna, "--again", "2"); again.ID == checked.ID || again.Result != "valid" {
		t.Errorf("check --again: got %+v, want another verification", again)
	}
	says(term.Grouped(after.Credits-1)+" credits available", "credits")
	c.write("list.csv", slowList("bert", 3))
	if code, _, stderr := c.run("verify", "list.csv", "--api", service, "--out", "r.csv"); code != exitDone {
		t.Fatalf("verify: got code %d and %s", code, stderr)
	}
	var all, one api.History
	if read(&all, "list"); len(all.Verifications) != 3 || all.Limits.MaxRows == 0 ||
		*all.Verifications[0].Filename != "list.csv" {
		t.Fatalf("list: got %+v, want three, the newest first", all)
	}
	if read(&one, "list", "--limit", "1"); len(one.Verifications) != 1 {
		t.Errorf("list --limit 1: got %+v", one)
	}
	id := all.Verifications[0].ID
	says(id, "list")
	says(anna, "list", "--limit", "0")
	var d api.Detail
	if read(&d, "status", id[:8]); d.ID != id || d.Input == nil || d.Input.Rows != 3 {
		t.Errorf("status: got %+v", d)
	}
	says("3 of 3: 3 completed", "status", id[:9]+"…")
	results, err := os.ReadFile(filepath.Join(c.folder, "r.csv"))
	if err != nil {
		t.Fatal(err)
	}
	says(string(results), "results", strings.ToUpper(id[:8]))
	if code, _, stderr := c.run("results", id, "--out", "r.csv"); code != exitFailed || !strings.Contains(stderr,
		"--force") {
		t.Errorf("results over a file: got code %d and %q", code, stderr)
	}
	says("", "results", id, "--out", "r.csv", "--force")
	says(id+" is completed already: there is nothing to cancel", "cancel", id[:8])
	if _, offered, _ := c.run("__complete", "status", ""); !strings.Contains(offered, id+"\tcompleted, list.csv") {
		t.Errorf("completion offers %q", offered)
	}
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "abc"}, exitUsage, "at least its first 4 characters"},
		{[]string{"status", "zzzz"}, exitUsage, `"zzzz" is no id`},
		{[]string{"results", "00000000-0000"}, exitFailed, "no verification of this workspace begins with 00000000-0000"},
		{[]string{"check", "anna"}, exitUsage, `"anna" is no email address`},
		{[]string{"credits", "shw"}, exitUsage, "did you mean show?"},
		{[]string{"list", "--key", "rc_wrong"}, exitFailed, "invalid_api_key"},
	} {
		if code, stdout, stderr := c.run(x.args...); code != x.code || !strings.Contains(stderr, x.want) || stdout != "" {
			t.Errorf("rollcall %q: got code %d, %q and %q, want %d and %q", x.args, code, stdout, stderr, x.code, x.want)
		}
	}
}

// TestVerificationsThatBeginAlikeAreNamed over the pages of the history.
func TestVerificationsThatBeginAlikeAreNamed(t *testing.T) {
	ids := []string{"aaaa1111-0000-4000-8000-000000000001", "aaaa2222-0000-4000-8000-000000000002",
		"bbbb3333-0000-4000-8000-000000000003"}
	customer := newTestCustomer(t, func(w http.ResponseWriter, r *http.Request) {
		var at int
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &at) // none is the first page
		next := "null"
		if at+1 < len(ids) {
			next = fmt.Sprintf("%q", fmt.Sprint(at+1))
		}
		fmt.Fprintf(w, `{"verifications":[{"id":%q,"filename":"f%d.csv","created_at":"2026-11-20T10:00:00.000Z"}],"next_cursor":%s}`,
			ids[at], at, next)
	})
	for typed, want := range map[string]string{"aaaa1": ids[0], "AAAA2": ids[1], "bbbb": ids[2], "bbbb3333-0…": ids[2],
		ids[1]: ids[1], "11111111-0000-4000-8000-000000000001": "11111111-0000-4000-8000-000000000001"} {
		if got, err := customer.VerificationID(t.Context(), typed); err != nil || got != want {
			t.Errorf("%s: got %s and %v, want %s", typed, got, err, want)
		}
	}
	_, err := customer.VerificationID(t.Context(), "aaaa")
	if err == nil || isUsage(err) || !strings.Contains(err.Error(), "2 verifications begin with aaaa") ||
		!strings.Contains(err.Error(), ids[0]+"  2026-11-20 10:00Z  f0.csv") || !strings.Contains(err.Error(), ids[1]) {
		t.Errorf("got %v, want both named", err)
	}
}

// TestTheHistoryFitsATerminal and is whole elsewhere.
func TestTheHistoryFitsATerminal(t *testing.T) {
	name, total := strings.Repeat("long", 20)+".csv", int64(1_000_000)
	list := []api.Summary{{ID: "aaaa1111-0000-4000-8000-000000000001", Status: "completed_with_errors", Filename: &name,
		Progress: api.Progress{Total: &total, Completed: total}}}
	var piped strings.Builder
	if err := printHistory(&piped, list, nil, receiversNow); err != nil || !strings.Contains(piped.String(), name) ||
		!strings.Contains(piped.String(), list[0].ID) {
		t.Errorf("piped: %v, %q", err, piped.String())
	}
	for _, width := range []int{80, 100, 240} {
		var b strings.Builder
		historyGrid(list, receiversNow).Write(&b, width)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d: %d columns: %s", width, n, line)
			}
		}
		if !strings.Contains(b.String(), list[0].ID[:8]) {
			t.Errorf("at %d: too little of the id is left in\n%s", width, b.String())
		}
	}
}
