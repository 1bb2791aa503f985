package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/hashicorp/memberlist"
)

// keyBytes selects AES-256.
const keyBytes = 32

// keysMax bounds a ring: a message is tried with each key in turn. A rotation needs two. Guess.
const keysMax = 16

// keyFileMax bounds the file of keys, in bytes: keysMax keys and pages of comments.
const keyFileMax = 64 << 10

// keyFileHead is the comment at the top of a file of keys.
const keyFileHead = "# Gossip keys of a rollcall cluster: one a line, the first encrypts, all decrypt. Secret.\n"

// Keyring is the keys that encrypt the gossip, and their file. The primary key encrypts, every key decrypts. A change
// is written to the file first, and then applies to the running gossip at once. If it can't be written, nothing
// changes. Safe for concurrent use. No key appears in an error or a log.
//
// The file has one key a line, 32 bytes in base64, the primary first; a line that begins with # is a comment.
// Comments are lost when the ring changes.
type Keyring struct {
	path string

	mu      sync.Mutex
	keys    [][]byte      // guarded by mu; the primary first, never empty; a slice is never changed in place
	opening []cipher.AEAD // guarded by mu; of keys, in their order

	// library is memberlist's own ring, with its own locks. Keys are added to it, but never removed: its RemoveKey
	// shifts the slice that its readers walk without a lock. Messages that only a removed key decrypts are dropped
	// before the library sees them.
	library *memberlist.Keyring
}

// NewKey makes a key, in base64.
func NewKey() string {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return base64.StdEncoding.EncodeToString(key)
}

// CreateKeyFile writes a file with one new key and mode 0600 and returns the key's fingerprint. An existing file is an
// error (fs.ErrExist) and stays as it is.
func CreateKeyFile(path string) (fingerprint string, err error) {
	text := NewKey()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make gossip key file: %w", err)
	}
	if _, err = f.WriteString(keyFileHead + text + "\n"); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write gossip key file: %w", err)
	}
	key, err := parseKey(text)
	return fingerprintOf(key), err
}

// LoadKeyring reads a file of keys. It returns ErrKeyFile if there is no file, if users other than its owner and group
// may read it or the group may write it, or if a line is neither key nor comment.
func LoadKeyring(path string) (*Keyring, error) {
	path, err := filepath.EvalSymlinks(path) // so that a change does not replace the link
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	// The group may read, because Kubernetes gives secrets to a process this way.
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return nil, fmt.Errorf("%w %s: mode %04o lets others read or write it: chmod 600 it", ErrKeyFile, path, mode)
	}
	if info.Size() > keyFileMax || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w %s: it is not a file of keys", ErrKeyFile, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	keys, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrKeyFile, path, err)
	}
	k := &Keyring{path: path, library: new(memberlist.Keyring)}
	if err := k.install(keys); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrKeyFile, path, err)
	}
	return k, nil
}

func parseKeys(text string) ([][]byte, error) {
	var keys [][]byte
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if slices.ContainsFunc(keys, same(key)) {
			return nil, fmt.Errorf("line %d: this key is on an earlier line too", number)
		}
		keys = append(keys, key)
	}
	switch {
	case len(keys) == 0:
		return nil, errors.New("it has no key: `rollcall cluster keys new FILE` makes one")
	case len(keys) > keysMax:
		return nil, ErrTooManyKeys
	}
	return keys, nil
}

func parseKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != keyBytes {
		return nil, ErrNotAKey // without the text, which may be a mistyped key
	}
	return key, nil
}

// fingerprintOf returns the first 8 hex digits of a key's SHA-256.
func fingerprintOf(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

func same(key []byte) func([]byte) bool {
	return func(k []byte) bool { return string(k) == string(key) }
}

// Fingerprints returns the fingerprints of the keys, the primary key's first.
func (k *Keyring) Fingerprints() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]string, len(k.keys))
	for i, key := range k.keys {
		list[i] = fingerprintOf(key)
	}
	return list
}

// Add puts a key, in base64, on the ring: from then on messages encrypted with it can be read. It is the first step of
// a rotation, on every node. A known key changes nothing. Errors: ErrNotAKey, ErrTooManyKeys, or those of the file.
func (k *Keyring) Add(text string) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(k.keys, same(key)) {
		return nil
	}
	if len(k.keys) == keysMax {
		return ErrTooManyKeys
	}
	return k.change(append(slices.Clone(k.keys), key))
}

// Use makes a key of the ring, named by its fingerprint or in base64, the primary one, which encrypts. It is the second
// step of a rotation, when every node has the key. Errors: ErrNoSuchKey, or those of the file.
func (k *Keyring) Use(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, err := k.find(name)
	if err != nil || i == 0 {
		return err
	}
	keys := [][]byte{k.keys[i]}
	return k.change(append(keys, slices.Delete(slices.Clone(k.keys), i, i+1)...))
}

// Remove takes a key, named by its fingerprint or in base64, off the ring: messages encrypted with it are dropped. It
// is the last step of a rotation, when every node uses another one. Errors: ErrNoSuchKey, ErrKeyInUse, or those of the
// file.
func (k *Keyring) Remove(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, err := k.find(name)
	if err != nil {
		return err
	}
	if i == 0 {
		return ErrKeyInUse
	}
	return k.change(slices.Delete(slices.Clone(k.keys), i, i+1))
}

// find returns the index of a key; mu is held.
func (k *Keyring) find(name string) (int, error) {
	name = strings.TrimSpace(name)
	found := -1
	for i, key := range k.keys {
		if strings.EqualFold(name, fingerprintOf(key)) || name == base64.StdEncoding.EncodeToString(key) {
			if found >= 0 {
				return 0, fmt.Errorf("%w: two keys have this fingerprint: name the key itself", ErrNoSuchKey)
			}
			found = i
		}
	}
	if found < 0 {
		return 0, ErrNoSuchKey
	}
	return found, nil
}

// change writes the ring to the file and then applies it; mu is held.
func (k *Keyring) change(keys [][]byte) error {
	var b strings.Builder
	b.WriteString(keyFileHead)
	for _, key := range keys {
		b.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	}
	if err := renameio.WriteFile(k.path, []byte(b.String()), 0o600, renameio.WithTempDir(filepath.Dir(k.path)),
		renameio.WithStaticPermissions(0o600)); err != nil {
		return fmt.Errorf("%w %s is not changed: %w", ErrKeyFile, k.path, err)
	}
	return k.install(keys)
}

// install replaces the keys of the ring; the caller holds mu, unless the ring is not shared yet. It fails only for a
// key of a wrong length, which parseKey refuses.
func (k *Keyring) install(keys [][]byte) error {
	opening := make([]cipher.AEAD, len(keys))
	for i, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		if opening[i], err = cipher.NewGCM(block); err != nil {
			return err
		}
		if err := k.library.AddKey(key); err != nil {
			return err
		}
	}
	if err := k.library.UseKey(keys[0]); err != nil {
		return err
	}
	k.keys, k.opening = keys, opening
	return nil
}

// ciphers returns the ciphers that decrypt, the primary first; the caller must not change the slice.
func (k *Keyring) ciphers() []cipher.AEAD {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opening
}
