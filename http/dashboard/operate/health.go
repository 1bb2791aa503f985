package operate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/web"
	"rollcall/ledger"
)

// healthRows bounds the checks of all nodes on the page Health. Problems are shown first. Guess: twenty nodes with
// one source each have fewer checks.
const healthRows = 300

type healthView struct {
	Ledger bool // it answers
	Nodes  []nodeHealth
	Silent []inspect.UnreachableNode
	Away   string // why other nodes are missing
	Audit  auditView
}

// Answer says how many problems there are.
func (v healthView) Answer() string {
	bad := len(v.Silent)
	for _, n := range v.Nodes {
		bad += len(n.Bad)
	}
	if !v.Ledger {
		bad++
	}
	if bad == 0 {
		return "Everything works"
	}
	return web.Plural(bad, "thing") + " to see to"
}

type checksView struct {
	Caption string
	Rows    []inspect.HealthFinding
}

// nodeHealth is one node's report, divided into problems (Bad) and other checks (Rest).
type nodeHealth struct {
	inspect.Health
	Bad, Rest []inspect.HealthFinding
}

// Failing returns the problems.
func (n nodeHealth) Failing() checksView {
	return checksView{"Checks that fail or warn on " + cmp.Or(n.Node, "this node"), n.Bad}
}

// Passing returns the other checks.
func (n nodeHealth) Passing() checksView {
	return checksView{"Checks that neither fail nor warn on " + cmp.Or(n.Node, "this node"), n.Rest}
}

// divideChecks distributes the page's rows among the checks of all nodes, failures and warnings first.
func divideChecks(nodes []nodeHealth, room int) {
	for _, bad := range []bool{true, false} {
		for i := range nodes {
			n := &nodes[i]
			for _, f := range n.Findings {
				if is := f.State == "fail" || f.State == "warn"; is != bad {
					continue
				}
				if room--; room < 0 {
					n.More++
				} else if bad {
					n.Bad = append(n.Bad, f)
				} else {
					n.Rest = append(n.Rest, f)
				}
			}
		}
	}
}

// health answers GET /health. If other nodes can't be asked, it shows only this node.
func health(p *Pages, w http.ResponseWriter, r *request) error {
	found, silent, err := p.service.Health(r.Context())
	v := healthView{Ledger: p.service.LedgerAnswers(r.Context()), Silent: silent}
	if err != nil {
		v.Away = "Other nodes are not shown: " + plainly(err) + "."
	}
	for _, h := range found {
		v.Nodes = append(v.Nodes, nodeHealth{Health: h})
	}
	divideChecks(v.Nodes, healthRows)
	v.Audit, _ = p.readAudit(r)
	return p.show(w, r, http.StatusOK, "health", refreshing("Health", "health", v))
}

// audits is this node's running audit and its last one.
type audits struct {
	mu      sync.Mutex
	running bool
	begun   time.Time
	by      string
	last    *auditDone
}

type auditDone struct {
	Report ledger.AuditReport
	Failed string // why there is no report
	Begun  time.Time
	Took   float64 // seconds
	By     string
}

type auditView struct {
	Running bool
	Begun   time.Time
	Last    *auditDone
	Changes bool
	Every   string // "": none runs
	Say     string
}

const auditEvery = "2s"

func (p *Pages) readAudit(r *request) (auditView, error) {
	a := &p.audits
	a.mu.Lock()
	defer a.mu.Unlock()
	v := auditView{Running: a.running, Begun: a.begun, Last: a.last, Changes: !r.in.ReadOnly, Say: "No audit runs."}
	if v.Running {
		v.Every, v.Say = auditEvery, "An audit runs."
	}
	return v, nil
}

// runAudit answers POST /health/audit. Only one audit runs at a time.
func runAudit(p *Pages, w http.ResponseWriter, r *request) error {
	a := &p.audits
	a.mu.Lock()
	begin := !a.running
	if begin {
		a.running, a.begun, a.by = true, p.now(), r.in.Author
	}
	a.mu.Unlock()
	if begin {
		go a.run(p.service.Long(), p.now, p.service.Audit)
	}
	return seeOther(w, r, "/health")
}

func (a *audits) run(ctx context.Context, now func() time.Time, do func(context.Context) (ledger.AuditReport, error)) {
	done := &auditDone{}
	defer func() {
		if fault := recover(); fault != nil {
			done.Failed = fmt.Sprintf("it failed with a bug of this program (%T)", fault)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		done.Begun, done.By, done.Took = a.begun, a.by, now().Sub(a.begun).Seconds()
		a.running, a.last = false, done
	}()
	report, err := do(ctx)
	if err != nil {
		done.Failed = plainly(err)
	}
	done.Report = report
}

// stuckFirst orders open verifications by how much they need attention: first overdue ones, the longest overdue first;
// then those with an issue or an expired lease; then the others. In the last two groups the oldest comes first.
func stuckFirst(a, b ledger.Verification, now time.Time) int {
	group := func(v ledger.Verification) int {
		switch {
		case isOverdue(v, now):
			return 0
		case v.Issue != nil || leaseRanOut(v, now):
			return 1
		}
		return 2
	}
	of := group(a)
	order := cmp.Compare(of, group(b))
	if order == 0 && of == 0 {
		order = a.Expected.Compare(b.Expected)
	}
	return cmp.Or(order, a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
}

// isOverdue reports whether the expected end of a verification has passed.
func isOverdue(v ledger.Verification, now time.Time) bool {
	return !v.Expected.IsZero() && v.Expected.Before(now)
}

func leaseRanOut(v ledger.Verification, now time.Time) bool {
	if v.LeasedUntil.IsZero() { // the ledger returns no time for an expired lease
		return v.LeasedBy != uuid.Nil
	}
	return !v.LeasedUntil.After(now)
}

const logShown = 100

type logView struct {
	Lines []logLine
	Pager web.Pager
}

// logLine is one line. On names its subject, and the workspace.
type logLine struct {
	ledger.LogLine
	On string
}

func showLog(p *Pages, w http.ResponseWriter, r *request) error {
	q := ledger.LogQuery{Limit: logShown}
	if text := r.URL.Query().Get("before"); text != "" {
		var err error
		if q.Before, err = time.Parse(time.RFC3339Nano, text); err == nil {
			q.After, err = uuid.Parse(r.URL.Query().Get("after"))
		}
		if err != nil {
			return seeOther(w, r, "/log")
		}
	}
	found, err := p.service.Log(r.Context(), q)
	if err != nil {
		return err
	}
	names, err := p.names(r)
	if err != nil {
		return err
	}
	v := logView{}
	if !q.Before.IsZero() {
		v.Pager.First = "/log"
	}
	for _, l := range found {
		v.Lines = append(v.Lines, logLine{l, logSubject(l, names[l.Workspace])})
	}
	if n := len(found); n == logShown {
		v.Pager.More = "/log?before=" + found[n-1].At.UTC().Format(time.RFC3339Nano) + "&after=" + found[n-1].ID.String()
	}
	return p.show(w, r, http.StatusOK, "log", titled("Log", "log", v))
}

// logSubject returns the subject of a line, with the workspace's name in place of its id.
func logSubject(l ledger.LogLine, workspace string) string {
	switch {
	case workspace == "":
		return l.Subject
	case l.Subject == l.Workspace.String(), uuid.Validate(l.Subject) == nil: // the id of a grant means nothing to people
		return workspace
	}
	return l.Subject + " in " + workspace
}
