package ledgertest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// againstModel runs random operations on a book and on the model. After each
// one, both must have answered alike, must show the same files, account and
// results, and the audit must find nothing.
//
// Time is in the arguments: a lease or an upload is made either for an hour or
// for nothing, so that no run depends on a clock.
//
// It is tried so many times in a default run: rapid draws more, which do nothing.
func againstModel(t *testing.T, times int, open func(t *testing.T) ledger.Book) {
	tried := 0
	effort.Check(t, func(rt *rapid.T) {
		if tried++; tried > effort.Cases(times) {
			return
		}
		book := open(t)
		defer func() {
			if err := book.Close(); err != nil {
				rt.Errorf("close: %v", err)
			}
		}()
		p := &play{t: rt, Desk: NewDesk(t, book, 0), nodes: [2]uuid.UUID{uuid.New(), uuid.New()}}
		p.Desk.T = t
		rt.Repeat(map[string]func(*rapid.T){
			"":        p.compare,
			"create":  p.create,
			"upload":  p.upload,
			"lease":   p.lease,
			"renew":   p.renew,
			"release": p.release,
			"prepare": p.prepare,
			"refuse":  p.refuse,
			"settle":  p.settle,
			"again":   p.settleAgain,
			"wait":    p.wait,
			"park":    p.park,
			"crashed": p.crashed,
			"cancel":  p.cancel,
			"finish":  p.finish,
			"grant":   p.grant,
			"sweep":   p.sweep,
		})
	})
}

// play is one run.
type play struct {
	*Desk
	t       *rapid.T
	nodes   [2]uuid.UUID
	model   model
	settled []ledger.Settlement // that were tried
	grants  []ledger.Credits
	granted []uuid.UUID
}

// file picks one; the step is skipped when there is none.
func (p *play) file(t *rapid.T) *modelFile {
	if len(p.model.files) == 0 {
		t.Skip("no file yet")
	}
	return rapid.SampledFrom(p.model.files).Draw(t, "file")
}

// leaseOf picks a lease of f: mostly the one that stands, sometimes a wrong one.
func (p *play) leaseOf(t *rapid.T, f *modelFile) ledger.Lease {
	l := ledger.Lease{Verification: f.id, Node: f.node, Epoch: f.epoch}
	switch rapid.IntRange(0, 5).Draw(t, "lease") {
	case 0:
		l.Node = p.nodes[rapid.IntRange(0, 1).Draw(t, "node")]
	case 1:
		l.Epoch--
	}
	if l.Node == uuid.Nil {
		l.Node = p.nodes[0]
	}
	return l
}

// agree fails unless the book and the model both accept, or both refuse.
func (p *play) agree(t *rapid.T, what string, accepted bool, err error) {
	if accepted != (err == nil) {
		t.Fatalf("%s: the model says %v, the book %v", what, accepted, err)
	}
}

func (p *play) create(t *rapid.T) {
	n := p.Asks(rapid.Int64Range(1, 9).Draw(t, "bytes"))
	expired := rapid.IntRange(0, 4).Draw(t, "expired") == 0
	if expired {
		n.UploadExpiry = 0
	}
	if len(p.model.files) > 0 && rapid.Bool().Draw(t, "again") {
		f := p.file(t)
		n.Identity = f.identity
		v, created, err := p.Create(p.T.Context(), n)
		p.agree(t, "create again", f.bytes == n.Bytes, err)
		if err == nil && (created || v.ID != f.id) {
			t.Fatalf("a second verification for one identity")
		}
		return
	}
	n.Limits.Stored, n.Limits.Unpaid = 40, 8
	v, created, err := p.Create(p.T.Context(), n)
	p.agree(t, "create", p.model.allows(n.Bytes, 40, 8), err)
	if err != nil {
		return
	}
	if !created {
		t.Fatal("a new one was found")
	}
	p.model.add(&modelFile{id: v.ID, identity: n.Identity, created: v.Created, bytes: n.Bytes, stored: true,
		expired: expired, status: "uploading", total: -1, outcomes: map[int64]smtp.Outcome{}})
}

func (p *play) upload(t *rapid.T) {
	f := p.file(t)
	u, err := p.OpenUpload(p.T.Context(), f.id)
	if err != nil {
		t.Fatalf("open upload: %v", err)
	}
	_, err = p.AppendChunk(p.T.Context(), f.id, u.Writer, u.Durable, make([]byte, f.bytes-u.Durable))
	open := f.status == "uploading" && !f.expired
	// With no byte left an upload that is over may also be told as it is.
	if u.Durable < f.bytes {
		p.agree(t, "upload", open, err)
	}
	if open {
		f.status = "preparing"
	}
}

