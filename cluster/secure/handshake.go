package secure

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// counted are credentials for listening that count the strangers who are turned away by them. None of these is
// ever seen by a Guard.
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
		// Whoever reaches the port can make as many of these as he likes.
		c.log.Debug("stranger at the port of actor traffic", "address", raw.RemoteAddr().String(), "reason", reason,
			"err", err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.metrics, c.log}
}

// How crypto/tls says what it has no error of its own for: a client that shows no certificate, and an alert of the
// far side. The texts of all alerts about certificates (RFC 8446 §6.2) have aboutCertificate in them.
const (
	noCertificate    = "client didn't provide a certificate"
	remoteAlert      = "remote error"
	aboutCertificate = "certificate"
)

// strangeness is the reason for which a handshake failed.
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
