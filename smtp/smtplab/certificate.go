package smtplab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// certificateLife is far longer than any run.
const certificateLife = 30 * 24 * time.Hour

// ownCertificate is one for all receivers of the process, signed by itself; its
// name is that of none of them.
var ownCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	return makeCertificate("smtplab."+TopLevel, time.Now())
})

// makeCertificate makes one for a host, signed by itself, good for
// certificateLife from a time on.
func makeCertificate(host string, from time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: host},
		DNSNames:     []string{host},
		NotBefore:    from.Add(-time.Hour),
		NotAfter:     from.Add(certificateLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
