package ledger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// EmailMax bounds an email to sign in with, in bytes: the longest path of RFC 5321, 4.5.3.1.3, without its brackets.
	EmailMax = 254

	// NameMax bounds the name of a user, in bytes.
	NameMax = 200

	// AgentMax bounds what is kept of a browser's User-Agent and of its network, in bytes each.
	AgentMax = 400

	// LinkLife is how long a one-time link can be used.
	LinkLife = 72 * time.Hour

	// SessionsMax bounds the sessions of one user: a new one ends the one that was used least lately.
	SessionsMax = 50

	// MembersMax bounds the members of one workspace, together with its invitations that can be used.
	MembersMax = 1000

	// WorkspaceLogMax bounds one page of the log of a workspace.
	WorkspaceLogMax = 200

	// UsersMax bounds one page of users.
	UsersMax = 1000

	// BatchMax bounds the sessions, keys or subjects that one call is about. Guess.
	BatchMax = 1000
)

// Hash names a secret that the ledger must not know: the SHA-256 of a cookie or of a link's token.
type Hash [32]byte

// Role is what a member may do in a workspace. Each role may do what the one before it may.
type Role string

// The three roles.
const (
	Viewer Role = "viewer" // sees verifications, results and credits
	Member Role = "member" // also uploads, checks and cancels
	Owner  Role = "owner"  // also keys, people and the log
)

// Allows reports whether who has role r may do what needs role needed. An unknown role allows nothing.
func (r Role) Allows(needed Role) bool { return needed.rank() > 0 && r.rank() >= needed.rank() }

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Member:
		return 2
	case Owner:
		return 3
	}
	return 0
}

// User is somebody who signs in to the pages.
type User struct {
	ID       uuid.UUID
	Email    string // as it was given; FoldEmail says which are the same
	Name     string // "": none was given
	Password string // a PHC text; "": signs in another way, or not yet
	OIDC     string // who they are at a provider, as Identity writes it; "": signs in by no provider
	TOTP     string // the state of the codes that sign-in asks for, sealed by the caller; "": it asks for none
	Created  time.Time
	Disabled time.Time // zero while the user may sign in
}

// Membership is a user's role in a workspace.
type Membership struct {
	Workspace     uuid.UUID
	WorkspaceName string
	User          uuid.UUID
	Email, Name   string // the user's
	Role          Role
	Created       time.Time
	Seen          time.Time // when a session of the user was used last, as UseSessions noted it; zero: never
	Disabled      bool      // the user may not sign in
}

// Session is one browser in which a user is signed in.
type Session struct {
	ID      Hash
	User    uuid.UUID
	Created time.Time
	Seen    time.Time // when it was used last, as UseSessions noted it
	Ends    time.Time // whatever happens
	Agent   string    // the browser's User-Agent
	Network string    // where it signed in from
}

// SignedIn is what a request with a session may do: the session, its user and the user's memberships, as of one moment.
type SignedIn struct {
	Session     Session
	User        User
	Memberships []Membership // by the name of the workspace, then by its id
}

// Purpose is what a one-time link is for.
type Purpose string

// The purposes.
const (
	InviteLink   Purpose = "invite"   // makes somebody a member of a workspace, and a user if they are none
	PasswordLink Purpose = "password" // sets a password anew
	SignInLink   Purpose = "sign-in"  // signs in without a password
)

// Link can be used once, within LinkLife.
type Link struct {
	ID        Hash
	Purpose   Purpose
	Workspace uuid.UUID // of an invitation
	Email     string    // of who it is for
	Role      Role      // of an invitation
	MadeBy    string    // "user:ID", or "operator" with the name they gave
	Created   time.Time
	Expires   time.Time
	Used      time.Time // when it was used or ended; zero: it was not
}

// Accept uses a link up.
type Accept struct {
	Link     Hash
	User     uuid.UUID  // the id of the user if the invitation makes one; made by the caller, once for each form
	Name     string     // of a new user
	Password string     // PHC text; "" for a SignInLink, for an invitation of a user, and for a new user with OIDC
	OIDC     string     // of a new user; of a user, what they have: it changes none
	Session  NewSession // what begins with it; its User is filled in
}

// Factors tell one way of signing in from another: they change with the password, with the provider's account, and when codes
// are turned on or off.
func (u *User) Factors() Hash {
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %t", u.Password, u.OIDC, u.TOTP != ""))
}

