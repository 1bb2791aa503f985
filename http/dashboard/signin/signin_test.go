package signin_test

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

const good = "a horse that nobody rides"

// cheap is what the ledger keeps of good, made with the lowest cost.
const cheap = "$argon2id$v=19$m=8,t=1,p=1$H7lUOLmAlOobe3snqv3ZhQ$DmKhrNge8PeWCihcU87uy4ApxBcCbVfZfLfMBUv2V5M"

var here = signin.Browser{Agent: "test", Address: "192.0.2.1", Network: "192.0.2.1"}

// rig is a service on a real ledger, with one user who has a password.
type rig struct {
	t         *testing.T
	book      *countingBook
	service   *signin.Service
	workspace uuid.UUID
	now       atomic.Pointer[time.Time]
}

// countingBook counts the ledger's reads of sessions.
type countingBook struct {
	*sqlstore.Store
	asked, noted atomic.Int64
	away         atomic.Bool
	read         atomic.Int64                  // finished reads
	hold         atomic.Pointer[chan struct{}] // a finished read waits for this channel; nil: it doesn't wait
}

func (b *countingBook) SessionByID(ctx context.Context, id ledger.Hash, idle time.Duration) (ledger.SignedIn, error) {
	b.asked.Add(1)
	if b.away.Load() {
		return ledger.SignedIn{}, errors.New("away")
	}
	in, err := b.Store.SessionByID(ctx, id, idle)
	b.read.Add(1)
	if hold := b.hold.Load(); hold != nil {
		<-*hold
	}
	return in, err
}

