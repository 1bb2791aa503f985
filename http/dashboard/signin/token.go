package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"rollcall/ledger"
)

// tokenBytes are the random bytes of a cookie and of a link.
const tokenBytes = 32

// Token is the secret of a session or of a link, as it stands in a cookie or in a URL.
type Token string

// NewToken makes one.
func NewToken() Token {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return tokenOf(random[:])
}

func tokenOf(bytes []byte) Token { return Token(base64.RawURLEncoding.EncodeToString(bytes)) }

// Hash is what the book knows it by; false for a text that is no token.
func (t Token) Hash() (ledger.Hash, bool) {
	bytes, err := base64.RawURLEncoding.Strict().DecodeString(string(t))
	if err != nil || len(bytes) != tokenBytes {
		return ledger.Hash{}, false
	}
	return sha256.Sum256(bytes), true
}

// TokenOf makes the token of a form, so that it is made once: of what tells the form from all others, which has to
// hold the form's own id.
func (s *Service) TokenOf(what string, texts ...string) Token {
	return DeriveToken(s.secret, what, texts...)
}

// DeriveToken is TokenOf with a caller-supplied secret.
func DeriveToken(secret []byte, what string, texts ...string) Token {
	random := keyedHash(secret, what, texts...)
	return tokenOf(random[:])
}

// Keyed is a hash that only this service can make, of texts told apart by what they are.
func (s *Service) Keyed(what string, texts ...string) [sha256.Size]byte {
	return s.keyed("page "+what, texts...)
}

// keyed is keyedHash with the secret of this service.
func (s *Service) keyed(what string, texts ...string) [sha256.Size]byte {
	return keyedHash(s.secret, what, texts...)
}

// keyedHash is a hash that only who has the secret can make, of texts told apart by what they are.
func keyedHash(secret []byte, what string, texts ...string) [sha256.Size]byte {
	m := hmac.New(sha256.New, secret)
	for _, text := range append([]string{what}, texts...) {
		sum := sha256.Sum256([]byte(text))
		m.Write(sum[:])
	}
	return [sha256.Size]byte(m.Sum(nil))
}

// sealer encrypts what only this service may read or make, for one purpose. The same secret makes the same on every
// node.
type sealer struct{ aead cipher.AEAD }

func newSealer(key [32]byte) sealer {
	block, err := aes.NewCipher(key[:])
	var s sealer
	if err == nil {
		s.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has the right length
	}
	return s
}

// seal writes a value, bound to what it is of.
func (s sealer) seal(of string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values of ours
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(of)))
}

// open reads one; false for what this service has not sealed for that.
func (s sealer) open(of, text string, into any) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(of))
	return err == nil && json.Unmarshal(plain, into) == nil
}
