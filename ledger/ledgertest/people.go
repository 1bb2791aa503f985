package ledgertest

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var people = []exercise{
	{"an invitation is made once", 0, invites},
	{"links that nobody can keep", 0, badLinks},
	{"invitations end, and are listed newest first", 0, endsLinks},
	{"an invitation makes a user and a member", 0, accepts},
	{"a link is used once", 0, acceptsOnce},
	{"an invitation raises a role and lowers none", 0, acceptsAgain},
	{"acceptances that are refused", 0, badAccepts},
	{"a link sets a password anew", 0, passwordLinks},
	{"a link signs in", 0, signInLinks},
	{"users are found by email, whatever its case", 0, findsUsers},
	{"users are listed by email", 0, pagesUsers},
	{"who is disabled cannot sign in", 0, disables},
	{"members have roles", 0, setsRoles},
	{"an owner stays", 0, lastOwner},
	{"who loses a role has no invitation that gives it back", 0, endsInvitations},
	{"only who is an owner now invites and gives roles", 0, ownersOnly},
	{"a session acts while it holds and its user's role suffices", 1, actsWhileItMay},
	{"keys work while who made them is an owner", 0, keysOfOwners},
	{"a new invitation ends the older one", 0, invitedAgain},
	{"the log of a workspace, newest first", 0, pagesWorkspaceLog},
	{"lines that no log of a workspace takes", 0, badWorkspaceLines},
}

// hash returns an unused hash.
func hash() ledger.Hash {
	id := uuid.New()
	return sha256.Sum256(id[:])
}

// invitation is one to the desk's workspace.
func (d *Fixture) invitation(email string, role ledger.Role) ledger.Link {
	return ledger.Link{ID: hash(), Purpose: ledger.InviteLink, Workspace: d.Workspace, Email: email, Role: role,
		MadeBy: "operator eve"}
}

func (d *Fixture) links(l ledger.Link) ledger.Link {
	d.T.Helper()
	return effort.Must(d.MakeLink(d.T.Context(), l))(d.T)
}

func acceptance(l ledger.Link) ledger.Accept {
	return ledger.Accept{Link: l.ID, User: uuid.New(), Name: "Somebody", Password: "$argon2id$1",
		Session: ledger.NewSession{ID: hash(), Agent: "Firefox", Network: "192.0.2.0/24", Life: Hour}}
}

// Joins makes a new user with a role in the desk's workspace, signed in.
func (d *Fixture) Joins(email string, role ledger.Role) ledger.SignedIn {
	d.T.Helper()
	return effort.Must(d.AcceptLink(d.T.Context(), acceptance(d.links(d.invitation(email, role)))))(d.T)
}

// acts is the user as the actor of what the desk does.
func acts(id uuid.UUID) string { return "user:" + id.String() }

// logLines returns the lines of the workspace's log that are not about verifications, newest first, as "actor, email:
// action subject detail".
func (d *Fixture) logLines() (lines []string) {
	return slices.DeleteFunc(allLogLines(d), aboutFiles)
}

func aboutFiles(line string) bool {
	return strings.Contains(line, "|verification ") || strings.Contains(line, "|check create|")
}

// allLogLines returns all lines, newest first.
func allLogLines(d *Fixture) (lines []string) {
	d.T.Helper()
	page := effort.Must(d.WorkspaceLog(d.T.Context(), ledger.WorkspaceLogQuery{Workspace: d.Workspace,
		Limit: ledger.WorkspaceLogMax}))(d.T)
	for _, l := range page {
		effort.ErrorIf(d.T, l.ID == uuid.Nil || l.At.IsZero(), "a line without id or time: %+v", l)
		lines = append(lines, strings.Join([]string{l.Actor, l.Email, l.Action, l.Subject, l.Detail}, "|"))
	}
	return lines
}

// tells fails the test unless the log has just these lines. Their order may differ: some have the same millisecond.
func (d *Fixture) tells(want ...string) {
	d.T.Helper()
	got := d.logLines()
	slices.Sort(got)
	slices.Sort(want)
	effort.Equal(d.T, got, want, "log of the workspace")
}

