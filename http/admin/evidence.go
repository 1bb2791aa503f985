package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// ReplayType is the Content-Type of a replay: one JSON value on each line.
const ReplayType = "application/x-ndjson"

// RulesName names, in errors, a rule file that came in the body of a call.
const RulesName = "rules"

const (
	// rulesMax bounds the body with a rule file: twice the bound of verdict.Load, as JSON adds bytes.
	rulesMax = 8 << 20
	// replayBuffer is how much of a replay is sent at once.
	replayBuffer = 32 << 10
)

// Explanation is one settled address and the evidence for its outcome.
type Explanation struct {
	Verification uuid.UUID     `json:"verification"`
	Status       ledger.Status `json:"status"`
	Settlement   int64         `json:"settlement"`
	SettledAt    api.Time      `json:"settled_at"`
	Ordinal      int64         `json:"ordinal"` // place among the distinct addresses of the file, from 0
	Address      string        `json:"address"` // first spelling in the file
	At           api.Time      `json:"at"`      // of the final evidence
	evidence.Verdict
	Message string    `json:"message"`  // as in the results file
	Case    *CaseView `json:"evidence"` // null: none was kept
}

// CaseView is all evidence for the outcome of one address.
type CaseView struct {
	Attempts  []AttemptView `json:"attempts"` // oldest first
	Omitted   int           `json:"omitted"`  // left out behind the first ones
	NoRoute   string        `json:"no_route"` // the DNS result in place of a route; "" with a route
	Hosts     int           `json:"hosts"`    // of the route; 0: not known
	Behaviour BehaviourView `json:"habit"`
	GaveUp    bool          `json:"gave_up"`
	Why       string        `json:"why"` // why it was given up; "": because of the last attempt
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
	// Others: the attempt was about other addresses or none, and this address had to wait for its result.
	Others bool `json:"others,omitempty"`
	// Cause is the diagnosis, from the replies for other addresses too; absent: none.
	Cause *CauseView `json:"cause,omitempty"`
	// Bare: the words could be about somebody else, such as us; they count only with a witness.
	Bare bool `json:"bare,omitempty"`
	// Witness: an attempt for another address of the domain, to see whether the receiver accepts anything from us.
	Witness bool `json:"witness,omitempty"`
	Void    bool `json:"void"` // does not count: the session was poisoned, or a harvest guard was active
}

// CauseView is the diagnosis of an attempt.
type CauseView struct {
	Scope string `json:"scope"` // "address", "domain", "list", "host", "receiver", "source"
	Why   string `json:"why"`   // the trials that showed it, in a sentence
}

// BehaviourView is the domain's accept behaviour as known when an acceptance was judged.
type BehaviourView struct {
	Accepted int           `json:"accepted"` // control probes
	Refused  int           `json:"refused"`
	First    *api.Time     `json:"first_at"` // time of these answers; null: there were none
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
	if first, last := api.Time(c.Behaviour.First), api.Time(c.Behaviour.Last); !c.Behaviour.First.IsZero() {
		v.Behaviour.First, v.Behaviour.Last = &first, &last
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
			Rule: evidence.RuleName(a.Rule, a.Version), Void: a.Void, Others: a.Others, Bare: a.Bare,
			Witness: a.Witness}
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
		return "verification_not_found", "there is no such verification: its customer sees the id in " +
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

// ReplayLine is a line of a replay: one of the three.
type ReplayLine struct {
	Address *evidence.Replayed `json:"address,omitempty"`
	Summary *evidence.Summary  `json:"summary,omitempty"` // the last line of a complete replay
	Error   *ReplayError       `json:"error,omitempty"`   // the last line of an incomplete one
}

// ReplayError is why a replay ended early.
type ReplayError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// replay streams a replay by the rules of the node, or by the caller's file followed by these. One at a time: it uses a
// whole core, and the node has other work.
func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Rules string `json:"rules"`
		All   bool   `json:"all"`
	}
	id, err := verificationID(r)
	if err == nil {
		err = readBody(r, &in, rulesMax)
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	rules := verdict.Builtin()
	if s.options.Rules != nil {
		rules = s.options.Rules()
	}
	if in.Rules != "" {
		if rules, err = verdict.Load(RulesName, []byte(in.Rules)); err != nil {
			refuse(w, http.StatusBadRequest, "invalid_rules", err.Error())
			return
		}
	}
	select {
	case s.desk.replays <- struct{}{}:
		defer func() { <-s.desk.replays }()
	default:
		refuse(w, http.StatusConflict, "replay_running", "another replay of this node is running; wait for its end")
		return
	}
	ctx, cancel := s.desk.longCall(r.Context())
	defer cancel()
	out := newReplayWriter(s.long, w)
	q := evidence.Query{Rules: rules, All: in.All, Yield: func(one evidence.Replayed) error {
		return out.line(ReplayLine{Address: &one})
	}}
	summary, err := evidence.Replay(ctx, s.options.Book, id, q)
	switch {
	case err == nil:
		err = out.line(ReplayLine{Summary: &summary})
	case !out.begun:
		answer(w, nil, s.desk.ofEvidence("replay", summary.Status, err))
		return
	default:
		_ = out.line(ReplayLine{Error: &ReplayError{"unavailable", "the replay was cut short: ask again"}})
	}
	if err != nil {
		s.options.Log.Warn("replay not finished", "verification", id, "err", err)
	}
}

// replayWriter writes lines, the headers with the first.
type replayWriter struct {
	w     http.ResponseWriter
	lines *bufio.Writer
	begun bool
}

// newReplayWriter makes a replayWriter that cuts a client which reads nothing.
func newReplayWriter(ctx context.Context, w http.ResponseWriter) *replayWriter {
	return &replayWriter{w: w,
		lines: bufio.NewWriterSize(patient{ctx, w, http.NewResponseController(w)}, replayBuffer)}
}

func (o *replayWriter) line(l ReplayLine) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", ReplayType)
		o.w.Header().Set("Cache-Control", "no-store")
		o.w.WriteHeader(http.StatusOK)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write a line of a replay: %w", err)
	}
	_, err = o.lines.Write(append(text, '\n'))
	if err == nil && l.Address == nil {
		err = o.lines.Flush()
	}
	return err
}
