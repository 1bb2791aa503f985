package dashboard

import (
	"net/http"
	"time"

	"rollcall/http/web"
	"rollcall/ledger"
)

// movesShown is how many moves a page of the statement has.
const movesShown = 50

// creditsView is the statement of a workspace.
type creditsView struct {
	Balance ledger.Balance
	Days    []ledger.DaySpent
	Spent   ledger.Credits // on all days
	Chart   web.Chart
	Moves   []moveView
	Sums    moveView // of the page
	Pager   web.Pager
}

// moveView is one move in words.
type moveView struct {
	At                                time.Time
	What, Link, Why                   string
	Granted, Held, Charged, GivenBack ledger.Credits
}

// showCredits answers GET /w/{ws}/credits.
func showCredits(d *Dashboard, w http.ResponseWriter, r *request) {
	after, ok := openCursor(r.URL.Query().Get("after"))
	if !ok {
		d.notFound(w, r.Request)
		return
	}
	found, err := d.o.Book.Statement(r.Context(), ledger.StatementQuery{Workspace: r.workspace(), After: after, Limit: movesShown})
	if err != nil {
		d.unavailable(w, r.Request, "read the statement", err)
		return
	}
	v := creditsView{Balance: found.Balance, Days: found.Days}
	base := r.base() + "/credits"
	if after != nil {
		v.Pager.First = base
	}
	for _, day := range found.Days {
		v.Spent += day.Spent
		v.Chart.Add(day.Day.Format("2 Jan 2006")+": "+web.Plural(day.Spent, "credit"), day.Day.Format("2 Jan"),
			web.Bar{Class: "spent", Value: float64(day.Spent)})
	}
	for _, m := range found.Moves {
		v.Moves = append(v.Moves, moveOf(r.base(), m))
		v.Sums.Granted += m.Granted
		v.Sums.Held += m.Held
		v.Sums.Charged += m.Charged
		v.Sums.GivenBack += m.GivenBack
	}
	if found.More {
		v.Pager.More = base + "?after=" + sealCursor(*found.Moves[len(found.Moves)-1].Position())
	}
	d.show(w, r, http.StatusOK, "credits", titled("Credits", "credits", v))
}

// moveOf shows one move.
func moveOf(base string, m ledger.Move) moveView {
	v := moveView{At: m.At, Granted: m.Granted, Held: m.Held, Charged: m.Charged, GivenBack: m.GivenBack, Why: m.Reason}
	switch m.Kind {
	case ledger.MoveGrant:
		v.What = "Credits added"
	case ledger.MoveCorrection:
		v.What = "Correction"
	default:
		v.What = "Verification"
		if m.Verification != nil {
			v.What, v.Link, v.Why = nameOf(*m.Verification), base+"/verifications/"+m.ID.String(), stateOf(*m.Verification).Word
		}
	}
	return v
}
