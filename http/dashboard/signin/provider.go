package signin

import (
	"cmp"
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
	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"rollcall/ledger"
)

const (
	// timeout bounds one request to the provider.
	timeout = 5 * time.Second
	// answerMax bounds its answer.
	answerMax = 1 << 20
	// knownFor is how long the provider's endpoints are cached. Then they are read again; if that fails, the old ones
	// stay.
	knownFor = time.Hour
	// awayFor is how long a provider that did not answer is left alone.
	awayFor = 5 * time.Second
)

var (
	// ErrAway: the provider does not answer, or not like a provider.
	ErrAway = errors.New("provider: it does not answer")
	// ErrRefused: the answer can't be trusted.
	ErrRefused = errors.New("provider: it did not identify the user")
)

// ProviderOptions are the options of a Provider; all but Name and Now are required.
type ProviderOptions struct {
	Issuer   string
	ClientID string
	Secret   string
	Name     string           // for people
	Redirect func() string    // URL to which the provider sends browsers back, registered there
	Now      func() time.Time // nil: time.Now
}

// Provider is a client of an OpenID Connect provider. Safe for concurrent use.
type Provider struct {
	o      ProviderOptions
	client *http.Client
	asking singleflight.Group

	mu    sync.Mutex     // not held during requests to the provider, because every page reads Origin
	known *oidc.Provider // guarded by mu; nil: the provider has never answered
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
	Email    string // an email that the provider has verified; "": none
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

// Origin returns scheme, host and port of the provider's sign-in page, or "" until it is known.
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

// askAnew reads the provider's endpoints again. Error: ErrAway, unless earlier ones are known.
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

// claims are the claims of an ID token or of UserInfo that are used here.
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

// askUserInfo asks for an email that the token lacks. If there is no answer, or one about another person, nothing
// changes.
func (p *Provider) askUserInfo(ctx context.Context, known *oidc.Provider, tokens *oauth2.Token, subject string, c claims) claims {
	info, err := known.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	var more claims
	if err != nil || info.Subject != subject || info.Claims(&more) != nil { // Core, 5.3.2
		return c
	}
	more.Name = cmp.Or(more.Name, c.Name)
	return more
}

// ErrSecret: the file of the secret can't be used.
var ErrSecret = errors.New("provider: the secret cannot be used")

// ReadSecret reads the secret of the client from a file that others can't read. Errors: ErrSecret, or the file
// system's.
func ReadSecret(path string) (string, error) { return ReadPrivate(path, ErrSecret) }

// ReadPrivate reads a secret from a file that others can't read. Errors: unusable, or the file system's.
func ReadPrivate(path string, unusable error) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%w: others can read %s; run: chmod 600 %s", unusable, path, path)
	}
	text, err := os.ReadFile(path)
	secret := strings.TrimSpace(string(text))
	if err == nil && secret == "" {
		err = fmt.Errorf("%w: %s is empty; write the secret into it, or delete it", unusable, path)
	}
	return secret, err
}

// visitLife is how long signing in at the provider may take.
const visitLife = 10 * time.Minute

// ErrNotInvited: the person named by the provider may not sign in. There is no invitation, the account has a password
// and is not bound, or the answer can't be trusted.
var ErrNotInvited = errors.New("signin: the provider's user may not sign in here")

// Visit is the purpose of a browser's visit to the provider.
type Visit struct {
	Next string    `json:"x"` // page to show after signing in
	Link Token     `json:"l"` // an invitation to accept
	User uuid.UUID `json:"u"` // the user who connects an account; Nil: to sign in
}

// visit is a visit in progress. Its browser keeps it, encrypted.
type visit struct {
	Visit
	Attempt
	Until int64 `json:"t"`
}

// Visit begins a visit. It returns the URL for the browser, and a secret that only this browser keeps. Error:
// ErrAway.
func (s *Service) Visit(ctx context.Context, v Visit) (to, kept string, err error) {
	to, attempt, err := s.provider.Begin(ctx)
	if err != nil {
		return "", "", err
	}
	return to, s.visits.seal("visit", visit{Visit: v, Attempt: attempt, Until: s.now().Add(visitLife).Unix()}), nil
}

