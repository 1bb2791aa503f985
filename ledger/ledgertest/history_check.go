package ledgertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest/simulation"
)

// Check looks, for each workspace by itself, for an order of the calls that the model could have answered in the same
// way. It gives up after limit, and then the answer is porcupine.Unknown: undecided, which is no pass. Unless it is
// porcupine.Ok, explain says what could not follow the longest order.
//
// The search is short when few calls are open at once. So it is tried first in times that are narrower than the true
// ones: an order that respects those respects the true ones too. Only the true times say that there is none.
func (h *History) Check(limit time.Duration) (result porcupine.CheckResult, explain func() string) {
	for w := range workspaces {
		part := h.part(w)
		for _, width := range []int{3, 6, 0} {
			if result = h.search(narrowed(part, width), limit); result == porcupine.Ok {
				break
			}
		}
		if result != porcupine.Ok {
			return result, func() string { return h.explain(part, limit) }
		}
	}
	return porcupine.Ok, nil
}

func (h *History) search(list []porcupine.Operation, limit time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(h.model(), list, limit)
}

// part is the history of one workspace. A lease takes the oldest files of all of them: in one it must have taken the
// oldest, and all of them when it took fewer than it could. A lease without an answer may have taken any number of the
// oldest. Where leases pass over files, one may have taken any that were free.
func (h *History) part(workspace int) []porcupine.Operation {
	var part []operation
	untold := h.untold()
	for _, op := range h.done {
		if op.call.kind != lease && op.call.kind != renew && op.call.workspace != workspace {
			continue
		}
		if h.Passing && op.call.kind == lease {
			op.call.lease.took = maps.Clone(untold)
			maps.Copy(op.call.lease.took, ranksOf(op.lines))
		}
		part = append(part, op.others()...)
		if op.call.kind == lease || op.call.kind == renew {
			lines := slices.DeleteFunc(slices.Clone(op.lines), func(l listed) bool { return h.files[l.rank] != workspace })
			// What a run before took is answered as it is, though more could be had by then.
			op.call.lease.anew = op.repeats > 0
			op.call.lease.all = len(op.lines) < op.call.limit && !op.call.lease.anew && !h.Passing
			if h.Passing {
				op.call.lease.took = ranksOf(lines)
			}
			op.call.limit = len(lines)
			op.answer.list = textOf(lines)
		}
		if !op.answer.unknown {
			part = append(part, op)
		}
	}
	return operations(part)
}

// untold are the files, by rank, with a lease that no answer names, as a missing epoch shows.
func (h *History) untold() map[int]bool {
	told := make([]map[int64]bool, len(h.files))
	for i := range told {
		told[i] = map[int64]bool{}
	}
	for _, op := range h.done {
		if op.call.kind == lease {
			for _, l := range op.lines {
				told[l.rank][l.epoch] = true
			}
		}
	}
	ranks := map[int]bool{}
	for rank, epochs := range told {
		if int64(len(epochs)) < h.epochs[rank] {
			ranks[rank] = true
		}
	}
	return ranks
}

func ranksOf(lines []listed) map[int]bool {
	ranks := map[int]bool{}
	for _, l := range lines {
		ranks[l.rank] = true
	}
	return ranks
}

// others are the runs of a call besides the one that was answered, as calls that told nothing.
func (op operation) others() []operation {
	unknown := op.answer.unknown
	op.answer = answer{unknown: true}
	list := slices.Repeat([]operation{op}, op.repeats)
	if unknown {
		op.returned = never
		list = append(list, op)
	}
	return list
}

