package operate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
)

const (
	// openShown bounds the list of open verifications.
	openShown = 100
	// openRead bounds how many verifications are read to find those to show. Guess: some 1 MB.
	openRead = 2000
	// waitMax bounds the text of a row about a wait for receivers, in bytes. Guess: two receivers with their causes.
	waitMax = 200
)

type openView struct {
	filesView
	Fit     int  // matching verifications, shown or not
	Overdue int  // of these
	More    int  // matching verifications that are not shown
	All     bool // all open ones were read
	Find    string
}

type filesView struct{ Rows []openRow }

type openRow struct {
	ledger.Verification
	Workspace string // its name; "" on the workspace's own page
	Name      string
	Age       float64 // seconds
	Done      int64
	Waits     string  // what it waits for, in a sentence
	Overdue   float64 // seconds; 0: not overdue
	Node      string  // node that works on it, or did last; "": none
	RanOut    bool    // its lease did
}

func verifications(p *Pages, w http.ResponseWriter, r *request) error {
	found, err := p.service.Open(r.Context(), openRead)
	if err != nil {
		return err
	}
	names, err := p.names(r)
	if err != nil {
		return err
	}
	v := openView{All: len(found) < openRead, Find: strings.ToLower(strings.TrimSpace(r.URL.Query().Get("find")))}
	found = slices.DeleteFunc(found, func(f ledger.Verification) bool { return !fits(f, names[f.Workspace], v.Find) })
	v.Fit, v.More = len(found), max(0, len(found)-openShown)
	for _, f := range found {
		if isOverdue(f, p.now()) {
			v.Overdue++
		}
	}
	v.Rows = rowsOf(found, names, p.nodeNames(r.Context()), p.now(), openShown)
	return p.show(w, r, http.StatusOK, "verifications", titled("Verifications", "verifications", v))
}

// fits reports whether the name of the workspace or of the file contains a text, or the id begins with it.
func fits(v ledger.Verification, workspace, find string) bool {
	return strings.Contains(strings.ToLower(cmp.Or(workspace, v.Workspace.String())), find) ||
		strings.Contains(strings.ToLower(fileName(v)), find) || strings.HasPrefix(v.ID.String(), find)
}

// rowsOf returns the rows of some files, in the order of stuckFirst.
func rowsOf(found []ledger.Verification, names, nodes map[uuid.UUID]string, now time.Time,
	most int) (rows []openRow) {
	slices.SortFunc(found, func(a, b ledger.Verification) int { return stuckFirst(a, b, now) })
	for _, f := range found[:min(len(found), most)] {
		rows = append(rows, rowOf(f, cmp.Or(names[f.Workspace], f.Workspace.String()), nodes, now))
	}
	return rows
}

func rowOf(v ledger.Verification, workspace string, nodes map[uuid.UUID]string, now time.Time) openRow {
	row := openRow{Verification: v, Workspace: workspace, Name: fileName(v),
		Age: now.Sub(v.Created).Seconds(), Done: v.Counts.Sum(), Waits: waitOf(v), RanOut: leaseRanOut(v, now)}
	if isOverdue(v, now) {
		row.Overdue = now.Sub(v.Expected).Seconds()
	}
	if v.LeasedBy != uuid.Nil {
		row.Node = cmp.Or(nodes[v.LeasedBy], v.LeasedBy.String()[:8])
	}
	return row
}

// waitOf returns what an open verification waits for, by its row in the ledger.
func waitOf(v ledger.Verification) string {
	has := v.LeasedBy != uuid.Nil
	switch v.State() {
	case ledger.State(ledger.Uploading):
		return fmt.Sprintf("The rest of its file: %s of %s bytes have arrived. The upload can continue until %s.",
			web.Thin(v.Durable), web.Thin(v.Bytes), web.When(v.UploadExpires))
	case ledger.WaitingCredits:
		return fmt.Sprintf("%s credits.", web.Thin(v.Total))
	case ledger.WaitingReceivers:
		return waitForReceivers(v)
	case ledger.State(ledger.Preparing):
		if has {
			return "A node to finish reading its file."
		}
		return "A node to read its file."
	case ledger.State(ledger.Cancelling):
		return "The replies to questions already sent: it was cancelled."
	}
	if has {
		return "Answers from receivers."
	}
	return "A node to continue it."
}

