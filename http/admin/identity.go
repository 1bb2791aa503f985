package admin

import (
	"context"
	"net/http"
	"time"

	"rollcall/actors/view"
	"rollcall/http/api"
	"rollcall/smtp/identity"
)

// Identity is what a node found when it checked what receivers hold against a sender.
type Identity struct {
	Fit      bool      `json:"fit"`                      // no check fails
	Enforced bool      `json:"enforced"`                 // identity.enforce: it probes only while it is fit
	Probing  bool      `json:"probing"`                  // it takes probing work now
	Why      string    `json:"why,omitempty"`            // it is not fit
	Checked  *api.Time `json:"checked_at"`               // null: not yet
	Findings []Finding `json:"findings"`                 // by check and source
	Unread   int       `json:"unread_replies,omitempty"` // that no rule knew, since the node began
	Foreign  int       `json:"intercepted,omitempty"`    // times that another answered in a receiver's place
}

// Finding is what one check found at one source.
type Finding struct {
	Check   identity.Check `json:"check"`
	Source  string         `json:"source"`         // IP address, or "" for what is the same for all
	List    string         `json:"list,omitempty"` // the block list that was asked
	State   identity.State `json:"state"`
	Saw     string         `json:"saw"`
	Next    string         `json:"next,omitempty"` // what to do
	Checked api.Time       `json:"checked_at"`
}

// IdentityOf puts a report in the form of the API.
func IdentityOf(r identity.Report, enforced bool) Identity {
	out := Identity{Fit: r.Fit(), Enforced: enforced, Probing: r.Fit() || !enforced, Why: r.Why(),
		Findings: []Finding{}}
	if !r.Checked.IsZero() {
		checked := api.Time(r.Checked)
		out.Checked = &checked
	}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, Finding{Check: f.Check, Source: f.Source, List: f.List,
			State: f.State, Saw: f.Saw, Next: f.Next, Checked: api.Time(f.At)})
	}
	return out
}

// HealthOf puts it in the form in which nodes tell each other.
func HealthOf(i Identity) view.Health {
	out := view.Health{Known: true, Probing: i.Probing, Enforced: i.Enforced, Why: i.Why, Unread: i.Unread,
		Foreign: i.Foreign}
	if i.Checked != nil {
		out.Checked = time.Time(*i.Checked)
	}
	for _, f := range i.Findings {
		out.Findings = append(out.Findings, view.HealthFinding{Check: string(f.Check), Source: f.Source, List: f.List,
			State: string(f.State), Saw: f.Saw, Next: f.Next})
	}
	return out
}

func (s *Server) identity(w http.ResponseWriter, _ *http.Request) {
	if s.options.Identity == nil {
		refuse(w, http.StatusConflict, "no_identity", "this process does not probe: ask another node")
		return
	}
	writeJSON(w, http.StatusOK, s.options.Identity())
}

// checkTimeout bounds a look at everything. Guess: less than the 30 s for which an
// operator's command waits; slow DNS answers by then, or is not going to.
const checkTimeout = 25 * time.Second

// checkIdentity looks at everything now, so that nobody who has mended a record waits
// for the next minute. Block lists are not asked more often for it.
func (s *Server) checkIdentity(w http.ResponseWriter, r *http.Request) {
	if s.options.CheckIdentity == nil {
		refuse(w, http.StatusConflict, "no_identity", "this process does not probe: ask another node")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	found, err := s.options.CheckIdentity(ctx)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "unavailable",
			"the checks are not over yet, because DNS is slow: GET /v1/identity shows them when they are")
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// readiness is the answer of a node that should get requests. One that is not fit to
// probe should, too: its files are probed by other nodes, or wait. It says so, because
// who looks at a node that does nothing looks here first.
func (s *Server) readiness() map[string]string {
	answer := map[string]string{"status": "ready"}
	if s.options.Identity != nil {
		if i := s.options.Identity(); !i.Probing {
			answer["probing"] = "no: run `rollcall doctor` on this node"
		}
	}
	return answer
}
