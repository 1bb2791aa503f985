package signin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/ledger"
)

// A session ends SessionLife after sign-in, or after SessionIdle without a page: by default 168 and 12 hours (package
// config). The ledger decides that; this file caches its answers.

const (
	// believed is how long an answer about a session is cached, counted from before the ledger was asked.
	believed = 4 * time.Second

	// sessionsMax bounds the cached answers. At the bound the least recently used is dropped.
	sessionsMax = 16384

	// endedFor is how long the end of a session is remembered. An older answer of the ledger could otherwise revive
	// the session.
	endedFor = believed + 5*time.Second
)

// sessionCache caches the ledger's answers about sessions.
type sessionCache struct {
	book ledger.People
	idle time.Duration
	now  func() time.Time
	ask  singleflight.Group
	used *ledger.Uses[ledger.Hash]

	known *lru.Cache[ledger.Hash, cachedSession]

	mu    sync.Mutex
	ended map[ledger.Hash]time.Time // guarded by mu: sessions that ended here, and how long that is remembered
}

type cachedSession struct {
	in    ledger.SignedIn
	until time.Time
}

func newSessionCache(book ledger.People, idle time.Duration, now func() time.Time) *sessionCache {
	c := &sessionCache{book: book, idle: idle, now: now, ended: map[ledger.Hash]time.Time{},
		used: ledger.NewUses(book.UseSessions)}
	c.known, _ = lru.New[ledger.Hash, cachedSession](sessionsMax)
	return c
}

// get returns a session. Errors: ledger.ErrNoSuchSession; any other error means that it is unknown.
func (c *sessionCache) get(ctx context.Context, id ledger.Hash) (ledger.SignedIn, error) {
	kept, known := c.known.Get(id)
	if known && c.now().Before(kept.until) {
		return kept.in, nil
	}
	return c.getSince(ctx, id, c.now().Add(-believed))
}

// getSince returns a session from an answer that is not older than a time.
func (c *sessionCache) getSince(ctx context.Context, id ledger.Hash, since time.Time) (ledger.SignedIn, error) {
	for {
		answer, err := c.question(ctx, id)
		if err != nil || !answer.asked.Before(since) { // otherwise the answer is of an earlier request
			return answer.in, err
		}
	}
}

// answered is the ledger's answer to a question, with its time.
type answered struct {
	in    ledger.SignedIn
	asked time.Time
}

// question asks the ledger about a session, or waits for the answer to a question in progress.
func (c *sessionCache) question(ctx context.Context, id ledger.Hash) (answered, error) {
	v, err, _ := c.ask.Do(string(id[:]), func() (any, error) {
		asked := c.now()
		in, err := c.book.SessionByID(ctx, id, c.idle)
		switch {
		case errors.Is(err, ledger.ErrNoSuchSession):
			c.known.Remove(id)
			c.used.Forget(id)
		case err == nil:
			c.keep(id, in, asked)
		}
		return answered{in, asked}, err
	})
	return v.(answered), err
}

// keep caches the ledger's answer to a question asked at this time.
func (c *sessionCache) keep(id ledger.Hash, in ledger.SignedIn, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, over := c.ended[id]; over && !asked.After(at) {
		return
	}
	c.known.Add(id, cachedSession{in: in, until: asked.Add(believed)})
	if asked.Sub(in.Session.Seen) >= ledger.UseEvery {
		c.used.Note(id)
	}
}

// forget makes the next request with a session ask the ledger again.
func (c *sessionCache) forget(id ledger.Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Remove(id)
	c.used.Forget(id)
	now := c.now()
	maps.DeleteFunc(c.ended, func(_ ledger.Hash, at time.Time) bool { return now.Sub(at) > endedFor })
	if len(c.ended) < sessionsMax {
		c.ended[id] = now
	}
}

// forgetUser does the same for all sessions of a user.
func (c *sessionCache) forgetUser(user ledger.User) {
	for _, id := range c.known.Keys() {
		if kept, _ := c.known.Peek(id); kept.in.User.ID == user.ID {
			c.forget(id)
		}
	}
}

// tokenBytes is the number of random bytes in a cookie and in a link.
const tokenBytes = 32

// Token is the secret of a session or of a link, in a cookie or in a URL.
type Token string

// NewToken makes a random token.
func NewToken() Token {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return tokenOf(random[:])
}

func tokenOf(bytes []byte) Token { return Token(base64.RawURLEncoding.EncodeToString(bytes)) }

// Hash returns the token's form in the ledger. For an invalid token it returns false.
func (t Token) Hash() (ledger.Hash, bool) {
	bytes, err := base64.RawURLEncoding.Strict().DecodeString(string(t))
	if err != nil || len(bytes) != tokenBytes {
		return ledger.Hash{}, false
	}
	return sha256.Sum256(bytes), true
}

// TokenOf derives the token of a form, so that a repeated form gets the same token. The texts, among them the form's
// own id, must identify the form.
func (s *Service) TokenOf(what string, texts ...string) Token {
	return DeriveToken(s.secret, what, texts...)
}

// DeriveToken is TokenOf with a secret that the caller supplies.
func DeriveToken(secret []byte, what string, texts ...string) Token {
	random := keyedHash(secret, what, texts...)
	return tokenOf(random[:])
}

// Keyed returns a hash of texts that only this service can make. Each purpose has hashes of its own.
func (s *Service) Keyed(what string, texts ...string) [sha256.Size]byte {
	return s.keyed("page "+what, texts...)
}

func (s *Service) keyed(what string, texts ...string) [sha256.Size]byte {
	return keyedHash(s.secret, what, texts...)
}

// keyedHash returns a hash of texts that needs the secret. Each purpose has hashes of its own.
func keyedHash(secret []byte, what string, texts ...string) [sha256.Size]byte {
	m := hmac.New(sha256.New, secret)
	for _, text := range append([]string{what}, texts...) {
		sum := sha256.Sum256([]byte(text))
		m.Write(sum[:])
	}
	return [sha256.Size]byte(m.Sum(nil))
}

// sealer encrypts values for one purpose. Only this service can read or make them; all its nodes have the same secret
// and can read them.
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

// seal encrypts a value and binds it to its owner.
func (s sealer) seal(of string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values of ours
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(of)))
}

// open decrypts a value. It returns false if this service did not encrypt the value for that owner.
func (s sealer) open(of, text string, into any) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(of))
	return err == nil && json.Unmarshal(plain, into) == nil
}