func (p *play) lease(t *rapid.T) {
	node := p.nodes[rapid.IntRange(0, 1).Draw(t, "node")]
	limit := rapid.IntRange(1, 3).Draw(t, "limit")
	ttl, expires := Hour, rapid.IntRange(0, 3).Draw(t, "expires") == 0
	if expires {
		ttl = 0
	}
	list, err := p.Lease(p.T.Context(), node, limit, ttl)
	if err != nil {
		t.Fatalf("lease: %v", err)
	}
	var got []uuid.UUID
	for _, v := range list {
		got = append(got, v.ID)
	}
	if want := p.model.lease(node, limit, expires); !slices.Equal(got, want) {
		t.Fatalf("leased %v, want %v", got, want)
	}
}

func (p *play) renew(t *rapid.T) {
	node := p.nodes[rapid.IntRange(0, 1).Draw(t, "node")]
	leases, err := p.Renew(p.T.Context(), node, Hour)
	if err != nil {
		t.Fatalf("renew: %v", err)
	}
	var got []uuid.UUID
	for _, l := range leases {
		got = append(got, l.Verification)
	}
	want := p.model.renew(node)
	for _, ids := range [][]uuid.UUID{got, want} {
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
	}
	if !slices.Equal(got, want) {
		t.Fatalf("renewed %v, want %v", got, want)
	}
}

func (p *play) release(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	p.agree(t, "release", p.model.release(f, l), p.Release(p.T.Context(), l))
}

func (p *play) prepare(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	if f.status != "preparing" {
		return // a repeat is answered again; the tables hold that
	}
	total, duplicates := rapid.Int64Range(1, 6).Draw(t, "total"), rapid.Int64Range(0, 2).Draw(t, "duplicates")
	_, err := p.Prepare(p.T.Context(), l, total+duplicates, duplicates, total)
	p.agree(t, "prepare", p.model.prepare(f, l, total), err)
}

func (p *play) refuse(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	_, err := p.Refuse(p.T.Context(), l, ledger.Issue{Code: "csv_malformed"})
	p.agree(t, "refuse", p.model.refuse(f, l), err)
}

func (p *play) settle(t *rapid.T) {
	f := p.file(t)
	var open []int64
	twice := rapid.IntRange(0, 4).Draw(t, "twice") == 0 // perhaps what has an outcome already
	for ordinal := range max(f.total, 0) {
		if _, done := f.outcomes[ordinal]; !done || twice {
			open = append(open, ordinal)
		}
	}
	if len(open) == 0 {
		t.Skip("nothing to settle")
	}
	s := ledger.Settlement{Lease: p.leaseOf(t, f), Number: int64(len(f.batches)) + 1}
	open = rapid.Permutation(open).Draw(t, "ordinals")
	for _, ordinal := range open[:rapid.IntRange(1, len(open)).Draw(t, "n")] {
		o := rapid.SampledFrom(smtp.Outcomes[:]).Draw(t, "outcome")
		s.Results = append(s.Results, OneResult(ordinal, o))
	}
	p.settled = append(p.settled, s)
	_, err := p.Settle(p.T.Context(), s)
	p.agree(t, "settle", p.model.settle(f, s), err)
}

// settleAgain sends a batch that was sent before, whatever became of it.
func (p *play) settleAgain(t *rapid.T) {
	if len(p.settled) == 0 {
		t.Skip("no settlement yet")
	}
	s := rapid.SampledFrom(p.settled).Draw(t, "settlement")
	for _, f := range p.model.files {
		if f.id != s.Lease.Verification {
			continue
		}
		if int(s.Number) == len(f.batches)+1 && f.mine(s.Lease) {
			return // it was refused before and is the next one now: settle does that
		}
		_, err := p.Settle(p.T.Context(), s)
		p.agree(t, "settle again", p.model.settle(f, s), err)
	}
}

func (p *play) wait(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	next, on := time.Time{}, rapid.Bool().Draw(t, "on")
	if on {
		next = f.created.Add(Hour)
	}
	why := rapid.SampledFrom([]string{"", "It waits.", "It waits for another."}).Draw(t, "why")
	_, err := p.Wait(p.T.Context(), l, ledger.Outlook{Next: next, Why: why})
	p.agree(t, "wait", p.model.wait(f, l, on, why), err)
}

func (p *play) park(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	if f.node == uuid.Nil && f.epoch == l.Epoch && f.status == "waiting" {
		return // a repeat is answered again; the tables hold that
	}
	next, long := f.created, rapid.Bool().Draw(t, "long")
	if long {
		next = f.created.Add(Hour)
	}
	why := rapid.SampledFrom([]string{"", "It rests."}).Draw(t, "why")
	_, err := p.Park(p.T.Context(), l, ledger.Outlook{Next: next, Why: why}, []byte("state"))
	p.agree(t, "park", p.model.park(f, l, long, why), err)
}

