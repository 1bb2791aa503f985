package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// TestLedgerRenew uses the built binary to give a copy of a database its own identity.
func TestLedgerRenew(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	original, url := newDatabase(t)
	effort.OK(t, sqlstore.Migrate(t.Context(), url, func(string) {}))
	identity := func(url string) string {
		t.Helper()
		book := effort.Must(sqlstore.Open(t.Context(), url, sqlstore.Options{}))(t)
		id, err := book.Identity(t.Context())
		if err == nil {
			err = book.Close()
		}
		effort.OK(t, err)
		return id.String()
	}
	before := identity(url)
	copied := postgres.Shared(t).NewDatabase(t, original+"copy", original)
	effort.MustBe(t, identity(copied), before, "the identity of a copy")
	for _, refused := range []struct {
		url, says string
		code      int
		args      []string
	}{
		{copied, "--reason is missing", exitUsage, nil},
		{copied, "give --yes to renew the ledger postgres://", exitUsage, []string{"--reason", "x"}},
		{"sqlite:" + c.folder + "/ledger.db", "there is nothing to renew", 1, []string{"--reason", "x", "--yes"}},
	} {
		c.environ = []string{"ROLLCALL_LEDGER_URL=" + refused.url, "ROLLCALL_LEDGER_DISK_RESERVE=0"}
		holds(t, c.fails(refused.code, append([]string{"ledger", "renew"}, refused.args...)...), refused.says)
	}
	c.environ = []string{"ROLLCALL_LEDGER_URL=" + copied}
	said := c.does("ledger", "renew", "--reason", "a rehearsal", "--yes")
	after := identity(copied)
	holds(t, said, fmt.Sprintf("\n%s, was %s\n", after, before))
	effort.Not(t, after, before, "the identity of a renewed copy")
	effort.Is(t, identity(url), before, "the original has the identity now, it was")
}

// TestRestoredBackupGoesOn takes a backup of a node in the middle of a file, loses the node and its ledger, and
// restores the backup as docs/operators/operations.md says. The file ends with one outcome for each address, and the
// credits add up.
func TestRestoredBackupGoesOn(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	node, service := startDev(c)
	tenant := c.dev()
	c.write("list.csv", numbered("anna", "one-clean.test", 20)) // 4 s
	c.environ = append(c.environ, "ROLLCALL_KEY="+tenant.Key)
	verify := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	verify.waitFor("verifying")
	var made backupView
	c.asks(&made, "backup", "copy.db")
	info, err := os.Stat(filepath.Join(c.folder, "copy.db"))
	effort.FatalIf(t, err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes || made.File != "copy.db",
		"got %+v and %v, %v", made, info, err)
	holds(t, c.fails(exitFailed, "backup", "copy.db"), "there is a file of this name")
	left, _ := filepath.Glob(filepath.Join(c.folder, "*.part"))
	effort.ErrorIf(t, len(left) > 0, "left: %v", left)
	node.stop(syscall.SIGKILL)
	for _, name := range []string{"ledger.db", "ledger.db-wal", "ledger.db-shm"} {
		_ = os.Remove(filepath.Join(c.folder, "rollcall-data", name))
	}
	effort.OK(t, os.Rename(filepath.Join(c.folder, "copy.db"), filepath.Join(c.folder, "rollcall-data", "ledger.db")))
	alone := &cli{t: t, folder: c.folder, environ: []string{noNodeHere}} // knows of no node
	holds(t, alone.does("audit"), "every invariant holds")
	node = c.start("serve", "--dev")
	node.waitFor("rollcall verify examples/contacts.csv --api")
	effort.Is(t, verify.wait(cliWait), exitDone, "verify")
	results, err := os.ReadFile(filepath.Join(c.folder, "r.csv"))
	n := strings.Count(string(results), ",valid,")
	effort.ErrorIf(t, err != nil || n != 20, "got %d valid addresses and %v, want 20", n, err)
	c.addUp(tenant.Workspace, client.NewAPI(service, tenant.Key, func(string) {}))
	c.does("audit")
	node.stop(syscall.SIGTERM)
	// Without a node the command copies the file itself, and does not change it.
	holds(t, alone.does("backup", "second.db"), " bytes in ")
}

