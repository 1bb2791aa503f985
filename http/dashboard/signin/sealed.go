package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
)

// sealer encrypts what only this service may read or make, for one purpose. The same secret makes the same on every
// node.
type sealer struct{ aead cipher.AEAD }

func newSealer(key [32]byte) sealer {
	block, err := aes.NewCipher(key[:])
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCM(block); err == nil {
			return sealer{aead}
		}
	}
	panic(err) // the key has the right length
}

// seal writes a value, bound to what it is of.
func (s sealer) seal(of string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values of ours
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(text)+s.aead.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, text, []byte(of)))
}

// open reads one; false for what this service has not sealed for that.
func (s sealer) open(of, text string, into any) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return false
	}
	n := s.aead.NonceSize()
	plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], []byte(of))
	return err == nil && json.Unmarshal(plain, into) == nil
}
