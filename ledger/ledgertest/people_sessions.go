package ledgertest

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var peopleSessions = []exercise{
	{"a session begins once", 0, beginsSessions},
	{"a session ends by itself", 0, sessionsEnd},
	{"a session that nobody uses", 0, sessionsIdle},
	{"sessions are listed, the one used last first", 0, listsSessions},
	{"a session too many ends the one used least lately", 0, tooManySessions},
	{"sessions are ended", 0, endsSessions},
	{"a new password ends the sessions but one", 0, setsPasswords},
	{"what a session keeps of a browser", 0, agents},
	{"a role is what it is now", 0, rolesOfSessions},
	{"failed sign-ins wait longer and longer", 0, attemptsWait},
	{"rules and subjects that are none", 0, badAttempts},
	{"an invitation makes a user of a provider", 0, acceptsByProvider},
	{"an invitation changes nothing about how a user signs in", 0, invitesTakeNothing},
	{"a user is bound to a provider", 0, bindsProviders},
	{"a user leaves a provider", 0, unbindsProviders},
	{"the invitations of an email", 0, findsInvitations},
	{"codes are asked for, used and ended", 0, asksForCodes},
	{"codes of one use are renewed", 0, renewsCodes},
	{"a session of who signs in otherwise by now", 0, provesAnew},
	{"what is done at once", 0, racePeople},
}

// signs begins a session of a user.
func signs(d *Fixture, user uuid.UUID, life time.Duration) ledger.Session {
	d.T.Helper()
	in := effort.Must(d.BeginSession(d.T.Context(), ledger.NewSession{ID: hash(), User: user, Life: life}))(d.T)
	return in.Session
}

// signed fails the test unless just these sessions of a user hold, in this order.
func signed(d *Fixture, user uuid.UUID, want ...ledger.Hash) {
	d.T.Helper()
	list := effort.Must(d.Sessions(d.T.Context(), user, Hour))(d.T)
	var got []ledger.Hash
	for _, s := range list {
		got = append(got, s.ID)
		effort.Is(d.T, s.User, user, "a session", s)
	}
	effort.Equal(d.T, got, want, len(got), "sessions")
	for _, id := range want {
		effort.Must(d.SessionByID(d.T.Context(), id, Hour))(d.T)
	}
}

// over fails the test unless a session is.
func over(d *Fixture, id ledger.Hash) {
	d.T.Helper()
	denied(d.SessionByID(d.T.Context(), id, Hour))(d, ledger.ErrNoSuchSession)
}

func beginsSessions(d *Fixture) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Viewer)
	n := ledger.NewSession{ID: hash(), User: in.User.ID, Agent: "Safari", Network: "192.0.2.1", Life: 2 * Hour}
	first := effort.Must(d.BeginSession(ctx, n))(d.T)
	want := ledger.Session{ID: n.ID, User: in.User.ID, Created: first.Session.Created, Seen: first.Session.Created,
		Ends: first.Session.Created.Add(2 * Hour), Agent: "Safari", Network: "192.0.2.1"}
	effort.ErrorIf(d.T, first.Session != want || first.User != in.User || len(first.Memberships) != 1 ||
		first.Memberships[0].Role != ledger.Owner, "got %+v, want %+v", first, want)
	n.Agent, n.Life = "Chrome", Hour
	again := effort.Must(d.BeginSession(ctx, n))(d.T)
	effort.Is(d.T, again.Session, want, "again")
	for what, c := range map[string]struct {
		spoil func(n *ledger.NewSession)
		want  error
	}{
		"another's id":     {func(n *ledger.NewSession) { n.User = other.User.ID }, ledger.ErrIllegal},
		"no id":            {func(n *ledger.NewSession) { n.ID = ledger.Hash{} }, ledger.ErrIllegal},
		"no life":          {func(n *ledger.NewSession) { n.ID, n.Life = hash(), 0 }, ledger.ErrIllegal},
		"nobody's":         {func(n *ledger.NewSession) { n.User, n.Life = uuid.New(), 0 }, ledger.ErrNoSuchUser},
		"nobody's at all":  {func(n *ledger.NewSession) { n.User = uuid.Nil }, ledger.ErrNoSuchUser},
		"of negative life": {func(n *ledger.NewSession) { n.ID, n.Life = hash(), -Hour }, ledger.ErrIllegal},
	} {
		bad := n
		c.spoil(&bad)
		denied(d.BeginSession(ctx, bad))(d, c.want, what)
	}
	denied(d.SessionByID(ctx, hash(), Hour))(d, ledger.ErrNoSuchSession)
	d.ok(d.EndSession(ctx, in.User.ID, n.ID))
	_, err := d.BeginSession(ctx, n) // what was ended does not come back
	d.refused(err, ledger.ErrIllegal)
	over(d, n.ID)
}

