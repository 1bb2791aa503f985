package signin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// ErrWrong: no user has this email with this password. It does not show which of the two is wrong.
var ErrWrong = errors.New("signin: email and password do not match")

// Wait: there were too many failures; try again later.
type Wait struct{ Until time.Time }

// Error says how long to wait.
func (w *Wait) Error() string {
	return "signin: too many failures, until " + w.Until.UTC().Format(time.RFC3339)
}

// The rules about failures: for one user from one network, and for any users from one network.
var (
	userRule    = ledger.AttemptRule{Free: 5, Window: 15 * time.Minute, First: time.Minute, Most: 15 * time.Minute}
	networkRule = ledger.AttemptRule{Free: 20, Window: time.Minute, First: time.Minute, Most: time.Minute}
)

// Options are the options of a Service; all but Now are required.
type Options struct {
	Book   ledger.People
	Secret []byte           // 32 bytes, the same on every node
	Idle   time.Duration    // how long an unused session lasts
	Life   time.Duration    // how long a session lasts at most
	Now    func() time.Time // nil: time.Now

	Provider *Provider // nil: no provider; then Visit and Back are not called
}

// Service signs people in. Safe for concurrent use.
type Service struct {
	book     ledger.People
	secret   []byte
	life     time.Duration
	idle     time.Duration
	hasher   *hasher
	sessions *sessionCache
	queues   subjectQueues
	steps    sealer // encrypts steps of users who still have to give a code
	states   sealer // encrypts the states of codes in the ledger
	visits   sealer // to the provider
	provider *Provider
	now      func() time.Time
}

// New makes a service.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{book: o.Book, secret: o.Secret, life: o.Life, idle: o.Idle, hasher: newHasher(), now: o.Now, provider: o.Provider,
		sessions: newSessionCache(o.Book, o.Idle, o.Now)}
	s.steps, s.states = newSealer(s.keyed("seal", "steps")), newSealer(s.keyed("seal", "states"))
	s.visits = newSealer(s.keyed("seal", "visits"))
	return s
}

// Stop writes the pending notes about the use of sessions.
func (s *Service) Stop() { s.sessions.used.Stop() }

// Browser is the browser and network of a sign-in.
type Browser struct {
	Agent   string // its User-Agent
	Address string // for people
	Network string // addresses with this value count as one network
}

// SignIn begins a session. The same form repeated with the same email and password gets the same session. Errors:
// ErrWrong, *CodeWanted, *Wait, ErrBusy, ErrFormUsed; any other error means that it is unknown.
func (s *Service) SignIn(ctx context.Context, form uuid.UUID, email, password string, b Browser) (Token, error) {
	user, err := s.prove(ctx, email, password, b)
	if err == nil {
		err = s.wantCode(user, "")
	}
	if err != nil {
		return "", err
	}
	token := s.TokenOf("sign in", form.String(), user.ID.String())
	if err := s.begin(ctx, user, "", s.newSession(token, b)); err != nil {
		return "", err
	}
	return token, nil
}

func (s *Service) newSession(token Token, b Browser) ledger.NewSession {
	id, _ := token.Hash()
	return ledger.NewSession{ID: id, Agent: b.Agent, Network: b.Address, Life: s.life}
}

// prove finds the user with an email and a password, and counts failures. An unknown email takes equally long.
func (s *Service) prove(ctx context.Context, email, password string, b Browser) (ledger.User, error) {
	email = strings.TrimSpace(email)
	user, network := s.subjects(email, b)
	leave, err := s.queues.takeBoth(ctx, user, network)
	if err != nil {
		return ledger.User{}, err
	}
	defer leave()
	if err := s.mayTry(ctx, user, network); err != nil {
		return ledger.User{}, err
	}
	found := ledger.User{}
	if len(email) <= ledger.EmailMax && ledger.CheckText(email) == nil {
		found, err = s.book.UserByEmail(ctx, email)
		if err != nil && !errors.Is(err, ledger.ErrNoSuchUser) {
			return ledger.User{}, err
		}
	}
	kept := found.Password
	if !found.Disabled.IsZero() || len(password) > 4*PasswordMost {
		kept = ""
	}
	good, err := s.hasher.verify(ctx, kept, password[:min(len(password), 4*PasswordMost)])
	if err != nil {
		return ledger.User{}, err
	}
	if good && found.TOTP != "" {
		return found, nil // only a right code clears failures, or somebody with the password could try codes for ever
	}
	if good {
		return found, s.book.ForgetFailures(ctx, user)
	}
	if err := s.failedSignIn(ctx, user, network); err != nil {
		return ledger.User{}, err
	}
	return ledger.User{}, ErrWrong
}

