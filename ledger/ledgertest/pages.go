package ledgertest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// Singles asks for the check of an address, which is allowed.
func (d *Fixture) Singles(address string) ledger.CreateSingle {
	n := d.Asks(1)
	return ledger.CreateSingle{ID: n.ID, Workspace: n.Workspace, Identity: n.Identity, Address: address, Limits: n.Limits}
}

func checks(d *Fixture, address string) ledger.Verification {
	d.T.Helper()
	return effort.Must(d.CreateSingle(d.T.Context(), d.Singles(address)))(d.T)
}

// bytesOf reads the bytes of a verification's file.
func bytesOf(d *Fixture, id uuid.UUID) string {
	d.T.Helper()
	file := effort.Must(d.OpenFile(d.T.Context(), id))(d.T)
	text, err := io.ReadAll(file)
	d.ok(errors.Join(err, file.Close()))
	return string(text)
}

var singles = []exercise{
	{"one address is made, checked and settled as a file is", 3, checksOne},
	{"the same form again answers the same check", 0, singlesTwice},
	{"what is no address is refused", 0, func(d *Fixture) {
		for _, address := range []string{"", "nobody", "a b@c.test", "a@b.test\n", "a@", "\ufeffa@b.test", "a\x00@b.test", "a@b.test,c@d.test",
			"Bob <a@b.test>", "\"a@b.test\"", "a@" + strings.Repeat("a.", ledger.EmailBytesMax) + "test"} {
			denied(d.CreateSingle(d.T.Context(), d.Singles(address)))(d, smtp.ErrMalformed)
		}
		effort.Is(d.T,
			len(effort.Must(d.History(d.T.Context(), ledger.HistoryQuery{Workspace: d.Workspace, Limit: 9}))(d.T)), 0, "made")
	}},
	{"a check keeps to the limits of its workspace", 0, singlesWithin},
	{"a check without credits waits, and is cancelled", 0, func(d *Fixture) {
		v := checks(d, "a@b.test")
		l := d.Takes(v.ID)
		v = effort.Must(d.Prepare(d.T.Context(), l, 1, 0, 1))(d.T)
		d.is(v, ledger.WaitingCredits)
		v = effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
		d.is(v, ledger.State(ledger.Cancelled))
		effort.ErrorIf(d.T, v.SingleOutcome != smtp.Undecided || v.SingleEmail != "a@b.test" || v.Counts.Cancelled != 1,
			"cancelled: %+v", v)
	}},
	{"the address goes with the results", 1, singlesRetention},
	{"the log tells who made and cancelled verifications", 9, logsFiles},
}

// checksOne: from the form to the result, with an address that CSV could misread.
func checksOne(d *Fixture) {
	c := d.Singles(`"a,\"b"@Example.TEST`)
	ctx := ledger.WithActor(d.T.Context(), "user:7")
	v := effort.Must(d.CreateSingle(ctx, c))(d.T)
	want := `"""a,\""b""@Example.TEST"` + "\n"
	d.is(v, ledger.State(ledger.Preparing))
	effort.ErrorIf(d.T, v.ID != c.ID || v.Identity != c.Identity || v.Workspace != d.Workspace ||
		v.Kind != ledger.Single || v.SingleEmail != c.Address || v.Filename != "" || v.Bytes != int64(len(want)) ||
		v.Durable != v.Bytes || v.Total != -1 || v.MadeBy != "user:7", "made: %+v", v)
	effort.Is(d.T, bytesOf(d, v.ID), want, "file")
	effort.Is(d.T, d.Sees(v.ID), v, "read")
	u, err := d.OpenUpload(ctx, v.ID)
	effort.ErrorIf(d.T, err != nil || u.Status != ledger.Preparing || u.Writer != 0, "upload: %+v, %v", u, err)
	for kind, want := range map[ledger.Kind]int{ledger.Bulk: 0, ledger.Single: 1, "": 1} {
		list, err := d.History(ctx, ledger.HistoryQuery{Workspace: d.Workspace, Kind: kind, Limit: 9})
		effort.ErrorIf(d.T, err != nil || len(list) != want || want == 1 && list[0] != v,
			"kind %q: %+v, %v", kind, list, err)
	}
	l := d.Takes(v.ID)
	v = effort.Must(d.Prepare(ctx, l, 1, 0, 1))(d.T)
	d.is(v, ledger.State(ledger.Verifying))
	d.has(3, 2, 1, 0)
	b := Batch(l, 1, 0, 0, smtp.CatchAll)
	b.Results[0].Email, b.Evidence = c.Address, []byte("seen")
	v = effort.Must(d.Settle(ctx, b))(d.T)
	d.is(v, ledger.State(ledger.Completed))
	d.has(3, 2, 0, 1)
	effort.ErrorIf(d.T, v.SingleOutcome != smtp.CatchAll || v.SingleEmail != c.Address || d.Sees(v.ID) != v,
		"settled: %+v", v)
	list := d.Reads(v.ID)
	effort.ErrorIf(d.T, len(list) != 1 || list[0] != b.Results[0], "results: %+v", list)
	witnesses(d, v.ID, "seen")
}

