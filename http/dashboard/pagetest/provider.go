package pagetest

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"rollcall/config/effort"
)

// ClientID and Secret belong to the only client.
const (
	ClientID = "rollcall"
	Secret   = "the secret of the client"
)

// Provider is a provider that ends with its test. Safe for concurrent use.
type Provider struct {
	URL       string       // the issuer
	Away      atomic.Bool  // true: its answers are useless
	Foreign   atomic.Bool  // true: it signs with an unpublished key
	Exchanged atomic.Int64 // how often a code was exchanged

	t  testing.TB
	mu sync.Mutex

	grants map[string]grant // guarded by mu: by the code
	info   map[string]any   // guarded by mu: the answer of UserInfo
	front  string           // guarded by mu: origin of its page; "": that of URL
}

// grant holds the claims for a code, and the parameters of the browser's request.
type grant struct {
	claims map[string]any
	asked  url.Values
}

// StartProvider starts a provider.
func StartProvider(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, grants: map[string]grant{}}
	m := http.NewServeMux()
	m.HandleFunc("GET /.well-known/openid-configuration", p.discover)
	m.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: keys()[0].Public(), KeyID: keyID, Algorithm: "RS256", Use: "sig"}}})
	})
	m.HandleFunc("POST /token", p.token)
	m.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answer(w, p.info)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		m.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// discover answers with the provider's endpoints.
func (p *Provider) discover(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	front := cmp.Or(p.front, p.URL)
	p.mu.Unlock()
	p.answer(w, map[string]any{"issuer": p.URL, "authorization_endpoint": front + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/info", "id_token_signing_alg_values_supported": []string{"RS256"}})
}

func (p *Provider) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	effort.ErrIs(p.t, json.NewEncoder(w).Encode(v), nil)
}

const keyID = "1"

// keys are made once for all tests: the key of providers, and a foreign one.
var keys = sync.OnceValue(func() (made [2]*rsa.PrivateKey) {
	for i := range made {
		var err error
		if made[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			panic(err)
		}
	}
	return made
})

// SetInfo sets the answer of UserInfo.
func (p *Provider) SetInfo(info map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = info
}

// SetFront sets the origin of the provider's page; "": URL.
func (p *Provider) SetFront(origin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.front = origin
}

// Claims returns the provider's claims about a person at a time, for a request with this query. change replaces some
// of them: names and values in turn.
func (p *Provider) Claims(asked url.Values, now time.Time, subject, email string, change ...any) map[string]any {
	c := map[string]any{"iss": p.URL, "sub": subject, "aud": ClientID, "exp": now.Add(time.Minute).Unix(), "iat": now.Unix(),
		"nonce": asked.Get("nonce"), "email": email, "email_verified": true, "name": "Name of " + subject}
	for i := 0; i < len(change); i += 2 {
		c[change[i].(string)] = change[i+1]
	}
	return c
}

// Give makes a one-time code for claims.
func (p *Provider) Give(claims map[string]any, asked url.Values) string {
	code := uuid.NewString()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[code] = grant{claims, asked}
	return code
}

// Withdraw marks a code as used.
func (p *Provider) Withdraw(code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.grants, code)
}

// token exchanges a code once, for a client that sends the secret and the verifier.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	code := r.PostFormValue("code")
	claims, asked := p.grants[code].claims, p.grants[code].asked
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != ClientID || secret != Secret || claims == nil || asked.Get("code_challenge_method") != "S256" ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	delete(p.grants, code)
	p.Exchanged.Add(1)
	key := keys()[0]
	if p.Foreign.Load() {
		key = keys()[1]
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, nil)
	if err != nil {
		p.t.Error(err)
		return
	}
	text, _ := json.Marshal(claims)
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return
	}
	raw, _ := signed.CompactSerialize()
	p.answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": raw})
}
