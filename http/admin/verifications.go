package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
)

// entriesShown is the default number of entries in an answer: a screen.
const entriesShown = 50

// Statement is the entries of one verification with their sums.
type Statement struct {
	Verification uuid.UUID      `json:"verification"`
	Status       ledger.Status  `json:"status"`
	Addresses    int64          `json:"addresses"` // -1 until they are counted
	Held         ledger.Credits `json:"held"`      // by its entries: ever
	Charged      ledger.Credits `json:"charged"`
	Released     ledger.Credits `json:"released"`
	StillHeld    ledger.Credits `json:"still_held"` // by the verification's row; must be Held - Charged - Released
	Count        int64          `json:"count"`      // of all entries
	Entries      []Entry        `json:"entries"`    // newest first
	Next         *string        `json:"next"`       // "after" of the next page; null at the end
}

// Entry is one entry of the ledger.
type Entry struct {
	At         api.Time         `json:"at"`
	Kind       ledger.EntryKind `json:"kind"`
	Settlement *int64           `json:"settlement"` // null: not by a settlement
	Credits    ledger.Credits   `json:"credits"`
}

// AddsUp reports whether the entries leave the amount that the verification holds.
func (s Statement) AddsUp() bool { return s.Held-s.Charged-s.Released == s.StillHeld }

func (d verificationOps) addRoutes(add addCall) {
	add("GET /v1/workspaces/{id}/verifications/{verification}/entries", handle(entriesOf,
		func(ctx context.Context, in EntriesCall) (Statement, error) {
			found, err := d.ReadEntries(ctx, in)
			return newStatement(found), err
		}))
	add("GET /v1/verifications", handle(prefixOf, func(ctx context.Context, ids IDRange) (Alike, error) {
		found, err := askLedger(ctx, d.common, "list verifications", func(ctx context.Context) ([]uuid.UUID, error) {
			return d.options.Book.VerificationsLike(ctx, ids.From, ids.To, AlikeMax)
		})
		return Alike{full(found)}, err
	}))
	add("GET /v1/verifications/{id}/waits", handle(verificationID, d.Waits))
	// The address is in the body, because every proxy logs URLs.
	type addressed struct {
		Address string `json:"address"`
	}
	add("POST /v1/verifications/{id}/evidence", callAbout(verificationID,
		func(ctx context.Context, id uuid.UUID, in addressed) (Explanation, error) {
			ctx, cancel := d.longCall(ctx)
			defer cancel()
			found, err := d.ReadEvidence(ctx, id, in.Address)
			return ExplanationOf(found), err
		}))
}

// Alike are verifications whose ids begin with the same text, at most AlikeMax.
type Alike struct {
	Verifications []uuid.UUID `json:"verifications"`
}

// AlikeMax bounds how many of them are returned: enough to see that a prefix is too short.
const AlikeMax = 11

// IDRange are the ids from one to another.
type IDRange struct{ From, To uuid.UUID }

// prefixLeast is how many characters of an id are required.
const prefixLeast = 4

// RangeOf returns the range of ids that begin with a text. ok is false if the text is too short or can't begin an id.
func RangeOf(prefix string) (ids IDRange, ok bool) {
	digits := strings.ReplaceAll(prefix, "-", "")
	if len(digits) < prefixLeast || len(digits) > 32 {
		return ids, false
	}
	var low, high error
	ids.From, low = uuid.Parse(digits + strings.Repeat("0", 32-len(digits)))
	ids.To, high = uuid.Parse(digits + strings.Repeat("f", 32-len(digits)))
	return ids, low == nil && high == nil
}

func prefixOf(r *http.Request) (ids IDRange, err error) {
	ids, ok := RangeOf(r.URL.Query().Get("prefix"))
	if !ok {
		err = invalid("prefix must be the beginning of an id, at least 4 characters of it")
	}
	return ids, err
}

