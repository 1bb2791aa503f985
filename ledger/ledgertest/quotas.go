package ledgertest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// quotas are the exercises of a workspace's limits.
var quotas = []exercise{
	{"stored bytes up to the limit", 9, storesUpToTheLimit},
	{"what nobody will read is erased with its end", 0, erasesUnread},
	{"a large file is erased to its end", 0, erasesLargeFiles},
	{"what never held a credit counts for a day", 5, countsUnpaid},
	{"a workspace has limits of its own", 0, ownLimits},
	{"limits that nobody can set", 0, badLimits},
	{"what never held a credit is deleted after its time", 3, forgetsUnpaid},
	{"a key is used again after its verification is gone", 0, keyUsedAgain},
}

// uses fails the test unless the workspace has this usage.
func (d *Fixture) uses(want ledger.Limits) {
	d.T.Helper()
	u := effort.Must(d.Usage(d.T.Context(), d.Workspace))(d.T)
	effort.ErrorIf(d.T, u.Used != want || u.ID != d.Workspace,
		"workspace %s uses %s, want %s of %s", u.ID, u.Used, want, d.Workspace)
}

// asks tries a create and fails the test unless it ends with this error.
func asks(d *Fixture, n ledger.NewVerification, want error) ledger.Verification {
	d.T.Helper()
	v, created, err := d.Create(d.T.Context(), n)
	effort.ErrorIf(d.T, !errors.Is(err, want) || err == nil && !created,
		"create of %d bytes: created %v, %v, want %v", n.Bytes, created, err, want)
	return v
}

func storesUpToTheLimit(d *Fixture) {
	limited := func(bytes int64) ledger.NewVerification {
		n := d.Asks(bytes)
		n.Limits.Stored = 30
		return n
	}
	first := limited(20)
	v := asks(d, first, nil)
	asks(d, limited(11), ledger.ErrTooManyBytes)
	small := asks(d, limited(10), nil) // just as much as there may be
	asks(d, limited(1), ledger.ErrTooManyBytes)
	first.ID, first.Limits.Stored = uuid.New(), 1
	again, created, err := d.Create(d.T.Context(), first)
	effort.ErrorIf(d.T, err != nil || created || again.ID != v.ID, "recovered: %v, %v", created, err)
	other := d.other(d.T, 0)
	theirs := limited(30)
	theirs.Workspace = other.Workspace
	asks(d, theirs, nil)
	d.uses(ledger.Limits{Open: 2, Stored: 30, Unpaid: 2})
	// A finished file counts until it is erased.
	d.Fills(small)
	l := d.Takes(small.ID)
	effort.Must(d.Prepare(d.T.Context(), l, 1, 0, 1))(d.T)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	d.uses(ledger.Limits{Open: 1, Stored: 30, Unpaid: 1})
	asks(d, limited(1), ledger.ErrTooManyBytes)
	d.sweeps(ledger.Retention{Uploads: time.Nanosecond}, 1)
	d.uses(ledger.Limits{Open: 1, Stored: 20, Unpaid: 1})
	asks(d, limited(10), nil)
}

