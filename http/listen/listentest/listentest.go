package listentest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/http/listen"
)

// Patience is how long a test waits for an answer.
const Patience = time.Minute

// Dial connects from an address of this machine.
func Dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Value is the value of a metric without labels.
func Value(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Within waits for a condition, at most ten seconds.
func Within(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.Tick(5 * time.Millisecond)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		case <-tick:
		}
	}
}

// Counts returns the counts of a metric by reason, as reason=n, without zeros.
func Counts(t *testing.T, g prometheus.Gatherer, name string) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == name && n > 0 {
				all = append(all, fmt.Sprintf("%s=%g", m.GetLabel()[0].GetValue(), n))
			}
		}
	}
	return strings.Join(all, " ")
}

// ProxyHeader is a PROXY header of version 2 for a client.
func ProxyHeader(client string) string {
	a := netip.MustParseAddr(client)
	family, other := byte(0x11), netip.MustParseAddr("10.0.0.1")
	if a.Is6() {
		family, other = 0x21, netip.MustParseAddr("2001:db8::1")
	}
	payload := append(append(a.AsSlice(), other.AsSlice()...), 0x12, 0x67, 0, 80)
	h := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, family)
	h = binary.BigEndian.AppendUint16(h, uint16(len(payload)))
	return string(append(h, payload...))
}

// Pair makes a certificate and a pool that trusts it.
func Pair(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	certFile, keyFile, trusted := WriteCertificate(t, t.TempDir(), time.Now().Add(time.Hour))
	p, err := listen.LoadPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	return p.Config(), trusted
}

// Ask sends a text over a connection and reads one answer.
func Ask(t *testing.T, c net.Conn, text string) *http.Response {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	return a
}

// Crowded is a listener with places for five connections.
type Crowded struct {
	Name, At string // prefix of its metrics; host:port
	Registry prometheus.Gatherer
	Full     int                     // the status when no place is free
	Client   func(net.Conn) net.Conn // of a connection
}

// CheckShares checks that an address has no more connections than are free: of five places one address gets three, the
// next one, and a third the last.
func (l Crowded) CheckShares(t *testing.T) {
	open := func(want float64) {
		t.Helper()
		Within(t, "the connections to be counted", func() bool {
			return Value(t, l.Registry, l.Name+"_connections") == want
		})
	}
	refused := func(from string, status int) {
		t.Helper()
		a, err := http.ReadResponse(bufio.NewReader(l.Client(Dial(t, from, l.At))), nil)
		if err != nil {
			t.Fatalf("one too many from %s: %v", from, err)
		}
		again, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		if a.StatusCode != status || again < 1 || !a.Close {
			t.Errorf("one too many from %s: %d, Retry-After %d, close %v, want %d", from, a.StatusCode, again,
				a.Close, status)
		}
	}
	first := Dial(t, "127.0.0.1", l.At)
	Dial(t, "127.0.0.1", l.At)
	Dial(t, "127.0.0.1", l.At)
	open(3)
	refused("127.0.0.1", 429)
	Dial(t, "127.0.0.2", l.At)
	open(4)
	refused("127.0.0.2", 429)
	Dial(t, "127.0.0.3", l.At)
	open(5)
	refused("127.0.0.4", l.Full)
	if n := Counts(t, l.Registry, l.Name+"_connections_refused_total"); n != "full=1 share=2" {
		t.Errorf("counted %q", n)
	}
	_ = first.Close()
	open(4)
	Dial(t, "127.0.0.4", l.At)
	open(5)
}

// WriteCertificate writes a certificate for localhost and 127.0.0.1, valid from an hour ago until end, and its key into
// a folder as tls.crt and tls.key, each atomically. It returns their names and a pool that trusts the certificate.
func WriteCertificate(t testing.TB, folder string, end time.Time) (certFile, keyFile string, trusted *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now().Add(-time.Hour)
	if !end.After(from) {
		from = end.Add(-time.Hour)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: from, NotAfter: end, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	put(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	put(t, certFile, certificate)
	trusted = x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	return certFile, keyFile, trusted
}

// put replaces a file atomically.
func put(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}
