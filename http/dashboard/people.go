package dashboard

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

type peopleView struct {
	Base    string
	Members []ledger.Membership
	All     int // members
	Links   []linkRow
	Invited int // open invitations, on this page or others
	Pager   web.Pager
	Form    string // the id of the invitation form
	Email   string
	Role    ledger.Role
	Problem string
	Done    string
	Made    string // the link just made, which is shown only now
	MadeFor string
	Again   bool // the link replaces an older one
}

// linkRow is an invitation that is not accepted yet.
type linkRow struct {
	ledger.Link
	Hex string // what the form sends
	By  string
}

func peoplePath(r *request) string { return r.base() + "/people" }

func showPeople(d *Dashboard, w http.ResponseWriter, r *request) error {
	done := map[string]string{
		"role":     "The role was changed. It takes effect within 5 seconds.",
		"removed":  "They're no longer a member. Their open pages stop within 5 seconds.",
		"sessions": "All sessions of that member were ended. They stop within 5 seconds.",
		"link":     "The invitation was withdrawn. Its link no longer works.",
	}[r.URL.Query().Get("done")]
	return d.showPeople(w, r, http.StatusOK, peopleView{Done: done, Role: ledger.Member})
}

// showPeople answers with the page of the members and the result of a form.
func (d *Dashboard) showPeople(w http.ResponseWriter, r *request, status int, v peopleView) error {
	members, err := d.o.Book.Members(r.Context(), r.workspace())
	var links []ledger.Link
	if err == nil {
		links, err = d.o.Book.OpenLinks(r.Context(), r.workspace())
	}
	if err != nil {
		return at("read members", err)
	}
	who := namer{}
	for _, m := range members {
		who["user:"+m.User.String()] = cmp.Or(m.Name, m.Email)
	}
	from, to, pages, ok := pageOf(r, peoplePath(r), len(links)+len(members)) // invitations first
	if !ok {
		return web.Nothing
	}
	for _, l := range between(links, from, to) {
		v.Links = append(v.Links, linkRow{Link: l, Hex: hex.EncodeToString(l.ID[:]), By: who.of(l.MadeBy)})
	}
	v.Invited, v.Pager = len(links), pages
	v.Members = between(members, from-len(links), to-len(links))
	v.Base, v.Form, v.All = peoplePath(r), uuid.NewString(), len(members)
	return d.show(w, r, status, "people", titled("People", "people", v))
}

// invite answers POST /w/{ws}/people with the link, once. A repeated form gives the same link.
func invite(d *Dashboard, w http.ResponseWriter, r *request) error {
	form, ok := web.ID(r.PostFormValue("form"))
	v := peopleView{Email: web.Text(r.Request, "email"), Role: ledger.Role(r.PostFormValue("role"))}
	switch {
	case !ok:
		v.Problem = "The form was incomplete. Please send it again."
	case ledger.CheckEmail(v.Email) != nil:
		v.Problem = "This isn't an email address. Write it like name@example.com."
	case !v.Role.Allows(ledger.Viewer):
		v.Problem = "Choose a role."
	}
	if v.Problem != "" {
		return d.showPeople(w, r, http.StatusUnprocessableEntity, v)
	}
	members, err := d.o.Book.Members(r.Context(), r.workspace())
	var older []ledger.Link
	if err == nil {
		older, err = d.o.Book.OpenLinks(r.Context(), r.workspace())
	}
	if err != nil {
		return at("read members", err)
	}
	for _, m := range members {
		if ledger.FoldEmail(m.Email) == ledger.FoldEmail(v.Email) {
			v.Problem = m.Email + " is already a member, as " + string(m.Role) +
				". To change the role, open their page in the list."
			return d.showPeople(w, r, http.StatusConflict, v)
		}
	}
	token := d.signin.TokenOf("invite", r.workspace().String(), r.in.User.ID.String(), form.String())
	id, _ := token.Hash()
	_, err = d.o.Book.MakeLink(r.Context(), ledger.Link{ID: id, Purpose: ledger.InviteLink, Workspace: r.workspace(),
		Email: v.Email, Role: v.Role, MadeBy: "user:" + r.in.User.ID.String()})
	switch {
	case errors.Is(err, ledger.ErrTooManyMembers):
		v.Problem = "The workspace has reached its limit of members and invitations. Remove a member or withdraw an invitation first."
		return d.showPeople(w, r, http.StatusConflict, v)
	case errors.Is(err, ledger.ErrIllegal):
		v.Problem = "This form was already sent with other values. Please send it again."
		return d.showPeople(w, r, http.StatusConflict, v)
	case err != nil:
		return at("make link", err)
	default:
		again := slices.ContainsFunc(older, func(l ledger.Link) bool {
			return l.ID != id && ledger.FoldEmail(l.Email) == ledger.FoldEmail(v.Email)
		})
		return d.showPeople(w, r, http.StatusOK, peopleView{Role: ledger.Member, MadeFor: v.Email, Again: again,
			Made: strings.TrimSuffix(d.o.PublicURL(), "/") + "/link/" + string(token)})
	}
}