func invites(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	l := d.invitation("Anna@Acme.test", ledger.Member)
	made := effort.Must(d.MakeLink(ctx, l))(d.T)
	want := l
	want.Created, want.Expires = made.Created, made.Created.Add(ledger.LinkLife)
	effort.ErrorIf(d.T, made != want || made.Created.IsZero(), "got %+v, want %+v", made, want)
	l.Email, l.Created, l.Expires, l.Used = "anna@acme.TEST", made.Expires, made.Created, made.Created
	again := effort.Must(d.MakeLink(ctx, l))(d.T)
	effort.Is(d.T, again, made, "again")
	other := d.other(d.T, 0)
	for what, spoil := range map[string]func(l *ledger.Link){
		"email":     func(l *ledger.Link) { l.Email = "ben@acme.test" },
		"role":      func(l *ledger.Link) { l.Role = ledger.Owner },
		"workspace": func(l *ledger.Link) { l.Workspace = other.Workspace },
		"maker":     func(l *ledger.Link) { l.MadeBy = "operator" },
	} {
		bad := made
		spoil(&bad)
		denied(d.MakeLink(ctx, bad))(d, ledger.ErrIllegal, "the id with another "+what)
	}
	read, known, err := d.LinkByID(ctx, l.ID)
	d.ok(err)
	effort.ErrorIf(d.T, read != made || known, "read %+v, %v", read, known)
	denied(effort.First(d.LinkByID(ctx, hash())))(d, ledger.ErrNoSuchLink)
	d.tells("operator||link create|Anna@Acme.test|member")
	d.wrote("link create", ledger.LogLine{Workspace: d.Workspace, Subject: "Anna@Acme.test", New: "member"})
}

func badLinks(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("known@acme.test", ledger.Owner)
	long := strings.Repeat("a", ledger.EmailMax-len("@acme.test")) + "@acme.test"
	for name, c := range map[string]struct {
		spoil func(l *ledger.Link)
		want  error
	}{
		"no id":                  {func(l *ledger.Link) { l.ID = ledger.Hash{} }, ledger.ErrIllegal},
		"no purpose":             {func(l *ledger.Link) { l.Purpose = "" }, ledger.ErrIllegal},
		"no role":                {func(l *ledger.Link) { l.Role = "" }, ledger.ErrIllegal},
		"an unknown role":        {func(l *ledger.Link) { l.Role = "king" }, ledger.ErrIllegal},
		"a long email":           {func(l *ledger.Link) { l.Email = "a" + long }, ledger.ErrIllegal},
		"no @":                   {func(l *ledger.Link) { l.Email = "acme.test" }, ledger.ErrIllegal},
		"nobody at":              {func(l *ledger.Link) { l.Email = "@acme.test" }, ledger.ErrIllegal},
		"at nowhere":             {func(l *ledger.Link) { l.Email = "anna@" }, ledger.ErrIllegal},
		"a space":                {func(l *ledger.Link) { l.Email = "an na@acme.test" }, ledger.ErrIllegal},
		"a line":                 {func(l *ledger.Link) { l.Email = "anna@acme.test\n" }, ledger.ErrIllegal},
		"NUL":                    {func(l *ledger.Link) { l.Email = "an\x00na@acme.test" }, ledger.ErrIllegal},
		"no text":                {func(l *ledger.Link) { l.Email = "an\xe2na@acme.test" }, ledger.ErrIllegal},
		"a long maker":           {func(l *ledger.Link) { l.MadeBy = strings.Repeat("x", ledger.OperatorTextMax+1) }, ledger.ErrIllegal},
		"no workspace":           {func(l *ledger.Link) { l.Workspace, l.Role = uuid.New(), "" }, ledger.ErrNoSuchWorkspace},
		"a password for nobody":  {func(l *ledger.Link) { *l = passwordLink("nobody@acme.test") }, ledger.ErrNoSuchUser},
		"a password for no name": {func(l *ledger.Link) { *l = passwordLink("\x00") }, ledger.ErrNoSuchUser},
		"a password in a place": {func(l *ledger.Link) {
			*l = passwordLink("known@acme.test")
			l.Workspace = d.Workspace
		}, ledger.ErrIllegal},
		"a password for a role": {func(l *ledger.Link) {
			*l = passwordLink("known@acme.test")
			l.Role = ledger.Owner
		}, ledger.ErrIllegal},
	} {
		bad := d.invitation("new@acme.test", ledger.Viewer)
		c.spoil(&bad)
		denied(d.MakeLink(ctx, bad))(d, c.want, name)
	}
	effort.Is(d.T, len(effort.Must(d.OpenLinks(ctx, d.Workspace))(d.T)), 0, "open")
	good := d.invitation(long, ledger.Viewer)
	good.MadeBy = strings.Repeat("x", ledger.OperatorTextMax)
	d.links(good)
	denied(d.MakeLink(ledger.WithActor(ctx, "a\x00"), d.invitation("new@acme.test", ledger.Viewer)))(d, ledger.ErrIllegal)
}

