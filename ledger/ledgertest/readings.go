package ledgertest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

var readings = []exercise{
	{"results come in the order of the file, each address once", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		got := d.Reads(v.ID)
		effort.ErrorIf(d.T, len(got) != 0, "before any outcome: %+v", got)
		d.Settles(l, 1, 3, 4, smtp.Invalid)
		d.Settles(l, 2, 0, 1, smtp.CatchAll)
		want := []ledger.Result{OneResult(0, smtp.CatchAll), OneResult(1, smtp.CatchAll),
			OneResult(3, smtp.Invalid), OneResult(4, smtp.Invalid)}
		effort.Same(d.T, d.Reads(v.ID), want, "partial")
		d.Settles(l, 3, 2, 2, smtp.Unknown)
		d.Settles(l, 4, 5, 5, smtp.Error)
		for i, r := range d.Reads(v.ID) {
			effort.Is(d.T, r.Ordinal, int64(i), fmt.Sprintf("result %d has ordinal", i))
		}
	}},
	{"results of many settlements", 200, func(d *Fixture) {
		const n = 130 // the last outcome was first
		v, l := d.Prepares(n)
		for i := range int64(n) {
			d.Settles(l, i+1, n-1-i, n-1-i, smtp.Outcomes[i%3])
		}
		got := d.Reads(v.ID)
		for i, r := range got {
			want := OneResult(int64(i), smtp.Outcomes[(n-1-i)%3])
			effort.FatalIf(d.T, r != want, "result %d: got %+v, want %+v", i, r, want)
		}
		effort.Is(d.T, len(got), n, "results")
	}},
	{"a reader that gives up ends the results", 9, func(d *Fixture) {
		v, l := d.Prepares(6)
		d.Settles(l, 1, 0, 5, smtp.Valid)
		enough := errors.New("enough")
		n := 0
		d.refused(d.Results(d.T.Context(), d.Workspace, v.ID, func(ledger.Result) error { n++; return enough }), enough)
		effort.Is(d.T, n, 1, "yielded", n-1, "more")
	}},
	{"history pages survive new files", 0, history},
	{"history of one kind", 0, func(d *Fixture) {
		v := d.Creates(7)
		for kind, want := range map[ledger.Kind]int{ledger.Bulk: 1, ledger.Single: 0, "": 1} {
			q := ledger.HistoryQuery{Workspace: d.Workspace, Kind: kind, Limit: 9}
			list := effort.Must(d.History(d.T.Context(), q))(d.T)
			effort.ErrorIf(d.T, len(list) != want || want == 1 && list[0] != v,
				"kind %q: got %d, want %d", kind, len(list), want)
		}
	}},
	{"history of those that are open", 0, func(d *Fixture) {
		over, open := d.Creates(7), d.Creates(7)
		effort.Must(d.Cancel(d.T.Context(), d.Workspace, over.ID))(d.T)
		list := effort.Must(d.History(d.T.Context(), ledger.HistoryQuery{Workspace: d.Workspace, Open: true, Limit: 9}))(d.T)
		effort.ErrorIf(d.T, len(list) != 1 || list[0] != open, "open are %+v, want %+v", list, open)
	}},
	{"open ones are told with who has them", 4, func(d *Fixture) {
		v, l := d.Prepares(1)
		parked, p := d.Prepares(1)
		d.ok(d.Release(d.T.Context(), l))
		seen := func(id uuid.UUID) ledger.Verification {
			list := effort.Must(d.OpenVerifications(d.T.Context(), 100_000))(d.T)
			i := slices.IndexFunc(list, func(v ledger.Verification) bool { return v.ID == id })
			effort.FatalIf(d.T, i < 0, "%s is not among the %d open ones", id, len(list))
			return list[i]
		}
		if got := seen(v.ID); got.LeasedBy != uuid.Nil || !got.LeasedUntil.IsZero() || !got.ParkedUntil.IsZero() {
			d.T.Errorf("nobody has it: %+v", got)
		}
		if got := seen(parked.ID); got.LeasedBy != d.Node || !got.LeasedUntil.After(got.Created) {
			d.T.Errorf("%s has it: %+v", d.Node, got)
		}
		next := d.tunes().Now.Add(Hour)
		effort.Must(d.Park(d.T.Context(), p, ledger.Estimate{Next: next}, []byte("state")))(d.T)
		if got := seen(parked.ID); got.LeasedBy != uuid.Nil || got.ParkedUntil.Sub(next).Abs() > time.Second {
			d.T.Errorf("it rests until %v: %+v", next, got)
		}
	}},
	{"open ones of all workspaces, the oldest first", 0, func(d *Fixture) {
		ctx, first, o := d.T.Context(), d.Creates(7), d.other(d.T, 0)
		second := o.Creates(7)
		check := func(want ...ledger.Verification) {
			d.T.Helper()
			list := effort.Must(d.OpenVerifications(ctx, 100_000))(d.T)
			list = slices.DeleteFunc(list, func(v ledger.Verification) bool {
				return v.Workspace != d.Workspace && v.Workspace != o.Workspace
			})
			older := func(a, b ledger.Verification) int { // of one millisecond, by id
				return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
			}
			slices.SortFunc(want, older)
			if !slices.EqualFunc(list, want, func(a, b ledger.Verification) bool { return a.ID == b.ID }) {
				d.T.Errorf("%d are open, want %d, or in another order", len(list), len(want))
			}
		}
		check(first, second)
		effort.Must(d.Cancel(ctx, first.Workspace, first.ID))(d.T)
		check(second)
		list, err := d.OpenVerifications(ctx, 0)
		effort.ErrorIf(d.T, len(list) > 0 || err != nil, "at most none: %d, %v", len(list), err)
	}},
	{"a workspace does not see the files of others", 9, func(d *Fixture) {
		v, l := d.Prepares(1)
		d.Settles(l, 1, 0, 0, smtp.Valid)
		o := d.other(d.T, 0)
		ctx := d.T.Context()
		denied(d.Verification(ctx, o.Workspace, v.ID))(d, ledger.ErrNoSuchVerification)
		denied(d.Cancel(ctx, o.Workspace, v.ID))(d, ledger.ErrNoSuchVerification)
		err := d.Results(ctx, o.Workspace, v.ID, func(ledger.Result) error { return errors.New("a result of another") })
		d.refused(err, ledger.ErrNoSuchVerification)
		list := effort.Must(d.History(ctx, ledger.HistoryQuery{Workspace: o.Workspace, Limit: 9}))(d.T)
		effort.Is(d.T, len(list), 0, "history of another workspace", list)
		denied(d.Entries(ctx, ledger.EntriesQuery{Workspace: o.Workspace, Verification: v.ID, Limit: 9}))(d,
			ledger.ErrNoSuchVerification)
	}},
	{"entries of a verification come newest first and add up", 9, entries},
}

