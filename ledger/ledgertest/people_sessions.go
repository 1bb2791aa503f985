package ledgertest

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

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
	{"failed sign-ins are forgotten", 0, attemptsForgotten},
	{"rules and subjects that are none", 0, badAttempts},
	{"failed sign-ins counted by 8 at once", 0, raceAttempts},
	{"one session begun by 8 at once", 0, raceSessions},
}

// signs begins a session of a user.
func (d *Desk) signs(user uuid.UUID, life time.Duration) ledger.Session {
	d.T.Helper()
	in, err := d.BeginSession(d.T.Context(), ledger.NewSession{ID: hash(), User: user, Life: life})
	d.ok(err)
	return in.Session
}

// signed fails the test unless just these sessions of a user hold, in this order.
func (d *Desk) signed(user uuid.UUID, want ...ledger.Hash) {
	d.T.Helper()
	list, err := d.Sessions(d.T.Context(), user, Hour)
	d.ok(err)
	var got []ledger.Hash
	for _, s := range list {
		got = append(got, s.ID)
		if s.User != user {
			d.T.Errorf("a session of %s: %+v", s.User, s)
		}
	}
	if !slices.Equal(got, want) {
		d.T.Errorf("%d sessions: got %x, want %x", len(got), got, want)
	}
	for _, id := range want {
		_, err := d.SessionByID(d.T.Context(), id, Hour)
		d.ok(err)
	}
}

// over fails the test unless a session is.
func (d *Desk) over(id ledger.Hash) {
	d.T.Helper()
	_, err := d.SessionByID(d.T.Context(), id, Hour)
	d.refused(err, ledger.ErrNoSuchSession)
}

func beginsSessions(d *Desk) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Viewer)
	n := ledger.NewSession{ID: hash(), User: in.User.ID, Agent: "Safari", Network: "192.0.2.1", Life: 2 * Hour}
	first, err := d.BeginSession(ctx, n)
	d.ok(err)
	want := ledger.Session{ID: n.ID, User: in.User.ID, Created: first.Session.Created, Seen: first.Session.Created,
		Ends: first.Session.Created.Add(2 * Hour), Agent: "Safari", Network: "192.0.2.1"}
	if first.Session != want || first.User != in.User || len(first.Memberships) != 1 || first.Memberships[0].Role != ledger.Owner {
		d.T.Errorf("got %+v, want %+v", first, want)
	}
	n.Agent, n.Life = "Chrome", Hour
	again, err := d.BeginSession(ctx, n)
	d.ok(err)
	if again.Session != want {
		d.T.Errorf("again: got %+v, want %+v", again.Session, want)
	}
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
		if _, err := d.BeginSession(ctx, bad); err == nil {
			d.T.Errorf("%s: accepted", what)
		} else {
			d.refused(err, c.want)
		}
	}
	_, err = d.SessionByID(ctx, hash(), Hour)
	d.refused(err, ledger.ErrNoSuchSession)
	d.ok(d.EndSession(ctx, in.User.ID, n.ID))
	_, err = d.BeginSession(ctx, n) // what was ended does not come back
	d.refused(err, ledger.ErrIllegal)
	d.over(n.ID)
}