func endsLinks(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	var made []ledger.Link
	for _, email := range []string{"a@acme.test", "b@acme.test", "c@acme.test"} {
		made = append(made, d.links(d.invitation(email, ledger.Viewer)))
		d.nextMillisecond(made[len(made)-1].Created)
	}
	used := d.Joins("used@acme.test", ledger.Owner)
	other := d.other(d.T, 0).Workspace
	open := func(want ...ledger.Link) {
		d.T.Helper()
		got := effort.Must(d.OpenLinks(ctx, d.Workspace))(d.T)
		effort.Equal(d.T, got, want, "open")
	}
	open(made[2], made[1], made[0])
	d.refused(d.EndLink(ctx, other, made[1].ID), ledger.ErrNoSuchLink)
	d.refused(d.EndLink(ctx, d.Workspace, hash()), ledger.ErrNoSuchLink)
	secret := d.links(passwordLink("used@acme.test"))
	d.refused(d.EndLink(ctx, uuid.Nil, secret.ID), ledger.ErrNoSuchLink)
	for range 2 {
		d.ok(d.EndLink(ctx, d.Workspace, made[1].ID))
		open(made[2], made[0])
	}
	denied(effort.First(d.LinkByID(ctx, made[1].ID)))(d, ledger.ErrNoSuchLink)
	denied(d.AcceptLink(ctx, acceptance(made[1])))(d, ledger.ErrNoSuchLink)
	again := effort.Must(d.MakeLink(ctx, made[1]))(d.T)
	effort.ErrorIf(d.T, again.Used.IsZero() || again.Used.After(again.Expires),
		"made again after it was ended: %+v", again)
	effort.Is(d.T, len(effort.Must(d.OpenLinks(ctx, uuid.Nil))(d.T)), 0, "open in no workspace")
	d.tells("||link create|a@acme.test|viewer", "||link create|b@acme.test|viewer", "||link create|c@acme.test|viewer",
		"||link create|used@acme.test|owner", "operator||link end|b@acme.test|viewer",
		acts(used.User.ID)+"|used@acme.test|member join|used@acme.test|owner")
}

func accepts(d *Fixture) {
	ctx := d.T.Context()
	l := d.links(d.invitation("Anna@Acme.test", ledger.Member))
	a := acceptance(l)
	in := effort.Must(d.AcceptLink(ctx, a))(d.T)
	user := ledger.User{ID: a.User, Email: "Anna@Acme.test", Name: a.Name, Password: a.Password, Created: in.User.Created}
	session := ledger.Session{ID: a.Session.ID, User: a.User, Created: in.User.Created, Seen: in.User.Created,
		Ends: in.User.Created.Add(Hour), Agent: "Firefox", Network: "192.0.2.0/24"}
	member := ledger.Membership{Workspace: d.Workspace, WorkspaceName: "desk", User: a.User, Email: "Anna@Acme.test",
		Name: a.Name, Role: ledger.Member, Created: in.User.Created, Seen: in.User.Created}
	want := ledger.SignedIn{Session: session, User: user, Memberships: []ledger.Membership{member}}
	effort.ErrorIf(d.T, !reflect.DeepEqual(in, want) || in.User.Created.Before(l.Created),
		"got %+v, want %+v", in, want)
	again := effort.Must(d.AcceptLink(ctx, a))(d.T)
	read := effort.Must(d.SessionByID(ctx, a.Session.ID, Hour))(d.T)
	effort.ErrorIf(d.T, !reflect.DeepEqual(again, want) || !reflect.DeepEqual(read, want),
		"again: got %+v and %+v, want %+v", again, read, want)
	effort.Equal(d.T, effort.Must(d.Members(ctx, d.Workspace))(d.T), []ledger.Membership{member}, "members")
	d.ok(d.EndSession(ctx, a.User, a.Session.ID))
	_, err := d.AcceptLink(ctx, a) // it was used, and what began with it is over
	d.refused(err, ledger.ErrNoSuchLink)
	d.tells("||link create|Anna@Acme.test|member", acts(a.User)+"|Anna@Acme.test|member join|Anna@Acme.test|member")
}

