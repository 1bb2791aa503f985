package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is the shortest time between two checks of the files. So a renewed certificate is used soon, and a burst
// of handshakes costs only three stat calls.
const lookEvery = 2 * time.Second

// warnBefore is how long before a certificate ends the warnings begin, one every warnEvery. People can act within a
// month, and still read one warning a day.
const (
	warnBefore = 30 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// Identity is this node's certificate, its key and the CA of the cluster. It follows its files: the next handshake uses
// a renewed certificate; an unusable one is logged and the old one kept. Open connections stay. Safe for concurrent
// use.
type Identity struct {
	caFile, certFile, keyFile string
	log                       *slog.Logger

	mu     sync.Mutex
	now    *material
	stamp  stamp     // of the files as read last, usable or not
	looked time.Time // at the files
	warned time.Time // last warning that the certificate ends soon
	failed bool      // the files as read last cannot be used
}

// material is the content of the three files.
type material struct {
	name string
	cert tls.Certificate
	pool *x509.CertPool
}

// stamp changes when a file is replaced or written.
type stamp [3]struct {
	changed time.Time
	size    int64
}

// Load reads the three PEM files; while one CA replaces another, the CA file may hold several certificates.
//
// ErrKeyReadable: users other than owner and group may read the key, or users other than the owner may write it.
// ErrCertificate: the files are not a matching certificate and key, the CA did not sign for both sides of a
// connection, or the clock is outside their validity. ErrName: see CheckName.
func Load(caFile, certFile, keyFile string, log *slog.Logger) (*Identity, error) {
	i := &Identity{caFile: caFile, certFile: certFile, keyFile: keyFile, log: log}
	now := time.Now()
	var err error
	if i.stamp, err = i.stat(); err != nil {
		return nil, err
	}
	if i.now, err = i.read(now); err != nil {
		return nil, err
	}
	i.looked = now
	i.warn(now)
	return i, nil
}

// Name is the name in this node's certificate: the name of the member. Like every use of the Identity it checks the
// files, and warns once a day when the certificate ends within 30 days.
func (i *Identity) Name() string { return i.current(time.Now()).name }

// Expires is when this node's certificate ends.
func (i *Identity) Expires() time.Time { return i.current(time.Now()).cert.Leaf.NotAfter }

// current returns the material in use. It checks the files first if lookEvery has passed.
func (i *Identity) current(now time.Time) *material {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Sub(i.looked) < lookEvery {
		return i.now
	}
	i.looked = now
	i.follow(now)
	i.warn(now)
	return i.now
}

// warn logs, at most once every warnEvery, that the certificate ends soon.
func (i *Identity) warn(now time.Time) {
	end := i.now.cert.Leaf.NotAfter
	if end.Sub(now) > warnBefore || now.Sub(i.warned) < warnEvery {
		return
	}
	i.warned = now
	i.log.Warn("certificate ends soon; then other nodes will refuse this one", "name", i.now.name, "expires", end)
}

// Register adds the metric of the certificate's remaining time.
func (i *Identity) Register(r prometheus.Registerer) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_cluster_certificate_seconds",
		Help: "Seconds until this node's certificate ends; below zero other nodes refuse it."},
		func() float64 { return time.Until(i.Expires()).Seconds() }))
}

// follow reads the files again if they changed, or if they were unusable: one of the pair may have been missing, or
// the clock wrong. It logs each state of the files once.
func (i *Identity) follow(now time.Time) {
	s, err := i.stat()
	if err == nil && s == i.stamp && !i.failed {
		return
	}
	var m *material
	if err == nil {
		m, err = i.read(now)
	}
	if err == nil && m.name != i.now.name {
		err = fmt.Errorf("it is for %s, but this node stays %s until it restarts: %w", m.name, i.now.name, ErrOtherName)
	}
	told := i.failed && s == i.stamp
	i.stamp, i.failed = s, err != nil
	if err == nil {
		i.now = m
		i.log.Info("certificate files read again", "name", m.name, "expires", m.cert.Leaf.NotAfter)
	} else if !told {
		i.log.Warn("changed certificate files can't be used, the old ones stay in use", "err", err)
	}
}

func (i *Identity) stat() (s stamp, err error) {
	for n, file := range []string{i.caFile, i.certFile, i.keyFile} {
		info, err := os.Stat(file)
		if err != nil {
			return s, fmt.Errorf("look at the certificate files: %w", err)
		}
		s[n].changed, s[n].size = info.ModTime(), info.Size()
	}
	return s, nil
}

func (i *Identity) read(now time.Time) (*material, error) {
	if err := CheckKeyFile(i.keyFile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(i.caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	m := &material{pool: x509.NewCertPool()}
	if !m.pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the CA %s: no certificate in PEM form: %w", i.caFile, ErrCertificate)
	}
	if m.cert, err = tls.LoadX509KeyPair(i.certFile, i.keyFile); err != nil {
		if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		return nil, fmt.Errorf("read %s with %s: %w: %w", i.certFile, i.keyFile, err, ErrCertificate)
	}
	if m.name, err = checkLeaf(m, now); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", i.certFile, err)
	}
	return m, nil
}

// CheckKeyFile refuses a key file that others may read (ErrKeyReadable). The group may: container platforms give
// secrets to processes of other users than root this way.
func CheckKeyFile(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("read the key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o037 != 0 {
		return fmt.Errorf("key %s has mode %04o, chmod 600 it: %w", file, mode, ErrKeyReadable)
	}
	return nil
}

// checkLeaf checks that other nodes will accept this certificate, and returns its name.
func checkLeaf(m *material, now time.Time) (string, error) {
	leaf := m.cert.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return "", fmt.Errorf("it is valid from %s to %s and here it is %s (is the clock right?): %w",
			date(leaf.NotBefore), date(leaf.NotAfter), date(now), ErrCertificate)
	}
	others := x509.NewCertPool()
	for _, der := range m.cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			others.AddCert(c)
		}
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: others, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{use}})
		if err != nil {
			return "", fmt.Errorf("the CA does not vouch for it: %w: %w", err, ErrCertificate)
		}
	}
	return nameIn(leaf)
}

// nameMax bounds a node's name in bytes. It is part of the gossip's metadata, which has 512 bytes in all; the longest
// names in use, those of pods, have about 60.
const nameMax = 128

// labelMax is the longest part of a host name (RFC 1035 §2.3.4).
const labelMax = 63

// CheckName returns an ErrName about a faulty node name. A name has the form of a host name in lower case (RFC 1123
// §2.1) of at most 128 bytes; it need not resolve, and IP addresses and patterns are refused.
func CheckName(name string) error {
	if name == "" || len(name) > nameMax {
		return fmt.Errorf("name %q has %d bytes, 1 to %d are allowed: %w", name, len(name), nameMax, ErrName)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return fmt.Errorf("name %q is an IP address: %w", name, ErrName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > labelMax || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("name %q has a part that is empty, over %d bytes, or begins or ends with a "+
				"hyphen: %w", name, labelMax, ErrName)
		}
		if i := strings.IndexFunc(label, strange); i >= 0 {
			return fmt.Errorf("name %q has %q; a-z, 0-9, hyphen and dot are allowed: %w", name, label[i], ErrName)
		}
	}
	return nil
}

func strange(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

// nameIn returns the name of the member for which a certificate was made: its first DNS name, in lower case.
func nameIn(c *x509.Certificate) (string, error) {
	if len(c.DNSNames) == 0 {
		return "", fmt.Errorf("it has no DNS name, which has to be the node's name: %w", ErrCertificate)
	}
	name := strings.ToLower(c.DNSNames[0])
	return name, CheckName(name)
}
