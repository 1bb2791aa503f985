package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/http/listen/listentest"
)

// TestCertificatesAreFollowed: a new pair is served without a restart, and one that can't
// be used is logged and leaves the one before in force.
func TestCertificatesAreFollowed(t *testing.T) {
	t.Parallel()
	const endsMetric = "rollcall_tls_certificate_not_after_timestamp_seconds"
	folder, registry, logged := t.TempDir(), prometheus.NewRegistry(), make(chan string, 100)
	first, second := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	certFile, keyFile, _ := listentest.WriteCertificate(t, folder, first)
	certs := newCertificates(registry, slog.New(slog.NewTextHandler(eachLine(logged), nil)))
	settings, stop, err := certs.follow(t.Context(), "admin", certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", settings)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	served := func() time.Time {
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].NotAfter
	}
	want := func(what string, end time.Time, used float64) {
		t.Helper()
		if got := served(); got.Unix() != end.Unix() {
			t.Errorf("%s: served until %v, want %v", what, got, end)
		}
		if got := gaugeOf(t, registry, endsMetric); got != float64(end.Unix()) {
			t.Errorf("%s: the metric says %v, want %v", what, got, end.Unix())
		}
		if got := gaugeOf(t, registry, "rollcall_tls_certificate_used"); got != used {
			t.Errorf("%s: used is %v, want %v", what, got, used)
		}
	}
	waitFor := func(text string) {
		t.Helper()
		for line := range logged {
			if strings.Contains(line, text) {
				return
			}
		}
	}
	want("at start", first, 1)
	if err := os.WriteFile(certFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor("new certificate refused")
	want("nonsense", first, 0)
	listentest.WriteCertificate(t, folder, second)
	waitFor("new certificate in force")
	want("a good one", second, 1)
	listentest.WriteCertificate(t, folder, time.Now().Add(-time.Hour))
	waitFor("not valid now")
	want("one that has ended", second, 0)
	if err := stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestANodeWithTLS is reached by its commands over TLS and at a unix socket.
func TestANodeWithTLS(t *testing.T) {
	t.Parallel()
	aWholeNode(t)
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
	var dev tenant
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
