package dashboard

import (
	"errors"
	"net/http"
	"net/mail"
	"strings"

	"github.com/google/uuid"

	httpd "rollcall/http"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

type checkView struct {
	Path    string
	Form    string
	Address string
	Problem string
	Dev     string
}

func checkForm(d *Dashboard, w http.ResponseWriter, r *request) error {
	return d.showCheck(w, r, http.StatusOK, checkView{})
}

func (d *Dashboard) showCheck(w http.ResponseWriter, r *request, status int, v checkView) error {
	v.Path, v.Form, v.Dev = r.base()+"/check", uuid.NewString(), d.devNote()
	return d.show(w, r, status, "check", titled("Check one", "check", v))
}

// malformed returns what to write in place of an invalid address.
func malformed(text string) string {
	text = strings.TrimPrefix(text, "mailto:")
	if parsed, err := mail.ParseAddress(text); err == nil {
		return "Write the address only: " + parsed.Address
	}
	return "This isn't an address that mail can be sent to. Write it like name@example.com."
}

// checkOne answers POST /w/{ws}/check: it redirects to the verification of the address. A repeated form leads to the
// same verification.
func checkOne(d *Dashboard, w http.ResponseWriter, r *request) error {
	form, ok := web.ID(r.PostFormValue("form"))
	v := checkView{Address: web.Text(r.Request, "address")}
	if !ok {
		v.Problem = "The form was incomplete. Please send it again."
		return d.showCheck(w, r, http.StatusUnprocessableEntity, v)
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
			return at("create a check", err)
		}
		return d.showCheck(w, r, status, v)
	}
	d.o.Wake()
	return seeOther(w, r, baseOf(r, made))
}

// uploadScripts are the scripts of a page with the upload panel.
var uploadScripts = []string{"rows.js", "upload.js"}

// panelView is the part of a page that uploads a file.
type panelView struct {
	Base      string // the path of the workspace
	Workspace string
	MaxBytes  int64
	OnDrop    bool // hidden until a file is dropped on the page
}

func (d *Dashboard) panel(r *request, onDrop bool) panelView {
	id := r.workspace().String()
	return panelView{Base: "/w/" + id, Workspace: id, MaxBytes: d.o.MaxFileBytes, OnDrop: onDrop}
}

type uploadView struct {
	Panel   panelView
	MaxRows int64
	Curl    string
	Dev     string // a note about the simulated receivers of a developer's node; "" on other nodes
}

func uploadForm(d *Dashboard, w http.ResponseWriter, r *request) error {
	f := titled("Upload a CSV", "upload", uploadView{Panel: d.panel(r, false), MaxRows: d.o.MaxRows,
		Curl: curlOf(d.o.PublicURL()), Dev: d.devNote()})
	f.Scripts = uploadScripts
	return d.show(w, r, http.StatusOK, "upload", f)
}

// devNote says that a developer's node asks simulated receivers. It is "" on other nodes.
func (d *Dashboard) devNote() string {
	if !d.o.Dev {
		return ""
	}
	return "This is serve --dev: its simulated receivers know only addresses that end with .test, such as anna@acme-clean.test."
}

// create answers POST /w/{ws}/verifications as the API answers a create with the same headers.
func create(d *Dashboard, _ http.ResponseWriter, r *request) error {
	acting, _ := ledger.ActingOf(r.Context())
	r.page.Do(httpd.Act{Operation: httpd.Create, Workspace: r.workspace(), User: r.in.User.ID, Acting: acting})
	return nil
}

// uploadState answers GET /w/{ws}/verifications/{id}/upload with the API's answer about the verification. While bytes
// are missing, that answer has the upload URL.
func uploadState(d *Dashboard, _ http.ResponseWriter, r *request) error {
	r.page.Do(httpd.Act{Operation: httpd.Detail, Workspace: r.workspace(), User: r.in.User.ID,
		Verification: r.id.String()})
	return nil
}
