package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
)

// newCustomerCLI starts a node with the lab. It returns a folder whose environment has the node's URL and key.
func newCustomerCLI(t *testing.T, more ...string) (c *cli, service string, node *background) {
	t.Helper()
	c = newCLI(t)
	node, service = startDev(c, more...)
	c.environ = append(c.environ, "ROLLCALL_KEY="+c.dev().Key, "ROLLCALL_API="+service)
	return c, service, node
}

// dev returns the tenant that serve --dev has made.
func (c *cli) dev() (dev client.Tenant) {
	c.t.Helper()
	text := effort.Must(os.ReadFile(filepath.Join(c.folder, "rollcall-data", "dev.json")))(c.t)
	effort.OK(c.t, json.Unmarshal(text, &dev))
	return dev
}

// numbered returns a file with numbered mailboxes of one name at a domain. A receiver of the lab is asked 5 addresses
// a second.
func numbered(name, domain string, rows int) string {
	var list strings.Builder
	list.WriteString("email\n")
	for i := range rows {
		fmt.Fprintf(&list, "%s%d@%s\n", name, i, domain)
	}
	return list.String()
}

// TestInterruptedTheServiceGoesOn: Ctrl-C prints how to end the verification and how to come back to it, and both
// ways work.
func TestInterruptedTheServiceGoesOn(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	c.write("list.csv", numbered("anna", "one-clean.test", 60))
	b := c.start("verify", "list.csv", "--api", service)
	b.waitFor("verifying")
	effort.OK(t, b.command.Process.Signal(os.Interrupt))
	line := b.waitFor("rollcall: stopped: the service goes on with verification ")
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(line)
	effort.Has(t, line, "and charges for it", "it does not say that it charges")
	b.waitFor("to come back to it, run the same command again")
	end := b.waitFor("to end it, run: rollcall cancel ")
	effort.Is(t, b.wait(cliWait), exitStopped, "interrupted: got code")
	b = c.start("verify", "list.csv", "--api", service)
	b.waitFor("verifying")
	effort.Is(t, b.stop(syscall.SIGTERM), exitStopped, "ended: got code")
	_, command, _ := strings.Cut(end, "rollcall cancel ")
	holds(t, c.does(append([]string{"cancel"}, strings.Fields(command)...)...), id+" is cancel")
	holds(t, c.fails(exitFailed, "verify", "list.csv", "--api", service), "verification was cancelled", "cancelled  ")
	var done api.Cancellation
	c.asks(&done, "cancel", id)
	effort.Is(t, done.ID, id, "cancelled twice")
}

