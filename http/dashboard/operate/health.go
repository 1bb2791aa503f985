package operate

import (
	"net/http"

	waiting "rollcall/actors/inspect"
	"rollcall/http/dashboard/view"
)

// healthRows bounds the checks on the page Health, of all nodes together, and with them the page. Those that have to be seen
// to are shown first. A guess: more than twenty nodes with a source each have.
const healthRows = 300

// healthView is what every node found of its identity.
type healthView struct {
	Ledger bool // it answers
	Nodes  []nodeHealth
	Silent []waiting.Silent
	Away   string // why other nodes are not to be seen
}

// nodeHealth is what one node found. Bad has to be seen to, and Rest does not.
type nodeHealth struct {
	waiting.Health
	Bad, Rest []waiting.HealthFinding
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
	p.show(w, r, http.StatusOK, "health", &frame{Here: "health", Body: v, Frame: view.Frame{Title: "Health"}})
}
