package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

const (
	// registerRows is how many results a page shows.
	registerRows = 50

	// newestRows is how many of them the page of the verification shows.
	newestRows = 10
)

// registerView is the results of a verification, newest first.
type registerView struct {
	Base     string
	Name     string
	Rows     []resultView
	Outcome  string
	Reason   string
	Find     string
	Outcomes []smtp.Outcome
	Reasons  []smtp.Reason
	Older    bool
	From     string // link to older ones
	First    bool
	Problem  string
	Final    bool
}

// resultView is one result.
type resultView struct {
	ledger.RecentResult
	Word, Sentence string
}

// Link is the path of its conversation.
func (r resultView) Link() string { return fmt.Sprintf("addresses/%d?in=%d", r.Ordinal, r.Settlement) }

// showResults answers GET and POST /w/{ws}/verifications/{id}/results. The search text comes in the body, because every
// proxy logs URLs.
func showResults(d *Dashboard, w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	show := registerView{Base: baseOf(r, v), Name: nameOf(v), Outcome: r.FormValue("outcome"), Reason: r.FormValue("reason"),
		Find: web.Text(r.Request, "find"), Outcomes: smtp.Outcomes[:], Reasons: allReasons(), Final: v.Status.Final()}
	outcome, okOutcome := outcomeNamed(show.Outcome)
	reason, okReason := reasonNamed(show.Reason)
	from, okFrom := recentPlace(r.FormValue("from"))
	q := ledger.RecentQuery{Workspace: r.workspace(), Verification: v.ID, Outcome: outcome, Reason: reason, Find: show.Find,
		From: from, Limit: registerRows}
	if !okOutcome || !okReason || !okFrom || q.Check() != nil {
		show.Problem, show.Outcome, show.Reason, show.Find = "This filter isn't valid: check the outcome, the reason and the text.", "", "", ""
		d.showRegister(w, r, http.StatusUnprocessableEntity, show)
		return
	}
	page, err := d.o.Book.RecentResults(r.Context(), q)
	switch {
	case errors.Is(err, ledger.ErrResultsExpired):
		show.Problem = "The results were deleted when their retention time ended. The counts stay."
		d.showRegister(w, r, http.StatusGone, show)
		return
	case err != nil:
		d.unavailable(w, r.Request, "read results", err)
		return
	}
	show.Rows, show.First = rowsOf(page.Results), from == nil
	if page.Next != nil {
		show.Older, show.From = true, fmt.Sprintf("%d.%d", page.Next.Settlement, page.Next.Row)
	}
	d.showRegister(w, r, http.StatusOK, show)
}

// allReasons are the reasons that a result can have.
func allReasons() (all []smtp.Reason) {
	for reason := smtp.ReasonNone + 1; reason.Known(); reason++ {
		all = append(all, reason)
	}
	return all
}

// rowsOf shows results.
func rowsOf(results []ledger.RecentResult) (rows []resultView) {
	for _, one := range results {
		rows = append(rows, resultView{one, one.Outcome.String(), web.SentenceOf(one.Reason)})
	}
	return rows
}

// newest reads the newest results of a verification; nil when they have expired.
func (d *Dashboard) newest(r *request, v ledger.Verification) (*registerView, error) {
	page, err := d.o.Book.RecentResults(r.Context(),
		ledger.RecentQuery{Workspace: r.workspace(), Verification: v.ID, Limit: newestRows})
	if errors.Is(err, ledger.ErrResultsExpired) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows := rowsOf(page.Results)
	for !v.Status.Final() && len(rows) < int(min(newestRows, v.Total)) { // room for coming ones
		rows = append(rows, resultView{})
	}
	return &registerView{Base: baseOf(r, v), Rows: rows}, nil
}

func (d *Dashboard) showRegister(w http.ResponseWriter, r *request, status int, show registerView) {
	d.show(w, r, status, "results", titled("Results · "+show.Name+" · Verifications", "list", show))
}

// recentPlace reads the position to continue from; none for "".
func recentPlace(text string) (*ledger.RecentPlace, bool) {
	if text == "" {
		return nil, true
	}
	settlement, row, _ := strings.Cut(text, ".")
	s, errS := strconv.ParseInt(settlement, 10, 64)
	n, errR := strconv.Atoi(row)
	return &ledger.RecentPlace{Settlement: s, Row: n}, errS == nil && errR == nil
}

