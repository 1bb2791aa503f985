package admin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/listen"
)

// TestKnownHosts lets requests through that are for this listener, at every path.
func TestKnownHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *admin.Options) { o.Hosts = []string{"node-1.example", "2001:db8::1"} })
	_, port, err := net.SplitHostPort(r.server.Addr().String())
	effort.OK(t, err)
	ask := func(path, host string) (status int, body string) {
		t.Helper()
		c := effort.Must(net.Dial("tcp", r.server.Addr().String()))(t)
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, host, r.token)
		a := effort.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
		text, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(text)
	}
	for _, host := range []string{"127.0.0.1:" + port, "127.0.0.1", "localhost", "LOCALHOST:1", "localhost.", "[::1]:80",
		"[::1]", "127.9.9.9", "node-1.example", "Node-1.Example:8081", "[2001:db8::1]:8081"} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/v1/workspaces"} {
			sent(ask(path, host)).is(t, 200, path, "for", host)
		}
	}
	for _, host := range []string{"", "evil.example", "127.0.0.1.evil.example", "node-1.example.evil", "192.0.2.1",
		"localhost@evil.example", "0.0.0.0", "[::]", "node-1"} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz", "/v1/workspaces", "/"} {
			status, body := ask(path, host)
			effort.ErrorIf(t, status != 403 && !(status == 400 && strings.Contains(host, "@")) || status == 403 &&
				!strings.Contains(body, `"code":"unknown_host"`), "%s for %q: %d %s", path, host, status, body)
		}
	}
}

// TestTheAddressAConnectionCameTo is known, also where the listener is at all of them.
func TestTheAddressAConnectionCameTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *admin.Options) { o.Listen = "127.0.0.3:0" })
	sent(r.raw("GET", "/healthz", "", "")).is(t, 200, "at its own address")
}

func TestAdminTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile, trusted := effort.WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	p := effort.Must(listen.LoadPair(certFile, keyFile))(t)
	r := newRig(t, func(o *admin.Options) { o.TLS = p.Config() })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	a, err := client.Get("https://" + r.server.Addr().String() + "/healthz")
	effort.FatalIf(t, err != nil || a.StatusCode != 200 || a.ProtoMajor != 1, "%v, %v", a, err)
	_ = a.Body.Close()
}

// TestUnixSocket has mode 0660, takes the place of one that was left behind, and of no other file.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "sock") // a socket's path is short
	effort.OK(t, err)
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "admin.sock")
	left := effort.Must(net.Listen("unix", path))(t)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	r := newRig(t, func(o *admin.Options) { o.Listen = "unix:" + path })
	info := effort.Must(os.Stat(path))(t)
	effort.MustBe(t, info.Mode(), os.ModeSocket|0o660)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	a := effort.Must(client.Get("http://any.example/healthz"))(t)
	effort.MustBe(t, a.StatusCode, 200)
	_ = a.Body.Close()
	file := filepath.Join(folder, "file")
	effort.OK(t, os.WriteFile(file, []byte("mine"), 0o600))
	for _, taken := range []string{path, file} {
		o := r.options
		o.Listen = "unix:" + taken
		s := effort.Must(admin.New(o))(t)
		if err := s.Start(); err == nil {
			t.Errorf("%s is taken over", taken)
			_ = s.Stop(t.Context())
		}
	}
	effort.Is(t, string(effort.Must(os.ReadFile(file))(t)), "mine", "the file is")
}
