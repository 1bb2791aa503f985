package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/admin"
)

// portsGiven counts the ports of freePort.
var portsGiven atomic.Int64

// freePort gives a port that was free a moment ago, and never the same twice. It
// lies below those of labs, of whoever asks the system for any, and of the defaults.
func freePort(t *testing.T) int {
	t.Helper()
	var err error
	for range 100 {
		port := 5_000 + os.Getpid()%2_700 + int(portsGiven.Add(1))
		l, failed := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if failed == nil {
			_ = l.Close()
			return port
		}
		err = failed
	}
	t.Fatal(err)
	return 0
}

// startDev starts serve --dev on free ports and waits until it has said what to try.
func startDev(c *cli, more ...string) (b *background, api string) {
	c.t.Helper()
	http, upload, admin := freePort(c.t), freePort(c.t), freePort(c.t)
	c.environ = []string{
		fmt.Sprintf("ROLLCALL_HTTP_LISTEN=127.0.0.1:%d", http),
		fmt.Sprintf("ROLLCALL_UPLOAD_LISTEN=127.0.0.1:%d", upload),
		fmt.Sprintf("ROLLCALL_ADMIN_LISTEN=127.0.0.1:%d", admin),
		fmt.Sprintf("ROLLCALL_ADMIN=http://127.0.0.1:%d", admin),
	}
	c.environ = append(append(c.environ, hurried...), more...)
	b = c.start("serve", "--dev")
	b.waitFor("rollcall verify examples/contacts.csv --api")
	return b, fmt.Sprintf("http://127.0.0.1:%d", http)
}

func TestOperatorsCommandsAgainstANode(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	node, _ := startDev(c)
	var made, balance, key map[string]any
	c.asks(&made, "workspace", "create", "acme")
	workspace, _ := made["id"].(string)
	effort.ErrorIf(t, len(made) != 2 || made["name"] != "acme" || workspace == "",
		"workspace create: got %v, want id and name", made)
	c.asks(&balance, "credits", "grant", "--workspace", workspace, "500", "--reason", "test")
	effort.Is(t, fmt.Sprint(balance), "map[available:500 granted:500 held:0 spent:0]", "credits grant", balance)
	c.asks(&balance, "credits", "show", "--workspace", "ACME")
	effort.Is(t, fmt.Sprint(balance), "map[available:500 granted:500 held:0 spent:0]", "credits show", balance)
	c.asks(&key, "key", "create", "--workspace", workspace, "--label", "t")
	text, _ := key["key"].(string)
	id, _ := key["id"].(string)
	effort.ErrorIf(t, len(key) != 2 || !strings.HasPrefix(text, "rc_"+id+"_"),
		"key create: got %d fields, want id and key", len(key))
	var keys struct{ Keys []admin.Key }
	c.asks(&map[string]any{}, "key", "revoke", id[:8])
	for _, name := range []string{"t", id[:8], "nobody"} {
		code, _, said := c.run("key", "revoke", name)
		effort.ErrorIf(t, code != exitFailed || !strings.Contains(said, "there is no good key"),
			"key revoke %s: got code %d and %q", name, code, said)
	}
	c.asks(&keys, "key", "list", "--workspace", workspace)
	effort.ErrorIf(t, len(keys.Keys) != 1 || keys.Keys[0].Label != "t" || keys.Keys[0].RevokedAt == nil,
		"key list: got %+v, want one revoked key", keys.Keys)
	var report map[string]any
	c.asks(&report, "audit")
	effort.ErrorIf(t, fmt.Sprint(report["violations"]) != "[]", "audit: got %v", report)
	code, _, stderr := c.run("workspace", "list", "--token", "wrong")
	effort.ErrorIf(t, code != exitFailed || !strings.Contains(stderr, "refuses the token"),
		"wrong token: got code %d and %q", code, stderr)
	if code, _, stderr := c.run("serve"); code != exitFailed || strings.Count(lastLines(stderr), "\n") != 1 {
		t.Errorf("a second node in the same folder: got code %d and %q", code, stderr)
	}
	node.terminate()
}

// TestReadmeTour runs the lines of the README's tour.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	out := tour(t, "README.md", "tour")
	for _, want := range []string{
		`{"credits":1000000}`, `"status":"uploading"`, "308\n", "ange: bytes=0-99", "200\n", "Retry-After: ",
		"email,result,message,checked_at", `"next_cursor":null`, `"status":"completed`,
		`"invalid_api_key"`, "openapi: ", "OUTCOME", "every invariant holds",
	} {
		effort.Has(t, out, want, "the tour")
	}
}