func sessionsEnd(d *Desk) {
	ctx := d.T.Context()
	in := d.Joins("anna@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	short := ledger.NewSession{ID: hash(), User: in.User.ID, Life: 200 * time.Millisecond}
	_, err := d.BeginSession(ctx, short)
	d.ok(err)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for begun := time.Now(); ; <-poll.C {
		now := d.tunes().Now
		got, err := d.SessionByID(ctx, short.ID, Hour)
		after := d.tunes().Now
		if err == nil && !now.Before(got.Session.Ends) {
			d.T.Fatalf("holds at %v, until %v", now, got.Session.Ends)
		}
		if err != nil {
			d.refused(err, ledger.ErrNoSuchSession)
			if list, err := d.Sessions(ctx, in.User.ID, Hour); err != nil || len(list) != 1 {
				d.T.Errorf("sessions %+v at %v, %v", list, after, err)
			}
			break
		}
		if time.Since(begun) > time.Minute {
			d.T.Fatal("the ledger's clock stands")
		}
	}
	d.ok(d.UseSessions(ctx, []ledger.Hash{short.ID}))
	d.over(short.ID)
	_, err = d.BeginSession(ctx, short)
	d.refused(err, ledger.ErrIllegal)
	d.signed(in.User.ID, in.Session.ID)
}

func sessionsIdle(d *Desk) {
	ctx := d.T.Context()
	in := d.Joins("anna@acme.test", ledger.Owner)
	_, err := d.SessionByID(ctx, in.Session.ID, Hour)
	d.ok(err)
	d.nextMillisecond(in.Session.Seen.Add(4 * time.Millisecond))
	_, err = d.SessionByID(ctx, in.Session.ID, 4*time.Millisecond)
	d.refused(err, ledger.ErrNoSuchSession)
	if list, err := d.Sessions(ctx, in.User.ID, 4*time.Millisecond); err != nil || len(list) != 0 {
		d.T.Errorf("sessions: %+v, %v", list, err)
	}
	d.ok(d.UseSessions(ctx, nil))
	d.ok(d.UseSessions(ctx, []ledger.Hash{hash(), in.Session.ID, in.Session.ID}))
	got, err := d.SessionByID(ctx, in.Session.ID, Hour)
	d.ok(err)
	if !got.Session.Seen.After(in.Session.Seen.Add(4*time.Millisecond)) || got.Session.Ends != in.Session.Ends ||
		got.Memberships[0].Seen != got.Session.Seen {
		d.T.Errorf("used: %+v", got)
	}
	list, err := d.Members(ctx, d.Workspace)
	d.ok(err)
	if len(list) != 1 || list[0].Seen != got.Session.Seen {
		d.T.Errorf("members: %+v, want seen at %v", list, got.Session.Seen)
	}
	d.ok(d.EndSession(ctx, in.User.ID, in.Session.ID))
	d.nextMillisecond(got.Session.Seen)
	d.ok(d.UseSessions(ctx, []ledger.Hash{in.Session.ID}))
	d.over(in.Session.ID)
	if after, err := d.Members(ctx, d.Workspace); err != nil || after[0].Seen != got.Session.Seen {
		d.T.Errorf("a session that is over was used: %+v, %v", after, err)
	}
	many := make([]ledger.Hash, ledger.BatchMax+1)
	for i := range many {
		many[i] = hash()
	}
	d.refused(d.UseSessions(ctx, many), ledger.ErrIllegal)
	d.ok(d.UseSessions(ctx, many[1:]))
}

func listsSessions(d *Desk) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	second := d.signs(in.User.ID, Hour)
	d.nextMillisecond(second.Seen)
	third := d.signs(in.User.ID, Hour)
	d.Joins("ben@acme.test", ledger.Owner)
	d.signed(in.User.ID, third.ID, second.ID, in.Session.ID)
	d.nextMillisecond(third.Seen)
	d.ok(d.UseSessions(d.T.Context(), []ledger.Hash{second.ID}))
	d.signed(in.User.ID, second.ID, third.ID, in.Session.ID)
	d.signed(uuid.New())
}

func tooManySessions(d *Desk) {
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	var ids []ledger.Hash
	for range ledger.SessionsMax - 1 {
		ids = append(ids, d.signs(in.User.ID, Hour).ID)
	}
	d.nextMillisecond(d.tunes().Now)
	d.ok(d.UseSessions(d.T.Context(), slices.Concat(ids[1:], []ledger.Hash{in.Session.ID})))
	last := ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}
	for range 2 { // again it ends none
		_, err := d.BeginSession(d.T.Context(), last)
		d.ok(err)
		d.over(ids[0])
		list, err := d.Sessions(d.T.Context(), in.User.ID, Hour)
		d.ok(err)
		if len(list) != ledger.SessionsMax {
			d.T.Errorf("%d sessions", len(list))
		}
	}
	for _, id := range append(ids[1:], in.Session.ID, last.ID) {
		_, err := d.SessionByID(d.T.Context(), id, Hour)
		d.ok(err)
	}
	d.signed(other.User.ID, other.Session.ID)
}

func endsSessions(d *Desk) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	second, third := d.signs(in.User.ID, Hour), d.signs(in.User.ID, Hour)
	for range 2 {
		d.ok(d.EndSession(ctx, other.User.ID, in.Session.ID)) // not theirs
		d.ok(d.EndSession(ctx, in.User.ID, hash()))
		d.ok(d.EndSession(ctx, in.User.ID, second.ID))
	}
	d.over(second.ID)
	for _, want := range []int{1, 0} {
		if n, err := d.EndSessions(ctx, in.User.ID, third.ID); err != nil || n != want {
			d.T.Errorf("ended %d, %v, want %d", n, err, want)
		}
		d.signed(in.User.ID, third.ID)
	}
	d.signs(in.User.ID, Hour)
	for _, want := range []int{2, 0} {
		if n, err := d.EndSessions(ctx, in.User.ID, ledger.Hash{}); err != nil || n != want {
			d.T.Errorf("ended %d, %v, want %d", n, err, want)
		}
		d.signed(in.User.ID)
	}
	d.signed(other.User.ID, other.Session.ID)
	_, err := d.EndSessions(ctx, uuid.New(), ledger.Hash{})
	d.refused(err, ledger.ErrNoSuchUser)
}

