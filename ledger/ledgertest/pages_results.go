package ledgertest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var recents = []exercise{
	{"results newest first, in pages", 100, recentInPages},
	{"results of an outcome, a reason and a text", 1000, recentFiltered},
	{"a search goes on where it stopped", 1000, recentSearches},
	{"results that nobody may read", 9, recentRefused},
	{"what the outcomes have in common", 100, breaksDown},
}

// Recently reads all pages of a query, and how many settlements each looked at.
func (d *Fixture) Recently(q ledger.RecentQuery) (list []ledger.RecentResult, looked []int) {
	d.T.Helper()
	q.Workspace = d.Workspace
	for {
		page := effort.Must(d.RecentResults(d.T.Context(), q))(d.T)
		list, looked = append(list, page.Results...), append(looked, page.Looked)
		if len(page.Results) > q.Limit || page.Looked > ledger.RecentLooked || !reflect.DeepEqual(page.Verification, d.Sees(q.Verification)) {
			d.T.Fatalf("a page of %d, %d settlements looked at: %+v", len(page.Results), page.Looked, page.Verification)
		}
		if page.Next == nil {
			return list, looked
		}
		q.From = page.Next
	}
}

// ordinals are those of results.
func ordinals(list []ledger.RecentResult) (all []int64) {
	for _, r := range list {
		all = append(all, r.Ordinal)
	}
	return all
}

func recentInPages(d *Fixture) {
	v, l := d.Prepares(9)
	if list, _ := d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 3}); len(list) != 0 {
		d.T.Errorf("before any: %+v", list)
	}
	d.Settles(l, 1, 3, 5, smtp.Valid)
	b := Batch(l, 2, 0, 2, smtp.Invalid)
	b.Results[1].At = b.Results[0].At // of one moment: the greater ordinal is first
	effort.Must(d.Settle(d.T.Context(), b))(d.T)
	want := []int64{2, 1, 0, 5, 4, 3}
	for limit := 1; limit <= 7; limit++ {
		list, looked := d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: limit})
		effort.ErrorIf(d.T, !slices.Equal(ordinals(list), want) || len(looked) != (6+limit-1)/limit ||
			slices.Max(looked) > 2, "pages of %d: %v, looked at %v", limit, ordinals(list), looked)
	}
	first, err := d.RecentResults(d.T.Context(), ledger.RecentQuery{Workspace: d.Workspace, Verification: v.ID, Limit: 4})
	d.ok(err)
	if r := first.Results[0]; r.Result != b.Results[2] || r.Settlement != 2 || first.Results[3].Settlement != 1 {
		d.T.Errorf("got %+v", first.Results)
	}
	d.Settles(l, 3, 6, 8, smtp.Unknown)
	list, _ := d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 4, From: first.Next})
	effort.Equal(d.T, ordinals(list), []int64{4, 3}, "the rest after another settlement")
	list, _ = d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 9})
	effort.Equal(d.T, ordinals(list), append([]int64{8, 7, 6}, want...), "all at the end")
	beyond := &ledger.RecentPlace{Settlement: 9, Row: 2}
	more, _ := d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 9, From: beyond})
	effort.ErrorIf(d.T, len(more) != 9, "from a place that is not there yet: %v", ordinals(more))
}

// mixed is a settlement of one outcome after the other, each with its reason, for addresses of two domains.
func mixed(l ledger.Lease, number, first int64, outcomes ...smtp.Outcome) ledger.Settlement {
	b := Batch(l, number, first, first+int64(len(outcomes))-1, smtp.Valid)
	for i, o := range outcomes {
		r := &b.Results[i]
		r.Outcome = o
		r.Reason = map[smtp.Outcome]smtp.Reason{smtp.Valid: smtp.MailboxExists, smtp.Invalid: smtp.MailboxNotFound, smtp.CatchAll: smtp.AcceptAll,
			smtp.Unknown: smtp.Greylisted, smtp.Error: smtp.Internal}[o]
		if o == smtp.Unknown {
			r.Email = fmt.Sprintf("User%d@Late.test", r.Ordinal)
		}
	}
	return b
}

