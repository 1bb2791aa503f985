package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
)

// A move is one transaction of the ledger: what must be there before, and
// the call. The call may be repeated, and every call of one scene is the same.
type move struct {
	name    string
	credits func(n int64) ledger.Credits // granted before
	prepare func(s *scene)               // past the proxy
	call    func(ctx context.Context, book ledger.Book, s *scene) (answer any, err error)
}

// scene is one run of a move, for files of n addresses.
type scene struct {
	*ledgertest.Fixture                      // speaks past the proxy
	n                   int64                // at least 2
	ids                 map[uuid.UUID]string // by name, so that two scenes can be compared
	lease               ledger.Lease
	verification        uuid.UUID
	writer              int64
	created             ledger.NewVerification
	late                func() // lets an hour pass for what waits for credits
	calls               int    // so far, the running one included
}

// file notes the names of a verification's ids.
func (s *scene) file(v ledger.Verification, name string) uuid.UUID {
	s.names(v.Identity, name+"'s identity")
	return s.names(v.ID, name)
}

// names notes what an id is in this scene.
func (s *scene) names(id uuid.UUID, name string) uuid.UUID {
	s.ids[id] = name
	return id
}

// funded makes a leased file of n addresses whose credits are held, or which waits for them.
func (s *scene) funded() {
	v, l := s.Prepares(s.n)
	s.verification, s.lease = s.file(v, "file"), l
}

// none and twice are credits granted before.
func none(int64) ledger.Credits    { return 0 }
func twice(n int64) ledger.Credits { return ledger.Credits(2 * n) }
func exact(n int64) ledger.Credits { return ledger.Credits(n) }

// grants adds credits that are just enough for a file of n.
func grants(ctx context.Context, book ledger.Book, s *scene) (any, error) {
	id := uuid.NewSHA1(s.Workspace, []byte("grant"))
	s.names(id, "grant")
	return book.Grant(ctx, id, s.Workspace, ledger.Credits(s.n), "faults")
}

// moves are the transactions that move credits, or decide about them, and those
// that move shares of receivers between processes.
var moves = []move{
	{"grant", none, func(*scene) {}, grants},
	{"grant that funds a waiting file", none, func(s *scene) {
		s.funded()
		v, _ := s.Fixture.Prepares(s.n + 1) // and one that goes on waiting
		s.file(v, "larger file")
	}, grants},
	{"hold", twice, func(s *scene) {
		v := s.Uploads()
		s.file(v, "file")
		s.lease = s.Takes(v.ID)
	}, prepares},
	{"hold that is refused", none, func(s *scene) {
		v := s.Uploads()
		s.file(v, "file")
		s.lease = s.Takes(v.ID)
	}, prepares},
	{"settle", twice, (*scene).funded, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		b := ledgertest.Batch(s.lease, 1, 0, s.n-2, smtp.Valid)
		b.Results[0].Outcome, b.Evidence = smtp.Unknown, []byte("seen")
		return book.Settle(ctx, b)
	}},
	{"last settle", twice, func(s *scene) {
		s.funded()
		s.Settles(s.lease, 1, 1, s.n-1, smtp.Valid)
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.Settle(ctx, ledgertest.Batch(s.lease, 2, 0, 0, smtp.Error))
	}},
	{"settle that funds another file", exact, func(s *scene) {
		s.funded()
		v, _ := s.Fixture.Prepares(s.n - 1)
		s.file(v, "waiting file")
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.Settle(ctx, ledgertest.Batch(s.lease, 1, 1, s.n-1, smtp.Unknown))
	}},
	{"cancel at once", twice, func(s *scene) {
		s.funded()
		s.Settles(s.lease, 1, 0, 0, smtp.Valid)
		effort.OK(s.T, s.Release(s.T.Context(), s.lease))
	}, cancels},
	{"finish cancel", twice, func(s *scene) {
		s.funded()
		effort.Must(s.Cancel(s.T.Context(), s.Workspace, s.verification))(s.T)
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.FinishCancel(ctx, s.lease)
	}},
	{"create", twice, func(s *scene) {
		s.created = s.Asks(s.n)
		s.names(s.created.ID, "file")
		s.names(s.created.Identity, "file's identity")
	}, creates},
	{"create single", twice, func(s *scene) {
		s.created = s.Asks(s.n)
		s.names(s.created.ID, "file")
		s.names(s.created.Identity, "file's identity")
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.CreateSingle(ctx, ledger.CreateSingle{ID: s.created.ID, Workspace: s.Workspace, Identity: s.created.Identity,
			Address: "a@b.test", Limits: s.created.Limits})
	}},
	{"last chunk", twice, func(s *scene) {
		v := s.Creates(s.n)
		s.verification = s.file(v, "file")
		u := effort.Must(s.OpenUpload(s.T.Context(), v.ID))(s.T)
		effort.Must(s.AppendChunk(s.T.Context(), v.ID, u.Writer, 0, []byte("a")))(s.T)
		s.writer = u.Writer
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.AppendChunk(ctx, s.verification, s.writer, 1, bytes.Repeat([]byte("b"), int(s.n-1)))
	}},
	{"sweep of an unfunded file", none, func(s *scene) {
		s.funded()
		s.late()
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		n, err := book.Sweep(ctx, ledger.Retention{Funding: time.Minute})
		if n != 1 && (err == nil && s.calls == 1 || n > 1) {
			return nil, fmt.Errorf("swept %d, want 1", n)
		}
		return nil, err // later calls may find it swept
	}},
	{"beat that publishes", none, func(s *scene) { s.beats(1) },
		func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
			return book.WriteHeartbeat(ctx, s.beat(1, 2))
		}},
	{"retire", none, func(s *scene) { s.beats(1); s.beats(2) },
		func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
			return nil, book.Retire(ctx, uuid.UUID{2}, 0, false)
		}},
	{"forget", none, func(s *scene) {
		s.beats(2)
		effort.OK(s.T, s.Leave(s.T.Context(), uuid.UUID{2}))
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		err := book.Forget(ctx, uuid.UUID{2}, 0)
		if s.calls > 1 && errors.Is(err, ledger.ErrNoSuchNode) {
			return nil, nil // later calls may find it forgotten
		}
		return nil, err
	}},
	{"learn", none, func(*scene) {}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		var facts []ledger.Fact
		for i := range s.n {
			facts = append(facts, ledger.Fact{Key: fmt.Sprint(i), Data: []byte("x"), Expires: time.UnixMilli(9e12)})
		}
		return nil, book.Learn(ctx, facts)
	}},
	{"set override", none, func(s *scene) { s.overruled("old override") },
		func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
			o := ledgertest.Halves("example.net")
			o.ID = uuid.NewSHA1(s.Workspace, []byte("override"))
			s.names(o.ID, "override")
			return book.SetOverride(ctx, o, time.Hour)
		}},
	{"clear overrides", none, func(s *scene) { s.overruled("first override"); s.overruled("second override") },
		func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
			ended, err := book.ClearOverrides(ctx, ledger.Clearing{Key: "example.net"})
			if n := len(ended); err == nil && (s.calls == 1 && n != 2 || n == 1 || n > 2) {
				return nil, fmt.Errorf("ended %d, want 2", n)
			}
			return nil, err // later calls may find them ended
		}},
	{"set weight", none, func(*scene) {}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return book.SetWeight(ctx, s.Workspace, 7)
	}},
	{"note", none, func(*scene) {}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.Note(ctx, ledger.LogLine{ID: uuid.NewSHA1(s.Workspace, []byte("note")), Action: "test"})
	}},
}