func acceptsOnce(d *Fixture) {
	ctx := d.T.Context()
	l := d.links(d.invitation("anna@acme.test", ledger.Member))
	first, second := acceptance(l), acceptance(l)
	effort.Must(d.AcceptLink(ctx, first))(d.T)
	denied(d.AcceptLink(ctx, second))(d, ledger.ErrNoSuchLink)
	second.User, second.Password = first.User, ""
	denied(d.AcceptLink(ctx, second))(d, ledger.ErrNoSuchLink)
	third := second
	third.Session.ID = signs(d, first.User, Hour).ID // which holds, and did not begin with the link
	denied(d.AcceptLink(ctx, third))(d, ledger.ErrNoSuchLink)
	denied(d.SessionByID(ctx, second.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	denied(effort.First(d.LinkByID(ctx, l.ID)))(d, ledger.ErrNoSuchLink)
	d.refused(d.EndLink(ctx, d.Workspace, l.ID), ledger.ErrNoSuchLink)
	effort.Is(d.T, len(effort.Must(d.OpenLinks(ctx, d.Workspace))(d.T)), 0, "open")
	ended := d.links(d.invitation("ben@acme.test", ledger.Member))
	d.ok(d.EndLink(ctx, d.Workspace, ended.ID))
	none := acceptance(ended)
	none.Session.ID = ledger.Hash{} // no session ended it either
	denied(d.AcceptLink(ctx, none))(d, ledger.ErrNoSuchLink)
}

func acceptsAgain(d *Fixture) {
	ctx := d.T.Context()
	in := d.Joins("Anna@acme.test", ledger.Member)
	id := in.User.ID
	roleIs := func(role ledger.Role) {
		d.T.Helper()
		list := effort.Must(d.Members(ctx, d.Workspace))(d.T)
		effort.ErrorIf(d.T, len(list) != 1 || list[0].Role != role || list[0].Created != in.User.Created,
			"members: %+v, want one with role %s", list, role)
	}
	for _, c := range []struct{ offered, is ledger.Role }{{ledger.Viewer, ledger.Member}, {ledger.Member, ledger.Member},
		{ledger.Owner, ledger.Owner}, {ledger.Viewer, ledger.Owner}} {
		d.nextMillisecond(in.User.Created)
		l := d.links(d.invitation("ANNA@acme.test", c.offered))
		if _, known, err := d.LinkByID(ctx, l.ID); err != nil || !known {
			d.T.Errorf("known: %v, %v", known, err)
		}
		a := acceptance(l)
		_, err := d.AcceptLink(ctx, a) // with a password
		d.refused(err, ledger.ErrIllegal)
		a.Password = ""
		got := effort.Must(d.AcceptLink(ctx, a))(d.T)
		effort.ErrorIf(d.T, got.User != in.User || len(got.Memberships) != 1 || got.Session.ID != a.Session.ID,
			"signed in: %+v", got)
		roleIs(c.is)
	}
	effort.Is(d.T, len(effort.Must(d.Sessions(ctx, id, Hour))(d.T)), 5, "sessions: an invitation ends none")
	lines := d.logLines()
	if !slices.Contains(lines, acts(id)+"|Anna@acme.test|member role|Anna@acme.test|member to owner") || len(lines) != 5+2 {
		d.T.Errorf("log: %q", lines)
	}
}

func badAccepts(d *Fixture) {
	ctx := d.T.Context()
	taken := d.Joins("taken@acme.test", ledger.Owner)
	l := d.links(d.invitation("new@acme.test", ledger.Member))
	for name, spoil := range map[string]func(a *ledger.Accept){
		"no password":          func(a *ledger.Accept) { a.Password = "" },
		"a long password":      func(a *ledger.Accept) { a.Password = strings.Repeat("x", ledger.OperatorTextMax+1) },
		"no id of a user":      func(a *ledger.Accept) { a.User = uuid.Nil },
		"somebody's id":        func(a *ledger.Accept) { a.User = taken.User.ID },
		"a long name":          func(a *ledger.Accept) { a.Name = strings.Repeat("n", ledger.NameMax+1) },
		"NUL in a name":        func(a *ledger.Accept) { a.Name = "a\x00" },
		"no session":           func(a *ledger.Accept) { a.Session.ID = ledger.Hash{} },
		"a session of no life": func(a *ledger.Accept) { a.Session.Life = 0 },
		"somebody's session":   func(a *ledger.Accept) { a.Session.ID = taken.Session.ID },
	} {
		a := acceptance(l)
		spoil(&a)
		denied(d.AcceptLink(ctx, a))(d, ledger.ErrIllegal, name)
	}
	denied(d.AcceptLink(ctx, acceptance(ledger.Link{ID: hash()})))(d, ledger.ErrNoSuchLink)
	_, err := d.UserByEmail(ctx, "new@acme.test")
	effort.ErrorIf(d.T, err == nil, "a refused acceptance made a user")
	a := acceptance(l)
	a.Name, a.Password = strings.Repeat("é", ledger.NameMax/2), strings.Repeat("p", ledger.OperatorTextMax)
	in := effort.Must(d.AcceptLink(ctx, a))(d.T)
	effort.ErrorIf(d.T, in.User.Name != a.Name || in.User.Password != a.Password, "got %+v", in.User)
}

// passwordLink is a link that sets a password.
func passwordLink(email string) ledger.Link {
	return ledger.Link{ID: hash(), Purpose: ledger.PasswordLink, Email: email, MadeBy: "operator eve"}
}

func passwordLinks(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in, other := d.Joins("anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	invited := d.links(d.invitation("anna@acme.test", ledger.Viewer))
	older, bens := d.links(passwordLink("ANNA@acme.test")), d.links(passwordLink("ben@acme.test"))
	newer := effort.Must(d.MakeLink(ctx, passwordLink("anna@acme.test")))(d.T)
	if again, err := d.MakeLink(ctx, older); err != nil || again.Used.IsZero() {
		d.T.Errorf("the older one: %+v, %v", again, err)
	}
	denied(effort.First(d.LinkByID(ctx, older.ID)))(d, ledger.ErrNoSuchLink)
	for _, l := range []ledger.Link{newer, bens, invited} {
		got, known, err := d.LinkByID(ctx, l.ID)
		effort.ErrorIf(d.T, err != nil || !known || got != l, "got %+v, %v, %v, want %+v", got, known, err, l)
	}
	a := acceptance(newer)
	a.Password = ""
	denied(d.AcceptLink(ctx, a))(d, ledger.ErrIllegal)
	a.Password, a.Name = "$argon2id$2", "Another"
	for range 2 {
		got := effort.Must(d.AcceptLink(ctx, a))(d.T)
		want := in.User
		want.Password = a.Password
		effort.ErrorIf(d.T, got.User != want || got.Session.ID != a.Session.ID || len(got.Memberships) != 1,
			"got %+v", got)
	}
	denied(d.SessionByID(ctx, in.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	effort.Must(d.SessionByID(ctx, other.Session.ID, Hour))(d.T)
	d.wrote("password link create", ledger.LogLine{Subject: "anna@acme.test"}, ledger.LogLine{Subject: "ben@acme.test"},
		ledger.LogLine{Subject: "ANNA@acme.test"})
}

func signInLinks(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	link := func() ledger.Link {
		l := passwordLink("anna@acme.test")
		l.Purpose = ledger.SignInLink
		return l
	}
	denied(d.MakeLink(ctx, link()))(d, ledger.ErrNoSuchUser)
	in := d.Joins("Anna@acme.test", ledger.Owner)
	password := d.links(passwordLink("anna@acme.test"))
	older := d.links(link())
	newer := effort.Must(d.MakeLink(ctx, link()))(d.T)
	denied(effort.First(d.LinkByID(ctx, older.ID)))(d, ledger.ErrNoSuchLink)
	a := acceptance(newer)
	_, err := d.AcceptLink(ctx, a) // with a password
	d.refused(err, ledger.ErrIllegal)
	a.Password, a.Name = "", "Another"
	for range 2 {
		got := effort.Must(d.AcceptLink(ctx, a))(d.T)
		effort.ErrorIf(d.T, got.User != in.User || got.Session.ID != a.Session.ID || len(got.Memberships) != 1,
			"got %+v", got)
	}
	other := acceptance(newer)
	other.Password = ""
	denied(d.AcceptLink(ctx, other))(d, ledger.ErrNoSuchLink)
	effort.Must(d.SessionByID(ctx, in.Session.ID, Hour))(d.T)
	effort.Must(effort.First(d.LinkByID(ctx, password.ID)))(d.T)
	inside := link()
	inside.Workspace, inside.Role = d.Workspace, ledger.Owner
	denied(d.MakeLink(ctx, inside))(d, ledger.ErrIllegal)
	d.wrote("sign-in link create", ledger.LogLine{Subject: "anna@acme.test"}, ledger.LogLine{Subject: "anna@acme.test"})
}

func findsUsers(d *Fixture) {
	ctx := d.T.Context()
	in := d.Joins("Änna.B+x@Acme.test", ledger.Viewer)
	for _, email := range []string{"Änna.B+x@Acme.test", "Änna.b+X@ACME.TEST"} {
		effort.Is(d.T, effort.Must(d.UserByEmail(ctx, email))(d.T), in.User, email)
	}
	// Only A to Z are folded; no other spelling finds the user.
	for _, email := range []string{"änna.b+x@acme.test", "anna.b+x@acme.test", "Änna.b@acme.test", "", "\x00", "Änna.B+x@Acme.test "} {
		denied(d.UserByEmail(ctx, email))(d, ledger.ErrNoSuchUser)
	}
}

func pagesUsers(d *Fixture) {
	var want []ledger.User
	for _, email := range []string{"c@acme.test", "B@acme.test", "a@acme.test", "ä@acme.test"} {
		want = append(want, d.Joins(email, ledger.Viewer).User)
	}
	slices.SortFunc(want, func(a, b ledger.User) int {
		return strings.Compare(ledger.FoldEmail(a.Email), ledger.FoldEmail(b.Email))
	})
	for size := 1; size <= len(want)+1; size++ {
		var got []ledger.User
		for after := ""; ; after = got[len(got)-1].Email {
			page := effort.Must(d.Users(d.T.Context(), after, size))(d.T)
			if got = append(got, page...); len(page) < size {
				break
			}
		}
		effort.Equal(d.T, got, want, "pages", size)
	}
	effort.Must(d.Users(d.T.Context(), "", ledger.UsersMax))(d.T)
	for _, limit := range []int{0, -1, ledger.UsersMax + 1} {
		denied(d.Users(d.T.Context(), "", limit))(d, ledger.ErrIllegal)
	}
}

func disables(d *Fixture) {
	ctx := ledger.WithActor(d.T.Context(), "operator")
	in, other := d.Joins("Anna@acme.test", ledger.Owner), d.Joins("ben@acme.test", ledger.Owner)
	invited, password := d.links(d.invitation("anna@acme.test", ledger.Viewer)), d.links(passwordLink("anna@acme.test"))
	bens := d.links(passwordLink("ben@acme.test"))
	var first ledger.User
	for i := range 2 {
		u := effort.Must(d.DisableUser(ctx, in.User.ID, true))(d.T)
		effort.ErrorIf(d.T, u.Disabled.IsZero() || i > 0 && u != first, "disabled: %+v, at first %+v", u, first)
		first = u
	}
	effort.Is(d.T, effort.Must(d.UserByEmail(ctx, "anna@acme.test"))(d.T), first, "found")
	later := d.links(d.invitation("anna@acme.test", ledger.Viewer))
	refusals := func(links ...ledger.Link) {
		d.T.Helper()
		for _, l := range links {
			denied(effort.First(d.LinkByID(ctx, l.ID)))(d, ledger.ErrNoSuchLink)
			a := acceptance(l)
			if l.Purpose == ledger.InviteLink {
				a.Password = ""
			}
			denied(d.AcceptLink(ctx, a))(d, ledger.ErrNoSuchLink)
		}
		denied(d.SessionByID(ctx, in.Session.ID, Hour))(d, ledger.ErrNoSuchSession)
	}
	refusals(invited, password, later)
	denied(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}))(d, ledger.ErrNoSuchUser)
	denied(d.MakeLink(ctx, passwordLink("anna@acme.test")))(d, ledger.ErrNoSuchUser)
	list := effort.Must(d.Members(ctx, d.Workspace))(d.T)
	effort.ErrorIf(d.T, len(list) != 2 || !list[0].Disabled || list[1].Disabled, "members: %+v", list)
	for range 2 {
		u := effort.Must(d.DisableUser(ctx, in.User.ID, false))(d.T)
		effort.Is(d.T, u, in.User, "enabled")
	}
	refusals(invited, password) // what was ended stays so
	effort.Must(effort.First(d.LinkByID(ctx, later.ID)))(d.T)
	effort.Must(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: in.User.ID, Life: Hour}))(d.T)
	effort.Must(d.SessionByID(ctx, other.Session.ID, Hour))(d.T)
	effort.Must(effort.First(d.LinkByID(ctx, bens.ID)))(d.T)
	for _, disabled := range []bool{true, false} {
		denied(d.DisableUser(ctx, uuid.New(), disabled))(d, ledger.ErrNoSuchUser)
	}
	d.wrote("user disable", ledger.LogLine{Subject: "Anna@acme.test"})
	d.wrote("user enable", ledger.LogLine{Subject: "Anna@acme.test"})
}

func setsRoles(d *Fixture) {
	anna, ben := d.Joins("anna@acme.test", ledger.Owner).User, d.Joins("Ben@acme.test", ledger.Viewer).User
	cleo := d.Joins("cleo@acme.test", ledger.Member).User
	ctx := ledger.WithActor(d.T.Context(), acts(anna.ID))
	roles := func(want ...string) {
		d.T.Helper()
		list := effort.Must(d.Members(ctx, d.Workspace))(d.T)
		var got []string
		for _, m := range list {
			got = append(got, m.Email+" "+string(m.Role))
		}
		effort.Equal(d.T, got, want, "members")
	}
	roles("anna@acme.test owner", "Ben@acme.test viewer", "cleo@acme.test member")
	for range 2 {
		d.ok(d.SetRole(ctx, d.Workspace, ben.ID, ledger.Owner))
		d.ok(d.SetRole(ctx, d.Workspace, cleo.ID, ""))
	}
	roles("anna@acme.test owner", "Ben@acme.test owner")
	d.refused(d.SetRole(ctx, d.Workspace, cleo.ID, ledger.Viewer), ledger.ErrNoSuchUser)
	d.refused(d.SetRole(ctx, d.Workspace, uuid.New(), ledger.Viewer), ledger.ErrNoSuchUser)
	d.refused(d.SetRole(ctx, d.Workspace, ben.ID, "king"), ledger.ErrIllegal)
	d.refused(d.SetRole(ctx, uuid.New(), ben.ID, ""), ledger.ErrNoSuchWorkspace)
	denied(d.Members(ctx, uuid.New()))(d, ledger.ErrNoSuchWorkspace)
	d.refused(d.SetRole(ledger.WithActor(ctx, "a\x00"), d.Workspace, ben.ID, ledger.Member), ledger.ErrIllegal)
	d.ok(d.SetRole(ctx, d.Workspace, ben.ID, ledger.Viewer))
	roles("anna@acme.test owner", "Ben@acme.test viewer")
	by := acts(anna.ID) + "|anna@acme.test|"
	var lines []string
	for _, l := range d.logLines() {
		if strings.HasPrefix(l, by) && !strings.Contains(l, "join") {
			lines = append(lines, strings.TrimPrefix(l, by))
		}
	}
	slices.Sort(lines)
	if want := []string{"member end|cleo@acme.test|member", "member role|Ben@acme.test|owner to viewer",
		"member role|Ben@acme.test|viewer to owner"}; !slices.Equal(lines, want) {
		d.T.Errorf("log: got %q, want %q", lines, want)
	}
	// A workspace is not another one's.
	other := d.other(d.T, 0)
	in := other.Joins("dora@acme.test", ledger.Viewer)
	d.refused(d.SetRole(ctx, d.Workspace, in.User.ID, ledger.Owner), ledger.ErrNoSuchUser)
	_, err := other.AcceptLink(ctx, withoutPassword(other.links(other.invitation("anna@acme.test", ledger.Viewer))))
	effort.ErrorIf(d.T, err != nil, "%v", err)
	signed := effort.Must(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: anna.ID, Life: Hour}))(d.T)
	if m := signed.Memberships; len(m) != 2 || m[0].WorkspaceName > m[1].WorkspaceName || m[0].Workspace == m[1].Workspace {
		d.T.Errorf("memberships: %+v", m)
	}
}