func (b *countingBook) UseSessions(ctx context.Context, ids []ledger.Hash) error {
	b.noted.Add(int64(len(ids)))
	return b.Store.UseSessions(ctx, ids)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store := effort.Must(sqlstore.Open(context.Background(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	t.Cleanup(func() { effort.OK(t, store.Close()) })
	g := &rig{t: t, book: &countingBook{Store: store}, workspace: uuid.New()}
	effort.Must(store.CreateWorkspace(context.Background(), g.workspace, "acme"))(t)
	now := time.Now()
	g.now.Store(&now)
	g.service = g.node(g.book)
	return g
}

func (g *rig) node(book ledger.People) *signin.Service {
	return signin.New(signin.Options{Book: book, Secret: []byte(strings.Repeat("k", 32)), Idle: time.Hour,
		Life: 24 * time.Hour, Now: func() time.Time { return *g.now.Load() }})
}

// pass advances the service's clock.
func (g *rig) pass(d time.Duration) {
	now := g.now.Load().Add(d)
	g.now.Store(&now)
}

func (g *rig) link(l ledger.Link) signin.Token {
	g.t.Helper()
	token := signin.NewToken()
	l.ID, _ = token.Hash()
	l.MadeBy = "operator"
	if l.Purpose == ledger.InviteLink {
		l.Workspace, l.Role = g.workspace, ledger.Owner
	}
	effort.Must(g.book.MakeLink(context.Background(), l))(g.t)
	return token
}

// user makes a user by an invitation, and returns the cookie.
func (g *rig) user(email string) (signin.Token, ledger.SignedIn) {
	g.t.Helper()
	link, _ := g.link(ledger.Link{Purpose: ledger.InviteLink, Email: email}).Hash()
	token := signin.NewToken()
	id, _ := token.Hash()
	effort.Must(g.book.AcceptLink(context.Background(), ledger.Accept{Link: link, User: uuid.New(), Name: "Anna", Password: cheap,
		Session: ledger.NewSession{ID: id, Agent: here.Agent, Network: here.Network, Life: 24 * time.Hour}}))(g.t)
	return token, effort.Must(g.service.Session(context.Background(), token))(g.t)
}

func TestPasswordsOfAllKinds(t *testing.T) {
	for _, c := range []struct {
		password, email string
		want            error
	}{
		{"", "a@b.test", signin.ErrShort}, {"elevenchars", "a@b.test", signin.ErrShort}, {"twelve chars", "a@b.test", nil},
		{strings.Repeat("ä", 12), "a@b.test", signin.ErrCommon}, {"äöüäöüäöüäöu", "a@b.test", nil},
		{strings.Repeat("ab", 64), "a@b.test", nil}, {strings.Repeat("ab", 64) + "c", "a@b.test", signin.ErrLong},
		{"Anna@Example.com", "anna@example.com", signin.ErrEmail}, {"PassWord1234", "a@b.test", signin.ErrCommon},
		{" password1234 ", "a@b.test", signin.ErrCommon}, {"correct horse battery staple", "a@b.test", signin.ErrCommon},
	} {
		if err := signin.CheckPassword(c.password, c.email); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%q: %v, want %v", c.password, err, c.want)
		}
	}
	for _, p := range signin.Common {
		effort.ErrorIf(t, utf8.RuneCountInString(p) < signin.PasswordLeast || p != strings.ToLower(p),
			"%q on the list can never be chosen", p)
	}
}

func TestKeptPasswords(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	one, err := signin.HashPassword(good)
	other, err2 := signin.HashPassword(good)
	effort.FatalIf(t, err != nil || err2 != nil || one == other ||
		!strings.HasPrefix(one, "$argon2id$v=19$m=19456,t=2,p=1$"), "%v %v: %q and %q", err, err2, one, other)
	// The reference program made this: argon2 -id -t 2 -m 16 -p 1 with the salt "somesalt".
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	for _, c := range []struct {
		kept, password string
		want           bool
	}{
		{one, good, true}, {other, good, true}, {one, good + " ", false}, {one, "", false}, {"", "", false}, {"", good, false},
		{reference, "password", true}, {reference, "passwore", false},
		{strings.Replace(one, "argon2id", "argon2i", 1), good, false}, {strings.Replace(one, "v=19", "v=16", 1), good, false},
		{strings.Replace(one, "m=19456", "m=99999999", 1), good, false}, {strings.Replace(one, "t=2", "t=0", 1), good, false},
		{one[:len(one)-20], good, false}, {one + "$", good, false}, {strings.Replace(one, "p=1", "p=0", 1), good, false},
		{"$argon2id$v=19$m=19456,t=2,p=1$$", "", false},
	} {
		effort.Is(t, effort.Must(signin.VerifyPassword(c.kept, c.password))(t), c.want, c.password, "of", c.kept)
	}
	composed, err := signin.HashPassword("caf\u00e9 caf\u00e9 caf\u00e9")
	if ok, err2 := signin.VerifyPassword(composed, "cafe\u0301 cafe\u0301 cafe\u0301"); !ok || err != nil || err2 != nil {
		t.Errorf("the same characters in another encoding count as another password: %v %v", err, err2)
	}
}

func TestSignInAndOut(t *testing.T) {
	g := newRig(t)
	g.user("anna@example.com")
	ctx := context.Background()
	cookie := effort.Must(g.service.SignIn(ctx, uuid.New(), " Anna@Example.com ", good, here))(t)
	in, err := g.service.Session(ctx, cookie)
	effort.FatalIf(t, err != nil || in.User.Email != "anna@example.com" || len(in.Memberships) != 1,
		"sign in: %v %+v", err, in)
	effort.Is(t, len(cookie), 43, "a cookie of characters")
	for _, bad := range []signin.Token{"", "x", cookie + "A", cookie[:42], signin.NewToken(), signin.Token(strings.ToLower(string(cookie)))} {
		effort.Denied(g.service.Session(ctx, bad))(t, ledger.ErrNoSuchSession, fmt.Sprintf("cookie %q", bad))
	}
	for range 2 {
		effort.OK(t, g.service.End(ctx, in.User, in.Session.ID))
		effort.Denied(g.service.Session(ctx, cookie))(t, ledger.ErrNoSuchSession, "after signing out")
	}
}

func TestWrongPasswordsWaitAndSayTheSame(t *testing.T) {
	g := newRig(t)
	_, in := g.user("anna@example.com")
	ctx := context.Background()
	_, gone := g.user("gone@example.com")
	effort.Must(g.book.DisableUser(ctx, gone.User.ID, true))(t)
	var wait *signin.Wait
	for _, email := range []string{"anna@example.com", "nobody@example.com", "gone@example.com"} {
		for try := 1; try <= 6; try++ {
			password := "wrong wrong wrong"
			if email == "gone@example.com" {
				password = good // a disabled user gets the same answer as everybody
			}
			_, err := g.service.SignIn(ctx, uuid.New(), email, password, here)
			effort.ErrorIf(t, try <= 5 && !errors.Is(err, signin.ErrWrong), "%s, try %d: %v", email, try, err)
			effort.ErrorIf(t, try == 6 && !errors.As(err, &wait), "%s, try 6: %v, want a wait", email, err)
		}
	}
	until := time.Until(wait.Until)
	effort.ErrorIf(t, until < 50*time.Second || until > 70*time.Second, "the first wait is %v, want a minute", until)
	_, err := g.service.SignIn(ctx, uuid.New(), "anna@example.com", good, here)
	effort.ErrorIf(t, !errors.As(err, &wait), "the right password while one waits: %v", err)
	elsewhere := here
	elsewhere.Network = "198.51.100.7"
	_, err = g.service.SignIn(ctx, uuid.New(), "anna@example.com", good, elsewhere)
	effort.ErrorIf(t, err != nil, "from another network: %v", err)
	effort.Not(t, in.User.Email, "", "no user")
}

// TestAThirdPasswordAtOnceIsBusy: a third simultaneous password is refused after a wait, which takes no real time in
// a bubble.
func TestAThirdPasswordAtOnceIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.user("anna@example.com")
		free := signin.HoldHasher(g.service)
		effort.Denied(g.service.SignIn(t.Context(), uuid.New(), "anna@example.com", good, here))(t, signin.ErrBusy,
			"while two are tried")
		free()
		effort.Denied(g.service.SignIn(t.Context(), uuid.New(), "anna@example.com", good, here))(t, nil, "afterwards")
	})
}

