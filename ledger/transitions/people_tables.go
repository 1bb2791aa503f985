package transitions

import (
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Links are those of an email or of a maker, one of which is told; the zero value of the rest fits all.
type Links struct {
	Folded    string // email
	MadeBy    string
	Purpose   ledger.Purpose
	Workspace uuid.UUID
}

// LinkRow is one link as its table has it.
type LinkRow struct {
	ledger.Link
	Session ledger.Hash // that began with it; zero: none did
}

// Attempts are the failed sign-ins of one subject.
type Attempts struct {
	Subject  ledger.Hash
	Failures int
	Since    int64     // milliseconds
	Refused  int64     // until when, milliseconds; 0: it is not
	Ends     int64     // when all of it is forgotten, milliseconds
	Call     uuid.UUID // which counted last
}

// People are the rows of those who sign in. Times that are written are given, as Now says it.
type People interface {
	// Now is the time of the database.
	Now() (time.Time, error)

	// User and UserOf read one user: by id, and by what ledger.FoldEmail gives. nil when there is none.
	User(id uuid.UUID) (*ledger.User, error)
	UserOf(folded string) (*ledger.User, error)
	// UserOfOIDC reads who has an identity at a provider; nil when nobody does.
	UserOfOIDC(identity string) (*ledger.User, error)
	// AddUser writes a new user.
	AddUser(u ledger.User) error
	// ChangeUser writes password, OIDC, TOTP and disabled of a user.
	ChangeUser(u ledger.User) (int64, error)

	// Member reads the role of a user in a workspace; "": none.
	Member(workspace, user uuid.UUID) (ledger.Role, error)
	// MembersAndInvited counts the members of a workspace and its open invitations.
	MembersAndInvited(workspace uuid.UUID, now time.Time) (int, error)
	// OwnersBut counts the owners of a workspace who may sign in, without one.
	OwnersBut(workspace, user uuid.UUID) (int, error)
	// SetMember writes a membership, in place of the one that was, and DropMember deletes it.
	SetMember(workspace, user uuid.UUID, role ledger.Role, now time.Time) error
	DropMember(workspace, user uuid.UUID) (int64, error)

	// LinkRow reads a link; nil when there is none.
	LinkRow(id ledger.Hash) (*LinkRow, error)
	// AddLink writes a new link.
	AddLink(l ledger.Link) error
	// UseLink ends a link that is open, with the session that begins with it, or the zero one.
	UseLink(id, session ledger.Hash, now time.Time) (int64, error)
	// EndLinks ends the open links of some.
	EndLinks(of Links, now time.Time) error

	// Session reads one, whether it is over or not; nil when there is none.
	Session(id ledger.Hash) (*ledger.Session, error)
	// Holds lists those of a user whose end has not come.
	Holds(user uuid.UUID, now time.Time) ([]ledger.Session, error)
	// AddSession writes a new one, and notes that its user was seen.
	AddSession(s ledger.Session) error
	// EndSessionAt ends one whose end has not come.
	EndSessionAt(id ledger.Hash, now time.Time) (int64, error)
	// SignedIn reads what a session may do now, at one moment; nil when it is over, unused for longer than idle, or its
	// user is disabled.
	SignedIn(id ledger.Hash, idle time.Duration) (*ledger.SignedIn, error)

	// Attempts reads those of some subjects, which differ.
	Attempts(subjects []ledger.Hash) ([]Attempts, error)
	// KeepAttempts writes those of a subject, in place of what was.
	KeepAttempts(a Attempts) error

	// LogIn writes a line of the log of a workspace: its time is now. A nil ID is made up, a line that is there is not
	// written again.
	LogIn(workspace uuid.UUID, l ledger.WorkspaceLine) error
}
