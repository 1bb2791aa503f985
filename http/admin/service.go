package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/ledger"
)

// Service holds, as values, all that operators can see and do. The operator API writes them as JSON, and the pages
// show them. Every error is a *Refusal. The context has the author of a change: ledger.WithActor and
// ledger.WithAuthor. Safe for concurrent use.
type Service struct {
	*common
	workspaceOps
	verificationOps
	receiverOps
	throttleOps
	clusterOps
	userOps
	nodeOps
}

// The parts of a Service, by subject.
type (
	workspaceOps    struct{ *common } // keys, credits and limits of workspaces, and audits
	verificationOps struct{ *common }
	receiverOps     struct{ *common } // and our sources
	throttleOps     struct{ *common }
	clusterOps      struct{ *common }
	userOps         struct{ *common }
	nodeOps         struct{ *common } // findings and log of the answering node
)

// newService makes a Service whose long calls end with ctx.
func newService(ctx context.Context, o Options) *Service {
	c := &common{options: o, replays: make(chan struct{}, 1), long: ctx}
	return &Service{c, workspaceOps{c}, verificationOps{c}, receiverOps{c}, throttleOps{c}, clusterOps{c}, userOps{c},
		nodeOps{c}}
}

// common is what all parts of a Service need.
type common struct {
	options Options
	replays chan struct{}   // full while a replay runs
	long    context.Context // see Long
}

// Refusal says why a call is refused. The message says what to do, for callers of the operator API.
type Refusal struct {
	Status  int // of HTTP
	Code    string
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refusal(status int, code, message string) error { return &Refusal{status, code, message} }

func named(field, text string, least int) error {
	if n := utf8.RuneCountInString(strings.TrimSpace(text)); n < least || n > nameMax {
		return invalid(fmt.Sprintf("%s must have %d to %d characters", field, least, nameMax))
	}
	if ledger.CheckName(text) != nil {
		return invalid(field + " must have no controls, line breaks or marks that turn the direction of text")
	}
	return nil
}

// keyOf checks the key of a receiver, or the name of a rule or of a source.
func keyOf(field, text string) (string, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || len(text) > keyMax {
		return "", invalid(fmt.Sprintf("%s must have 1 to %d characters: a receiver "+
			"from GET /v1/receivers, a mail domain, an MX host suffix, or source: and an address", field, keyMax))
	}
	return text, nil
}

// note writes a line of the operator log about a change already made. If the ledger refuses the line, it goes into
// the node's own log, without the emails of users.
func (d *common) note(ctx context.Context, l ledger.LogLine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout)
	defer cancel()
	if err := d.options.Book.Note(ctx, l); err != nil {
		if strings.HasPrefix(l.Action, "user ") { // the subject is an email
			l.Subject = ""
		}
		d.options.Log.Warn("operator log not written", "action", l.Action, "subject", l.Subject, "new", l.New,
			"author", ledger.Author(ctx), "err", err)
	}
}

func (d *common) ofLedger(step string, err error) error {
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

// ask runs a question with a time limit, and turns an error that is no refusal into one.
func ask[T any](
	ctx context.Context, within time.Duration, do func(context.Context) (T, error), refuse func(error) error,
) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := do(ctx)
	if _, refused := errors.AsType[*Refusal](err); err != nil && !refused {
		err = refuse(err)
	}
	return found, err
}

func askLedger[T any](ctx context.Context, d *common, step string, do func(context.Context) (T, error)) (T, error) {
	return ask(ctx, ledgerTimeout, do, func(err error) error { return d.ofLedger(step, err) })
}

// with binds the argument of a call of the ledger, for askLedger.
func with[In, T any](do func(context.Context, In) (T, error), in In) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return do(ctx, in) }
}

// longCall returns a context for an audit or for reading evidence. It ends when the listener drains.
func (d *common) longCall(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	if d.long.Err() != nil {
		cancel()
	}
	stop := context.AfterFunc(d.long, cancel)
	return ctx, func() { stop(); cancel() }
}

// LedgerAnswers reports whether the ledger answers.
func (d *common) LedgerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return d.options.Book.Ping(ctx) == nil
}

// Pages are the operators' web pages.
type Pages interface {
	http.Handler
	// Link makes a path that signs in once, and returns its expiry.
	Link(author string, readOnly bool) (path string, until time.Time)
}

// Long returns the context of work that outlasts a page's request. It ends when the listener drains.
func (d *common) Long() context.Context { return d.long }

func askNodes[T any](ctx context.Context, d *common, step string, do func(context.Context) (T, error)) (T, error) {
	return ask(ctx, inspectTimeout, do, func(err error) error { return d.refuseQuery(step, err) })
}

