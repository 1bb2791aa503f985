package ledger

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	// EmailMax bounds an email for sign-in, in bytes: the longest path of RFC 5321 §4.5.3.1.3 without its brackets.
	EmailMax = 254

	// NameMax bounds the name of a user, in bytes.
	NameMax = 200

	// AgentMax bounds the stored User-Agent of a browser, and its network, in bytes each.
	AgentMax = 400

	// LinkLife is how long a one-time link is valid.
	LinkLife = 72 * time.Hour

	// SessionsMax bounds the sessions of one user: a new one ends the least recently used.
	SessionsMax = 50

	// MembersMax bounds the members of one workspace together with its open invitations.
	MembersMax = 1000

	// WorkspaceLogMax bounds one page of the log of a workspace.
	WorkspaceLogMax = 200

	// UsersMax bounds one page of users.
	UsersMax = 1000

	// BatchMax bounds the sessions, keys or subjects of one call. Guess.
	BatchMax = 1000
)

// Hash identifies a secret that the ledger must not know: the SHA-256 of a cookie or of a link's token.
type Hash [32]byte

// Role is a member's role in a workspace. Each role includes the rights of the one before it.
type Role string

// The three roles.
const (
	Viewer Role = "viewer" // sees verifications, results and credits
	Member Role = "member" // also uploads, checks and cancels
	Owner  Role = "owner"  // also manages keys, people and the log
)

// Allows reports whether role r has the rights of role needed. An unknown role has none.
func (r Role) Allows(needed Role) bool { return needed.rank() > 0 && r.rank() >= needed.rank() }

func (r Role) rank() int { return slices.Index([]Role{Viewer, Member, Owner}, r) + 1 }

// User is a person who signs in to the pages.
type User struct {
	ID       uuid.UUID
	Email    string // as given; FoldEmail tells which are equal
	Name     string // "": none was given
	Password string // a PHC text; "": signs in another way, or not yet
	OIDC     string // the identity at a provider, as Identity writes it; "": none
	TOTP     string // state of the codes for sign-in, encrypted by the caller; "": no codes
	Created  time.Time
	Disabled time.Time // zero: the user may sign in
}

// Membership is a user's role in a workspace.
type Membership struct {
	Workspace     uuid.UUID
	WorkspaceName string
	User          uuid.UUID
	Email, Name   string // the user's
	Role          Role
	Created       time.Time
	Seen          time.Time // last use of any session of the user, from UseSessions; zero: never
	Disabled      bool      // the user may not sign in
}

// Session is one browser with a signed-in user.
type Session struct {
	ID      Hash
	User    uuid.UUID
	Created time.Time
	Seen    time.Time // last use, from UseSessions
	Ends    time.Time // latest end
	Agent   string    // the browser's User-Agent
	Network string    // where the user signed in from
}

// SignedIn is a session with its user and the user's memberships, from one snapshot.
type SignedIn struct {
	Session     Session
	User        User
	Memberships []Membership // by the name of the workspace, then by its id
}

// Purpose is the purpose of a one-time link.
type Purpose string

// The purposes.
const (
	InviteLink   Purpose = "invite"   // makes a person a member of a workspace, and a user if needed
	PasswordLink Purpose = "password" // sets a new password
	SignInLink   Purpose = "sign-in"  // signs in without a password
)

// Link can be used once, within LinkLife.
type Link struct {
	ID        Hash
	Purpose   Purpose
	Workspace uuid.UUID // of an invitation
	Email     string    // of the person it is for
	Role      Role      // of an invitation
	MadeBy    string    // "user:ID", or "operator" with the chosen name
	Created   time.Time
	Expires   time.Time
	Used      time.Time // when it was used or ended; zero: neither
}

// Accept is the use of a link.
type Accept struct {
	Link     Hash
	User     uuid.UUID  // id of a new user of an invitation; made by the caller, once for each form
	Name     string     // of a new user
	Password string     // PHC text; "" for a SignInLink, for an invitation of a user, and for a new user with OIDC
	OIDC     string     // of a new user; an existing user's must match and stays
	Session  NewSession // the new session; its User is filled in
}

// Factors returns a hash of the ways the user signs in: it changes with the password, the provider's account, and
// when codes are turned on or off.
func (u *User) Factors() Hash {
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %t", u.Password, u.OIDC, u.TOTP != ""))
}

// NewSession is a session to begin.
type NewSession struct {
	ID             Hash
	User           uuid.UUID
	Agent, Network string        // cut to AgentMax
	Life           time.Duration // longest life from now on by the ledger's clock
	Proved         Hash          // Factors of the user when proved; the zero Hash: not proved

	// TOTP is the user's new TOTP state, with the code for this session used up; "": no code was used. If the stored
	// state is no longer TOTPWas, the session does not begin: ErrChanged.
	TOTPWas, TOTP string
}

