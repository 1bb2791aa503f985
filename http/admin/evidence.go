package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Witness is what the ledger keeps of how outcomes came about; ledger.Book is one.
type Witness interface {
	Evidence(ctx context.Context, id uuid.UUID, after int64, yield func(ledger.Kept) error) (
		ledger.Verification, error)
}

// Explanation is one settled address and what its outcome rests on.
type Explanation struct {
	Verification uuid.UUID     `json:"verification"`
	Status       ledger.Status `json:"status"`
	Settlement   int64         `json:"settlement"`
	SettledAt    api.Time      `json:"settled_at"`
	Ordinal      int64         `json:"ordinal"` // place among the distinct addresses of the file, from 0
	Address      string        `json:"address"` // first spelling in the file
	At           api.Time      `json:"at"`      // of the final evidence
	Verdict
	Message string    `json:"message"`  // as in the results file
	Case    *CaseView `json:"evidence"` // null: none was kept
}

// Verdict is an outcome and its reason.
type Verdict struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// CaseView is all that the outcome of one address rests on.
type CaseView struct {
	Attempts []AttemptView `json:"attempts"` // oldest first
	Omitted  int           `json:"omitted"`  // left out behind the first ones
	NoRoute  string        `json:"no_route"` // what DNS said instead of a route; "": nothing
	Hosts    int           `json:"hosts"`    // of the route; 0: not known
	Habit    HabitView     `json:"habit"`
	GaveUp   bool          `json:"gave_up"`
	Why      string        `json:"why"` // it was given up; "": because of what the last attempt says
}

// AttemptView is one question, its answer, and what that was taken for.
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
	Verdict
	Blame string `json:"blame"`
	Rule  string `json:"rule"` // id@version
	// Others: not about this address. Others, or nobody, were asked, and it had to wait for what came of that.
	Others bool `json:"others,omitempty"`
	// Cause is what it was believed to be about, by what others got; absent: nothing was believed.
	Cause *CauseView `json:"cause,omitempty"`
	// Bare: the words could mean somebody else, us for one; believed only beside a witness.
	Bare bool `json:"bare,omitempty"`
	// Witness: another address of the domain, asked to see whether we are heard.
	Witness bool `json:"witness,omitempty"`
	Void    bool `json:"void"` // worth nothing: the session was poisoned, or a guard at work
}

// CauseView is what an attempt was believed to be about.
type CauseView struct {
	Scope string `json:"scope"` // "address", "domain", "list", "host", "receiver", "source"
	Why   string `json:"why"`   // the trials that showed it, in a sentence
}

// HabitView is what was known of the domain when an acceptance was judged.
type HabitView struct {
	Accepted int           `json:"accepted"` // control probes
	Refused  int           `json:"refused"`
	First    *api.Time     `json:"first_at"` // of these answers; null: there was none
	Last     *api.Time     `json:"last_at"`
	Accepts  *bool         `json:"accepts_everything"` // null: not known
	Controls []AttemptView `json:"controls"`           // of this very run
}

// ErrNotSettled means that a verification has no settled outcome for an address.
var ErrNotSettled = errors.New("no outcome of this address is settled")

// errFound ends a search.
var errFound = errors.New("found")

// FindEvidence looks for one address of a verification: as it is spelled in the
// file, or another spelling of the same. ErrNotSettled; errors of the ledger.
func FindEvidence(ctx context.Context, book Witness, id uuid.UUID, address string) (Explanation, error) {
	wanted := newSpelling(address)
	var f Explanation
	v, err := book.Evidence(ctx, id, 0, func(k ledger.Kept) error {
		for i := range k.Results.Len() {
			if !wanted.is(k.Results.Email(i)) {
				continue
			}
			if err := f.take(k, i); err != nil {
				return err
			}
			return errFound
		}
		return nil
	})
	f.Verification, f.Status = id, v.Status
	if errors.Is(err, errFound) {
		return f, nil
	}
	if err == nil {
		err = ErrNotSettled
	}
	return f, err
}

// take reads result i of a settlement and the case of it.
func (f *Explanation) take(k ledger.Kept, i int) error {
	r := k.Results.Result(i)
	f.Settlement, f.SettledAt, f.Ordinal = k.Number, api.Time(k.At), r.Ordinal
	f.Address, f.At, f.Message = r.Email, api.Time(r.At), r.Reason.Message()
	f.Verdict = Verdict{r.Outcome.String(), r.Reason.String()}
	if len(k.Evidence) == 0 {
		return nil
	}
	err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
		if e.Ordinal == r.Ordinal {
			f.Case = newCaseView(e.Case)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settlement %d: %w", k.Number, err)
	}
	return nil
}