func withoutPassword(l ledger.Link) ledger.Accept {
	a := acceptance(l)
	a.Password = ""
	return a
}

func lastOwner(d *Fixture) {
	ctx := d.T.Context()
	anna, ben := d.Joins("anna@acme.test", ledger.Owner).User, d.Joins("ben@acme.test", ledger.Member).User
	elsewhere := d.other(d.T, 0)
	elsewhere.Joins("owner@elsewhere.test", ledger.Owner)
	stays := func() {
		d.T.Helper()
		for _, role := range []ledger.Role{ledger.Member, ledger.Viewer, ""} {
			d.refused(d.SetRole(ctx, d.Workspace, anna.ID, role), ledger.ErrLastOwner)
		}
	}
	stays()
	d.ok(d.SetRole(ctx, d.Workspace, anna.ID, ledger.Owner))
	d.ok(d.SetRole(ctx, d.Workspace, ben.ID, ledger.Viewer))
	d.ok(d.SetRole(ctx, d.Workspace, ben.ID, ledger.Owner))
	effort.Must(d.DisableUser(ctx, ben.ID, true))(d.T)
	stays()
	d.ok(d.SetRole(ctx, d.Workspace, ben.ID, "")) // anna is left
	stays()
	d.Joins("cleo@acme.test", ledger.Owner)
	d.ok(d.SetRole(ctx, d.Workspace, anna.ID, ""))
	in := effort.Must(d.BeginSession(ctx, ledger.NewSession{ID: hash(), User: anna.ID, Life: Hour}))(d.T)
	effort.ErrorIf(d.T, len(in.Memberships) != 0 || in.User != anna, "without a membership: %+v", in)
}

