package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cluster/secure"
	"rollcall/config/effort"
	"rollcall/http/admin"
)

// canaryKey is a gossip key that must appear nowhere; canaryPrint is its fingerprint.
const (
	canaryKey   = "Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5MTI="
	canaryPrint = "e298bc69"
)

// twoRings are nodes in the middle of a change of keys: two keys on each ring.
func twoRings() []admin.KeyResult {
	known := trio().Members
	return []admin.KeyResult{
		{Node: known[0].Node, Name: "node-1", Keys: []string{"0a0a0a0a", canaryPrint}, Primary: "0a0a0a0a"},
		{Node: known[1].Node, Name: "node-2", Keys: []string{canaryPrint, "0a0a0a0a"}, Primary: canaryPrint},
	}
}

func TestKeysAreMadeInNewFiles(t *testing.T) {
	r := newClusterRig(t, trio())
	name := filepath.Join(t.TempDir(), "next.key")
	var made newKeyFileView
	text := r.must("cluster", "keys", "new", name, "--json")
	effort.OK(t, json.Unmarshal([]byte(text), &made))
	key, err := readKey(name, nil)
	effort.Lacks(t, text, key, "the key itself")
	info, statErr := os.Stat(name)
	effort.ErrorIf(t, err != nil || statErr != nil || info.Mode().Perm() != 0o600 || len(key) != 44,
		"the file has a key of %d characters, %v, %v", len(key), err, statErr)
	if print, err := fingerprintOf(name); err != nil || print != made.Fingerprint || made.File != name {
		t.Errorf("made %+v, and the file's fingerprint is %s, %v", made, print, err)
	}
	r.refused("nothing is overwritten", "cluster", "keys", "new", name)
	effort.Is(t, effort.Must(readKey(name, nil))(t), key, "the key was overwritten")
}

// TestKeysOfACluster shows and changes keys by file and by fingerprint. No output, error or log contains a key
// itself.
func TestKeysOfACluster(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		effort.OK(t, errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)))
		return path
	}
	one := file("one.key", "# the next one\n\n"+canaryKey+"\n", 0o600)
	two := file("two.key", canaryKey+"\n"+strings.Repeat("A", 43)+"=\n", 0o600)
	open := file("open.key", canaryKey+"\n", 0o644)
	none := file("none.key", "# nothing\n", 0o600)
	bad := file("bad.key", canaryKey[:20]+"\n", 0o600)
	none2 := filepath.Join(folder, "nothing.key")
	r := newClusterRig(t, trio())
	r.cluster.Rings = twoRings()
	seen := ""
	for _, c := range []struct {
		name  string
		stdin string
		args  []string
		asked string // op, fingerprint, length of the key
		want  string // part of the output or of the error
	}{
		{"list", "", []string{"list"}, "list  0", "node-1  done    0a0a0a0a  e298bc69\n"},
		{"add a file", "", []string{"add", one}, "add e298bc69 32", "Next: rollcall cluster keys use e298bc69"},
		{"add standard input", canaryKey + "\n", []string{"add", "-"}, "add e298bc69 32", "done"},
		{"add as JSON", "", []string{"add", one, "--json"}, "add e298bc69 32", `{"fingerprint":"e298bc69","results":[{`},
		{"use a fingerprint", "", []string{"use", "E298BC69"}, "list  0; use e298bc69 0",
			"Next, when every node uses e298bc69"},
		{"use a file", "", []string{"use", one}, "list  0; use e298bc69 0", "done"},
		{"remove what is used", "", []string{"remove", one}, "list  0", "used by: node-2"},
		{"use what none has", "", []string{"use", "00000000"}, "list  0", "no node has a key with this fingerprint"},
		{"no file", "", []string{"add", none2}, "", "there is no file " + none2 + ": check the path"},
		{"neither", "", []string{"use", "next"}, "", "next is neither a fingerprint (8 hex digits) nor a file"},
		{"a file of two", "", []string{"add", two}, "", "two.key has 2 keys"},
		{"one of two", "", []string{"use", two}, "", "two.key has 2 keys"},
		{"two on standard input", canaryKey + "\n" + canaryKey + "\n", []string{"add", "-"}, "", "standard input has 2 keys"},
		{"no key on standard input", "", []string{"add", "-"}, "", "standard input has no key"},
		{"no key in the file", "", []string{"add", none}, "", "it has no key"},
		{"a file for all to read", "", []string{"add", open}, "", "chmod 600"},
		{"half a key", "", []string{"add", bad}, "", "not a gossip key"},
		{"half a key on standard input", canaryKey[:20] + "\n", []string{"add", "-"}, "", "add requires a key"},
		{"a key as argument", "", []string{"add", canaryKey}, "", "this is a key itself"},
		{"a key as second argument", "", []string{"use", "0a0a0a0a", canaryKey}, "", "this is a key itself"},
		{"a key to remove", "", []string{"remove", canaryKey}, "", "this is a key itself"},
		{"a key as command", "", []string{canaryKey}, "", "this is a key itself"},
		{"a key as name of a new file", "", []string{"new", canaryKey}, "", "this is a key itself"},
		{"half a key as second argument", "", []string{"add", one, canaryKey[:20]}, "", "one argument is enough: FILE"},
		{"nothing", "", []string{"use"}, "", "FINGERPRINT|FILE is missing"},
	} {
		r.stdin = c.stdin
		stdout, stderr, err := r.run(append([]string{"cluster", "keys"}, c.args...)...)
		if err != nil {
			stderr += err.Error()
		}
		seen += stdout + stderr
		if asked := r.cluster.Calls(); asked != c.asked || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: got %q and %s%s, want %q and %s", c.name, asked, stdout, stderr, c.asked, c.want)
		}
	}
	seen += r.log.String()
	effort.ErrorIf(t, strings.Contains(seen, canaryKey[:20]), "the key is seen in %s", seen)
	effort.Has(t, r.log.String(), "gossip keys changed", "the log was not looked at")
}

