package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
)

// errWrong: an answer that no book may give.
var errWrong = errors.New("a wrong answer")

// ask makes the call of op and notes what it showed.
func (c *client) ask(ctx context.Context, op *operation) (err error) {
	q, a := &op.call, &op.answer
	space := c.spaces[q.workspace]
	switch q.kind {
	case openUpload, appendChunk, uploadState:
		return c.upload(ctx, op)
	case lease, renew, readHistory:
		return c.list(ctx, op)
	case release:
		return c.Release(ctx, c.lease(q))
	case grant:
		a.account, err = c.Grant(ctx, q.grantID, space, ledger.Credits(q.credits), "history")
		return err
	case balance:
		a.account, err = c.Balance(ctx, space)
		return err
	case results:
		a.list, err = c.outcomes(ctx, op)
		return err
	}
	v, err := c.one(ctx, op)
	if err != nil {
		return err
	}
	a.file = sees(v)
	op.shown = []ledger.Verification{v}
	if q.kind == create {
		op.created = v.ID
	}
	return nil
}

// lease is the one that a call names.
func (c *client) lease(q *call) ledger.Lease {
	return ledger.Lease{Verification: q.file, Node: c.nodes[q.node], Epoch: q.epoch}
}

// one makes the calls that return one verification.
func (c *client) one(ctx context.Context, op *operation) (v ledger.Verification, err error) {
	q := &op.call
	space, l := c.spaces[q.workspace], c.lease(q)
	switch q.kind {
	case create:
		v, op.answer.created, err = c.Create(ctx, ledger.NewVerification{ID: q.file, Workspace: space,
			Identity: q.identity, Bytes: q.bytes, BytesMax: 1 << 20, Limits: clientLimits,
			UploadExpiry: Hour})
		// It doesn't matter whether this call made it or an earlier one without an answer.
		op.answer.created = op.answer.created || q.again && v.ID == q.file
		return v, err
	case verification:
		return c.Verification(ctx, space, q.file)
	case cancel:
		return c.Cancel(ctx, space, q.file)
	case refuse:
		return c.Refuse(ctx, l, ledger.Issue{Code: defect})
	case prepare:
		return c.Prepare(ctx, l, q.total, 0, q.total)
	case settle:
		return c.Settle(ctx, q.settlement(l))
	case wait:
		return c.Wait(ctx, l, ledger.Estimate{Next: q.next})
	case finishCancel:
		return c.FinishCancel(ctx, l)
	}
	return v, fmt.Errorf("no such call: %s", q.kind)
}

// life is how long a lease of a call holds: longer than any test, or no time at all.
func (q *call) life() time.Duration {
	if q.expired {
		return 0
	}
	return Hour
}

// settlement is the batch of a call. Every second one has its results in the wrong order.
func (q *call) settlement(l ledger.Lease) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: q.settled.number}
	for i, letter := range []byte(q.settled.outcomes) {
		s.Results = append(s.Results, OneResult(q.settled.first+int64(i), outcomeOf(letter)))
	}
	if q.settled.number%2 == 0 {
		slices.Reverse(s.Results)
	}
	return s
}

// upload makes the calls about the bytes of a file.
func (c *client) upload(ctx context.Context, op *operation) (err error) {
	var u ledger.Upload
	q := &op.call
	switch q.kind {
	case openUpload:
		u, err = c.OpenUpload(ctx, q.file)
	case uploadState:
		u, err = c.UploadState(ctx, q.file)
	default:
		u, err = c.AppendChunk(ctx, q.file, q.writer, q.offset, make([]byte, q.bytes))
	}
	beside := errors.Is(err, ledger.ErrFenced) || errors.Is(err, ledger.ErrUploadClosed) || errors.Is(err, ledger.ErrGap)
	if err != nil && !beside {
		return err
	}
	op.answer = answer{durable: u.Durable, writer: u.Writer, file: seen{status: u.Status, bytes: u.Bytes}}
	if u.Issue != nil {
		op.answer.file.issue = u.Issue.Code
	}
	return err
}

// list makes the calls that return several files.
func (c *client) list(ctx context.Context, op *operation) (err error) {
	q := &op.call
	switch q.kind {
	case lease:
		op.shown, err = c.Lease(ctx, c.nodes[q.node], q.limit, q.life())
	case readHistory:
		query := ledger.HistoryQuery{Workspace: c.spaces[q.workspace], Limit: q.limit}
		op.shown, err = c.History(ctx, query)
	default:
		var leases []ledger.Lease
		leases, err = c.Renew(ctx, c.nodes[q.node], Hour)
		for _, l := range leases {
			op.lines = append(op.lines, listed{file: l.Verification, epoch: l.Epoch})
		}
	}
	for _, v := range op.shown {
		op.lines = append(op.lines, listed{file: v.ID, epoch: v.Epoch, status: v.Status})
	}
	return err
}

// outcomes asks for results, which must be those that were settled, in order.
func (c *client) outcomes(ctx context.Context, op *operation) (string, error) {
	var list strings.Builder
	space := c.spaces[op.call.workspace]
	err := c.Results(ctx, space, op.call.file, func(r ledger.Result) error {
		if r != OneResult(r.Ordinal, r.Outcome) || r.Ordinal < int64(list.Len()) || r.Outcome == smtp.Undecided {
			return fmt.Errorf("result %d is %+v: %w", list.Len(), r, errWrong)
		}
		list.WriteString(strings.Repeat(letters[:1], int(r.Ordinal)-list.Len()))
		return list.WriteByte(letters[r.Outcome])
	})
	if err != nil {
		return "", err
	}
	return list.String(), nil
}

