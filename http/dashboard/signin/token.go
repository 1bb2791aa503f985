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

// Token is the secret of a session or of a link, in a cookie or in a URL.
type Token string

// NewToken makes one.
func NewToken() Token {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return tokenOf(random[:])
}

func tokenOf(bytes []byte) Token { return Token(base64.RawURLEncoding.EncodeToString(bytes)) }

// Hash is the token's form in the ledger; false for an invalid token.
func (t Token) Hash() (ledger.Hash, bool) {
	bytes, err := base64.RawURLEncoding.Strict().DecodeString(string(t))
	if err != nil || len(bytes) != tokenBytes {
		return ledger.Hash{}, false
	}
	return sha256.Sum256(bytes), true
}

// TokenOf derives the token of a form, so that a repeated form gets the same one. The texts must identify the form,
// with its own id.
func (s *Service) TokenOf(what string, texts ...string) Token {
	return DeriveToken(s.secret, what, texts...)
}

// DeriveToken is TokenOf with a caller-supplied secret.
func DeriveToken(secret []byte, what string, texts ...string) Token {
	random := keyedHash(secret, what, texts...)
	return tokenOf(random[:])
}

// Keyed is a hash of texts that only this service can make, separate for each purpose.
func (s *Service) Keyed(what string, texts ...string) [sha256.Size]byte {
	return s.keyed("page "+what, texts...)
}

// keyed is keyedHash with the secret of this service.
func (s *Service) keyed(what string, texts ...string) [sha256.Size]byte {
	return keyedHash(s.secret, what, texts...)
}

// keyedHash is a hash of texts that requires the secret, separate for each purpose.
func keyedHash(secret []byte, what string, texts ...string) [sha256.Size]byte {
	m := hmac.New(sha256.New, secret)
	for _, text := range append([]string{what}, texts...) {
		sum := sha256.Sum256([]byte(text))
		m.Write(sum[:])
	}
	return [sha256.Size]byte(m.Sum(nil))
}

// sealer encrypts values that only this service may read or make, for one purpose. With the same secret all nodes can
// read them.
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

// seal encrypts a value, bound to its owner.
func (s sealer) seal(of string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values of ours
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(of)))
}

// open decrypts a value; false if this service did not encrypt it for that owner.
func (s sealer) open(of, text string, into any) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(of))
	return err == nil && json.Unmarshal(plain, into) == nil
}