func setsPasswords(d *Desk) {
	ctx := d.T.Context()
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	second := d.signs(in.User.ID, Hour)
	longest := strings.Repeat("p", ledger.OperatorTextMax)
	for range 2 {
		d.ok(d.SetPassword(ctx, in.User.ID, longest, second.ID))
		d.signed(in.User.ID, second.ID)
	}
	for _, bad := range []string{"", longest + "p", "a\x00", "a\xe2"} {
		d.refused(d.SetPassword(ctx, in.User.ID, bad, ledger.Hash{}), ledger.ErrIllegal)
	}
	d.refused(d.SetPassword(ctx, uuid.New(), "", ledger.Hash{}), ledger.ErrNoSuchUser)
	want := in.User
	want.Password = longest
	if u, err := d.UserByEmail(ctx, "anna@acme.test"); err != nil || u != want {
		d.T.Errorf("got %+v, %v, want %+v", u, err, want)
	}
	d.signed(in.User.ID, second.ID)
	d.ok(d.SetPassword(ctx, in.User.ID, "$argon2id$2", ledger.Hash{}))
	d.signed(in.User.ID)
	d.signed(other.User.ID, other.Session.ID)
}

func agents(d *Desk) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	longest := strings.Repeat("é", ledger.AgentMax/2)
	for given, want := range map[string]string{"": "", longest: longest, longest + "x": longest, "x" + longest: "x" + longest[:ledger.AgentMax-2],
		"a\x00b\xe2\x82c\xff": "abc"} {
		got, err := d.BeginSession(d.T.Context(), ledger.NewSession{ID: hash(), User: in.User.ID, Agent: given, Network: given, Life: Hour})
		d.ok(err)
		if got.Session.Agent != want || got.Session.Network != want {
			d.T.Errorf("%q: got %q and %q, want %q", given, got.Session.Agent, got.Session.Network, want)
		}
	}
}

func rolesOfSessions(d *Desk) {
	ctx := d.T.Context()
	d.Joins("anna@acme.test", ledger.Owner)
	in := d.Joins("ben@acme.test", ledger.Owner)
	for _, role := range []ledger.Role{ledger.Viewer, ledger.Member, ""} {
		d.ok(d.SetRole(ctx, d.Workspace, in.User.ID, role))
		got, err := d.SessionByID(ctx, in.Session.ID, Hour)
		d.ok(err)
		if role == "" && len(got.Memberships) != 0 || role != "" && (len(got.Memberships) != 1 || got.Memberships[0].Role != role) {
			d.T.Errorf("as %q: %+v", role, got.Memberships)
		}
	}
}

// slow is a rule by which a test has time.
var slow = ledger.AttemptRule{Free: 3, Window: Hour, First: time.Minute, Most: 5 * time.Minute}

// waits counts failures, and fails the test unless each subject then waits for so long, from now on.
func (d *Desk) waits(r ledger.AttemptRule, subjects []ledger.Hash, want ...time.Duration) {
	d.T.Helper()
	before := d.tunes().Now
	until, err := d.FailedSignIn(d.T.Context(), subjects, r)
	d.ok(err)
	after := d.tunes().Now
	asked, err := d.SignInWaits(d.T.Context(), subjects)
	d.ok(err)
	if !slices.Equal(asked, until) || len(until) != len(want) {
		d.T.Fatalf("counted: %v, asked: %v", until, asked)
	}
	for i, w := range want {
		if w == 0 && !until[i].IsZero() || w > 0 && (until[i].Before(before.Add(w)) || until[i].After(after.Add(w))) {
			d.T.Errorf("subject %d between %v and %v: until %v, want %v more", i, before, after, until[i], w)
		}
	}
}

func attemptsWait(d *Desk) {
	a, b, c := hash(), hash(), hash()
	d.waits(slow, []ledger.Hash{a}, 0)
	d.waits(slow, []ledger.Hash{a, b}, 0, 0)
	d.waits(slow, []ledger.Hash{b, a, b}, 0, time.Minute, 0)
	d.waits(slow, []ledger.Hash{b, a}, time.Minute, 2*time.Minute)
	d.waits(slow, []ledger.Hash{a}, 4*time.Minute)
	d.waits(slow, []ledger.Hash{a}, 5*time.Minute)
	d.waits(slow, []ledger.Hash{c, a}, 0, 5*time.Minute)
	if none, err := d.SignInWaits(d.T.Context(), []ledger.Hash{hash(), hash()}); err != nil || !slices.Equal(none, make([]time.Time, 2)) {
		d.T.Errorf("of strangers: %v, %v", none, err)
	}
	for range 2 {
		d.ok(d.ForgetFailures(d.T.Context(), a))
	}
	d.ok(d.ForgetFailures(d.T.Context(), hash()))
	asked, err := d.SignInWaits(d.T.Context(), []ledger.Hash{a, b})
	d.ok(err)
	if !asked[0].IsZero() || asked[1].IsZero() {
		d.T.Errorf("after one was forgotten: %v", asked)
	}
	d.waits(slow, []ledger.Hash{a}, 0)
	d.waits(ledger.AttemptRule{Free: 1, Window: Hour, First: time.Minute, Most: time.Minute}, []ledger.Hash{hash()}, time.Minute)
}