// entriesOf reads the path and ?limit= and ?after=.
func entriesOf(r *http.Request) (q EntriesCall, err error) {
	if q.Workspace, err = workspaceID(r); err != nil {
		return q, err
	}
	if q.Verification, err = idOf(r, "verification", "the verification id must be a UUID"); err != nil {
		return q, err
	}
	q.After = r.URL.Query().Get("after")
	q.Limit, err = limitOf(r, entriesShown, ledger.EntriesMax)
	return q, err
}

// Open returns unfinished verifications of all workspaces, the oldest first, at most limit.
func (d verificationOps) Open(ctx context.Context, limit int) ([]ledger.Verification, error) {
	return askLedger(ctx, d.common, "list open verifications", with(d.options.Book.OpenVerifications, limit))
}

// ReadVerification returns a verification of any workspace, with the node that works on it.
func (d verificationOps) ReadVerification(ctx context.Context, id uuid.UUID) (ledger.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	v, err := d.options.Book.Evidence(ctx, id, math.MaxInt64, func(ledger.StoredSettlement) error { return nil })
	if err != nil && !errors.Is(err, ledger.ErrResultsExpired) {
		return v, d.ofEvidence("read a verification", v.Status, err)
	}
	return v, nil
}

// EntriesCall asks for one page of a verification's entries, newest first.
type EntriesCall struct {
	Workspace, Verification uuid.UUID
	After                   string // Next of the page before; "": begin with the newest
	Limit                   int    // 1 to ledger.EntriesMax
}

// EntriesPage is one page of a verification's entries, with the sums of all.
type EntriesPage struct {
	ledger.Statement
	Next string // value of After for the next page; "" at the end
}

// ReadEntries returns one page of a verification's entries.
func (d verificationOps) ReadEntries(ctx context.Context, in EntriesCall) (EntriesPage, error) {
	q := ledger.EntriesQuery{Workspace: in.Workspace, Verification: in.Verification, Limit: in.Limit}
	if in.After != "" {
		var err error
		if q.After, err = parsePlace(in.After); err != nil {
			return EntriesPage{}, invalid("after must be copied from next of an answer")
		}
	}
	found, err := askLedger(ctx, d.common, "list entries", with(d.options.Book.Entries, q))
	page := EntriesPage{Statement: found}
	if n := len(found.Entries); n > 0 && n == in.Limit {
		last := found.Entries[n-1]
		page.Next = fmt.Sprintf("%d.%d.%s", last.At.UnixMilli(), last.Number, last.Kind)
	}
	return page, err
}

// ReadEvidence returns the evidence for the outcome of one address. It reads the verification from the beginning, so
// it takes longer for larger files; ctx bounds it.
func (d verificationOps) ReadEvidence(ctx context.Context, id uuid.UUID, address string) (evidence.Found, error) {
	if address == "" {
		return evidence.Found{}, invalid("address must be an address of the file")
	}
	found, err := evidence.Find(ctx, d.options.Book, id, address)
	if err != nil {
		return found, d.ofEvidence("read evidence", found.Status, err)
	}
	return found, nil
}

// ofEvidence returns the refusal for an error of reading evidence. status is the verification's.
func (d verificationOps) ofEvidence(step string, status ledger.Status, err error) error {
	switch {
	case errors.Is(err, evidence.ErrNotSettled), errors.Is(err, ledger.ErrNoSuchVerification):
		name, message := WhyNoEvidence(err, status)
		return refusal(http.StatusNotFound, name, message)
	case errors.Is(err, ledger.ErrResultsExpired):
		name, message := WhyNoEvidence(err, status)
		return refusal(http.StatusGone, name, message)
	case errors.Is(err, smtpevidence.ErrPacked), errors.Is(err, ledger.ErrPayload):
		d.options.Log.Error("stored evidence cannot be read", "stage", step, "err", err)
		return refusal(http.StatusInternalServerError, "damaged",
			"the stored evidence can't be read: run `rollcall audit`, and report this when it finds nothing")
	}
	return d.ofLedger(step, err)
}