// TestACustomerNeedsNoCurl: a command exists for every operation of the API, in text and JSON.
func TestACustomerNeedsNoCurl(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	c.environ = slices.DeleteFunc(c.environ, func(line string) bool { return strings.HasPrefix(line, "ROLLCALL_ADMIN") })
	says := func(want string, args ...string) { t.Helper(); effort.Has(t, c.does(args...), want, args) }
	const anna = "anna.smith@acme-clean.test"
	var before, after api.Credits
	var checked, again checkedView
	c.asks(&before, "credits")
	c.asks(&checked, "check", anna)
	effort.ErrorIf(t, checked.Email != anna || checked.Result != "valid" ||
		!strings.HasPrefix(checked.Message, "mailbox_exists "), "check: got %+v", checked)
	says(anna+": valid: mailbox_exists", "check", anna, "--api", service)
	if c.asks(&after, "credits"); before.Credits-after.Credits != 1 {
		t.Errorf("two checks cost %d credits, want 1", before.Credits-after.Credits)
	}
	if c.asks(&again, "check", anna, "--again", "2"); again.ID == checked.ID || again.Result != "valid" {
		t.Errorf("check --again: got %+v, want another verification", again)
	}
	says(term.Grouped(after.Credits-1)+" credits available", "credits")
	c.write("list.csv", numbered("bert", "one-clean.test", 3))
	c.does("verify", "list.csv", "--api", service, "--out", "r.csv")
	var all, one api.History
	c.asks(&all, "list")
	effort.FatalIf(t, len(all.Verifications) != 3 || all.Limits.MaxRows == 0 ||
		*all.Verifications[0].Filename != "list.csv", "list: got %+v, want three, the newest first", all)
	c.asks(&one, "list", "--limit", "1")
	effort.ErrorIf(t, len(one.Verifications) != 1, "list --limit 1: got %+v", one)
	id := all.Verifications[0].ID
	says(id, "list")
	says(anna, "list", "--limit", "0")
	var d api.Detail
	c.asks(&d, "status", id[:8])
	effort.ErrorIf(t, d.ID != id || d.Input == nil || d.Input.Rows != 3, "status: got %+v", d)
	says("3 of 3: 3 completed", "status", id[:9]+"…")
	results := effort.Must(os.ReadFile(filepath.Join(c.folder, "r.csv")))(t)
	says(string(results), "results", strings.ToUpper(id[:8]))
	holds(t, c.fails(exitFailed, "results", id, "--out", "r.csv"), "--force")
	says("", "results", id, "--out", "r.csv", "--force")
	says(id+" is completed already: there is nothing to cancel", "cancel", id[:8])
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status", "abc"}, exitUsage, "at least its first 4 characters"},
		{[]string{"status", "zzzz"}, exitUsage, `"zzzz" is not the id`},
		{[]string{"results", "00000000-0000"}, exitFailed, "no verification of this workspace begins with 00000000-0000"},
		{[]string{"check", "anna"}, exitUsage, `"anna" is no email address`},
		{[]string{"credits", "shw"}, exitUsage, "did you mean show?"},
		{[]string{"list", "--key", "rc_wrong"}, exitFailed, "invalid_api_key"},
		{[]string{"verify", "list.csv", "--api", "http://127.0.0.1:1"}, exitFailed,
			"no Rollcall API answers at http://127.0.0.1:1: start a node with `rollcall serve`, or check --api"},
	} {
		if code, stdout, stderr := c.run(x.args...); code != x.code || !strings.Contains(stderr, x.want) || stdout != "" ||
			code == exitFailed && strings.Count(lastLines(stderr), "\n") != 1 {
			t.Errorf("rollcall %q: got code %d, %q and %q, want %d and %q", x.args, code, stdout, stderr, x.code, x.want)
		}
	}
}

// TestVerificationsThatBeginAlikeAreNamed: a typed prefix is compared with all pages of the history.
func TestVerificationsThatBeginAlikeAreNamed(t *testing.T) {
	ids := []string{"aaaa1111-0000-4000-8000-000000000001", "aaaa2222-0000-4000-8000-000000000002",
		"bbbb3333-0000-4000-8000-000000000003"}
	customer := newTestCustomer(t, func(w http.ResponseWriter, r *http.Request) {
		var at int
		_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &at) // without a cursor: the first page
		next := "null"
		if at+1 < len(ids) {
			next = fmt.Sprintf("%q", fmt.Sprint(at+1))
		}
		fmt.Fprintf(w, `{"verifications":[{"id":%q,"filename":"f%d.csv","created_at":"2026-11-20T10:00:00.000Z"}],"next_cursor":%s}`,
			ids[at], at, next)
	})
	for typed, want := range map[string]string{"aaaa1": ids[0], "AAAA2": ids[1], "bbbb": ids[2], "bbbb3333-0…": ids[2],
		ids[1]: ids[1], "11111111-0000-4000-8000-000000000001": "11111111-0000-4000-8000-000000000001"} {
		effort.Is(t, effort.Must(customer.VerificationID(t.Context(), typed))(t), want, typed)
	}
	_, err := customer.VerificationID(t.Context(), "aaaa")
	effort.ErrorIf(t, err == nil || isUsage(err) || !strings.Contains(err.Error(), "2 verifications begin with aaaa") ||
		!strings.Contains(err.Error(), ids[0]+"  2026-11-20 10:00Z  f0.csv") || !strings.Contains(err.Error(), ids[1]),
		"got %v, want both named", err)
}

// TestTheHistoryFitsATerminal: a terminal gets shortened rows, a pipe whole ones.
func TestTheHistoryFitsATerminal(t *testing.T) {
	name, total := strings.Repeat("long", 20)+".csv", int64(1_000_000)
	list := []api.Summary{{ID: "aaaa1111-0000-4000-8000-000000000001", Status: "completed_with_errors", Filename: &name,
		Progress: api.Progress{Total: &total, Completed: total}}}
	piped := term.NewPage(nil)
	printHistory(piped, list, nil, receiversNow)
	holds(t, piped.String(), name, list[0].ID)
	for _, width := range []int{80, 100, 240} {
		var b strings.Builder
		historyGrid(list, receiversNow).Write(&b, width)
		fits(t, b.String(), width)
		effort.Has(t, b.String(), list[0].ID[:8], "at width", width)
	}
}