// addUp checks, as text and as JSON, the entries of a workspace's one verification, which has 20 addresses.
func (c *cli) addUp(workspace string, customer *client.API) {
	c.t.Helper()
	var report struct{ Settlements int64 }
	c.asks(&report, "audit")
	var page api.History
	_, err := customer.AskJSON(c.t.Context(), "GET", "/v1/verifications", nil, &page)
	effort.FatalIf(c.t, err != nil || len(page.Verifications) != 1, "history: %+v, %v", page, err)
	id := page.Verifications[0].ID
	var s admin.Statement
	c.asks(&s, "credits", "show", "--workspace", workspace, "--verification", id)
	effort.ErrorIf(c.t, s.Held != 20 || s.Charged != 20 || s.Released != 0 || s.StillHeld != 0 || s.Next != nil ||
		s.Count != report.Settlements+1 || int64(len(s.Entries)) != s.Count ||
		s.Entries[len(s.Entries)-1].Kind != "hold", "entries: %+v with %d settlements", s, report.Settlements)
	holds(c.t, c.does("credits", "show", "--workspace", workspace, "--verification", id[:8]),
		"held 20 = charged 20 + released 0 + still held 0")
}

// TestABackupReplacesNothing: a backup replaces no file, even one that appeared while it was made. A refused backup
// leaves no files.
func TestABackupReplacesNothing(t *testing.T) {
	folder := t.TempDir()
	part, path := filepath.Join(folder, "b.part"), filepath.Join(folder, "b")
	write := func(name, text string) {
		t.Helper()
		effort.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	write(part, "new")
	effort.OK(t, nameOnce(part, path))
	write(part, "newer")
	effort.ErrIs(t, nameOnce(part, path), sqlstore.ErrBackupExists)
	effort.Is(t, string(effort.Must(os.ReadFile(path))(t)), "new", "the first one holds")
}

// TestANamedLedgerIsReadWhoeverRuns: an audit of a named copy with violations reports them, even beside a running
// node whose ledger has none.
func TestANamedLedgerIsReadWhoeverRuns(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	admin := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	plain := []string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:0", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0",
		"ROLLCALL_ADMIN_LISTEN=" + admin}
	c.environ = plain
	node := c.start("serve", "--dev")
	node.waitFor("Ctrl-C ends it")
	copied := filepath.Join(c.folder, "restore", "rollcall-data", "ledger.db")
	effort.OK(t, os.MkdirAll(filepath.Dir(copied), 0o700))
	holds(t, c.does("backup", copied), "copied the ledger sqlite:")
	restored := *c
	restored.folder = filepath.Join(c.folder, "restore")
	restored.spoilsTheBooks()
	c.write("restored.toml", fmt.Sprintf("[ledger]\nurl = %q\n[admin]\nlisten = %q\n", "sqlite:"+copied, admin))

	sound := "audit of the node at http://" + admin + "\n"
	off := "audit of the ledger sqlite:" + copied + "\n"
	for _, one := range []struct {
		name    string
		environ []string
		args    []string
		begins  string
		code    int
	}{
		{"nothing named", nil, nil, sound, exitDone},
		{"--ledger", nil, []string{"--ledger", "sqlite:" + copied}, off, exitFailed},
		{"--config", nil, []string{"--config", "restored.toml"}, off, exitFailed},
		{"environment", []string{"ROLLCALL_LEDGER_URL=sqlite:" + copied}, nil, off, exitFailed},
		{"node named", nil, []string{"--admin", "http://" + admin}, sound, exitDone},
		{"node named that is away", nil, []string{"--admin", "http://127.0.0.1:1"}, "", exitFailed},
		{"both", nil, []string{"--admin", "http://" + admin, "--ledger", "sqlite:" + copied}, "", exitUsage},
		{"both by the environment", []string{"ROLLCALL_ADMIN=http://" + admin, "ROLLCALL_LEDGER_URL=sqlite:" + copied}, nil,
			"", exitUsage},
	} {
		c.environ = append(plain[:len(plain):len(plain)], one.environ...)
		code, stdout, stderr := c.run(append([]string{"audit"}, one.args...)...)
		effort.ErrorIf(t, code != one.code || !strings.HasPrefix(stdout, one.begins) ||
			(code == exitUsage) != strings.Contains(stderr, "give only one of them"), "%s: code %d, want %d\n%s%s",
			one.name, code, one.code, stdout, stderr)
	}
	node.terminate()
}

