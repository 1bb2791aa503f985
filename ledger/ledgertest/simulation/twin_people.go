package simulation

import (
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

func (t *twin) Now() (time.Time, error) {
	got, err := t.first.Now()
	return same(t, "now", got, err, t.second.Now)
}

func (t *twin) User(id uuid.UUID) (*ledger.User, error) {
	got, err := t.first.User(id)
	return same(t, "user", got, err, func() (*ledger.User, error) { return t.second.User(id) })
}

func (t *twin) UserOf(folded string) (*ledger.User, error) {
	got, err := t.first.UserOf(folded)
	return same(t, "user of", got, err, func() (*ledger.User, error) { return t.second.UserOf(folded) })
}

func (t *twin) UserOfOIDC(identity string) (*ledger.User, error) {
	got, err := t.first.UserOfOIDC(identity)
	return same(t, "user of identity", got, err, func() (*ledger.User, error) { return t.second.UserOfOIDC(identity) })
}

func (t *twin) AddUser(u ledger.User) error {
	return done(t, "add user", t.first.AddUser(u), func() error { return t.second.AddUser(u) })
}

func (t *twin) ChangeUser(u ledger.User) (int64, error) {
	got, err := t.first.ChangeUser(u)
	return same(t, "change user", got, err, func() (int64, error) { return t.second.ChangeUser(u) })
}

func (t *twin) Member(workspace, user uuid.UUID) (ledger.Role, error) {
	got, err := t.first.Member(workspace, user)
	return same(t, "member", got, err, func() (ledger.Role, error) { return t.second.Member(workspace, user) })
}

func (t *twin) MembersAndInvited(workspace uuid.UUID, now time.Time) (int, error) {
	got, err := t.first.MembersAndInvited(workspace, now)
	return same(t, "members", got, err, func() (int, error) { return t.second.MembersAndInvited(workspace, now) })
}

func (t *twin) OwnersBut(workspace, user uuid.UUID) (int, error) {
	got, err := t.first.OwnersBut(workspace, user)
	return same(t, "owners", got, err, func() (int, error) { return t.second.OwnersBut(workspace, user) })
}

func (t *twin) SetMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error {
	return done(t, "set member", t.first.SetMember(workspace, user, role, now), func() error { return t.second.SetMember(workspace, user, role, now) })
}

func (t *twin) DropMember(workspace, user uuid.UUID) (int64, error) {
	got, err := t.first.DropMember(workspace, user)
	return same(t, "drop member", got, err, func() (int64, error) { return t.second.DropMember(workspace, user) })
}

func (t *twin) LinkRow(id ledger.Hash) (*transitions.LinkRow, error) {
	got, err := t.first.LinkRow(id)
	return same(t, "link", got, err, func() (*transitions.LinkRow, error) { return t.second.LinkRow(id) })
}

func (t *twin) AddLink(l ledger.Link) error {
	return done(t, "add link", t.first.AddLink(l), func() error { return t.second.AddLink(l) })
}

func (t *twin) UseLink(id, session ledger.Hash, now time.Time) (int64, error) {
	got, err := t.first.UseLink(id, session, now)
	return same(t, "use link", got, err, func() (int64, error) { return t.second.UseLink(id, session, now) })
}

func (t *twin) EndLinks(of transitions.Links, now time.Time) error {
	return done(t, "end links", t.first.EndLinks(of, now), func() error { return t.second.EndLinks(of, now) })
}

func (t *twin) Session(id ledger.Hash) (*ledger.Session, error) {
	got, err := t.first.Session(id)
	return same(t, "session", got, err, func() (*ledger.Session, error) { return t.second.Session(id) })
}

func (t *twin) Holds(user uuid.UUID, now time.Time) ([]ledger.Session, error) {
	got, err := list(t.first.Holds(user, now))
	return same(t, "sessions", got, err, func() ([]ledger.Session, error) { return list(t.second.Holds(user, now)) })
}

func (t *twin) AddSession(s ledger.Session) error {
	return done(t, "add session", t.first.AddSession(s), func() error { return t.second.AddSession(s) })
}

func (t *twin) EndSessionAt(id ledger.Hash, now time.Time) (int64, error) {
	got, err := t.first.EndSessionAt(id, now)
	return same(t, "end session", got, err, func() (int64, error) { return t.second.EndSessionAt(id, now) })
}

func (t *twin) SignedIn(id ledger.Hash, idle time.Duration) (*ledger.SignedIn, error) {
	got, err := t.first.SignedIn(id, idle)
	return same(t, "signed in", got, err, func() (*ledger.SignedIn, error) {
		other, err := t.second.SignedIn(id, idle)
		if other != nil {
			for i := range other.Memberships { // what the tables in memory do not know
				other.Memberships[i].WorkspaceName, other.Memberships[i].Seen = "", time.Time{}
			}
		}
		return other, err
	})
}

func (t *twin) Attempts(subjects []ledger.Hash) ([]transitions.Attempts, error) {
	got, err := list(t.first.Attempts(subjects))
	return same(t, "attempts", got, err, func() ([]transitions.Attempts, error) { return list(t.second.Attempts(subjects)) })
}

func (t *twin) KeepAttempts(a transitions.Attempts) error {
	return done(t, "keep attempts", t.first.KeepAttempts(a), func() error { return t.second.KeepAttempts(a) })
}

func (t *twin) LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error {
	return done(t, "log", t.first.LogIn(workspace, l), func() error { return t.second.LogIn(workspace, l) })
}
