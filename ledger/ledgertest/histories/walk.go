package histories

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// Walk runs random calls on a book and on the model, one after the other. Each is answered
// alike by both; then both show the same files, account and results, and the audit finds nothing.
//
// Time is in the arguments: a lease or an upload holds for an hour or for no time at all, so that no walk
// depends on a clock. There are so many walks in a default run: rapid draws more, which do nothing.
func Walk(t *testing.T, times int, open func(t *testing.T) ledger.Book) {
	effort.Unraced(t, "one call after the other")
	tried := 0
	effort.Check(t, func(rt *rapid.T) {
		if tried++; tried > effort.Cases(times) {
			return
		}
		store := open(t)
		defer func() {
			if err := store.Close(); err != nil {
				rt.Errorf("close: %v", err)
			}
		}()
		w := newWalk(t, store)
		actions := map[string]func(*rapid.T){"": w.compare, "create": w.create, "upload": w.upload, "lease": w.lease, "renew": w.renew,
			"grant": w.grant, "sweep": w.sweep, "settle": w.settle, "again": w.again, "wait": w.wait}
		for _, k := range []kind{release, prepare, refuse, park, crashed, cancel, finishCancel, history} {
			actions[string(k)] = func(t *rapid.T) { w.step(t, k) }
		}
		rt.Repeat(actions)
	})
}

// walk is one run.
type walk struct {
	*client
	desk       *ledgertest.Fixture
	ids        []uuid.UUID // of the model's files, by rank
	created    map[uuid.UUID]time.Time
	identities []call // creates that were tried
	sent       []call // settlements that were tried
	made       []call // grants
	model      *book
}

// walkLimits are low, so that creates meet them.
var walkLimits = ledger.Limits{Open: 12, Stored: 40, Unpaid: 8}

func newWalk(t *testing.T, store ledger.Book) *walk {
	d := ledgertest.NewFixture(t, store, 0)
	r := &recorder{limits: walkLimits, start: time.Now()}
	r.spaces[0] = d.Workspace
	r.nodes[1], r.nodes[2] = uuid.New(), uuid.New()
	return &walk{client: &client{recorder: r, Book: store, number: 1}, desk: d, created: map[uuid.UUID]time.Time{},
		model: &book{limits: walkLimits}}
}

// ask makes a call of both, which must answer alike, and returns the answer.
func (w *walk) ask(t *rapid.T, q call) answer {
	op := operation{call: q}
	err := w.client.ask(w.desk.T.Context(), &op)
	refusal, tells := refusalOf(err)
	if !tells {
		t.Fatalf("%s: %v", q, err)
	}
	op.answer.refusal = refusal
	op.call.rank = w.rank(q.file)
	if op.created != uuid.Nil {
		if op.answer.created {
			op.call.rank = w.add(op.shown[0])
		}
		op.answer.rank = w.rank(op.created)
	}
	for i := range op.lines {
		op.lines[i].rank = w.rank(op.lines[i].file)
	}
	if q.kind == renew { // the only list without an order
		slices.SortFunc(op.lines, func(a, b listed) int { return cmp.Compare(a.rank, b.rank) })
	}
	if len(op.lines) > 0 {
		op.answer.list = textOf(op.lines)
	}
	after, must := w.model.apply(op.call)
	if op.answer != must {
		t.Fatalf("%s: got %s, want %s", op.call, op.answer, must)
	}
	w.model = after
	return op.answer
}

// rank is the place of a file; -1: there is none.
func (w *walk) rank(id uuid.UUID) int { return slices.Index(w.ids, id) }

// add makes a place for a new file, behind those that are served before it.
func (w *walk) add(v ledger.Verification) int {
	w.created[v.ID] = v.Created
	rank, _ := slices.BinarySearchFunc(w.ids, v, func(id uuid.UUID, v ledger.Verification) int {
		return cmp.Or(w.created[id].Compare(v.Created), strings.Compare(id.String(), v.ID.String()))
	})
	w.ids = slices.Insert(w.ids, rank, v.ID)
	w.model = w.model.clone()
	w.model.files = slices.Insert(w.model.files, rank, nil)
	return rank
}

// file picks one; the step is skipped when there is none.
func (w *walk) file(t *rapid.T) (uuid.UUID, *file) {
	if len(w.ids) == 0 {
		t.Skip("no file yet")
	}
	rank := rapid.IntRange(0, len(w.ids)-1).Draw(t, "file")
	if f := w.model.files[rank]; f != nil {
		return w.ids[rank], f
	}
	return w.ids[rank], &file{seen: seen{total: -1}} // it was forgotten
}

// about begins a call about a file, with a lease of it: mostly the one that stands, sometimes a wrong one.
func (w *walk) about(t *rapid.T, k kind, id uuid.UUID, f *file) call {
	q := call{kind: k, file: id, node: f.node, epoch: f.epoch}
	switch rapid.IntRange(0, 5).Draw(t, "lease") {
	case 0:
		q.node = rapid.IntRange(1, 2).Draw(t, "node")
	case 1:
		q.epoch--
	}
	q.node = max(q.node, 1)
	return q
}

// step makes a call about a file.
func (w *walk) step(t *rapid.T, k kind) {
	if k == history {
		w.ask(t, call{kind: history, limit: rapid.IntRange(1, 4).Draw(t, "limit")})
		return
	}
	id, f := w.file(t)
	q := w.about(t, k, id, f)
	switch k {
	case prepare:
		q.total, q.twice = rapid.Int64Range(1, 6).Draw(t, "total"), rapid.Int64Range(0, 2).Draw(t, "twice")
	case park:
		q.due, q.next = dueSince, w.created[id]
		if rapid.Bool().Draw(t, "long") {
			q.due, q.next = dueLater, q.next.Add(ledgertest.Hour)
		}
		q.why = rapid.SampledFrom([]string{"", "It rests."}).Draw(t, "why")
	}
	w.ask(t, q)
}