// endLink answers POST /w/{ws}/people/links: it withdraws an invitation. A repeated form changes nothing.
func endLink(d *Dashboard, w http.ResponseWriter, r *request) error {
	id, _ := parseHash(r.PostFormValue("link"))
	err := d.o.Book.EndLink(r.Context(), r.workspace(), id)
	switch {
	case errors.Is(err, ledger.ErrNoSuchLink):
		return d.showPeople(w, r, http.StatusConflict, peopleView{Role: ledger.Member,
			Problem: "This invitation was already accepted, or it doesn't exist. If it was accepted, the person is among the members."})
	case err != nil:
		return at("end link", err)
	default:
		return seeOther(w, r, peoplePath(r)+"?done=link")
	}
}

type memberView struct {
	ledger.Membership
	Back    string
	Path    string
	Self    bool
	Form    string
	Problem string
}

// Who is the member's name, or email.
func (m memberView) Who() string { return cmp.Or(m.Name, m.Email) }

func memberOfPath(book ledger.Book, r *request) (memberView, error) {
	members, err := book.Members(r.Context(), r.workspace())
	if err != nil {
		return memberView{}, at("read members", err)
	}
	for _, m := range members {
		if m.User.String() == r.PathValue("user") {
			return memberView{Membership: m, Back: peoplePath(r), Path: peoplePath(r) + "/" + m.User.String(),
				Self: m.User == r.in.User.ID, Form: uuid.NewString()}, nil
		}
	}
	return memberView{}, web.Nothing
}

func showMember(d *Dashboard, w http.ResponseWriter, r *request) error {
	m, err := memberOfPath(d.o.Book, r)
	if err != nil {
		return err
	}
	return d.showMember(w, r, http.StatusOK, m)
}

func (d *Dashboard) showMember(w http.ResponseWriter, r *request, status int, m memberView) error {
	return d.show(w, r, status, "member", titled(m.Who()+" · People", "people", m))
}

// setRole answers POST /w/{ws}/people/{user}/role. The role "" ends the membership. A repeated form changes nothing.
func setRole(d *Dashboard, w http.ResponseWriter, r *request) error {
	role, done := ledger.Role(r.PostFormValue("role")), "role"
	if r.PostFormValue("remove") != "" {
		role, done = "", "removed"
	} else if !role.Allows(ledger.Viewer) {
		return web.Nothing
	}
	user, _ := web.ID(r.PathValue("user"))
	err := d.o.Book.SetRole(r.Context(), r.workspace(), user, role)
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser):
		return web.Nothing
	case errors.Is(err, ledger.ErrLastOwner):
		m, err := memberOfPath(d.o.Book, r)
		if err != nil {
			return err
		}
		m.Problem = "This is the last owner who can sign in. Make somebody else an owner first: without one, nobody could invite people " +
			"or revoke keys."
		return d.showMember(w, r, http.StatusConflict, m)
	case err != nil:
		return at("set role", err)
	default:
		d.signin.Changed(user)
		if user == r.in.User.ID && role != ledger.Owner {
			return seeOther(w, r, "/") // they may no longer see this page
		}
		return seeOther(w, r, peoplePath(r)+"?done="+done)
	}
}