func sessionsEnd(d *Fixture) {
	ctx := d.T.Context()
	in := d.Joins("anna@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	short := ledger.NewSession{ID: hash(), User: in.User.ID, Life: 200 * time.Millisecond}
	effort.Must(d.BeginSession(ctx, short))(d.T)
	poll := time.Tick(5 * time.Millisecond)
	for begun := time.Now(); ; <-poll {
		now := d.tunes().Now
		got, err := d.SessionByID(ctx, short.ID, Hour)
		after := d.tunes().Now
		effort.FatalIf(d.T, err == nil && !now.Before(got.Session.Ends), "holds at %v, until %v", now, got.Session.Ends)
		if err != nil {
			d.refused(err, ledger.ErrNoSuchSession)
			if list, err := d.Sessions(ctx, in.User.ID, Hour); err != nil || len(list) != 1 {
				d.T.Errorf("sessions %+v at %v, %v", list, after, err)
			}
			break
		}
		effort.FatalIf(d.T, time.Since(begun) > time.Minute, "the ledger's clock stands")
	}
	d.ok(d.UseSessions(ctx, []ledger.Hash{short.ID}))
	over(d, short.ID)
	denied(d.BeginSession(ctx, short))(d, ledger.ErrIllegal)
	signed(d, in.User.ID, in.Session.ID)
}

func sessionsIdle(d *Fixture) {
	ctx := d.T.Context()
	in := d.Joins("anna@acme.test", ledger.Owner)
	effort.Must(d.SessionByID(ctx, in.Session.ID, Hour))(d.T)
	d.nextMillisecond(in.Session.Seen.Add(4 * time.Millisecond))
	denied(d.SessionByID(ctx, in.Session.ID, 4*time.Millisecond))(d, ledger.ErrNoSuchSession)
	effort.Is(d.T, len(effort.Must(d.Sessions(ctx, in.User.ID, 4*time.Millisecond))(d.T)), 0, "sessions")
	d.ok(d.UseSessions(ctx, nil))
	d.ok(d.UseSessions(ctx, []ledger.Hash{hash(), in.Session.ID, in.Session.ID}))
	got := effort.Must(d.SessionByID(ctx, in.Session.ID, Hour))(d.T)
	effort.ErrorIf(d.T, !got.Session.Seen.After(in.Session.Seen.Add(4*time.Millisecond)) ||
		got.Session.Ends != in.Session.Ends || got.Memberships[0].Seen != got.Session.Seen, "used: %+v", got)
	list := effort.Must(d.Members(ctx, d.Workspace))(d.T)
	effort.ErrorIf(d.T, len(list) != 1 || list[0].Seen != got.Session.Seen,
		"members: %+v, want seen at %v", list, got.Session.Seen)
	d.ok(d.EndSession(ctx, in.User.ID, in.Session.ID))
	d.nextMillisecond(got.Session.Seen)
	d.ok(d.UseSessions(ctx, []ledger.Hash{in.Session.ID}))
	over(d, in.Session.ID)
	effort.Is(d.T, effort.Must(d.Members(ctx, d.Workspace))(d.T)[0].Seen, got.Session.Seen,
		"a session that is over was used")
	many := make([]ledger.Hash, ledger.BatchMax+1)
	for i := range many {
		many[i] = hash()
	}
	d.refused(d.UseSessions(ctx, many), ledger.ErrIllegal)
	d.ok(d.UseSessions(ctx, many[1:]))
}

func listsSessions(d *Fixture) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	second := signs(d, in.User.ID, Hour)
	d.nextMillisecond(second.Seen)
	third := signs(d, in.User.ID, Hour)
	d.Joins("ben@acme.test", ledger.Owner)
	signed(d, in.User.ID, third.ID, second.ID, in.Session.ID)
	d.nextMillisecond(third.Seen)
	d.ok(d.UseSessions(d.T.Context(), []ledger.Hash{second.ID}))
	signed(d, in.User.ID, second.ID, third.ID, in.Session.ID)
	signed(d, uuid.New())
}

