package dashboard

import (
	"errors"
	"net/http"
	"time"

	httpd "rollcall/http"
	"rollcall/http/api"
	"rollcall/http/web"
	"rollcall/ledger"
)

// failure is an error page: what happened and what to do.
type failure = web.Failure

// fail answers with an error page.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, f failure) {
	d.render(w, r, f.Status, "error", &frame{Frame: web.Frame{Title: f.Title, Reload: f.Announce(w, r)}, Body: f})
}

// notFound answers what is not there, or not for this user.
func (d *Dashboard) notFound(w http.ResponseWriter, r *http.Request) { d.fail(w, r, web.Nothing) }

// retryLater is how long somebody is asked to wait while the ledger does not answer, in seconds.
const retryLater = 5

// unavailable answers while the ledger does not, and somebody who may not change anything any more: see
// ledger.Acting.
func (d *Dashboard) unavailable(w http.ResponseWriter, r *http.Request, step string, err error) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchSession):
		signedOut(d, w, r)
		return
	case errors.Is(err, ledger.ErrNotAllowed), errors.Is(err, ledger.ErrNotOwner):
		d.fail(w, r, failure{Status: http.StatusForbidden, Title: "Your role doesn't allow this",
			Text: "Your role was changed a moment ago. Nothing else was changed.",
			Next: "Ask an owner of the workspace for another role.", Link: "/", Label: "Back"})
		return
	}
	d.log.Warn("ledger did not answer a page", "stage", step, "request", httpd.PageRequestOf(r.Context()).ID, "err", err)
	d.fail(w, r, failure{Status: http.StatusServiceUnavailable, Title: "We can't answer right now",
		Text:  "The ledger isn't answering. Running verifications continue by themselves, and nothing is lost.",
		Next:  "This page reloads by itself in a moment.",
		After: retryLater})
}

// refused answers what the listener refuses.
func (d *Dashboard) refused(w http.ResponseWriter, r *http.Request, p *httpd.PageRequest) {
	f := failure{Status: p.Status, Title: "This isn't possible", Text: p.Message, After: p.RetryAfter,
		Next: "Go back and try again."}
	switch p.Refused {
	case api.ServiceUnavailable, api.Overloaded, api.InternalError:
		f.Title, f.Text = "We can't answer right now",
			"This node is shutting down or busy. Running verifications continue by themselves, and nothing is lost."
		f.Next = "This page reloads by itself in a moment."
	case api.RateLimited:
		f.Title, f.Text = "Too much at once", "You sent too many requests at once."
		f.Next = "Wait a moment and try again."
	case api.NotFound, api.InvalidID:
		d.notFound(w, r)
		return
	case api.ResultsExpired:
		f.Title, f.Text, f.Next = "The results are gone", "The results were deleted when their retention time ended.",
			"To check the addresses again, upload the file again. This costs credits again."
	}
	d.fail(w, r, f)
}

// secondsUntil is a Retry-After.
func secondsUntil(until, now time.Time) int { return max(1, int(until.Sub(now).Seconds()+0.999)) }
