package signin

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/text/unicode/norm"

	"rollcall/ledger"
)

// cost is the cost of trying a password: 19 MiB of memory, two passes, one thread, some 33 ms of a processor.
var cost = &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// nobodys is a PHC text of the usual cost. Nobody knows its password.
const nobodys = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Bounds of the cost in a stored text, so that a broken text doesn't use up all memory.
const (
	memoryMax = 256 << 10 // KiB
	passesMax = 16
)

// How long a password is, in characters.
const (
	PasswordLeast = 12
	PasswordMost  = 128
)

// hashesAtOnce passwords are tried at once; hashWaits more wait for at most hashWait. These numbers are small
// compared with a node's requests, so that other pages get through.
const (
	hashesAtOnce = 2
	hashWait     = 2 * time.Second
	hashWaits    = 64
)

// ErrBusy: too many passwords are being tried now.
var ErrBusy = errors.New("signin: too many passwords are tried at once")

// The faults of a new password.
var (
	ErrShort  = fmt.Errorf("signin: a password has at least %d characters", PasswordLeast)
	ErrLong   = fmt.Errorf("signin: a password has at most %d characters", PasswordMost)
	ErrEmail  = errors.New("signin: the password is the email")
	ErrCommon = errors.New("signin: the password is a common one")
)

// CheckPassword refuses a bad new password: ErrShort, ErrLong, ErrEmail, ErrCommon. There are no rules about kinds of
// characters.
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
	case slices.Contains(common, folded) || oneCharacter(folded):
		return ErrCommon
	}
	return nil
}

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

// enter waits for a slot; leave gives it back. Error: ErrBusy.
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
	select {
	case h.places <- struct{}{}:
		return nil
	case <-time.After(hashWait):
		return ErrBusy
	case <-ctx.Done():
		return ErrBusy
	}
}

func (h *hasher) leave() { <-h.places }

// hash makes the PHC text of a password. Error: ErrBusy.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	if err := h.enter(ctx); err != nil {
		return "", err
	}
	defer h.leave()
	return argon2id.CreateHash(plain(password), cost)
}

// verify reports whether a PHC text belongs to a password. An empty or broken text takes equally long and matches no
// password. Error: ErrBusy.
func (h *hasher) verify(ctx context.Context, kept, password string) (bool, error) {
	if err := h.enter(ctx); err != nil {
		return false, err
	}
	defer h.leave()
	ok := usable(kept)
	if !ok {
		kept = nobodys
	}
	right, err := argon2id.ComparePasswordAndHash(plain(password), kept)
	return right && ok, err
}

// plain normalizes a password (Unicode NFKC), so that different encodings of the same characters are equal.
func plain(password string) string { return norm.NFKC.String(password) }

// usable reports whether a PHC text is complete and within the bounds. The library would panic at a text without
// passes or threads.
func usable(phc string) bool {
	p, salt, key, err := argon2id.DecodeHash(phc)
	return err == nil && p.Memory >= 8 && p.Memory <= memoryMax && p.Iterations >= 1 && p.Iterations <= passesMax &&
		p.Parallelism >= 1 && len(salt) >= 8 && len(key) >= 16
}

//go:embed common.txt
var commonFile string

// common are the passwords of at least 12 characters that attackers try first, in lower case.
var common = strings.Split(strings.TrimSpace(commonFile), "\n")

// How many requests about one subject are accepted at once: one runs, the others wait. One network may be a whole
// office.
const (
	turnsMost   = 8
	networkMost = hashWaits
)

// subjectQueues let only one request at a time try a password or a code of one subject, or from one network. So each
// failure is counted before the next try. Each node does this for itself, so n nodes allow up to n-1 more tries. The
// zero value is ready. Safe for concurrent use.
type subjectQueues struct {
	mu    sync.Mutex
	taken map[ledger.Hash]*subjectQueue // guarded by mu
}

type subjectQueue struct {
	busy chan struct{}
	in   int // requests that run or wait; guarded by mu of subjectQueues
}

// take waits until the subject is free, and returns the function that frees it. ErrBusy: too many requests wait
// already, or the context ended.
func (t *subjectQueues) take(ctx context.Context, subject ledger.Hash, most int) (leave func(), err error) {
	t.mu.Lock()
	one := t.taken[subject]
	if one == nil {
		if t.taken == nil {
			t.taken = map[ledger.Hash]*subjectQueue{}
		}
		one = &subjectQueue{busy: make(chan struct{}, 1)}
		t.taken[subject] = one
	}
	full := one.in >= most
	if !full {
		one.in++
	}
	t.mu.Unlock()
	if full {
		return nil, ErrBusy
	}
	select {
	case one.busy <- struct{}{}:
		return func() { <-one.busy; t.left(subject, one) }, nil
	case <-ctx.Done():
		t.left(subject, one)
		return nil, ErrBusy
	}
}

// takeBoth takes a subject and its network, in this order.
func (t *subjectQueues) takeBoth(ctx context.Context, subject, network ledger.Hash) (leave func(), err error) {
	first, err := t.take(ctx, subject, turnsMost)
	if err != nil {
		return nil, err
	}
	second, err := t.take(ctx, network, networkMost)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// left removes a request from a subject. It drops a subject without requests.
func (t *subjectQueues) left(subject ledger.Hash, one *subjectQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.in--; one.in == 0 {
		delete(t.taken, subject)
	}
}