// endMemberSessions answers POST /w/{ws}/people/{user}/sessions: it signs a member out everywhere.
func endMemberSessions(d *Dashboard, w http.ResponseWriter, r *request) error {
	m, err := memberOfPath(d.o.Book, r)
	if err != nil {
		return err
	}
	form, ok := web.ID(r.PostFormValue("form"))
	if !ok {
		m.Problem = "The form was incomplete. Please send it again."
		return d.showMember(w, r, http.StatusUnprocessableEntity, m)
	}
	line := uuid.NewSHA1(form, m.User[:]) // depends on the member too, because the browser chooses the form's id
	err = d.o.Book.LogWorkspace(r.Context(), r.workspace(), ledger.WorkspaceLine{ID: line, Action: "member sessions end",
		Subject: m.Email})
	if err == nil { // last, because this may end the acting session
		err = d.signin.EndOthers(r.Context(), ledger.User{ID: m.User}, ledger.Hash{})
	}
	if err != nil {
		return at("end sessions", err)
	}
	return seeOther(w, r, peoplePath(r)+"?done=sessions")
}

type logView struct {
	Base  string
	Lines []logLine
	Pager web.Pager
}

type logLine struct {
	At   time.Time
	Who  string
	What string
}

const logRows = 100

func showLog(d *Dashboard, w http.ResponseWriter, r *request) error {
	after, ok := openCursor(r.URL.Query().Get("after"))
	if !ok {
		return web.Nothing
	}
	found, err := d.o.Book.WorkspaceLog(r.Context(), ledger.WorkspaceLogQuery{Workspace: r.workspace(), After: after, Limit: logRows})
	var who namer
	if err == nil {
		who, err = namerOf(d.o.Book, r, nil)
	}
	if err != nil {
		return at("read the log", err)
	}
	v := logView{Base: r.base() + "/activity"}
	if after != nil {
		v.Pager.First = v.Base
	}
	for _, l := range found {
		v.Lines = append(v.Lines, logLine{At: l.At, Who: cmp.Or(l.Email, who.of(l.Actor), "not recorded"), What: logWords(l)})
	}
	if len(found) == logRows {
		last := found[len(found)-1]
		v.Pager.More = v.Base + "?after=" + sealCursor(ledger.Position{Created: last.At, ID: last.ID})
	}
	return d.show(w, r, http.StatusOK, "activity", titled("Activity", "activity", v))
}

// logActions describe actions. %s is the subject, %d the detail.
var logActions = map[string]string{
	"link create":         "invited %s as %d",
	"link end":            "withdrew the invitation of %s",
	"member join":         "joined as %d: %s",
	"member role":         "changed the role of %s: %d",
	"member end":          "removed %s, who was %d",
	"member sessions end": "ended all sessions of %s",
	"key create":          "made the key %d (rc_%s)",
	"key revoke":          "revoked the key %d (rc_%s)",
	"verification create": "made the verification %s of %d",
	"check create":        "checked one address (verification %s)",
	"verification cancel": "cancelled the verification %s",
	"results downloaded":  "downloaded %d of the results of the verification %s",
	"user invite":         "invited %s as %d",
}