func (w *walk) wait(t *rapid.T) {
	id, f := w.file(t)
	q := w.about(t, wait, id, f)
	if rapid.Bool().Draw(t, "on") {
		q.due, q.next = dueLater, w.created[id].Add(ledgertest.Hour)
	}
	q.why = rapid.SampledFrom([]string{"", "It waits.", "It waits for another."}).Draw(t, "why")
	w.ask(t, q)
}

func (w *walk) create(t *rapid.T) {
	q := call{kind: create, file: uuid.New(), identity: uuid.New(), bytes: rapid.Int64Range(1, 9).Draw(t, "bytes"),
		expired: rapid.IntRange(0, 4).Draw(t, "expired") == 0}
	if len(w.identities) > 0 && rapid.IntRange(0, 2).Draw(t, "again") == 0 {
		q.identity = rapid.SampledFrom(w.identities).Draw(t, "create").identity
	}
	w.identities = append(w.identities, q)
	w.ask(t, q)
}

// upload sends all that is missing, in one chunk or in two.
func (w *walk) upload(t *rapid.T) {
	id, f := w.file(t)
	a := w.ask(t, call{kind: openUpload, file: id})
	left := f.bytes - a.durable
	if a.refusal != "" || left == 0 {
		return
	}
	n := rapid.Int64Range(1, left).Draw(t, "bytes")
	if rapid.Bool().Draw(t, "all") {
		n = left
	}
	w.ask(t, call{kind: appendChunk, file: id, writer: a.writer, offset: a.durable, bytes: n})
}

func (w *walk) lease(t *rapid.T) {
	w.ask(t, call{kind: lease, node: rapid.IntRange(1, 2).Draw(t, "node"), limit: rapid.IntRange(1, 3).Draw(t, "limit"),
		expired: rapid.IntRange(0, 3).Draw(t, "expired") == 0})
}

func (w *walk) renew(t *rapid.T) {
	w.ask(t, call{kind: renew, node: rapid.IntRange(1, 2).Draw(t, "node")})
}

// settle sends outcomes for some addresses, at times for one that has an outcome.
func (w *walk) settle(t *rapid.T) {
	id, f := w.file(t)
	twice := rapid.IntRange(0, 4).Draw(t, "twice") == 0
	q := w.about(t, settle, id, f)
	q.number = f.settlements + 1
	var outcomes []byte
	for i := range int(max(f.total, 0)) {
		has := i < len(f.outcomes) && f.outcomes[i] != letters[0]
		letter := letters[0]
		if (!has || twice) && rapid.Bool().Draw(t, "one") {
			letter = rapid.SampledFrom([]byte(letters[1:])).Draw(t, "outcome")
		}
		outcomes = append(outcomes, letter)
	}
	q.outcomes = strings.TrimRight(string(outcomes), letters[:1])
	if q.outcomes == "" {
		t.Skip("nothing to settle")
	}
	w.sent = append(w.sent, q)
	w.ask(t, q)
}

// again sends a settlement that was sent before, whatever became of it.
func (w *walk) again(t *rapid.T) {
	if len(w.sent) == 0 {
		t.Skip("no settlement yet")
	}
	w.ask(t, rapid.SampledFrom(w.sent).Draw(t, "settlement"))
}

func (w *walk) grant(t *rapid.T) {
	q := call{kind: grant, grant: len(w.made), grantID: uuid.New(), credits: rapid.Int64Range(1, 8).Draw(t, "credits")}
	if n := len(w.made); n == grantsMax || n > 0 && rapid.Bool().Draw(t, "again") {
		q = rapid.SampledFrom(w.made).Draw(t, "grant")
	} else {
		w.made = append(w.made, q)
	}
	w.ask(t, q)
}

func (w *walk) sweep(t *rapid.T) {
	w.ask(t, call{kind: sweep, funding: rapid.Bool().Draw(t, "funding")})
	if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
		w.ask(t, call{kind: forget})
	}
}

// compare holds the book against the model.
func (w *walk) compare(t *rapid.T) {
	w.ask(t, call{kind: balance})
	var stored, unpaid int64
	for rank, f := range w.model.files {
		w.ask(t, call{kind: verification, file: w.ids[rank]})
		if f == nil {
			continue
		}
		if !f.erased() {
			stored += f.bytes
		}
		if !f.paid {
			unpaid++
		}
		if f.forgotten {
			continue
		}
		w.ask(t, call{kind: results, file: w.ids[rank]})
		n := len(f.outcomes) - strings.Count(f.outcomes, letters[:1])
		q := ledger.RecentQuery{Verification: w.ids[rank], Limit: 1 + n%3}
		if recent, _ := w.desk.Recently(q); len(recent) != n {
			t.Fatalf("%d recent results, want %d", len(recent), n)
		}
	}
	u, err := w.Usage(w.desk.T.Context(), w.desk.Workspace)
	if err != nil || u.Used.Stored != stored || u.Used.Unpaid != unpaid {
		t.Fatalf("uses %s, %v, want %d bytes, %d unpaid", u.Used, err, stored, unpaid)
	}
	if off := w.desk.AddsUp(1 + len(w.ids)%3); off != "" {
		t.Fatalf("statement: %s", off)
	}
	if report, err := w.Audit(w.desk.T.Context()); err != nil || len(report.Violations) != 0 {
		t.Fatalf("audit: %s", fmt.Sprint(report.Violations, err))
	}
}
