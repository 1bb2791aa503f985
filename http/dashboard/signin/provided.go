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

// ErrNotInvited says that who the provider names may not sign in: nobody has invited them, their account has a
// password and is not bound, or what came back is not to be believed.
var ErrNotInvited = errors.New("signin: the provider names nobody who may sign in")

// Visit is what a browser goes to the provider for.
type Visit struct {
	Next string    `json:"x"` // where to go on after signing in
	Link Token     `json:"l"` // an invitation to accept
	User uuid.UUID `json:"u"` // who binds their account; Nil: somebody signs in
}

// visit is one that has begun. Its browser keeps it, sealed.
type visit struct {
	Visit
	Attempt
	Until int64 `json:"t"`
}

// Visit begins one: where the browser goes, and what it has to keep and nobody else may have. ErrAway.
func (s *Service) Visit(ctx context.Context, v Visit) (to, kept string, err error) {
	to, attempt, err := s.provider.Begin(ctx)
	if err != nil {
		return "", "", err
	}
	return to, s.visits.seal("visit", visit{Visit: v, Attempt: attempt, Until: s.now().Add(visitLife).Unix()}), nil
}

// Back ends a visit with what the browser came back with. in is who is signed in there, if anybody is: only they can
// bind their account, and then there is no token. The same visit again is one session. What signs nobody in counts
// as a failure of the network. ErrNotInvited, ErrRefused, ErrAway, *CodeWanted, *Choice, *Wait,
// ledger.ErrNoSuchLink.
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

// arrive asks the provider who has come back, and does what they went for.
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
			id, _ := v.Link.Hash() // the zero one, of no invitation, for what is no token
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

// bind lets who is signed in sign in by the provider from now on. It has to have verified the email of the account:
// somebody who has made an account for another's email cannot keep a way into it.
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

// Unbind ends that who is signed in signs in by the provider, when they prove the password, and give a code if they
// have codes. It ends all their other sessions. Who is bound to none stays so. ErrNoPassword, ErrWrong, ErrCode,
// *Wait, ErrBusy.
func (s *Service) Unbind(ctx context.Context, in ledger.SignedIn, password, code string, b Browser) error {
	if !HasPassword(in.User) {
		return ErrNoPassword
	}
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err != nil || u.OIDC == "" {
		return err // also the same form again, whose code is used
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

// enter signs in a user whom the provider names, who gives a code if they have codes, and accepts the invitation of
// the visit.
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

// Choice says that the provider names somebody new who has open invitations: they choose which to accept, since
// whoever made one has asked nobody. Step is for the next call, see Choose.
type Choice struct {
	Step        string
	Invitations []ledger.Link
}

// Error says so.
func (c *Choice) Error() string { return "signin: somebody new chooses among their invitations" }

// choice is who chooses.
type choice struct {
	Who   Who   `json:"w"`
	Token Token `json:"s"` // of the session that begins
	Until int64 `json:"t"`
}

// Choose makes a user of somebody whom the provider has named, with the invitations that they chose. The same step
// again is one session. ErrStep, ErrNotInvited.
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

// welcome makes a user of somebody whom the provider names for the first time: with invitations for the email that
// it has verified, and never of one who has an account already, whose password it would replace. ErrNotInvited,
// *Choice when none was chosen.
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

// orElse is an error, or another when there is none.
func orElse(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// keyedID is an id that only this service makes.
func keyedID(random [32]byte) uuid.UUID {
	id := uuid.UUID(random[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// tidyName is a name of the provider's that the ledger takes; "" for one that it does not.
func tidyName(name string) string {
	name = strings.TrimSpace(name)
	if len(name) > ledger.NameMax || ledger.CheckName(name) != nil {
		return ""
	}
	return name
}