func parsePlace(text string) (*ledger.Entry, error) {
	var ms int64
	var e ledger.Entry
	if _, err := fmt.Sscanf(text, "%d.%d.%s", &ms, &e.Number, &e.Kind); err != nil {
		return nil, err
	}
	if !new(ledger.Sums).Add(e.Kind, 0) {
		return nil, fmt.Errorf("no entry is of kind %q", e.Kind)
	}
	e.At = time.UnixMilli(ms)
	return &e, nil
}

func newStatement(s EntriesPage) Statement {
	out := Statement{Verification: s.Verification.ID, Status: s.Verification.Status,
		Addresses: s.Verification.Total, Held: s.Sums.Held, Charged: s.Sums.Charged, Released: s.Sums.Released,
		StillHeld: s.Verification.Held, Count: s.Count, Entries: make([]Entry, len(s.Entries))}
	for i, e := range s.Entries {
		out.Entries[i] = Entry{At: api.Time(e.At), Kind: e.Kind, Credits: e.Amount}
		if e.Number > 0 {
			out.Entries[i].Settlement = &s.Entries[i].Number
		}
	}
	if s.Next != "" {
		out.Next = &s.Next
	}
	return out
}

// Waits returns what the open addresses of a verification wait for, or why no node works on it.
func (d verificationOps) Waits(ctx context.Context, id uuid.UUID) (inspect.Verification, error) {
	const step = "ask what a verification waits for"
	return askNodes(ctx, d.common, step, func(ctx context.Context) (inspect.Verification, error) {
		found, err := d.options.Inspector.Verification(ctx, id.String())
		if errors.Is(err, inspect.ErrNotThere) {
			return d.waitsOfNobody(ctx, id, err)
		}
		found.Waits = full(found.Waits)
		return found, err
	})
}

// waitsOfNobody answers from the ledger for a verification that no node works on, and lists the nodes that do not
// answer.
func (d verificationOps) waitsOfNobody(
	ctx context.Context, id uuid.UUID, nobody error,
) (none inspect.Verification, err error) {
	v, err := d.options.Book.Evidence(ctx, id, math.MaxInt64, func(ledger.StoredSettlement) error { return nil })
	erased := errors.Is(err, ledger.ErrResultsExpired)
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return none, refusal(http.StatusNotFound, "verification_not_found",
			"there is no verification with this id: compare it with the id that the customer got")
	case err != nil && !erased:
		return none, d.ofLedger("read a verification", err)
	}
	why, err := d.whyNobody(ctx, v)
	if err != nil {
		return none, d.ofLedger("read a balance", err)
	}
	if erased {
		why += "; its results were erased at the end of their retention ([retention] results)"
	}
	if unreachable, ok := errors.AsType[*inspect.Unreachable](nobody); ok && !v.Status.Final() {
		why += "; " + unreachable.Error()
	}
	waits := []inspect.Wait{}
	if parked(v) {
		waits = append(waits, inspect.Wait{Addresses: int(v.Left()), For: inspect.ForRetry, Until: v.ParkedUntil})
	}
	return inspect.Verification{ID: id.String(), Workspace: v.Workspace.String(),
		Status: string(v.Status), Total: max(0, v.Total), Final: v.Counts.Sum(), At: time.Now().UTC(),
		Waits: waits, Why: why, Finish: v.Expected}, nil
}

// parked reports whether a verification waits in the ledger until its next work is due.
func parked(v ledger.Verification) bool {
	return v.State() == ledger.WaitingReceivers && v.ParkedUntil.After(time.Now())
}

func (d verificationOps) whyNobody(ctx context.Context, v ledger.Verification) (string, error) {
	switch state := v.State(); {
	case state == ledger.State(ledger.Uploading):
		return fmt.Sprintf("its file is being uploaded: %d of %d bytes have arrived, and the upload can continue until %s",
			v.Durable, v.Bytes, moment(v.UploadExpires)), nil
	case state == ledger.State(ledger.Preparing):
		return "its file is being read, and no address is asked before that" + behind(v), nil
	case state == ledger.WaitingCredits:
		balance, err := d.options.Book.Balance(ctx, v.Workspace)
		return fmt.Sprintf("it waits for credits: it needs %d, and its workspace has %d available "+
			"(`rollcall credits grant`)", v.Total, balance.Available), err
	case v.Status.Final():
		return over(v), nil
	case parked(v):
		return fmt.Sprintf("none of its addresses can be asked before %s, so it waits in the ledger, not in memory; "+
			"any node continues it then", moment(v.ParkedUntil)), nil
	}
	return "no node that answers is working on it" + behind(v), nil
}