// narrowed makes the times narrower, unless width is 0: each call begins no earlier than the width-th last answer
// before its own, since a book tends to answer in the order in which it commits.
func narrowed(list []porcupine.Operation, width int) []porcupine.Operation {
	if width == 0 {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for i := width; i < len(list) && list[i].Return < never; i++ {
		list[i].Call = max(list[i].Call, list[i-width].Return)
	}
	return list
}

// never is when a call returns that told nothing: its effect may come at any time after it, or not at all. A run before
// the one that was answered is over with the answer: what it changed, the later run had to wait for.
const never = math.MaxInt64

// operations is a history in the words of the checker.
func operations(done []operation) []porcupine.Operation {
	list := make([]porcupine.Operation, 0, len(done))
	for _, op := range done {
		list = append(list, porcupine.Operation{ClientId: op.client, Input: &op.call, Call: int64(op.called),
			Output: op.answer, Return: int64(op.returned)})
	}
	return list
}

// explain shows the end of the longest order, and the open calls then.
func (h *History) explain(list []porcupine.Operation, limit time.Duration) string {
	_, info := porcupine.CheckOperationsVerbose(h.model(), list, limit)
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d calls have an order, which ends with\n", len(longest), len(list))
	placed := map[string]bool{}
	state := h.model().Init()
	for i, op := range longest {
		placed[key(op)] = true
		_, state = h.model().Step(state, op.Input, op.Output)
		if i >= len(longest)-4 {
			fmt.Fprintf(&text, "  %s\n", describe(op))
		}
	}
	open := slices.DeleteFunc(slices.Clone(list), func(op porcupine.Operation) bool { return placed[key(op)] })
	slices.SortFunc(open, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	text.WriteString("and none of these can follow\n")
	for _, op := range open[:min(len(open), 3)] {
		_, must := h.apply(state.([]any)[0].(simulation.Moment), *op.Input.(*call))
		fmt.Fprintf(&text, "  %s\n    the model: %s\n", describe(op), must)
	}
	return text.String()
}

// key tells operations apart; the runs of one call besides its last are alike.
func key(op porcupine.Operation) string {
	return fmt.Sprint(op.ClientId, " ", op.Call, " ", op.Output.(answer).unknown)
}

func describe(op porcupine.Operation) string {
	return fmt.Sprintf("client %d [%d, %d] %s -> %s", op.ClientId, op.Call, op.Return, op.Input, op.Output)
}

const (
	// workspaces share a book: more than one, so that a lease meets several.
	workspaces = 3
	// grantsMax bounds the grants of one history; then clients repeat a grant.
	grantsMax = 96
	// openMax is the number of files that a workspace may have open: low, so that creates meet it.
	openMax = 6
)

// clientLimits are those of each workspace in a history.
var clientLimits = ledger.Limits{Open: openMax, Stored: 1 << 40, Unpaid: 1 << 20}

// defect is the issue of every file that is refused.
const defect = "csv_malformed"

// The model makes each file in the millisecond of its rank, and does everything else when all are made. That is before
// transitions.WakeBack is over, so leases find the files in that order.
var (
	beginning = time.UnixMilli(1_700_000_000_000)
	allMade   = beginning.Add(filesMax * time.Millisecond)
)

// model is a ledger that does one thing at a time: the transitions themselves, over tables in memory. What became of a
// call that told nothing is open: from then on the ledger is one of several, until an answer tells them apart or they
// come to the same. A search comes to the same step again and again, so steps are remembered.
func (h *History) model() porcupine.Model {
	type step struct {
		before simulation.Moment
		call   *call
	}
	known := map[step][]any{}
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{simulation.Beginning(h.spaces[:]...)} },
		Step: func(state, input, output any) []any {
			s := step{state.(simulation.Moment), input.(*call)}
			after, is := known[s]
			if !is {
				after = h.after(s.before, *s.call, output.(answer))
				known[s] = after
			}
			return after
		},
		Equal: func(a, b any) bool { return a.(simulation.Moment).Equal(b.(simulation.Moment)) },
	}
	return m.ToModel()
}

// after returns the possible ledgers after a call with its answer.
func (h *History) after(before simulation.Moment, c call, told answer) (states []any) {
	switch {
	case told.unchanged:
		return []any{before}
	case told.unknown:
		return h.open(before, c)
	}
	if after, must := h.apply(before, c); told == must {
		states = append(states, after)
	}
	if c.kind == lease && c.lease.anew && told.list != "" && h.holds(before, c.node, told.list) {
		states = append(states, before)
	}
	return states
}