// breakdownView is the outcomes of a verification by reason and domain.
type breakdownView struct {
	Base, Name string
	Total      int64
	Reasons    []reasonView
	Worst      []worstView
	AtLeast    bool
}

// reasonView is a reason with its count.
type reasonView struct {
	Word, Token, Sentence string
	Count                 int64
}

// worstView is a domain with many unknown addresses.
type worstView struct {
	Domain, Token, Sentence string
	Unknown                 int64
}

// breakdowns caches the breakdowns of final verifications, which never change. Safe for concurrent use.
type breakdowns struct {
	reading singleflight.Group // by the id of the verification, so that simultaneous requests share one read
	kept    *lru.Cache[uuid.UUID, ledger.Breakdown]
}

// breakdownsMax bounds the cache: some 5 kB each.
const breakdownsMax = 200

func newBreakdowns() *breakdowns {
	b := &breakdowns{}
	b.kept, _ = lru.New[uuid.UUID, ledger.Breakdown](breakdownsMax)
	return b
}

// get gives the breakdown of a final verification while its results are kept: ledger.ErrResultsExpired after that.
func (b *breakdowns) get(ctx context.Context, book Book, v ledger.Verification) (ledger.Breakdown, error) {
	kept, known := b.kept.Get(v.ID)
	if !known {
		read, err, _ := b.reading.Do(v.ID.String(), func() (any, error) { return b.read(ctx, book, v) })
		return read.(ledger.Breakdown), err
	}
	// No settlement is above the last one, so this only checks whether they have expired.
	if _, err := book.Evidence(ctx, v.ID, v.Settlements, func(ledger.StoredSettlement) error { return nil }); err != nil {
		if errors.Is(err, ledger.ErrResultsExpired) {
			b.kept.Remove(v.ID)
		}
		return ledger.Breakdown{}, err
	}
	return kept, nil
}

// read reads one and caches it.
func (b *breakdowns) read(ctx context.Context, book Book, v ledger.Verification) (ledger.Breakdown, error) {
	read, err := book.Breakdown(ctx, v.Workspace, v.ID)
	if err == nil {
		b.kept.Add(v.ID, read)
	}
	return read, err
}

// showBreakdown answers GET /w/{ws}/verifications/{id}/reasons.
func showBreakdown(d *Dashboard, w http.ResponseWriter, r *request) {
	v, ok := d.find(w, r)
	if !ok {
		return
	}
	found, err := ledger.Breakdown{}, error(ledger.ErrResultsExpired)
	if v.Status.Final() {
		found, err = d.breakdowns.get(r.Context(), d.o.Book, v)
	}
	if errors.Is(err, ledger.ErrResultsExpired) {
		refusal := failure{Status: http.StatusConflict, Title: "There's no summary of reasons yet",
			Text: "The summary is made from the results of a finished verification.",
			Next: "You can look at the existing results one by one.", Link: baseOf(r, v), Label: "To the verification"}
		if v.Status.Final() {
			refusal.Title, refusal.Text = "The summary of reasons is gone", "The results were deleted when their retention time ended."
			refusal.Next = "The counts of outcomes stay on the page of the verification."
		}
		d.fail(w, r.Request, refusal)
		return
	}
	if err != nil {
		d.unavailable(w, r.Request, "read reasons", err)
		return
	}
	show := breakdownView{Base: baseOf(r, v), Name: nameOf(v), AtLeast: found.AtLeast}
	for _, c := range found.Reasons {
		show.Total += c.Count
		show.Reasons = append(show.Reasons, reasonView{c.Outcome.String(), c.Reason.String(), web.SentenceOf(c.Reason),
			c.Count})
	}
	for _, w := range found.Worst {
		show.Worst = append(show.Worst, worstView{w.Domain, w.Reason.String(), web.SentenceOf(w.Reason), w.Unknown})
	}
	d.show(w, r, http.StatusOK, "reasons", titled("Reasons · "+show.Name+" · Verifications", "list", show))
}
