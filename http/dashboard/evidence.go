package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// talkView is one outcome and what it rests on.
type talkView struct {
	ledger.Result
	Mark     string
	Sentence string
	Token    string // the word of the reason
	Kept     bool   // there is evidence
	Attempts []attemptView
	Omitted  int
	Controls []attemptView
	Habit    string // what the control names showed, in a sentence; "": nothing
	NoRoute  string // what DNS said in place of a route; "": nothing
	GaveUp   bool
}

// attemptView is one question, its answer, and what that was taken for.
type attemptView struct {
	At          time.Time
	Host        string
	TLS         bool
	Ask         string // what was said; "": nothing, it ended before
	Reply       string // "": there was none
	Trouble     string // why not
	Taken, Rule string
	Note        string // what else there is to know; "": nothing
}

// errRead ends the reading of settlements after the one that was asked for.
var errRead = errors.New("the settlement was read")

// talk finds an outcome by its place in the file, with its evidence; nil when it is not in the settlement. It reads that one
// settlement and no other.
func (d *Dashboard) talk(ctx context.Context, v ledger.Verification, ordinal, settlement int64) (*talkView, error) {
	var found *talkView
	_, err := d.o.Book.Evidence(ctx, v.ID, settlement-1, func(k ledger.Kept) error {
		for i := range k.Results.Len() {
			r := k.Results.Result(i)
			if r.Ordinal != ordinal {
				continue
			}
			found = &talkView{Result: r, Mark: marks[r.Outcome][0], Token: r.Reason.String(), Sentence: sentenceOf(r.Reason)}
			if len(k.Evidence) == 0 {
				return errRead
			}
			err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
				if e.Ordinal == ordinal {
					found.take(e.Case)
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

// take fills in the evidence.
func (t *talkView) take(c evidence.Case) {
	t.Kept, t.Omitted, t.GaveUp = true, c.Omitted, c.GaveUp
	for _, a := range c.Attempts {
		t.Attempts = append(t.Attempts, attemptOf(a, t.Email))
	}
	for _, a := range c.Habit.Controls {
		asked := "a made-up name"
		if a.Witness {
			asked = "another address of the domain"
		}
		t.Controls = append(t.Controls, attemptOf(a, asked))
	}
	if c.NoRoute != smtp.ReasonNone {
		t.NoRoute = sentenceOf(c.NoRoute)
	}
	switch accepts, known := c.Habit.CatchAll(); {
	case known && accepts:
		t.Habit = "The receiver accepts made-up names, so a yes doesn't show that the mailbox exists."
	case known:
		t.Habit = "The receiver refuses made-up names, so its answers about real addresses can be trusted."
	}
}

// attemptOf shows one attempt. What stands for an address in the cleaned text of a reply becomes words.
func attemptOf(a evidence.Attempt, asked string) attemptView {
	v := attemptView{At: a.At, Host: a.Host, TLS: a.TLS, Rule: a.Rule, Trouble: troubles[a.Trouble]}
	if a.Stage >= smtp.StageRcpt {
		v.Ask = "RCPT TO:<" + asked + ">"
	} else if name := stages[a.Stage]; name != "" {
		v.Ask = name
	}
	if a.Code != 0 {
		parts := []string{strconv.Itoa(a.Code)}
		if a.Enhanced != (smtp.EnhancedCode{}) {
			parts = append(parts, a.Enhanced.String())
		}
		text := strings.NewReplacer("^", "‹the address›", `\`, "‹our name›", "~", "‹…›").Replace(a.Text)
		v.Reply = strings.TrimSpace(strings.Join(append(parts, text), " "))
	} else if v.Trouble == "" {
		v.Trouble = "There was no reply."
	}
	v.Taken = a.Outcome.String()
	if a.Outcome == smtp.Undecided {
		v.Taken = "a reason to ask again"
	}
	if a.Reason != smtp.ReasonNone {
		v.Taken += " (" + a.Reason.String() + ")"
	}
	switch {
	case a.Void:
		v.Note = "Ignored: the session was no longer reliable."
	case a.Others:
		v.Note = "This wasn't about this address, which waited for the outcome."
	case a.Cause.Why != "":
		v.Note = strings.TrimSuffix(a.Cause.Why, ".") + "."
	}
	return v
}

// stages say what was waited for before an address could be named.
var stages = map[smtp.Stage]string{smtp.StageConnect: "a connection", smtp.StageGreeting: "the greeting", smtp.StageHello: "EHLO",
	smtp.StageTLS: "STARTTLS", smtp.StageMail: "MAIL FROM"}

// troubles say why there was no reply.
var troubles = map[evidence.Trouble]string{evidence.TroubleOurs: "We closed the connection.",
	evidence.TroubleMalformed: "The address doesn't fit into an SMTP command.", evidence.TroubleNoUTF8: "The address needs SMTPUTF8, which the receiver doesn't offer.",
	evidence.TroubleForbidden: "We aren't allowed to contact the receiver's IP address.", evidence.TroubleNoTLS: "We need STARTTLS, which the receiver doesn't offer.",
	evidence.TroubleProtocol: "The receiver sent something that isn't an SMTP reply.", evidence.TroubleTimeout: "The receiver didn't answer in time.",
	evidence.TroubleConnection:  "We couldn't connect, or the connection broke.",
	evidence.TroubleIntercepted: "Somebody else answers in place of the receiver."}

// sentenceOf is a reason without its word.
func sentenceOf(r smtp.Reason) string {
	_, sentence, _ := strings.Cut(r.Message(), " ")
	return sentence
}

// addressView is the page of one address.
type addressView struct {
	Back, Name string
	Talk       talkView
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
		d.show(w, r, http.StatusOK, "address", &frame{Frame: view.Frame{Title: "One address · " + nameOf(v) + " · Verifications"},
			Here: "list", Body: addressView{Back: baseOf(r, v), Name: nameOf(v), Talk: *talk}})
	}
}
