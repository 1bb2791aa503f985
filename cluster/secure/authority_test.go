package secure_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/cluster/secure"
	"rollcall/config/effort"
)

func TestANodeCertificateSaysOnlyWhatItMust(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ca := effort.Must(secure.NewAuthority("mail", now, secure.AuthorityValidity))(t)
	again := effort.Must(secure.ReadAuthority(ca.Pair()))(t)
	pair := effort.Must(again.Issue("node-1", now, secure.NodeValidity))(t)
	root := effort.Must(secure.ReadCertificate(ca.Pair().Cert))(t)
	c := effort.Must(secure.ReadCertificate(pair.Cert))(t)
	effort.ErrIs(t, c.CheckSignatureFrom(root), nil, "the CA's signature")
	effort.ErrorIf(t, !slices.Equal(c.DNSNames, []string{"node-1"}) || len(c.IPAddresses) != 0 || c.IsCA,
		"names %v, addresses %v, CA %v", c.DNSNames, c.IPAddresses, c.IsCA)
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	effort.Equal(t, c.ExtKeyUsage, uses)
	effort.ErrorIf(t, !c.NotBefore.Equal(now.Add(-time.Hour)) || !c.NotAfter.Equal(now.Add(secure.NodeValidity)),
		"valid from %s to %s", c.NotBefore, c.NotAfter)
	effort.ErrorIf(t, !root.IsCA || !root.MaxPathLenZero || root.Subject.CommonName != "CA of mail",
		"CA %v, path length zero %v, subject %s", root.IsCA, root.MaxPathLenZero, root.Subject)
}

func TestNamesAndEndsThatAreIssued(t *testing.T) {
	now := time.Now()
	ca := effort.Must(secure.NewAuthority("mail", now, 24*time.Hour))(t)
	effort.Denied(ca.Issue("no name", now, time.Hour))(t, secure.ErrName, "a name that is none")
	effort.Denied(ca.Issue("a", now, 25*time.Hour))(t, secure.ErrCertificate, "an end after the CA's")
	name := strings.Repeat("long.", 15) + "name" // longer than a common name may be
	pair := effort.Must(ca.Issue(name, now, time.Hour))(t)
	effort.Is(t, effort.Must(secure.ReadCertificate(pair.Cert))(t).DNSNames[0], name, "certificate")
}

func TestReadAuthorityRefusesWhatIsNoCA(t *testing.T) {
	ca := effort.Must(secure.NewAuthority("mail", time.Now(), 24*time.Hour))(t)
	node := effort.Must(ca.Issue("a", time.Now(), time.Hour))(t)
	for name, pair := range map[string]secure.Pair{
		"a node's":          node,
		"another key":       {Cert: ca.Pair().Cert, Key: node.Key},
		"nothing":           {},
		"key and no cert":   {Key: ca.Pair().Key},
		"cert in key place": {Cert: ca.Pair().Cert, Key: ca.Pair().Cert},
	} {
		effort.Denied(secure.ReadAuthority(pair))(t, secure.ErrCertificate, name)
	}
	effort.Denied(secure.ReadCertificate(ca.Pair().Key))(t, secure.ErrCertificate, "a key read as a certificate")
}

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"one label", "a", true},
		{"host name", "node-1.example.net", true},
		{"pod", "rollcall-0.rollcall.mail.svc.cluster.local", true},
		{"digits first", "1a", true},
		{"longest", strings.Repeat("a.", 63) + "aa", true},
		{"too long", strings.Repeat("a.", 64) + "a", false},
		{"longest label", strings.Repeat("a", 63), true},
		{"label too long", strings.Repeat("a", 64), false},
		{"empty", "", false},
		{"empty label", "a..b", false},
		{"dot at the end", "a.", false},
		{"capitals", "Node", false},
		{"underscore", "node_1", false},
		{"pattern", "*.example.net", false},
		{"hyphen first", "-a", false},
		{"hyphen last", "a-.b", false},
		{"path", "../ca", false},
		{"IPv4", "10.0.0.1", false},
		{"IPv6", "::1", false},
		{"not ASCII", "knötchen", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := secure.CheckName(c.text)
			effort.ErrorIf(t, (err == nil) != c.ok || err != nil && !errors.Is(err, secure.ErrName),
				"CheckName(%q): %v, want ok %v", c.text, err, c.ok)
		})
	}
}

// TestStrangersAreCounted: every connection to the port of actor traffic without a good certificate is counted, and
// the reasons say what to look for.
func TestStrangersAreCounted(t *testing.T) {
	r := newRig(t)
	at := r.first.system.Address()
	_, folder := r.mustIdentity(t, memberName)
	own := effort.Must(tls.LoadX509KeyPair(filepath.Join(folder, "cert"), filepath.Join(folder, "key")))(t)
	pair := effort.Must(newCA(t).Issue(memberName, time.Now(), time.Hour))(t)
	foreign := effort.Must(tls.X509KeyPair(pair.Cert, pair.Key))(t)
	hello := func(c *tls.Config) func(net.Conn) {
		c.NextProtos = []string{"h2"}
		return func(conn net.Conn) {
			_, _ = tls.Client(conn, c).Read(make([]byte, 1)) // returns when the connection is refused
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
			before := r.first.count(t, metric, "reason="+c.reason)
			conn := effort.Must(net.Dial("tcp", at))(t)
			c.say(conn)
			effort.OK(t, conn.Close())
			effort.Within(t, "one more to be counted as "+c.reason, func() bool {
				return r.first.count(t, metric, "reason="+c.reason) == before+1
			})
		})
	}
}
