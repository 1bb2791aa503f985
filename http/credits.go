package http

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/ledger"
)

// credits answers GET /v1/credits.
func (s *Server) credits(ctx context.Context, r *request) {
	balance, err := s.balances.read(ctx, r.key.Workspace)
	if err != nil {
		s.unavailable(r, "read balance", err)
		return
	}
	h := &r.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	r.SetContentType(jsonType)
	var buffer [64]byte
	body := append(buffer[:0], `{"credits":`...)
	body = strconv.AppendInt(body, int64(balance.Available), 10)
	r.SetBody(append(body, '}'))
}

// balanceReader reads balances. Requests that wait for the same workspace share
// one question to the ledger, which always begins after each of them arrived:
// the answer was true at some moment between request and answer.
type balanceReader struct {
	book     Book
	panicked func()

	mu      sync.Mutex
	reading map[uuid.UUID]*balanceQuestion // guarded by mu; the one that runs
}

// balanceQuestion is one question and the one that those who come too late for it wait for.
type balanceQuestion struct {
	done    chan struct{}
	balance ledger.Balance
	err     error
	next    *balanceQuestion // guarded by balanceReader.mu; not begun
}

func newBalanceReader(book Book, panicked func()) *balanceReader {
	return &balanceReader{book: book, panicked: panicked, reading: make(map[uuid.UUID]*balanceQuestion)}
}

// read gives the balance of a workspace.
func (b *balanceReader) read(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error) {
	b.mu.Lock()
	running := b.reading[workspace]
	if running == nil {
		q := &balanceQuestion{done: make(chan struct{})}
		b.reading[workspace] = q
		b.mu.Unlock()
		b.ask(ctx, workspace, q) // nobody else waits for this one
		return q.balance, q.err
	}
	if running.next == nil {
		running.next = &balanceQuestion{done: make(chan struct{})}
	}
	q := running.next
	b.mu.Unlock()
	select {
	case <-q.done:
		return q.balance, q.err
	case <-ctx.Done():
		return ledger.Balance{}, ctx.Err()
	}
}

// ask puts a question and then starts the one that waits for it, if any.
func (b *balanceReader) ask(ctx context.Context, workspace uuid.UUID, q *balanceQuestion) {
	defer func() {
		if p := recover(); p != nil { // nobody above this goroutine would
			b.panicked()
			q.err = fmt.Errorf("%w: reading a balance panicked with a %T", errNoAnswer, p)
		}
		close(q.done)
		b.mu.Lock()
		defer b.mu.Unlock()
		if q.next == nil {
			delete(b.reading, workspace)
			return
		}
		b.reading[workspace] = q.next
		go b.askForMany(workspace, q.next)
	}()
	q.balance, q.err = b.book.Balance(ctx, workspace)
}

// askForMany puts a question that several wait for, within a time of its own.
func (b *balanceReader) askForMany(workspace uuid.UUID, q *balanceQuestion) {
	ctx, cancel := context.WithTimeout(ledger.WithTenant(context.Background(), workspace), ledgerTimeout)
	defer cancel()
	b.ask(ctx, workspace, q)
}