// NewSession is a session that begins.
type NewSession struct {
	ID             Hash
	User           uuid.UUID
	Agent, Network string        // cut to AgentMax
	Life           time.Duration // how long it holds at most, from now on by the ledger's clock
	Proved         Hash          // Factors of the user who was proved to be this one; the zero Hash: of nobody

	// TOTP is the user's TOTP from now on, with the code used up that begins this session; "": none does. Where it isn't
	// TOTPWas any more, the session isn't begun: ErrChanged.
	TOTPWas, TOTP string
}

// WorkspaceLine is one line of the log that the owners of a workspace read.
type WorkspaceLine struct {
	ID      uuid.UUID
	At      time.Time
	Actor   string // "user:ID", "key:ID" or "operator"
	Email   string // of a user who is the actor and is still known
	Action  string // as "member role"
	Subject string // whom or what it is about; never an address of a customer's file
	Detail  string
}

// WorkspaceLogQuery asks for one page of the log of a workspace, newest first.
type WorkspaceLogQuery struct {
	Workspace uuid.UUID
	After     *Position // nil: from the newest
	Limit     int       // 1 to WorkspaceLogMax
}

// People is the part about those who sign in to the pages. Who makes a change is told by WithActor; a change that
// concerns a workspace writes its line of the log of that workspace in the same transaction. What concerns people in no
// workspace alone, and what "operator" does, has its line of the operator log.
type People interface {
	// MakeLink keeps a link: Created and Expires are filled in. Those for the same email, purpose and workspace that
	// could be used end. The same ID and content again answers what is kept. ErrNoSuchWorkspace, ErrNoSuchUser (one
	// of these two for nobody, or for one who is disabled), ErrNotOwner for an invitation by a user who is no owner
	// now or is disabled, ErrTooManyMembers; ErrIllegal for an ID that was used otherwise, for texts that are too
	// long or no email, and for an invitation without a role.
	MakeLink(ctx context.Context, l Link) (Link, error)
	// LinkByID reads a link that can be used, and says whether there is a user with its email already.
	// ErrNoSuchLink for one that is unknown, used or expired, or whose user is disabled.
	LinkByID(ctx context.Context, id Hash) (l Link, known bool, err error)
	// AcceptLink uses a link up and begins a session, in one transaction. An invitation makes the user, unless there
	// is one with that email, and the membership; one who is a member already gets the role if it is the higher. A
	// PasswordLink sets the password and ends all sessions of the user. A SignInLink does neither. The same call again, with
	// the same session, is answered again. ErrNoSuchLink as LinkByID; ErrIllegal without a password and OIDC for who is
	// new, with a password for a SignInLink, and with a password or another OIDC in an invitation of a user: who holds that
	// link need not be them, so it changes nothing about how they sign in, and the caller asks for a proof.
	// ErrIdentityTaken for the OIDC of another user; ErrChanged as BeginSession, for who was a user before.
	AcceptLink(ctx context.Context, a Accept) (SignedIn, error)
	// EndLink ends an invitation to a workspace before its time. One that is over already is no error. ErrNoSuchLink,
	// also for one that was accepted.
	EndLink(ctx context.Context, workspace uuid.UUID, id Hash) error
	// OpenLinks lists the invitations to a workspace that can be used, newest first.
	OpenLinks(ctx context.Context, workspace uuid.UUID) ([]Link, error)
	// Invitations lists the invitations of an email that can be used, to all workspaces, newest first.
	Invitations(ctx context.Context, email string) ([]Link, error)

	// UserByEmail finds who signs in, also when disabled. ErrNoSuchUser.
	UserByEmail(ctx context.Context, email string) (User, error)
	// Users lists all users by email, at most limit, after an email; "": from the first. ErrIllegal for a limit that is
	// not 1 to UsersMax.
	Users(ctx context.Context, after string, limit int) ([]User, error)
	// SetPassword changes the password of a user and ends all their sessions but one; the zero Hash spares none.
	// ErrNoSuchUser, ErrIllegal for an empty text and one above OperatorTextMax.
	SetPassword(ctx context.Context, user uuid.UUID, password string, but Hash) error
	// UserByOIDC finds who signs in by a provider, also when disabled. ErrNoSuchUser.
	UserByOIDC(ctx context.Context, identity string) (User, error)
	// BindOIDC lets a user sign in by a provider from now on, as an identity, in place of the one that they had.
	// ErrNoSuchUser, ErrIdentityTaken, ErrIllegal for no identity.
	BindOIDC(ctx context.Context, user uuid.UUID, identity string) error
	// UnbindOIDC ends that a user signs in by a provider, and all their sessions but one; the zero Hash spares none. It does
	// nothing for who does not sign in so. ErrNoSuchUser, ErrIllegal for who has no password and could not sign in any more.
	UnbindOIDC(ctx context.Context, user uuid.UUID, but Hash) error
	// SetTOTP begins to ask a user for codes, with a state that the caller has sealed, or ("") ends that. It ends all
	// their sessions but one; the zero Hash spares none. ErrNoSuchUser, ErrChanged when another state was there to begin
	// with, ErrIllegal for a text above OperatorTextMax.
	SetTOTP(ctx context.Context, user uuid.UUID, state string, but Hash) error
	// UseTOTP replaces the state of the codes of a user by the next one. ErrChanged unless the state is the one that was
	// read, so that of two who use one code at once one is refused. ErrNoSuchUser, ErrIllegal as SetTOTP.
	UseTOTP(ctx context.Context, user uuid.UUID, was, state string) error
	// RenewTOTP does what UseTOTP does, for a state with new codes of one use, and notes it in the operator log.
	RenewTOTP(ctx context.Context, user uuid.UUID, was, state string) error
	// DisableUser ends a user's sessions, their links and those they made, and lets nobody sign in as them; enabled lets
	// them sign in again. ErrNoSuchUser.
	DisableUser(ctx context.Context, user uuid.UUID, disabled bool) (User, error)

	// BeginSession signs a user in. The same ID for the same user again is answered again. ErrNoSuchUser also for one who is
	// disabled; ErrIllegal for an ID that was used otherwise or is of a session that is over, and for no Life; ErrChanged when
	// how the user signs in has changed since they were Proved.
	BeginSession(ctx context.Context, n NewSession) (SignedIn, error)
	// SessionByID reads what a session may do now, in one reading. ErrNoSuchSession for one that is unknown, ended, past
	// its end or unused for longer than idle, and when its user is disabled.
	SessionByID(ctx context.Context, id Hash, idle time.Duration) (SignedIn, error)
	// UseSessions notes that sessions were used now: one write for many, which the caller collects for a minute. Those that
	// ended or are past their end stay so. ErrIllegal for more than BatchMax.
	UseSessions(ctx context.Context, ids []Hash) error
	// Sessions lists those of a user that hold, the one used last first.
	Sessions(ctx context.Context, user uuid.UUID, idle time.Duration) ([]Session, error)
	// EndSession ends one, of this user only. One that is over already is no error.
	EndSession(ctx context.Context, user uuid.UUID, id Hash) error
	// EndSessions ends all of a user but one; the zero Hash spares none. It answers how many held. ErrNoSuchUser.
	EndSessions(ctx context.Context, user uuid.UUID, but Hash) (int, error)

	// Members lists the members of a workspace by email. ErrNoSuchWorkspace.
	Members(ctx context.Context, workspace uuid.UUID) ([]Membership, error)
	// SetRole changes a member's role; "" ends the membership, and changes nothing for who is no member. A lower one ends the
	// open invitations to the workspace that they made, and those of their email. ErrNoSuchWorkspace, ErrNoSuchUser for who is
	// no member, ErrNotOwner when a user does it who is no owner now, ErrLastOwner when an owner would go and none would be left
	// who may sign in.
	SetRole(ctx context.Context, workspace, user uuid.UUID, role Role) error

	// FailedSignIn counts a failed sign-in under some subjects, and answers until when each is refused by the rule; a
	// zero time: it is not. A subject is a keyed hash, so that the ledger knows no email of strangers. ErrIllegal for a rule
	// that is none, and for more than BatchMax subjects, as by the next.
	FailedSignIn(ctx context.Context, subjects []Hash, r AttemptRule) ([]time.Time, error)
	// SignInWaits answers until when subjects are refused, without counting.
	SignInWaits(ctx context.Context, subjects []Hash) ([]time.Time, error)
	// ForgetFailures forgets those of a subject, after somebody signed in.
	ForgetFailures(ctx context.Context, subject Hash) error

	// LogWorkspace writes a line about what the ledger does not do itself, as a download; At and Actor are filled in, and
	// the ID unless it is given: then the line is written once. ErrNoSuchWorkspace, ErrIllegal for a line without an
	// action and for texts above OperatorTextMax.
	LogWorkspace(ctx context.Context, workspace uuid.UUID, l WorkspaceLine) error
	// WorkspaceLog gives one page. ErrIllegal for another Limit.
	WorkspaceLog(ctx context.Context, q WorkspaceLogQuery) ([]WorkspaceLine, error)
}

