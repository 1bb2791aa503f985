package api

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
)

// The parts of a key, in bytes.
const (
	keyPrefix   = "rc_"
	idLength    = 12 // 36^12 ids: no collision in practice, short enough to say
	bodyLength  = 43 // 62^43 > 2^256
	sumLength   = 6  // 62^6 > 2^32
	secretStart = len(keyPrefix) + idLength + 1
	sumStart    = secretStart + bodyLength

	// KeyLength is the length of every key.
	KeyLength = sumStart + sumLength
)

const (
	lower36 = "0123456789abcdefghijklmnopqrstuvwxyz"
	base62  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Key is a well-formed API key, rc_<key id>_<secret>; only the ledger knows whether it is valid. The key id is public
// and finds the key in the ledger. The secret is 256 random bits in base 62 with a CRC-32 at the end, so that a
// mistyped or invented key is refused without asking the ledger, and scanners recognize keys in texts. The ledger
// keeps only the SHA-256 of the secret; with 256 random bits no slow hash is needed.
type Key struct {
	ID     string   // public part
	SHA256 [32]byte // of the secret with its checksum
}

// NewKey makes a key. Its text is shown once and stored nowhere.
func NewKey() (text string, k Key) { return NewKeyOf(string(appendRandom(nil, lower36, idLength))) }

// KeyIDOf derives the public part of a key from 32 unguessable bytes. So a repeated request makes the same key.
func KeyIDOf(sum [32]byte) string {
	n, id := new(big.Int).SetBytes(sum[:]), make([]byte, idLength)
	for i := range id {
		digit := new(big.Int)
		n.DivMod(n, big.NewInt(int64(len(lower36))), digit)
		id[i] = lower36[digit.Int64()]
	}
	return string(id)
}

// NewKeyOf makes a key with a public part from KeyIDOf.
func NewKeyOf(id string) (text string, k Key) {
	b := make([]byte, 0, KeyLength)
	b = append(b, keyPrefix...)
	b = append(b, id...)
	b = append(b, '_')
	b = appendRandom(b, base62, bodyLength)
	b = appendSum(b, crc32.ChecksumIEEE(b))
	k = Key{ID: string(b[len(keyPrefix) : len(keyPrefix)+idLength]), SHA256: sha256.Sum256(b[secretStart:])}
	return string(b), k
}

// ParseKey reads a key. ok is false if its form or its checksum is wrong.
func ParseKey(text []byte) (k Key, ok bool) {
	if len(text) != KeyLength || string(text[:len(keyPrefix)]) != keyPrefix || text[secretStart-1] != '_' {
		return Key{}, false
	}
	id := text[len(keyPrefix) : secretStart-1]
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return Key{}, false
		}
	}
	var sum [KeyLength]byte
	want := appendSum(sum[:0], crc32.ChecksumIEEE(text[:sumStart]))
	if string(want) != string(text[sumStart:]) {
		return Key{}, false
	}
	return Key{ID: string(id), SHA256: sha256.Sum256(text[secretStart:])}, true
}

// appendSum appends the checksum in base 62, most significant digit first.
func appendSum(b []byte, sum uint32) []byte {
	var digits [sumLength]byte
	for i := sumLength - 1; i >= 0; i-- {
		digits[i] = base62[sum%62]
		sum /= 62
	}
	return append(b, digits[:]...)
}

// appendRandom appends n characters of the alphabet, each equally likely.
func appendRandom(b []byte, alphabet string, n int) []byte {
	size := big.NewInt(int64(len(alphabet)))
	for range n {
		i, err := rand.Int(rand.Reader, size)
		if err != nil { // never: crypto/rand ends the process if it fails
			panic("api: no randomness: " + err.Error())
		}
		b = append(b, alphabet[i.Int64()])
	}
	return b
}