// endsInvitations: a lower role ends, in its workspace only, the invitations made by the member or for their email.
func endsInvitations(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	elsewhere := d.other(d.T, 0)
	for i, end := range []func(anna uuid.UUID) error{
		func(anna uuid.UUID) error { return d.SetRole(ctx, d.Workspace, anna, ledger.Member) },
		func(anna uuid.UUID) error { return d.SetRole(ctx, d.Workspace, anna, "") },
		func(anna uuid.UUID) error { _, err := d.DisableUser(ctx, anna, true); return err },
	} {
		email := fmt.Sprintf("anna%d@acme.test", i)
		anna := d.Joins(email, ledger.Member).User
		open := func(l ledger.Link, want bool) {
			d.T.Helper()
			_, _, err := d.LinkByID(ctx, l.ID)
			effort.ErrorIf(d.T, (err == nil) != want, "%d: the invitation of %s by %s: %v", i, l.Email, l.MadeBy, err)
		}
		self := d.links(d.invitation(email, ledger.Owner))
		d.ok(d.SetRole(ctx, d.Workspace, anna.ID, ledger.Owner))
		open(self, true) // a higher role ends none
		made := d.invitation(fmt.Sprintf("ben%d@acme.test", i), ledger.Owner)
		made.MadeBy = acts(anna.ID)
		made = d.links(made)
		others, there := d.links(d.invitation(fmt.Sprintf("cleo%d@acme.test", i), ledger.Member)), elsewhere.invitation(email, ledger.Member)
		there = elsewhere.links(there)
		d.ok(end(anna.ID))
		open(self, false)
		open(made, false)
		open(others, true)
		open(there, i < 2) // a disabled user has no link anywhere
		d.ok(d.EndLink(ctx, d.Workspace, others.ID))
	}
}

