package secure

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// AuthorityValidity is how long a CA is valid by default: 10 years, longer than machines last, because a new CA
	// means changes on every node.
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	// NodeValidity is how long a node's certificate is valid by default: a year, so that renewal is practised and a
	// lost key becomes useless some day.
	NodeValidity = 365 * 24 * time.Hour
	// backdate is how long before it is made a certificate becomes valid, for nodes whose clocks are behind the clock
	// of the machine that makes it.
	backdate = time.Hour
	// commonNameMax is the longest common name that X.520 allows.
	commonNameMax = 64
)

// Pair is a certificate and its private key (PKCS #8), both as PEM.
type Pair struct{ Cert, Key []byte }

// Authority is a private CA: it makes the certificates with which the nodes of one cluster recognize each other.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pair Pair
}

// NewAuthority makes a CA for a cluster, valid from an hour before now. The cluster's name is for people only.
func NewAuthority(cluster string, now time.Time, validity time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               subject("CA of " + cluster),
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs certificates of nodes, not of other CAs
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("make the CA of %s: %w", cluster, err)
	}
	return ReadAuthority(pair)
}

// ReadAuthority returns the Authority of a pair from NewAuthority. ErrCertificate: it is not a pair, or not a CA's.
func ReadAuthority(pair Pair) (*Authority, error) {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w: %w", err, ErrCertificate)
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	if !ok || !both.Leaf.IsCA {
		return nil, fmt.Errorf("read the CA: %q is not a CA: %w", both.Leaf.Subject, ErrCertificate)
	}
	return &Authority{cert: both.Leaf, key: key, pair: pair}, nil
}

// Pair returns the CA's own certificate and key. Anybody with the key can make members, so keep it off the nodes.
func (a *Authority) Pair() Pair { return a.pair }

// Issue makes a certificate (ECDSA P-256, for both sides of a connection) for a node with this name, valid from an
// hour before now. ErrName: see CheckName. ErrCertificate: the CA expires earlier.
func (a *Authority) Issue(name string, now time.Time, validity time.Duration) (Pair, error) {
	if err := CheckName(name); err != nil {
		return Pair{}, err
	}
	end := now.Add(validity)
	if end.After(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("issue for %s until %s: the CA ends on %s: %w", name,
			date(end), date(a.cert.NotAfter), ErrCertificate)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	pair, err := sign(&x509.Certificate{
		Subject:     subject(name),
		DNSNames:    []string{name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue for %s: %w", name, err)
	}
	return pair, nil
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}

// subject is the subject of a certificate, for people: a name too long for the field is left out.
func subject(name string) pkix.Name {
	s := pkix.Name{Organization: []string{"Rollcall"}}
	if len(name) <= commonNameMax {
		s.CommonName = name
	}
	return s
}

// ReadCertificate reads the first certificate of a PEM file. ErrCertificate: it has none.
func ReadCertificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, ErrCertificate)
		}
		return c, nil
	}
	return nil, errors.Join(errors.New("no certificate in PEM form"), ErrCertificate)
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// config is the TLS configuration common to both sides. There is no session resumption: it would outlive a change of
// the CA.
func (m *material) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		SessionTicketsDisabled: true,
		NextProtos:             []string{"h2"},
	}
}

// wantName refuses a peer whose verified certificate has another name.
func wantName(name string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		got, err := nameIn(s.PeerCertificates[0])
		if err != nil {
			return err
		}
		if got != name {
			return fmt.Errorf("peer is %s, but the member there is %s: %w", got, name, ErrOtherName)
		}
		return nil
	}
}

// Client returns the credentials for dialling other members. nameOf returns the member with an address ("host:port",
// as dialled); it is called at each handshake. Before anything of a stream is sent, a dial fails with
// ErrUnknownAddress if no member has the address, and with ErrOtherName if the peer has another name.
func (i *Identity) Client(
	nameOf func(address string) (name string, ok bool)) credentials.TransportCredentials {
	return &client{identity: i, nameOf: nameOf}
}

// client is credentials.TransportCredentials for a dialler.
type client struct {
	identity *Identity
	nameOf   func(address string) (name string, ok bool)
}

func (c *client) ClientHandshake(ctx context.Context, address string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	name, ok := c.nameOf(address)
	if !ok {
		return nil, nil, fmt.Errorf("dial %s: %w", address, ErrUnknownAddress)
	}
	m := c.identity.current(time.Now())
	config := m.config()
	config.RootCAs = m.pool
	config.VerifyConnection = wantName(name)
	return credentials.NewTLS(config).ClientHandshake(ctx, name, raw)
}

// ServerHandshake implements credentials.TransportCredentials; a dialler does not serve.
func (c *client) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("server handshake with client credentials: %w", ErrCertificate)
}

func (c *client) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c *client) Clone() credentials.TransportCredentials {
	return &client{identity: c.identity, nameOf: c.nameOf}
}

// OverrideServerName implements credentials.TransportCredentials; names come from membership only.
func (c *client) OverrideServerName(string) error {
	return fmt.Errorf("override server name: %w", ErrOtherName)
}

// Server returns the credentials for listening: peers must show a certificate of the CA. The Guard checks whether its
// name is a member's.
func (i *Identity) Server() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := i.current(time.Now())
			config := m.config()
			config.ClientAuth = tls.RequireAndVerifyClientCert
			config.ClientCAs = m.pool
			return config, nil
		},
	})
}

// counted wraps credentials for listening and counts the strangers that they turn away. The Guard never sees these
// strangers.
type counted struct {
	credentials.TransportCredentials
	metrics *Metrics
	log     *slog.Logger
}

func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		reason := strangeness(err)
		c.metrics.refused.WithLabelValues(reason).Inc()
		// Anybody who reaches the port can cause any number of these lines.
		c.log.Debug("stranger at the port of actor traffic", "address", raw.RemoteAddr().String(), "reason", reason,
			"err", err)
	}
	return conn, info, err
}

func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.metrics, c.log}
}

// Texts of crypto/tls errors without a type: one for a client without a certificate, one for an alert from the other
// side. The texts of all alerts about certificates (RFC 8446 §6.2) contain aboutCertificate.
const (
	noCertificate    = "client didn't provide a certificate"
	remoteAlert      = "remote error"
	aboutCertificate = "certificate"
)

// strangeness returns the reason why a handshake failed.
func strangeness(err error) string {
	var record tls.RecordHeaderError
	var alert *net.OpError
	var refused *tls.CertificateVerificationError
	switch {
	case errors.As(err, &record):
		return refusedPlaintext
	case errors.As(err, &refused), strings.Contains(err.Error(), noCertificate),
		errors.As(err, &alert) && alert.Op == remoteAlert && strings.Contains(err.Error(), aboutCertificate):
		return refusedCertificate
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ETIMEDOUT):
		return refusedUnfinished
	}
	return refusedHandshake
}
