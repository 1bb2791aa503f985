package smtplab

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"

	"rollcall/smtp"
)

// startTLS answers STARTTLS (RFC 3207 §4).
func (s *session) startTLS() error {
	if s.breaksAt(smtp.StageTLS) {
		return s.breakNow()
	}
	if s.p.TLS == TLSRefused || s.encrypted { // TLSAgain offers what it refuses
		return s.fault(&s.p.words.tlsRefused)
	}
	s.say(&s.p.words.tlsReady)
	switch s.p.TLS {
	case TLSInjected:
		s.say(&s.p.words.ok)
	case TLSBroken:
		return s.sayAndClose(&s.p.words.bye)
	case TLSGarbage:
		s.link.out = append(s.link.out, nonsense()...)
		return s.finish()
	}
	if err := s.link.flush(s.lab, s.p); err != nil {
		return err
	}
	switch s.p.TLS {
	case TLSStalled:
		return s.stall()
	case TLSFlood:
		return s.endless([]byte{0x16, 3, 3, 0, 0}) // a handshake record of no bytes
	}
	return s.handshake()
}

func (s *session) handshake() error {
	config, err := tlsConfig(s.p.TLS, s.host.name)
	if err != nil {
		return err
	}
	// The handshake gets the bytes that the client sent in clear after STARTTLS, and fails on them (the rule against
	// injection of RFC 3207 §4.2).
	pending, _ := s.link.in.Peek(s.link.in.Buffered())
	under := &replayed{Conn: s.link.under, in: io.MultiReader(bytes.NewReader(bytes.Clone(pending)), s.link.under)}
	var again *renegotiation
	if s.p.TLS == TLSRenegotiate {
		again = &renegotiation{}
		under.seen = again.serverHello
		config.KeyLogWriter = again
	}
	conn := tls.Server(under, config)
	_ = conn.SetDeadline(time.Now().Add(handshakeMax))
	if err := conn.Handshake(); err != nil {
		return err
	}
	s.host.tallies.count(func(t *Tally) { t.TLS++ })
	s.link.conn, s.encrypted, s.hello, s.link.renewed = conn, true, "", time.Time{}
	s.tx.end()
	s.link.in.Reset(conn)
	if again != nil {
		if err := again.ask(s.link.under); err != nil {
			return err
		}
		return s.stall()
	}
	return s.inside()
}

// inside continues after STARTTLS with Personality.AfterTLS.
func (s *session) inside() error {
	if s.p.inside == nil {
		return nil
	}
	s.p = s.p.inside
	if !s.lab.wait(s.lab.lasts(s.p.GreetDelay)) {
		return errEnd
	}
	if !s.breaksAt(smtp.StageGreeting) {
		return nil
	}
	return s.breakNow()
}

func tlsConfig(mode TLS, host string) (*tls.Config, error) {
	config := &tls.Config{}
	var certificate tls.Certificate
	var err error
	switch mode {
	case TLSExpired:
		certificate, err = makeCertificate(host, time.Now().Add(-2*certificateLife))
	case TLSRightName:
		certificate, err = makeCertificate(host, time.Now())
	case TLSWrongName:
		certificate, err = makeCertificate("elsewhere."+TopLevel, time.Now())
	case TLSRenegotiate:
		config.MaxVersion = tls.VersionTLS12
		config.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
		certificate, err = ownCertificate()
	default:
		certificate, err = ownCertificate()
	}
	config.Certificates = []tls.Certificate{certificate}
	return config, err
}

// replayed is a connection that first returns bytes that were read before.
type replayed struct {
	net.Conn
	in   io.Reader
	seen func(written []byte) // nil: not observed
}

func (r *replayed) Read(b []byte) (int, error) { return r.in.Read(b) }

func (r *replayed) Write(b []byte) (int, error) {
	if r.seen != nil {
		r.seen(b)
	}
	return r.Conn.Write(b)
}

// certificateLife is far longer than any run.
const certificateLife = 30 * 24 * time.Hour

// ownCertificate is one self-signed certificate for all receivers of the process; its name is none of theirs.
var ownCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	return makeCertificate("smtplab."+TopLevel, time.Now())
})

// makeCertificate makes a self-signed certificate for a host, valid for certificateLife from a time on.
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

// errNoKeys: the handshake did not give the keys for a HelloRequest.
var errNoKeys = errors.New("smtplab: no keys for a HelloRequest")

// renegotiation asks for a new handshake inside TLS 1.2, which crypto/tls cannot do as a server. It reads the master
// secret from the key log and writes the one encrypted record itself. The cipher is AES-128-GCM with SHA-256 (RFC
// 5288 §3).
type renegotiation struct {
	log          bytes.Buffer
	serverRandom []byte
}

// serverHello reads the server's random from its first record: after 5 bytes of record header, 4 of handshake header
// and 2 of version (RFC 5246 §7.4.1.3).
func (r *renegotiation) serverHello(written []byte) {
	const at, size = 11, 32
	if r.serverRandom == nil && len(written) >= at+size {
		r.serverRandom = bytes.Clone(written[at : at+size])
	}
}

// Write receives the key log: "CLIENT_RANDOM <random> <master secret>".
func (r *renegotiation) Write(line []byte) (int, error) { return r.log.Write(line) }

// ask sends a HelloRequest (RFC 5246 §7.4.1.1) as the first record after the server's Finished.
func (r *renegotiation) ask(w io.Writer) error {
	fields := bytes.Fields(r.log.Bytes())
	if len(fields) < 3 || r.serverRandom == nil {
		return errNoKeys
	}
	clientRandom, err := hex.DecodeString(string(fields[1]))
	if err != nil {
		return fmt.Errorf("%w: %v", errNoKeys, err)
	}
	master, err := hex.DecodeString(string(fields[2]))
	if err != nil {
		return fmt.Errorf("%w: %v", errNoKeys, err)
	}
	// The key block is the client's key and the server's, 16 bytes each, then the
	// fixed parts of their nonces, 4 bytes each (RFC 5246 §6.3).
	seed := append([]byte("key expansion"), r.serverRandom...)
	keys := expand(master, append(seed, clientRandom...), 2*16+2*4)
	block, err := aes.NewCipher(keys[16:32])
	if err != nil {
		return err
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	const kind, sequence = 22, 1 // a handshake record; 0 was the Finished
	helloRequest := []byte{0, 0, 0, 0}
	explicit := binary.BigEndian.AppendUint64(nil, sequence)
	extra := append(bytes.Clone(explicit), kind, 3, 3, 0, byte(len(helloRequest)))
	sealed := seal.Seal(nil, append(bytes.Clone(keys[36:40]), explicit...), helloRequest, extra)
	record := []byte{kind, 3, 3, 0, byte(len(explicit) + len(sealed))}
	_, err = w.Write(append(append(record, explicit...), sealed...))
	return err
}

// expand is P_SHA256 (RFC 5246 §5).
func expand(secret, seed []byte, size int) []byte {
	mac := func(parts ...[]byte) []byte {
		h := hmac.New(sha256.New, secret)
		for _, p := range parts {
			_, _ = h.Write(p)
		}
		return h.Sum(nil)
	}
	var out []byte
	for a := mac(seed); len(out) < size; a = mac(a) {
		out = append(out, mac(a, seed)...)
	}
	return out[:size]
}
