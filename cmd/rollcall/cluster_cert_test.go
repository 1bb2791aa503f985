package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cluster/secure"
)

// certs runs `rollcall cluster cert` in this process and gives what it printed.
func certs(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := newClusterCert(nil)
	c.SilenceErrors, c.SilenceUsage = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func mustCerts(t *testing.T, args ...string) string {
	t.Helper()
	out, err := certs(t, args...)
	if err != nil {
		t.Fatalf("cluster cert %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// loadNode reads a node's files as a node does.
func loadNode(dir, name string) (*secure.Identity, error) {
	return secure.Load(filepath.Join(dir, "ca.crt"), filepath.Join(dir, name+".crt"),
		filepath.Join(dir, name+".key"), slog.New(slog.DiscardHandler))
}

func TestCertificatesAreMadeForNodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	out := mustCerts(t, "init", "--dir", dir, "--cluster", "mail")
	for _, want := range []string{"ca.crt", "ca.key", "cluster cert node NAME --dir " + dir} {
		if !strings.Contains(out, want) {
			t.Errorf("init does not say %q:\n%s", want, out)
		}
	}
	out = mustCerts(t, "node", "node-1.example.net", "--dir", dir)
	for _, want := range []string{"tls_ca_file = ", "tls_cert_file = ", "tls_key_file = ",
		"node-1.example.net.key"} {
		if !strings.Contains(out, want) {
			t.Errorf("node does not say %q:\n%s", want, out)
		}
	}
	for name, want := range map[string]fs.FileMode{"ca.crt": 0o644, "ca.key": 0o600,
		"node-1.example.net.crt": 0o644, "node-1.example.net.key": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", name, info.Mode().Perm(), want)
		}
	}
	i, err := loadNode(dir, "node-1.example.net")
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(i.Expires()); left < 364*24*time.Hour || left > 365*24*time.Hour {
		t.Errorf("valid for %s, want a year", left)
	}
	out = mustCerts(t, "show", filepath.Join(dir, "node-1.example.net.crt"))
	if !strings.Contains(out, "node-1.example.net") || !strings.Contains(out, "CA of mail") {
		t.Errorf("show says:\n%s", out)
	}
}

func TestCertificatesAsJSON(t *testing.T) {
	dir := t.TempDir()
	show := filepath.Join(dir, "a.crt")
	for _, c := range []struct {
		args []string
		want certView
	}{
		{[]string{"init", "--dir", dir}, certView{Name: "CA of rollcall", Issuer: "CA of rollcall", CA: true,
			Cert: filepath.Join(dir, "ca.crt"), Key: filepath.Join(dir, "ca.key")}},
		{[]string{"node", "a", "--dir", dir}, certView{Name: "a", Issuer: "CA of rollcall", Cert: show,
			Key: filepath.Join(dir, "a.key"), CAFile: filepath.Join(dir, "ca.crt")}},
		{[]string{"show", show}, certView{Name: "a", Issuer: "CA of rollcall", Cert: show}},
	} {
		var got certView
		if err := json.Unmarshal([]byte(mustCerts(t, append(c.args, "--json")...)), &got); err != nil {
			t.Fatal(err)
		}
		begins, err := time.Parse(time.RFC3339, got.Begins)
		if err != nil || time.Since(begins) < time.Hour || got.Expires <= got.Begins {
			t.Errorf("%v: valid from %s to %s", c.args, got.Begins, got.Expires)
		}
		got.Begins, got.Expires = "", ""
		if got != c.want {
			t.Errorf("%v: got %+v, want %+v", c.args, got, c.want)
		}
	}
}

func TestCertificatesAreNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	mustCerts(t, "init", "--dir", dir)
	mustCerts(t, "node", "a", "--dir", dir)
	read := func() string {
		var all string
		for _, name := range []string{"ca.crt", "ca.key", "a.crt", "a.key"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all += string(text)
		}
		return all
	}
	before := read()
	for _, missing := range []string{"", "a.crt", "a.key", "ca.crt", "ca.key"} {
		away := filepath.Join(dir, "away")
		if missing != "" {
			if err := os.Rename(filepath.Join(dir, missing), away); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := certs(t, "init", "--dir", dir); !errors.Is(err, fs.ErrExist) {
			t.Errorf("init without %q: %v", missing, err)
		}
		wantErr := fs.ErrExist
		if strings.HasPrefix(missing, "ca") {
			wantErr = fs.ErrNotExist
		}
		if _, err := certs(t, "node", "a", "--dir", dir); !errors.Is(err, wantErr) {
			t.Errorf("node without %q: %v, want %v", missing, err, wantErr)
		}
		if missing != "" {
			if err := os.Rename(away, filepath.Join(dir, missing)); err != nil {
				t.Fatal(err)
			}
		}
		if read() != before {
			t.Fatalf("without %q something was overwritten", missing)
		}
	}
}

func TestACertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	mustCerts(t, "init", "--dir", dir)
	mustCerts(t, "node", "a", "--dir", dir, "--days", "1")
	mustCerts(t, "node", "a", "--dir", dir, "--days", "10", "--renew")
	i, err := loadNode(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(i.Expires()); left < 9*24*time.Hour || left > 10*24*time.Hour {
		t.Errorf("valid for %s, want 10 days", left)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 4 {
		t.Errorf("%d files, %v; want 4", len(files), err)
	}
}

func TestCertificatesThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	mustCerts(t, "init", "--dir", dir)
	open := t.TempDir()
	mustCerts(t, "init", "--dir", open)
	if err := os.Chmod(filepath.Join(open, "ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		usage  bool
		inText string
	}{
		{"no command", nil, true, "needs a command"},
		{"no name", []string{"node", "--dir", dir}, true, "NAME is missing"},
		{"no node's name", []string{"node", "Node_1", "--dir", dir}, true, "node-1.example.net"},
		{"a path", []string{"node", "../a", "--dir", dir}, true, "cannot be a node's name"},
		{"the CA's name", []string{"node", "ca", "--dir", dir, "--renew"}, true, "cannot be a node's name"},
		{"no days", []string{"node", "a", "--dir", dir, "--days", "0"}, true, "1 to 3650"},
		{"longer than the CA", []string{"node", "a", "--dir", dir, "--days", "3651"}, true, "1 to 3650"},
		{"no CA", []string{"node", "a", "--dir", filepath.Join(dir, "none")}, false, "cluster cert init"},
		{"a CA key that all may read", []string{"node", "a", "--dir", open}, false, "chmod 600"},
		{"no file to show", []string{"show", filepath.Join(dir, "none")}, false, "no such file"},
		{"no certificate to show", []string{"show", filepath.Join(dir, "ca.key")}, false, "no certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := certs(t, c.args...)
			if err == nil || isUsage(err) != c.usage || !strings.Contains(err.Error(), c.inText) {
				t.Errorf("got %v, want usage %v and %q", err, c.usage, c.inText)
			}
		})
	}
}
