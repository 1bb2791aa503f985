package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/config/effort"
	"rollcall/http/listen/listentest"
)

// TestANodeWithTLS is reached by its commands over TLS and at a unix socket.
func TestANodeWithTLS(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "a whole node")
	c := newCLI(t)
	certFile, keyFile, _ := listentest.WriteCertificate(t, c.folder, time.Now().Add(time.Hour))
	socket := filepath.Join(os.TempDir(), "rollcall-"+filepath.Base(filepath.Dir(c.folder))+".sock")
	if len(socket) > 100 {
		socket = socket[:100]
	}
	_, api, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	c.environ = append([]string{"ROLLCALL_HTTP_LISTEN=127.0.0.1:" + api, "ROLLCALL_UPLOAD_LISTEN=" + freeAddress(t),
		"ROLLCALL_HTTP_TLS_CERT=" + certFile, "ROLLCALL_HTTP_TLS_KEY=" + keyFile, "ROLLCALL_ADMIN_LISTEN=unix:" + socket,
		"SSL_CERT_FILE=" + certFile}, hurried...)
	node := c.start("serve", "--dev")
	node.waitFor("rollcall verify examples/contacts.csv --api")
	var dev client.Tenant
	text, err := os.ReadFile(filepath.Join(c.folder, "rollcall-data", "dev.json"))
	if err == nil {
		err = json.Unmarshal(text, &dev)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.write("list.csv", "email\na@nobody.invalid\n")
	c.environ = append(c.environ, "ROLLCALL_KEY="+dev.Key)
	if code, stdout, stderr := c.run("verify", "list.csv", "--api", "https://127.0.0.1:"+api); code != exitDone {
		t.Errorf("verify over TLS: got code %d, %q and %q", code, stdout, stderr)
	}
	for _, args := range [][]string{{"workspace", "list"}, {"workspace", "list", "--admin", "unix:" + socket}} {
		if code, stdout, stderr := c.run(args...); code != exitDone || !strings.Contains(stdout, "dev") {
			t.Errorf("rollcall %q: got code %d, %q and %q", args, code, stdout, stderr)
		}
	}
	code, stdout, stderr := c.run("workspace", "list", "--admin", "unix:"+socket+".not")
	if code != exitFailed || !strings.Contains(stderr, "no node answers at unix:") {
		t.Errorf("no socket: got code %d, %q and %q", code, stdout, stderr)
	}
}

// freeAddress is a port of loopback that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(freePort(t)))
}
