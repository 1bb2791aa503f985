package http

import (
	"context"
	"crypto/subtle"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/http/apikey"
	"rollcall/http/uses"
	"rollcall/ledger"
)

// errBadKey is a key that is malformed, unknown or revoked; nobody is told which.
var errBadKey = errors.New("http: the key is not good")

// How long an answer about a key is believed. A revoked key must stop within 5
// seconds, counted from before the ledger was asked; the second left over is for
// a request on its way. A bad one is forgotten sooner, for keys just made.
const (
	goodKeyLife = 4 * time.Second
	badKeyLife  = time.Second
)

// goodKeysMax and badKeysMax bound the two kinds of answers, of about 200 bytes
// each: 13 MB and 3 MB. At the bound those are forgotten that nobody has shown for longest. They are apart so
// that nobody pushes good keys out by guessing.
const (
	goodKeysMax = 65536
	badKeysMax  = 16384
)

// keyState is what the cache knows of a key that a request shows.
type keyState int

const (
	keyUnknown  keyState = iota // the ledger must be asked
	keyStale                    // it was good: the ledger must be asked again
	keyAccepted                 // it is good
	keyRejected                 // it is not
)

// keyCache remembers what the ledger said about keys. Good ones stay after the end
// of goodKeyLife: they are not believed then, but they are no guesses.
type keyCache struct {
	book Book
	now  func() time.Time
	ask  singleflight.Group
	used *uses.Notes[string]

	good *lru.Cache[string, goodKey]   // by key id
	bad  *lru.Cache[string, time.Time] // until when, by key id
}

// goodKey is a key and until when it is believed.
type goodKey struct {
	key   ledger.Key
	until time.Time
}

func newKeyCache(book Book, now func() time.Time) *keyCache {
	return &keyCache{book: book, now: now, good: newLRU[goodKey](goodKeysMax),
		bad:  newLRU[time.Time](badKeysMax),
		used: uses.New(func(ctx context.Context, ids []string) error { return book.UseKeys(ctx, ids) })}
}

// recall says what is known of a key without asking the ledger. The secret of an id
// never changes, so a wrong one needs no question.
func (c *keyCache) recall(presented apikey.Key) (ledger.Key, keyState) {
	g, isGood := c.good.Get(presented.ID)
	until, isBad := c.bad.Get(presented.ID)
	now := c.now()
	same := sameSecret(g.key, presented)
	switch {
	case isGood && !same, isBad && now.Before(until):
		return ledger.Key{}, keyRejected
	case isGood && now.Before(g.until):
		return g.key, keyAccepted
	case isGood:
		return ledger.Key{}, keyStale
	}
	return ledger.Key{}, keyUnknown
}

// sameSecret compares in constant time, and for an unknown id against zeros, so that
// both take as long.
func sameSecret(key ledger.Key, presented apikey.Key) bool {
	return subtle.ConstantTimeCompare(key.SecretSHA256[:], presented.SHA256[:]) == 1
}

// look asks the ledger whose key it is: errBadKey, or the ledger's error. Requests
// that ask at the same time share one question.
func (c *keyCache) look(ctx context.Context, presented apikey.Key) (ledger.Key, error) {
	id := presented.ID
	v, err, _ := c.ask.Do(id, func() (any, error) {
		asked := c.now()
		key, err := c.book.KeyByID(ctx, id)
		switch {
		case errors.Is(err, ledger.ErrNoSuchKey), err == nil && !key.Revoked.IsZero():
			c.good.Remove(id)
			c.bad.Add(id, asked.Add(badKeyLife))
			return ledger.Key{}, errBadKey
		case err != nil:
			return nil, err
		}
		c.bad.Remove(id)
		c.good.Add(id, goodKey{key: key, until: asked.Add(goodKeyLife)})
		return key, nil
	})
	if err != nil {
		return ledger.Key{}, err
	}
	key := v.(ledger.Key)
	if !sameSecret(key, presented) {
		return ledger.Key{}, errBadKey
	}
	if c.now().Sub(key.LastUsed) >= uses.Every {
		c.used.Note(id)
	}
	return key, nil
}

// newLRU makes a bounded memory that forgets what was not used for longest.
func newLRU[V any](most int) *lru.Cache[string, V] {
	c, err := lru.New[string, V](most)
	if err != nil {
		panic(err) // most is a constant above 0
	}
	return c
}
