package mutants

const (
	peopleWords  = "ledger/people.go"
	peopleRules  = "ledger/transitions/people.go"
	factorRules  = "ledger/transitions/people_factors.go"
	sessionRules = "ledger/transitions/people_sessions.go"
	sqlPeople    = "ledger/sqlstore/people.go"
	sqlSessions  = "ledger/sqlstore/people_sessions.go"
)

// ofPeople are those of who signs in to the pages.
var ofPeople = []mutant{
	{"link used by another session too", peopleRules, "&& l.Session == a.Session.ID {", "{", books},
	{"link used after its end", peopleRules, "case !l.Open(now), u != nil", "case u != nil", books},
	{"link of somebody disabled", peopleRules, "u != nil && !u.Disabled.IsZero(), u == nil", "u == nil", books},
	{"invitation that changes a password", peopleRules, "if a.Password != \"\" || a.OIDC", "if a.OIDC", books},
	{"invitation that lowers a role", peopleRules, "err != nil || is.Allows(l.Role) {", "err != nil || is == l.Role {", books},
	{"new password beside old sessions", peopleRules, "_, err = endAll(t, u.ID, ledger.Hash{}, now)", "_, err = endAll(t, u.ID, ledger.Hash{}, now.Add(forEver))",
		books},
	{"last owner gone", peopleRules, "if others == 0 {", "if others < 0 {", books},
	{"provider gone of who has no password", factorRules, "if u.Password == \"\" {", "if false {", books},
	{"sessions by a provider that is gone", factorRules, "\t\tif _, err := endAll(t, user, but, now); err != nil {\n\t\t\treturn err\n\t\t}\n" +
		"\t\treturn told(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: action, Subject: u.Email})\n\t})\n\tif err != nil {\n\t\treturn fmt.Errorf(\"unbind",
		"\t\treturn told(t, ledger.Actor(ctx), uuid.Nil, ledger.WorkspaceLine{Action: action, Subject: u.Email})\n\t})\n\tif err != nil {\n\t\treturn fmt.Errorf(\"unbind", books},
	{"codes renewed over a newer state", factorRules, "u.TOTP != was || was", "was", books},
	{"renewed codes not in the log", factorRules, "err != nil || action == \"\" {", "err != nil || action != \"?\" {", books},
	{"one member too many", peopleRules, "n >= ledger.MembersMax", "n > ledger.MembersMax", books},
	{"password link for somebody disabled", peopleRules, "(u == nil || !u.Disabled.IsZero())", "(u == nil)", books},
	{"older password link holds", peopleRules, "Links{Folded: folded, Purpose: l.Purpose}", "Links{Folded: folded, Purpose: \"?\"}", books},
	{"accepted link ended", peopleRules, "ledger.InviteLink || l.Session != (ledger.Hash{}) {", "ledger.InviteLink {", books},
	{"operator's change of a workspace not in their log", peopleRules, "if actor != operator {", "if actor != \"\" {", books},
	{"session of another user again", sessionRules, "known.User == n.User && now.Before", "now.Before", books},
	{"session that is over again", sessionRules, "n.User && now.Before(known.Ends):", "n.User:", books},
	{"one session too many", sessionRules, "len(held) >= ledger.SessionsMax", "len(held) > ledger.SessionsMax", books},
	{"the newest session ended", sessionRules, "slices.SortFunc(held, leastLately)", "slices.SortFunc(held, func(a, b ledger.Session) int { return leastLately(b, a) })",
		books},
	{"session of somebody else ended", sessionRules, "s == nil || s.User != user {", "s == nil {", books},
	{"the spared session ended", sessionRules, "if s.ID == but {", "if s.ID == (ledger.Hash{}) {", books},
	{"sessions of a lost commit not counted", sessionRules, "\t\tended, err := endAll(t, user, but, now)\n", "\t\tended, err := endAll(t, user, but, now)\n\t\tclear(tried)\n", lives},
	{"failed sign-in counted twice", sessionRules, "if a.Call != call {", "if a.Call != uuid.Nil || a.Failures == 0 {", lives},
	{"failed sign-ins never forgotten", sessionRules, "&& known[at].Ends > now {", "{", books},
	{"failures forgotten while one waits", sessionRules, "max(a.Ends, a.Refused+r.Window.Milliseconds())", "max(a.Ends, a.Refused)", books},
	{"wait that is over", sessionRules, "if a.Refused <= now {", "if a.Refused == 0 {", books},
	{"disabled twice", sessionRules, "if disabled != u.Disabled.IsZero() {", "if false {", books},
	{"links of somebody disabled", sessionRules, "{Folded: ledger.FoldEmail(u.Email)}", "{Folded: u.Email + \"?\"}", books},
	{"idle session listed", sessionRules, "now.Sub(s.Seen) > idle", "now.Sub(s.Seen) > forEver", books},
	{"waits that do not grow", peopleWords, "\t\twait *= 2\n", "", books},
	{"a wait for one failure less", peopleWords, "if failures < r.Free {", "if failures+1 < r.Free {", books},
	{"emails of another case", peopleWords, "return c + 'a' - 'A'", "return c", books},
	{"email of any length", peopleWords, "len(email) > EmailMax", "len(email) < 0", books},
	{"User-Agent cut within a letter", peopleWords, "for !utf8.RuneStart(text[at]) {", "for false {", books},
	{"SQL: idle session signed in", sqlSessions, "AND s.seen >= {now} - ?", "AND s.seen >= 0 * ?", books},
	{"SQL: session past its end signed in", sqlSessions, "AND s.ends > {now} AND", "AND", books},
	{"SQL: session of somebody disabled", sqlSessions, "- ? AND u.disabled = 0`", "- ?`", books},
	{"SQL: use of a session that is over", sqlSessions, "SET seen = ? WHERE ends > ? AND", "SET seen = ? WHERE ends + 0 * ? > 0 AND", books},
	{"SQL: use of a user's session that is over", sqlSessions, "FROM user_sessions WHERE ends > ? AND id", "FROM user_sessions WHERE ends + 0 * ? > 0 AND id", books},
	{"SQL: disabled owners count", sqlPeople, "'owner' AND u.disabled = 0 AND", "'owner' AND", books},
	{"SQL: invitations take no place", sqlPeople, "(SELECT count(*)` + openInvitations", "0 * (SELECT count(*)` + openInvitations", books},
	{"SQL: link read after its time", sqlPeople, "(!row.Open(transitions.Clock(now)) || disabled != 0)", "(disabled != 0)", books},
	{"SQL: link of somebody disabled read", sqlPeople, "(!row.Open(transitions.Clock(now)) || disabled != 0)", "(!row.Open(transitions.Clock(now)))", books},
	{"SQL: links for a password end others", sqlPeople, `where(of.Purpose != "", "purpose"`, `where(false, "purpose"`, books},
	{"SQL: invitations to other workspaces end", sqlPeople, `where(of.Workspace != uuid.Nil,`, `where(false,`, books},
	{"SQL: invitations that others made end", sqlPeople, `where(of.MadeBy != "",`, `where(false,`, books},
	{"who loses a role keeps invitations", peopleRules, "if err == nil && !role.Allows(is) {", "if false {", books},
	{"who gains a role loses invitations", peopleRules, "if err == nil && !role.Allows(is) {", "if err == nil {", books},
	{"who was an owner invites", peopleRules, "if err := onlyOwner(t, l.MadeBy, l.Workspace); err != nil {", "if err := error(nil); err != nil {", books},
	{"who was an owner gives roles", peopleRules, "if err := onlyOwner(t, actor, workspace); err != nil {", "if err := error(nil); err != nil {", books},
	{"links that somebody disabled made", sessionRules, "{MadeBy: userActor + user.String()}", "{MadeBy: user.String()}", books},
	{"a session of who signs in otherwise by now", sessionRules, "n.Proved != u.Factors()", "false", books},
	{"SQL: log of all workspaces", sqlPeople, "FROM workspace_log WHERE workspace = ?`", "FROM workspace_log WHERE workspace >= ?`", books},
	{"sessions swept at once", sqlSweep, "w.now-sessionsKept.Milliseconds()", "w.now", books},
	{"links swept at once", sqlSweep, "w.now-linksKept.Milliseconds()", "w.now", books},
	{"SQL: use of a revoked key", sqlTenants, "WHERE revoked = 0 AND last_used", "WHERE last_used", books},
	{"SQL: revoked by nobody", sqlTenants, "revoked_by = ? WHERE id", "revoked_by = substr(?, 1, 0) WHERE id", books},
	{"created by nobody", uploadRules, "\tn.MadeBy = ledger.Actor(ctx)\n", "\tn.MadeBy = \"\"\n", books},
}