func recentFiltered(d *Fixture) {
	v, l := d.Prepares(9)
	for i, b := range []ledger.Settlement{mixed(l, 1, 0, smtp.Valid, smtp.Unknown), mixed(l, 2, 2, smtp.Error, smtp.Valid),
		mixed(l, 3, 4, smtp.Invalid, smtp.CatchAll, smtp.Valid), mixed(l, 4, 7, smtp.Unknown, smtp.Valid)} {
		if i == 3 {
			b.Results[0].Reason = smtp.TimedOut
		}
		effort.Must(d.Settle(d.T.Context(), b))(d.T)
	}
	for _, c := range []struct {
		query  ledger.RecentQuery
		want   []int64
		looked int // in all
	}{
		{ledger.RecentQuery{Outcome: smtp.Valid}, []int64{8, 6, 3, 0}, 4},
		{ledger.RecentQuery{Outcome: smtp.Unknown}, []int64{7, 1}, 2},
		{ledger.RecentQuery{Outcome: smtp.Invalid}, []int64{4}, 1},
		{ledger.RecentQuery{Outcome: smtp.CatchAll}, []int64{5}, 1},
		{ledger.RecentQuery{Outcome: smtp.Error}, []int64{2}, 1},
		{ledger.RecentQuery{Reason: smtp.Greylisted}, []int64{1}, 4},
		{ledger.RecentQuery{Reason: smtp.TimedOut, Outcome: smtp.Unknown}, []int64{7}, 2},
		{ledger.RecentQuery{Reason: smtp.TimedOut, Outcome: smtp.Valid}, nil, 4},
		{ledger.RecentQuery{Find: "LATE.Test"}, []int64{7, 1}, 4},
		{ledger.RecentQuery{Find: "user7@"}, []int64{7}, 4},
		{ledger.RecentQuery{Find: "user1@", Outcome: smtp.Unknown}, []int64{1}, 2},
		{ledger.RecentQuery{Find: "nobody"}, nil, 4},
	} {
		c.query.Verification, c.query.Limit = v.ID, 9
		list, looked := d.Recently(c.query)
		sum := 0
		for _, n := range looked {
			sum += n
		}
		effort.ErrorIf(d.T, !slices.Equal(ordinals(list), c.want) || sum != c.looked,
			"%+v: %v, %d settlements looked at, want %v, %d", c.query, ordinals(list), sum, c.want, c.looked)
		c.query.Limit = 1
		if list, _ := d.Recently(c.query); !slices.Equal(ordinals(list), c.want) {
			d.T.Errorf("%+v one by one: %v, want %v", c.query, ordinals(list), c.want)
		}
	}
}

// recentSearches: a search over more settlements than one call reads.
func recentSearches(d *Fixture) {
	const most = ledger.RecentLooked
	v, l := d.Prepares(most + 2)
	for i := range int64(most + 2) {
		d.Settles(l, i+1, i, i, smtp.Valid)
	}
	list, looked := d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 9, Find: "user0@"})
	effort.ErrorIf(d.T, !slices.Equal(ordinals(list), []int64{0}) || !slices.Equal(looked, []int{most, 2}),
		"found %v, looked at %v", ordinals(list), looked)
	list, looked = d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 9, Reason: smtp.Greylisted})
	effort.ErrorIf(d.T, len(list) != 0 || !slices.Equal(looked, []int{most, 2}),
		"found %v, looked at %v", ordinals(list), looked)
	list, looked = d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: ledger.RecentMax})
	effort.ErrorIf(d.T, len(list) != most+2 || !slices.Equal(looked, []int{ledger.RecentMax, 2}),
		"%d in all, looked at %v", len(list), looked)
	if list, looked = d.Recently(ledger.RecentQuery{Verification: v.ID, Limit: 9, Outcome: smtp.Error}); len(list) != 0 || !slices.Equal(looked, []int{0}) {
		d.T.Errorf("found %v, looked at %v", ordinals(list), looked)
	}
}