// entries settles until five entries stand, cancels the rest, and reads them in pages of every size.
func entries(d *Fixture) {
	v, l := d.Prepares(8)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	batch := Batch(l, 2, 2, 3, smtp.Unknown)
	batch.Results[0].Outcome = smtp.Invalid
	effort.Must(d.Settle(d.T.Context(), batch))(d.T)
	d.ok(d.Release(d.T.Context(), l))
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	want := map[string]ledger.Credits{"hold 0": 8, "charge 1": 2, "charge 2": 1, "release 2": 1, "release 0": 4}
	for limit := 1; limit <= len(want)+1; limit++ {
		got := map[string]ledger.Credits{}
		var before ledger.Entry
		q := ledger.EntriesQuery{Workspace: d.Workspace, Verification: v.ID, Limit: limit}
		for more := true; more; {
			s := effort.Must(d.Entries(d.T.Context(), q))(d.T)
			sums := ledger.Sums{Held: 8, Charged: 3, Released: 5}
			effort.FatalIf(d.T, s.Count != 5 || s.Sums != sums || s.Verification.ID != v.ID,
				"got %+v of %d entries, want %+v of 5", s.Sums, s.Count, sums)
			for _, e := range s.Entries {
				got[fmt.Sprintf("%s %d", e.Kind, e.Number)] += e.Amount
				effort.ErrorIf(d.T, len(got) > 1 && e.At.After(before.At) || e.At.IsZero(),
					"%+v comes after %+v", e, before)
				before = e
				q.After = &before
			}
			more = len(s.Entries) == limit
		}
		effort.Same(d.T, got, want, "pages", limit)
	}
}

func history(d *Fixture) {
	var made []ledger.Verification
	for range 7 {
		made = append(made, d.Creates(7))
	}
	want := older(made...)
	slices.Reverse(want)
	var got []uuid.UUID
	q := ledger.HistoryQuery{Workspace: d.Workspace, Limit: 3}
	for {
		page := effort.Must(d.History(d.T.Context(), q))(d.T)
		for _, v := range page {
			got = append(got, v.ID)
			q.After = &ledger.Position{Created: v.Created, ID: v.ID}
		}
		if len(page) < q.Limit {
			break
		}
		d.other(d.T, 0).Creates(7)
		d.Creates(7)
	}
	// A file that was made in the millisecond of a page's end may stand behind it.
	got = slices.DeleteFunc(got, func(id uuid.UUID) bool { return !slices.Contains(want, id) })
	effort.Equal(d.T, got, want)
}

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
	first := effort.Must(d.RecentResults(d.T.Context(), ledger.RecentQuery{Workspace: d.Workspace, Verification: v.ID,
		Limit: 4}))(d.T)
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
		denied(d.Statement(d.T.Context(), ledger.StatementQuery{Workspace: uuid.New(), Limit: 1}))(d,
			ledger.ErrNoSuchWorkspace)
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