// logWords describes a line of the log. An unknown action is shown by its own name.
func logWords(l ledger.WorkspaceLine) string {
	subject, detail := web.Short(l.Subject), web.Short(l.Detail)
	words, ok := logActions[l.Action]
	if !ok {
		return strings.TrimSpace(web.Short(l.Action) + " " + subject + " " + detail)
	}
	return strings.NewReplacer("%s", subject, "%d", detail).Replace(words)
}

const (
	// registerRows is how many results a page shows.
	registerRows = 50

	// newestRows is how many results the page of the verification shows.
	newestRows = 10
)

type registerView struct {
	Base     string
	Name     string
	Rows     []resultView
	Outcome  string
	Reason   string
	Find     string
	Outcomes []smtp.Outcome
	Reasons  []smtp.Reason
	Older    bool
	From     string // link to older ones
	First    bool
	Problem  string
	Final    bool
}

type resultView struct {
	ledger.RecentResult
	Word, Sentence string
}

// Link is the path of the page about this address.
func (r resultView) Link() string { return fmt.Sprintf("addresses/%d?in=%d", r.Ordinal, r.Settlement) }

// showResults answers GET and POST /w/{ws}/verifications/{id}/results. The search text comes in the body, because every
// proxy logs URLs.
func showResults(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	show := registerView{Base: baseOf(r, v), Name: nameOf(v), Outcome: r.FormValue("outcome"), Reason: r.FormValue("reason"),
		Find: web.Text(r.Request, "find"), Outcomes: smtp.Outcomes[:], Reasons: smtp.Reasons(), Final: v.Status.Final()}
	outcome, okOutcome := named(show.Outcome, smtp.Outcomes[:])
	reason, okReason := named(show.Reason, smtp.Reasons())
	from, okFrom := recentPlace(r.FormValue("from"))
	q := ledger.RecentQuery{Workspace: r.workspace(), Verification: v.ID, Outcome: outcome, Reason: reason, Find: show.Find,
		From: from, Limit: registerRows}
	if !okOutcome || !okReason || !okFrom || q.Check() != nil {
		show.Problem, show.Outcome, show.Reason, show.Find = "This filter isn't valid: check the outcome, the reason and the text.", "", "", ""
		return d.showRegister(w, r, http.StatusUnprocessableEntity, show)
	}
	page, err := d.o.Book.RecentResults(r.Context(), q)
	switch {
	case errors.Is(err, ledger.ErrResultsExpired):
		show.Problem = "The results were deleted when their retention time ended. The counts stay."
		return d.showRegister(w, r, http.StatusGone, show)
	case err != nil:
		return at("read results", err)
	}
	show.Rows, show.First = rowsOf(page.Results), from == nil
	if page.Next != nil {
		show.Older, show.From = true, fmt.Sprintf("%d.%d", page.Next.Settlement, page.Next.Row)
	}
	return d.showRegister(w, r, http.StatusOK, show)
}

func rowsOf(results []ledger.RecentResult) (rows []resultView) {
	for _, one := range results {
		rows = append(rows, resultView{one, one.Outcome.String(), web.SentenceOf(one.Reason)})
	}
	return rows
}

// newest reads the newest results of a verification. It returns nil if they have expired.
func newest(book ledger.Book, r *request, v ledger.Verification) (*registerView, error) {
	page, err := book.RecentResults(r.Context(),
		ledger.RecentQuery{Workspace: r.workspace(), Verification: v.ID, Limit: newestRows})
	if errors.Is(err, ledger.ErrResultsExpired) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows := rowsOf(page.Results)
	for !v.Status.Final() && len(rows) < int(min(newestRows, v.Total)) { // room for coming ones
		rows = append(rows, resultView{})
	}
	return &registerView{Base: baseOf(r, v), Rows: rows}, nil
}

func (d *Dashboard) showRegister(w http.ResponseWriter, r *request, status int, show registerView) error {
	return d.show(w, r, status, "results", titled("Results · "+show.Name+" · Verifications", "list", show))
}