// apply returns the ledger after the call, and its answer.
func (h *History) apply(m simulation.Moment, c call) (after simulation.Moment, a answer) {
	op, at := operation{call: c}, allMade
	switch {
	case c.kind == create:
		at = beginning.Add(time.Duration(c.rank) * time.Millisecond)
	case c.kind == lease && c.lease.all:
		op.call.limit++ // what is left is in the answer, which then is another
	}
	var err error
	after = m.Do(at, func(b *simulation.Book) {
		if took := c.lease.took; took != nil {
			b.Only(h.named(took))
		}
		err = (&client{recorder: h.recorder, Book: b}).ask(context.Background(), &op)
	})
	if c.kind == create && c.rank < 0 && op.answer.created {
		return m, answer{rank: -1} // no such verification in the end: it was not made
	}
	refusal, tells := refusalOf(err)
	if lost := h.rank(&op); lost != nil || !tells {
		return m, answer{refusal: fmt.Sprint(err, lost)}
	}
	op.answer.refusal = refusal
	return after, op.answer
}

// named are the ids of files by their ranks.
func (h *History) named(ranks map[int]bool) map[uuid.UUID]bool {
	ids := map[uuid.UUID]bool{}
	for rank := range ranks {
		ids[h.ids[rank]] = true
	}
	return ids
}

// holds reports whether a node has each file of a list of leases, as the list shows it.
func (h *History) holds(m simulation.Moment, node int, list string) bool {
	var has string
	m.Do(allMade, func(b *simulation.Book) {
		files, _ := b.OpenVerifications(context.Background(), filesMax)
		for _, v := range files {
			if v.LeasedBy == h.nodes[node] {
				has += textOf([]listed{{rank: h.ranks[v.ID], epoch: v.Epoch, status: v.Status}})
			}
		}
	})
	for one := range strings.SplitAfterSeq(list, ";") {
		if !strings.Contains(";"+has, ";"+one) {
			return false
		}
	}
	return true
}

// open returns the possible ledgers after a call without an answer. A lease may have taken any number of files here:
// the others were those of other workspaces.
func (h *History) open(m simulation.Moment, c call) []any {
	list := []any{m}
	switch {
	case c.kind != lease:
		after, _ := h.apply(m, c)
		return append(list, after)
	case c.lease.took != nil:
		return h.openPassing(m, c)
	}
	for limit := range c.limit {
		c.limit = limit + 1
		after, _ := h.apply(m, c)
		list = append(list, after)
	}
	return list
}

// openPassing is open for a lease that may pass over files: it may have taken any of those that it can have taken.
func (h *History) openPassing(m simulation.Moment, c call) []any {
	list, sizes := []any{m}, []int{0}
	most, ranks := c.limit, slices.Sorted(maps.Keys(c.lease.took))
	for _, rank := range ranks {
		c.limit, c.lease.took = 1, map[int]bool{rank: true}
		for i := range list { // those of before this file
			if sizes[i] == most {
				continue
			}
			if after, took := h.apply(list[i].(simulation.Moment), c); took.list != "" {
				list = append(list, after)
				sizes = append(sizes, sizes[i]+1)
			}
		}
	}
	return list
}

// filesMax bounds the files that one workspace has in a history.
const filesMax = 10_000

// History is the calls of 16 clients to one book, with the answers.
type History struct {
	*recorder
	files  []int             // the workspace of each file in the book at the end, by rank
	ids    []uuid.UUID       // of each, by rank
	ranks  map[uuid.UUID]int // of each, by id
	epochs []int64           // the last epoch of each, by rank
}

// String counts the calls, with those of the last reading, and the runs of a transaction of which the ledger did not
// know at once whether they were committed.
func (h *History) String() string {
	unknown := 0
	for _, op := range h.done {
		unknown += op.repeats
		if op.answer.unknown {
			unknown++
		}
	}
	return fmt.Sprintf("%d operations, %d unknown runs", len(h.done), unknown)
}

