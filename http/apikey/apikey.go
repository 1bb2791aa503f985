package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
)

// The parts of a key, in bytes.
const (
	prefix      = "rc_"
	idLength    = 12 // 36^12 ids: no collision in practice, short enough to say
	bodyLength  = 43 // 62^43 > 2^256
	sumLength   = 6  // 62^6 > 2^32
	secretStart = len(prefix) + idLength + 1
	sumStart    = secretStart + bodyLength

	// Length is the length of every key.
	Length = sumStart + sumLength
)

const (
	lower36 = "0123456789abcdefghijklmnopqrstuvwxyz"
	base62  = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Key is a well-formed key; only the ledger knows whether it is valid.
type Key struct {
	ID     string   // public part
	SHA256 [32]byte // of the secret with its checksum
}

// New makes a key. Its text is shown once and stored nowhere.
func New() (text string, k Key) { return NewOf(string(appendRandom(nil, lower36, idLength))) }

// IDOf derives the public part of a key from 32 unguessable bytes, so that a repeated request makes the same key.
func IDOf(sum [32]byte) string {
	n, id := new(big.Int).SetBytes(sum[:]), make([]byte, idLength)
	for i := range id {
		digit := new(big.Int)
		n.DivMod(n, big.NewInt(int64(len(lower36))), digit)
		id[i] = lower36[digit.Int64()]
	}
	return string(id)
}

// NewOf makes a key with a public part from IDOf.
func NewOf(id string) (text string, k Key) {
	b := make([]byte, 0, Length)
	b = append(b, prefix...)
	b = append(b, id...)
	b = append(b, '_')
	b = appendRandom(b, base62, bodyLength)
	b = appendSum(b, crc32.ChecksumIEEE(b))
	k = Key{ID: string(b[len(prefix) : len(prefix)+idLength]), SHA256: sha256.Sum256(b[secretStart:])}
	return string(b), k
}

// Parse reads a key; ok is false when its form or its checksum is wrong.
func Parse(text []byte) (k Key, ok bool) {
	if len(text) != Length || string(text[:len(prefix)]) != prefix || text[secretStart-1] != '_' {
		return Key{}, false
	}
	id := text[len(prefix) : secretStart-1]
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return Key{}, false
		}
	}
	var sum [Length]byte
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
		if err != nil { // crypto/rand ends the process rather than fail
			panic("apikey: no randomness: " + err.Error())
		}
		b = append(b, alphabet[i.Int64()])
	}
	return b
}
