package simulation

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// membership is the key of one.
type membership struct{ workspace, user uuid.UUID }

// people is the tables of those who sign in.
type people struct {
	users    map[uuid.UUID]ledger.User
	members  map[membership]ledger.Membership
	links    map[ledger.Hash]transitions.LinkRow
	sessions map[ledger.Hash]ledger.Session
	attempts map[ledger.Hash]transitions.Attempts
	lines    []ledger.WorkspaceLine // it only grows
}

func newPeople() people {
	return people{users: map[uuid.UUID]ledger.User{}, members: map[membership]ledger.Membership{},
		links: map[ledger.Hash]transitions.LinkRow{}, sessions: map[ledger.Hash]ledger.Session{},
		attempts: map[ledger.Hash]transitions.Attempts{}}
}

// copied gives people who share nothing that changes.
func (p people) copied() people {
	p.users, p.members, p.links = maps.Clone(p.users), maps.Clone(p.members), maps.Clone(p.links)
	p.sessions, p.attempts = maps.Clone(p.sessions), maps.Clone(p.attempts)
	return p
}

// people gives the tables for a statement that reads.
func (m *memory) people() (*people, error) { return &m.cluster.people, m.statement() }

// alterPeople gives the tables for a statement that writes.
func (m *memory) alterPeople() (*people, error) {
	if err := m.statement(); err != nil {
		return nil, err
	}
	return &m.alter().people, nil
}

// added writes a row that must be a new one.
func added[K comparable, V any](m *memory, rows func(p *people) map[K]V, key K, row V) error {
	p, err := m.alterPeople()
	if err != nil {
		return err
	}
	if _, found := rows(p)[key]; found {
		m.aborted = true
		return errKey
	}
	rows(p)[key] = row
	return nil
}

// found copies a row out; nil when there is none.
func found[K comparable, V any](m *memory, rows func(p *people) map[K]V, key K) (*V, error) {
	p, err := m.people()
	row, is := rows(p)[key]
	if err != nil || !is {
		return nil, err
	}
	return &row, nil
}

func users(p *people) map[uuid.UUID]ledger.User           { return p.users }
func links(p *people) map[ledger.Hash]transitions.LinkRow { return p.links }
func sessions(p *people) map[ledger.Hash]ledger.Session   { return p.sessions }

// Now is the time.
func (m *memory) Now() (time.Time, error) { return transitions.Clock(m.now), m.statement() }

// User reads one by id.
func (m *memory) User(id uuid.UUID) (*ledger.User, error) { return found(m, users, id) }

// UserOf reads one by email.
func (m *memory) UserOf(folded string) (*ledger.User, error) {
	p, err := m.people()
	for _, u := range p.users {
		if err == nil && ledger.FoldEmail(u.Email) == folded {
			return &u, nil
		}
	}
	return nil, err
}

// UserOfOIDC reads who has an identity at a provider.
func (m *memory) UserOfOIDC(identity string) (*ledger.User, error) {
	p, err := m.people()
	for _, u := range p.users {
		if err == nil && u.OIDC == identity && identity != "" {
			return &u, nil
		}
	}
	return nil, err
}

// AddUser writes a new user.
func (m *memory) AddUser(u ledger.User) error { return added(m, users, u.ID, u) }

// ChangeUser writes password, OIDC, TOTP and disabled of a user.
func (m *memory) ChangeUser(u ledger.User) (int64, error) {
	p, err := m.alterPeople()
	if err != nil {
		return 0, err
	}
	is, found := p.users[u.ID]
	if !found {
		return 0, nil
	}
	is.Password, is.OIDC, is.TOTP, is.Disabled = u.Password, u.OIDC, u.TOTP, u.Disabled
	p.users[u.ID] = is
	return 1, nil
}

// Member reads the role of a user in a workspace.
func (m *memory) Member(workspace, user uuid.UUID) (ledger.Role, error) {
	p, err := m.people()
	return p.members[membership{workspace, user}].Role, err
}

// MembersAndInvited counts the members of a workspace and its open invitations.
func (m *memory) MembersAndInvited(workspace uuid.UUID, now time.Time) (n int, err error) {
	p, err := m.people()
	for key := range p.members {
		if key.workspace == workspace {
			n++
		}
	}
	for _, l := range p.links {
		if l.Workspace == workspace && l.Open(now) {
			n++
		}
	}
	return n, err
}

// OwnersBut counts the owners of a workspace who may sign in, without one.
func (m *memory) OwnersBut(workspace, user uuid.UUID) (n int, err error) {
	p, err := m.people()
	for key, is := range p.members {
		if key.workspace == workspace && key.user != user && is.Role == ledger.Owner && p.users[key.user].Disabled.IsZero() {
			n++
		}
	}
	return n, err
}