// ownersOnly: a node may believe for a moment that a former owner still is one.
func ownersOnly(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	anna, ben := d.Joins("anna@acme.test", ledger.Owner).User, d.Joins("ben@acme.test", ledger.Viewer).User
	by := ledger.WithActor(ctx, acts(anna.ID))
	l := d.invitation("cleo@acme.test", ledger.Member)
	l.MadeBy = acts(anna.ID)
	effort.Must(d.MakeLink(by, l))(d.T)
	d.ok(d.SetRole(by, d.Workspace, ben.ID, ledger.Member))
	d.ok(d.SetRole(by, d.Workspace, anna.ID, ledger.Member)) // their own, while they may
	for _, role := range []ledger.Role{ledger.Viewer, ledger.Owner, ""} {
		d.refused(d.SetRole(by, d.Workspace, ben.ID, role), ledger.ErrNotOwner)
	}
	d.refused(d.SetRole(by, d.Workspace, anna.ID, ledger.Owner), ledger.ErrNotOwner)
	l.ID = hash()
	denied(d.MakeLink(by, l))(d, ledger.ErrNotOwner)
	elsewhere := d.other(d.T, 0)
	elsewhere.Joins("owner@elsewhere.test", ledger.Owner)
	l = elsewhere.invitation("cleo@acme.test", ledger.Member)
	l.MadeBy = acts(anna.ID)
	denied(d.MakeLink(by, l))(d, ledger.ErrNotOwner)
}