func (p *play) crashed(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	_, err := p.Crashed(p.T.Context(), l)
	p.agree(t, "crashed", p.model.crashed(f, l), err)
}

func (p *play) cancel(t *rapid.T) {
	f := p.file(t)
	_, err := p.Cancel(p.T.Context(), p.Workspace, f.id)
	p.model.cancel(f)
	p.agree(t, "cancel", true, err)
}

func (p *play) finish(t *rapid.T) {
	f := p.file(t)
	l := p.leaseOf(t, f)
	_, err := p.FinishCancel(p.T.Context(), l)
	p.agree(t, "finish", p.model.finish(f, l), err)
}

func (p *play) grant(t *rapid.T) {
	if len(p.granted) > 0 && rapid.Bool().Draw(t, "again") {
		i := rapid.IntRange(0, len(p.granted)-1).Draw(t, "grant")
		_, err := p.Grant(p.T.Context(), p.granted[i], p.Workspace, p.grants[i], "again")
		p.agree(t, "grant again", true, err)
		return
	}
	id, n := uuid.New(), ledger.Credits(rapid.Int64Range(1, 8).Draw(t, "credits"))
	p.granted, p.grants = append(p.granted, id), append(p.grants, n)
	_, err := p.Grant(p.T.Context(), id, p.Workspace, n, "test")
	p.model.grant(int64(n))
	p.agree(t, "grant", true, err)
}

func (p *play) sweep(t *rapid.T) {
	r, funding := ledger.Retention{}, rapid.Bool().Draw(t, "funding")
	if funding {
		r.Funding = time.Nanosecond
	}
	got, err := p.Sweep(p.T.Context(), r)
	p.agree(t, "sweep", true, err)
	if want := p.model.sweep(funding); got != want {
		t.Fatalf("swept %d, want %d", got, want)
	}
	if rapid.IntRange(0, 3).Draw(t, "forget") > 0 {
		return
	}
	// What is final for no time at all goes; what is waited for stays.
	got, err = p.Sweep(p.T.Context(), ledger.Retention{Results: time.Nanosecond})
	p.agree(t, "sweep results", true, err)
	if want := p.model.forget(); got != want {
		t.Fatalf("forgot %d, want %d", got, want)
	}
}

// compare holds the book against the model.
func (p *play) compare(t *rapid.T) {
	m := &p.model
	b := p.Account()
	if got := [4]int64{int64(b.Granted), int64(b.Available), int64(b.Held), int64(b.Spent)}; got !=
		[4]int64{m.granted, m.available, m.held, m.spent} {
		t.Fatalf("account: got %+v, want %+v", b, m)
	}
	u, err := p.Usage(p.T.Context(), p.Workspace)
	if stored, unpaid := m.uses(); err != nil || u.Used.Stored != stored || u.Used.Unpaid != unpaid {
		t.Fatalf("uses %s, %v, want %d bytes, %d unpaid", u.Used, err, stored, unpaid)
	}
	for _, f := range m.files {
		v := p.Sees(f.id)
		issue, why := "", ""
		if v.Issue != nil {
			issue = v.Issue.Code
			if issue == ledger.ReceiversWait {
				why = v.Issue.Message
			}
		}
		if string(v.Status) != f.status || issue != f.issue || why != f.why || v.Total != f.total ||
			int64(v.Held) != f.held || v.Counts.Cancelled != f.unchecked ||
			v.Settlements != int64(len(f.batches)) || v.Epoch != f.epoch {
			t.Fatalf("got %+v, want %+v", v, f)
		}
		if f.erased {
			continue
		}
		list := p.Reads(f.id)
		if len(list) != len(f.outcomes) {
			t.Fatalf("%d results, want %d", len(list), len(f.outcomes))
		}
		if recent, _ := p.recently(ledger.RecentQuery{Verification: f.id, Limit: 1 + len(list)%3}); len(recent) != len(list) {
			t.Fatalf("%d recent results, want %d", len(recent), len(list))
		}
		for i, r := range list {
			if f.outcomes[r.Ordinal] != r.Outcome || i > 0 && list[i-1].Ordinal >= r.Ordinal {
				t.Fatalf("result %d is %+v, want outcome %s", i, r, f.outcomes[r.Ordinal])
			}
		}
	}
	if off := p.AddsUp(1 + len(m.files)%3); off != "" {
		t.Fatalf("statement: %s", off)
	}
	report, err := p.Audit(p.T.Context())
	if err != nil || len(report.Violations) != 0 {
		t.Fatalf("audit: %+v, %v", report.Violations, err)
	}
}