func (s *Service) mayTry(ctx context.Context, subjects ...ledger.Hash) error {
	waits, err := s.book.SignInWaits(ctx, subjects)
	if err != nil {
		return err
	}
	if until := slices.MaxFunc(append(waits, time.Time{}), time.Time.Compare); !until.IsZero() {
		return &Wait{Until: until}
	}
	return nil
}

// subjects are the keys for counting failures: a user from one network, and that network.
func (s *Service) subjects(email string, b Browser) (user, network ledger.Hash) {
	return s.keyed("user", strings.ToLower(email), b.Network), s.keyed("network", b.Network)
}

func (s *Service) failedSignIn(ctx context.Context, user, network ledger.Hash) error {
	if err := s.failed(ctx, user, userRule); err != nil {
		return err
	}
	return s.failed(ctx, network, networkRule)
}

// failed counts a failure. The failure that starts a wait is still answered as wrong; only later tries have to wait.
func (s *Service) failed(ctx context.Context, subject ledger.Hash, rule ledger.AttemptRule) error {
	_, err := s.book.FailedSignIn(ctx, []ledger.Hash{subject}, rule)
	return err
}

// Session returns the session of a cookie. Errors: ledger.ErrNoSuchSession; any other error means that it is unknown.
func (s *Service) Session(ctx context.Context, cookie Token) (ledger.SignedIn, error) {
	id, ok := cookie.Hash()
	if !ok {
		return ledger.SignedIn{}, ledger.ErrNoSuchSession
	}
	return s.sessions.get(ctx, id)
}

// SessionNow is Session without the cache, for changes. If the user is disabled after this check, the change still
// fails, because the ledger checks that with each change: see Acting.
func SessionNow(ctx context.Context, s *Service, cookie Token) (ledger.SignedIn, error) {
	id, ok := cookie.Hash()
	if !ok {
		return ledger.SignedIn{}, ledger.ErrNoSuchSession
	}
	return s.sessions.getSince(ctx, id, s.now())
}

// Acting attributes the changes of a context to the signed-in user.
func Acting(ctx context.Context, s *Service, in ledger.SignedIn, workspace uuid.UUID, role ledger.Role) context.Context {
	ctx = ledger.WithActor(ctx, "user:"+in.User.ID.String())
	return ledger.WithActing(ctx, ledger.Acting{Session: in.Session.ID, Idle: s.idle, Workspace: workspace, Role: role})
}

// Sessions lists the sessions of the signed-in user; the one used last comes first.
func (s *Service) Sessions(ctx context.Context, user uuid.UUID) ([]ledger.Session, error) {
	return s.book.Sessions(ctx, user, s.idle)
}

// End ends a session of a user. Ending a session that has ended is no error.
func (s *Service) End(ctx context.Context, user ledger.User, id ledger.Hash) error {
	err := s.book.EndSession(ctx, user.ID, id)
	s.sessions.forget(id)
	return err
}

// Changed drops the cached answers about a user, after a change of their roles.
func (s *Service) Changed(user uuid.UUID) { s.sessions.forgetUser(ledger.User{ID: user}) }

// EndOthers ends all sessions of a user but one.
func (s *Service) EndOthers(ctx context.Context, user ledger.User, but ledger.Hash) error {
	_, err := s.book.EndSessions(ctx, user.ID, but)
	s.sessions.forgetUser(user)
	return err
}

// ChangePassword gives the signed-in user a new password and a new session, and ends all other sessions of the user.
// A user with codes must give one. Errors: those of CheckPassword, ErrWrong for the old password, ErrCode, *Wait,
// ErrBusy.
func (s *Service) ChangePassword(ctx context.Context, in ledger.SignedIn, old, password, code string, b Browser) (
	Token, error) {
	if err := CheckPassword(password, in.User.Email); err != nil {
		return "", err
	}
	u, err := proveBoth(ctx, s, in, old, code, b)
	if err != nil {
		return "", err
	}
	kept, err := s.hasher.hash(ctx, password)
	if err != nil {
		return "", err
	}
	token := NewToken() // the new session begins first, because the old one can't act after its end
	n := s.newSession(token, b)
	n.User = u.ID
	if _, err := s.book.BeginSession(ctx, n); err != nil {
		return "", fmt.Errorf("begin a session: %w", err)
	}
	if err := s.book.SetPassword(ctx, u.ID, kept, n.ID); err != nil {
		return "", fmt.Errorf("set the password: %w", err)
	}
	s.sessions.forgetUser(u)
	return token, nil
}

// proveBoth checks the signed-in user's password, and a code if the user has codes. Errors: ErrWrong, ErrCode, *Wait,
// ErrBusy.
func proveBoth(ctx context.Context, s *Service, in ledger.SignedIn, password, code string, b Browser) (
	ledger.User, error) {
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err == nil && u.TOTP != "" {
		err = s.proveCode(ctx, u, code, b)
	}
	return u, err
}