// WorkspaceLine is one line of the log that the owners of a workspace read.
type WorkspaceLine struct {
	ID      uuid.UUID
	At      time.Time
	Actor   string // "user:ID", "key:ID" or "operator"
	Email   string // of the actor, if a known user
	Action  string // such as "member role"
	Subject string // the person or thing; never an address of a customer's file
	Detail  string
}

// WorkspaceLogQuery asks for one page of the log of a workspace, newest first.
type WorkspaceLogQuery struct {
	Workspace uuid.UUID
	After     *Position // nil: from the newest
	Limit     int       // 1 to WorkspaceLogMax
}

// People is the part about people who sign in to the pages. WithActor names the actor. A change in a workspace
// writes its line of that workspace's log in the same transaction. Changes outside any single workspace, and those
// by "operator", write a line of the operator log.
type People interface {
	// MakeLink stores a link and fills in Created and Expires. It ends open links for the same email, purpose and
	// workspace. Repeated with the same ID and content it returns the stored one. ErrNoSuchWorkspace; ErrNoSuchUser
	// for an unknown or disabled user; ErrNotOwner for an invitation by a user who is disabled or not an owner;
	// ErrTooManyMembers; ErrIllegal for an ID with other content, for texts that are too long or no email, and for
	// an invitation without a role.
	MakeLink(ctx context.Context, l Link) (Link, error)
	// LinkByID returns an open link, and whether a user with its email exists. ErrNoSuchLink when the link is
	// unknown, used or expired, or its user is disabled.
	LinkByID(ctx context.Context, id Hash) (l Link, known bool, err error)
	// AcceptLink uses a link and begins a session, in one transaction. An invitation makes the user, unless one has
	// that email, and the membership; a member's role is only raised. A PasswordLink sets the password and ends all
	// sessions of the user. A SignInLink does neither. A repeat with the same session returns the same answer.
	// ErrNoSuchLink as in LinkByID. ErrIllegal for a new user without a password and OIDC, and for a SignInLink with
	// a password. If the user exists, an invitation with a password or another OIDC is also ErrIllegal: its holder
	// may be somebody else, so it must not change how the user signs in; the caller asks for a proof.
	// ErrIdentityTaken for the OIDC of another user. ErrChanged as in BeginSession for an existing user.
	AcceptLink(ctx context.Context, a Accept) (SignedIn, error)
	// EndLink ends an invitation to a workspace. No error if it has already ended. ErrNoSuchLink, also for an
	// accepted one.
	EndLink(ctx context.Context, workspace uuid.UUID, id Hash) error
	// OpenLinks lists the open invitations to a workspace, newest first.
	OpenLinks(ctx context.Context, workspace uuid.UUID) ([]Link, error)
	// Invitations lists the open invitations of an email to all workspaces, newest first.
	Invitations(ctx context.Context, email string) ([]Link, error)

	// UserByEmail returns a user, even a disabled one. ErrNoSuchUser.
	UserByEmail(ctx context.Context, email string) (User, error)
	// Users lists all users by email, at most limit, after an email; "": from the first. ErrIllegal for a limit
	// outside of 1 to UsersMax.
	Users(ctx context.Context, after string, limit int) ([]User, error)
	// SetPassword changes the password of a user and ends all the user's sessions except one; the zero Hash excepts
	// none. ErrNoSuchUser; ErrIllegal for an empty text and one above OperatorTextMax.
	SetPassword(ctx context.Context, user uuid.UUID, password string, but Hash) error
	// UserByOIDC returns the user with an identity at a provider, even a disabled one. ErrNoSuchUser.
	UserByOIDC(ctx context.Context, identity string) (User, error)
	// BindOIDC sets a user's identity at a provider and replaces an earlier one. ErrNoSuchUser, ErrIdentityTaken;
	// ErrIllegal for an empty identity.
	BindOIDC(ctx context.Context, user uuid.UUID, identity string) error
	// UnbindOIDC removes a user's identity at a provider and ends all the user's sessions except one; the zero Hash
	// excepts none. No effect without an identity. ErrNoSuchUser; ErrIllegal for a user without a password, who
	// could then not sign in.
	UnbindOIDC(ctx context.Context, user uuid.UUID, but Hash) error
	// SetTOTP turns codes on for a user, with a state encrypted by the caller, or ("") off. It ends all the user's
	// sessions except one; the zero Hash excepts none. ErrNoSuchUser; ErrChanged when the stored state was another;
	// ErrIllegal for a text above OperatorTextMax.
	SetTOTP(ctx context.Context, user uuid.UUID, state string, but Hash) error
	// UseTOTP replaces the state of a user's codes. ErrChanged when the stored state is not was, so that a code
	// works only once even if two use it at the same time. ErrNoSuchUser, ErrIllegal as in SetTOTP.
	UseTOTP(ctx context.Context, user uuid.UUID, was, state string) error
	// RenewTOTP is UseTOTP for a state with new one-time codes, and logs it in the operator log.
	RenewTOTP(ctx context.Context, user uuid.UUID, was, state string) error
	// DisableUser ends a user's sessions, the links for and by the user, and prevents sign-in; with disabled false
	// it allows sign-in again. ErrNoSuchUser.
	DisableUser(ctx context.Context, user uuid.UUID, disabled bool) (User, error)

	// BeginSession signs a user in. If repeated with the same ID and user, it returns the same session. ErrNoSuchUser
	// also for a disabled user; ErrIllegal if the ID is that of another or ended session, or without Life; ErrChanged
	// if the user's factors have changed since Proved.
	BeginSession(ctx context.Context, n NewSession) (SignedIn, error)
	// SessionByID returns a session with its current rights, from one snapshot. ErrNoSuchSession when it is unknown,
	// ended or unused for longer than idle, or its user is disabled.
	SessionByID(ctx context.Context, id Hash, idle time.Duration) (SignedIn, error)
	// UseSessions records that sessions were used now: one write for many, which the caller collects for a minute.
	// Ended sessions stay so. ErrIllegal for more than BatchMax.
	UseSessions(ctx context.Context, ids []Hash) error
	// Sessions lists the valid sessions of a user, the most recently used first.
	Sessions(ctx context.Context, user uuid.UUID, idle time.Duration) ([]Session, error)
	// EndSession ends a session of this user. No error if it has already ended.
	EndSession(ctx context.Context, user uuid.UUID, id Hash) error
	// EndSessions ends all sessions of a user except one, and returns how many were valid; the zero Hash excepts
	// none. ErrNoSuchUser.
	EndSessions(ctx context.Context, user uuid.UUID, but Hash) (int, error)

	// Members lists the members of a workspace by email. ErrNoSuchWorkspace.
	Members(ctx context.Context, workspace uuid.UUID) ([]Membership, error)
	// SetRole changes a member's role; "" ends the membership, and does nothing for a user who is not a member. A
	// lower role ends the open invitations to the workspace that the user made or got. ErrNoSuchWorkspace;
	// ErrNoSuchUser for a user who is not a member; ErrNotOwner for an actor who is not an owner; ErrLastOwner when
	// no owner who may sign in would be left.
	SetRole(ctx context.Context, workspace, user uuid.UUID, role Role) error

	// FailedSignIn counts a failed sign-in under some subjects, and returns until when the rule refuses each; a zero
	// time: it does not. A subject is a keyed hash, so that the ledger stores no email of strangers. ErrIllegal for
	// an invalid rule, and for more than BatchMax subjects.
	FailedSignIn(ctx context.Context, subjects []Hash, r AttemptRule) ([]time.Time, error)
	// SignInWaits returns until when subjects are refused, without counting. ErrIllegal for more than BatchMax.
	SignInWaits(ctx context.Context, subjects []Hash) ([]time.Time, error)
	// ForgetFailures deletes the failures of a subject, after a successful sign-in.
	ForgetFailures(ctx context.Context, subject Hash) error

	// LogWorkspace writes a line about an action outside the ledger, such as a download. It fills in At, Actor and a
	// missing ID; a given ID is written only once. ErrNoSuchWorkspace; ErrIllegal for a line without an action and
	// for texts above OperatorTextMax.
	LogWorkspace(ctx context.Context, workspace uuid.UUID, l WorkspaceLine) error
	// WorkspaceLog returns one page. ErrIllegal for a Limit out of range.
	WorkspaceLog(ctx context.Context, q WorkspaceLogQuery) ([]WorkspaceLine, error)
}