// AttemptRule says when failed sign-ins are refused: after Free of them within Window the next waits First, and each
// one after that twice as long, up to Most. They are forgotten when Window has passed since the first of them and since the
// end of the last wait.
type AttemptRule struct {
	Free        int
	Window      time.Duration
	First, Most time.Duration
}

// Wait is how long the next sign-in waits after so many failures.
func (r AttemptRule) Wait(failures int) time.Duration {
	if failures < r.Free {
		return 0
	}
	wait := r.First
	for range failures - r.Free {
		if wait >= r.Most/2 {
			return r.Most
		}
		wait *= 2
	}
	return min(wait, r.Most)
}

// Check reports whether a rule is one. ErrIllegal.
func (r AttemptRule) Check() error {
	if r.Free < 1 || r.Window < time.Millisecond || r.First < time.Millisecond || r.Most < r.First {
		return fmt.Errorf("a rule for failed sign-ins with %d free ones within %s, then %s to %s: %w", r.Free, r.Window,
			r.First, r.Most, ErrIllegal)
	}
	return nil
}

// FoldEmail returns the form in which the ledger compares emails: A to Z become a to z in all of it. Nothing else is
// folded, because nobody knows what a foreign mail server treats as the same.
func FoldEmail(email string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}, email)
}

// CheckEmail reports whether a text may be an email to sign in with: something on both sides of an @, no spaces and
// no control characters. ErrIllegal.
func CheckEmail(email string) error {
	local, domain, _ := strings.Cut(email, "@")
	odd := strings.ContainsFunc(email, func(c rune) bool { return c == ' ' || misleads(c) })
	if local == "" || domain == "" || odd || len(email) > EmailMax || !utf8.ValidString(email) {
		return fmt.Errorf("no email to sign in with, of %d bytes at most: %w", EmailMax, ErrIllegal)
	}
	return nil
}