// TestTheInstalledNodeIsFound: commands find the installed node if the environment names none, and otherwise use the
// node of the environment.
func TestTheInstalledNodeIsFound(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	installed := filepath.Join(folder, "rollcall.toml")
	write := func(name, text string) {
		effort.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("rollcall.toml", fmt.Sprintf("data_dir = %q\n[admin]\nlisten = \"unix:/run/rollcall/admin.sock\"\n", folder))
	write("admin.token", "a token of sixteen\n")
	for _, one := range []struct {
		environ     environment
		installed   string
		base, token string
	}{
		{nil, installed, "unix:/run/rollcall/admin.sock", "a token of sixteen"},
		{nil, filepath.Join(folder, "none.toml"), adminDefault, ""},
		{environment{"ROLLCALL_DATA_DIR=" + t.TempDir()}, installed, adminDefault, ""},
		{environment{"ROLLCALL_ADMIN_LISTEN=127.0.0.1:99"}, installed, "http://127.0.0.1:99", ""},
		{environment{"ROLLCALL_ADMIN=http://127.0.0.1:98"}, installed, "http://127.0.0.1:98", "a token of sixteen"},
	} {
		client, err := (&adminFlags{environ: one.environ, installed: one.installed}).client()
		effort.ErrorIf(t, err != nil || client.Base != one.base || client.Token != one.token,
			"%v: got %+v, %v", one.environ, client, err)
	}
	_, err := (&adminFlags{url: "http://127.0.0.1:97", config: installed}).client()
	effort.ErrorIf(t, !isUsage(err), "a node named twice: %v", err)
}

func TestALedgerIsNamedWithoutItsSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:/var/lib/rollcall/ledger.db":                                 "sqlite:/var/lib/rollcall/ledger.db",
		"postgresql://node:secret@db1:26257,db2:26257/book?sslpassword=deep": "postgresql://node@db1:26257,db2:26257/book",
		"postgresql:///book?host=/run/postgresql&password=secret":            "postgresql:///book?host=/run/postgresql",
		"postgres://node:sec ret@x/y":                                        "on a server",
	} {
		got := ledgerName(url)
		effort.ErrorIf(t, got != want || strings.Contains(got, "secret"), "%s: got %s, want %s", url, got, want)
	}
}

// TestAuditIsReadOnATerminal: each violation stands with what to do, within 80 columns.
func TestAuditIsReadOnATerminal(t *testing.T) {
	long := strings.Repeat("wrong numbers ", 20)
	sound, broken := term.NewPage(screen{}), term.NewPage(screen{})
	report := ledger.AuditReport{Workspaces: 1, Entries: 1234567, Newest: time.UnixMilli(1).UTC()}
	newAuditView(report, reading{Ledger: "sqlite:x"}, time.Second).print(sound)
	for _, i := range ledger.Invariants() {
		report.Violations = append(report.Violations, ledger.Violation{Invariant: i.ID,
			Subject: "11111111-2222-4333-8444-555555555555", Detail: long})
	}
	report.Found = int64(len(report.Violations)) + 5
	view := newAuditView(report, reading{Node: "unix:/run/x"}, time.Second)
	view.print(broken)
	effort.ErrorIf(t, !strings.HasPrefix(sound.String(), "audit of the ledger sqlite:x\n") ||
		!strings.HasPrefix(broken.String(), "audit of the node at unix:/run/x\n"),
		"what was read is not in the first lines of\n%s\n%s", sound, broken)
	holds(t, sound.String(), "entries        1,234,567", "every invariant holds; read in 1.0 s", "I13          yes")
	if n := strings.Count(broken.String(), "To do: "); n != len(ledger.Invariants()) ||
		!strings.Contains(broken.String(), fmt.Sprintf("%d violations were found, %d are listed", report.Found,
			len(report.Violations))) || strings.Contains(broken.String(), "every invariant holds") {
		t.Errorf("%d of %d are explained in\n%s", n, len(ledger.Invariants()), broken)
	}
	fits(t, sound.String()+broken.String(), term.Columns)
	text := effort.Must(json.Marshal(view))(t)
	for _, want := range []string{`"id":"I1"`, `"took_seconds":1`, `"read":{"node":"unix:/run/x"}`, `"workspaces":1`} {
		effort.Has(t, string(text), want)
	}
}