// recentPlace reads the position to continue from. For "" there is none.
func recentPlace(text string) (*ledger.RecentPlace, bool) {
	if text == "" {
		return nil, true
	}
	settlement, row, _ := strings.Cut(text, ".")
	s, errS := strconv.ParseInt(settlement, 10, 64)
	n, errR := strconv.Atoi(row)
	return &ledger.RecentPlace{Settlement: s, Row: n}, errS == nil && errR == nil
}

type breakdownView struct {
	Base, Name string
	Total      int64
	Reasons    []reasonView
	Worst      []worstView
	AtLeast    bool
}

type reasonView struct {
	Word, Token, Sentence string
	Count                 int64
}

type worstView struct {
	Domain, Token, Sentence string
	Unknown                 int64
}

// breakdowns caches the breakdowns of final verifications, which never change. Safe for concurrent use.
type breakdowns struct {
	reading singleflight.Group // by the id of the verification, so that simultaneous requests share one read
	kept    *lru.Cache[uuid.UUID, ledger.Breakdown]
}

// breakdownsMax bounds the cache, some 5 kB for each breakdown.
const breakdownsMax = 200

func newBreakdowns() *breakdowns {
	b := &breakdowns{}
	b.kept, _ = lru.New[uuid.UUID, ledger.Breakdown](breakdownsMax)
	return b
}

// get returns the breakdown of a final verification while its results are kept, and afterwards
// ledger.ErrResultsExpired.
func (b *breakdowns) get(ctx context.Context, book ledger.Book, v ledger.Verification) (ledger.Breakdown, error) {
	kept, known := b.kept.Get(v.ID)
	if !known {
		read, err, _ := b.reading.Do(v.ID.String(), func() (any, error) {
			read, err := book.Breakdown(ctx, v.Workspace, v.ID)
			if err == nil {
				b.kept.Add(v.ID, read)
			}
			return read, err
		})
		return read.(ledger.Breakdown), err
	}
	// No settlement has a number above the last one, so this only checks whether the results have expired.
	if _, err := book.Evidence(ctx, v.ID, v.Settlements, func(ledger.StoredSettlement) error { return nil }); err != nil {
		if errors.Is(err, ledger.ErrResultsExpired) {
			b.kept.Remove(v.ID)
		}
		return ledger.Breakdown{}, err
	}
	return kept, nil
}

func showBreakdown(d *Dashboard, w http.ResponseWriter, r *request, v ledger.Verification) error {
	found, err := ledger.Breakdown{}, error(ledger.ErrResultsExpired)
	if v.Status.Final() {
		found, err = d.breakdowns.get(r.Context(), d.o.Book, v)
	}
	if errors.Is(err, ledger.ErrResultsExpired) {
		refusal := failure{Status: http.StatusConflict, Title: "There's no summary of reasons yet",
			Text: "The summary is made from the results of a finished verification.",
			Next: "You can look at the existing results one by one.", Link: baseOf(r, v), Label: "To the verification"}
		if v.Status.Final() {
			refusal.Title, refusal.Text = "The summary of reasons is gone", "The results were deleted when their retention time ended."
			refusal.Next = "The counts of outcomes stay on the page of the verification."
		}
		return refusal
	}
	if err != nil {
		return at("read reasons", err)
	}
	show := breakdownView{Base: baseOf(r, v), Name: nameOf(v), AtLeast: found.AtLeast}
	for _, c := range found.Reasons {
		show.Total += c.Count
		show.Reasons = append(show.Reasons, reasonView{c.Outcome.String(), c.Reason.String(), web.SentenceOf(c.Reason),
			c.Count})
	}
	for _, w := range found.Worst {
		show.Worst = append(show.Worst, worstView{w.Domain, w.Reason.String(), web.SentenceOf(w.Reason), w.Unknown})
	}
	return d.show(w, r, http.StatusOK, "reasons", titled("Reasons · "+show.Name+" · Verifications", "list", show))
}