func tooManySessions(d *Fixture) {
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	var ids []ledger.Hash
	for range ledger.SessionsMax - 1 {
		ids = append(ids, signs(d, in.User.ID, Hour).ID)
	}
	d.nextMillisecond(d.tunes().Now)
	d.ok(d.UseSessions(d.T.Context(), slices.Concat(ids[1:], []ledger.Hash{in.Session.ID})))
	last := ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}
	for range 2 { // again it ends none
		effort.Must(d.BeginSession(d.T.Context(), last))(d.T)
		over(d, ids[0])
		list := effort.Must(d.Sessions(d.T.Context(), in.User.ID, Hour))(d.T)
		effort.Is(d.T, len(list), ledger.SessionsMax, "sessions")
	}
	for _, id := range append(ids[1:], in.Session.ID, last.ID) {
		effort.Must(d.SessionByID(d.T.Context(), id, Hour))(d.T)
	}
	signed(d, other.User.ID, other.Session.ID)
}

func endsSessions(d *Fixture) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	second, third := signs(d, in.User.ID, Hour), signs(d, in.User.ID, Hour)
	for range 2 {
		d.ok(d.EndSession(ctx, other.User.ID, in.Session.ID)) // not theirs
		d.ok(d.EndSession(ctx, in.User.ID, hash()))
		d.ok(d.EndSession(ctx, in.User.ID, second.ID))
	}
	over(d, second.ID)
	for _, want := range []int{1, 0} {
		effort.Is(d.T, effort.Must(d.EndSessions(ctx, in.User.ID, third.ID))(d.T), want, "ended")
		signed(d, in.User.ID, third.ID)
	}
	signs(d, in.User.ID, Hour)
	for _, want := range []int{2, 0} {
		effort.Is(d.T, effort.Must(d.EndSessions(ctx, in.User.ID, ledger.Hash{}))(d.T), want, "ended")
		signed(d, in.User.ID)
	}
	signed(d, other.User.ID, other.Session.ID)
	denied(d.EndSessions(ctx, uuid.New(), ledger.Hash{}))(d, ledger.ErrNoSuchUser)
}

func setsPasswords(d *Fixture) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	second := signs(d, in.User.ID, Hour)
	longest := strings.Repeat("p", ledger.OperatorTextMax)
	for range 2 {
		d.ok(d.SetPassword(ctx, in.User.ID, longest, second.ID))
		signed(d, in.User.ID, second.ID)
	}
	for _, bad := range []string{"", longest + "p", "a\x00", "a\xe2"} {
		d.refused(d.SetPassword(ctx, in.User.ID, bad, ledger.Hash{}), ledger.ErrIllegal)
	}
	d.refused(d.SetPassword(ctx, uuid.New(), "", ledger.Hash{}), ledger.ErrNoSuchUser)
	want := in.User
	want.Password = longest
	effort.Is(d.T, effort.Must(d.UserByEmail(ctx, "anna@acme.test"))(d.T), want)
	signed(d, in.User.ID, second.ID)
	d.ok(d.SetPassword(ctx, in.User.ID, "$argon2id$2", ledger.Hash{}))
	signed(d, in.User.ID)
	signed(d, other.User.ID, other.Session.ID)
}

func agents(d *Fixture) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	longest := strings.Repeat("é", ledger.AgentMax/2)
	for given, want := range map[string]string{"": "", longest: longest, longest + "x": longest, "x" + longest: "x" + longest[:ledger.AgentMax-2],
		"a\x00b\xe2\x82c\xff": "abc"} {
		got := effort.Must(d.BeginSession(d.T.Context(), ledger.NewSession{ID: hash(), User: in.User.ID, Agent: given,
			Network: given, Life: Hour}))(d.T)
		effort.ErrorIf(d.T, got.Session.Agent != want || got.Session.Network != want,
			"%q: got %q and %q, want %q", given, got.Session.Agent, got.Session.Network, want)
	}
}

func rolesOfSessions(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("anna@acme.test", ledger.Owner)
	in := d.Joins("ben@acme.test", ledger.Owner)
	for _, role := range []ledger.Role{ledger.Viewer, ledger.Member, ""} {
		d.ok(d.SetRole(ctx, d.Workspace, in.User.ID, role))
		got := effort.Must(d.SessionByID(ctx, in.Session.ID, Hour))(d.T)
		effort.ErrorIf(d.T, role == "" && len(got.Memberships) != 0 || role != "" &&
			(len(got.Memberships) != 1 || got.Memberships[0].Role != role), "as %q: %+v", role, got.Memberships)
	}
}

// slow is a rule by which a test has time.
var slow = ledger.AttemptRule{Free: 3, Window: Hour, First: time.Minute, Most: 5 * time.Minute}