func TestASessionIsBelievedForFourSeconds(t *testing.T) {
	g := newRig(t)
	cookie, in := g.user("anna@example.com")
	ctx := context.Background()
	ask := func() error { _, err := g.service.Session(ctx, cookie); return err }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			effort.ErrIs(t, ask(), nil)
		})
	}
	all.Wait()
	first := g.book.asked.Load()
	effort.FatalIf(t, first < 1 || first > 20, "%d questions", first)
	if err := g.book.Store.EndSession(ctx, in.User.ID, in.Session.ID); err != nil { // on another node
		t.Fatal(err)
	}
	g.pass(3900 * time.Millisecond)
	if err := ask(); err != nil || g.book.asked.Load() != first {
		t.Errorf("after 3.9 s: %v, %d questions", err, g.book.asked.Load())
	}
	g.pass(200 * time.Millisecond)
	effort.ErrIs(t, ask(), ledger.ErrNoSuchSession, "4.1 s after it ended elsewhere")
}

func TestNobodyIsSignedOutWhileTheLedgerIsAway(t *testing.T) {
	g := newRig(t)
	cookie, _ := g.user("anna@example.com")
	effort.Must(g.service.Session(context.Background(), cookie))(t)
	g.book.away.Store(true)
	g.pass(time.Minute)
	_, err := g.service.Session(context.Background(), cookie)
	effort.ErrorIf(t, err == nil || errors.Is(err, ledger.ErrNoSuchSession), "while the ledger is away: %v", err)
	g.book.away.Store(false)
	effort.Denied(g.service.Session(context.Background(), cookie))(t, nil, "afterwards")
}

func TestUseIsNotedOnceForMany(t *testing.T) {
	g := newRig(t)
	cookie, _ := g.user("anna@example.com")
	for range 5 {
		g.pass(2 * time.Minute)
		effort.Must(g.service.Session(context.Background(), cookie))(t)
	}
	g.service.Stop()
	effort.Is(t, g.book.noted.Load(), 1)
}