// refuseQuery returns the refusal for an error of the nodes or of the question.
func (d *common) refuseQuery(step string, err error) error {
	var unreachable *inspect.Unreachable
	switch {
	case errors.As(err, &unreachable):
		return refusal(http.StatusServiceUnavailable, "node_silent", unreachable.Error()+
			": this node may have it. Ask again, or see `rollcall cluster members`")
	case errors.Is(err, inspect.ErrNotThere):
		return refusal(http.StatusNotFound, "receiver_not_found",
			"no such receiver is asked now, or the session has ended; "+
				"see GET /v1/receivers for present ones, and GET /v1/throttle/explain for the limits that would apply")
	}
	d.options.Log.Warn("nodes did not answer", "stage", step, "err", err)
	return refusal(http.StatusServiceUnavailable, "unavailable",
		"this cannot be answered now: send the same call again; the node's log says why")
}

// Inspector asks every node of the cluster about its work. Its answers name the nodes that do not answer within a
// second or two. Methods are safe for concurrent use and end with ctx.
type Inspector interface {
	Receivers(ctx context.Context) (inspect.Receivers, error)
	// Receiver returns everything about one receiver, by its key or the name of a rule: one value for each of its
	// nodes. Errors: inspect.ErrNotThere, or an inspect.Unreachable if a node that may have the receiver does not
	// answer.
	Receiver(ctx context.Context, key string) ([]inspect.ReceiverDetail, error)
	Sources(ctx context.Context) ([]inspect.Source, []inspect.UnreachableNode, error)
	// CloseSession ends one session after the command in progress. Error: inspect.ErrNotThere.
	CloseSession(ctx context.Context, key, node string, session int) error
	// Forget clears the learned limits of a receiver on all nodes: what is one of inspect.Forgets. Nodes that do not
	// answer may keep them. Errors: inspect.ErrNotThere; an inspect.Unreachable if a node that may have the receiver
	// does not answer.
	Forget(ctx context.Context, key, what string) ([]inspect.Forgotten, []inspect.UnreachableNode, error)
	// Trace returns the newest lines of a receiver's sessions with numbers above after, by node, at most 1,000 of each
	// node. Nodes record lines from the first call until ten seconds after the last one.
	Trace(ctx context.Context, key, source string, after map[string]uint64) ([]inspect.TraceLine, error)
	// Verification returns what the open addresses wait for; inspect.ErrNotThere when no node works on it.
	Verification(ctx context.Context, id string) (inspect.Verification, error)
	// Explain returns the limits of a mail domain, a key or a source, by this node's rules.
	Explain(ctx context.Context, name string) (inspect.Explanation, error)
	// ExplainRules returns what this node's rules say for a name, without asking other nodes or DNS.
	ExplainRules(name string) (inspect.Explanation, error)
	// Files names the nodes whose throttle file differs from this node's, or has a fault.
	Files(ctx context.Context) ([]inspect.OtherFile, []inspect.UnreachableNode, error)
	// Health returns every node's report on its identity: this node first, then those that take no probing work.
	Health(ctx context.Context) ([]inspect.Health, []inspect.UnreachableNode, error)
}

const (
	bodyMax = 64 << 10 // operators send a name and a number
	nameMax = 200      // characters of a name, a label or a reason; a guess
)

// handle makes the handler of a call: it reads the request, runs the call, and writes the value or the refusal as JSON.
func handle[In, Out any](
	read func(*http.Request) (In, error), do func(context.Context, In) (Out, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in, err := read(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		out, err := do(r.Context(), in)
		answer(w, out, err)
	}
}

type addCall func(pattern string, call http.HandlerFunc)

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

func invalid(message string) error {
	return refusal(http.StatusBadRequest, "invalid_request", message)
}

// plainCall makes the handler of a call without content.
func plainCall[Out any](do func(context.Context) (Out, error)) http.HandlerFunc {
	return handle(func(*http.Request) (none struct{}, err error) { return none, nil },
		func(ctx context.Context, _ struct{}) (Out, error) { return do(ctx) })
}

// callAbout makes the handler of a call with a body about the {id} of the path.
func callAbout[In, Out any](
	readID func(*http.Request) (uuid.UUID, error), do func(context.Context, uuid.UUID, In) (Out, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, err := readID(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		handle(body[In], func(ctx context.Context, in In) (Out, error) { return do(ctx, id, in) })(w, r)
	}
}

func body[In any](r *http.Request) (in In, err error) { return in, readBody(r, &in, bodyMax) }

func readBody(r *http.Request, into any, most int64) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("the body is not valid JSON for this call: " + err.Error())
	}
	return nil
}

func workspaceID(r *http.Request) (uuid.UUID, error) {
	return idOf(r, "id", "the workspace id must be a UUID; see GET /v1/workspaces")
}

func verificationID(r *http.Request) (uuid.UUID, error) {
	return idOf(r, "id", "the verification id must be a UUID")
}

func idOf(r *http.Request, name, otherwise string) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue(name))
	if err != nil {
		err = invalid(otherwise)
	}
	return id, err
}

func limitOf(r *http.Request, unless, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return unless, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(fmt.Sprintf("limit must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// full returns an empty list in place of nil, so that programs read [] and not null.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func mapped[T, Shown any](list []T, show func(T) Shown) []Shown {
	out := make([]Shown, len(list))
	for i, v := range list {
		out[i] = show(v)
	}
	return out
}