// AttemptRule says when sign-ins are refused after failures: after Free failures within Window the next sign-in waits
// First, and each further one twice as long, up to Most. The failures are forgotten when Window has passed since the
// first failure and since the end of the last wait.
type AttemptRule struct {
	Free        int
	Window      time.Duration
	First, Most time.Duration
}

// Wait returns how long the next sign-in waits after a number of failures.
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

// Check returns ErrIllegal when a rule is not valid.
func (r AttemptRule) Check() error {
	if r.Free < 1 || r.Window < time.Millisecond || r.First < time.Millisecond || r.Most < r.First {
		return fmt.Errorf("a rule for failed sign-ins with %d free ones within %s, then %s to %s: %w", r.Free, r.Window,
			r.First, r.Most, ErrIllegal)
	}
	return nil
}

// FoldEmail returns the form in which the ledger compares emails: A to Z become a to z. Nothing else is folded,
// because other mail servers' rules are unknown.
func FoldEmail(email string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}, email)
}

// CheckEmail checks whether a text may be an email for sign-in: text on both sides of an @, without spaces and
// control characters. ErrIllegal.
func CheckEmail(email string) error {
	local, domain, _ := strings.Cut(email, "@")
	odd := strings.ContainsFunc(email, func(c rune) bool { return c == ' ' || misleads(c) })
	if local == "" || domain == "" || odd || len(email) > EmailMax || !utf8.ValidString(email) {
		return fmt.Errorf("not an email, or over %d bytes: %w", EmailMax, ErrIllegal)
	}
	return nil
}

