package signin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Link reads a valid link and its user; nil for a new user. Error: ledger.ErrNoSuchLink.
func (s *Service) Link(ctx context.Context, token Token) (l ledger.Link, user *ledger.User, err error) {
	id, ok := token.Hash()
	if !ok {
		return l, nil, ledger.ErrNoSuchLink
	}
	return s.link(ctx, id)
}

func (s *Service) link(ctx context.Context, id ledger.Hash) (ledger.Link, *ledger.User, error) {
	l, known, err := s.book.LinkByID(ctx, id)
	if err != nil || !known {
		return l, nil, err
	}
	u, err := s.book.UserByEmail(ctx, l.Email)
	return l, &u, err
}

// DevLink makes a link that signs in as the owner of a workspace, who has no password. It is for the operator of a
// node on the same machine. Unless the workspace has an owner with that email, DevLink makes one.
func DevLink(ctx context.Context, book ledger.People, workspace uuid.UUID, email string) (Token, error) {
	ctx = ledger.WithActor(ctx, "operator")
	members, err := book.Members(ctx, workspace)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(members, func(m ledger.Membership) bool { return m.Email == email }) {
		if err := join(ctx, book, workspace, email); err != nil {
			return "", err
		}
	}
	token := NewToken()
	id, _ := token.Hash()
	_, err = book.MakeLink(ctx, ledger.Link{ID: id, Purpose: ledger.SignInLink, Email: email, MadeBy: "operator"})
	return token, err
}

// join makes somebody an owner of a workspace, by an invitation that it accepts itself.
func join(ctx context.Context, book ledger.People, workspace uuid.UUID, email string) error {
	session, _ := NewToken().Hash()
	invite, _ := NewToken().Hash()
	if _, err := book.MakeLink(ctx, ledger.Link{ID: invite, Purpose: ledger.InviteLink, Workspace: workspace, Email: email,
		Role: ledger.Owner, MadeBy: "operator"}); err != nil {
		return err
	}
	_, known, err := book.LinkByID(ctx, invite)
	if err != nil {
		return err
	}
	accept := ledger.Accept{Link: invite, User: uuid.New(), Session: ledger.NewSession{ID: session, Life: time.Second}}
	if !known {
		accept.Password = noPassword
	}
	_, err = book.AcceptLink(ctx, accept)
	return err
}

// noPassword is a stored text that matches no password.
const noPassword = "none"

// HasPassword reports whether a user can sign in with a password.
func HasPassword(u ledger.User) bool { return u.Password != "" && u.Password != noPassword }

// ErrKnown: an invitation is for a user with an account, who must sign in and use Join.
var ErrKnown = errors.New("signin: the invitation is for somebody who has an account")

// Join accepts an invitation in its user's session, and returns the workspace. A repeat changes nothing and returns
// uuid.Nil. Error: ledger.ErrNoSuchLink, also for somebody else's invitation.
func Join(ctx context.Context, s *Service, in ledger.SignedIn, link Token) (uuid.UUID, error) {
	id, _ := link.Hash()
	l, _, err := s.link(ctx, id)
	switch {
	case err == nil && !ForUser(l, in.User):
		return uuid.Nil, ledger.ErrNoSuchLink
	case err != nil && !errors.Is(err, ledger.ErrNoSuchLink):
		return uuid.Nil, err
	}
	_, err = s.book.AcceptLink(Acting(ctx, s, in, uuid.Nil, ""), ledger.Accept{Link: id, OIDC: in.User.OIDC,
		Session: ledger.NewSession{ID: in.Session.ID, Life: s.life}})
	s.sessions.forgetUser(in.User)
	return l.Workspace, err
}

// ForUser reports whether a link is an invitation for a user.
func ForUser(l ledger.Link, u ledger.User) bool {
	return l.Purpose == ledger.InviteLink && ledger.FoldEmail(l.Email) == ledger.FoldEmail(u.Email)
}

// Accepting is a filled-in form of a link.
type Accepting struct {
	Link     Token
	Form     uuid.UUID // id of the form, so that a repeated form counts once
	Name     string    // of who is new
	Password string    // that is chosen
	Code     string    // of who has codes
}

// Accept uses a link up and begins a session. A known user must sign in to accept an invitation: the maker of the
// link has seen it, and the link alone must not open the user's other workspaces. For other links a user with codes
// must give one. Errors: ledger.ErrNoSuchLink, the faults of CheckPassword, ErrKnown, ErrWrong, ErrCode, *Wait,
// ErrBusy.
func (s *Service) Accept(ctx context.Context, a Accepting, b Browser) (Token, error) {
	id, ok := a.Link.Hash()
	if !ok {
		return "", ledger.ErrNoSuchLink
	}
	token := s.TokenOf("accept", string(a.Link), a.Form.String(), a.Password) // the maker doesn't know the password
	n := s.newSession(token, b)
	l, user, err := s.link(ctx, id)
	if errors.Is(err, ledger.ErrNoSuchLink) { // perhaps a repeat of this form; only its sender knows the session
		if _, again := s.Session(ctx, token); again == nil {
			return token, nil
		}
	}
	if err != nil {
		return "", err
	}
	accept := ledger.Accept{Link: id, User: keyedID(s.keyed("invited", string(a.Link), a.Form.String())), Name: a.Name, Session: n}
	switch {
	case l.Purpose == ledger.SignInLink: // the link alone suffices
	case user != nil && l.Purpose == ledger.InviteLink:
		return "", ErrKnown
	default:
		if err := CheckPassword(a.Password, l.Email); err != nil {
			return "", err
		}
	}
	if user != nil && user.TOTP != "" {
		if err := s.proveCode(ctx, *user, a.Code, b); err != nil {
			return "", err
		}
	}
	if user != nil {
		accept.Session.Proved = user.Factors()
	}
	if user == nil || l.Purpose == ledger.PasswordLink {
		if accept.Password, err = s.hasher.hash(ctx, a.Password); err != nil {
			return "", err
		}
	}
	in, err := s.book.AcceptLink(ctx, accept)
	if errors.Is(err, ledger.ErrChanged) {
		err = ErrWrong
	}
	if err != nil {
		return "", err
	}
	s.sessions.forgetUser(in.User)
	return token, nil
}
