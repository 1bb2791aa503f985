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

	"rollcall/http/web"
	"rollcall/ledger"
)

const (
	// openShown bounds the list of open verifications.
	openShown = 100
	// openRead bounds those that are read, from which the first ones are shown. Guess: some 1 MB.
	openRead = 2000
	// waitMax bounds what a row says about a wait for receivers, in bytes. Guess: two receivers with what they asked for.
	waitMax = 200
)

// openView is what is not done, of all workspaces.
type openView struct {
	filesView
	Fit     int  // that fit, also those that are not shown
	Overdue int  // of these
	More    int  // that fit and are not shown
	All     bool // all open ones were looked at
	Find    string
}

// filesView is a table of verifications that are not done.
type filesView struct{ Rows []openRow }

// openRow is a verification that is not done.
type openRow struct {
	ledger.Verification
	Workspace string // its name; "": it is known from elsewhere
	Name      string
	Age       float64 // seconds
	Done      int64
	Waits     string  // for what, in a sentence
	Overdue   float64 // seconds; 0: it is not
	Node      string  // that has it, or had it; "": none
	RanOut    bool    // its lease did
}

// verifications answers GET /verifications.
func verifications(p *Pages, w http.ResponseWriter, r *request) {
	found, err := p.desk.Open(r.Context(), openRead)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	names, err := p.names(r)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	now := p.now()
	v := openView{All: len(found) < openRead, Find: strings.ToLower(strings.TrimSpace(r.URL.Query().Get("find")))}
	found = slices.DeleteFunc(found, func(f ledger.Verification) bool { return !fits(f, names[f.Workspace], v.Find) })
	slices.SortFunc(found, func(a, b ledger.Verification) int { return stuckFirst(a, b, now) })
	v.Fit, v.More = len(found), max(0, len(found)-openShown)
	for _, f := range found {
		if isOverdue(f, now) {
			v.Overdue++
		}
	}
	nodes := p.nodeNames(r.Context())
	for _, f := range found[:len(found)-v.More] {
		v.Rows = append(v.Rows, rowOf(f, cmp.Or(names[f.Workspace], f.Workspace.String()), nodes, now))
	}
	p.show(w, r, http.StatusOK, "verifications", titled("Verifications", "verifications", v))
}

// fits reports whether a text is in the name of the workspace or of the file, or begins the id.
func fits(v ledger.Verification, workspace, find string) bool {
	return strings.Contains(strings.ToLower(cmp.Or(workspace, v.Workspace.String())), find) ||
		strings.Contains(strings.ToLower(fileName(v)), find) || strings.HasPrefix(v.ID.String(), find)
}

// rowOf shows one.
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

// waitOf says what an open verification waits for, as its row in the ledger tells it.
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
		return "The end of the running questions: it was cancelled."
	}
	if has {
		return "Answers from receivers."
	}
	return "A node to continue it."
}

// waitForReceivers says the same of one that waits for receivers.
func waitForReceivers(v ledger.Verification) string {
	text := "Receivers that asked us to come back later."
	if v.Issue != nil && v.Issue.Message != "" {
		text = web.ShortTo(web.Sentence(strings.TrimSuffix(v.Issue.Message, ".")), waitMax)
	}
	next := v.NextTry
	if v.RestsUntil.After(next) {
		next = v.RestsUntil
	}
	if !next.IsZero() {
		text += " Next try at " + web.When(next) + "."
	}
	return text
}

// fileName is what a verification is called: the customer's name of the file, or what it is.
func fileName(v ledger.Verification) string {
	switch {
	case v.Kind == ledger.Single:
		return "check of one address"
	case v.Filename != "":
		return v.Filename
	}
	return v.ID.String()
}

// names are the names of the workspaces.
func (p *Pages) names(r *request) (map[uuid.UUID]string, error) {
	found, err := p.desk.Names(r.Context())
	if err != nil {
		return nil, err
	}
	names := map[uuid.UUID]string{}
	for _, w := range found {
		names[w.ID] = w.Name
	}
	return names, nil
}

// nodeNames are the names of the nodes that this one knows, by what leases call them. Without a cluster there are none.
func (p *Pages) nodeNames(ctx context.Context) map[uuid.UUID]string {
	names := map[uuid.UUID]string{}
	known, err := p.desk.Members(ctx)
	if err != nil {
		return names
	}
	for _, m := range known.Members {
		names[m.Node], names[m.Session] = m.Name, m.Name
	}
	return names
}