// behind names the node that works on a verification, as far as the ledger knows.
func behind(v ledger.Verification) string {
	if v.LeasedUntil.IsZero() {
		return "; no node works on it yet, but a node with room takes it within seconds"
	}
	return fmt.Sprintf("; if its node stays unreachable, another node takes it at %s", moment(v.LeasedUntil))
}

func over(v ledger.Verification) string {
	c := v.Counts
	text := fmt.Sprintf("it ended at %s, and nothing waits: %d valid, %d invalid, %d catch-all, "+
		"%d unknown, %d error, %d cancelled", moment(v.Completed), c.Valid, c.Invalid, c.CatchAll, c.Unknown, c.Error,
		c.Cancelled)
	if v.Issue != nil {
		text += fmt.Sprintf("; %s: %s", v.Issue.Code, v.Issue.Message)
	}
	return text
}

func moment(at time.Time) string { return at.UTC().Format("2 Jan 2006 15:04:05 UTC") }

// Explanation is one settled address and the evidence for its outcome.
type Explanation struct {
	Verification uuid.UUID     `json:"verification"`
	Status       ledger.Status `json:"status"`
	Settlement   int64         `json:"settlement"`
	SettledAt    api.Time      `json:"settled_at"`
	Ordinal      int64         `json:"ordinal"` // number among the distinct addresses of the file, from 0
	Address      string        `json:"address"` // first spelling in the file
	At           api.Time      `json:"at"`      // of the final evidence
	evidence.Verdict
	Message string    `json:"message"`  // as in the results file
	Case    *CaseView `json:"evidence"` // null: none was kept
}

// CaseView is all evidence for the outcome of one address.
type CaseView struct {
	Attempts  []AttemptView `json:"attempts"` // oldest first
	Omitted   int           `json:"omitted"`  // number of later attempts that are left out
	NoRoute   string        `json:"no_route"` // the DNS result in place of a route; "" with a route
	Hosts     int           `json:"hosts"`    // number of hosts of the route; 0: not known
	Behaviour BehaviourView `json:"behaviour"`
	GaveUp    bool          `json:"gave_up"`
	Why       string        `json:"why"` // why the address was given up; "": because of the last attempt
}

// AttemptView is one attempt, its reply, and the verdict.
type AttemptView struct {
	At       api.Time `json:"at"`
	Stage    string   `json:"stage"`
	Host     string   `json:"host"`
	Source   string   `json:"source"` // "": the system chose it, or there was no connection
	TLS      bool     `json:"tls"`
	Code     int      `json:"code"`     // 0: there was no reply
	Enhanced string   `json:"enhanced"` // "": none
	Text     string   `json:"text"`     // cleaned: no address, none of our names
	Trouble  string   `json:"trouble"`  // why there was no reply
	evidence.Verdict
	Blame string `json:"blame"`
	Rule  string `json:"rule"` // id@version
	// Others: the attempt was about other addresses or none, but this address had to wait for its result.
	Others bool `json:"others,omitempty"`
	// Cause is the diagnosis, from the replies for other addresses too; absent: none.
	Cause *CauseView `json:"cause,omitempty"`
	// Bare: the words could be about somebody else, such as us, so they count only with a witness.
	Bare bool `json:"bare,omitempty"`
	// Witness: an attempt for another address of the domain. It shows whether the receiver accepts anything from us.
	Witness bool `json:"witness,omitempty"`
	Void    bool `json:"void"` // does not count: the session was poisoned, or a harvest guard was active
}