func erasesUnread(d *Fixture) {
	ctx := d.T.Context()
	half := func() ledger.Verification {
		v := d.Creates(7)
		u := effort.Must(d.OpenUpload(ctx, v.ID))(d.T)
		effort.Must(d.AppendChunk(ctx, v.ID, u.Writer, 0, []byte("abc")))(d.T)
		return v
	}
	for _, c := range []struct {
		name string
		end  func() uuid.UUID
	}{
		{"refused", func() uuid.UUID {
			l := d.Takes(d.Uploads().ID)
			v := effort.Must(d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed"}))(d.T)
			return v.ID
		}},
		{"cancelled while uploading", func() uuid.UUID {
			v := effort.Must(d.Cancel(ctx, d.Workspace, half().ID))(d.T)
			return v.ID
		}},
		{"cancelled while preparing", func() uuid.UUID {
			l := d.Takes(d.Uploads().ID)
			v := effort.Must(d.Cancel(ctx, d.Workspace, l.Verification))(d.T)
			return v.ID
		}},
		{"expired", func() uuid.UUID {
			n := d.Asks(7)
			n.UploadExpiry = 0
			v := asks(d, n, nil)
			d.sweeps(ledger.Retention{}, 1)
			return v.ID
		}},
	} {
		id := c.end()
		_, err := d.OpenFile(ctx, id)
		if v := d.Sees(id); !errors.Is(err, ledger.ErrIllegal) || !v.UploadDeleted || !v.Status.Final() {
			d.T.Errorf("%s: %s, erased %v, its file: %v", c.name, v.Status, v.UploadDeleted, err)
		}
	}
	d.uses(ledger.Limits{Unpaid: 4})
	effort.Is(d.T, d.Audits().Chunks, 0, "chunks are left")
	d.sweeps(ledger.Retention{Uploads: time.Nanosecond}, 0)
	// The upload of a prepared file is kept for its retention time, also without credits.
	v, _ := d.Prepares(3)
	effort.Must(d.Cancel(ctx, d.Workspace, v.ID))(d.T)
	f := effort.Must(d.OpenFile(ctx, v.ID))(d.T)
	d.ok(f.Close())
	d.uses(ledger.Limits{Stored: 7, Unpaid: 5})
}

// erasesLargeFiles: files with more chunks than one transaction erases are erased.
func erasesLargeFiles(d *Fixture) {
	ctx := d.T.Context()
	for _, chunks := range []int{transitions.ErasedMax - 1, transitions.ErasedMax, 2*transitions.ErasedMax + 1} {
		for name, end := range map[string]func(l ledger.Lease) (ledger.Verification, error){
			"refused": func(l ledger.Lease) (ledger.Verification, error) {
				return d.Refuse(ctx, l, ledger.Issue{Code: "csv_malformed"})
			},
			"cancelled": func(l ledger.Lease) (ledger.Verification, error) {
				return d.Cancel(ctx, d.Workspace, l.Verification)
			},
		} {
			v := d.Creates(int64(chunks))
			u, err := d.OpenUpload(ctx, v.ID)
			for err == nil && u.Status == ledger.Uploading {
				u, err = d.AppendChunk(ctx, v.ID, u.Writer, u.Durable, []byte("x"))
			}
			d.ok(err)
			effort.Must(end(d.Takes(v.ID)))(d.T)
			if v := d.Sees(v.ID); !v.UploadDeleted {
				d.T.Errorf("%d chunks, %s: not said to be erased", chunks, name)
			}
		}
	}
	effort.Is(d.T, d.Audits().Chunks, 0, "chunks are left")
}

func countsUnpaid(d *Fixture) {
	limited := func(unpaid int64) ledger.NewVerification {
		n := d.Asks(7)
		n.Limits.Unpaid = unpaid
		return n
	}
	first := limited(1)
	asks(d, first, nil)
	_, _, err := d.Create(d.T.Context(), limited(1))
	var later *ledger.Later
	effort.ErrorIf(d.T, !errors.Is(err, ledger.ErrTooManyUnpaid) || !errors.As(err, &later) ||
		later.After > ledger.UnpaidWithin || later.After < ledger.UnpaidWithin-time.Minute, "one too many: %v, %+v",
		err, later)
	first.ID = uuid.New()
	if _, created, err := d.Create(d.T.Context(), first); err != nil || created {
		d.T.Errorf("recovered: %v, %v", created, err)
	}
	// Whatever became of it: it counts until credits were held.
	v := d.Creates(7)
	effort.Must(d.Cancel(d.T.Context(), d.Workspace, v.ID))(d.T)
	waits, _ := d.Prepares(6)
	d.uses(ledger.Limits{Open: 2, Stored: 14, Unpaid: 3})
	asks(d, limited(3), ledger.ErrTooManyUnpaid)
	d.Prepares(5) // takes all
	d.uses(ledger.Limits{Open: 3, Stored: 21, Unpaid: 3})
	d.Grants(6)
	d.is(d.Sees(waits.ID), "verifying")
	d.uses(ledger.Limits{Open: 3, Stored: 21, Unpaid: 2})
	asks(d, limited(3), nil)
	// A file that returns credits held them.
	d.uses(ledger.Limits{Open: 4, Stored: 28, Unpaid: 3})
	d.cancels(waits.ID)
	d.uses(ledger.Limits{Open: 3, Stored: 28, Unpaid: 3})
}

// cancels ends a verification without a lease, or whose node returns it.
func (d *Fixture) cancels(id uuid.UUID) {
	d.T.Helper()
	v := effort.Must(d.Cancel(d.T.Context(), d.Workspace, id))(d.T)
	effort.ErrorIf(d.T, !v.Status.Final(), "cancelled and %s", v.Status)
}

func ownLimits(d *Fixture) {
	n := func(i int64) *int64 { return &i }
	other := d.other(d.T, 0)
	set := func(c ledger.LimitsChange, want ledger.Limits) {
		d.T.Helper()
		c.Workspace = d.Workspace
		u := effort.Must(d.SetLimits(d.T.Context(), c))(d.T)
		seen := effort.Must(d.Usage(d.T.Context(), d.Workspace))(d.T)
		effort.ErrorIf(d.T, u.Own != want || !reflect.DeepEqual(u, seen) || u.Name != "desk" || u.Weight != 1,
			"got %+v, then %+v, want %s", u, seen, want)
		effort.Is(d.T, effort.Must(d.Usage(d.T.Context(), other.Workspace))(d.T).Own, (ledger.Limits{}),
			"another workspace has")
	}
	set(ledger.LimitsChange{}, ledger.Limits{})
	set(ledger.LimitsChange{Open: n(1), Reason: "rude"}, ledger.Limits{Open: 1})
	first := d.Asks(7)
	asks(d, first, nil)
	asks(d, d.Asks(7), ledger.ErrTooManyOpen)
	set(ledger.LimitsChange{Open: n(9), Stored: n(8), Unpaid: n(3)}, ledger.Limits{Open: 9, Stored: 8, Unpaid: 3})
	set(ledger.LimitsChange{Open: n(9)}, ledger.Limits{Open: 9, Stored: 8, Unpaid: 3})
	asks(d, d.Asks(2), ledger.ErrTooManyBytes)
	asks(d, d.Asks(1), nil)
	set(ledger.LimitsChange{Stored: n(100)}, ledger.Limits{Open: 9, Stored: 100, Unpaid: 3})
	asks(d, d.Asks(1), nil)
	asks(d, d.Asks(1), ledger.ErrTooManyUnpaid)
	narrow := d.Asks(7) // what is set goes before the default, either way
	narrow.Limits = ledger.Limits{Open: 1, Stored: 1, Unpaid: 1}
	set(ledger.LimitsChange{Unpaid: n(4)}, ledger.Limits{Open: 9, Stored: 100, Unpaid: 4})
	asks(d, narrow, nil)
	set(ledger.LimitsChange{Open: n(0), Stored: n(0), Unpaid: n(0)}, ledger.Limits{})
	asks(d, d.Asks(7), nil)
	line := func(before, after, reason string) ledger.LogLine {
		return ledger.LogLine{Action: "workspace limits", Workspace: d.Workspace, Subject: d.Workspace.String(),
			Old: before, New: after, Reason: reason}
	}
	d.wrote("workspace limits", line("open=9 stored=100 unpaid=4", "open=default stored=default unpaid=default", ""),
		line("open=9 stored=100 unpaid=3", "open=9 stored=100 unpaid=4", ""),
		line("open=9 stored=8 unpaid=3", "open=9 stored=100 unpaid=3", ""),
		line("open=1 stored=default unpaid=default", "open=9 stored=8 unpaid=3", ""),
		line("open=default stored=default unpaid=default", "open=1 stored=default unpaid=default", "rude"))
}

func badLimits(d *Fixture) {
	n := func(i int64) *int64 { return &i }
	for _, c := range []ledger.LimitsChange{{Open: n(-1)}, {Stored: n(-1)}, {Unpaid: n(-1)},
		{Open: n(1), Reason: string(make([]byte, ledger.OperatorTextMax+1))}, {Open: n(1), Reason: "\xff"}} {
		c.Workspace = d.Workspace
		denied(d.SetLimits(d.T.Context(), c))(d, ledger.ErrIllegal)
	}
	denied(d.SetLimits(d.T.Context(), ledger.LimitsChange{Workspace: uuid.New(), Open: n(-1)}))(d,
		ledger.ErrNoSuchWorkspace)
	denied(d.Usage(d.T.Context(), uuid.New()))(d, ledger.ErrNoSuchWorkspace)
	d.wrote("workspace limits")
}

func forgetsUnpaid(d *Fixture) {
	ctx := d.T.Context()
	after := ledger.Retention{Results: time.Nanosecond}
	paid, l := d.Prepares(2)
	d.Settles(l, 1, 0, 1, smtp.Valid)
	returned, l := d.Prepares(1) // and given back
	d.ok(d.Release(ctx, l))
	d.cancels(returned.ID)
	waits, _ := d.Prepares(4)
	gone, _ := d.Prepares(4) // its file was read, and is kept
	d.cancels(gone.ID)
	refused := d.Takes(d.Uploads().ID)
	effort.Must(d.Refuse(ctx, refused, ledger.Issue{Code: "csv_malformed"}))(d.T)
	open := d.Creates(7)
	d.sweeps(ledger.Retention{Results: Hour}, 0)
	before := d.Account()
	d.sweeps(after, 4) // two are deleted, two have their results erased
	d.sweeps(after, 0)
	for _, id := range []uuid.UUID{gone.ID, refused.Verification} {
		denied(d.Verification(ctx, d.Workspace, id))(d, ledger.ErrNoSuchVerification)
		denied(d.UploadState(ctx, id))(d, ledger.ErrNoSuchVerification)
	}
	for id, status := range map[uuid.UUID]ledger.State{paid.ID: "completed", returned.ID: "cancelled",
		waits.ID: ledger.WaitingCredits, open.ID: "uploading"} {
		d.is(d.Sees(id), status)
	}
	list := effort.Must(d.History(ctx, ledger.HistoryQuery{Workspace: d.Workspace, Limit: 9,
		After: &ledger.Position{Created: gone.Created, ID: gone.ID}}))(d.T)
	if len(list) < 2 { // a cursor of one that is gone goes on where it was
		d.T.Errorf("history after one that is gone: %+v", list)
	}
	effort.Is(d.T, d.Account(), before, fmt.Sprintf("the account was %+v, is", before))
	d.uses(ledger.Limits{Open: 2, Stored: 7 + 7 + 7 + 7, Unpaid: 2})
}

func keyUsedAgain(d *Fixture) {
	n := d.Asks(7)
	v := asks(d, n, nil)
	d.cancels(v.ID)
	n.ID = uuid.New()
	if again, created, err := d.Create(d.T.Context(), n); err != nil || created || again.Status != ledger.Cancelled {
		d.T.Errorf("before its time: %+v, created %v, %v", again, created, err)
	}
	d.sweeps(ledger.Retention{Results: time.Nanosecond}, 1)
	n.ID, n.Bytes = uuid.New(), 8
	again := asks(d, n, nil)
	effort.ErrorIf(d.T, again.Status != ledger.Uploading || again.ID != n.ID, "after its time: %+v", again)
}