func TestAPasswordLinkEndsAllSessions(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	old, _ := g.user("anna@example.com")
	effort.Must(g.service.Session(ctx, old))(t)
	token := g.link(ledger.Link{Purpose: ledger.PasswordLink, Email: "anna@example.com"})
	fresh := effort.Must(g.service.Accept(ctx, signin.Accepting{Link: token, Form: uuid.New(),
		Password: "another good password"}, here))(t)
	effort.Denied(g.service.Session(ctx, old))(t, ledger.ErrNoSuchSession, "the old session")
	effort.Denied(g.service.Session(ctx, fresh))(t, nil, "the new session")
	effort.Denied(g.service.SignIn(ctx, uuid.New(), "anna@example.com", good, here))(t, signin.ErrWrong, "old password")
}

var secret = []byte("12345678901234567890")

func TestCodesAreThoseOfTheStandards(t *testing.T) {
	t.Parallel()
	// RFC 4226, appendix D.
	for i, want := range []string{"755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"} {
		effort.Is(t, signin.TOTPCode(secret, int64(i)), want, fmt.Sprintf("counter %d", i))
	}
	// RFC 6238, appendix B: the last six of its eight digits.
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924",
		2000000000: "279037", 20000000000: "353130"} {
		effort.Is(t, signin.TOTPCode(secret, signin.TOTPStep(time.Unix(at, 0))), want, fmt.Sprintf("at %d", at))
	}
}

func TestACodeWorksOnceAndAboutItsTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_010, 0)
	at := func(periods int) string { return signin.TOTPCode(secret, signin.TOTPStep(now)+int64(periods)) }
	for off, want := range map[int]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		_, ok := signin.BeginTOTP(secret, nil, uuid.New(), at(off), now)
		effort.ErrorIf(t, ok != want, "a code of %d periods off: %v", off, ok)
	}
	s, ok := signin.BeginTOTP(secret, nil, uuid.New(), at(0)[:3]+" "+at(0)[3:], now)
	effort.FatalIf(t, !ok, "the right code is refused")
	for _, used := range []string{at(0), at(-1), "", at(0)[:5], at(0) + "0", "000000"} {
		_, ok := s.Use(used, now)
		effort.ErrorIf(t, ok && used != at(1), "%q is taken after a newer one was used", used)
	}
	next, ok := s.Use(at(1), now)
	effort.ErrorIf(t, !ok, "the next code is refused")
	if _, ok := next.Use(at(1), now); ok {
		t.Error("a code is taken twice")
	}
}

func TestCodesOfOneUseWorkOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_010, 0)
	codes := []string{signin.RecoveryCode([]byte("abcdefghij")), signin.RecoveryCode([]byte("0123456789"))}
	s, ok := signin.BeginTOTP(secret, codes, uuid.New(), signin.TOTPCode(secret, signin.TOTPStep(now)), now)
	effort.FatalIf(t, !ok || len(codes[0]) != 19 || codes[0] == codes[1], "%v %q", ok, codes)
	used, ok := s.Use(strings.ToLower(strings.ReplaceAll(codes[0], "-", " ")), now)
	effort.FatalIf(t, !ok || len(used.Recovery) != 1 || len(s.Recovery) != 2,
		"%v, %d left, %d before", ok, len(used.Recovery), len(s.Recovery))
	if _, ok := used.Use(codes[0], now); ok {
		t.Error("taken twice")
	}
	if _, ok := used.Use(codes[1][:18], now); ok {
		t.Error("a part of one is taken")
	}
	if _, ok := used.Use(codes[1], now); !ok {
		t.Error("another one is refused")
	}
}