// singlesTwice: one identity makes one check, and one sort of verification.
func singlesTwice(d *Fixture) {
	ctx := d.T.Context()
	c := d.Singles("a@b.test")
	v := effort.Must(d.CreateSingle(ctx, c))(d.T)
	again := c
	again.ID = uuid.New()
	again.Limits = ledger.Limits{Open: 1, Stored: 1, Unpaid: 1} // which it would not keep to
	twice := effort.Must(d.CreateSingle(ctx, again))(d.T)
	effort.Is(d.T, twice, v, "again")
	for _, address := range []string{"A@b.test", "c@b.test", "aa@b.test"} {
		other := c
		other.ID, other.Address = uuid.New(), address
		denied(d.CreateSingle(ctx, other))(d, ledger.ErrIdentityReused)
	}
	file := d.Asks(v.Bytes)
	file.Identity = c.Identity
	denied(effort.First(d.Create(ctx, file)))(d, ledger.ErrIdentityReused)
	file.Identity = uuid.New()
	effort.Must(effort.First(d.Create(ctx, file)))(d.T)
	c.ID, c.Identity = uuid.New(), file.Identity
	denied(d.CreateSingle(ctx, c))(d, ledger.ErrIdentityReused)
	elsewhere := d.other(d.T, 0)
	c = elsewhere.Singles("other@b.test")
	c.Identity = v.Identity
	effort.Is(d.T, effort.Must(d.CreateSingle(ctx, c))(d.T).ID, c.ID, "the same identity in another workspace")
	c.ID, c.Identity, c.Workspace = uuid.New(), uuid.New(), uuid.New()
	denied(d.CreateSingle(ctx, c))(d, ledger.ErrNoSuchWorkspace)
	denied(d.CreateSingle(ledger.WithActor(ctx, "a\x00"), d.Singles("a@b.test")))(d, ledger.ErrIllegal)
}

// singlesWithin: each limit of a create applies to a check, which may use all of it.
func singlesWithin(d *Fixture) {
	bytes := int64(len("\"a@b.test\"\n"))
	for _, c := range []struct {
		limits ledger.Limits
		want   error
	}{
		{ledger.Limits{Open: 1, Stored: 1 << 20, Unpaid: 9}, ledger.ErrTooManyOpen},
		{ledger.Limits{Open: 9, Stored: 2*bytes - 1, Unpaid: 9}, ledger.ErrTooManyBytes},
		{ledger.Limits{Open: 9, Stored: 1 << 20, Unpaid: 1}, ledger.ErrTooManyUnpaid},
	} {
		at := d.other(d.T, 0)
		one := at.Singles("a@b.test")
		one.Limits = c.limits
		effort.Denied(d.CreateSingle(d.T.Context(), one))(d.T, nil, c.limits)
		one.ID, one.Identity = uuid.New(), uuid.New()
		_, err := d.CreateSingle(d.T.Context(), one)
		d.refused(err, c.want)
		var later *ledger.Later
		effort.Is(d.T, errors.As(err, &later), c.want == ledger.ErrTooManyUnpaid, c.limits, err, "says when to come again")
		at.uses(ledger.Limits{Open: 1, Stored: bytes, Unpaid: 1})
	}
}

