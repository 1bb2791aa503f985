package dashboard

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/http/dashboard/signin"
	"rollcall/http/dashboard/signin/provider"
	"rollcall/ledger"
)

// The ways to sign in and what comes of it: the values of the labels.
var (
	signInWays    = []string{"password", "code", "link", "provider"}
	signInResults = []string{"done", "code_wanted", "refused", "wait", "busy", "failed"}
)

// signIns counts them.
type signIns struct{ counts *prometheus.CounterVec }

// newSignIns registers the counter with r, unless that is nil.
func newSignIns(r prometheus.Registerer) (signIns, error) {
	s := signIns{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_sign_ins_total",
		Help: "Sign-ins to the pages, by way (password, code after it, link, provider) and result (done, code_wanted: goes on " +
			"with a code or chooses an invitation, refused: wrong or not allowed, wait: too many failures, busy, failed: " +
			"the ledger or the provider did not answer)."}, []string{"way", "result"})}
	for _, way := range signInWays {
		for _, result := range signInResults {
			s.counts.WithLabelValues(way, result)
		}
	}
	if r == nil {
		return s, nil
	}
	return s, r.Register(s.counts)
}

// count counts one by its error.
func (s signIns) count(way string, err error) {
	var code *signin.CodeWanted
	var choice *signin.Choice
	var wait *signin.Wait
	result := "failed"
	switch {
	case err == nil:
		result = "done"
	case errors.As(err, &code), errors.As(err, &choice):
		result = "code_wanted"
	case errors.As(err, &wait):
		result = "wait"
	case errors.Is(err, signin.ErrBusy):
		result = "busy"
	case errors.Is(err, signin.ErrWrong), errors.Is(err, signin.ErrCode), errors.Is(err, signin.ErrStep),
		errors.Is(err, signin.ErrKnown), passwordProblem(err) != "",
		errors.Is(err, signin.ErrFormUsed), errors.Is(err, ledger.ErrNoSuchLink), errors.Is(err, signin.ErrNotInvited), errors.Is(err, provider.ErrRefused):
		result = "refused"
	}
	s.counts.WithLabelValues(way, result).Inc()
}

// Routes are the paths of the pages as metrics name them, for http.Options.PageRoutes.
func Routes() (all []string) {
	for _, r := range routes {
		if name := r.name(); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// name is the path of a route, with {ws} and the like in it.
func (r route) name() string {
	_, path, _ := strings.Cut(r.pattern, " ")
	return strings.TrimSuffix(path, "{$}")
}