func TestWhatAppsRead(t *testing.T) {
	t.Parallel()
	text := signin.TOTPURI("Rollcall", "anna+x@acme.test", secret)
	u, err := url.Parse(text)
	effort.ErrorIf(t, err != nil || u.Scheme != "otpauth" || u.Host != "totp" ||
		u.Path != "/Rollcall:anna+x@acme.test" || u.Query().Get("secret") != "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" ||
		u.Query().Get("issuer") != "Rollcall", "%s: %v", text, err)
	effort.Is(t, signin.SecretText(secret), "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ")
	width, path, err := signin.QRPicture(text)
	effort.ErrorIf(t, err != nil || width < 29 || !strings.HasPrefix(path, "M4 4h7v1h-7z") ||
		strings.Trim(path, "Mhvz0123456789- ") != "", "%d %.40s %v", width, path, err)
	if _, _, err := signin.QRPicture(strings.Repeat("x", 10_000)); err == nil {
		t.Error("a picture of 10,000 bytes")
	}
}

// TestNobodyElseWaitsWhileTheProviderIsAsked: every page reads the origin, so a request that waits for the provider
// must not block the others.
func TestNobodyElseWaitsWhileTheProviderIsAsked(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}, 9), make(chan struct{})
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		arrived <- struct{}{}
		<-answer
		http.Error(w, "away", http.StatusBadGateway)
	}))
	defer server.Close()
	p := signin.NewProvider(signin.ProviderOptions{Issuer: server.URL, ClientID: "rollcall", Redirect: func() string { return "" }})
	p.WaitForEver()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	begin := func() {
		effort.Denied(effort.First(p.Begin(ctx)))(t, signin.ErrAway)
	}
	all.Go(begin)
	<-arrived
	cancel() // the first caller is gone, and the others still need the answer
	for range 8 {
		all.Go(begin)
	}
	effort.Is(t, p.Origin(), "", "an origin that nobody has told")
	close(answer)
	all.Wait()
	effort.Is(t, asked.Load(), 1, "it was asked times")
}

func TestAnIssuerThatNamesItselfOtherwiseIsNone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer":"https://evil.test","authorization_endpoint":"https://evil.test/a","token_endpoint":"https://evil.test/t",` +
			`"jwks_uri":"https://evil.test/k"}`))
	}))
	defer server.Close()
	now := time.Now()
	p := signin.NewProvider(signin.ProviderOptions{Issuer: server.URL, ClientID: "rollcall", Redirect: func() string { return "" },
		Now: func() time.Time { return now }})
	for range 3 {
		to, _, err := p.Begin(t.Context())
		effort.ErrorIf(t, !errors.Is(err, signin.ErrAway) || to != "", "led to %q, %v", to, err)
	}
	effort.Is(t, asked.Load(), 1, "a provider that is none was asked times within a moment")
	now = now.Add(6 * time.Second)
	_, _, _ = p.Begin(t.Context())
	effort.Is(t, asked.Load(), 2, "it was asked times")
}

func TestSecretsThatOthersCanReadAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	effort.Denied(signin.ReadSecret(path))(t, os.ErrNotExist, "none")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{{" x y\n", 0o600, "x y"}, {"x", 0o400, "x"}, {"x", 0o640, ""}, {"x", 0o604, ""}, {"\n", 0o600, ""}} {
		_ = os.Remove(path)
		effort.OK(t, os.WriteFile(path, []byte(c.text), c.mode))
		got, err := signin.ReadSecret(path)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && (!errors.Is(err, signin.ErrSecret) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q with %04o: %q, %v", c.text, c.mode, got, err)
		}
	}
}

// looks waits until a condition is true.
func looks(is func() bool) {
	ticks := time.Tick(time.Millisecond)
	for !is() {
		<-ticks
	}
}