func singlesRetention(d *Fixture) {
	ctx := d.T.Context()
	c := d.Singles("a@b.test")
	v := effort.Must(d.CreateSingle(ctx, c))(d.T)
	l := d.Takes(v.ID)
	effort.Must(d.Prepare(ctx, l, 1, 0, 1))(d.T)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	d.nextMillisecond(d.Sees(v.ID).Completed)
	d.sweeps(ledger.Retention{Uploads: time.Nanosecond, Results: time.Nanosecond}, 2)
	v = d.Sees(v.ID)
	effort.ErrorIf(d.T, v.SingleEmail != "" || v.SingleOutcome != smtp.Valid || !v.UploadDeleted,
		"after the retention: %+v", v)
	denied(d.OpenFile(ctx, v.ID))(d, ledger.ErrIllegal)
	denied(d.RecentResults(ctx, ledger.RecentQuery{Workspace: d.Workspace, Verification: v.ID, Limit: 1}))(d,
		ledger.ErrResultsExpired)
	denied(d.Breakdown(ctx, d.Workspace, v.ID))(d, ledger.ErrResultsExpired)
	effort.Is(d.T, effort.Must(d.CreateSingle(ctx, c))(d.T), v, "again")
	c.Address = "longer@b.test"
	denied(d.CreateSingle(ctx, c))(d, ledger.ErrIdentityReused)
}

// logsFiles: each create and each cancel has one line, and what the engine ends has none.
func logsFiles(d *Fixture) {
	by := func(who string) (of func(id uuid.UUID)) {
		return func(id uuid.UUID) {
			ctx := ledger.WithActor(d.T.Context(), who)
			for range 2 {
				effort.Must(d.Cancel(ctx, d.Workspace, id))(d.T)
			}
		}
	}
	n := d.Asks(7)
	n.Filename = strings.Repeat("ä", ledger.OperatorTextMax/2+1)
	for range 2 {
		effort.Must(effort.First(d.Create(ledger.WithActor(d.T.Context(), "key:billing"), n)))(d.T)
	}
	c := d.Singles("a@b.test")
	for range 2 {
		effort.Must(d.CreateSingle(ledger.WithActor(d.T.Context(), "user:7"), c))(d.T)
	}
	by("user:7")(n.ID)
	v, l := d.Prepares(2)
	by("key:billing")(v.ID) // it is leased
	v = effort.Must(d.FinishCancel(d.T.Context(), l))(d.T)
	by("user:8")(v.ID)
	done, l := d.Prepares(1)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	by("user:7")(done.ID)
	denied(d.Cancel(ledger.WithActor(d.T.Context(), "a\x00"), d.Workspace, c.ID))(d, ledger.ErrIllegal)
	short := n.Filename[:ledger.OperatorTextMax]
	got, want := allLogLines(d), []string{"key:billing||verification create|" + n.ID.String() + "|" + short,
		"user:7||check create|" + c.ID.String() + "|",
		"user:7||verification cancel|" + n.ID.String() + "|" + short, "||verification create|" + v.ID.String() + "|list.csv",
		"key:billing||verification cancel|" + v.ID.String() + "|list.csv", "||verification create|" + done.ID.String() + "|list.csv"}
	slices.Sort(got)
	slices.Sort(want)
	effort.Equal(d.T, got, want, "log")
}

// AddsUp returns what doesn't add up in a workspace's statement, read in pages; "": nothing.
func (d *Fixture) AddsUp(limit int) string {
	q := ledger.StatementQuery{Workspace: d.Workspace, Limit: limit}
	var b ledger.Balance
	var held, days ledger.Credits
	var last *ledger.Move
	for {
		st, err := d.Statement(d.T.Context(), q)
		if err != nil {
			return err.Error()
		}
		if a := st.Balance; a.Granted != a.Available+a.Held+a.Spent || a != d.Account() {
			return fmt.Sprintf("balance %+v, the account is %+v", a, d.Account())
		}
		for i := range st.Moves {
			m := &st.Moves[i]
			if last != nil && cmp.Or(last.At.Compare(m.At), bytes.Compare(last.ID[:], m.ID[:])) <= 0 {
				return fmt.Sprintf("%+v follows %+v", m, last)
			}
			if still := m.Held - m.Charged - m.GivenBack; m.Verification != nil && (m.Verification.Held != still || m.Verification.ID != m.ID) {
				return fmt.Sprintf("%+v leaves %d held, the row says %d", m, still, m.Verification.Held)
			}
			b.Granted, b.Spent, held, last = b.Granted+m.Granted, b.Spent+m.Charged, held+m.Held-m.Charged-m.GivenBack, m
		}
		if last != nil && len(st.Moves) == 0 {
			return "an empty page, of which it was said that there is more"
		}
		if st.More && len(st.Moves) != limit || len(st.Moves) > limit {
			return fmt.Sprintf("a page of %d moves, %d were asked for", len(st.Moves), limit)
		}
		if !st.More {
			for _, day := range st.Days {
				days += day.Spent
			}
			if a := st.Balance; b.Granted != a.Granted || b.Spent != a.Spent || held != a.Held || days != a.Spent ||
				len(st.Days) != ledger.StatementDays {
				return fmt.Sprintf("moves make %+v and hold %d, %d days make %d, the balance is %+v", b, held, len(st.Days), days, a)
			}
			return ""
		}
		q.After = last.Position()
	}
}

