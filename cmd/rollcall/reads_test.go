package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestANamedLedgerIsReadWhoeverRuns: a copy whose books are off is told as such beside a node whose books are in order.
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
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := c.run("backup", copied); code != exitDone || !strings.HasPrefix(stdout,
		"copied the node at http://"+admin+"\n") {
		t.Fatalf("backup: code %d, %s%s", code, stdout, stderr)
	}
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
		{"both", nil, []string{"--admin", "http://" + admin, "--ledger", "sqlite:" + copied}, "", exitUsage},
		{"both by the environment", []string{"ROLLCALL_ADMIN=http://" + admin, "ROLLCALL_LEDGER_URL=sqlite:" + copied}, nil,
			"", exitUsage},
	} {
		c.environ = append(plain[:len(plain):len(plain)], one.environ...)
		code, stdout, stderr := c.run(append([]string{"audit"}, one.args...)...)
		if code != one.code || !strings.HasPrefix(stdout, one.begins) || (code == exitUsage) != strings.Contains(stderr,
			"give only one of them") {
			t.Errorf("%s: code %d, want %d\n%s%s", one.name, code, one.code, stdout, stderr)
		}
	}
	if code := node.stop(syscall.SIGTERM); code != exitDone {
		t.Errorf("SIGTERM: got code %d", code)
	}
}

// TestTheInstalledNodeIsFound without an environment, and not where the environment names another one.
func TestTheInstalledNodeIsFound(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	installed := filepath.Join(folder, "rollcall.toml")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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
		if err != nil || client.Base != one.base || client.Token != one.token {
			t.Errorf("%v: got %+v, %v", one.environ, client, err)
		}
	}
	_, err := (&adminFlags{url: "http://127.0.0.1:97", config: installed}).client()
	if !isUsage(err) {
		t.Errorf("a node named twice: %v", err)
	}
}

// TestALedgerIsNamedWithoutItsSecrets.
func TestALedgerIsNamedWithoutItsSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:/var/lib/rollcall/ledger.db":                                 "sqlite:/var/lib/rollcall/ledger.db",
		"postgresql://node:secret@db1:26257,db2:26257/book?sslpassword=deep": "postgresql://node@db1:26257,db2:26257/book",
		"postgresql:///book?host=/run/postgresql&password=secret":            "postgresql:///book?host=/run/postgresql",
		"postgres://node:sec ret@x/y":                                        "on a server",
	} {
		if got := ledgerName(url); got != want || strings.Contains(got, "secret") {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
}
