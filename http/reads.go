package http

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
)

// keptMax bounds the cached answers of one kind of read. The largest, a page of 100 verifications, is some 40 KB.
// Guess.
const keptMax = 256

// reads asks the ledger for many requests. Requests that wait for the same answer share one question. It begins after
// the last of them arrived, so that the answer was true at some time between request and answer. While nothing is
// written the answer stays true and is reused.
type reads[K comparable, V any] struct {
	ask      func(ctx context.Context, of K) (V, error)
	writes   func() (count uint64, still bool) // see Options.Writes
	panicked func()

	mu      sync.Mutex
	running map[K]*question[V] // guarded by mu
	kept    map[K]V            // guarded by mu; true while writes returns keptAt
	keptAt  uint64             // guarded by mu
}

// question is a read that requests share. next is the read for requests that come too late for this one.
type question[V any] struct {
	tenant uuid.UUID
	done   chan struct{}
	answer V
	err    error
	next   *question[V] // guarded by reads.mu; has not begun
}

func newReads[K comparable, V any](ask func(ctx context.Context, of K) (V, error),
	writes func() (uint64, bool), panicked func()) *reads[K, V] {
	if writes == nil {
		writes = func() (uint64, bool) { return 0, false }
	}
	return &reads[K, V]{ask: ask, writes: writes, panicked: panicked,
		running: make(map[K]*question[V]), kept: make(map[K]V)}
}

