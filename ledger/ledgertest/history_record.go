package ledgertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

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
		if err := r.makeWorkspace(ctx, r.spaces[i]); err != nil {
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

// makeWorkspace makes one, also when a fault comes between.
func (r *recorder) makeWorkspace(ctx context.Context, id uuid.UUID) error {
	return r.insist(func() error {
		_, err := r.books[0].CreateWorkspace(ctx, id, "history")
		return err
	})
}

// insist repeats a call that a fault may meet.
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
