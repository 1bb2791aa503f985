package signin_test

import (
	"context"
	"encoding/base32"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// looks looks until something is so.
func looks(is func() bool) {
	ticks := time.Tick(time.Millisecond)
	for !is() {
		<-ticks
	}
}

// TestWhoMadeALinkCannotTakeItsSession: they have the link, and the pages show them the id of who came with it.
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

// TestAnInvitationOpensNoAccount: whoever made it has seen its link. Its user signs in and joins.
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

// TestGuessesAtOnceAreCounted: of sixty wrong passwords of one user that come at the same time five are tried, and of
// sixty emails that one network tries twenty.
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

// TestASignInThatBeganBeforeTheChange of a password begins no session after it.
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

// between is a book in which another node does something before or after a user is read.
type between struct {
	ledger.People
	before, after func()
}

func (b between) UserByEmail(ctx context.Context, email string) (ledger.User, error) {
	b.before()
	defer b.after()
	return b.People.UserByEmail(ctx, email)
}

// TestTheSameStepAndCodeAtTwoNodes is one session, whenever the other node has begun it, and no failure.
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

// TestFewWaitForTheirPasswordToBeTried: the next is told at once that too many are tried.
func TestFewWaitForTheirPasswordToBeTried(t *testing.T) {
	g := newRig(t)
	free := signin.HoldHasher(g.service)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	try := func() error {
		from := signin.Browser{Network: uuid.NewString()} // one network would wait for its own turn
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

// TestAnAnswerToALongAgoQuestion is no answer to who asks later.
func TestAnAnswerToALongAgoQuestion(t *testing.T) {
	g := newRig(t)
	cookie, in := g.user("anna@example.com")
	ctx := context.Background()
	g.pass(6 * time.Second) // what was read before is no longer used
	hold := make(chan struct{})
	g.book.hold.Store(&hold)
	before, first := g.book.read.Load(), make(chan error, 1)
	go func() { _, err := g.service.Session(ctx, cookie); first <- err }()
	looks(func() bool { return g.book.read.Load() > before })                       // the ledger has answered, and the answer is on its way
	if err := g.book.Store.EndSession(ctx, in.User.ID, in.Session.ID); err != nil { // on another node
		t.Fatal(err)
	}
	g.pass(6 * time.Second)
	second := make(chan error, 1)
	go func() { _, err := g.service.Session(ctx, cookie); second <- err }()
	<-time.After(100 * time.Millisecond) // it joins the first; if it asks by itself that is right too
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
