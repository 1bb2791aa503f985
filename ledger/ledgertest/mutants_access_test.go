package ledgertest_test

const (
	pageAccess     = "http/dashboard/access.go"
	webSite        = "http/web/site.go"
	pageKeys       = "http/dashboard/keys.go"
	pageSign       = "http/dashboard/sign.go"
	signIn         = "http/dashboard/signin/signin.go"
	signInCache    = "http/dashboard/signin/sessions.go"
	signInLink     = "http/dashboard/signin/link.go"
	signInCodes    = "http/dashboard/signin/codes.go"
	signInWords    = "http/dashboard/signin/password.go"
	signInProvider = "http/dashboard/signin/provider.go"
	operatorPages  = "http/dashboard/operate/operate.go"
	operatorKeep   = "http/dashboard/operate/session.go"
	operatorNodes  = "http/dashboard/operate/cluster.go"
	operatorWork   = "http/dashboard/operate/workspaces.go"
)

var (
	// access are the tests of who may use which page of customers, and of forms that are sent by others or twice.
	access = suite{folder: "./http/dashboard", stages: [][]string{
		{"-test.run", "^(TestEveryRoute|TestFormsOfOther|TestRefusedBodies|TestSigningIn|TestAKeyIsShown|TestEveryFormTwice)"}, {}}}
	// signingIn are the tests of package signin.
	signingIn = suite{folder: "./http/dashboard/signin", stages: [][]string{{}}}
	// provided are the tests of signing in with a provider.
	provided = suite{folder: "./http/dashboard", stages: [][]string{{"-test.run", "^(TestSomebodyInvited|TestTheProvider|TestAnAnswerBelongs|TestAnAccountWith)"}}}
	// factors are the tests of codes.
	factors = suite{folder: "./http/dashboard", stages: [][]string{{"-test.run", "^Test.*Code"}}}
	// operating are the tests of the pages of operators.
	operating = suite{folder: "./http/dashboard/operate", stages: [][]string{{}}}
)

// ofAccess are those of who may see and do what in the pages.
var ofAccess = []mutant{
	{"a page for any role", pageAccess, "if !r.may(to.role) {", "if !r.may(ledger.Viewer) {", access},
	{"a page of another workspace", pageAccess, "return ok && m.Workspace == id })", "return ok })", access},
	{"half of a form acts", pageAccess, "err != nil || !body {", "err != nil && to.part || !body {", access},
	{"keys made by members", pageAccess, `{pattern: "POST /w/{ws}/keys", role: ledger.Owner`,
		`{pattern: "POST /w/{ws}/keys", role: ledger.Member`, access},
	{"who made an invitation opens its session", signInLink, "keyedID(s.keyed(\"invited\", string(a.Link), a.Form.String()))", "a.Form", signingIn},
	{"who made an invitation needs no password", signInLink, "a.Form.String(), a.Password)", "a.Form.String())", signingIn},
	{"guesses at once are all tried", signInWords, "make(chan struct{}, 1)", "make(chan struct{}, 100)", signingIn},
	{"all may wait for their password to be tried", signInWords, "h.waiting.Add(1) > hashWaits", "h.waiting.Add(1) < 0", signingIn},
	{"an answer to a long ago question", signInCache, "!answer.asked.Before(since)", "!answer.asked.Before(since.Add(-time.Hour))", signingIn},
	{"after signing in to another host", pageAccess, "strings.HasPrefix(text, \"//\") || ", "", access},
	{"forms of other sites", webSite, "s.guard = cross.Handler(http.HandlerFunc(s.findRoute))",
		"_, s.guard = cross, http.HandlerFunc(s.findRoute)", access},
	{"a key of a reload shown again", pageKeys, "errors.Is(err, ledger.ErrIllegal): // the form", "errors.Is(err, ledger.ErrNoSuchKey): // the form", access},
	{"signed in without encryption", pageSign, "if !keepsCookies(d.o.PublicURL()) {",
		"if !keepsCookies(d.o.PublicURL()) && v.Email == \"\" {", access},
	{"sessions believed too long", signInCache, "believed = 4 * time.Second", "believed = 40 * time.Second", signingIn},
	{"wrong passwords without an end", signIn, "userRule    = ledger.AttemptRule{Free: 5,", "userRule    = ledger.AttemptRule{Free: 500,", signingIn},
	{"a network that guesses without an end", signIn, "networkRule = ledger.AttemptRule{Free: 20,", "networkRule = ledger.AttemptRule{Free: 2000,", signingIn},
	{"somebody disabled signs in", signIn, "if !found.Disabled.IsZero() || len(password)", "if len(password)", signingIn},
	{"any new password", signInWords, "case n < PasswordLeast:", "case n < 1:", signingIn},
	{"an invitation opens an account", signInLink, "case user != nil && l.Purpose == ledger.InviteLink:", "case user != nil && l.Purpose == \"\":", signingIn},
	{"a link without the code", signInLink, "if user != nil && user.TOTP != \"\" {", "if user != nil && user.TOTP == \"?\" {", factors},
	{"a code used twice", signInCodes, "\t\terr := keep(state)\n", "\t\terr := error(nil)\n", factors},
	{"the password alone", signInCodes, "if u.TOTP == \"\" {\n\t\treturn nil\n", "if u.TOTP != \"?\" {\n\t\treturn nil\n", factors},
	{"an email that nobody verified", signInProvider, "if in == nil || in.User.ID != user || !isEmail(who, in.User.Email) {", "if in == nil || in.User.ID != user {", provided},
	{"an observer who changes", operatorPages, "if in.ReadOnly && to.changes {", "if in.ReadOnly && to.changes && to.part {", operating},
	{"operators without a session", operatorPages, "if !ok {\n\t\t\tp.signedOut(w, r, to)", "if !ok && to.changes {\n\t\t\tp.signedOut(w, r, to)", operating},
	{"an operator link used twice", operatorKeep, "ok = k.codes.Remove(name)", "ok = k.codes.Contains(name)", operating},
	{"an operator session never idle", operatorKeep, "s.seen.Load()).Add(idle)", "s.seen.Load()).Add(life)", operating},
	{"an operator session not ended", operatorKeep, "k.sessions.Remove(s.ID)", "k.sessions.Remove(sessionID{})", operating},
	{"a node drained without its name", operatorNodes, "if named && web.Text", "if !named && web.Text", operating},
	{"a grant without a reason", operatorWork, `case in.Reason == "":`, `case in.Reason == "?":`, operating},
}
