package signin

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// visitLife is how long somebody may take at the provider.
const visitLife = 10 * time.Minute

// ErrNotInvited: the person named by the provider may not sign in. There is no invitation, the account has a password
// and is not bound, or the answer can't be trusted.
var ErrNotInvited = errors.New("signin: the provider names nobody who may sign in")

// Visit is the purpose of a browser's visit to the provider.
type Visit struct {
	Next string    `json:"x"` // page to show after signing in
	Link Token     `json:"l"` // an invitation to accept
	User uuid.UUID `json:"u"` // the user who binds their account; Nil: for signing in
}

// visit is a visit in progress. Its browser keeps it, encrypted.
type visit struct {
	Visit
	Attempt
	Until int64 `json:"t"`
}

// Visit begins a visit: it returns the URL for the browser, and a secret that only this browser keeps. Error: ErrAway.
func (s *Service) Visit(ctx context.Context, v Visit) (to, kept string, err error) {
	to, attempt, err := s.provider.Begin(ctx)
	if err != nil {
		return "", "", err
	}
	return to, s.visits.seal("visit", visit{Visit: v, Attempt: attempt, Until: s.now().Add(visitLife).Unix()}), nil
}

// Back ends a visit with the browser's return parameters. in is the user signed in there, if any: only they can bind
// their account, and then there is no token. The same visit again is one session. Every failure counts against the
// network. ErrNotInvited, ErrRefused, ErrAway, *CodeWanted, *Choice, *Wait, ledger.ErrNoSuchLink.
func (s *Service) Back(ctx context.Context, kept string, query url.Values, in *ledger.SignedIn, b Browser) (Visit, Token, error) {
	var v visit
	if !s.visits.open("visit", kept, &v) || s.now().Unix() >= v.Until {
		return Visit{}, "", ErrRefused
	}
	random := s.keyed("visit", v.State)
	token := tokenOf(random[:])
	if v.User == uuid.Nil && query.Get("state") == v.State {
		if _, err := s.Session(ctx, token); err == nil {
			return v.Visit, token, nil // the same answer again
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

// arrive asks the provider who came back, and completes the visit's purpose.
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
			id, _ := v.Link.Hash() // zero, the hash of no invitation, for an invalid token
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
// email, so that somebody who made an account for another's email can't keep access to it.
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

// Unbind ends signing in by the provider for the signed-in user, who proves the password, and gives a code if they have
// codes. It ends all their other sessions. An unbound account stays so. ErrNoPassword, ErrWrong, ErrCode, *Wait,
// ErrBusy.
func (s *Service) Unbind(ctx context.Context, in ledger.SignedIn, password, code string, b Browser) error {
	if !HasPassword(in.User) {
		return ErrNoPassword
	}
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err != nil || u.OIDC == "" {
		return err // also a repeated form, whose code is used
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

// enter signs in a user named by the provider, asks for a code if they have codes, and accepts the visit's invitation.
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
	_, err := s.begin(ctx, u, v.Link, s.newSession(token, b))
	if errors.Is(err, ErrWrong) || errors.Is(err, ErrFormUsed) {
		err = ErrNotInvited
	}
	return err
}

// Choice: the provider names a new person with open invitations, who chooses which to accept, because anybody can make
// invitations without asking them. Step is for the next call, see Choose.
type Choice struct {
	Step        string
	Invitations []ledger.Link
}

// Error says so.
func (c *Choice) Error() string { return "signin: somebody new chooses among their invitations" }

// choice is the person who chooses.
type choice struct {
	Who   Who   `json:"w"`
	Token Token `json:"s"` // of the session that begins
	Until int64 `json:"t"`
}

// Choose makes a user of a person named by the provider, with the chosen invitations. The same step again is one
// session. ErrStep, ErrNotInvited.
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

// welcome makes a user of a person whom the provider names for the first time, with invitations for the verified email.
// It never does so if there is an account already, whose password it would replace. Errors: ErrNotInvited, *Choice when
// none was chosen.
func (s *Service) welcome(ctx context.Context, who Who, chosen []ledger.Hash, token Token, b Browser) error {
	if ledger.CheckEmail(who.Email) != nil {
		return ErrNotInvited
	}
	_, err := s.book.UserByEmail(ctx, who.Email)
	if !errors.Is(err, ledger.ErrNoSuchUser) {
		return orElse(err, ErrNotInvited)
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

// orElse returns an error, or another one if it is nil.
func orElse(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// keyedID is an id that only this service can make.
func keyedID(random [32]byte) uuid.UUID {
	id := uuid.UUID(random[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// tidyName is the provider's name of a person if the ledger accepts it, else "".
func tidyName(name string) string {
	name = strings.TrimSpace(name)
	if len(name) > ledger.NameMax || ledger.CheckName(name) != nil {
		return ""
	}
	return name
}
