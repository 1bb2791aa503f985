package ledgertest

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
)

var uploads = []exercise{
	{"a create is recovered by its identity", 0, func(d *Fixture) {
		n := d.Asks(7)
		first, created, err := d.Create(d.T.Context(), n)
		d.ok(err)
		// Recovery stands before size and number.
		n.ID, n.Filename, n.BytesMax, n.Limits = uuid.New(), "renamed.csv", 1, ledger.Limits{Open: 1, Stored: 1, Unpaid: 1}
		second, again, err := d.Create(d.T.Context(), n)
		d.ok(err)
		effort.ErrorIf(d.T, !created || again || second.ID != first.ID || second.Filename != "list.csv",
			"created %v then %v: %+v, %+v", created, again, first, second)
		effort.ErrorIf(d.T, first.Status != ledger.Uploading || first.Total != -1 || first.Kind != ledger.Bulk ||
			first.UploadExpires.Sub(first.Created) != Hour, "a new one: %+v", first)
	}},
	{"who created it is kept", 0, func(d *Fixture) {
		n := d.Asks(7)
		n.MadeBy = "is filled in"
		first := effort.Must(effort.First(d.Create(ledger.WithActor(d.T.Context(), "key:abcdefghij12"), n)))(d.T)
		again := effort.Must(effort.First(d.Create(ledger.WithActor(d.T.Context(), "user:x"), n)))(d.T)
		read := effort.Must(d.Verification(d.T.Context(), d.Workspace, first.ID))(d.T)
		effort.ErrorIf(d.T, first.MadeBy != "key:abcdefghij12" || again != first || read != first ||
			d.Creates(1).MadeBy != "", "made %+v, again %+v, read %+v", first, again, read)
		denied(effort.First(d.Create(ledger.WithActor(d.T.Context(), "a\x00"), d.Asks(7))))(d, ledger.ErrIllegal)
	}},
	{"the same identity in another workspace is another file", 0, func(d *Fixture) {
		n := d.Asks(7)
		effort.Must(effort.First(d.Create(d.T.Context(), n)))(d.T)
		n.ID, n.Workspace = uuid.New(), d.other(d.T, 0).Workspace
		_, created, err := d.Create(d.T.Context(), n)
		d.ok(err)
		effort.ErrorIf(d.T, !created, "want a new verification")
	}},
	{"the bytes come back as they were sent", 0, bytesComeBack},
	{"a chunk repeated is answered again", 0, chunkRepeated},
	{"an opened upload fences the older writer", 0, func(d *Fixture) {
		v := d.Creates(7)
		old := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		young := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		effort.ErrorIf(d.T, young.Writer <= old.Writer, "writer %d after %d", young.Writer, old.Writer)
		u, err := d.AppendChunk(d.T.Context(), v.ID, old.Writer, 0, []byte("abc"))
		d.refused(err, ledger.ErrFenced)
		effort.ErrorIf(d.T, u.Durable != 0 || u.Writer != young.Writer, "state beside the refusal: %+v", u)
	}},
	{"an upload that is over is not opened again", 0, func(d *Fixture) {
		v := d.Uploads()
		before := effort.Must(d.UploadState(d.T.Context(), v.ID))(d.T)
		after := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		effort.ErrorIf(d.T, before != after || after.Status != ledger.Preparing, "before %+v, after %+v", before, after)
	}},
	{"an expired upload takes nothing", 0, func(d *Fixture) {
		n := d.Asks(7)
		n.UploadExpiry = 0
		v := effort.Must(effort.First(d.Create(d.T.Context(), n)))(d.T)
		u := effort.Must(d.OpenUpload(d.T.Context(), v.ID))(d.T)
		effort.ErrorIf(d.T, !u.Expired, "state: %+v", u)
		denied(d.AppendChunk(d.T.Context(), v.ID, u.Writer, 0, []byte("1234567")))(d, ledger.ErrUploadClosed)
	}},
}

func bytesComeBack(d *Fixture) {
	ctx := d.T.Context()
	sent := bytes.Repeat([]byte("a@b.example\r\n\x00\xff"), 50_000)
	v := d.Creates(int64(len(sent)))
	u := effort.Must(d.OpenUpload(ctx, v.ID))(d.T)
	for _, cut := range []int{1, 200_000, 200_001, 500_000, len(sent) - 1, len(sent)} {
		effort.MustBe(d.T, u.Status, ledger.Uploading, "with", u.Durable, u.Bytes, "bytes")
		u = effort.Must(d.AppendChunk(ctx, v.ID, u.Writer, u.Durable, sent[u.Durable:cut]))(d.T)
		effort.MustBe(d.T, u.Durable, int64(cut), "durable")
	}
	effort.Is(d.T, u.Status, ledger.Preparing, "with all bytes")
	for range 2 { // any number of nodes may read it
		f := effort.Must(d.OpenFile(ctx, v.ID))(d.T)
		got := effort.Must(io.ReadAll(f))(d.T)
		effort.ErrorIf(d.T, !bytes.Equal(got, sent), "got %d bytes that differ from the %d sent", len(got), len(sent))
		d.ok(f.Close())
	}
}