// waits counts failures, and fails the test unless each subject then waits for the given time.
func waits(d *Fixture, r ledger.AttemptRule, subjects []ledger.Hash, want ...time.Duration) {
	d.T.Helper()
	before := d.tunes().Now
	until := effort.Must(d.FailedSignIn(d.T.Context(), subjects, r))(d.T)
	after := d.tunes().Now
	asked := effort.Must(d.SignInWaits(d.T.Context(), subjects))(d.T)
	effort.FatalIf(d.T, !slices.Equal(asked, until) || len(until) != len(want), "counted: %v, asked: %v", until, asked)
	for i, w := range want {
		if w == 0 && !until[i].IsZero() || w > 0 && (until[i].Before(before.Add(w)) || until[i].After(after.Add(w))) {
			d.T.Errorf("subject %d between %v and %v: until %v, want %v more", i, before, after, until[i], w)
		}
	}
}

func attemptsWait(d *Fixture) {
	a, b, c := hash(), hash(), hash()
	waits(d, slow, []ledger.Hash{a}, 0)
	waits(d, slow, []ledger.Hash{a, b}, 0, 0)
	waits(d, slow, []ledger.Hash{b, a, b}, 0, time.Minute, 0)
	waits(d, slow, []ledger.Hash{b, a}, time.Minute, 2*time.Minute)
	waits(d, slow, []ledger.Hash{a}, 4*time.Minute)
	waits(d, slow, []ledger.Hash{a}, 5*time.Minute)
	waits(d, slow, []ledger.Hash{c, a}, 0, 5*time.Minute)
	effort.Equal(d.T, effort.Must(d.SignInWaits(d.T.Context(), []ledger.Hash{hash(), hash()}))(d.T), make([]time.Time, 2),
		"of strangers")
	for range 2 {
		d.ok(d.ForgetFailures(d.T.Context(), a))
	}
	d.ok(d.ForgetFailures(d.T.Context(), hash()))
	asked := effort.Must(d.SignInWaits(d.T.Context(), []ledger.Hash{a, b}))(d.T)
	effort.ErrorIf(d.T, !asked[0].IsZero() || asked[1].IsZero(), "after one was forgotten: %v", asked)
	waits(d, slow, []ledger.Hash{a}, 0)
	minute := ledger.AttemptRule{Free: 1, Window: Hour, First: time.Minute, Most: time.Minute}
	waits(d, minute, []ledger.Hash{hash()}, time.Minute)
}

func badAttempts(d *Fixture) {
	ctx := d.T.Context()
	for what, spoil := range map[string]func(r *ledger.AttemptRule){
		"none free":    func(r *ledger.AttemptRule) { r.Free = 0 },
		"no window":    func(r *ledger.AttemptRule) { r.Window = 0 },
		"no wait":      func(r *ledger.AttemptRule) { r.First = 0 },
		"less at last": func(r *ledger.AttemptRule) { r.Most = r.First - 1 },
	} {
		bad := slow
		spoil(&bad)
		denied(d.FailedSignIn(ctx, []ledger.Hash{hash()}, bad))(d, ledger.ErrIllegal, what)
	}
	many := make([]ledger.Hash, ledger.BatchMax+1)
	for i := range many {
		many[i] = hash()
	}
	denied(d.FailedSignIn(ctx, many, slow))(d, ledger.ErrIllegal)
	denied(d.SignInWaits(ctx, many))(d, ledger.ErrIllegal)
	effort.Is(d.T, len(effort.Must(d.SignInWaits(ctx, many[1:]))(d.T)), ledger.BatchMax, "waits")
	effort.Is(d.T, len(effort.Must(d.FailedSignIn(ctx, nil, slow))(d.T)), 0, "of nobody")
}

// byProvider accepts a link with a provider's identity instead of a password.
func byProvider(l ledger.Link, subject string) ledger.Accept {
	a := acceptance(l)
	a.Password, a.OIDC = "", ledger.Identity("https://login.test", subject)
	return a
}