// next chooses what to ask; false: nothing more.
func (c *client) next() (call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return call{}, false
	}
	c.left--
	workspace := c.random.IntN(workspaces)
	active := c.active()
	switch p := c.random.IntN(100); {
	case p < 4 || len(active) < activeMax && p < 12:
		return c.newFile(workspace), true
	case p < 17:
		return c.newGrant(workspace), true
	case p < 22:
		return call{kind: balance, workspace: workspace}, true
	case p < 24:
		return call{kind: readHistory, workspace: workspace, limit: 1 + c.random.IntN(4)}, true
	case p < 25:
		return call{kind: renew, node: c.number}, true
	case p < 30 || len(active) == 0:
		return c.newLease(), true
	case p < 34:
		// Also one that ended long ago: a late answer, or an old page.
		return c.oneStep(c.known[c.random.IntN(len(c.known))]), true
	default:
		return c.oneStep(active[c.random.IntN(len(active))]), true
	}
}

// active are the newest files that are not known to be final.
func (c *client) active() []*known {
	var list []*known
	for i := len(c.known) - 1; i >= 0 && len(list) < activeMax; i-- {
		if !c.known[i].v.Status.Final() {
			list = append(list, c.known[i])
		}
	}
	return list
}

// newFile asks for a verification: a new one, or one of the last few again.
func (c *client) newFile(workspace int) call {
	ids := &c.identities[workspace]
	if len(*ids) == 0 || c.random.IntN(2) == 0 {
		*ids = append(*ids, c.id())
	}
	q := call{kind: create, workspace: workspace, file: c.id(), bytes: 6}
	q.identity = (*ids)[len(*ids)-1-c.random.IntN(min(3, len(*ids)))]
	if c.random.IntN(10) == 0 {
		q.bytes = 7
	}
	return q
}

// newGrant asks for credits: new ones, or one of the last few grants again.
func (c *client) newGrant(workspace int) call {
	ids := &c.grants[workspace]
	if len(*ids) == 0 || len(*ids) < grantsMax && c.random.IntN(2) == 0 {
		*ids = append(*ids, c.id())
	}
	q := call{kind: grant, workspace: workspace}
	q.grant = len(*ids) - 1 - c.random.IntN(min(3, len(*ids)))
	q.grantID = (*ids)[q.grant]
	q.credits = int64(4 + q.grant%9)
	if c.random.IntN(20) == 0 {
		q.credits++
	}
	return q
}

// newLease asks for work. A quarter of the leases end within the history.
func (c *client) newLease() call {
	return call{kind: lease, node: c.number, limit: 1 + c.random.IntN(3), expired: c.random.IntN(4) == 0}
}

// id makes a random id from the seed.
func (r *recorder) id() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(r.random.Uint32())
	}
	return id
}

// oneStep chooses a call about one file: mostly one that brings it on.
func (c *client) oneStep(k *known) call {
	q := call{workspace: k.workspace, file: k.id}
	r := c.random
	if len(k.leases) > 0 {
		newest := len(k.leases) - 1
		if r.IntN(6) == 0 {
			newest = r.IntN(len(k.leases)) // an old one
		}
		q.node, q.epoch = k.leases[newest].node, k.leases[newest].epoch
	}
	if q.epoch == 0 {
		q.node = c.number
	}
	switch p := r.IntN(100); {
	case p < 8:
		q.kind = verification
	case p < 12:
		q.kind = results
	case p < 14:
		q.kind = cancel
	case p < 16:
		q.kind = finishCancel
	case p < 18:
		q.kind = release
	case p < 21:
		if q.kind = wait; r.IntN(2) == 0 {
			q.next = time.Unix(4_000_000_000, 0)
		}
	case p < 25 && len(k.sent) > 0:
		return k.sent[r.IntN(len(k.sent))]
	case k.v.Status == ledger.Uploading:
		c.bring(k, &q)
	case q.epoch < k.v.Epoch || q.epoch == 0 && k.v.State().Runnable():
		return c.newLease()
	case k.v.Status == ledger.Preparing:
		q.kind, q.total = prepare, int64(1+r.IntN(12))
		if r.IntN(12) == 0 {
			q.kind = refuse
		}
	case k.v.State().Funded():
		c.finish(k, &q)
	default:
		q.kind = verification
	}
	return q
}

// bring uploads a part of a file.
func (c *client) bring(k *known, q *call) {
	switch p := c.random.IntN(20); {
	case p == 0:
		q.kind = uploadState
	case p < 4 || k.writer == 0:
		q.kind = openUpload
	default:
		q.kind, q.writer, q.offset, q.bytes = appendChunk, k.writer, k.durable, max(1, min(3, k.v.Bytes-k.durable))
		if p == 19 {
			q.offset, q.writer = int64(3*c.random.IntN(3)), k.writer-int64(c.random.IntN(2))
		}
	}
}

// finish settles some of a file.
func (c *client) finish(k *known, q *call) {
	if k.v.Status == ledger.Cancelling && c.random.IntN(3) == 0 {
		q.kind = finishCancel
		return
	}
	q.kind = settle
	q.settled.number = k.v.Settlements + 1
	if c.random.IntN(12) == 0 {
		q.settled.number += int64(c.random.IntN(3)) - 1
	}
	q.settled.first = batchSize * (q.settled.number - 1)
	n := min(batchSize, k.v.Total-q.settled.first)
	if q.settled.number < 1 || n < 1 {
		q.kind = verification // nothing is left, as far as known
		return
	}
	for range n {
		q.settled.outcomes += string(someOutcome(c.random))
	}
	k.sent = append(k.sent, *q)
}

// someOutcome is often unknown, so that credits come back.
func someOutcome(r *rand.Rand) byte {
	return "vvvicuuue"[r.IntN(9)]
}