// IdentityMax bounds an identity at a provider, in bytes: a subject has at most 255 (OpenID Connect Core, 2).
const IdentityMax = 1024

// Identity returns an identity at a provider: the issuer, which is a URL without spaces, and the subject.
func Identity(issuer, subject string) string { return issuer + " " + subject }

// CheckIdentity returns ErrIllegal when an identity cannot be stored.
func CheckIdentity(identity string) error {
	issuer, subject, _ := strings.Cut(identity, " ")
	if issuer == "" || subject == "" || len(identity) > IdentityMax || CheckText(identity) != nil {
		return fmt.Errorf("not an issuer and a subject, or over %d bytes: %w", IdentityMax, ErrIllegal)
	}
	return nil
}

// CheckPassword returns ErrIllegal when a PHC text cannot be stored.
func CheckPassword(phc string) error {
	if phc == "" {
		return fmt.Errorf("no password: %w", ErrIllegal)
	}
	return CheckOperatorText("password", phc)
}

// Check returns ErrIllegal when a link cannot be stored.
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

// Same reports whether two links have the same maker and content.
func (l Link) Same(o Link) bool {
	return l.ID == o.ID && l.Purpose == o.Purpose && l.Workspace == o.Workspace && l.Role == o.Role &&
		l.MadeBy == o.MadeBy && FoldEmail(l.Email) == FoldEmail(o.Email)
}

// Open reports whether a link is valid at a time.
func (l Link) Open(now time.Time) bool { return l.Used.IsZero() && now.Before(l.Expires) }

// Check returns ErrIllegal when a session cannot begin.
func (n NewSession) Check() error {
	if (n.ID == Hash{}) || n.Life < time.Millisecond {
		return fmt.Errorf("a session without an id or without a life: %w", ErrIllegal)
	}
	return nil
}

// Storable returns the session in storable form: without text that a database refuses, cut to AgentMax.
func (n NewSession) Storable() NewSession {
	n.Agent, n.Network = cut(n.Agent), cut(n.Network)
	return n
}

func cut(text string) string {
	return shortened(strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", ""), AgentMax)
}

// Shortened cuts a text to the length that a log line can have.
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

// Check returns ErrIllegal when a line cannot be stored.
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

// WithActor sets the actor of a context's changes, for the log of a workspace: "user:ID", "key:ID" or "operator".
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor of a context's changes; "": none was set.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// UserOf returns the user that an actor names, if it is one.
func UserOf(actor string) (uuid.UUID, bool) {
	text, is := strings.CutPrefix(actor, "user:")
	id, err := uuid.Parse(text)
	return id, is && err == nil
}

const (
	// UseEvery is the precision of stored uses.
	UseEvery = time.Minute

	// usesAfter is how long uses are collected for one write.
	usesAfter = 10 * time.Second

	// usesMost bounds the uses of one write.
	usesMost = 500

	// usesWithin bounds one write.
	usesWithin = 5 * time.Second
)

// Uses collects uses of keys and sessions, to write many at once: a write for each request would cost more than the
// request. Uses that cannot be written are lost, and recorded again at the next use. Safe for concurrent use.
type Uses[K comparable] struct {
	write func(ctx context.Context, ids []K) error

	mu    sync.Mutex
	used  map[K]bool  // guarded by mu
	timer *time.Timer // guarded by mu: of the next write; nil: none
}

// NewUses makes a collector.
func NewUses[K comparable](write func(ctx context.Context, ids []K) error) *Uses[K] {
	return &Uses[K]{write: write, used: map[K]bool{}}
}

// Note records that id is used now.
func (n *Uses[K]) Note(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.used[id] = true
	n.planWrite()
}

// Forget removes the record of something that has ended.
func (n *Uses[K]) Forget(id K) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, id)
}

// Stop writes all remaining uses.
func (n *Uses[K]) Stop() {
	for n.writeSome() {
	}
}

// planWrite schedules a write. The caller has mu.
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
