package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"rollcall/ledger"
)

const (
	// timeout bounds one question to the provider.
	timeout = 5 * time.Second
	// answerMax bounds its answer.
	answerMax = 1 << 20
	// knownFor is how long its endpoints are cached; then they are read anew, and the old ones stay if that fails.
	knownFor = time.Hour
	// awayFor is how long a silent provider is not asked again.
	awayFor = 5 * time.Second
)

var (
	// ErrAway: the provider does not answer, or not like a provider.
	ErrAway = errors.New("provider: it does not answer")
	// ErrRefused: the answer can't be trusted.
	ErrRefused = errors.New("provider: it did not say who this is")
)

// ProviderOptions are the options of a Provider; all but Now are required.
type ProviderOptions struct {
	Issuer   string
	ClientID string
	Secret   string
	Redirect func() string    // URL to which it sends browsers back, registered there
	Now      func() time.Time // nil: time.Now
}

// Provider is a client of an OpenID Connect provider. Safe for concurrent use.
type Provider struct {
	o      ProviderOptions
	client *http.Client
	asking singleflight.Group

	mu    sync.Mutex     // never held during a request to the provider, because every page reads Origin
	known *oidc.Provider // guarded by mu; nil: it has never answered
	ask   time.Time      // guarded by mu: when to read its endpoints again
	fault error          // guarded by mu: of the last request, while known is nil
}

// NewProvider makes a Provider without asking it anything yet.
func NewProvider(o ProviderOptions) *Provider {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Provider{o: o, client: &http.Client{Timeout: timeout, Transport: boundedAnswers{http.DefaultTransport}}}
}

// boundedAnswers cuts answers that are too long.
type boundedAnswers struct{ next http.RoundTripper }

// RoundTrip sends one request.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, answerMax), res.Body}
	}
	return res, err
}

// Attempt is one round trip of a browser to the provider. Only that browser may have it.
type Attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Who is a person, as the provider describes them.
type Who struct {
	Identity string // as ledger.Identity writes it
	Email    string // that it has verified; "": none
	Name     string
}

// Begin returns the URL for the browser. Error: ErrAway.
func (p *Provider) Begin(ctx context.Context) (string, Attempt, error) {
	known, err := p.discoverOnce(ctx)
	if err != nil {
		return "", Attempt{}, err
	}
	a := Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	settings := p.oauthSettings(known)
	return settings.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), a, nil
}

func (p *Provider) oauthSettings(known *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: p.o.ClientID, ClientSecret: p.o.Secret, Endpoint: known.Endpoint(),
		RedirectURL: p.o.Redirect(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

// Origin is scheme, host and port of the provider's sign-in page, "" until it is known.
func (p *Provider) Origin() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		return ""
	}
	u, err := url.Parse(p.known.Endpoint().AuthURL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// discoverOnce returns the provider's endpoints. Simultaneous callers share one request. Error: ErrAway.
func (p *Provider) discoverOnce(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	known, fault, fresh := p.known, p.fault, p.o.Now().Before(p.ask)
	p.mu.Unlock()
	if fresh {
		return known, fault
	}
	found, err, _ := p.asking.Do("", func() (any, error) { return p.askAnew(context.WithoutCancel(ctx)) })
	if err != nil {
		return nil, err
	}
	return found.(*oidc.Provider), nil
}

// askAnew reads the provider's endpoints. Error: ErrAway, unless some are known from before.
func (p *Provider) askAnew(ctx context.Context) (*oidc.Provider, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.o.Issuer)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	switch {
	case err == nil:
		p.known, p.fault, p.ask = found, nil, now.Add(knownFor)
	case p.known == nil:
		p.fault, p.ask = fmt.Errorf("%w: read its addresses: %w", ErrAway, err), now.Add(awayFor)
	default:
		p.ask = now.Add(awayFor)
	}
	return p.known, p.fault
}

// claims are the used claims of an ID token or of UserInfo.
type claims struct {
	Email    string `json:"email"`
	Verified any    `json:"email_verified"` // some providers write a string
	Name     string `json:"name"`
	Party    string `json:"azp"`
}

// Finish checks the browser's return parameters. Errors: ErrRefused, ErrAway.
func (p *Provider) Finish(ctx context.Context, a Attempt, back url.Values) (Who, error) {
	state, issuer := back.Get("state"), back.Get("iss")
	switch {
	case a.State == "" || subtle.ConstantTimeCompare([]byte(state), []byte(a.State)) != 1:
		return Who{}, fmt.Errorf("%w: the state belongs to another browser or attempt", ErrRefused)
	case back.Get("error") != "" || back.Get("code") == "":
		return Who{}, fmt.Errorf("%w: there is no code", ErrRefused)
	case issuer != "" && issuer != p.o.Issuer: // RFC 9207
		return Who{}, fmt.Errorf("%w: another issuer has answered", ErrRefused)
	}
	known, err := p.discoverOnce(ctx)
	if err != nil {
		return Who{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	tokens, err := p.oauthSettings(known).Exchange(ctx, back.Get("code"), oauth2.VerifierOption(a.Verifier))
	if err != nil {
		var answered *oauth2.RetrieveError
		if errors.As(err, &answered) && answered.Response.StatusCode < http.StatusInternalServerError {
			return Who{}, fmt.Errorf("%w: it refused the code: %s", ErrRefused, answered.ErrorCode)
		}
		if answered != nil {
			return Who{}, fmt.Errorf("%w: it answered the code with status %d", ErrAway, answered.Response.StatusCode)
		}
		return Who{}, fmt.Errorf("%w: exchange the code: %w", ErrAway, err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := known.VerifierContext(ctx, &oidc.Config{ClientID: p.o.ClientID, Now: p.o.Now}).Verify(ctx, raw)
	if err != nil {
		return Who{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var c claims
	if err := token.Claims(&c); err != nil {
		return Who{}, fmt.Errorf("%w: read the claims: %w", ErrRefused, err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1:
		return Who{}, fmt.Errorf("%w: the token belongs to another attempt", ErrRefused)
	case len(token.Audience) > 1 && !slices.Equal([]string{c.Party}, []string{p.o.ClientID}):
		return Who{}, fmt.Errorf("%w: the token has another audience, too", ErrRefused)
	}
	if c.Email == "" && known.UserInfoEndpoint() != "" {
		c = p.askUserInfo(ctx, known, tokens, token.Subject, c)
	}
	w := Who{Identity: ledger.Identity(token.Issuer, token.Subject), Name: c.Name}
	if c.Verified == true || c.Verified == "true" {
		w.Email = c.Email
	}
	if err := ledger.CheckIdentity(w.Identity); err != nil {
		return Who{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return w, nil
}

// askUserInfo asks for an email missing in the token. No answer, or one about another person, changes nothing.
func (p *Provider) askUserInfo(ctx context.Context, known *oidc.Provider, tokens *oauth2.Token, subject string, c claims) claims {
	info, err := known.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	var more claims
	if err != nil || info.Subject != subject || info.Claims(&more) != nil { // Core, 5.3.2
		return c
	}
	if more.Name == "" {
		more.Name = c.Name
	}
	return more
}

// ErrSecret: the file of the secret can't be used.
var ErrSecret = errors.New("provider: the secret cannot be used")

// ReadSecret reads the secret of the client from a file that others can't read. Errors: ErrSecret, or the file
// system's.
func ReadSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%w: others can read %s; run: chmod 600 %s", ErrSecret, path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%w: %s is empty", ErrSecret, path)
	}
	return secret, nil
}