// TestKeysThatNotEveryNodeChanged: the table and the exit code show which nodes did not change.
func TestKeysThatNotEveryNodeChanged(t *testing.T) {
	r := newClusterRig(t, trio())
	r.cluster.Rings = twoRings()
	r.cluster.Rings[1].Error = "its gossip key file cannot be written: read-only file system"
	r.cluster.Rings = append(r.cluster.Rings, admin.KeyResult{Node: trio().Members[2].Node, Name: "node-3",
		Error: "it did not answer in 5 s"})
	const want = `NODE      NAME    RESULT  USES      READS TOO
5f2c91aa  node-1  done    0a0a0a0a  e298bc69
a1000000  node-2  FAILED  e298bc69  0a0a0a0a
b2000000  node-3  FAILED  -         -

node-2 (a1000000): its gossip key file cannot be written: read-only file system

node-3 (b2000000): it did not answer in 5 s
`
	r.stdin = canaryKey
	stdout, _, err := r.run("cluster", "keys", "add", "-")
	effort.ErrorIf(t, stdout != want || !errors.Is(err, errKeysPartly) ||
		!strings.Contains(err.Error(), "2 of 3 did not") || !strings.Contains(err.Error(), "do not use the key yet"),
		"got %v and\n%s\nwant\n%s", err, stdout, want)
	stdout, _, err = r.run("cluster", "keys", "add", "-", "--json")
	var got admin.KeyAnswer
	jsonErr := json.Unmarshal([]byte(stdout), &got)
	effort.ErrorIf(t, jsonErr != nil || len(got.Results) != 3 || got.Results[2].Error == "" ||
		!errors.Is(err, errKeysPartly), "as JSON: %v, %v and %s", jsonErr, err, stdout)
}

// loadNode reads a node's files as a node does.
func loadNode(dir, name string) (*secure.Identity, error) {
	return secure.Load(filepath.Join(dir, "ca.crt"), filepath.Join(dir, name+".crt"),
		filepath.Join(dir, name+".key"), slog.New(slog.DiscardHandler))
}

