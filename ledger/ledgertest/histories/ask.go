package histories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
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
	case lease, renew, history:
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
	case sweep, forget:
		a.list, err = c.sweep(ctx, q)
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

// one asks what is answered by one verification.
func (c *client) one(ctx context.Context, op *operation) (v ledger.Verification, err error) {
	q := &op.call
	space, l := c.spaces[q.workspace], c.lease(q)
	switch q.kind {
	case create:
		v, op.answer.created, err = c.Create(ctx, ledger.NewVerification{ID: q.file, Workspace: space,
			Identity: q.identity, Bytes: q.bytes, BytesMax: 1 << 20, Limits: c.limits,
			UploadExpiry: q.life()})
		// Whether this call made it or the one before, of which nobody knows, is all the same.
		op.answer.created = op.answer.created || q.again && v.ID == q.file
		return v, err
	case verification:
		return c.Verification(ctx, space, q.file)
	case cancel:
		return c.Cancel(ctx, space, q.file)
	case refuse:
		return c.Refuse(ctx, l, ledger.Issue{Code: defect})
	case prepare:
		return c.Prepare(ctx, l, q.total+q.twice, q.twice, q.total)
	case settle:
		return c.Settle(ctx, q.settlement(l))
	case wait:
		return c.Wait(ctx, l, ledger.Outlook{Next: q.next, Why: q.why})
	case park:
		return c.Park(ctx, l, ledger.Outlook{Next: q.next, Why: q.why}, []byte("state"))
	case crashed:
		return c.Crashed(ctx, l)
	case finishCancel:
		return c.FinishCancel(ctx, l)
	}
	return v, fmt.Errorf("no such call: %s", q.kind)
}

// life is how long a lease or an upload of a call holds: longer than any test, or no time at all.
func (q *call) life() time.Duration {
	if q.expired {
		return 0
	}
	return ledgertest.Hour
}

// settlement is the batch of a call. Every second one has its results in the wrong order.
func (q *call) settlement(l ledger.Lease) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: q.number}
	for i, letter := range []byte(q.outcomes) {
		if letter != letters[0] {
			s.Results = append(s.Results, ledgertest.OneResult(q.first+int64(i), outcomeOf(letter)))
		}
	}
	if q.number%2 == 0 {
		slices.Reverse(s.Results)
	}
	return s
}

// upload asks what concerns the bytes of a file.
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
	beside := errors.Is(err, ledger.ErrFenced) || errors.Is(err, ledger.ErrUploadClosed) ||
		errors.Is(err, ledger.ErrGap)
	if err != nil && !beside {
		return err
	}
	op.answer = answer{durable: u.Durable, writer: u.Writer, file: seen{status: u.Status, bytes: u.Bytes}}
	if u.Issue != nil {
		op.answer.file.issue = u.Issue.Code
	}
	return err
}

// list asks what is answered by several files.
func (c *client) list(ctx context.Context, op *operation) (err error) {
	q := &op.call
	switch q.kind {
	case lease:
		op.shown, err = c.Lease(ctx, c.nodes[q.node], q.limit, q.life())
	case history:
		query := ledger.HistoryQuery{Workspace: c.spaces[q.workspace], Limit: q.limit}
		op.shown, err = c.History(ctx, query)
	default:
		var leases []ledger.Lease
		leases, err = c.Renew(ctx, c.nodes[q.node], ledgertest.Hour)
		for _, l := range leases {
			op.lines = append(op.lines, listed{file: l.Verification, epoch: l.Epoch})
		}
	}
	for _, v := range op.shown {
		op.lines = append(op.lines, listed{file: v.ID, epoch: v.Epoch, status: v.Status})
	}
	return err
}

// sweep does what time demands, and tells of how many files.
func (c *client) sweep(ctx context.Context, q *call) (string, error) {
	var r ledger.Retention
	if q.funding {
		r.Funding = time.Nanosecond
	}
	if q.kind == forget {
		r.Results = time.Nanosecond
	}
	n, err := c.Sweep(ctx, r)
	return fmt.Sprint(n), err
}

// outcomes asks for results, which must be those that were settled, in order.
func (c *client) outcomes(ctx context.Context, op *operation) (string, error) {
	var list strings.Builder
	space := c.spaces[op.call.workspace]
	err := c.Results(ctx, space, op.call.file, func(r ledger.Result) error {
		if r != ledgertest.OneResult(r.Ordinal, r.Outcome) || r.Ordinal < int64(list.Len()) ||
			r.Outcome == smtp.Undecided {
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