func (r *reads[K, V]) read(ctx context.Context, of K) (V, error) {
	count, still := r.writes()
	r.mu.Lock()
	if known, ok := r.kept[of]; ok && still && r.keptAt == count {
		r.mu.Unlock()
		return known, nil
	}
	running := r.running[of]
	if running == nil {
		q := &question[V]{tenant: ledger.TenantOf(ctx), done: make(chan struct{})}
		r.running[of] = q
		r.mu.Unlock()
		r.put(ctx, of, q) // no other request waits for this question
		return q.answer, q.err
	}
	if running.next == nil {
		running.next = &question[V]{tenant: running.tenant, done: make(chan struct{})}
	}
	q := running.next
	r.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// put asks a question and then starts the next one, if any.
func (r *reads[K, V]) put(ctx context.Context, of K, q *question[V]) {
	count, still := r.writes()
	q.err = errNoAnswer // should ask panic
	defer func() {
		close(q.done)
		r.mu.Lock()
		defer r.mu.Unlock()
		if still && q.err == nil {
			r.keep(of, q.answer, count)
		}
		if q.next == nil {
			delete(r.running, of)
			return
		}
		r.running[of] = q.next
		go r.putForMany(of, q.next)
	}()
	q.answer, q.err = r.ask(ctx, of)
}

// putForMany asks a question for several requests, within its own time.
func (r *reads[K, V]) putForMany(of K, q *question[V]) {
	ctx, cancel := context.WithTimeout(ledger.WithTenant(context.Background(), q.tenant), ledgerTimeout)
	defer cancel()
	defer func() {
		if recover() != nil { // nobody above this goroutine would recover
			r.panicked()
		}
	}()
	r.put(ctx, of, q)
}

// keep caches an answer. count is the number of writes when the question was asked. r.mu is held.
func (r *reads[K, V]) keep(of K, answer V, count uint64) {
	if count < r.keptAt {
		return
	}
	if count > r.keptAt || len(r.kept) >= keptMax {
		clear(r.kept)
		r.keptAt = count
	}
	r.kept[of] = answer
}

// The page sizes of the contract.
const (
	pageDefault = 20
	pageMax     = 100
)

// historyOf names a page of a workspace's history.
type historyOf struct {
	workspace uuid.UUID
	kind      ledger.Kind
	limit     int
	after     ledger.Position // the zero value: the first page
}

func (s *Server) history(ctx context.Context, r *request) {
	of, refused := s.historyAsked(r)
	if refused != "" {
		s.refuse(r, refused, 0)
		return
	}
	body, err := s.listings.read(ctx, of)
	if err != nil {
		s.unavailable(r, "read history", err)
		return
	}
	listen.WriteBody(r.RequestCtx, fasthttp.StatusOK, body)
}

// readHistory reads a page, and one more row to know whether there is another page.
func (s *Server) readHistory(ctx context.Context, of historyOf) ([]byte, error) {
	q := ledger.HistoryQuery{Workspace: of.workspace, Kind: of.kind, Limit: of.limit + 1}
	if of.after != (ledger.Position{}) {
		q.After = &of.after
	}
	found, err := s.options.Book.History(ctx, q)
	if err != nil {
		return nil, err
	}
	page := api.History{
		Verifications: make([]api.Summary, 0, min(len(found), of.limit)),
		Limits:        api.Limits{MaxFileBytes: s.options.MaxFileBytes, MaxRows: s.options.MaxRows},
	}
	for _, v := range found[:min(len(found), of.limit)] {
		page.Verifications = append(page.Verifications, summaryOf(v))
	}
	if len(found) > of.limit {
		last := found[of.limit-1]
		page.NextCursor = new(s.cursors.seal(ledger.Position{Created: last.Created, ID: last.ID}, of.workspace, of.kind))
	}
	return json.Marshal(page)
}

// historyAsked reads the query. The code names the first invalid parameter. Unknown parameters are ignored.
func (s *Server) historyAsked(r *request) (historyOf, api.Code) {
	of := historyOf{workspace: r.key.Workspace, limit: pageDefault}
	args := r.QueryArgs()
	for _, name := range []string{"limit", "kind", "cursor"} {
		if len(args.PeekMulti(name)) > 1 {
			return of, api.InvalidParameter
		}
	}
	if args.Has("limit") {
		n, err := strconv.ParseUint(string(args.Peek("limit")), 10, 8)
		if err != nil || n < 1 || n > pageMax {
			return of, api.InvalidLimit
		}
		of.limit = int(n)
	}
	if args.Has("kind") {
		of.kind = ledger.Kind(args.Peek("kind"))
		if of.kind != ledger.Single && of.kind != ledger.Bulk {
			return of, api.InvalidKind
		}
	}
	if args.Has("cursor") {
		after, ok := s.cursors.open(args.Peek("cursor"), of.workspace, of.kind)
		if !ok {
			return of, api.InvalidCursor
		}
		of.after = after
	}
	return of, ""
}

// cursorMax is the contract's bound; our cursors have 70 characters.
const cursorMax = 512

// cursorSize is the size of the plain text: nanoseconds since 1970 and the id of the last row shown.
const cursorSize = 8 + 16

// cursorSealer encrypts positions in a history with AES-256-GCM; workspace and filter are associated data. So only
// this service can make cursors, and each works only for its workspace and filter.
type cursorSealer struct{ aead cipher.AEAD }

func newCursorSealer(key [cursorKeyBytes]byte) (c cursorSealer) {
	block, err := aes.NewCipher(key[:])
	if err == nil {
		c.aead, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic(err) // the key has the right length
	}
	return c
}

func (c cursorSealer) seal(p ledger.Position, workspace uuid.UUID, kind ledger.Kind) string {
	var plain [cursorSize]byte
	binary.BigEndian.PutUint64(plain[:8], uint64(p.Created.UnixNano()))
	copy(plain[8:], p.ID[:])
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nil, nil, plain[:], bindCursor(workspace, kind)))
}

// open reads a cursor. It returns false if the cursor is malformed, altered, or of another workspace or filter.
func (c cursorSealer) open(text []byte, workspace uuid.UUID, kind ledger.Kind) (ledger.Position, bool) {
	if len(text) > cursorMax {
		return ledger.Position{}, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(string(text))
	if err != nil {
		return ledger.Position{}, false
	}
	plain, err := c.aead.Open(nil, nil, sealed, bindCursor(workspace, kind))
	if err != nil || len(plain) != cursorSize {
		return ledger.Position{}, false
	}
	return ledger.Position{
		Created: time.Unix(0, int64(binary.BigEndian.Uint64(plain[:8]))),
		ID:      uuid.UUID(plain[8:]),
	}, true
}

func bindCursor(workspace uuid.UUID, kind ledger.Kind) []byte {
	return append(workspace[:], kind...)
}