// TestANodeFindsByItselfThatItsBooksAreOff: the built binary audits itself and reports violations by metric and log.
// The operator's command names the same violations.
func TestANodeFindsByItselfThatItsBooksAreOff(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.write("often.toml", "[audit]\nevery = \"1s\"\n")
	admin := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	c.environ = []string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:0", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0",
		"ROLLCALL_ADMIN_LISTEN=" + admin, "ROLLCALL_ADMIN=http://" + admin}
	node := c.start("serve", "--dev", "--config", "often.toml")
	node.waitFor("ledger audited")
	metric := func(want string) {
		t.Helper()
		effort.Has(t, get(t, "http://"+admin+"/metrics"), "\nrollcall_audit_violations "+want+"\n")
	}
	metric("0")
	c.spoilsTheBooks()
	effort.Has(t, node.waitFor("the books do not add up"), `"invariant":"I3"`, "log")
	node.waitFor("ledger audited")
	metric("1")
	said := c.fails(exitFailed, "audit")
	holds(t, said, "I3           NO: 1", "To do: ", "(violations: 1): stop granting")
	c.correctsTheBooks(node, report(t, said))
	metric("0")
	node.terminate()
	// Without a node the command reads and corrects the ledger itself.
	c.environ = []string{noNodeHere}
	c.spoilsTheBooks()
	c.does("audit", "correct", report(t, c.fails(exitFailed, "audit")), "--keep-account", "--reason", "a gift", "--json")
	holds(t, c.does("audit"), "CORRECTED, newest first", "found by hand", "a gift")
}

// noNodeHere names an address where no node listens. So a command finds no node on this machine and reads the ledger.
// At the default address somebody else's node may answer.
const noNodeHere = "ROLLCALL_ADMIN_LISTEN=127.0.0.1:1"

// spoilsTheBooks adds a credit to each account in the database, without an entry.
func (c *cli) spoilsTheBooks() {
	c.t.Helper()
	path := filepath.Join(c.folder, "rollcall-data", "ledger.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)") // the driver that package sqlstore registers
	if err == nil {
		_, err = db.Exec(`UPDATE workspaces SET granted = granted + 1, available = available + 1`)
		err = errors.Join(err, db.Close())
	}
	effort.OK(c.t, err)
}

// report returns the subject that an audit printed.
func report(t *testing.T, stdout string) string {
	t.Helper()
	for line := range strings.Lines(stdout) {
		if id, err := uuid.Parse(strings.TrimSpace(line)); err == nil {
			return id.String()
		}
	}
	t.Fatalf("no subject in\n%s", stdout)
	return ""
}

// correctsTheBooks corrects the findings about a workspace, as an operator would.
func (c *cli) correctsTheBooks(node *background, workspace string) {
	c.t.Helper()
	holds(c.t, c.fails(exitUsage, "audit", "correct", workspace), "--reason is missing")
	holds(c.t, c.does("audit", "correct", workspace[:8], "--reason", "found by hand", "--author", "mara"),
		"withdrawal  1        moved now", "I3 ")
	node.waitFor("ledger audited")
	node.waitFor("ledger audited")
	holds(c.t, c.does("audit"), "every invariant holds", "by mara: found by hand")
	holds(c.t, c.fails(exitFailed, "audit", "correct", workspace, "--reason", "again"), "no open finding for this subject")
	holds(c.t, c.does("log", "--json"), `"audit correct"`, "found by hand")
}