// RecordHistory makes three workspaces in an empty book and lets 16 clients work on them at once; books are connections
// to it, which are dealt out among them. In the end it reads everything once more, which is a part of the history. An
// error is a call that failed where none may fail, or an audit that found something; the answers themselves are judged
// by Check.
func RecordHistory(ctx context.Context, books []ledger.Book, o HistoryOptions) (*History, error) {
	r := &recorder{books: books, HistoryOptions: o, random: rand.New(rand.NewPCG(o.Seed, 0)),
		left: o.Operations, start: time.Now()}
	for i := range r.nodes[1:] {
		r.nodes[i+1] = r.id()
	}
	for i := range r.spaces {
		r.spaces[i] = r.id()
		if err := r.insist(func() error {
			_, err := books[0].CreateWorkspace(ctx, r.spaces[i], "history")
			return err
		}); err != nil {
			return nil, err
		}
	}
	var all sync.WaitGroup
	for i := range clientsMax {
		c := &client{recorder: r, Book: books[i%len(books)], number: i + 1,
			random: rand.New(rand.NewPCG(o.Seed, uint64(i+1)))}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	if r.failed != nil {
		return nil, r.failed
	}
	files, err := r.readAll(ctx)
	if err != nil {
		return nil, err
	}
	h := &History{recorder: r, ranks: map[uuid.UUID]int{}}
	for i, v := range files {
		h.files = append(h.files, slices.Index(r.spaces[:], v.Workspace))
		h.ids, h.ranks[v.ID] = append(h.ids, v.ID), i
		h.epochs = append(h.epochs, v.Epoch)
	}
	for i := range h.done {
		if err := h.rank(&h.done[i]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// insist repeats a failed call if the history has faults.
func (r *recorder) insist(do func() error) error {
	err := do()
	for again := 0; err != nil && r.Faults && again < againMax; again++ {
		err = do()
	}
	return err
}

// readAll reads everything at the end, by one client, and gives all files in the order in which the book serves them.
func (r *recorder) readAll(ctx context.Context) ([]ledger.Verification, error) {
	var files []ledger.Verification
	var report ledger.AuditReport
	c := &client{recorder: r, Book: r.books[0], number: 1}
	for i, space := range r.spaces {
		var list []ledger.Verification
		err := r.insist(func() (err error) {
			list, err = c.History(ctx, ledger.HistoryQuery{Workspace: space, Limit: filesMax})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("last reading: %w", err)
		}
		files = append(files, list...)
		c.record(ctx, call{kind: balance, workspace: i})
		for _, v := range list {
			c.record(ctx, call{kind: verification, workspace: i, file: v.ID})
			c.record(ctx, call{kind: results, workspace: i, file: v.ID})
		}
	}
	err := r.insist(func() (err error) { report, err = c.Audit(ctx); return err })
	switch {
	case err != nil:
		return nil, fmt.Errorf("last audit: %w", err)
	case len(report.Violations) > 0:
		return nil, fmt.Errorf("last audit: %+v", report.Violations)
	}
	slices.SortFunc(files, func(a, b ledger.Verification) int {
		return cmp.Or(a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return files, r.failed
}

// rank puts the place of each file where its id was: its id is chance, and its
// time of creation is known when its answer was lost.
func (h *History) rank(op *operation) error {
	rank, exists := h.ranks[op.call.file]
	if op.call.rank = rank; !exists {
		op.call.rank = -1
	}
	if op.created != uuid.Nil {
		if op.answer.rank, exists = h.ranks[op.created]; !exists {
			return fmt.Errorf("verification %s was answered and is lost", op.created)
		}
	}
	for i := range op.lines {
		if op.lines[i].rank, exists = h.ranks[op.lines[i].file]; !exists {
			return fmt.Errorf("verification %s was answered and is lost", op.lines[i].file)
		}
	}
	if op.call.kind == renew { // the only list without an order
		slices.SortFunc(op.lines, func(a, b listed) int { return cmp.Compare(a.rank, b.rank) })
	}
	op.answer.list += textOf(op.lines)
	return nil
}

// textOf is a list as it is compared.
func textOf(lines []listed) string {
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%d@%d %s;", l.rank, l.epoch, l.status)
	}
	return text.String()
}