func recentRefused(d *Fixture) {
	ctx := d.T.Context()
	v, l := d.Prepares(1)
	ask := ledger.RecentQuery{Workspace: d.Workspace, Verification: v.ID, Limit: 1}
	for i, change := range []func(q *ledger.RecentQuery){
		func(q *ledger.RecentQuery) { q.Limit = 0 }, func(q *ledger.RecentQuery) { q.Limit = ledger.RecentMax + 1 },
		func(q *ledger.RecentQuery) { q.Outcome = 99 }, func(q *ledger.RecentQuery) { q.Reason = 255 },
		func(q *ledger.RecentQuery) { q.From = &ledger.RecentPlace{} }, func(q *ledger.RecentQuery) { q.From = &ledger.RecentPlace{Settlement: 1, Row: -1} },
		func(q *ledger.RecentQuery) { q.From = &ledger.RecentPlace{Settlement: 1, Row: ledger.SettlementMax} },
		func(q *ledger.RecentQuery) { q.Find = "a\x00" }, func(q *ledger.RecentQuery) { q.Find = string(make([]byte, ledger.EmailBytesMax+1)) },
	} {
		q := ask
		change(&q)
		denied(d.RecentResults(ctx, q))(d, ledger.ErrIllegal, fmt.Sprintf("query %d", i))
	}
	denied(d.Breakdown(ctx, d.Workspace, v.ID))(d, ledger.ErrIllegal)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	other := d.other(d.T, 0)
	ask.Workspace = other.Workspace
	denied(d.RecentResults(ctx, ask))(d, ledger.ErrNoSuchVerification)
	denied(d.Breakdown(ctx, other.Workspace, v.ID))(d, ledger.ErrNoSuchVerification)
	denied(d.Breakdown(ctx, d.Workspace, uuid.New()))(d, ledger.ErrNoSuchVerification)
	effort.Is(d.T, effort.Must(d.Breakdown(ctx, d.Workspace, v.ID))(d.T).Verification, d.Sees(v.ID), "final")
}

func breaksDown(d *Fixture) {
	v, l := d.Prepares(60)
	b := mixed(l, 1, 0, smtp.Valid, smtp.Valid, smtp.Invalid, smtp.Unknown, smtp.Unknown, smtp.Unknown, smtp.CatchAll)
	b.Results[3].Reason, b.Results[5].Email = smtp.TimedOut, "one@LATE.test"
	effort.Must(d.Settle(d.T.Context(), b))(d.T)
	b = Batch(l, 2, 7, 40, smtp.Unknown)
	for i := range b.Results {
		b.Results[i].Email, b.Results[i].Reason = fmt.Sprintf("a@d%02d.test", i), smtp.TimedOut
	}
	b.Results[30].Email, b.Results[31].Email = "a@bücher.test", "a@XN--bcher-kva.test"
	effort.Must(d.Settle(d.T.Context(), b))(d.T)
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
	down := effort.Must(d.Breakdown(d.T.Context(), d.Workspace, v.ID))(d.T)
	want := []ledger.ReasonCount{{Outcome: smtp.Unknown, Reason: smtp.TimedOut, Count: 35}, {Outcome: smtp.Valid, Reason: smtp.MailboxExists, Count: 2},
		{Outcome: smtp.Unknown, Reason: smtp.Greylisted, Count: 2}, {Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, Count: 1},
		{Outcome: smtp.CatchAll, Reason: smtp.AcceptAll, Count: 1}}
	effort.ErrorIf(d.T, !slices.Equal(down.Reasons, want) || down.Verification != d.Sees(v.ID) || down.AtLeast,
		"got %+v, want %+v", down, want)
	worst := []ledger.DomainCount{{Domain: "late.test", Unknown: 3, Reason: smtp.Greylisted}, {Domain: "xn--bcher-kva.test", Unknown: 2, Reason: smtp.TimedOut}}
	for i := range ledger.WorstDomains - 2 {
		worst = append(worst, ledger.DomainCount{Domain: fmt.Sprintf("d%02d.test", i), Unknown: 1, Reason: smtp.TimedOut})
	}
	effort.Equal(d.T, down.Worst, worst, "worst")
}