// tour runs the lines of a document between two marks in one shell, one after the other, against a node with the lab,
// and stops at the first that fails. Ports and binary are the test's. It gives what they show.
func tour(t *testing.T, document, mark string) string {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the lines are not run: there is no bash")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the lines are not run: there is no curl")
	}
	text := effort.Must(os.ReadFile(filepath.Join(HouseRoot, document)))(t)
	_, marked, begun := strings.Cut(string(text), "<!-- "+mark+":")
	marked, _, ended := strings.Cut(marked, "<!-- "+mark+" end -->")
	lines := ""
	for _, block := range strings.Split(marked, "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		lines += block
	}
	effort.FatalIf(t, !begun || !ended || strings.Count(lines, "\n") < 10, "%s has no %s", document, mark)
	c := newCLI(t)
	name := effort.Must(binary())(t)
	for link, target := range map[string]string{"rollcall": name, "examples": filepath.Dir(example(t,
		"contacts.csv"))} {
		effort.OK(t, os.Symlink(target, filepath.Join(c.folder, link)))
	}
	_, api := startDev(c)
	// An override of half a minute is waited for; a quarter of it is as good.
	lines = strings.NewReplacer("http://127.0.0.1:8080", api, "--for 30s", "--for 12s").Replace(lines)
	c.write("tour.sh", "set -o pipefail\nfail() { echo \"line failed: $BASH_COMMAND\" >&2; exit 1; }\ntrap "+
		"fail ERR\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+lines) // what it began in the background ends with it
	script := exec.CommandContext(t.Context(), shell, "tour.sh")
	script.Dir, script.Env = c.folder, append(os.Environ(), c.environ...)
	script.WaitDelay = time.Second
	out, err := script.CombinedOutput()
	effort.OK(t, err, out)
	return string(out)
}

// TestAnEveningFromTheDocs runs the lines of the guide to throttles: why a file is slow, half
// the rate of a receiver for a while, a candidate tried out, and the override's end.
func TestAnEveningFromTheDocs(t *testing.T) {
	t.Parallel()
	out := tour(t, "docs/operators/receivers.md", "evening")
	holds(t, out, "400 addresses", "an hour at present", "FIELD ", "built in", "150/min",
		"postmaster asked us to go slower", "override", "candidate.toml can be used", "evening-clean.test", "throttle set")
	if last := out[strings.LastIndex(out, "rcpt_rate "):]; strings.Contains(last[:strings.Index(last, "\n")], "override") {
		t.Errorf("the override did not end:\n%s", out)
	}
}

// TestANodeWithTLS is reached by its commands over TLS and at a unix socket.
func TestANodeWithTLS(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "a whole node")
	c := newCLI(t)
	certFile, keyFile, _ := effort.WriteCertificate(t, c.folder, time.Now().Add(time.Hour))
	socket := filepath.Join(os.TempDir(), "rollcall-"+filepath.Base(filepath.Dir(c.folder))+".sock")
	if len(socket) > 100 {
		socket = socket[:100]
	}
	_, api, err := net.SplitHostPort(freeAddress(t))
	effort.OK(t, err)
	c.environ = append([]string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:" + api, "ROLLCALL_UPLOAD_LISTEN=" + freeAddress(t),
		"ROLLCALL_HTTP_TLS_CERT=" + certFile, "ROLLCALL_HTTP_TLS_KEY=" + keyFile, "ROLLCALL_ADMIN_LISTEN=unix:" + socket,
		"SSL_CERT_FILE=" + certFile}, hurried...)
	node := c.start("serve", "--dev")
	node.waitFor("rollcall verify examples/contacts.csv --api")
	c.write("list.csv", "email\na@nobody.invalid\n")
	c.environ = append(c.environ, "ROLLCALL_KEY="+c.dev().Key)
	if code, stdout, stderr := c.run("verify", "list.csv", "--api", "https://127.0.0.1:"+api); code != exitDone {
		t.Errorf("verify over TLS: got code %d, %q and %q", code, stdout, stderr)
	}
	for _, args := range [][]string{{"workspace", "list"}, {"workspace", "list", "--admin", "unix:" + socket}} {
		if code, stdout, stderr := c.run(args...); code != exitDone || !strings.Contains(stdout, "dev") {
			t.Errorf("rollcall %q: got code %d, %q and %q", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := c.run("workspace", "list", "--admin", "unix:"+socket+".not")
	effort.Is(t, code, exitFailed, "no socket", stdout)
	effort.Has(t, stderr, "no node answers at unix:", "no socket")
}

// freeAddress is a port of loopback that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(freePort(t)))
}

// TestANodeRefusesAFolderThatOthersWrite in one line, before it makes anything there.
func TestANodeRefusesAFolderThatOthersWrite(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	folder := filepath.Join(c.folder, "rollcall-data")
	effort.OK(t, os.Mkdir(folder, 0o700))
	effort.OK(t, os.Chmod(folder, 0o775))
	c.environ = []string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:0", "ROLLCALL_UPLOAD_LISTEN=127.0.0.1:0",
		"ROLLCALL_ADMIN_LISTEN=127.0.0.1:0"}
	code, _, stderr := c.run("serve")
	made, err := os.ReadDir(folder)
	effort.ErrorIf(t, code != exitFailed || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, "has mode 0775; run: chmod go-w ") || err != nil || len(made) > 0,
		"got code %d and %q; made %v, %v", code, stderr, made, err)
}
