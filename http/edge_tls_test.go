package http_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	httpd "rollcall/http"
	"rollcall/http/listen/listentest"
)

// TestTLS serves the API over TLS 1.2 and 1.3 and HTTP/1.1, and nothing older or newer.
func TestTLS(t *testing.T) {
	t.Parallel()
	settings, trusted := listentest.Pair(t)
	e := newEdge(t, func(o *httpd.Options) {
		trusting(t, "127.0.0.1")(o)
		o.TLS = settings
	})
	at := e.server.Addr().String()
	good := "GET /v1/credits HTTP/1.1\r\nHost: a\r\nX-API-Key: " + e.key + "\r\n\r\n"
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, head := range []string{"", listentest.ProxyHeader("192.0.2.1")} {
			raw, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(raw, head)
			c := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: "localhost", MinVersion: version,
				MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}})
			defer c.Close()
			if a := listentest.Ask(t, c, good); a.StatusCode != 200 {
				t.Errorf("version %x: %d", version, a.StatusCode)
			}
			if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
				t.Errorf("version %x: protocol %q", version, p)
			}
		}
	}
	if c, err := tls.Dial("tcp", at, &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS10,
		MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
		_ = c.Close()
	}
	for name, text := range map[string]string{"no TLS": good,
		"a malformed PROXY header": listentest.ProxyHeader("192.0.2.1")[:13] +
			"\x12\x00\x00" + good} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(listentest.Patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		if got, _ := io.ReadAll(c); len(got) > 7 { // an alert, or nothing
			t.Errorf("%s: answered %q", name, got)
		}
	}
}

// TestLimitsBehindTLS go by the address that a PROXY header before the handshake has.
func TestLimitsBehindTLS(t *testing.T) {
	t.Parallel()
	settings, trusted := listentest.Pair(t)
	e := newEdge(t, func(o *httpd.Options) {
		trusting(t, "127.0.0.1")(o)
		o.TLS = settings
	})
	for i, want := range []struct {
		client string
		status int
	}{{"192.0.2.1", 401}, {"192.0.2.1", 401}, {"192.0.2.1", 429}, {"192.0.2.2", 401}} {
		raw, err := net.Dial("tcp", e.server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(raw, listentest.ProxyHeader(want.client))
		c := tls.Client(raw, &tls.Config{RootCAs: trusted, ServerName: "localhost"})
		defer c.Close()
		if a := listentest.Ask(t, c, badKey("")); a.StatusCode != want.status {
			t.Errorf("request %d of %s: %d, want %d", i+1, want.client, a.StatusCode, want.status)
		}
	}
}
