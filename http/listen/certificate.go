package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrCertificateEnded: a new certificate has expired, or is not valid yet.
var ErrCertificateEnded = errors.New("listen: not valid now")

// Pair is a certificate with its key, read from two PEM files, which may change while a listener serves. Safe for
// concurrent use.
type Pair struct {
	certFile, keyFile string
	now               atomic.Pointer[loaded]
}

// loaded is the content of the files.
type loaded struct {
	certificate tls.Certificate
	from, to    time.Time // in which the whole chain is valid
}

// LoadPair reads the files. It accepts an expired certificate, so that a node starts; see End. The error says which
// file can't be used.
func LoadPair(certFile, keyFile string) (*Pair, error) {
	p := &Pair{certFile: certFile, keyFile: keyFile}
	l, err := p.read()
	if err != nil {
		return nil, err
	}
	p.now.Store(l)
	return p, nil
}

// Reload reads the files again. After an error, also ErrCertificateEnded, the pair stays as it was.
func (p *Pair) Reload(now time.Time) error {
	l, err := p.read()
	if err != nil {
		return err
	}
	if now.Before(l.from) || now.After(l.to) {
		return fmt.Errorf("%w: %s holds from %s to %s", ErrCertificateEnded, p.certFile, l.from.Format(time.RFC3339),
			l.to.Format(time.RFC3339))
	}
	p.now.Store(l)
	return nil
}

// read reads and checks the files.
func (p *Pair) read() (*loaded, error) {
	c, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err != nil {
		return nil, fmt.Errorf("listen: read %s and %s: %w", p.certFile, p.keyFile, err)
	}
	l := &loaded{certificate: c}
	for i, der := range c.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("listen: read number %d of %s: %w", i+1, p.certFile, err)
		}
		if parsed.NotBefore.After(l.from) {
			l.from = parsed.NotBefore
		}
		if l.to.IsZero() || parsed.NotAfter.Before(l.to) {
			l.to = parsed.NotAfter
		}
	}
	return l, nil
}

// End is when the first certificate of the chain ends.
func (p *Pair) End() time.Time { return p.now.Load().to }

// Config returns the settings of a listener: TLS 1.2 and later, HTTP/1.1, and the certificate in use when a client
// connects.
func (p *Pair) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &p.now.Load().certificate, nil
		},
	}
}