// Back ends a visit with the browser's return parameters. in is the user signed in in that browser, if any. Only that
// user can connect the account, and then Back returns no token. A repeated return gives the same session. Every
// failure counts against the network. Errors: ErrNotInvited, ErrRefused, ErrAway, *CodeWanted, *Choice, *Wait,
// ledger.ErrNoSuchLink.
func (s *Service) Back(ctx context.Context, kept string, query url.Values, in *ledger.SignedIn, b Browser) (Visit, Token, error) {
	var v visit
	if !s.visits.open("visit", kept, &v) || s.now().Unix() >= v.Until {
		return Visit{}, "", ErrRefused
	}
	token := s.TokenOf("visit", v.State)
	if v.User == uuid.Nil && query.Get("state") == v.State {
		if _, err := s.Session(ctx, token); err == nil {
			return v.Visit, token, nil // a repeat gets the same answer
		}
	}
	_, network := s.subjects("", b)
	err := s.mayTry(ctx, network)
	if err == nil {
		token, err = s.arrive(ctx, v, token, query, in, b)
	}
	if errors.Is(err, ErrNotInvited) || errors.Is(err, ErrRefused) {
		if err := s.failed(ctx, network, networkRule); err != nil {
			return v.Visit, "", err
		}
	}
	return v.Visit, token, err
}

// arrive asks the provider who came back, and does what the visit is for.
func (s *Service) arrive(ctx context.Context, v visit, token Token, query url.Values, in *ledger.SignedIn, b Browser) (Token, error) {
	who, err := s.provider.Finish(ctx, v.Attempt, query)
	if err != nil {
		return "", err
	}
	if v.User != uuid.Nil {
		return "", s.bind(ctx, v.User, in, who)
	}
	u, err := s.book.UserByOIDC(ctx, who.Identity)
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser):
		var chosen []ledger.Hash
		if v.Link != "" {
			id, _ := v.Link.Hash() // for an invalid token zero, which is no invitation's hash
			chosen = append(chosen, id)
		}
		err = s.welcome(ctx, who, chosen, token, b)
	case err == nil && !u.Disabled.IsZero():
		err = ErrNotInvited
	case err == nil:
		err = s.enter(ctx, u, v.Visit, token, b)
	}
	if err != nil {
		return "", err
	}
	return token, nil
}

// bind lets the signed-in user sign in by the provider from now on. The provider must have verified the account's
// email. Otherwise somebody who made an account for another person's email could keep access to it.
func (s *Service) bind(ctx context.Context, user uuid.UUID, in *ledger.SignedIn, who Who) error {
	if in == nil || in.User.ID != user || !isEmail(who, in.User.Email) {
		return ErrNotInvited
	}
	err := s.book.BindOIDC(Acting(ctx, s, *in, uuid.Nil, ""), user, who.Identity)
	if errors.Is(err, ledger.ErrIdentityTaken) {
		err = ErrNotInvited
	}
	s.sessions.forgetUser(in.User)
	return err
}

// Unbind ends signing in by the provider for the signed-in user. The user proves the password, and gives a code if
// codes are on. It ends all other sessions of the user. If the account is not connected, nothing changes. Errors:
// ErrNoPassword, ErrWrong, ErrCode, *Wait, ErrBusy.
func (s *Service) Unbind(ctx context.Context, in ledger.SignedIn, password, code string, b Browser) error {
	if !HasPassword(in.User) {
		return ErrNoPassword
	}
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err != nil || u.OIDC == "" {
		return err // also for a repeated form, because its code is used up
	}
	if u.TOTP != "" {
		if err := s.proveCode(ctx, u, code, b); err != nil {
			return err
		}
	}
	err = s.book.UnbindOIDC(ctx, u.ID, in.Session.ID)
	s.sessions.forgetUser(u)
	return err
}