// waitForReceivers is waitOf for a verification that waits for receivers.
func waitForReceivers(v ledger.Verification) string {
	text := "Receivers that asked us to come back later."
	if v.Issue != nil && v.Issue.Message != "" {
		text = web.ShortTo(web.Sentence(strings.TrimSuffix(v.Issue.Message, ".")), waitMax)
	}
	next := v.NextTry
	if v.ParkedUntil.After(next) {
		next = v.ParkedUntil
	}
	if !next.IsZero() {
		text += " Next try at " + web.When(next) + "."
	}
	return text
}

// fileName returns the customer's name of a verification's file, or its kind.
func fileName(v ledger.Verification) string {
	switch {
	case v.Kind == ledger.Single:
		return "check of one address"
	case v.Filename != "":
		return v.Filename
	}
	return v.ID.String()
}

func (p *Pages) names(r *request) (map[uuid.UUID]string, error) {
	found, err := p.service.Names(r.Context())
	if err != nil {
		return nil, err
	}
	names := map[uuid.UUID]string{}
	for _, w := range found {
		names[w.ID] = w.Name
	}
	return names, nil
}

// nodeNames returns the names of the known nodes, by the ids in leases. Without a cluster it returns none.
func (p *Pages) nodeNames(ctx context.Context) map[uuid.UUID]string {
	names := map[uuid.UUID]string{}
	known, err := p.service.Members(ctx)
	if err != nil {
		return names
	}
	for _, m := range known.Members {
		names[m.Node], names[m.Session] = m.Name, m.Name
	}
	return names
}

const entriesShown = 100

type waitsView struct {
	inspect.Verification
	Waits []waitView
	Every string // "": it is over
	Left  string // expected time left; "": unknown
}

type waitView struct {
	inspect.Wait
	Words string
}

var waitWords = map[string]string{
	inspect.ForRoute:    "DNS to answer about their domain",
	inspect.ForReceiver: "their turn",
	inspect.ForRetry:    "another try after a deferral",
	inspect.ForControl:  "a test whether their domain accepts everything",
	inspect.ForDomain:   "other addresses of the file that go first",
	inspect.ForLedger:   "the ledger to save their outcomes",
}

const waitsEvery = "5s"

var errNoVerification = &admin.Refusal{Status: http.StatusNotFound, Message: "there is no verification with this id: compare it " +
	"with the id that the customer got"}

func (p *Pages) readWaits(r *request) (v waitsView, err error) {
	if v.Verification, err = p.service.Waits(r.Context(), r.id); err != nil {
		return v, err
	}
	if !ledger.Status(v.Status).Final() {
		v.Every = waitsEvery
		if left := v.Finish.Sub(p.now()); left > 0 {
			v.Left = web.About(left)
		}
	}
	slices.SortStableFunc(v.Verification.Waits, func(a, b inspect.Wait) int { return b.Addresses - a.Addresses })
	for _, wait := range v.Verification.Waits {
		v.Waits = append(v.Waits, waitView{wait, waitWords[wait.For]})
	}
	return v, nil
}

type verificationView struct {
	Now       waitsView
	Row       ledger.Verification
	Name      string
	Workspace string // its name
	MadeBy    string
	Overdue   float64 // seconds; 0: not overdue
	Money     moneyView
	Missing   string // why Row and Money are not shown; "": they are shown
}

type moneyView struct {
	admin.EntriesPage
	Pager web.Pager
}

// Agrees reports whether the entries leave the amount that the row still holds.
func (m moneyView) Agrees() bool {
	return m.Sums.Held-m.Sums.Charged-m.Sums.Released == m.Verification.Held
}