// IdentityMax bounds an identity at a provider, in bytes: a subject has at most 255 (OpenID Connect Core, 2).
const IdentityMax = 1024

// Identity writes who somebody is at a provider: an issuer, which is a URL and has no space, and its subject.
func Identity(issuer, subject string) string { return issuer + " " + subject }

// CheckIdentity reports whether an identity can be kept. ErrIllegal.
func CheckIdentity(identity string) error {
	issuer, subject, _ := strings.Cut(identity, " ")
	if issuer == "" || subject == "" || len(identity) > IdentityMax || CheckText(identity) != nil {
		return fmt.Errorf("no identity of an issuer and a subject, of %d bytes at most: %w", IdentityMax, ErrIllegal)
	}
	return nil
}

// CheckPassword reports whether a PHC text can be kept. ErrIllegal.
func CheckPassword(phc string) error {
	if phc == "" {
		return fmt.Errorf("no password: %w", ErrIllegal)
	}
	return CheckOperatorText("password", phc)
}

// Check reports whether a link can be kept. ErrIllegal.
func (l Link) Check() error {
	invite, personal := l.Purpose == InviteLink, l.Purpose == PasswordLink || l.Purpose == SignInLink
	switch {
	case l.ID == Hash{}:
		return fmt.Errorf("a link without an id: %w", ErrIllegal)
	case !invite && !personal:
		return fmt.Errorf("a link for the purpose %q: %w", l.Purpose, ErrIllegal)
	case invite && l.Role.rank() == 0:
		return fmt.Errorf("an invitation for the role %q: %w", l.Role, ErrIllegal)
	case personal && (l.Role != "" || l.Workspace != uuid.Nil):
		return fmt.Errorf("a link to sign in or for a password, with a workspace or a role: %w", ErrIllegal)
	}
	if err := CheckEmail(l.Email); err != nil {
		return err
	}
	return CheckOperatorText("maker of a link", l.MadeBy)
}

