package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/flags"
)

// errRead ends the reading of settlements after the one that was asked for.
var errRead = errors.New("the settlement was read")

// talk finds an outcome by its place in the file, with its evidence; nil when it is not in the settlement. It reads that one
// settlement and no other.
func (d *Dashboard) talk(ctx context.Context, v ledger.Verification, ordinal, settlement int64) (*web.Talk, error) {
	var found *web.Talk
	_, err := d.o.Book.Evidence(ctx, v.ID, settlement-1, func(k ledger.StoredSettlement) error {
		for i := range k.Results.Len() {
			r := k.Results.Result(i)
			if r.Ordinal != ordinal {
				continue
			}
			said := new(flags.Cache).Of(r.Email)
			said.Operator = r.Operator.String()
			found = &web.Talk{Flags: said.Sentences(),
				Email: r.Email, Outcome: r.Outcome.String(), Token: r.Reason.String(),
				Sentence: sentenceOf(r.Reason)}
			if len(k.Evidence) == 0 {
				return errRead
			}
			err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
				if e.Ordinal == ordinal {
					fill(found, e.Case)
				}
				return nil
			})
			return errors.Join(err, errRead)
		}
		return errRead
	})
	if errors.Is(err, errRead) && !errors.Is(err, evidence.ErrPacked) {
		err = nil
	}
	return found, err
}

// fill writes the evidence of an outcome.
func fill(t *web.Talk, c evidence.Case) {
	t.Kept, t.Omitted, t.GaveUp = true, c.Omitted, c.GaveUp
	for _, a := range c.Attempts {
		t.Attempts = append(t.Attempts, attemptOf(a, t.Email))
	}
	for _, a := range c.Habit.Controls {
		t.Controls = append(t.Controls, attemptOf(a, web.ControlName(a.Witness)))
	}
	if c.NoRoute != smtp.ReasonNone {
		t.NoRoute = sentenceOf(c.NoRoute)
	}
	t.Habit = web.HabitText(c.Habit.CatchAll())
}

// attemptOf shows one attempt. Which of our addresses asked is for operators.
func attemptOf(a evidence.Attempt, asked string) web.Attempt {
	return web.AttemptOf(web.Said{At: a.At, Stage: a.Stage.String(), Host: a.Host, TLS: a.TLS, Code: a.Code,
		Enhanced: a.Enhanced.String(), Text: a.Text, Trouble: a.Trouble.String(), Outcome: a.Outcome.String(),
		Reason: a.Reason.String(), Rule: a.Rule, Void: a.Void, Others: a.Others, Why: a.Cause.Why, Asked: asked})
}

// sentenceOf is a reason without its word.
func sentenceOf(r smtp.Reason) string {
	_, sentence, _ := strings.Cut(r.Message(), " ")
	return sentence
}

// addressView is the page of one address.
type addressView struct {
	Back, Name, Email string
	Talk              web.Talk
}

// showAddress answers GET /w/{ws}/verifications/{id}/addresses/{ordinal}. The query says which settlement has it: to look for
// it would read a whole file. A check of one address has one settlement.
func showAddress(d *Dashboard, w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	ordinal, err := strconv.ParseInt(r.PathValue("ordinal"), 10, 64)
	settlement, _ := strconv.ParseInt(r.URL.Query().Get("in"), 10, 64)
	if v.Kind == ledger.Single {
		settlement = 1
	}
	if err != nil || ordinal < 0 || settlement < 1 {
		d.notFound(w, r.Request)
		return
	}
	talk, err := d.talk(r.Context(), v, ordinal, settlement)
	switch {
	case errors.Is(err, ledger.ErrResultsExpired):
		d.fail(w, r.Request, failure{Status: http.StatusGone, Title: "The results are gone",
			Text: "Results and their evidence were deleted when their retention time ended.", Next: "The counts stay.",
			Link: baseOf(r, v), Label: "To the verification"})
	case err != nil:
		d.unavailable(w, r.Request, "read evidence", err)
	case talk == nil:
		d.notFound(w, r.Request)
	default:
		d.show(w, r, http.StatusOK, "address", titled("One address · "+nameOf(v)+" · Verifications", "list", addressView{Back: baseOf(r, v), Name: nameOf(v), Email: talk.Email, Talk: *talk}))
	}
}