var statements = []exercise{
	{"a statement has grants and files, newest first", 0, states},
	{"a statement is of its workspace", 5, func(d *Fixture) {
		other := d.other(d.T, 7)
		_, l := other.Prepares(3)
		other.Settles(l, 1, 0, 1, smtp.Valid)
		st, err := d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: d.Workspace, Limit: 9})
		effort.ErrorIf(d.T, err != nil || len(st.Moves) != 1 || st.Balance.Granted != 5 ||
			st.Days[ledger.StatementDays-1].Spent != 0, "got %+v, %v", st, err)
		effort.Is(d.T, other.AddsUp(1), "", "the other")
		for _, limit := range []int{0, ledger.StatementMax + 1} {
			denied(d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: d.Workspace, Limit: limit}))(d, ledger.ErrIllegal)
		}
		_, err = d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: uuid.New(), Limit: 1})
		d.refused(err, ledger.ErrNoSuchWorkspace)
	}},
}

func states(d *Fixture) {
	id := uuid.New()
	effort.Must(d.Grant(ledger.WithAuthor(d.T.Context(), "mara"), id, d.Workspace, 10, "invoice 7"))(d.T)
	d.nextMillisecond(d.tunes().Now)
	v, l := d.Prepares(6)
	d.Creates(7) // which holds nothing
	d.nextMillisecond(v.Created)
	d.Grants(5)
	effort.Must(d.Settle(d.T.Context(), mixed(l, 1, 0, smtp.Valid, smtp.Invalid, smtp.Unknown)))(d.T)
	st := effort.Must(d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: d.Workspace, Limit: 9}))(d.T)
	effort.FatalIf(d.T, len(st.Moves) != 3 || st.More ||
		st.Balance != (ledger.Balance{Granted: 15, Available: 10, Held: 3, Spent: 2}), "got %+v", st)
	if m := st.Moves[0]; m.Granted != 5 || m.Reason != "test" || m.Author != "" || m.Kind != ledger.MoveGrant {
		d.T.Errorf("the second grant: %+v", m)
	}
	m := st.Moves[1]
	effort.ErrorIf(d.T, m.Kind != ledger.MoveVerification || m.ID != v.ID || *m.Verification != d.Sees(v.ID) ||
		m.Held != 6 || m.Charged != 2 || m.GivenBack != 1 || !m.At.Equal(v.Created), "the file: %+v", m)
	if m := st.Moves[2]; m.ID != id || m.Granted != 10 || m.Reason != "invoice 7" || m.Author != "mara" || m.At.IsZero() {
		d.T.Errorf("the first grant: %+v", m)
	}
	today, now := st.Days[ledger.StatementDays-1], d.tunes().Now
	effort.ErrorIf(d.T, today.Spent+st.Days[ledger.StatementDays-2].Spent != 2 || now.Sub(today.Day) > 2*ledger.Day ||
		today.Day.Truncate(ledger.Day) != today.Day, "today, %v: %+v", now, today)
	for i := 1; i < len(st.Days); i++ {
		effort.Is(d.T, st.Days[i].Day.Sub(st.Days[i-1].Day), ledger.Day, "day", i, st.Days[i])
	}
	for kind, want := range map[ledger.MoveKind]int{ledger.MoveGrant: 2, ledger.MoveVerification: 1, ledger.MoveCorrection: 0} {
		only, err := d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: d.Workspace, Only: kind, Limit: 9})
		effort.ErrorIf(d.T, err != nil || len(only.Moves) != want || only.Balance != st.Balance ||
			slices.ContainsFunc(only.Moves, func(m ledger.Move) bool { return m.Kind != kind }), "only %s: %+v, %v",
			kind, only.Moves, err)
	}
	page, err := d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: d.Workspace, Limit: 1,
		After: &ledger.Position{Created: v.Created.Add(-time.Hour)}})
	effort.ErrorIf(d.T, err != nil || len(page.Moves) != 0 || page.More, "before all: %+v, %v", page, err)
}