// overruled makes an override that holds.
func (s *scene) overruled(name string) {
	s.names(s.Overrides(ledgertest.Halves("example.net"), time.Hour).ID, name)
}

// beat is that of the process with a number, which sees some.
func (s *scene) beat(number byte, sees ...byte) ledger.Heartbeat {
	b := ledger.Heartbeat{Incarnation: ledger.Incarnation{Session: uuid.UUID{number}, Node: uuid.UUID{number}}}
	for _, n := range sees {
		b.View = append(b.View, ledger.Incarnation{Session: uuid.UUID{n}, Node: uuid.UUID{n}})
	}
	return b
}

// beats makes a process that sees itself.
func (s *scene) beats(number byte) {
	effort.Must(s.WriteHeartbeat(s.T.Context(), s.beat(number, number)))(s.T)
}

func prepares(ctx context.Context, book ledger.Book, s *scene) (any, error) {
	return book.Prepare(ctx, s.lease, s.n+1, 1, s.n)
}

func cancels(ctx context.Context, book ledger.Book, s *scene) (any, error) {
	return book.Cancel(ctx, s.Workspace, s.verification)
}

func creates(ctx context.Context, book ledger.Book, s *scene) (any, error) {
	v, created, err := book.Create(ctx, s.created)
	if err == nil && s.calls == 1 && !created {
		return nil, fmt.Errorf("the first call recovered instead of creating")
	}
	return v, err
}

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
	effort.OK(s.T, err)
	return in
}

// user is the id of one who was made before.
func (s *scene) user(email string) uuid.UUID {
	u := effort.Must(s.UserByEmail(s.T.Context(), email))(s.T)
	return u.ID
}

const anna = "anna@acme.test"

func (s *scene) links() {
	s.person(anna)
	_, err := s.MakeLink(s.T.Context(), ledger.Link{ID: s.hash("password"), Purpose: ledger.PasswordLink, Email: anna})
	effort.FatalIf(s.T, err != nil, "%v", err)
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
		effort.OK(s.T, s.BindOIDC(s.T.Context(), s.user(anna), "https://login.test 1"))
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.UnbindOIDC(ctx, s.user(anna), s.hash(anna))
	}},
	{"use a code", none, func(s *scene) {
		s.person(anna)
		effort.OK(s.T, s.SetTOTP(s.T.Context(), s.user(anna), "first", ledger.Hash{}))
	}, func(ctx context.Context, book ledger.Book, s *scene) (any, error) {
		return nil, book.UseTOTP(ctx, s.user(anna), "first", "second")
	}},
	{"renew codes", none, func(s *scene) {
		s.person(anna)
		effort.OK(s.T, s.SetTOTP(s.T.Context(), s.user(anna), "first", ledger.Hash{}))
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