// isEmail reports whether the provider has verified an email.
func isEmail(who Who, email string) bool {
	return who.Email != "" && ledger.FoldEmail(who.Email) == ledger.FoldEmail(email)
}

// enter signs in a user whom the provider named, asks for a code if the user has codes, and accepts the visit's
// invitation.
func (s *Service) enter(ctx context.Context, u ledger.User, v Visit, token Token, b Browser) error {
	if v.Link != "" {
		l, _, err := s.Link(ctx, v.Link)
		if err != nil {
			return err
		}
		if !ForUser(l, u) {
			return ErrNotInvited
		}
	}
	if err := s.wantCode(u, v.Link); err != nil {
		return err
	}
	err := s.begin(ctx, u, v.Link, s.newSession(token, b))
	if errors.Is(err, ErrWrong) || errors.Is(err, ErrFormUsed) {
		err = ErrNotInvited
	}
	return err
}

// Choice: the provider names a new person with open invitations. The person chooses which to accept, because anybody
// can make invitations without asking. Pass Step to Choose.
type Choice struct {
	Step        string
	Invitations []ledger.Link
}

// Error implements error.
func (c *Choice) Error() string { return "signin: somebody new chooses among their invitations" }

type choice struct {
	Who   Who   `json:"w"`
	Token Token `json:"s"` // of the session that begins
	Until int64 `json:"t"`
}

// Choose makes a user of a person whom the provider named, with the chosen invitations. Repeated with the same step
// it returns the same session. Errors: ErrStep, ErrNotInvited.
func Choose(ctx context.Context, s *Service, sealed string, chosen []ledger.Hash, b Browser) (Token, error) {
	var c choice
	if !s.steps.open("choice", sealed, &c) || s.now().Unix() >= c.Until {
		return "", ErrStep
	}
	if _, err := s.Session(ctx, c.Token); err == nil {
		return c.Token, nil // this form again
	}
	return c.Token, s.welcome(ctx, c.Who, chosen, c.Token, b)
}

// welcome makes a user of a person whom the provider names for the first time, with invitations for the verified
// email. If an account exists already, it does not, because that would replace the account's password. Errors:
// ErrNotInvited, *Choice if no invitation was chosen.
func (s *Service) welcome(ctx context.Context, who Who, chosen []ledger.Hash, token Token, b Browser) error {
	if ledger.CheckEmail(who.Email) != nil {
		return ErrNotInvited
	}
	_, err := s.book.UserByEmail(ctx, who.Email)
	switch {
	case err == nil:
		return ErrNotInvited
	case !errors.Is(err, ledger.ErrNoSuchUser):
		return err
	}
	invited, err := s.book.Invitations(ctx, who.Email)
	if err != nil {
		return err
	}
	if len(chosen) == 0 && len(invited) > 0 {
		return &Choice{Invitations: invited, Step: s.steps.seal("choice", choice{Who: who, Token: token,
			Until: s.now().Add(stepLife).Unix()})}
	}
	first := keyedID(s.keyed("visitor", who.Identity))
	n := s.newSession(token, b)
	joined := false
	for _, l := range invited {
		if !slices.Contains(chosen, l.ID) {
			continue
		}
		_, err := s.book.AcceptLink(ctx, ledger.Accept{Link: l.ID, User: first, Name: tidyName(who.Name), OIDC: who.Identity, Session: n})
		switch {
		case err == nil:
			joined = true
		case errors.Is(err, ledger.ErrIdentityTaken), errors.Is(err, ledger.ErrIllegal):
			return ErrNotInvited // somebody was faster
		case !errors.Is(err, ledger.ErrNoSuchLink): // ended since
			return err
		}
	}
	if !joined {
		return ErrNotInvited
	}
	return nil
}

// keyedID returns an id that only this service can make.
func keyedID(random [32]byte) uuid.UUID {
	id := uuid.UUID(random[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// tidyName returns the provider's name of a person if the ledger accepts it, else "".
func tidyName(name string) string {
	name = strings.TrimSpace(name)
	if len(name) > ledger.NameMax || ledger.CheckName(name) != nil {
		return ""
	}
	return name
}
