package sqlstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

func (s *scene) hash(name string) (h ledger.Hash) {
	id := uuid.NewSHA1(s.Workspace, []byte(name))
	copy(h[:], id[:])
	return h
}

// person is a user with two sessions, a member of the workspace.
func (s *scene) person(email string) ledger.SignedIn {
	in := s.Joins(email, ledger.Owner)
	s.names(in.User.ID, email)
	_, err := s.BeginSession(s.T.Context(), ledger.NewSession{ID: s.hash(email), User: in.User.ID, Life: ledgertest.Hour})
	if err != nil {
		s.T.Fatal(err)
	}
	return in
}

// user is the id of one who was made before.
func (s *scene) user(email string) uuid.UUID {
	u, err := s.UserByEmail(s.T.Context(), email)
	if err != nil {
		s.T.Fatal(err)
	}
	return u.ID
}

const anna = "anna@acme.test"

// links makes a link for a password.
func (s *scene) links() {
	s.person(anna)
	if _, err := s.MakeLink(s.T.Context(), ledger.Link{ID: s.hash("password"), Purpose: ledger.PasswordLink, Email: anna}); err != nil {
		s.T.Fatal(err)
	}
}

// movesOfPeople are those of who signs in that were wrong once when the answer to their commit was lost: a link, a code
// or a failure that counted twice, sessions that were not counted, a line of the log too many.
var movesOfPeople = []move{
	{"accept password link", none, (*scene).links, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.AcceptLink(ctx, ledger.Accept{Link: s.hash("password"), Password: "$argon2id$2",
			Session: ledger.NewSession{ID: s.hash("begins"), Life: ledgertest.Hour}})
	}},
	{"leave a provider", none, func(s *scene) {
		s.person(anna)
		if err := s.BindOIDC(s.T.Context(), s.user(anna), "https://login.test 1"); err != nil {
			s.T.Fatal(err)
		}
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.UnbindOIDC(ctx, s.user(anna), s.hash(anna))
	}},
	{"use a code", none, func(s *scene) {
		s.person(anna)
		if err := s.SetTOTP(s.T.Context(), s.user(anna), "first", ledger.Hash{}); err != nil {
			s.T.Fatal(err)
		}
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.UseTOTP(ctx, s.user(anna), "first", "second")
	}},
	{"renew codes", none, func(s *scene) {
		s.person(anna)
		if err := s.SetTOTP(s.T.Context(), s.user(anna), "first", ledger.Hash{}); err != nil {
			s.T.Fatal(err)
		}
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.RenewTOTP(ctx, s.user(anna), "first", "second")
	}},
	{"end sessions", none, func(s *scene) { s.person(anna) }, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		n, err := book.EndSessions(ctx, s.user(anna), ledger.Hash{})
		if err == nil && (s.calls == 1 && n != 2 || n != 0 && n != 2) {
			return nil, fmt.Errorf("ended %d, want 2", n)
		}
		return nil, err // later calls may find them ended
	}},
	{"end membership", none, func(s *scene) { s.person(anna); s.person("ben@acme.test") },
		func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
			return nil, book.SetRole(ctx, s.Workspace, s.user(anna), "")
		}},
	{"failed sign-in", none, func(*scene) {}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		if s.calls > 1 {
			return nil, nil // each call is a failure of its own
		}
		waits, err := book.FailedSignIn(ctx, []ledger.Hash{s.hash("a"), s.hash("b")},
			ledger.AttemptRule{Free: 2, Window: time.Hour, First: time.Hour, Most: time.Hour})
		if err == nil && (!waits[0].IsZero() || !waits[1].IsZero()) {
			return nil, fmt.Errorf("counted twice: %v", waits)
		}
		return nil, err
	}},
}
