package upload

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// TokenKeyBytes is the length of the key that signs tokens: as long as the HMAC's output, the minimum by RFC 2104 §3.
const TokenKeyBytes = 32

// TokenBytes is the length of a token's text: 16 bytes of id and 32 of HMAC in base64url, unpadded.
const TokenBytes = 64

// PathPrefix precedes the token in the path of an upload URL.
const PathPrefix = "/upload/"

// ErrTokenKey means that the signing key does not have TokenKeyBytes bytes.
var ErrTokenKey = errors.New("upload: the token key has the wrong length")

// Tokens makes and checks the secret of an upload URL. A token is a bearer secret of 256 bits: it names one
// verification and proves that we made it. The same id always gives the same token, so that a repeated creation gives
// the same URL. Safe for concurrent use.
type Tokens struct {
	key [TokenKeyBytes]byte
}

// NewTokens makes Tokens with a key. Error: ErrTokenKey.
func NewTokens(key []byte) (*Tokens, error) {
	if len(key) != TokenKeyBytes {
		return nil, fmt.Errorf("%w: %d bytes instead of %d", ErrTokenKey, len(key), TokenKeyBytes)
	}
	t := &Tokens{}
	copy(t.key[:], key)
	return t, nil
}

// Token is the token of a verification: TokenBytes characters of base64url (RFC 4648 §5). Never log it.
func (t *Tokens) Token(id uuid.UUID) string {
	sealed := append(id[:], t.sign(id)...)
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// Parse returns the id in a token that we made, and false for every other text. The signature is compared in constant
// time.
func (t *Tokens) Parse(token string) (uuid.UUID, bool) {
	if len(token) != TokenBytes || strings.ContainsAny(token, "\r\n") { // the decoder skips line ends
		return uuid.UUID{}, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return uuid.UUID{}, false
	}
	id := uuid.UUID(sealed[:16])
	if !hmac.Equal(sealed[16:], t.sign(id)) {
		return uuid.UUID{}, false
	}
	return id, true
}

// URL is the address that a customer sends the file's bytes to, under the
// public base address of the storage listener. Never log it.
func (t *Tokens) URL(base string, id uuid.UUID) string {
	return strings.TrimSuffix(base, "/") + PathPrefix + t.Token(id)
}

func (t *Tokens) sign(id uuid.UUID) []byte {
	mac := hmac.New(sha256.New, t.key[:])
	mac.Write(id[:])
	return mac.Sum(nil)
}