// verification answers GET /verifications/{id}. If the ledger does not answer, it shows only the nodes' answers.
func verification(p *Pages, w http.ResponseWriter, r *request) error {
	v := verificationView{Name: "One verification"}
	var err error
	if v.Now, err = p.readWaits(r); err != nil {
		return err
	}
	if err := p.readBook(r, &v); err != nil {
		if status := statusOf(err); status != http.StatusServiceUnavailable {
			return err
		}
		v.Missing = web.Sentence(plainly(err))
	}
	return p.show(w, r, http.StatusOK, "verification", refreshing(v.Name+" · Verifications", "verifications", v))
}

func (p *Pages) readBook(r *request, v *verificationView) (err error) {
	if v.Row, err = p.service.ReadVerification(r.Context(), r.id); err != nil {
		return err
	}
	v.Name = fileName(v.Row)
	names, err := p.names(r)
	if err != nil {
		return err
	}
	v.Workspace = cmp.Or(names[v.Row.Workspace], v.Row.Workspace.String())
	if now := p.now(); isOverdue(v.Row, now) {
		v.Overdue = now.Sub(v.Row.Expected).Seconds()
	}
	v.MadeBy = p.makerOf(r.Context(), v.Row.Workspace, v.Row.MadeBy)
	after := r.URL.Query().Get("after")
	if after != "" {
		v.Money.Pager.First = "/verifications/" + r.id.String() + "#money"
	}
	v.Money.EntriesPage, err = p.service.ReadEntries(r.Context(), admin.EntriesCall{
		Workspace: v.Row.Workspace, Verification: r.id, After: after, Limit: entriesShown})
	if v.Money.Next != "" {
		v.Money.Pager.More = "/verifications/" + r.id.String() + "?after=" + v.Money.Next + "#money"
	}
	return err
}

// makerOf returns the name of an actor for people, or the actor's id if the workspace can't be read.
func (p *Pages) makerOf(ctx context.Context, workspace uuid.UUID, actor string) string {
	kind, id, _ := strings.Cut(actor, ":")
	switch kind {
	case "":
		return ""
	case "key":
		keys, _ := p.service.ListKeys(ctx, workspace) // without them the id is shown
		for _, k := range keys {
			if k.ID == id && k.Label != "" {
				return "the key " + k.Label + " (rc_" + id + ")"
			}
		}
		return "the key rc_" + id
	case "user":
		members, _ := p.service.ListMembers(ctx, workspace) // without them the id is shown
		for _, m := range members {
			if m.User.String() == id {
				return m.Email
			}
		}
		return "a former member (" + id + ")"
	}
	return "an operator"
}

type evidenceView struct {
	evidence.Found
	Back, Name string
	Talk       *web.Talk
}

// showEvidence answers POST /verifications/{id}/evidence. It is a POST so that no URL contains the address. It
// changes nothing, so observers may use it.
func showEvidence(p *Pages, w http.ResponseWriter, r *request) error {
	v := evidenceView{Back: "/verifications/" + r.id.String(), Name: "the verification"}
	var err error
	if v.Found, err = p.service.ReadEvidence(r.Context(), r.id, web.Text(r.Request, "address")); err != nil {
		return noEvidence(v.Back, err)
	}
	if row, err := p.service.ReadVerification(r.Context(), r.id); err == nil {
		v.Name = fileName(row)
	}
	v.Talk = web.TalkOf(v.Result, v.Case, true)
	title := "One address · " + v.Name + " · Verifications"
	return p.show(w, r, http.StatusOK, "evidence", titled(title, "verifications", v))
}

func noEvidence(back string, err error) error {
	if status := statusOf(err); status != http.StatusNotFound && status != http.StatusGone && status != http.StatusBadRequest {
		return err
	}
	return web.Failure{Status: statusOf(err), Title: "There's no evidence for this address",
		Text: web.Sentence(plainly(err)), Next: "Go back to look for another one.", Link: back, Label: "To the verification"}
}
