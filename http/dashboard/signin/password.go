package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// What a password costs to try: 19 MiB of memory, two passes, one thread. It takes some 33 ms of a processor.
const (
	argonMemory  = 19 << 10 // KiB
	argonPasses  = 2
	argonThreads = 1
	argonSalt    = 16
	argonKey     = 32
)

// Bounds of what a kept text may ask for, so that a broken one does not take all memory.
const (
	argonMemoryMax = 256 << 10 // KiB
	argonPassesMax = 16
)

// How long a password is, in characters.
const (
	PasswordLeast = 12
	PasswordMost  = 128
)

// hashesAtOnce passwords are tried at once; hashWaits more wait for hashWait at most. Those who wait are few among the requests
// that a node takes, so that other pages have room.
const (
	hashesAtOnce = 2
	hashWait     = 2 * time.Second
	hashWaits    = 64
)

// ErrBusy says that too many passwords are tried at this moment.
var ErrBusy = errors.New("signin: too many passwords are tried at once")

// The faults of a new password.
var (
	ErrShort  = fmt.Errorf("signin: a password has at least %d characters", PasswordLeast)
	ErrLong   = fmt.Errorf("signin: a password has at most %d characters", PasswordMost)
	ErrEmail  = errors.New("signin: the password is the email")
	ErrCommon = errors.New("signin: the password is a common one")
)

// CheckPassword reports whether somebody may choose a password: ErrShort, ErrLong, ErrEmail, ErrCommon. There are
// no rules about kinds of characters.
func CheckPassword(password, email string) error {
	n := utf8.RuneCountInString(password)
	folded := strings.ToLower(strings.TrimSpace(password))
	switch {
	case n < PasswordLeast:
		return ErrShort
	case n > PasswordMost:
		return ErrLong
	case folded == strings.ToLower(strings.TrimSpace(email)):
		return ErrEmail
	case common[folded] || oneCharacter(folded):
		return ErrCommon
	}
	return nil
}

// oneCharacter reports whether a text repeats one character.
func oneCharacter(text string) bool {
	first, size := utf8.DecodeRuneInString(text)
	return size > 0 && strings.Trim(text, string(first)) == ""
}

// hasher tries passwords, a few at once.
type hasher struct {
	places  chan struct{}
	waiting atomic.Int32
}

func newHasher() *hasher { return &hasher{places: make(chan struct{}, hashesAtOnce)} }

// enter waits for a place; leave gives it back. ErrBusy.
func (h *hasher) enter(ctx context.Context) error {
	select {
	case h.places <- struct{}{}:
		return nil
	default:
	}
	if h.waiting.Add(1) > hashWaits {
		h.waiting.Add(-1)
		return ErrBusy
	}
	defer h.waiting.Add(-1)
	patience := time.NewTimer(hashWait)
	defer patience.Stop()
	select {
	case h.places <- struct{}{}:
		return nil
	case <-patience.C:
		return ErrBusy
	case <-ctx.Done():
		return ErrBusy
	}
}

func (h *hasher) leave() { <-h.places }

// hash makes the PHC text of a password. ErrBusy.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	if err := h.enter(ctx); err != nil {
		return "", err
	}
	defer h.leave()
	salt := make([]byte, argonSalt)
	_, _ = rand.Read(salt) // never fails
	key := argon2.IDKey(plain(password), salt, argonPasses, argonMemory, argonThreads, argonKey)
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonPasses, argonThreads,
		text(salt), text(key)), nil
}

// verify reports whether a password is the one of a PHC text. An empty or broken text costs the same time and is never
// right. ErrBusy.
func (h *hasher) verify(ctx context.Context, kept, password string) (bool, error) {
	if err := h.enter(ctx); err != nil {
		return false, err
	}
	defer h.leave()
	p, ok := parsePHC(kept)
	key := argon2.IDKey(plain(password), p.salt, p.passes, p.memory, p.threads, uint32(len(p.key)))
	return subtle.ConstantTimeCompare(key, p.key) == 1 && ok, nil
}

// plain is a password as it is tried: two ways of writing the same characters are one (Unicode NFKC).
func plain(password string) []byte { return norm.NFKC.Bytes([]byte(password)) }

// phc is a PHC text in its parts.
type phc struct {
	memory, passes uint32
	threads        uint8
	salt, key      []byte
}

// parsePHC reads a PHC text. For one that is no good it gives parts that cost what a good one costs.
func parsePHC(text string) (phc, bool) {
	none := phc{memory: argonMemory, passes: argonPasses, threads: argonThreads,
		salt: make([]byte, argonSalt), key: make([]byte, argonKey)}
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return none, false
	}
	var p phc
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.threads); err != nil || n != 3 ||
		p.memory < 8 || p.memory > argonMemoryMax || p.passes < 1 || p.passes > argonPassesMax || p.threads < 1 {
		return none, false
	}
	var err error
	if p.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4]); err != nil || len(p.salt) < 8 {
		return none, false
	}
	if p.key, err = base64.RawStdEncoding.Strict().DecodeString(parts[5]); err != nil || len(p.key) < 16 {
		return none, false
	}
	return p, true
}