// seesStatus returns the answer of `rollcall status` about a verification.
func (c *cli) seesStatus(id string) (d api.Detail) {
	c.t.Helper()
	c.asks(&d, "status", id)
	effort.MustBe(c.t, d.Issue != nil && d.Issue.Code == api.ReceiversWait, (d.Status == "waiting"), d.Status,
		"with the issue", d.Issue)
	return d
}

// newest returns the newest verification.
func (c *cli) newest() api.Summary {
	c.t.Helper()
	var h api.History
	c.asks(&h, "list", "--limit", "1")
	effort.MustBe(c.t, len(h.Verifications), 1, "verifications of list --limit 1")
	return h.Verifications[0]
}

// TestACustomerSeesWhyAFileWaits: the reason is shown while the file is parked and after the node restarts, until the
// file is cancelled or continues.
func TestACustomerSeesWhyAFileWaits(t *testing.T) {
	t.Parallel()
	c, service, node := newCustomerCLI(t, "ROLLCALL_RETRY_GREYLIST_WAITS=21m", "ROLLCALL_RETRY_GIVE_UP_AFTER=5h")
	c.write("list.csv", "email\nghost0@why-tempfail.test\nghost1@why-tempfail.test\n")
	run := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	const why = "2 addresses wait for why-tempfail.test, which was too busy to answer; the last is expected "
	run.waitFor(why)
	node.waitFor("verification parked")
	run.stop(os.Interrupt)
	id := c.newest().ID
	before := c.seesStatus(id)
	effort.FatalIf(t, before.Issue == nil || !strings.HasPrefix(before.Issue.Message, why),
		"its customer is told %+v", before.Issue)
	for _, args := range [][]string{{"status", id}, {"list"}} {
		effort.Has(t, unfolded(c.does(args...)), before.Issue.Message, args, "does not say why it waits")
	}
	node.stop(os.Interrupt)
	c.start("serve", "--dev").waitFor("rollcall verify examples/contacts.csv --api")
	if d := c.seesStatus(id); d.Issue == nil || *d.Issue != *before.Issue {
		t.Errorf("after a restart its customer is told %+v, before %+v", d.Issue, before.Issue)
	}
	c.does("cancel", id)
	effort.Is(t, c.seesStatus(id).Status, "cancelled", "after a cancel")
}

// TestAPauseIsToldToCustomers: the client shows the pause of a receiver, and the file continues after it.
func TestAPauseIsToldToCustomers(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	c.does("receivers", "pause", "why-clean.test", "--for", "100s", "--reason", "test")
	c.write("list.csv", "email\nanna@why-clean.test\n")
	run := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	run.waitFor("1 address waits for why-clean.test, where our operators have paused the work; it is expected at ")
	id := c.newest().ID
	effort.Is(t, c.seesStatus(id).Status, "waiting", "while it is paused")
	c.does("receivers", "resume", "why-clean.test")
	for began := time.Now(); !ledger.Status(c.seesStatus(id).Status).Final(); {
		effort.FatalIf(t, time.Since(began) > cliWait, "it does not go on")
	}
}

// TestAWaitIsToldOnce: a wait is printed again only after another text was printed.
func TestAWaitIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	view := &progressView{out: &out}
	for _, why := range []string{"", "A waits.", "A waits.", "B waits.", "B waits.", "", "B waits."} {
		d := verifyingAt(10, 0, 100)
		if why != "" {
			d.Status, d.Issue = "waiting", &api.Issue{Code: api.ReceiversWait, Message: why}
		}
		view.progress(d, client.Tally{})
	}
	const want = "verifying: 10 of 100 (10 %)\nA waits.\nwaiting: 10 of 100 (10 %)\nB waits.\n" +
		"verifying: 10 of 100 (10 %)\nB waits.\nwaiting: 10 of 100 (10 %)\n"
	effort.Is(t, out.String(), want)
}