func pagesWorkspaceLog(d *Fixture) {
	const lines = 7
	in := d.Joins("anna@acme.test", ledger.Owner)
	other := d.other(d.T, 0)
	for i := range lines {
		ctx := ledger.WithActor(d.T.Context(), []string{acts(in.User.ID), "key:abcdefghij12", acts(uuid.New()), "user:x", ""}[i%5])
		l := ledger.WorkspaceLine{Action: "download", Subject: string(rune('a' + i)), Detail: "all", Actor: "is filled in",
			Email: "is filled in"}
		if i == 3 {
			l.ID = uuid.Must(uuid.NewV7())
			d.ok(d.LogWorkspace(ctx, d.Workspace, l)) // with an id it is written once
		}
		d.ok(d.LogWorkspace(ctx, d.Workspace, l))
		d.ok(d.LogWorkspace(ctx, other.Workspace, l))
	}
	query := func(q ledger.WorkspaceLogQuery) []ledger.WorkspaceLine {
		d.T.Helper()
		q.Workspace = d.Workspace
		return effort.Must(d.WorkspaceLog(d.T.Context(), q))(d.T)
	}
	all := query(ledger.WorkspaceLogQuery{Limit: ledger.WorkspaceLogMax})
	effort.MustBe(d.T, len(all), lines+2, "log", all)
	for i, l := range all[:lines] {
		want := ledger.WorkspaceLine{ID: l.ID, At: l.At, Action: "download", Subject: string(rune('a' + lines - 1 - i)),
			Detail: "all", Actor: l.Actor}
		if l.Actor == acts(in.User.ID) {
			want.Email = "anna@acme.test"
		}
		effort.ErrorIf(d.T, l != want || l.At.Before(all[i+1].At), "line %d: got %+v, want %+v", i, l, want)
	}
	effort.ErrorIf(d.T, all[lines-1].Email == "" || all[lines-2].Actor != "key:abcdefghij12" || all[2].Actor != "",
		"actors: %+v", all)
	for size := 1; size <= lines+3; size++ {
		var paged []ledger.WorkspaceLine
		for q := (ledger.WorkspaceLogQuery{Limit: size}); ; {
			page := query(q)
			if paged = append(paged, page...); len(page) < size {
				break
			}
			q.After = &ledger.Position{Created: page[size-1].At, ID: page[size-1].ID}
		}
		effort.Equal(d.T, paged, all, "pages", size)
	}
}

func badWorkspaceLines(d *Fixture) {
	ctx := d.T.Context()
	longest, longer := strings.Repeat("x", ledger.OperatorTextMax), strings.Repeat("x", ledger.OperatorTextMax+1)
	d.refused(d.LogWorkspace(ctx, d.Workspace, ledger.WorkspaceLine{Subject: "x"}), ledger.ErrIllegal)
	for _, text := range []string{longer, "a\x00", "a\xe2\x82"} {
		for _, l := range []ledger.WorkspaceLine{{Action: text}, {Action: "test", Subject: text}, {Action: "test", Detail: text}} {
			d.refused(d.LogWorkspace(ctx, d.Workspace, l), ledger.ErrIllegal)
		}
		d.refused(d.LogWorkspace(ledger.WithActor(ctx, text), d.Workspace, ledger.WorkspaceLine{Action: "test"}), ledger.ErrIllegal)
	}
	d.refused(d.LogWorkspace(ctx, uuid.New(), ledger.WorkspaceLine{}), ledger.ErrNoSuchWorkspace)
	d.tells()
	d.ok(d.LogWorkspace(ledger.WithActor(ctx, longest), d.Workspace,
		ledger.WorkspaceLine{Action: longest, Subject: longest, Detail: longest}))
	d.tells(strings.Join([]string{longest, "", longest, longest, longest}, "|"))
	for _, limit := range []int{0, -1, ledger.WorkspaceLogMax + 1} {
		denied(d.WorkspaceLog(ctx, ledger.WorkspaceLogQuery{Workspace: d.Workspace, Limit: limit}))(d, ledger.ErrIllegal)
	}
}
