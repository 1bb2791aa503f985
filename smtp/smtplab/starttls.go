package smtplab

import (
	"bytes"
	"crypto/tls"
	"net"
	"time"

	"rollcall/smtp"
)

// startTLS answers STARTTLS (RFC 3207 §4).
func (s *session) startTLS() error {
	if s.breaksAt(smtp.StageTLS) {
		return s.breakNow()
	}
	if s.p.TLS == TLSRefused || s.encrypted { // TLSAgain offers what it cannot do
		return s.fault(&s.p.words.tlsRefused)
	}
	s.say(&s.p.words.tlsReady)
	switch s.p.TLS {
	case TLSInjected:
		s.say(&s.p.words.ok)
	case TLSBroken:
		return s.sayAndClose(&s.p.words.bye)
	case TLSGarbage:
		s.out = append(s.out, nonsense()...)
		return s.finish()
	}
	if err := s.flush(); err != nil {
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

// handshake makes the session an encrypted one.
func (s *session) handshake() error {
	config, err := s.tlsConfig()
	if err != nil {
		return err
	}
	// What the client sent behind STARTTLS in clear is given to the handshake,
	// which fails on it (the rule against injection of RFC 3207 §4.2).
	pending, _ := s.r.Peek(s.r.Buffered())
	under := &replayed{Conn: s.under, pending: bytes.Clone(pending)}
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
	s.count(func(t *Tally) { t.TLS++ })
	s.conn, s.encrypted, s.hello, s.idleFrom = conn, true, "", time.Time{}
	s.endTx()
	s.r.Reset(conn)
	if again != nil {
		if err := again.ask(s.under); err != nil {
			return err
		}
		return s.stall()
	}
	return s.inside()
}

// inside goes on after STARTTLS in the manner of Personality.AfterTLS.
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

// tlsConfig is what the receiver brings to the handshake.
func (s *session) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{}
	var certificate tls.Certificate
	var err error
	switch s.p.TLS {
	case TLSExpired:
		certificate, err = makeCertificate(s.host.name, time.Now().Add(-2*certificateLife))
	case TLSRightName:
		certificate, err = makeCertificate(s.host.name, time.Now())
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

// replayed is a connection with bytes that were read before.
type replayed struct {
	net.Conn
	pending []byte
	seen    func(written []byte) // nil: nobody looks
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.pending) > 0 {
		n := copy(b, r.pending)
		r.pending = r.pending[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

func (r *replayed) Write(b []byte) (int, error) {
	if r.seen != nil {
		r.seen(b)
	}
	return r.Conn.Write(b)
}