func TestCertificatesAreMadeForNodes(t *testing.T) {
	d, dir := console{t: t, toFile: true}, filepath.Join(t.TempDir(), "certs")
	out := d.must("cluster", "cert", "init", "--dir", dir, "--cluster", "mail")
	holds(t, out, "ca.crt", "ca.key", "cluster cert node NAME --dir "+dir)
	out = d.must("cluster", "cert", "node", "node-1.example.net", "--dir", dir)
	holds(t, out, "tls_ca_file = ", "tls_cert_file = ", "tls_key_file = ", "node-1.example.net.key")
	for name, want := range map[string]fs.FileMode{"ca.crt": 0o644, "ca.key": 0o600,
		"node-1.example.net.crt": 0o644, "node-1.example.net.key": 0o600} {
		info := effort.Must(os.Stat(filepath.Join(dir, name)))(t)
		effort.Is(t, info.Mode().Perm(), want, fmt.Sprintf("%s has mode", name))
	}
	i := effort.Must(loadNode(dir, "node-1.example.net"))(t)
	left := time.Until(i.Expires())
	effort.ErrorIf(t, left < 364*24*time.Hour || left > 365*24*time.Hour, "valid for %s, want a year", left)
	out = d.must("cluster", "cert", "show", filepath.Join(dir, "node-1.example.net.crt"))
	effort.Has(t, out, "node-1.example.net", "show says")
	effort.Has(t, out, "CA of mail", "show says")
	d.refused("no certificate", "cluster", "cert", "show", filepath.Join(dir, "ca.key"))
}

func TestCertificatesAsJSON(t *testing.T) {
	d, dir := console{t: t, toFile: true}, t.TempDir()
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
		d.asks(&got, append([]string{"cluster", "cert"}, c.args...)...)
		begins, err := time.Parse(time.RFC3339, got.Begins)
		effort.ErrorIf(t, err != nil || time.Since(begins) < time.Hour || got.Expires <= got.Begins,
			"%v: valid from %s to %s", c.args, got.Begins, got.Expires)
		got.Begins, got.Expires = "", ""
		effort.Is(t, got, c.want, c.args)
	}
}

func TestCertificatesAreNotOverwritten(t *testing.T) {
	d, dir := console{t: t, toFile: true}, t.TempDir()
	d.must("cluster", "cert", "init", "--dir", dir)
	d.must("cluster", "cert", "node", "a", "--dir", dir)
	read := func() string {
		var all string
		for _, name := range []string{"ca.crt", "ca.key", "a.crt", "a.key"} {
			text := effort.Must(os.ReadFile(filepath.Join(dir, name)))(t)
			all += string(text)
		}
		return all
	}
	before := read()
	for _, missing := range []string{"", "a.crt", "a.key", "ca.crt", "ca.key"} {
		away := filepath.Join(dir, "away")
		if missing != "" {
			effort.OK(t, os.Rename(filepath.Join(dir, missing), away))
		}
		effort.Denied(d.said("cluster", "cert", "init", "--dir", dir))(t, fs.ErrExist, "init without", missing)
		wantErr := fs.ErrExist
		if strings.HasPrefix(missing, "ca") {
			wantErr = fs.ErrNotExist
		}
		effort.Denied(d.said("cluster", "cert", "node", "a", "--dir", dir))(t, wantErr, "node without", missing)
		if missing != "" {
			effort.OK(t, os.Rename(away, filepath.Join(dir, missing)))
		}
		effort.MustBe(t, read(), before, "without", missing, "something was overwritten")
	}
}

func TestACertificateIsRenewed(t *testing.T) {
	d, dir := console{t: t, toFile: true}, t.TempDir()
	d.must("cluster", "cert", "init", "--dir", dir)
	d.must("cluster", "cert", "node", "a", "--dir", dir, "--days", "1")
	d.must("cluster", "cert", "node", "a", "--dir", dir, "--days", "10", "--renew")
	i := effort.Must(loadNode(dir, "a"))(t)
	left := time.Until(i.Expires())
	effort.ErrorIf(t, left < 9*24*time.Hour || left > 10*24*time.Hour, "valid for %s, want 10 days", left)
	effort.Is(t, len(effort.Must(os.ReadDir(dir))(t)), 4, "files")
}
