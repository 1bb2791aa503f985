package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/ledger"
)

// TestAuditIsReadOnATerminal: what is found stands with what to do, within 80 columns.
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

// TestANodeFindsByItselfThatItsBooksAreOff: the built binary audits, says so by
// metric and log, and the operator's command names the same.
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

// noNodeHere has a command look for the node of this machine where none listens, and then read its ledger. At the
// default address a node of somebody else may answer.
const noNodeHere = "ROLLCALL_ADMIN_LISTEN=127.0.0.1:1"

// spoilsTheBooks adds a credit to each account past the program.
func (c *cli) spoilsTheBooks() {
	c.t.Helper()
	path := filepath.Join(c.folder, "rollcall-data", "ledger.db")
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)") // the driver of package sqlstore
	if err == nil {
		_, err = db.Exec(`UPDATE workspaces SET granted = granted + 1, available = available + 1`)
		err = errors.Join(err, db.Close())
	}
	effort.OK(c.t, err)
}

// report gives the subject that an audit printed.
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

// correctsTheBooks sets right what was found about a workspace, as an operator would.
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