// CauseView is the diagnosis of an attempt.
type CauseView struct {
	Scope string `json:"scope"` // "address", "domain", "list", "host", "receiver", "source"
	Why   string `json:"why"`   // the trials that showed the cause, in a sentence
}

// BehaviourView is the domain's accept behaviour as known when an acceptance was judged.
type BehaviourView struct {
	Accepted int           `json:"accepted"` // control probes
	Refused  int           `json:"refused"`
	First    *api.Time     `json:"first_at"` // time of the first answer; null: there was none
	Last     *api.Time     `json:"last_at"`
	Accepts  *bool         `json:"accepts_everything"` // null: not known
	Controls []AttemptView `json:"controls"`           // of this very run
}

// ExplanationOf converts evidence for the API.
func ExplanationOf(f evidence.Found) Explanation {
	r := f.Result
	out := Explanation{Verification: f.Verification, Status: f.Status, Settlement: f.Settlement,
		SettledAt: api.Time(f.SettledAt), Ordinal: r.Ordinal, Address: r.Email, At: api.Time(r.At),
		Verdict: evidence.Verdict{Outcome: r.Outcome.String(), Reason: r.Reason.String()}, Message: r.Reason.Message()}
	if f.Case != nil {
		out.Case = newCaseView(*f.Case)
	}
	return out
}

func newCaseView(c smtpevidence.Case) *CaseView {
	v := &CaseView{Attempts: newAttemptViews(c.Attempts), Omitted: c.Omitted, Hosts: c.Hosts, GaveUp: c.GaveUp,
		NoRoute: reasonText(c.NoRoute), Why: reasonText(c.Why),
		Behaviour: BehaviourView{Accepted: c.Behaviour.Accepted, Refused: c.Behaviour.Refused,
			Controls: newAttemptViews(c.Behaviour.Controls)}}
	if accepts, known := c.Behaviour.CatchAll(); known {
		v.Behaviour.Accepts = &accepts
	}
	if !c.Behaviour.First.IsZero() {
		v.Behaviour.First, v.Behaviour.Last = new(api.Time(c.Behaviour.First)), new(api.Time(c.Behaviour.Last))
	}
	return v
}

func reasonText(r smtp.Reason) string {
	if r == smtp.ReasonNone {
		return ""
	}
	return r.String()
}

func newAttemptViews(list []smtpevidence.Attempt) []AttemptView {
	views := make([]AttemptView, len(list))
	for i, a := range list {
		views[i] = AttemptView{At: api.Time(a.At), Stage: a.Stage.String(), Host: a.Host, Source: a.Source,
			TLS: a.TLS, Code: a.Code, Text: a.Text, Trouble: a.Trouble.String(),
			Verdict: evidence.Verdict{Outcome: a.Outcome.String(), Reason: a.Reason.String()}, Blame: a.Blame.String(),
			Rule: a.RuleName(), Void: a.Void, Others: a.Others, Bare: a.Bare, Witness: a.Witness}
		if a.Enhanced != (smtp.EnhancedCode{}) {
			views[i].Enhanced = a.Enhanced.String()
		}
		if a.Cause != (smtpevidence.Cause{}) {
			views[i].Cause = &CauseView{Scope: a.Cause.Scope.String(), Why: a.Cause.Why}
		}
	}
	return views
}

// WhyNoEvidence returns a code and advice for the errors that mean "no evidence".
func WhyNoEvidence(err error, status ledger.Status) (code, message string) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return "verification_not_found", "there is no such verification: the customer sees the id in " +
			"its GET /v1/verifications"
	case errors.Is(err, ledger.ErrResultsExpired):
		return "expired", "results and evidence were erased at the end of their retention ([retention] results)"
	case status.Final():
		return "address_not_found", fmt.Sprintf("no outcome was settled for this address, and the verification "+
			"is %s: compare the spelling with the results file", status)
	}
	return "address_not_settled", fmt.Sprintf("no outcome is settled for this address yet, the verification "+
		"is %s: ask again later, and compare the spelling with the file", status)
}
