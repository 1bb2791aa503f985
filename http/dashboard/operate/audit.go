package operate

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rollcall/ledger"
)

// audits is the audit of this node that runs, and the last one.
type audits struct {
	mu      sync.Mutex
	running bool
	begun   time.Time
	by      string
	last    *auditDone
}

// auditDone is an audit that has ended.
type auditDone struct {
	Report ledger.AuditReport
	Failed string // why there is no report
	Begun  time.Time
	Took   float64 // seconds
	By     string
}

// auditView is the audits on the page Health.
type auditView struct {
	Running bool
	Begun   time.Time
	Last    *auditDone
	Changes bool
	Every   string // "": none runs
	Say     string
}

// auditEvery is how often an audit that runs is looked at.
const auditEvery = "2s"

// readAudit looks at what runs and at the last one.
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

// runAudit answers POST /health/audit. While one runs no other begins.
func runAudit(p *Pages, w http.ResponseWriter, r *request) {
	a := &p.audits
	a.mu.Lock()
	begin := !a.running
	if begin {
		a.running, a.begun, a.by = true, p.now(), r.in.Author
	}
	a.mu.Unlock()
	if begin {
		go a.run(p.desk.Long(), p.now, p.desk.Audit)
	}
	http.Redirect(w, r.Request, "/health", http.StatusSeeOther)
}

// run runs one and keeps what it found.
func (a *audits) run(ctx context.Context, now func() time.Time, do func(context.Context) (ledger.AuditReport, error)) {
	done := &auditDone{}
	defer func() {
		if fault := recover(); fault != nil {
			done.Failed = fmt.Sprintf("it ended with a fault of ours (%T)", fault)
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
