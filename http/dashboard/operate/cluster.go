package operate

import (
	"context"
	"net/http"

	"rollcall/http/admin"
	"rollcall/http/web"
)

// clusterView is the members and their states.
type clusterView struct{ admin.Membership }

// Serving is how many of them serve.
func (v clusterView) Serving() (n int) {
	for _, m := range v.Members {
		if m.State == admin.StateServing {
			n++
		}
	}
	return n
}

// memberView is one member.
type memberView struct {
	admin.Member
	Problem string
	Changes bool
	Alone   bool // it is the only one
}

// Drains and Resumes say which of the two actions can change something. An unreachable node may or may not drain.
func (m memberView) Drains() bool { return m.State != admin.StateDraining }

// Resumes is the other action.
func (m memberView) Resumes() bool {
	return m.State != admin.StateServing && m.State != admin.StateUnfit
}

// cluster answers GET /cluster.
func cluster(p *Pages, w http.ResponseWriter, r *request) {
	found, err := p.desk.Members(r.Context())
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	p.show(w, r, http.StatusOK, "cluster", titled("Cluster", "cluster", clusterView{found}))
}

// find gives the member of a path.
func (p *Pages) find(w http.ResponseWriter, r *request) (m admin.Member, of int, ok bool) {
	found, err := p.desk.Members(r.Context())
	if err != nil {
		p.refuse(w, r, err)
		return m, 0, false
	}
	for _, m := range found.Members {
		if m.Session.String() == r.PathValue("node") || m.Node.String() == r.PathValue("node") {
			return m, len(found.Members), true
		}
	}
	p.fail(w, r.Request, web.Failure{Status: http.StatusNotFound, Title: "There is no such node",
		Text: "It left the cluster and was forgotten, or the link is wrong.", Next: "Look at the list.",
		Link: "/cluster", Label: "To the cluster"})
	return m, 0, false
}

// member answers GET /cluster/{node}.
func member(p *Pages, w http.ResponseWriter, r *request) {
	if m, of, ok := p.find(w, r); ok {
		p.showMember(w, r, http.StatusOK, m, of, "")
	}
}

func (p *Pages) showMember(w http.ResponseWriter, r *request, status int, m admin.Member, of int, problem string) {
	p.show(w, r, status, "member", titled(m.Name+" · Cluster", "cluster", memberView{m, problem, !r.in.ReadOnly, of == 1}))
}

// drain, undrain and forgetNode answer the forms of GET /cluster/{node}. Irreversible actions ask for the node's name.
func drain(p *Pages, w http.ResponseWriter, r *request)   { p.change(w, r, true, p.desk.Drain) }
func undrain(p *Pages, w http.ResponseWriter, r *request) { p.change(w, r, false, p.desk.Undrain) }
func forgetNode(p *Pages, w http.ResponseWriter, r *request) {
	p.change(w, r, true, p.desk.ForgetNode)
}

// change changes the member of a path.
func (p *Pages) change(w http.ResponseWriter, r *request, named bool,
	do func(ctx context.Context, node string) (admin.Member, error)) {
	m, of, ok := p.find(w, r)
	if !ok {
		return
	}
	if named && web.Text(r.Request, "name") != m.Name {
		p.showMember(w, r, http.StatusUnprocessableEntity, m, of,
			"The name that you wrote is not the one of this node. Nothing was changed.")
		return
	}
	if _, err := do(r.Context(), m.Node.String()); err != nil {
		p.refuse(w, r, err)
		return
	}
	http.Redirect(w, r.Request, "/cluster", http.StatusSeeOther)
}
