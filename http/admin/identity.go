package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/identity"
	"rollcall/smtp/throttle"
)

// Identity is a node's report on its identity, the things that receivers judge a sender by.
type Identity struct {
	Eligible bool      `json:"eligible"`                 // no check fails
	Enforced bool      `json:"enforced"`                 // identity.enforce: the node probes only while it is eligible
	Probing  bool      `json:"probing"`                  // the node takes probing work now
	Why      string    `json:"why,omitempty"`            // it is not eligible
	Checked  *api.Time `json:"checked_at"`               // null: not yet
	Findings []Finding `json:"findings"`                 // by check and source
	Unread   int       `json:"unread_replies,omitempty"` // replies that no rule matched, since the start of the node
	Foreign  int       `json:"intercepted,omitempty"`    // how often something else answered in place of a receiver
}

// Finding is what one check found at one source.
type Finding struct {
	Check   identity.Check `json:"check"`
	Source  string         `json:"source"`         // IP address, or "" for findings about all sources
	List    string         `json:"list,omitempty"` // the block list that was asked
	State   identity.State `json:"state"`
	Saw     string         `json:"saw"`
	Next    string         `json:"next,omitempty"` // what to do
	Checked api.Time       `json:"checked_at"`
}

// IdentityOf converts a report to the form of the API.
func IdentityOf(r identity.Report, enforced bool) Identity {
	out := Identity{Eligible: r.Eligible(), Enforced: enforced, Probing: r.Eligible() || !enforced, Why: r.Why(),
		Checked: api.TimeOrNull(r.Checked), Findings: []Finding{}}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, Finding{Check: f.Check, Source: f.Source, List: f.List,
			State: f.State, Saw: f.Saw, Next: f.Next, Checked: api.Time(f.At)})
	}
	return out
}

// HealthOf converts an Identity to the form that nodes send each other.
func HealthOf(i Identity) inspect.Health {
	out := inspect.Health{Known: true, Probing: i.Probing, Enforced: i.Enforced, Why: i.Why, Unread: i.Unread,
		Foreign: i.Foreign}
	if i.Checked != nil {
		out.Checked = time.Time(*i.Checked)
	}
	for _, f := range i.Findings {
		out.Findings = append(out.Findings, inspect.HealthFinding{Check: string(f.Check), Source: f.Source, List: f.List,
			State: string(f.State), Saw: f.Saw, Next: f.Next})
	}
	return out
}

// checkTimeout bounds a check of everything. Guess: less than the 30 s that an operator's command waits; slow DNS
// answers within this time or never.
const checkTimeout = 25 * time.Second

func (d nodeOps) addRoutes(add addCall) {
	add("GET /v1/identity", plainCall(func(context.Context) (Identity, error) { return d.options.Identity(), nil }))
	add("POST /v1/identity/check", plainCall(d.checkIdentity))
	add("GET /v1/log", handle(logQuery, func(ctx context.Context, q ledger.LogQuery) (LogPage, error) {
		found, err := d.Log(ctx, q)
		out := LogPage{Lines: mapped(found, shownLine)}
		if n := len(found); n > 0 && n == q.Limit {
			out.Next = &LogPlace{api.Time(found[n-1].At), found[n-1].ID}
		}
		return out, err
	}))
}

// checkIdentity checks everything now, so that after correcting a record nobody waits for the next minute. Block lists
// are still asked only daily.
func (d nodeOps) checkIdentity(ctx context.Context) (Identity, error) {
	return ask(ctx, checkTimeout, d.options.CheckIdentity, func(error) error {
		return refusal(http.StatusServiceUnavailable, "unavailable",
			"the checks are not complete yet, because DNS is slow: GET /v1/identity will show the results")
	})
}

// Health returns every node's report on its identity: first this node's, then those of nodes that take no probing
// work. It also returns the nodes that do not answer. If no other node can be asked, it returns this node's report
// and the error.
func (d nodeOps) Health(ctx context.Context) (found []inspect.Health, silent []inspect.UnreachableNode, err error) {
	_, err = askNodes(ctx, d.common, "ask for the health of all nodes", func(ctx context.Context) (_ any, err error) {
		found, silent, err = d.options.Inspector.Health(ctx)
		return nil, err
	})
	if err == nil {
		return found, full(silent), nil
	}
	own := HealthOf(d.options.Identity())
	own.This = true
	return []inspect.Health{own}, nil, err
}

// Probing reports whether this node takes probing work, and if not, why. It asks no other node.
func (d nodeOps) Probing() (bool, string) {
	i := d.options.Identity()
	return i.Probing, i.Why
}

// readiness is the answer of a node that is ready for requests. A node that may not probe is ready too, because other
// nodes probe for its files, or the files wait. The answer says whether it probes, because operators look here first
// when a node does nothing.
func (d nodeOps) readiness() map[string]string {
	answer := map[string]string{"status": "ready"}
	if probing, _ := d.Probing(); !probing {
		answer["probing"] = "no: run `rollcall doctor` on this node"
	}
	return answer
}

// LogPage is one page of the operator log, newest first.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  *LogPlace `json:"next"` // place of the next page; null at the end
}

// shownName returns the name, for people, of what was changed.
func shownName(name string) string {
	if name == throttle.SourcePrefix {
		return name + inspect.DefaultSource
	}
	return name
}

// LogPlace is where a page begins: the parameters before and after of the call.
type LogPlace struct {
	Before api.Time  `json:"before"`
	After  uuid.UUID `json:"after"`
}

// LogLine is one change.
type LogLine struct {
	ID        uuid.UUID  `json:"id"`
	At        api.Time   `json:"at"`
	Action    string     `json:"action"`
	Author    string     `json:"author"`              // the author's own name; "": none given
	Workspace *uuid.UUID `json:"workspace,omitempty"` // it concerns
	Subject   string     `json:"subject"`
	Old       string     `json:"old"`
	New       string     `json:"new"`
	Reason    string     `json:"reason"`
}

// Log returns one page of the operator log, newest first.
func (d nodeOps) Log(ctx context.Context, q ledger.LogQuery) ([]ledger.LogLine, error) {
	return askLedger(ctx, d.common, "list the operator log", with(d.options.Book.OperatorLog, q))
}

func shownLine(l ledger.LogLine) LogLine {
	out := LogLine{ID: l.ID, At: api.Time(l.At), Action: l.Action, Author: l.Author, Subject: shownName(l.Subject),
		Old: l.Old, New: l.New, Reason: l.Reason}
	if l.Workspace != uuid.Nil {
		out.Workspace = &l.Workspace
	}
	return out
}

func logQuery(r *http.Request) (q ledger.LogQuery, err error) {
	values := r.URL.Query()
	if q.Limit, err = limitOf(r, entriesShown, ledger.LogLinesMax); err != nil {
		return q, err
	}
	if text := values.Get("before"); text != "" {
		if q.Before, err = time.Parse(time.RFC3339, text); err != nil {
			return q, invalid("before must be a time such as 2026-11-21T20:15:00.000Z")
		}
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = uuid.Parse(text); err != nil || q.Before.IsZero() {
			return q, invalid("before and after must be copied from next of an answer")
		}
	}
	return q, nil
}

// line is the log line of a change made outside the ledger.
func line(action, subject, now string) ledger.LogLine {
	return ledger.LogLine{Action: action, Subject: cut(subject), New: cut(now)}
}

// cut shortens a text to the bound of the operator log.
func cut(text string) string {
	if len(text) > ledger.OperatorTextMax {
		text = strings.ToValidUTF8(text[:ledger.OperatorTextMax], "")
	}
	return text
}
