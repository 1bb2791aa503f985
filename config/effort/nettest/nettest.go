package nettest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollcall/config/effort"
)

// Dial connects from an address of this machine.
func Dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := effort.Must(dialer.Dial("tcp", to))(t)
	effort.OK(t, c.SetDeadline(time.Now().Add(effort.Patience)))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Counts returns the counts of a metric by reason, as reason=n, without zeros.
func Counts(t *testing.T, g prometheus.Gatherer, name string) string {
	t.Helper()
	var all []string
	for _, f := range effort.Must(g.Gather())(t) {
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

// Ask sends a text over a connection and reads one answer.
func Ask(t *testing.T, c net.Conn, text string) *http.Response {
	t.Helper()
	effort.OK(t, c.SetDeadline(time.Now().Add(effort.Patience)))
	effort.Must(io.WriteString(c, text))(t)
	a := effort.Must(http.ReadResponse(bufio.NewReader(c), nil))(t)
	_ = a.Body.Close()
	return a
}

// WriteCertificate writes a certificate for localhost and 127.0.0.1, valid from an hour ago until end, and its key
// into a folder as tls.crt and tls.key, each atomically. It returns both names and a pool that trusts the
// certificate.
func WriteCertificate(t testing.TB, folder string, end time.Time) (certFile, keyFile string, trusted *x509.CertPool) {
	t.Helper()
	key := effort.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	serial := effort.Must(rand.Int(rand.Reader, big.NewInt(1<<62)))(t)
	from := time.Now().Add(-time.Hour)
	if !end.After(from) {
		from = end.Add(-time.Hour)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: from, NotAfter: end, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := effort.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	secret := effort.Must(x509.MarshalPKCS8PrivateKey(key))(t)
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
	effort.OK(t, os.WriteFile(name+".new", text, 0o600))
	effort.OK(t, os.Rename(name+".new", name))
}

// Sum adds up the series of a counter or a gauge that have these labels ("reason=ledger"); 0 if there is none.
func Sum(t testing.TB, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	sum, _ := series(t, from, name, labels)
	return sum
}

// Metric is Sum for series that must be there.
func Metric(t testing.TB, from prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	sum, found := series(t, from, name, labels)
	if !found {
		t.Fatal("there is no ", name, labels)
	}
	return sum
}

func series(t testing.TB, from prometheus.Gatherer, name string, labels []string) (sum float64, found bool) {
	t.Helper()
	for _, f := range effort.Must(from.Gather())(t) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && !slices.ContainsFunc(labels, func(l string) bool { return !labelled(m, l) }) {
				sum, found = sum+m.GetCounter().GetValue()+m.GetGauge().GetValue(), true
			}
		}
	}
	return sum, found
}

func labelled(m *dto.Metric, label string) bool {
	return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == label })
}

// Answer is what came back to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string // with plain apostrophes, as people read them
}

// Send makes a request with headers as names and values in turn, and follows no redirect.
func Send(t testing.TB, method, address, body string, headers ...string) Answer {
	t.Helper()
	r := effort.Must(http.NewRequest(method, address, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	effort.OK(t, err, method, address)
	defer a.Body.Close()
	read, err := io.ReadAll(a.Body)
	effort.OK(t, err, method, address)
	return Answer{a.StatusCode, a.Header, strings.ReplaceAll(string(read), "&#39;", "'")}
}

// Is checks the status; of names the subject.
func (a Answer) Is(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.Is(t, a.Status, status, append(of, a.Body)...)
}

// Must does what Is does, but ends the test if it finds a fault.
func (a Answer) Must(t testing.TB, status int, of ...any) {
	t.Helper()
	effort.MustBe(t, a.Status, status, append(of, a.Body)...)
}

// Says checks the status and a part of the body.
func (a Answer) Says(t testing.TB, status int, part string, of ...any) {
	t.Helper()
	effort.Is(t, a.Status, status, of...)
	effort.Has(t, a.Body, part, of...)
}

// Cookie is the value of a cookie that is set; "": it isn't.
func (a Answer) Cookie(name string) string {
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}