func chunkRepeated(d *Fixture) {
	ctx := d.T.Context()
	v := d.Creates(7)
	u := effort.Must(d.OpenUpload(ctx, v.ID))(d.T)
	for _, c := range []struct {
		at   int64
		data string
	}{{0, "abc"}, {3, "defg"}} {
		first := effort.Must(d.AppendChunk(ctx, v.ID, u.Writer, c.at, []byte(c.data)))(d.T)
		second := effort.Must(d.AppendChunk(ctx, v.ID, u.Writer, c.at, []byte(c.data)))(d.T)
		effort.Is(d.T, first, second, "at", c.at, "then")
	}
	denied(d.AppendChunk(ctx, v.ID, u.Writer, 3, []byte("DEFG")))(d, ledger.ErrUploadClosed)
}

var sweeps = []exercise{
	{"an upload past its time fails", 0, func(d *Fixture) {
		n := d.Asks(7)
		n.UploadExpiry = 0
		v := effort.Must(effort.First(d.Create(d.T.Context(), n)))(d.T)
		kept := d.Creates(7)
		d.sweeps(ledger.Retention{}, 1)
		d.sweeps(ledger.Retention{}, 0)
		v = d.Sees(v.ID)
		d.is(v, "failed")
		effort.ErrorIf(d.T, v.Issue == nil || v.Issue.Code != ledger.UploadExpired, "issue: %+v", v.Issue)
		d.is(d.Sees(kept.ID), "uploading")
	}},
	{"a file that nobody funds fails in the end", 0, func(d *Fixture) {
		v, _ := d.Prepares(5)
		d.sweeps(ledger.Retention{Funding: Hour}, 0)
		d.is(d.Sees(v.ID), ledger.WaitingCredits)
		d.sweeps(ledger.Retention{Funding: time.Nanosecond}, 1)
		v = d.Sees(v.ID)
		d.is(v, "failed")
		effort.ErrorIf(d.T, v.Issue == nil || v.Issue.Code != ledger.FundingExpired || v.Counts.Cancelled != 5,
			"issue %+v, counts %+v", v.Issue, v.Counts)
		d.Grants(5)
		d.has(5, 5, 0, 0)
	}},
	{"a grant that does not suffice is no reason to wait longer", 0, func(d *Fixture) {
		v, _ := d.Prepares(5)
		const waits = 20 * time.Millisecond
		<-time.After(waits)
		d.Grants(1)
		d.Grants(1)
		d.sweeps(ledger.Retention{Funding: waits}, 1)
		d.is(d.Sees(v.ID), "failed")
		d.has(2, 2, 0, 0)
	}},
	{"addresses are erased after their time, the books stay", 10, erases},
}

func erases(d *Fixture) {
	ctx := d.T.Context()
	v, l := d.Prepares(2)
	d.Settles(l, 1, 0, 1, 1)
	open, _ := d.Prepares(1)
	d.sweeps(ledger.Retention{Uploads: Hour, Results: Hour}, 0)
	d.sweeps(ledger.Retention{}, 0) // 0 is for ever
	effort.Is(d.T, len(d.Reads(v.ID)), 2, "results before the time")
	whole := effort.Must(d.OpenFile(ctx, v.ID))(d.T)
	d.ok(whole.Close())
	d.sweeps(ledger.Retention{Uploads: time.Nanosecond, Results: time.Nanosecond}, 2)
	d.sweeps(ledger.Retention{Uploads: time.Nanosecond, Results: time.Nanosecond}, 0)
	d.refused(d.Results(ctx, d.Workspace, v.ID, func(ledger.Result) error { return nil }), ledger.ErrResultsExpired)
	denied(d.OpenFile(ctx, v.ID))(d, ledger.ErrIllegal)
	after := d.Sees(v.ID)
	effort.ErrorIf(d.T, after.Counts.Valid != 2 || after.Status != ledger.Completed || after.Identity != v.Identity,
		"what stays: %+v", after)
	f, err := d.OpenFile(ctx, open.ID) // unfinished files are not touched
	d.ok(err)
	d.ok(f.Close())
	d.has(10, 7, 1, 2)
}

// sweeps fails the test unless a sweep changes the given number of verifications.
func (d *Fixture) sweeps(r ledger.Retention, want int) {
	d.T.Helper()
	got := effort.Must(d.Sweep(d.T.Context(), r))(d.T)
	effort.Is(d.T, got, want, fmt.Sprintf("sweep %+v: changed", r))
}
