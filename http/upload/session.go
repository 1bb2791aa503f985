package upload

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/google/uuid"
)

// Session is the durable state of one upload. Invariant: 0 <= Durable <= Declared, and Declared >= 1. Durable never
// falls.
type Session struct {
	Declared  int64 // length of the whole file, given at creation
	Durable   int64 // bytes from the file's start that no crash can lose
	Expired   bool  // the URL has expired
	Cancelled bool  // the verification was cancelled
}

// Complete reports whether every declared byte is durable. A complete session stays complete, whatever happens to its
// verification.
func (s Session) Complete() bool { return s.Durable == s.Declared }

// Request is the head of one PUT to the storage URL.
type Request struct {
	ContentRanges []string // every Content-Range value, in order
	Length        int64    // Content-Length in bytes; LengthUnknown when there is none
	Transfer      bool     // a Transfer-Encoding was sent
	Encoded       bool     // a Content-Encoding was sent
}

// LengthUnknown is the length of a request without Content-Length.
const LengthUnknown int64 = -1

// Action is what to do with a request.
type Action uint8

// The four actions. The zero Action is none of them.
const (
	_          Action = iota
	Take              // read Skip bytes and drop them, then store Store bytes at Durable
	Done              // answer that the whole file is durable
	Incomplete        // answer what is durable
	Refuse            // answer Err
)

// Decision is one action with its numbers. Only Take reads the body; every other action is an answer before the body's
// last byte, so the connection cannot be used again unless the body is empty.
type Decision struct {
	Action  Action
	Durable int64 // for Take and Incomplete: the durable end
	Skip    int64 // for Take: bytes at the front of the body already durable
	Store   int64 // for Take: bytes after those, at least 1; Skip + Store is the whole body
	Err     error // for Refuse: one of this package's refusals
}

// Decide decides what to do with a request. It is a pure function of session and request.
func Decide(s Session, r Request) Decision {
	span, hasRange, rangeErr := rangeOf(r)
	query := hasRange && rangeErr == nil && span.Query
	switch {
	case r.Transfer || (r.Length == LengthUnknown && !query):
		return refuse(ErrLengthRequired)
	case r.Encoded:
		return refuse(ErrEncoding)
	}
	if closed := After(s); closed.Action != Incomplete {
		return closed
	}
	switch {
	case rangeErr != nil:
		return refuse(rangeErr)
	case query:
		return decideQuery(s, span, r.Length)
	case hasRange:
		return decideData(s, span, r.Length)
	case r.Length > s.Declared:
		return refuse(ErrTooLarge)
	case r.Length < s.Declared:
		return refuse(ErrLengthMismatch)
	}
	return decideData(s, Range{First: 0, Last: s.Declared - 1, Total: s.Declared}, r.Length)
}

// After returns the answer that depends only on the session: after a write, and for every request once the session is
// over.
func After(s Session) Decision {
	switch {
	case s.Complete():
		return Decision{Action: Done, Durable: s.Durable}
	case s.Cancelled:
		return refuse(ErrCancelled)
	case s.Expired:
		return refuse(ErrExpired)
	}
	return Decision{Action: Incomplete, Durable: s.Durable}
}

// rangeOf returns a request's Content-Range, if it has one. Several headers count as several ranges.
func rangeOf(r Request) (span Range, found bool, err error) {
	switch len(r.ContentRanges) {
	case 0:
		return Range{}, false, nil
	case 1:
		span, err = ParseRange(r.ContentRanges[0])
		return span, true, err
	}
	return Range{}, true, ErrRangeInvalid
}

// decideQuery answers a status query on an open session.
func decideQuery(s Session, span Range, length int64) Decision {
	switch {
	case span.Total != TotalUnknown && span.Total != s.Declared:
		return refuse(ErrLengthMismatch)
	case length > 0:
		return refuse(ErrRangeInvalid)
	}
	return After(s)
}

// decideData compares the bytes of a data range with those that are durable.
func decideData(s Session, span Range, length int64) Decision {
	switch {
	case span.Total != s.Declared:
		return refuse(ErrLengthMismatch)
	case length != span.Last-span.First+1:
		return refuse(ErrRangeInvalid)
	case span.First > s.Durable, // a gap: the client has to continue at the durable end
		span.Last < s.Durable: // all of it is durable
		return After(s)
	}
	skip := s.Durable - span.First
	return Decision{Action: Take, Durable: s.Durable, Skip: skip, Store: length - skip}
}

func refuse(err error) Decision { return Decision{Action: Refuse, Err: err} }

// TokenKeyBytes is the length of the key that signs tokens: as long as the HMAC's output, the minimum by RFC 2104 §3.
const TokenKeyBytes = 32

// TokenBytes is the length of a token's text: 16 bytes of id and 32 of HMAC in base64url, unpadded.
const TokenBytes = 64

// PathPrefix precedes the token in the path of an upload URL.
const PathPrefix = "/upload/"

// Tokens makes and checks the secret of an upload URL. A token is a bearer secret of 256 bits: it names one
// verification and proves that we made the token. The same id always gives the same token, so that a repeated
// creation gives the same URL. Safe for concurrent use.
type Tokens struct {
	key [TokenKeyBytes]byte
}

// NewTokens makes Tokens with a key.
func NewTokens(key [TokenKeyBytes]byte) *Tokens { return &Tokens{key} }

// Token returns the token of a verification: TokenBytes characters of base64url (RFC 4648 §5). Never log it.
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

// URL returns the address to which a customer sends the file's bytes, under the public base address of the storage
// listener. Never log it.
func (t *Tokens) URL(base string, id uuid.UUID) string {
	return strings.TrimSuffix(base, "/") + PathPrefix + t.Token(id)
}

func (t *Tokens) sign(id uuid.UUID) []byte {
	mac := hmac.New(sha256.New, t.key[:])
	mac.Write(id[:])
	return mac.Sum(nil)
}
