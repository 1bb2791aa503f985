package operate

import (
	"cmp"
	"net/http"

	waiting "rollcall/actors/inspect"
	"rollcall/http/web"
)

// healthRows bounds the checks on the page Health, of all nodes together, and with them the page. Those that have to be seen
// to are shown first. A guess: more than twenty nodes with a source each have.
const healthRows = 300

// healthView is what every node found of its identity.
type healthView struct {
	Ledger bool // it answers
	Nodes  []nodeHealth
	Silent []waiting.UnreachableNode
	Away   string // why other nodes are not to be seen
	Audit  auditView
}

// Answer says how much has to be seen to.
func (v healthView) Answer() string {
	bad := len(v.Silent)
	for _, n := range v.Nodes {
		bad += len(n.Bad)
	}
	if !v.Ledger {
		bad++
	}
	if bad == 0 {
		return "Everything works"
	}
	return web.Plural(bad, "thing") + " to see to"
}

// checksView is a table of checks.
type checksView struct {
	Caption string
	Rows    []waiting.HealthFinding
}

// nodeHealth is what one node found. Bad has to be seen to, and Rest does not.
type nodeHealth struct {
	waiting.Health
	Bad, Rest []waiting.HealthFinding
}

// Failing are the checks that have to be seen to, Passing the others.
func (n nodeHealth) Failing() checksView {
	return checksView{"Checks that fail or warn on " + cmp.Or(n.Node, "this node"), n.Bad}
}

// Passing are the others.
func (n nodeHealth) Passing() checksView {
	return checksView{"Checks that neither fail nor warn on " + cmp.Or(n.Node, "this node"), n.Rest}
}

// divideChecks gives the checks of all nodes their places. Those that fail or warn get theirs first.
func divideChecks(nodes []nodeHealth, room int) {
	for _, bad := range []bool{true, false} {
		for i := range nodes {
			nodes[i].divide(bad, &room)
		}
	}
}

// divide takes findings of a state apart while there is room on the page.
func (n *nodeHealth) divide(bad bool, room *int) {
	for _, f := range n.Findings {
		if is := f.State == "fail" || f.State == "warn"; is != bad {
			continue
		}
		switch {
		case *room == 0:
			n.More++
			continue
		case bad:
			n.Bad = append(n.Bad, f)
		default:
			n.Rest = append(n.Rest, f)
		}
		*room--
	}
}

// health answers GET /health. When other nodes cannot be asked it shows this one.
func health(p *Pages, w http.ResponseWriter, r *request) {
	found, silent, err := p.desk.Health(r.Context())
	v := healthView{Ledger: p.desk.LedgerAnswers(r.Context()), Silent: silent}
	if err != nil {
		v.Away = "Other nodes are not shown: " + plainly(err) + "."
	}
	for _, h := range found {
		v.Nodes = append(v.Nodes, nodeHealth{Health: h})
	}
	divideChecks(v.Nodes, healthRows)
	v.Audit, _ = p.readAudit(r)
	p.show(w, r, http.StatusOK, "health", living("Health", "health", v))
}
