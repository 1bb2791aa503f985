package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"rollcall/ledger"
)

// Desk is what operators see and do, as values: the operator API writes them as JSON, and the pages draw them. Every error
// is a *Refusal. Who makes a change is in the context: ledger.WithActor and ledger.WithAuthor. Safe for concurrent use.
type Desk struct {
	options Options
	replays chan struct{}   // holds one for the replay that may run
	long    context.Context // see Long
}

// Refusal says why something is not answered or not done. The message says what to do, for callers of the operator API.
type Refusal struct {
	Status  int // of HTTP
	Code    string
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// refusal makes a Refusal.
func refusal(status int, code, message string) error { return &Refusal{status, code, message} }

// answer answers with v, or with why there is none.
func answer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, v)
		return
	}
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{http.StatusInternalServerError, "internal", "report this"}
	}
	refuse(w, r.Status, r.Code, r.Message)
}

// errNoSurvey and others say that this process cannot answer, and another one can.
var (
	errNoSurvey   = refusal(http.StatusConflict, "no_survey", "this process does not probe: ask another node")
	errNoThrottle = refusal(http.StatusConflict, "no_throttle", "this process does not probe: ask another node")
	errNoCluster  = refusal(http.StatusConflict, "no_cluster", "this process is no node of a cluster: ask another one")
)

// named checks a text for people.
func named(field, text string, least int) error {
	if n := utf8.RuneCountInString(strings.TrimSpace(text)); n < least || n > nameMax {
		return refusal(http.StatusBadRequest, "invalid_request",
			fmt.Sprintf("%s must have %d to %d characters", field, least, nameMax))
	}
	return nil
}

// keyOf checks the key of a receiver, or the name of a rule or of a source.
func keyOf(field, text string) (string, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || len(text) > keyMax {
		return "", refusal(http.StatusBadRequest, "invalid_request",
			fmt.Sprintf("%s must have 1 to %d characters: a receiver "+
				"as GET /v1/receivers has them, a mail domain, an MX host suffix, or source: and an address", field, keyMax))
	}
	return text, nil
}

// note writes a line of the operator log about what is done already: when the ledger does
// not take it, the node's own log has it, without the emails of users.
func (d *Desk) note(ctx context.Context, l ledger.LogLine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
	defer cancel()
	if err := d.options.Book.Note(ctx, l); err != nil {
		if strings.HasPrefix(l.Action, "user ") { // its subject is an email
			l.Subject = ""
		}
		d.options.Log.Warn("operator log not written", "action", l.Action, "subject", l.Subject, "new", l.New,
			"author", ledger.Author(ctx), "err", err)
	}
}

// tuned lets this node follow a change at once.
func (d *Desk) tuned() {
	if d.options.Tuned != nil {
		d.options.Tuned()
	}
}

// ofLedger is the refusal for an error of the ledger.
func (d *Desk) ofLedger(step string, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNoSuchWorkspace):
		return refusal(http.StatusNotFound, "workspace_not_found", "there is no such workspace; see GET /v1/workspaces")
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return refusal(http.StatusNotFound, "verification_not_found",
			"this workspace has no such verification; see GET /v1/workspaces and its own GET /v1/verifications")
	case errors.Is(err, ledger.ErrNoSuchKey):
		return refusal(http.StatusNotFound, "key_not_found", "there is no such key; see GET /v1/workspaces/{id}/keys")
	case errors.Is(err, ledger.ErrIllegal):
		return refusal(http.StatusConflict, "conflict",
			"the id was used with other values, or the sum is too large; use a new id for a new grant")
	}
	d.options.Log.Warn("ledger did not answer", "stage", step, "err", err)
	return refusal(http.StatusServiceUnavailable, "unavailable", "the ledger did not answer; send the same call again")
}

// ofSurvey is the refusal for an error of the survey.
func (d *Desk) ofSurvey(step string, err error) error {
	d.options.Log.Warn("nodes did not answer", "stage", step, "err", err)
	return refusal(http.StatusServiceUnavailable, "unavailable",
		"this cannot be answered now: send the same call again; the node's log says why")
}

// Probing says whether this node takes probing work, and if not, why. It asks nobody.
func (d *Desk) Probing() (bool, string) {
	if d.options.Identity == nil {
		return true, ""
	}
	i := d.options.Identity()
	return i.Probing, i.Why
}

// LedgerAnswers says whether the ledger does.
func (d *Desk) LedgerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return d.options.Book.Ping(ctx) == nil
}

// surveyed bounds a question to all nodes; an error when nobody asks them.
func (d *Desk) surveyed(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if d.options.Survey == nil {
		return ctx, func() {}, errNoSurvey
	}
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	return ctx, cancel, nil
}

// Pages are what operators see in a browser.
type Pages interface {
	http.Handler
	// Link makes a path that signs somebody in once, and says until when it can.
	Link(author string, readOnly bool) (path string, until time.Time)
}
