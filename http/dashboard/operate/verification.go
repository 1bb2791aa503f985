package operate

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	waiting "rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/dashboard/view"
	"rollcall/ledger"
	"rollcall/smtp"
)

// entriesShown is how many entries of the book a page of one verification has.
const entriesShown = 100

// waitsView is what one verification waits for.
type waitsView struct {
	waiting.Verification
	Waits []waitView
	Every string // "": it is over
}

// waitView is a wait with a link to who it is for.
type waitView struct {
	waiting.Wait
	Words string
}

// waitWords say what addresses wait for.
var waitWords = map[string]string{
	waiting.ForRoute:    "DNS to answer about their domain",
	waiting.ForReceiver: "their turn",
	waiting.ForRetry:    "another try after a deferral",
	waiting.ForControl:  "a test whether their domain accepts everything",
	waiting.ForDomain:   "other addresses of the file that go first",
	waiting.ForLedger:   "the ledger to save their outcomes",
}

// waitsEvery is how often what a verification waits for is asked for again.
const waitsEvery = "5s"

// errNoVerification says that a path names none.
var errNoVerification = &admin.Refusal{Status: http.StatusNotFound, Message: "there is no verification with this id: compare it " +
	"with the one that its customer was given"}

// readWaits asks what a verification waits for.
func (p *Pages) readWaits(r *request) (v waitsView, err error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return v, errNoVerification
	}
	if v.Verification, err = p.desk.Waits(r.Context(), id); err != nil {
		return v, err
	}
	if !ledger.Status(v.Status).Final() {
		v.Every = waitsEvery
	}
	slices.SortStableFunc(v.Verification.Waits, func(a, b waiting.Wait) int { return b.Addresses - a.Addresses })
	for _, wait := range v.Verification.Waits {
		v.Waits = append(v.Waits, waitView{wait, waitWords[wait.For]})
	}
	return v, nil
}

// verificationView is the page of one verification.
type verificationView struct {
	Now       waitsView
	Row       ledger.Verification
	Name      string
	Workspace string // its name
	MadeBy    string
	Overdue   float64 // seconds; 0: it is not
	Money     moneyView
	Missing   string // why Row and Money are not shown; "": they are
}

// moneyView is what moved the credits of one verification.
type moneyView struct {
	admin.EntriesPage
	First bool   // the newest ones are shown
	Older string // a link; "" on the last page
}

// Agrees reports whether the entries leave what the row says is still held.
func (m moneyView) Agrees() bool {
	return m.Sums.Held-m.Sums.Charged-m.Sums.Released == m.Verification.Held
}

// verification answers GET /verifications/{id}. Without the ledger it shows what the nodes say.
func verification(p *Pages, w http.ResponseWriter, r *request) {
	v := verificationView{Name: "One verification"}
	var err error
	if v.Now, err = p.readWaits(r); err != nil {
		p.refuse(w, r, err)
		return
	}
	if err := p.readBook(r, &v); err != nil {
		if status := statusOf(err); status != http.StatusServiceUnavailable {
			p.refuse(w, r, err)
			return
		}
		v.Missing = asSentence(plainly(err))
	}
	p.show(w, r, http.StatusOK, "verification", &frame{Here: "verifications", Body: v,
		Frame: view.Frame{Title: v.Name + " · Verifications", Live: true}})
}

// readBook fills in what the ledger says.
func (p *Pages) readBook(r *request, v *verificationView) (err error) {
	id, err := uuid.Parse(v.Now.ID)
	if err != nil {
		return err
	}
	if v.Row, err = p.desk.ReadVerification(r.Context(), id); err != nil {
		return err
	}
	v.Name = fileName(v.Row)
	names, err := p.names(r)
	if err != nil {
		return err
	}
	v.Workspace = cmp.Or(names[v.Row.Workspace], v.Row.Workspace.String())
	if now := p.now(); isOverdue(v.Row, now) {
		v.Overdue = now.Sub(v.Row.Expected).Seconds()
	}
	v.MadeBy = p.makerOf(r.Context(), v.Row.Workspace, v.Row.MadeBy)
	after := r.URL.Query().Get("after")
	v.Money.First = after == ""
	v.Money.EntriesPage, err = p.desk.ReadEntries(r.Context(), admin.EntriesCall{Workspace: v.Row.Workspace, Verification: id,
		After: after, Limit: entriesShown})
	if v.Money.Next != "" {
		v.Money.Older = "/verifications/" + id.String() + "?after=" + v.Money.Next + "#money"
	}
	return err
}

// makerOf names who made something in a workspace, as the ledger calls them. What cannot be looked up keeps its id.
func (p *Pages) makerOf(ctx context.Context, workspace uuid.UUID, actor string) string {
	kind, id, _ := strings.Cut(actor, ":")
	switch kind {
	case "":
		return ""
	case "key":
		keys, _ := p.desk.ListKeys(ctx, workspace) // without them the id is shown
		for _, k := range keys {
			if k.ID == id && k.Label != "" {
				return "the key " + k.Label + " (rc_" + id + ")"
			}
		}
		return "the key rc_" + id
	case "user":
		members, _ := p.desk.ListMembers(ctx, workspace) // without them the id is shown
		for _, m := range members {
			if m.User.String() == id {
				return m.Email
			}
		}
		return "a former member (" + id + ")"
	}
	return "an operator"
}