func attemptsForgotten(d *Desk) {
	quick := ledger.AttemptRule{Free: 2, Window: 40 * time.Millisecond, First: time.Millisecond, Most: time.Millisecond}
	a := hash()
	first, err := d.FailedSignIn(d.T.Context(), []ledger.Hash{a}, quick)
	d.ok(err)
	d.nextMillisecond(d.tunes().Now.Add(quick.Window))
	second, err := d.FailedSignIn(d.T.Context(), []ledger.Hash{a}, quick)
	d.ok(err)
	if !first[0].IsZero() || !second[0].IsZero() {
		d.T.Errorf("waits %v, and after the window %v", first, second)
	}
	// A wait that is over refuses no more, and the failures still count: the next wait is longer.
	long := ledger.AttemptRule{Free: 1, Window: Hour, First: 30 * time.Millisecond, Most: 3 * Hour}
	b := hash()
	until, err := d.FailedSignIn(d.T.Context(), []ledger.Hash{b}, long)
	d.ok(err)
	d.nextMillisecond(until[0])
	if asked, err := d.SignInWaits(d.T.Context(), []ledger.Hash{b}); err != nil || !asked[0].IsZero() {
		d.T.Errorf("after the wait: %v, %v", asked, err)
	}
	d.waits(ledger.AttemptRule{Free: 1, Window: Hour, First: Hour, Most: 3 * Hour}, []ledger.Hash{b}, 2*Hour)
}

func badAttempts(d *Desk) {
	ctx := d.T.Context()
	for what, spoil := range map[string]func(r *ledger.AttemptRule){
		"none free":    func(r *ledger.AttemptRule) { r.Free = 0 },
		"no window":    func(r *ledger.AttemptRule) { r.Window = 0 },
		"no wait":      func(r *ledger.AttemptRule) { r.First = 0 },
		"less at last": func(r *ledger.AttemptRule) { r.Most = r.First - 1 },
	} {
		bad := slow
		spoil(&bad)
		if _, err := d.FailedSignIn(ctx, []ledger.Hash{hash()}, bad); err == nil {
			d.T.Errorf("%s: accepted", what)
		} else {
			d.refused(err, ledger.ErrIllegal)
		}
	}
	many := make([]ledger.Hash, ledger.BatchMax+1)
	for i := range many {
		many[i] = hash()
	}
	_, err := d.FailedSignIn(ctx, many, slow)
	d.refused(err, ledger.ErrIllegal)
	_, err = d.SignInWaits(ctx, many)
	d.refused(err, ledger.ErrIllegal)
	if waits, err := d.SignInWaits(ctx, many[1:]); err != nil || len(waits) != ledger.BatchMax {
		d.T.Errorf("%d waits, %v", len(waits), err)
	}
	if waits, err := d.FailedSignIn(ctx, nil, slow); err != nil || len(waits) != 0 {
		d.T.Errorf("of nobody: %v, %v", waits, err)
	}
}

func raceAttempts(d *Desk) {
	a, b := hash(), hash()
	many := ledger.AttemptRule{Free: 9, Window: Hour, First: time.Minute, Most: time.Minute}
	racing(8, func(i int) {
		subjects := []ledger.Hash{a, b}
		if i%2 == 0 {
			slices.Reverse(subjects)
		}
		if waits, err := d.FailedSignIn(d.T.Context(), subjects, many); err != nil || !waits[0].IsZero() || !waits[1].IsZero() {
			d.T.Errorf("waits %v, %v", waits, err)
		}
	})
	d.waits(many, []ledger.Hash{a, b}, time.Minute, time.Minute)
}

func raceSessions(d *Desk) {
	in := d.Joins("anna@acme.test", ledger.Owner)
	n := ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}
	var failed atomic.Int64
	racing(8, func(int) {
		if got, err := d.BeginSession(d.T.Context(), n); err != nil || got.Session.ID != n.ID {
			failed.Add(1)
			d.T.Errorf("got %+v, %v", got, err)
		}
	})
	if list, err := d.Sessions(d.T.Context(), in.User.ID, Hour); failed.Load() > 0 || len(list) != 2 || err != nil {
		d.T.Errorf("sessions: %+v, %v", list, err)
	}
}