// spelling is an address that is looked for.
type spelling struct {
	text   string
	parsed smtp.Address
	whole  bool // text is an address
}

func newSpelling(text string) spelling {
	a, err := smtp.ParseAddress(text)
	return spelling{text: text, parsed: a, whole: err == nil}
}

// is says whether an address of a file is the one that is looked for.
func (s spelling) is(email []byte) bool {
	if string(email) == s.text {
		return true
	}
	// The local part is never changed: what cannot fit is not parsed.
	if !s.whole || len(email) <= len(s.parsed.Local) || string(email[:len(s.parsed.Local)]) != s.parsed.Local {
		return false
	}
	a, err := smtp.ParseAddress(string(email))
	return err == nil && a == s.parsed
}

func newCaseView(c evidence.Case) *CaseView {
	v := &CaseView{Attempts: newAttemptViews(c.Attempts), Omitted: c.Omitted, Hosts: c.Hosts, GaveUp: c.GaveUp,
		NoRoute: reasonText(c.NoRoute), Why: reasonText(c.Why),
		Habit: HabitView{Accepted: c.Habit.Accepted, Refused: c.Habit.Refused,
			Controls: newAttemptViews(c.Habit.Controls)}}
	if accepts, known := c.Habit.CatchAll(); known {
		v.Habit.Accepts = &accepts
	}
	if first, last := api.Time(c.Habit.First), api.Time(c.Habit.Last); !c.Habit.First.IsZero() {
		v.Habit.First, v.Habit.Last = &first, &last
	}
	return v
}

func reasonText(r smtp.Reason) string {
	if r == smtp.ReasonNone {
		return ""
	}
	return r.String()
}

func newAttemptViews(list []evidence.Attempt) []AttemptView {
	views := make([]AttemptView, len(list))
	for i, a := range list {
		views[i] = AttemptView{At: api.Time(a.At), Stage: a.Stage.String(), Host: a.Host, Source: a.Source,
			TLS: a.TLS, Code: a.Code, Text: a.Text, Trouble: a.Trouble.String(),
			Verdict: Verdict{a.Outcome.String(), a.Reason.String()}, Blame: a.Blame.String(),
			Rule: RuleName(a.Rule, a.Version), Void: a.Void, Others: a.Others, Bare: a.Bare,
			Witness: a.Witness}
		if a.Enhanced != (smtp.EnhancedCode{}) {
			views[i].Enhanced = a.Enhanced.String()
		}
		if a.Cause != (evidence.Cause{}) {
			views[i].Cause = &CauseView{Scope: a.Cause.Scope.String(), Why: a.Cause.Why}
		}
	}
	return views
}

// RuleName names a rule as it was when it judged; "" for none.
func RuleName(id string, version uint32) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("%s@%08x", id, version)
}

// evidence answers how the outcome of one address came about. The address comes in
// the body: what is in a URL is in the logs of every proxy.
func (s *Server) evidence(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Address string `json:"address"`
	}
	id, ok := verificationID(w, r)
	if !ok || !read(w, r, &in) {
		return
	}
	ctx, cancel := s.longCall(r)
	defer cancel()
	found, err := s.desk.ReadEvidence(ctx, id, in.Address)
	answer(w, found, err)
}

// verificationID reads the {id} of the path.
func verificationID(w http.ResponseWriter, r *http.Request) (uuid.UUID, bool) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "the verification id must be a UUID")
	}
	return id, err == nil
}

// WhyNoEvidence gives a code and says what to do about an error that is no fault.
func WhyNoEvidence(err error, status ledger.Status) (code, message string) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return "verification_not_found", "there is no such verification: its customer sees the id in " +
			"its GET /v1/verifications"
	case errors.Is(err, ledger.ErrResultsExpired):
		return "expired", "results and evidence are erased: their retention is over ([retention] results)"
	case status.Final():
		return "address_not_found", fmt.Sprintf("no outcome was settled for this address, and the verification "+
			"is %s: compare the spelling with the results file", status)
	}
	return "address_not_settled", fmt.Sprintf("no outcome is settled for this address yet, the verification "+
		"is %s: ask again later, and compare the spelling with the file", status)
}