// SetMember writes a membership.
func (m *memory) SetMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error {
	p, err := m.alterPeople()
	if err != nil {
		return err
	}
	key := membership{workspace, user}
	is, found := p.members[key]
	if !found {
		is = ledger.Membership{Workspace: workspace, User: user, Created: now}
	}
	is.Role = role
	p.members[key] = is
	return nil
}

// DropMember deletes a membership.
func (m *memory) DropMember(workspace, user uuid.UUID) (int64, error) {
	p, err := m.alterPeople()
	if err != nil {
		return 0, err
	}
	before := len(p.members)
	delete(p.members, membership{workspace, user})
	return int64(before - len(p.members)), nil
}

// LinkRow reads a link.
func (m *memory) LinkRow(id ledger.Hash) (*transitions.LinkRow, error) { return found(m, links, id) }

// AddLink writes a new link.
func (m *memory) AddLink(l ledger.Link) error {
	return added(m, links, l.ID, transitions.LinkRow{Link: l})
}

// UseLink ends a link that is open.
func (m *memory) UseLink(id, session ledger.Hash, now time.Time) (int64, error) {
	p, err := m.alterPeople()
	if err != nil {
		return 0, err
	}
	l, found := p.links[id]
	if !found || !l.Open(now) {
		return 0, nil
	}
	l.Used, l.Session = now, session
	p.links[id] = l
	return 1, nil
}

// EndLinks ends the open links of some.
func (m *memory) EndLinks(of transitions.Links, now time.Time) error {
	p, err := m.alterPeople()
	if err != nil {
		return err
	}
	for id, l := range p.links {
		if l.Open(now) && (of.Folded == "" || ledger.FoldEmail(l.Email) == of.Folded) && (of.MadeBy == "" || l.MadeBy == of.MadeBy) &&
			(of.Purpose == "" || l.Purpose == of.Purpose) && (of.Workspace == uuid.Nil || l.Workspace == of.Workspace) {
			l.Used = now
			p.links[id] = l
		}
	}
	return nil
}

// Session reads one.
func (m *memory) Session(id ledger.Hash) (*ledger.Session, error) { return found(m, sessions, id) }

// Holds lists those of a user whose end has not come.
func (m *memory) Holds(user uuid.UUID, now time.Time) (list []ledger.Session, err error) {
	p, err := m.people()
	for _, s := range p.sessions {
		if s.User == user && s.Ends.After(now) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b ledger.Session) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list, err
}

// AddSession writes a new one.
func (m *memory) AddSession(s ledger.Session) error { return added(m, sessions, s.ID, s) }

// EndSessionAt ends one whose end has not come.
func (m *memory) EndSessionAt(id ledger.Hash, now time.Time) (int64, error) {
	p, err := m.alterPeople()
	if err != nil {
		return 0, err
	}
	s, found := p.sessions[id]
	if !found || !s.Ends.After(now) {
		return 0, nil
	}
	s.Ends = now
	p.sessions[id] = s
	return 1, nil
}

// SignedIn reads what a session may do now. These tables know no names of workspaces.
func (m *memory) SignedIn(id ledger.Hash, idle time.Duration) (*ledger.SignedIn, error) {
	p, err := m.people()
	s, found := p.sessions[id]
	u, now := p.users[s.User], transitions.Clock(m.now)
	if err != nil || !found || !s.Ends.After(now) || now.Sub(s.Seen) > idle || !u.Disabled.IsZero() {
		return nil, err
	}
	in := &ledger.SignedIn{Session: s, User: u}
	for key, is := range p.members {
		if key.user == u.ID {
			is.Email, is.Name = u.Email, u.Name
			in.Memberships = append(in.Memberships, is)
		}
	}
	slices.SortFunc(in.Memberships, func(a, b ledger.Membership) int { return bytes.Compare(a.Workspace[:], b.Workspace[:]) })
	return in, nil
}

// Attempts reads those of some subjects.
func (m *memory) Attempts(subjects []ledger.Hash) (list []transitions.Attempts, err error) {
	p, err := m.people()
	for _, s := range subjects {
		if a, found := p.attempts[s]; found {
			list = append(list, a)
		}
	}
	return list, err
}

// KeepAttempts writes those of a subject.
func (m *memory) KeepAttempts(a transitions.Attempts) error {
	p, err := m.alterPeople()
	if err != nil {
		return err
	}
	p.attempts[a.Subject] = a
	return nil
}

// LogIn writes a line of the log of a workspace.
func (m *memory) LogIn(_ uuid.UUID, l ledger.WorkspaceLine) error {
	p, err := m.alterPeople()
	if err != nil {
		return err
	}
	l.At = transitions.Clock(m.now)
	p.lines = append(p.lines, l)
	return nil
}
