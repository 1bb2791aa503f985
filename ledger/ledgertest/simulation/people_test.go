package simulation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// signedUp is a life with a user who has a session, before the next commit has its fate; between happens before each
// further run.
func signedUp(t *testing.T, seed uint64, between func(p *processes, user uuid.UUID), f fate) (*processes, ledger.SignedIn) {
	t.Helper()
	var user uuid.UUID
	p := unanswered(seed, func(p *processes) { between(p, user) })
	in := p.joins(t, "anna@acme.test")
	user = in.User.ID
	p.db.fates = []fate{f}
	return p, in
}

// joins makes an owner of the first workspace, signed in.
func (p *processes) joins(t *testing.T, email string) ledger.SignedIn {
	t.Helper()
	ctx := context.Background()
	l, err := p.book.MakeLink(ctx, ledger.Link{ID: p.hash(), Purpose: ledger.InviteLink, Workspace: p.memory.accountAt(0),
		Email: email, Role: ledger.Owner})
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.book.AcceptLink(ctx, ledger.Accept{Link: l.ID, User: p.id(), Password: "$argon2id$1",
		Session: ledger.NewSession{ID: p.hash(), Life: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// hash makes one that is nobody's.
func (p *processes) hash() (h ledger.Hash) {
	id := p.id()
	copy(h[:], id[:])
	return h
}

func TestAllSessionsThatOneCallEndedAreCounted(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		begun := 0
		p, in := signedUp(t, seed, func(p *processes, user uuid.UUID) {
			if begun > 0 {
				return
			}
			begun++
			if _, err := p.book.BeginSession(context.Background(),
				ledger.NewSession{ID: p.hash(), User: user, Life: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}, f)
		n, err := p.book.EndSessions(context.Background(), in.User.ID, ledger.Hash{})
		if !answered(t, err, f, answers) {
			return
		}
		if n != 1+begun {
			t.Errorf("seed %d: %d ended, want %d", seed, n, 1+begun)
		}
		for _, s := range p.memory.cluster.people.sessions {
			if s.Ends.UnixMilli() > p.memory.now {
				t.Errorf("seed %d: holds: %+v", seed, s)
			}
		}
	})
}

func TestAFailedSignInCountsOnce(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p := unanswered(seed, func(*processes) {}, f)
		subjects := []ledger.Hash{p.hash(), p.hash()}
		waits, err := p.book.FailedSignIn(context.Background(), subjects,
			ledger.AttemptRule{Free: 2, Window: time.Hour, First: time.Minute, Most: time.Hour})
		if !answered(t, err, f, answers) {
			return
		}
		for i, s := range subjects {
			if n := p.memory.cluster.people.attempts[s].Failures; n != 1 || !waits[i].IsZero() {
				t.Errorf("seed %d: %d failures, waits until %v", seed, n, waits[i])
			}
		}
	})
}

func TestALinkIsUsedOnceAndSaysSo(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p, in := signedUp(t, seed, func(*processes, uuid.UUID) {}, committed)
		l, err := p.book.MakeLink(context.Background(),
			ledger.Link{ID: p.hash(), Purpose: ledger.PasswordLink, Email: in.User.Email})
		if err != nil {
			t.Fatal(err)
		}
		a := ledger.Accept{Link: l.ID, Password: "$argon2id$2", Session: ledger.NewSession{ID: p.hash(), Life: time.Hour}}
		p.db.fates = []fate{f}
		got, err := p.book.AcceptLink(context.Background(), a)
		if !answered(t, err, f, answers) {
			return
		}
		p.db.fates = nil
		a.Session.ID = p.hash()
		if _, err := p.book.AcceptLink(context.Background(), a); !errors.Is(err, ledger.ErrNoSuchLink) {
			t.Errorf("seed %d: used twice: %v", seed, err)
		}
		held, err := p.book.Sessions(context.Background(), in.User.ID, time.Hour)
		if err != nil || len(held) != 1 || held[0].ID != got.Session.ID || got.User.Password != a.Password {
			t.Errorf("seed %d: signed in %+v, held %+v, %v", seed, got, held, err)
		}
	})
}

func TestAMemberLeavesOnceAndTheLogSaysSo(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p, in := signedUp(t, seed, func(*processes, uuid.UUID) {}, committed)
		p.joins(t, "ben@acme.test")
		before := len(p.memory.cluster.people.lines)
		p.db.fates = []fate{f}
		err := p.book.SetRole(context.Background(), p.memory.accountAt(0), in.User.ID, "")
		if !answered(t, err, f, answers) {
			return
		}
		people := p.memory.cluster.people
		if len(people.members) != 1 || len(people.lines) != before+1 {
			t.Errorf("seed %d: members %+v, %d lines", seed, people.members, len(people.lines)-before)
		}
	})
}

func TestACodeIsUsedOnceAndSaysSo(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p, in := signedUp(t, seed, func(*processes, uuid.UUID) {}, committed)
		if err := p.book.SetTOTP(context.Background(), in.User.ID, "first", in.Session.ID); err != nil {
			t.Fatal(err)
		}
		p.db.fates = []fate{f}
		if err := p.book.UseTOTP(context.Background(), in.User.ID, "first", "second"); !answered(t, err, f, answers) {
			return
		}
		p.db.fates = nil
		if err := p.book.UseTOTP(context.Background(), in.User.ID, "first", "third"); !errors.Is(err, ledger.ErrChanged) {
			t.Errorf("seed %d: used twice: %v", seed, err)
		}
	})
}

func TestCodesAreRenewedOnceAndTheLogSaysSo(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p, in := signedUp(t, seed, func(*processes, uuid.UUID) {}, committed)
		if err := p.book.SetTOTP(context.Background(), in.User.ID, "first", in.Session.ID); err != nil {
			t.Fatal(err)
		}
		before := len(p.memory.cluster.log)
		p.db.fates = []fate{f}
		if err := p.book.RenewTOTP(context.Background(), in.User.ID, "first", "second"); !answered(t, err, f, answers) {
			return
		}
		if after := len(p.memory.cluster.log); after != before+1 {
			t.Errorf("seed %d: %d lines in the log, want 1", seed, after-before)
		}
	})
}

func TestWhoLeavesAProviderHasOneSession(t *testing.T) {
	tries(t, func(t *testing.T, seed uint64, f fate, answers *int) {
		p, in := signedUp(t, seed, func(*processes, uuid.UUID) {}, committed)
		if err := p.book.BindOIDC(context.Background(), in.User.ID, "https://login.test 1"); err != nil {
			t.Fatal(err)
		}
		other := ledger.NewSession{ID: p.hash(), User: in.User.ID, Life: time.Hour}
		if _, err := p.book.BeginSession(context.Background(), other); err != nil {
			t.Fatal(err)
		}
		p.db.fates = []fate{f}
		if err := p.book.UnbindOIDC(context.Background(), in.User.ID, in.Session.ID); !answered(t, err, f, answers) {
			return
		}
		held, err := p.book.Sessions(context.Background(), in.User.ID, time.Hour)
		if err != nil || len(held) != 1 || held[0].ID != in.Session.ID {
			t.Errorf("seed %d: held %+v, %v", seed, held, err)
		}
	})
}