func acceptsByProvider(d *Fixture) {
	ctx := d.T.Context()
	subject := uuid.NewString()
	a := byProvider(d.links(d.invitation("Anna@acme.test", ledger.Member)), subject)
	for range 2 {
		in := effort.Must(d.AcceptLink(ctx, a))(d.T)
		effort.ErrorIf(d.T, in.User.OIDC != a.OIDC || in.User.Password != "" || in.User.TOTP != "" ||
			in.User.ID != a.User || len(in.Memberships) != 1, "got %+v", in)
	}
	for _, read := range []func() (ledger.User, error){
		func() (ledger.User, error) { return d.UserByOIDC(ctx, a.OIDC) },
		func() (ledger.User, error) { return d.UserByEmail(ctx, "anna@acme.test") },
	} {
		u, err := read()
		effort.ErrorIf(d.T, err != nil || u.ID != a.User || u.OIDC != a.OIDC, "found %+v, %v", u, err)
	}
	for _, other := range []string{"", "https://login.test", "https://login.test ", a.OIDC + "1", "http" + a.OIDC[5:], strings.ToUpper(a.OIDC)} {
		denied(d.UserByOIDC(ctx, other))(d, ledger.ErrNoSuchUser)
	}
	l := d.links(d.invitation("ben@acme.test", ledger.Member))
	denied(d.AcceptLink(ctx, byProvider(l, subject)))(d, ledger.ErrIdentityTaken)
	for _, bad := range []string{"x", "https://login.test ", " x", "https://login.test a\x00", "https://login.test " + strings.Repeat("x", ledger.IdentityMax)} {
		b := byProvider(l, subject)
		b.OIDC = bad
		denied(d.AcceptLink(ctx, b))(d, ledger.ErrIllegal)
	}
	_, err := d.UserByEmail(ctx, "ben@acme.test")
	effort.ErrorIf(d.T, err == nil, "a refused acceptance made a user")
}

func invitesTakeNothing(d *Fixture) {
	ctx := d.T.Context()
	without := effort.Must(d.AcceptLink(ctx, byProvider(d.links(d.invitation("anna@acme.test", ledger.Member)),
		uuid.NewString())))(d.T)
	with := d.Joins("ben@acme.test", ledger.Member)
	for _, in := range []ledger.SignedIn{without, with} {
		l := d.links(d.invitation(in.User.Email, ledger.Owner))
		_, known, err := d.LinkByID(ctx, l.ID)
		effort.ErrorIf(d.T, err != nil || !known, "%s: known %v, %v", in.User.Email, known, err)
		for name, a := range map[string]ledger.Accept{"a password": acceptance(l), "another identity": byProvider(l, uuid.NewString())} {
			denied(d.AcceptLink(ctx, a))(d, ledger.ErrIllegal, in.User.Email+" with "+name)
		}
		effort.Is(d.T, effort.Must(d.UserByEmail(ctx, in.User.Email))(d.T), in.User, "changed")
		a := withoutPassword(l)
		a.OIDC = in.User.OIDC
		got := effort.Must(d.AcceptLink(ctx, a))(d.T)
		effort.ErrorIf(d.T, got.User != in.User || got.Memberships[0].Role != ledger.Owner, "got %+v", got)
	}
	// A link of an operator's for a password sets one, whoever the user is.
	a := acceptance(d.links(passwordLink("anna@acme.test")))
	got := effort.Must(d.AcceptLink(ctx, a))(d.T)
	effort.ErrorIf(d.T, got.User.Password != a.Password || got.User.OIDC != without.User.OIDC, "got %+v", got.User)
}

