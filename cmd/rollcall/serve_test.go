package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/config/effort/nettest"
	"rollcall/http/admin"
)

// portsGiven counts the ports of freePort.
var portsGiven atomic.Int64

// freePort returns a port that was free a moment ago, and never the same twice. The ports are below those of labs,
// those that the system gives out, and the defaults.
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

// startDev runs serve --dev on free ports and waits until it has printed what to try.
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
		holds(t, c.fails(exitFailed, "key", "revoke", name), "there is no good key")
	}
	c.asks(&keys, "key", "list", "--workspace", workspace)
	effort.ErrorIf(t, len(keys.Keys) != 1 || keys.Keys[0].Label != "t" || keys.Keys[0].RevokedAt == nil,
		"key list: got %+v, want one revoked key", keys.Keys)
	var report map[string]any
	c.asks(&report, "audit")
	effort.ErrorIf(t, fmt.Sprint(report["violations"]) != "[]", "audit: got %v", report)
	holds(t, c.fails(exitFailed, "workspace", "list", "--token", "wrong"), "refuses the token")
	second := c.fails(exitFailed, "serve") // in the same folder
	effort.Is(t, strings.Count(lastLines(second), "\n"), 1, second)
	node.terminate()
}

// TestANodeWithTLS: commands reach a node over TLS and at a unix socket.
func TestANodeWithTLS(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "a whole node")
	c := newCLI(t)
	certFile, keyFile, _ := nettest.WriteCertificate(t, c.folder, time.Now().Add(time.Hour))
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
	c.does("verify", "list.csv", "--api", "https://127.0.0.1:"+api)
	holds(t, c.does("workspace", "list"), "dev")
	holds(t, c.does("workspace", "list", "--admin", "unix:"+socket), "dev")
	holds(t, c.fails(exitFailed, "workspace", "list", "--admin", "unix:"+socket+".not"), "no node answers at unix:")
}

// freeAddress returns an address of loopback whose port was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(freePort(t)))
}

// TestANodeRefusesAFolderThatOthersWrite: the error is one line, and the node makes nothing in the folder.
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
