package http

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// cursorMax is the contract's bound; ours are 70 characters.
const cursorMax = 512

// cursorSize is what is sealed: nanoseconds since 1970 and the id of the last
// row that was shown.
const cursorSize = 8 + 16

// cursorSealer turns places in a history into texts that only this service
// makes and only the same workspace with the same filter can use: AES-256-GCM
// with workspace and filter as associated data.
type cursorSealer struct{ aead cipher.AEAD }

func newCursorSealer(key []byte) (*cursorSealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key of the cursors: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("key of the cursors: %w", err)
	}
	return &cursorSealer{aead: aead}, nil
}

// seal makes a cursor.
func (c *cursorSealer) seal(p ledger.Position, workspace uuid.UUID, kind ledger.Kind) string {
	var plain [cursorSize]byte
	binary.BigEndian.PutUint64(plain[:8], uint64(p.Created.UnixNano()))
	copy(plain[8:], p.ID[:])
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, plain[:], bindCursor(workspace, kind)))
}

// open reads a cursor; false for one that is malformed, altered, or of another
// workspace or filter.
func (c *cursorSealer) open(text []byte, workspace uuid.UUID, kind ledger.Kind) (ledger.Position, bool) {
	if len(text) > cursorMax {
		return ledger.Position{}, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(string(text))
	if err != nil {
		return ledger.Position{}, false
	}
	plain, err := c.aead.Open(nil, nil, sealed, bindCursor(workspace, kind))
	if err != nil || len(plain) != cursorSize {
		return ledger.Position{}, false
	}
	return ledger.Position{
		Created: time.Unix(0, int64(binary.BigEndian.Uint64(plain[:8]))),
		ID:      uuid.UUID(plain[8:]),
	}, true
}

// bindCursor is what a cursor is bound to.
func bindCursor(workspace uuid.UUID, kind ledger.Kind) []byte {
	return append(workspace[:], kind...)
}