func bindsProviders(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	anna, ben := d.Joins("Anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	first := ledger.Identity("https://login.test", uuid.NewString())
	for _, identity := range []string{ledger.Identity("https://old.test", uuid.NewString()), first} {
		for range 2 {
			d.ok(d.BindOIDC(ctx, anna.User.ID, identity))
			if u, err := d.UserByOIDC(ctx, identity); err != nil || u.ID != anna.User.ID || u.Password != anna.User.Password {
				d.T.Errorf("found %+v, %v", u, err)
			}
		}
	}
	d.refused(d.BindOIDC(ctx, ben.User.ID, first), ledger.ErrIdentityTaken)
	for _, none := range []string{"", "x"} {
		d.refused(d.BindOIDC(ctx, ben.User.ID, none), ledger.ErrIllegal)
	}
	d.refused(d.BindOIDC(ctx, uuid.New(), first), ledger.ErrNoSuchUser)
	effort.Must(d.SessionByID(ctx, anna.Session.ID, Hour))(d.T)
	d.wrote("user provider on", ledger.LogLine{Subject: "Anna@acme.test"}, ledger.LogLine{Subject: "Anna@acme.test"})
}

func unbindsProviders(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	anna, ben := d.Joins("Anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	identity := ledger.Identity("https://login.test", uuid.NewString())
	second := effort.Must(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: anna.User.ID, Life: Hour}))(d.T)
	d.ok(d.UnbindOIDC(ctx, anna.User.ID, second.Session.ID)) // a user without a provider keeps their sessions
	d.ok(d.BindOIDC(ctx, anna.User.ID, identity))
	effort.Must(d.SessionByID(ctx, anna.Session.ID, Hour))(d.T)
	for range 2 {
		d.ok(d.UnbindOIDC(ctx, anna.User.ID, second.Session.ID))
		u, err := d.UserByEmail(ctx, "anna@acme.test")
		effort.ErrorIf(d.T, err != nil || u.OIDC != "" || u.Password != anna.User.Password, "got %+v, %v", u, err)
	}
	denied(d.UserByOIDC(ctx, identity))(d, ledger.ErrNoSuchUser)
	denied(d.SessionByID(ctx, anna.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	for _, s := range []ledger.SignedIn{second, ben} {
		effort.Must(d.SessionByID(ctx, s.Session.ID, Hour))(d.T)
	}
	d.ok(d.BindOIDC(ctx, ben.User.ID, identity)) // it is free again
	d.ok(d.UnbindOIDC(ctx, ben.User.ID, ledger.Hash{}))
	denied(d.SessionByID(ctx, ben.Session.ID, Hour))(d, ledger.ErrNoSuchSession)

	// A user without a password could no longer sign in.
	without := effort.Must(d.AcceptLink(ctx, byProvider(d.links(d.invitation("eve@acme.test", ledger.Member)),
		uuid.NewString())))(d.T)
	d.refused(d.UnbindOIDC(ctx, without.User.ID, ledger.Hash{}), ledger.ErrIllegal)
	effort.Is(d.T, effort.Must(d.SessionByID(ctx, without.Session.ID, Hour))(d.T).User, without.User, "a refusal changed")
	d.refused(d.UnbindOIDC(ctx, uuid.New(), ledger.Hash{}), ledger.ErrNoSuchUser)
	d.wrote("user provider off", ledger.LogLine{Subject: "ben@acme.test"}, ledger.LogLine{Subject: "Anna@acme.test"})
}

func findsInvitations(d *Fixture) {
	ctx := d.T.Context()
	elsewhere := d.other(d.T, 0)
	email := uuid.NewString() + "@acme.test"
	first := d.links(d.invitation(email, ledger.Viewer))
	d.nextMillisecond(first.Created)
	second := elsewhere.links(elsewhere.invitation(strings.ToUpper(email), ledger.Owner))
	third := d.other(d.T, 0)
	ended := third.links(third.invitation(email, ledger.Owner))
	d.ok(third.EndLink(ctx, third.Workspace, ended.ID))
	d.links(d.invitation("not"+email, ledger.Owner))
	found := func(want ...ledger.Link) {
		d.T.Helper()
		got, err := d.Invitations(ctx, email)
		effort.FatalIf(d.T, err != nil || len(got) != len(want), "got %+v, %v, want %+v", got, err, want)
		for i := range want {
			effort.Is(d.T, got[i], want[i])
		}
	}
	found(second, first)
	a, b := byProvider(second, uuid.NewString()), byProvider(first, "")
	b.User, b.OIDC, b.Session = a.User, a.OIDC, a.Session
	for _, accept := range []ledger.Accept{a, b} { // both with one session
		effort.Must(d.AcceptLink(ctx, accept))(d.T)
	}
	effort.Is(d.T, len(effort.Must(d.SessionByID(ctx, a.Session.ID, Hour))(d.T).Memberships), 2)
	found()
	d.links(passwordLink(email))
	found()
	effort.Is(d.T, len(effort.Must(d.Invitations(ctx, "no email"))(d.T)), 0)
}

func asksForCodes(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	id := in.User.ID
	second := effort.Must(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: id, Life: Hour}))(d.T)
	state := func(want string) {
		d.T.Helper()
		if u, err := d.UserByEmail(ctx, "anna@acme.test"); err != nil || u.TOTP != want || u.Password != in.User.Password {
			d.T.Errorf("got %+v, %v, want state %q", u, err, want)
		}
	}
	d.refused(d.UseTOTP(ctx, id, "", "x"), ledger.ErrChanged)
	longest := strings.Repeat("s", ledger.OperatorTextMax)
	d.refused(d.SetTOTP(ctx, id, longest+"s", ledger.Hash{}), ledger.ErrIllegal)
	for range 2 {
		d.ok(d.SetTOTP(ctx, id, longest, second.Session.ID))
		state(longest)
	}
	denied(d.SessionByID(ctx, in.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	for _, s := range []ledger.SignedIn{second, other} {
		effort.Must(d.SessionByID(ctx, s.Session.ID, Hour))(d.T)
	}
	d.refused(d.SetTOTP(ctx, id, "another", ledger.Hash{}), ledger.ErrChanged)
	for range 2 {
		d.ok(d.UseTOTP(ctx, id, longest, "second"))
		state("second")
	}
	for _, c := range [][2]string{{longest, "third"}, {"second", ""}, {"", "third"}} {
		d.refused(d.UseTOTP(ctx, id, c[0], c[1]), ledger.ErrChanged)
	}
	d.refused(d.UseTOTP(ctx, id, "second", longest+"s"), ledger.ErrIllegal)
	state("second")
	effort.Is(d.T, effort.Must(d.SessionByID(ctx, second.Session.ID, Hour))(d.T).User.TOTP, "second",
		"a used code ends a session")
	begins := ledger.NewSession{ID: hash(), User: id, Life: Hour, TOTPWas: "first", TOTP: "third"}
	denied(d.BeginSession(ctx, begins))(d, ledger.ErrChanged)
	state("second")
	begins.TOTPWas = "second"
	for range 2 { // the second time another node wants the same session by the same code
		effort.Must(d.BeginSession(ctx, begins))(d.T)
		state("third")
		begins.TOTP = "not kept"
	}
	for range 2 {
		d.ok(d.SetTOTP(ctx, id, "", ledger.Hash{}))
		state("")
	}
	denied(d.SessionByID(ctx, second.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	d.refused(d.SetTOTP(ctx, uuid.New(), "x", ledger.Hash{}), ledger.ErrNoSuchUser)
	d.refused(d.UseTOTP(ctx, uuid.New(), "x", "y"), ledger.ErrNoSuchUser)
	d.wrote("user codes on", ledger.LogLine{Subject: "anna@acme.test"})
	d.wrote("user codes off", ledger.LogLine{Subject: "anna@acme.test"})
}

func renewsCodes(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in := d.Joins("anna@acme.test", ledger.Owner)
	id := in.User.ID
	d.refused(d.RenewTOTP(ctx, id, "", "x"), ledger.ErrChanged)
	d.ok(d.SetTOTP(ctx, id, "first", in.Session.ID))
	d.ok(d.UseTOTP(ctx, id, "first", "second"))
	for range 2 {
		d.ok(d.RenewTOTP(ctx, id, "second", "third"))
	}
	for _, c := range [][2]string{{"first", "fourth"}, {"second", "fourth"}, {"third", ""}, {"", "fourth"}} {
		d.refused(d.RenewTOTP(ctx, id, c[0], c[1]), ledger.ErrChanged)
	}
	d.refused(d.RenewTOTP(ctx, id, "third", strings.Repeat("s", ledger.OperatorTextMax+1)), ledger.ErrIllegal)
	d.refused(d.RenewTOTP(ctx, uuid.New(), "third", "fourth"), ledger.ErrNoSuchUser)
	effort.Is(d.T, effort.Must(d.SessionByID(ctx, in.Session.ID, Hour))(d.T).User.TOTP, "third",
		"after the codes were renewed")
	d.wrote("user codes renewed", ledger.LogLine{Subject: "anna@acme.test"})
}

// provesAnew: a proof from before the user changed how they sign in begins no session.
func provesAnew(d *Fixture) {
	ctx := d.T.Context()
	anna := d.Joins("anna@acme.test", ledger.Owner).User
	for what, change := range map[string]func() error{
		"password": func() error { return d.SetPassword(ctx, anna.ID, "$argon2id$"+uuid.NewString(), ledger.Hash{}) },
		"codes":    func() error { return d.SetTOTP(ctx, anna.ID, "on", ledger.Hash{}) },
		"no codes": func() error { return d.SetTOTP(ctx, anna.ID, "", ledger.Hash{}) },
		"provider": func() error { return d.BindOIDC(ctx, anna.ID, ledger.Identity("https://login.test", uuid.NewString())) },
	} {
		if what == "no codes" {
			_ = d.SetTOTP(ctx, anna.ID, "on", ledger.Hash{})
		} else {
			_ = d.SetTOTP(ctx, anna.ID, "", ledger.Hash{})
		}
		was := effort.Must(d.UserByEmail(ctx, anna.Email))(d.T)
		n := ledger.NewSession{ID: hash(), User: anna.ID, Life: Hour, Proved: was.Factors()}
		effort.Must(d.BeginSession(ctx, n))(d.T)
		d.ok(change())
		n.ID = hash()
		effort.Denied(d.BeginSession(ctx, n))(d.T, ledger.ErrChanged, what)
		a := ledger.Accept{Link: d.links(d.invitation(anna.Email, ledger.Owner)).ID, Session: n}
		effort.Denied(d.AcceptLink(ctx, a))(d.T, ledger.ErrChanged, what, "with a link")
		n.Proved = ledger.Hash{}
		effort.Must(d.BeginSession(ctx, n))(d.T)
	}
}

// peopleRace is a call that is made by many at once.
type peopleRace struct {
	name  string
	loses error // the error of late ones; nil: there are none
	wins  int
	begin func(d *Fixture, in ledger.SignedIn) func(i int) error
	after func(d *Fixture, in ledger.SignedIn) bool
}

const racers = 8

// peopleRaces were bugs once.
var peopleRaces = []peopleRace{
	{"of owners who demote each other one is left", ledger.ErrLastOwner, 1, func(d *Fixture, in ledger.SignedIn) func(i int) error {
		two := []uuid.UUID{in.User.ID, d.Joins("ben@acme.test", ledger.Owner).User.ID}
		return func(i int) error {
			if i > 1 {
				return ledger.ErrLastOwner // two are enough
			}
			return d.SetRole(d.T.Context(), d.Workspace, two[i], ledger.Member)
		}
	}, func(d *Fixture, _ ledger.SignedIn) bool {
		list, err := d.Members(d.T.Context(), d.Workspace)
		return err == nil && len(list) == 2 && (list[0].Role == ledger.Owner) != (list[1].Role == ledger.Owner)
	}},
	{"a link is accepted once", ledger.ErrNoSuchLink, 1, func(d *Fixture, _ ledger.SignedIn) func(i int) error {
		l := d.links(d.invitation("cleo@acme.test", ledger.Owner))
		return func(int) error { _, err := d.AcceptLink(d.T.Context(), acceptance(l)); return err }
	}, func(d *Fixture, _ ledger.SignedIn) bool {
		list, err := d.Members(d.T.Context(), d.Workspace)
		return err == nil && len(list) == 2
	}},
	{"a code is used once", ledger.ErrChanged, 1, func(d *Fixture, in ledger.SignedIn) func(i int) error {
		d.ok(d.SetTOTP(d.T.Context(), in.User.ID, "first", in.Session.ID))
		return func(int) error { return d.UseTOTP(d.T.Context(), in.User.ID, "first", uuid.NewString()) }
	}, func(d *Fixture, in ledger.SignedIn) bool {
		u, err := d.UserByEmail(d.T.Context(), in.User.Email)
		return err == nil && u.TOTP != "first"
	}},
	{"a session begins once", nil, racers, func(d *Fixture, in ledger.SignedIn) func(i int) error {
		n := ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}
		return func(int) error { _, err := d.BeginSession(d.T.Context(), n); return err }
	}, func(d *Fixture, in ledger.SignedIn) bool {
		list, err := d.Sessions(d.T.Context(), in.User.ID, Hour)
		return err == nil && len(list) == 2
	}},
	{"each failed sign-in counts", nil, racers, func(d *Fixture, in ledger.SignedIn) func(i int) error {
		a, b := ledger.Hash(in.Session.ID), in.User.Factors()
		return func(i int) error {
			_, err := d.FailedSignIn(d.T.Context(), [][]ledger.Hash{{a, b}, {b, a}}[i%2], oneMore)
			return err
		}
	}, func(d *Fixture, in ledger.SignedIn) bool {
		waits(d, oneMore, []ledger.Hash{in.Session.ID, in.User.Factors()}, time.Minute, time.Minute)
		return true
	}},
}

// oneMore refuses after one failure more than the number of racers.
var oneMore = ledger.AttemptRule{Free: racers + 1, Window: Hour, First: time.Minute, Most: time.Minute}

func racePeople(d *Fixture) {
	for _, r := range peopleRaces {
		desk := d.other(d.T, 0)
		in := desk.Joins(uuid.NewString()+"@acme.test", ledger.Owner)
		call := r.begin(desk, in)
		var won atomic.Int64
		racing(racers, func(i int) {
			switch err := call(i); {
			case err == nil:
				won.Add(1)
			case r.loses == nil || !errors.Is(err, r.loses):
				d.T.Errorf("%s: %v", r.name, err)
			}
		})
		n := won.Load()
		effort.ErrorIf(d.T, n != int64(r.wins) || !r.after(desk, in), "%s: %d won, want %d", r.name, n, r.wins)
	}
}
