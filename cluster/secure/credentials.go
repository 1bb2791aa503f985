package secure

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// config is the part of TLS that both sides have in common. There is no session
// resumption: it would outlive a change of the CA.
func (m *material) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		SessionTicketsDisabled: true,
		NextProtos:             []string{"h2"},
	}
}

// wantName refuses a peer whose certificate, already verified, has another name.
func wantName(name string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		got, err := nameIn(s.PeerCertificates[0])
		if err != nil {
			return err
		}
		if got != name {
			return fmt.Errorf("peer is %s, the member there is %s: %w", got, name, ErrOtherName)
		}
		return nil
	}
}

// Client returns the credentials for dialling other members. nameOf says which
// member has an address ("host:port", as dialled); it is called at each handshake.
// A dial to an address that no member has fails with ErrUnknownAddress, and one
// that meets another name with ErrOtherName, before anything of a stream is sent.
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

// ServerHandshake implements credentials.TransportCredentials; a dialler is no server.
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

// Server returns the credentials for listening: peers must show a certificate of the
// CA. Whether its name is a member's is the Guard's question.
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
