package secure

import (
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
	"time"
)

const (
	// AuthorityValidity is how long a CA lives by default. Changing a CA means to
	// touch every node, so it outlives the machines: 10 years.
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	// NodeValidity is how long a node's certificate lives by default: a year, so
	// that renewal stays a habit and a lost key does not matter for ever.
	NodeValidity = 365 * 24 * time.Hour
	// backdate lets a certificate begin this long before it was made, for nodes
	// whose clocks are behind that of the machine that made it.
	backdate = time.Hour
	// commonNameMax is the longest common name that X.520 allows.
	commonNameMax = 64
)

// Pair is a certificate and its private key (PKCS #8), both as PEM.
type Pair struct{ Cert, Key []byte }

// Authority is a private CA: it makes the certificates by which the nodes of one
// cluster know each other.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pair Pair
}

// NewAuthority makes a CA for a cluster, valid from an hour before now. The
// cluster's name is for people only.
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
		MaxPathLenZero:        true, // it signs nodes, not other CAs
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("make the CA of %s: %w", cluster, err)
	}
	return ReadAuthority(pair)
}

// ReadAuthority makes an Authority of what NewAuthority made. An ErrCertificate
// says that the pair is none or is no CA.
func ReadAuthority(pair Pair) (*Authority, error) {
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w: %w", err, ErrCertificate)
	}
	key, ok := both.PrivateKey.(crypto.Signer)
	if !ok || !both.Leaf.IsCA {
		return nil, fmt.Errorf("read the CA: %q is no CA: %w", both.Leaf.Subject, ErrCertificate)
	}
	return &Authority{cert: both.Leaf, key: key, pair: pair}, nil
}

// Pair returns the CA's own certificate and key. The key makes members: it belongs
// to no node.
func (a *Authority) Pair() Pair { return a.pair }

// Issue makes a certificate (ECDSA P-256, for both sides of a connection) for the
// node of a name, valid from an hour before now. ErrName: see CheckName.
// ErrCertificate: the CA would end before it.
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

// sign makes the pair of a template and its key.
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

// subject is for people: a name that is too long for the field is left out.
func subject(name string) pkix.Name {
	s := pkix.Name{Organization: []string{"Rollcall"}}
	if len(name) <= commonNameMax {
		s.CommonName = name
	}
	return s
}

// ReadCertificate reads the first certificate of a PEM file. ErrCertificate: there is none.
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

// date is a time as people read it in an error.
func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