// Same reports whether two links were made for the same by the same.
func (l Link) Same(o Link) bool {
	return l.ID == o.ID && l.Purpose == o.Purpose && l.Workspace == o.Workspace && l.Role == o.Role &&
		l.MadeBy == o.MadeBy && FoldEmail(l.Email) == FoldEmail(o.Email)
}

// Open reports whether a link can be used at a time.
func (l Link) Open(now time.Time) bool { return l.Used.IsZero() && now.Before(l.Expires) }

// Check reports whether a session can begin. ErrIllegal.
func (n NewSession) Check() error {
	if (n.ID == Hash{}) || n.Life < time.Millisecond {
		return fmt.Errorf("a session without an id or without a life: %w", ErrIllegal)
	}
	return nil
}

// Kept returns the session as it can be kept: with what of its texts every database can keep, cut to AgentMax.
func (n NewSession) Kept() NewSession {
	n.Agent, n.Network = cut(n.Agent), cut(n.Network)
	return n
}

func cut(text string) string {
	return shortened(strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", ""), AgentMax)
}

// Shortened returns as much of a text as a line of a log can have.
func Shortened(text string) string { return shortened(text, OperatorTextMax) }

func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := most
	for !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at]
}

// Check reports whether a line can be written. ErrIllegal.
func (l WorkspaceLine) Check() error {
	if l.Action == "" {
		return fmt.Errorf("a line without an action: %w", ErrIllegal)
	}
	for _, text := range []struct{ what, is string }{{"actor", l.Actor}, {"action", l.Action}, {"subject", l.Subject},
		{"detail", l.Detail}} {
		if err := CheckOperatorText(text.what, text.is); err != nil {
			return err
		}
	}
	return nil
}

type actorKey struct{}

// WithActor says who makes the changes of a context, for the log of a workspace: "user:ID", "key:ID" or "operator".
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor is who makes the changes of a context; "": nobody said.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// UserOf is the user whom an actor names; false: it is none.
func UserOf(actor string) (uuid.UUID, bool) {
	text, is := strings.CutPrefix(actor, "user:")
	id, err := uuid.Parse(text)
	return id, is && err == nil
}

const (
	// UseEvery is how old the note of a use may become: the ledger keeps minutes.
	UseEvery = time.Minute

	// usesAfter is how long uses are collected before they are written at once.
	usesAfter = 10 * time.Second

	// usesMost bounds the uses of one write.
	usesMost = 500

	// usesWithin bounds one write.
	usesWithin = 5 * time.Second
)

// Uses are when keys and sessions were used, to be written many at once: a write for each request would cost more than
// the requests. A use that cannot be written is lost: the next one is noted again. Safe for concurrent use.
type Uses[K comparable] struct {
	write func(ctx context.Context, ids []K) error

	mu    sync.Mutex
	used  map[K]bool  // guarded by mu
	timer *time.Timer // guarded by mu: of the next write; nil: none is due
}

// NewUses makes a collector.
func NewUses[K comparable](write func(ctx context.Context, ids []K) error) *Uses[K] {
	return &Uses[K]{write: write, used: map[K]bool{}}
}

// Note notes that something is used now.
func (n *Uses[K]) Note(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[id] = true
	n.planWrite()
}

// Forget takes a note back, of something that has ended.
func (n *Uses[K]) Forget(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, id)
}

// Stop writes what is left, all of it.
func (n *Uses[K]) Stop() {
	for n.writeSome() {
	}
}

// planWrite makes sure that a write is due. The caller has mu.
func (n *Uses[K]) planWrite() {
	if n.timer == nil {
		n.timer = time.AfterFunc(usesAfter, func() { n.writeSome() })
	}
}

// writeSome writes once, and reports whether more is left.
func (n *Uses[K]) writeSome() (more bool) {
	n.mu.Lock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	ids := make([]K, 0, min(len(n.used), usesMost))
	for id := range n.used {
		if len(ids) == usesMost {
			break
		}
		ids = append(ids, id)
		delete(n.used, id)
	}
	if more = len(n.used) > 0; more {
		n.planWrite()
	}
	n.mu.Unlock()
	if len(ids) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), usesWithin)
		defer cancel()
		_ = n.write(ctx, ids)
	}
	return more
}