// evidenceView is what the outcome of one address rests on.
type evidenceView struct {
	admin.Explanation
	Back, Name string
	Sentence   string // what the reason means
	Attempts   []talkView
	Controls   []talkView
	Habit      string // what the control names showed, in a sentence; "": nothing
}

// talkView is one question, its answer, and what that was taken for.
type talkView struct {
	admin.AttemptView
	Label   string // which of them it is
	Ask     string // what was said or waited for; "": nothing, it ended before
	Reply   string // "": there was none
	Trouble string // why not
	Taken   string
	Note    string // what else there is to know; "": nothing
}

// showEvidence answers POST /verifications/{id}/evidence. It changes nothing, so observers may ask too: it is a POST, so that
// the address is in no URL.
func showEvidence(p *Pages, w http.ResponseWriter, r *request) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		p.refuse(w, r, errNoVerification)
		return
	}
	v := evidenceView{Back: "/verifications/" + id.String(), Name: "the verification"}
	if v.Explanation, err = p.desk.ReadEvidence(r.Context(), id, strings.TrimSpace(r.PostFormValue("address"))); err != nil {
		p.noEvidence(w, r, v.Back, err)
		return
	}
	if row, err := p.desk.ReadVerification(r.Context(), id); err == nil {
		v.Name = fileName(row)
	}
	_, v.Sentence, _ = strings.Cut(v.Message, " ") // its first word is that of the reason
	if c := v.Case; c != nil {
		v.Attempts, v.Controls = talksOf("Attempt", c.Attempts, v.Address), talksOf("Control name", c.Habit.Controls, "")
		v.Habit = habitOf(c.Habit)
	}
	p.show(w, r, http.StatusOK, "evidence", &frame{Here: "verifications", Body: v,
		Frame: view.Frame{Title: "One address · " + v.Name + " · Verifications"}})
}

// noEvidence answers for an address of which nothing can be told.
func (p *Pages) noEvidence(w http.ResponseWriter, r *request, back string, err error) {
	if status := statusOf(err); status != http.StatusNotFound && status != http.StatusGone && status != http.StatusBadRequest {
		p.refuse(w, r, err)
		return
	}
	p.fail(w, r.Request, view.Failure{Status: statusOf(err), Title: "There's no evidence for this address", Text: asSentence(plainly(err)),
		Next: "Go back to look for another one.", Link: back, Label: "To the verification"})
}

// talksOf shows attempts. An empty address stands for a control name.
func talksOf(what string, list []admin.AttemptView, address string) []talkView {
	out := make([]talkView, 0, len(list))
	for i, a := range list {
		v := talkOf(a, address)
		v.Label = what + " " + strconv.Itoa(i+1)
		out = append(out, v)
	}
	return out
}

// placeholders are what stands in the cleaned text of a reply in place of an address, of our names, and of other names.
var placeholders = strings.NewReplacer("^", "‹the address›", `\`, "‹our name›", "~", "‹…›")

// asks say what was said or waited for at each stage before an address could be named.
var asks = map[string]string{"connect": "(a connection)", "greeting": "(the greeting)", "hello": "EHLO", "tls": "STARTTLS", "mail": "MAIL FROM"}

// troubles say why there was no reply.
var troubles = map[string]string{"ours": "We closed the connection.", "malformed": "The address doesn't fit into an SMTP command.",
	"no_smtputf8": "The address needs SMTPUTF8, which the receiver doesn't offer.", "protocol": "The receiver sent something that isn't an SMTP reply.",
	"forbidden_address": "The receiver's IP address is not one that may be asked.", "timeout": "The receiver didn't answer in time.",
	"no_starttls": "We need STARTTLS, which the receiver doesn't offer.", "connection": "We couldn't connect, or the connection broke.",
	"intercepted": "Somebody else answers in place of the receiver."}

// talkOf shows one attempt.
func talkOf(a admin.AttemptView, address string) talkView {
	v := talkView{AttemptView: a, Ask: asks[a.Stage], Trouble: troubles[a.Trouble], Taken: a.Outcome}
	if a.Stage == "rcpt" || a.Stage == "rset" {
		switch {
		case address != "":
			v.Ask = "RCPT TO:<" + address + ">"
		case a.Witness:
			v.Ask = "RCPT TO:<another address of the domain>"
		default:
			v.Ask = "RCPT TO:<a made-up name>"
		}
	}
	if v.Trouble == "" {
		v.Trouble = "There was no reply."
	}
	if a.Code != 0 {
		words := []string{strconv.Itoa(a.Code), a.Enhanced, placeholders.Replace(a.Text)}
		v.Reply = strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
	}
	if a.Outcome == smtp.Undecided.String() {
		v.Taken = "a reason to ask again"
	}
	if a.Reason != smtp.ReasonNone.String() {
		v.Taken += " (" + a.Reason + ")"
	}
	switch {
	case a.Void:
		v.Note = "Ignored: the session was no longer reliable."
	case a.Others:
		v.Note = "This wasn't about this address, which waited for the outcome."
	case a.Cause != nil && a.Cause.Why != "":
		v.Note = asSentence(strings.TrimSuffix(a.Cause.Why, "."))
	}
	return v
}

// habitOf says what the control names showed.
func habitOf(h admin.HabitView) string {
	switch {
	case h.Accepts == nil:
		return ""
	case *h.Accepts:
		return "The receiver accepts made-up names, so a yes doesn't show that the mailbox exists."
	}
	return "The receiver refuses made-up names, so its answers about real addresses can be trusted."
}
