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
	// AuthorityValidity is how long a CA is valid by default. A new CA means changes on every node, so it outlives the
	// machines: 10 years.
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	// NodeValidity is how long a node's certificate is valid by default: a year, so that renewal is practised and a
	// lost key does not matter for ever.
	NodeValidity = 365 * 24 * time.Hour
	// backdate lets a certificate begin this long before it was made, for nodes
	// whose clocks are behind that of the machine that made it.
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

// Pair returns the CA's own certificate and key. Whoever has the key can make members, so keep it off the nodes.
func (a *Authority) Pair() Pair { return a.pair }

// Issue makes a certificate (ECDSA P-256, for both sides of a connection) for the node of a name, valid from an hour
// before now. ErrName: see CheckName. ErrCertificate: the CA expires earlier.
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

// sign signs a template and returns it with its key as a pair.
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

// date formats a time for an error.
func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
