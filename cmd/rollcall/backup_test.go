package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rollcall/cmd/rollcall/client"
	"rollcall/http/api"
	"rollcall/ledger/sqlstore"
)

// TestRestoredBackupGoesOn takes a backup of a node in the middle of a file,
// loses the node and its ledger, puts the backup in its place as
// docs/operators/operations.md says, and sees the file through: each address has one
// outcome, the credits add up.
func TestRestoredBackupGoesOn(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	node, service := startDev(c)
	var tenant client.Tenant
	text, err := os.ReadFile(filepath.Join(c.folder, "rollcall-data", "dev.json"))
	if err == nil {
		err = json.Unmarshal(text, &tenant)
	}
	if err != nil {
		t.Fatal(err)
	}
	list := "email\n"
	for i := range 20 {
		list += fmt.Sprintf("anna%d@one-clean.test\n", i) // 5 a second, so 4 s
	}
	c.write("list.csv", list)
	c.environ = append(c.environ, "ROLLCALL_KEY="+tenant.Key)
	verify := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	verify.waitFor("verifying")
	var made backupView
	c.ask(&made, "backup", "copy.db", "--json")
	info, err := os.Stat(filepath.Join(c.folder, "copy.db"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes || made.File != "copy.db" {
		t.Fatalf("got %+v and %v, %v", made, info, err)
	}
	if code, _, stderr := c.run("backup", "copy.db"); code != exitFailed ||
		!strings.Contains(stderr, "there is a file of this name") {
		t.Errorf("over a file: got code %d and %s", code, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(c.folder, "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	node.stop(syscall.SIGKILL)
	for _, name := range []string{"ledger.db", "ledger.db-wal", "ledger.db-shm"} {
		_ = os.Remove(filepath.Join(c.folder, "rollcall-data", name))
	}
	err = os.Rename(filepath.Join(c.folder, "copy.db"), filepath.Join(c.folder, "rollcall-data", "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	alone := &cli{t: t, folder: c.folder, environ: []string{noNodeHere}} // knows of no node
	code, stdout, stderr := alone.run("audit")
	if code != exitDone || !strings.Contains(stdout, "every invariant holds") {
		t.Errorf("audit of the restored file: got code %d, %s%s", code, stdout, stderr)
	}
	node = c.start("serve", "--dev")
	node.waitFor("rollcall verify examples/contacts.csv --api")
	if err := <-verify.ended; err != nil {
		t.Fatalf("verify: %v", err)
	}
	results, err := os.ReadFile(filepath.Join(c.folder, "r.csv"))
	if n := strings.Count(string(results), ",valid,"); err != nil || n != 20 {
		t.Errorf("got %d valid addresses and %v, want 20", n, err)
	}
	c.addUp(tenant.Workspace, client.NewAPI(service, tenant.Key, func(string) {}))
	if code, stdout, _ := c.run("audit"); code != exitDone {
		t.Errorf("audit at the end: got code %d and %s", code, stdout)
	}
	node.stop(syscall.SIGTERM)
	// Without a node the command copies the file itself, which it then does not change.
	code, stdout, stderr = alone.run("backup", "second.db")
	if code != exitDone || !strings.Contains(stdout, " bytes in ") {
		t.Errorf("without a node: got code %d and %s%s", code, stdout, stderr)
	}
}

// ask runs a command that prints JSON.
func (c *cli) ask(into any, args ...string) {
	c.t.Helper()
	code, stdout, stderr := c.run(args...)
	if code != exitDone {
		c.t.Fatalf("rollcall %q: got code %d and %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), into); err != nil {
		c.t.Fatalf("rollcall %q: %v in %s", args, err, stdout)
	}
}

// addUp reads the entries of the one verification of a workspace with 20
// addresses, in both forms.
func (c *cli) addUp(workspace string, customer *client.API) {
	c.t.Helper()
	var report struct{ Settlements int64 }
	c.ask(&report, "audit", "--json")
	var page api.History
	_, err := customer.AskJSON(c.t.Context(), "GET", "/v1/verifications", nil, &page)
	if err != nil || len(page.Verifications) != 1 {
		c.t.Fatalf("history: %+v, %v", page, err)
	}
	id := page.Verifications[0].ID
	var s statementView
	c.ask(&s, "credits", "show", "--workspace", workspace, "--verification", id, "--json")
	if s.Held != 20 || s.Charged != 20 || s.Released != 0 || s.StillHeld != 0 || s.Next != nil ||
		s.Count != report.Settlements+1 || int64(len(s.Entries)) != s.Count ||
		s.Entries[len(s.Entries)-1].Kind != "hold" {
		c.t.Errorf("entries: %+v with %d settlements", s, report.Settlements)
	}
	code, stdout, stderr := c.run("credits", "show", "--workspace", workspace, "--verification", id[:8])
	if code != exitDone || !strings.Contains(stdout, "held 20 = charged 20 + released 0 + still held 0") {
		c.t.Errorf("entries: got code %d, %s%s", code, stdout, stderr)
	}
}

// TestABackupReplacesNothing, neither a file that was there nor one that came
// while it was made, and leaves nothing of its own behind.
func TestABackupReplacesNothing(t *testing.T) {
	folder := t.TempDir()
	part, path := filepath.Join(folder, "b.part"), filepath.Join(folder, "b")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(part, "new")
	if err := nameOnce(part, path); err != nil {
		t.Fatal(err)
	}
	write(part, "newer")
	if err := nameOnce(part, path); !errors.Is(err, sqlstore.ErrBackupExists) {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("the first one holds %q, %v", text, err)
	}
}
