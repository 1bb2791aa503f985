package operate

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"rollcall/http/web"
)

const (
	// cookieName begins the name of the cookie of a session. The prefix makes browsers refuse it from other hosts and over
	// plain http.
	cookieName = "__Host-rollcall-operator"

	// codeHolds is how long a link can be used.
	codeHolds = time.Minute
	// codesMax bounds the links that wait for use; the oldest goes first.
	codesMax = 100

	// A session ends after idle without a page that somebody opened, and after life in all.
	idle = time.Hour
	life = 12 * time.Hour
	// endedMax bounds the sessions that somebody ended and whose cookie would still hold.
	endedMax = 10_000

	secretBytes = 32
)

// session is who looks. The browser keeps it, sealed: no ledger and no other node is asked, and no other node takes it.
type session struct {
	ID       string    `json:"id"`
	Author   string    `json:"author"` // of changes; "": it is not said
	ReadOnly bool      `json:"read_only"`
	Begun    time.Time `json:"begun"`
	Seen     time.Time `json:"seen"`
}

// errSession says that a cookie is none of ours, or is over.
var errSession = errors.New("operate: no session")

// keeper makes and reads sessions and the codes of links. Safe for concurrent use.
type keeper struct {
	seal cipher.AEAD
	now  func() time.Time

	mu    sync.Mutex
	codes map[string]code      // by the code
	ended map[string]time.Time // sessions that were ended, until their cookie would not hold anyway
}

// code is what a link is for.
type code struct {
	author   string
	readOnly bool
	until    time.Time
}

// newKeeper derives the key of cookies from the admin token and from random bytes of its own. So no other process takes its
// cookies, also when it has the same token: a session ends with the process that made it, and one that was signed out there
// opens nothing anywhere.
func newKeeper(token string, now func() time.Time) (*keeper, error) {
	salt := make([]byte, secretBytes)
	rand.Read(salt)
	key, err := hkdf.Key(sha256.New, []byte(token), salt, "rollcall operator session", secretBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &keeper{seal: seal, now: now, codes: map[string]code{}, ended: map[string]time.Time{}}, nil
}

// newCode makes a code that can be used once.
func (k *keeper) newCode(author string, readOnly bool) (string, time.Time) {
	name, now := rand.Text(), k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	oldest := ""
	for known, c := range k.codes {
		switch {
		case !now.Before(c.until):
			delete(k.codes, known)
		case oldest == "" || c.until.Before(k.codes[oldest].until):
			oldest = known
		}
	}
	if len(k.codes) >= codesMax {
		delete(k.codes, oldest)
	}
	k.codes[name] = code{author, readOnly, now.Add(codeHolds)}
	return name, now.Add(codeHolds)
}

// look says what a code is for, while it can be used. use takes it.
func (k *keeper) look(name string, use bool) (code, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.codes[name]
	if use {
		delete(k.codes, name)
	}
	return c, ok && k.now().Before(c.until)
}

// begin makes a session.
func (k *keeper) begin(c code) session {
	now := k.now()
	return session{ID: rand.Text(), Author: c.author, ReadOnly: c.readOnly, Begun: now, Seen: now}
}

// end ends a session, whatever cookie somebody kept of it.
func (k *keeper) end(s session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	for id, until := range k.ended {
		if !now.Before(until) || len(k.ended) >= endedMax {
			delete(k.ended, id)
		}
	}
	k.ended[s.ID] = s.Begun.Add(life)
}

// open reads a cookie.
func (k *keeper) open(text string) (session, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return session{}, errSession
	}
	plain, err := k.seal.Open(nil, nil, sealed, []byte(cookieName))
	if err != nil {
		return session{}, errSession
	}
	var s session
	if err := json.Unmarshal(plain, &s); err != nil {
		return session{}, errSession
	}
	k.mu.Lock()
	_, ended := k.ended[s.ID]
	k.mu.Unlock()
	if now := k.now(); ended || !now.Before(s.Begun.Add(life)) || !now.Before(s.Seen.Add(idle)) {
		return session{}, errSession
	}
	return s, nil
}

// cookieOf is the name of the cookie for who asked. Cookies know no ports, so the name carries the one that the browser
// asked for: sessions at two nodes of one machine, or by two tunnels, live side by side.
func cookieOf(r *http.Request) string {
	_, text, err := net.SplitHostPort(r.Host)
	if err != nil {
		return cookieName
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return cookieName
	}
	return cookieName + "-" + strconv.FormatUint(port, 10)
}

// give has the browser keep a session.
func (k *keeper) give(w http.ResponseWriter, r *http.Request, s session) {
	plain, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Errorf("operate: a session: %w", err))
	}
	web.SetCookie(w, cookieOf(r), base64.RawURLEncoding.EncodeToString(k.seal.Seal(nil, nil, plain, []byte(cookieName))), 0,
		http.SameSiteStrictMode)
}

// of reads the session of a request; two cookies are none.
func (k *keeper) of(r *http.Request) (session, error) {
	return k.open(web.CookieOf(r, cookieOf(r)))
}