// TestWhoMadeALinkCannotTakeItsSession: the maker of a link knows it, and the pages show the maker the id of the user
// who used it.
func TestWhoMadeALinkCannotTakeItsSession(t *testing.T) {
	g := newRig(t)
	ctx := context.Background()
	token, form := g.link(ledger.Link{Purpose: ledger.InviteLink, Email: "ben@example.com"}), uuid.New()
	accepting := signin.Accepting{Link: token, Form: form, Name: "Ben", Password: good}
	ben := effort.Must(g.service.Session(ctx, effort.Must(g.service.Accept(ctx, accepting, here))(t)))(t)
	for what, a := range map[string]signin.Accepting{
		"the id of the user":      {Link: token, Form: ben.User.ID},
		"that and their password": {Link: token, Form: ben.User.ID, Password: good},
		"the form alone":          {Link: token, Form: form},
		"another password":        {Link: token, Form: form, Password: good + "!"},
	} {
		if cookie, err := g.service.Accept(ctx, a, here); !errors.Is(err, ledger.ErrNoSuchLink) || cookie != "" {
			t.Errorf("with %s: a cookie: %v, %v", what, cookie != "", err)
		}
	}
}

// TestAnInvitationOpensNoAccount: the maker of an invitation has seen its link, so its user must sign in and then
// join.
func TestAnInvitationOpensNoAccount(t *testing.T) {
	g := newRig(t)
	_, anna := g.user("anna@example.com")
	link := g.link(ledger.Link{Purpose: ledger.InviteLink, Email: "Anna@Example.com"})
	for _, password := range []string{good, good + "!", ""} {
		a := signin.Accepting{Link: link, Form: uuid.New(), Name: "Anna", Password: password}
		cookie, err := g.service.Accept(t.Context(), a, here)
		effort.ErrorIf(t, !errors.Is(err, signin.ErrKnown) || cookie != "", "a cookie: %v, %v", cookie != "", err)
	}
	effort.Denied(signin.Join(t.Context(), g.service, anna, link))(t, nil)
}

// TestGuessesAtOnceAreCounted: of sixty simultaneous wrong passwords for one user only five are tried. Of sixty
// simultaneous emails from one network only twenty are tried.
func TestGuessesAtOnceAreCounted(t *testing.T) {
	effort.NotShort(t, "takes a second of a processor")
	for want, email := range map[int64]func() string{
		5:  func() string { return "anna@example.com" },
		20: func() string { return uuid.NewString() + "@example.com" },
	} {
		g := newRig(t)
		g.user("anna@example.com")
		var tried, told atomic.Int64
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				var wait *signin.Wait
				who := email()
				_, err := g.service.SignIn(context.Background(), uuid.New(), who, good+"!", here)
				for ; errors.Is(err, signin.ErrBusy); <-time.After(10 * time.Millisecond) {
					_, err = g.service.SignIn(context.Background(), uuid.New(), who, good+"!", here)
				}
				switch {
				case errors.Is(err, signin.ErrWrong):
					tried.Add(1)
				case errors.As(err, &wait):
					told.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		effort.Is(t, tried.Load(), want)
		effort.Is(t, told.Load(), 60-want)
	}
}

// TestASignInThatBeganBeforeTheChange: a sign-in that began with the old password gives no session after the change.
func TestASignInThatBeganBeforeTheChange(t *testing.T) {
	g := newRig(t)
	_, anna := g.user("anna@example.com")
	ctx := context.Background()
	free := signin.HoldHasher(g.service)
	ended := make(chan error, 1)
	go func() {
		_, err := g.service.SignIn(ctx, uuid.New(), "anna@example.com", good, here)
		ended <- err
	}()
	looks(func() bool { return signin.Waiting(g.service) > 0 })
	kept := effort.Must(signin.HashPassword("another horse that nobody rides"))(t)
	effort.OK(t, g.book.SetPassword(ctx, anna.User.ID, kept, ledger.Hash{}))
	free()
	effort.ErrIs(t, <-ended, signin.ErrWrong)
	effort.Is(t, len(effort.Must(g.book.Sessions(ctx, anna.User.ID, time.Hour))(t)), 0, "sessions")
}

// between is a ledger in which another node does something before or after a user is read.
type between struct {
	ledger.People
	before, after func()
}

func (b between) UserByEmail(ctx context.Context, email string) (ledger.User, error) {
	b.before()
	defer b.after()
	return b.People.UserByEmail(ctx, email)
}

// TestTheSameStepAndCodeAtTwoNodes: both nodes return the same session, whichever of them began it, and count no
// failure.
func TestTheSameStepAndCodeAtTwoNodes(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ctx := context.Background()
	_, anna := g.user("anna@example.com")
	form := uuid.New()
	secret := strings.ReplaceAll(g.service.SetupCodes(anna.User, form).Secret, " ", "")
	key := effort.Must(base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret))(t)
	code := signin.TOTPCode(key, signin.TOTPStep(*g.now.Load()))
	codes := effort.Must(g.service.CodesOn(ctx, anna, form, good, code, here))(t)
	nothing := func() {}
	for i, when := range []string{"before the user is read", "after the user is read"} {
		var wanted *signin.CodeWanted
		if _, err := g.service.SignIn(ctx, uuid.New(), "anna@example.com", good, here); !errors.As(err, &wanted) {
			t.Fatal(err)
		}
		var first signin.Token
		begin := func() {
			var err error
			first, err = g.service.Code(ctx, wanted.Step, codes[i], here)
			effort.ErrorIf(t, err != nil, "%v", err)
		}
		book := between{People: g.book, before: begin, after: nothing}
		if i == 1 {
			book.before, book.after = nothing, begin
		}
		second, err := g.node(book).Code(ctx, wanted.Step, codes[i], here)
		effort.ErrorIf(t, err != nil || second != first, "%s: the same session: %v, %v", when, second == first, err)
	}
}

