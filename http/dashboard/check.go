package dashboard

import (
	"errors"
	"net/http"
	"net/mail"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// checkView is the form that checks one address.
type checkView struct {
	Path    string
	Form    string
	Address string
	Problem string
	Dev     string
}

// checkForm answers GET /w/{ws}/check.
func checkForm(d *Dashboard, w http.ResponseWriter, r *request) {
	d.showCheck(w, r, http.StatusOK, checkView{})
}

// showCheck answers with the form, and what it came to.
func (d *Dashboard) showCheck(w http.ResponseWriter, r *request, status int, v checkView) {
	v.Path, v.Form, v.Dev = r.base()+"/check", uuid.NewString(), d.devNote()
	d.show(w, r, status, "check", titled("Check one", "check", v))
}

// malformed says what to write in place of something that is no address.
func malformed(text string) string {
	text = strings.TrimPrefix(text, "mailto:")
	if parsed, err := mail.ParseAddress(text); err == nil {
		return "Write the address only: " + parsed.Address
	}
	return "This isn't an address that mail can be sent to. Write it like name@example.com."
}

// checkOne answers POST /w/{ws}/check: leads to the verification of the address. The same form again leads to the same.
func checkOne(d *Dashboard, w http.ResponseWriter, r *request) {
	form, ok := web.ID(r.PostFormValue("form"))
	v := checkView{Address: web.Text(r.Request, "address")}
	if !ok {
		v.Problem = "The form was incomplete. Please send it again."
		d.showCheck(w, r, http.StatusUnprocessableEntity, v)
		return
	}
	made, err := d.o.Book.CreateSingle(r.Context(), ledger.CreateSingle{ID: uuid.New(), Workspace: r.workspace(), Identity: form,
		Address: v.Address, Limits: d.o.PerWorkspace})
	if err != nil {
		status := http.StatusConflict
		switch {
		case errors.Is(err, smtp.ErrMalformed):
			status, v.Problem = http.StatusUnprocessableEntity, malformed(v.Address)
		case errors.Is(err, ledger.ErrIdentityReused):
			v.Problem = "This form was already sent with another address. Please send it again."
		case errors.Is(err, ledger.ErrTooManyOpen):
			v.Problem = "Too many verifications of this workspace are unfinished. Wait until some are done, or cancel one."
		case errors.Is(err, ledger.ErrTooManyBytes), errors.Is(err, ledger.ErrNoRoom):
			v.Problem = "There is no room for another verification now. Try again later."
		case errors.Is(err, ledger.ErrTooManyUnpaid):
			v.Problem = "Too many verifications without credits were made today. Add credits, or try again tomorrow."
		default:
			d.unavailable(w, r.Request, "create a check", err)
			return
		}
		d.showCheck(w, r, status, v)
		return
	}
	if d.o.Wake != nil {
		d.o.Wake()
	}
	http.Redirect(w, r.Request, baseOf(r, made), http.StatusSeeOther)
}
