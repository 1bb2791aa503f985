package secure_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestStrangersAreCounted: nobody who comes to the port of actor traffic without a good certificate is
// overlooked, and the reasons say what to look for.
func TestStrangersAreCounted(t *testing.T) {
	r := newRig(t)
	at := r.first.system.Address()
	_, folder := r.mustIdentity(t, memberName)
	own, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert"), filepath.Join(folder, "key"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := newCA(t).Issue(memberName, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	hello := func(c *tls.Config) func(net.Conn) {
		c.NextProtos = []string{"h2"}
		return func(conn net.Conn) {
			_, _ = tls.Client(conn, c).Read(make([]byte, 1)) // the end, once it is refused
		}
	}
	trusting := &tls.Config{InsecureSkipVerify: true}
	for _, c := range []struct {
		name, reason string
		say          func(net.Conn)
	}{
		{"comes and goes", "unfinished", func(net.Conn) {}},
		{"breaks off", "unfinished", func(c net.Conn) { _, _ = c.Write([]byte{0x16, 3, 1}) }},
		{"speaks HTTP", "plaintext", func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }},
		{"speaks HTTP/2 in the clear", "plaintext", func(c net.Conn) { _, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }},
		{"shows no certificate", "certificate", hello(trusting.Clone())},
		{"shows one of another CA", "certificate", hello(&tls.Config{InsecureSkipVerify: true,
			Certificates: []tls.Certificate{foreign}})},
		{"does not take ours", "certificate", hello(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "node-1",
			Certificates: []tls.Certificate{own}})},
		{"knows only an old TLS", "handshake", hello(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{own}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			const metric = "rollcall_cluster_peers_refused_total"
			before := r.first.count(t, metric, c.reason)
			conn, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			c.say(conn)
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			deadline, tick := time.After(rigWait), time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for r.first.count(t, metric, c.reason) != before+1 {
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("%v were counted as %s, want 1", r.first.count(t, metric, c.reason)-before, c.reason)
				}
			}
		})
	}
}