// TestFewWaitForTheirPasswordToBeTried: if enough requests wait, the next one is refused at once.
func TestFewWaitForTheirPasswordToBeTried(t *testing.T) {
	g := newRig(t)
	free := signin.HoldHasher(g.service)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	try := func() error {
		from := signin.Browser{Network: uuid.NewString()} // each from its own network, or they would wait for each other
		_, err := g.service.SignIn(ctx, uuid.New(), uuid.NewString()+"@example.com", good, from)
		return err
	}
	for range signin.HashWaits {
		all.Go(func() { _ = try() })
	}
	looks(func() bool { return signin.Waiting(g.service) >= signin.HashWaits })
	effort.ErrIs(t, try(), signin.ErrBusy, "one more")
	effort.Is(t, signin.Waiting(g.service), signin.HashWaits)
	cancel()
	free()
	all.Wait()
}

// TestAnAnswerToALongAgoQuestion: a later request does not use the late answer to an old question.
func TestAnAnswerToALongAgoQuestion(t *testing.T) {
	g := newRig(t)
	cookie, in := g.user("anna@example.com")
	ctx := context.Background()
	g.pass(6 * time.Second) // earlier answers are no longer used
	hold := make(chan struct{})
	g.book.hold.Store(&hold)
	before, first := g.book.read.Load(), make(chan error, 1)
	go func() { _, err := g.service.Session(ctx, cookie); first <- err }()
	looks(func() bool { return g.book.read.Load() > before })                       // read, but still held back
	if err := g.book.Store.EndSession(ctx, in.User.ID, in.Session.ID); err != nil { // on another node
		t.Fatal(err)
	}
	g.pass(6 * time.Second)
	second := make(chan error, 1)
	go func() { _, err := g.service.Session(ctx, cookie); second <- err }()
	<-time.After(100 * time.Millisecond) // it joins the first question; asking again would also be right
	g.book.hold.Store(nil)
	close(hold)
	effort.ErrIs(t, <-first, nil, "the first")
	effort.ErrIs(t, <-second, ledger.ErrNoSuchSession, "6 s after it ended elsewhere")
}

func TestCookiesOfNobodyAreNotRemembered(t *testing.T) {
	g := newRig(t)
	for range 100 {
		_, err := g.service.Session(context.Background(), signin.NewToken())
		effort.FatalIf(t, !errors.Is(err, ledger.ErrNoSuchSession), "%v", err)
	}
	effort.Is(t, signin.Ended(g.service), 0, "are remembered")
}
