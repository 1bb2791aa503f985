package smtplab

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// errNoKeys: the handshake did not show what a HelloRequest needs.
var errNoKeys = errors.New("smtplab: no keys for a HelloRequest")

// renegotiation asks for a new handshake inside TLS 1.2, which crypto/tls cannot
// do as a server: it takes the master secret from the key log and writes the one
// encrypted record itself. The cipher is AES-128-GCM with SHA-256 (RFC 5288 §3).
type renegotiation struct {
	log          bytes.Buffer
	serverRandom []byte
}

// serverHello takes the random of the server out of its first record: after 5
// bytes of record header, 4 of handshake header and 2 of version (RFC 5246 §7.4.1.3).
func (r *renegotiation) serverHello(written []byte) {
	const at, size = 11, 32
	if r.serverRandom == nil && len(written) >= at+size {
		r.serverRandom = bytes.Clone(written[at : at+size])
	}
}

// Write takes the key log: "CLIENT_RANDOM <random> <master secret>".
func (r *renegotiation) Write(line []byte) (int, error) { return r.log.Write(line) }

// ask sends a HelloRequest (RFC 5246 §7.4.1.1) as the first record behind the
// Finished of the server.
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
