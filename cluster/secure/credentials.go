package secure

import (
	"context"
	"crypto/tls"
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

// Client returns the credentials for dialling other members. nameOf returns the member with an address ("host:port", as
// dialled); it is called at each handshake. A dial to an address of no member fails with ErrUnknownAddress, and a peer
// with another name with ErrOtherName, before anything of a stream is sent.
func (i *Identity) Client(
	nameOf func(address string) (name string, ok bool)) credentials.TransportCredentials {
	return &client{identity: i, nameOf: nameOf}
}

// client is credentials.TransportCredentials for a dialler.
type client struct {
	identity *Identity
	nameOf   func(address string) (name string, ok bool)
}

// ClientHandshake implements credentials.TransportCredentials.
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

// Info implements credentials.TransportCredentials.
func (c *client) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
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

// counted are credentials for listening that count the strangers they turn away. The Guard never sees these.
type counted struct {
	credentials.TransportCredentials
	metrics *Metrics
	log     *slog.Logger
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		reason := strangeness(err)
		c.metrics.refused.WithLabelValues(reason).Inc()
		// Anybody who reaches the port can cause any number of these.
		c.log.Debug("stranger at the port of actor traffic", "address", raw.RemoteAddr().String(), "reason", reason,
			"err", err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.metrics, c.log}
}

// Texts of crypto/tls errors without a type: a client shows no certificate, and an alert of the other side. The texts
// of all alerts about certificates (RFC 8446 §6.2) contain aboutCertificate.
const (
	noCertificate    = "client didn't provide a certificate"
	remoteAlert      = "remote error"
	aboutCertificate = "certificate"
)

// strangeness is the reason why a handshake failed.
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
