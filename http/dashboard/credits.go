package dashboard

import (
	"net/http"
	"strconv"
	"time"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
)

// movesShown is how many moves a page of the statement has.
const movesShown = 50

// creditsView is the statement of a workspace.
type creditsView struct {
	Base    string
	Balance ledger.Balance
	Days    []dayView
	Most    ledger.Credits // spent on one day
	Spent   ledger.Credits // on all days
	Width   int            // of the chart
	Moves   []moveView
	Sums    moveView // of the page
	Older   string   // a link; "" on the last page
	First   bool
}

// dayView is a day of the chart.
type dayView struct {
	Day          time.Time
	Spent        ledger.Credits
	X, Y, Height string
}

// moveView is one move in words.
type moveView struct {
	At                                time.Time
	What, Link, Why                   string
	Granted, Held, Charged, GivenBack ledger.Credits
}

const (
	barWidth    = 8
	chartHeight = 80
)

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
	v := creditsView{Base: "/w/" + r.workspace().String(), Balance: found.Balance, First: after == nil,
		Width: barWidth * len(found.Days)}
	for _, day := range found.Days {
		v.Most, v.Spent = max(v.Most, day.Spent), v.Spent+day.Spent
	}
	for i, day := range found.Days {
		height := 0.0
		if v.Most > 0 && day.Spent > 0 {
			height = max(1, chartHeight*float64(day.Spent)/float64(v.Most))
		}
		v.Days = append(v.Days, dayView{Day: day.Day, Spent: day.Spent, X: strconv.Itoa(i * barWidth),
			Y: strconv.FormatFloat(chartHeight-height, 'f', 1, 64), Height: strconv.FormatFloat(height, 'f', 1, 64)})
	}
	for _, m := range found.Moves {
		v.Moves = append(v.Moves, moveOf(v.Base, m))
		v.Sums.Granted += m.Granted
		v.Sums.Held += m.Held
		v.Sums.Charged += m.Charged
		v.Sums.GivenBack += m.GivenBack
	}
	if found.More {
		v.Older = v.Base + "/credits?after=" + sealCursor(*found.Moves[len(found.Moves)-1].Position())
	}
	d.show(w, r, http.StatusOK, "credits", &frame{Frame: view.Frame{Title: "Credits"}, Here: "credits", Body: v})
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