// TestTheIdentityIsOfTheContent: the identity depends on the file's content and --again, not on its name.
func TestTheIdentityIsOfTheContent(t *testing.T) {
	of := func(name, text, again string) uuid.UUID {
		file := filepath.Join(t.TempDir(), name)
		effort.OK(t, os.WriteFile(file, []byte(text), 0o600))
		in := effort.Must(openInput(file))(t)
		defer in.Close()
		return in.identity(again)
	}
	first := of("a.csv", "a@a.test\n", "")
	// The identity must never change: another one would charge every customer again for a repeat.
	effort.Is(t, first.String(), "ee88f236-da10-8523-836d-22536a28be18", first)
	effort.Is(t, of("b.csv", "a@a.test\n", ""), first, "the same bytes in another file")
	others := map[uuid.UUID]string{first: "the first"}
	for _, x := range [][2]string{{"a@a.test\r\n", ""}, {"a@a.test\n", "2"}, {"a@a.test\n", "3"}, {"b@a.test\n", "2"}} {
		identity := of("a.csv", x[0], x[1])
		same, taken := others[identity]
		effort.ErrorIf(t, taken, "%q has the identity of %s", x, same)
		others[identity] = fmt.Sprintf("%q", x)
	}
}

// TestResultsThatAreGoneNameTheWayToNewOnes: content whose results are erased stays paid for, and is charged again
// only when the customer asks for it.
func TestResultsThatAreGoneNameTheWayToNewOnes(t *testing.T) {
	customer := newTestCustomer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/results"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"issue":{"code":"results_expired","message":"Gone."},"request_id":"x"}`)
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `{"id":"v1","status":"completed"}`)
		default:
			fmt.Fprint(w, `{"id":"v1","status":"completed","created_at":"2026-11-20T10:00:00.000Z","progress":{"total":4,"completed":4}}`)
		}
	})
	r, stdout, stderr := newTestRun(t, customer, verifyFlags{api: customer.Base})
	err := r.left(r.run(t.Context()))
	effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "results_expired") ||
		!strings.Contains(err.Error(), "add --again NAME") || strings.Contains(err.Error(), "goes on") ||
		stdout.Len() != 0, "got %v and %q", err, stdout)
	if want := "This content was sent before, on 2026-11-20 10:00Z: this is that verification, v1, and nothing is " +
		"charged"; !strings.Contains(stderr.String(), want) {
		t.Errorf("got %q, want %q", stderr, want)
	}
}

// TestClientsOfThreeLanguages runs the Go client and the samples in Python and JavaScript against a node. The same
// file gives the same results, and a bad file gets an error that says what is wrong.
func TestClientsOfThreeLanguages(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	const list = "email\nanna.smith@acme-clean.test\nghost@acme-clean.test\n"
	c.write("list.csv", list)
	c.write("bad.csv", "email\nanna@@acme-clean.test\n")
	expected := map[string]string{"anna.smith@acme-clean.test": "valid", "ghost@acme-clean.test": "invalid"}
	t.Run("go", func(t *testing.T) {
		own := api.NewClient(service, environment(c.environ).value("ROLLCALL_KEY"))
		done, err := own.Verify(t.Context(), api.File{Content: strings.NewReader(list), Size: int64(len(list))})
		effort.FatalIf(t, err != nil || done.Status != "completed", "got %+v and %v", done, err)
		found := 0
		for r, err := range own.Results(t.Context(), done.ID) {
			if found++; err != nil || r.Outcome != expected[r.Email] || r.CheckedAt.IsZero() {
				t.Errorf("got %+v and %v", r, err)
			}
		}
		for range own.Results(t.Context(), done.ID) {
			break // the caller has enough
		}
		if balance, err := own.Credits(t.Context()); found != 2 || err != nil || balance.Credits != devCredits-2 {
			t.Errorf("got %d results, %+v and %v", found, balance, err)
		}
		effort.Denied(api.NewClient(service, "rc_wrong").Credits(t.Context()))(t, api.ErrRefused, "a wrong key")
	})
	for _, command := range [][]string{{"python3", "verify.py"}, {"node", "verify.mjs"}} {
		t.Run(command[0], func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip("not run: there is no " + command[0])
			}
			run := func(file string) (string, error) {
				one := c.command(t.Context())
				one.Path, one.Args = program, []string{program, example(t, command[1]), filepath.Join(c.folder, file)}
				out, err := one.CombinedOutput()
				return string(out), err
			}
			out, err := run("list.csv")
			got := outcomes(out)
			effort.ErrorIf(t, err != nil || len(got) != len(expected) || got["ghost@acme-clean.test"] != "invalid" ||
				got["anna.smith@acme-clean.test"] != "valid", "got %v and\n%s", err, out)
			if out, err := run("bad.csv"); err == nil || !strings.Contains(out, "malformed") {
				t.Errorf("a bad file: got %v and\n%s", err, out)
			}
		})
	}
}
