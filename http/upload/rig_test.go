package upload_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/listen"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

// storageRig is a storage listener on loopback, over a ledger of its own.
type storageRig struct {
	t       testing.TB
	book    *hookedBook
	store   ledger.Book
	space   uuid.UUID
	tokens  *upload.Tokens
	storage *upload.Server
	log     *effort.Log
	woken   chan struct{}
	secrets []string
}

func newStorageRig(t testing.TB, tweak func(*upload.Options)) *storageRig {
	t.Helper()
	r := &storageRig{t: t, tokens: upload.NewTokens([upload.TokenKeyBytes]byte{7}), log: &effort.Log{},
		woken: make(chan struct{}, 1024)}
	r.store, r.space = openBook(t)
	r.book = &hookedBook{Files: r.store}
	o := upload.DefaultOptions()
	o.Listen, o.Book, o.Tokens = "127.0.0.1:0", r.book, r.tokens
	o.AllowedOrigins = []string{"https://app.example"}
	o.Wake = func() { r.woken <- struct{}{} }
	o.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Registerer = prometheus.NewRegistry()
	if tweak != nil {
		tweak(&o)
	}
	r.storage = upload.New(o)
	effort.OK(t, r.storage.Start())
	t.Cleanup(func() {
		r.stop()
		r.checkSecrets()
	})
	return r
}

func (r *storageRig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), effort.Patience)
	defer cancel()
	effort.ErrIs(r.t, r.storage.Stop(ctx), nil, "stop")
}

// keyCanary stands for an API key in requests; no log line may contain it.
const keyCanary = "rc_canary_kq5vTz0example"

// checkSecrets checks that the test's log contains no secret and no address.
func (r *storageRig) checkSecrets() {
	said := r.log.String()
	for _, secret := range append(r.secrets, keyCanary, "@example.test", upload.PathPrefix) {
		effort.Lacks(r.t, said, secret, "the log has the secret")
	}
}

// create makes a verification with a number of bytes, and returns its id and upload path.
func (r *storageRig) create(size int64) (uuid.UUID, string) {
	return r.createFor(size, time.Hour)
}

func (r *storageRig) createFor(size int64, expiry time.Duration) (uuid.UUID, string) {
	r.t.Helper()
	v, _, err := r.store.Create(context.Background(), ledger.NewVerification{
		ID: uuid.New(), Workspace: r.space, Identity: uuid.New(), Filename: "list.csv", Bytes: size,
		BytesMax: 1 << 30, Limits: ledger.Limits{Open: 1 << 20, Stored: 1 << 40, Unpaid: 1 << 20}, UploadExpiry: expiry,
	})
	effort.OK(r.t, err)
	token := r.tokens.Token(v.ID)
	r.secrets = append(r.secrets, token)
	return v.ID, upload.PathPrefix + token
}

// durable returns the number of bytes that the ledger has.
func (r *storageRig) durable(id uuid.UUID) int64 {
	r.t.Helper()
	u := effort.Must(r.store.UploadState(context.Background(), id))(r.t)
	return u.Durable
}

// waitDurable waits until the ledger has exactly this many bytes.
func (r *storageRig) waitDurable(id uuid.UUID, want int64) {
	r.t.Helper()
	effort.Within(r.t, fmt.Sprint(want, " durable bytes"), func() bool { return r.durable(id) == want })
}

// file returns the bytes that the engine would read.
func (r *storageRig) file(id uuid.UUID) []byte {
	r.t.Helper()
	f := effort.Must(r.store.OpenFile(context.Background(), id))(r.t)
	defer f.Close()
	return effort.Must(io.ReadAll(f))(r.t)
}

// rawConn is a client that sends exactly what the test wants.
type rawConn struct {
	t testing.TB
	net.Conn
	*bufio.Reader
}

func (r *storageRig) dial() *rawConn {
	r.t.Helper()
	conn := effort.Must(net.Dial("tcp", r.storage.Addr().String()))(r.t)
	effort.OK(r.t, conn.SetDeadline(time.Now().Add(effort.Patience)))
	r.t.Cleanup(func() { conn.Close() })
	return &rawConn{t: r.t, Conn: conn, Reader: bufio.NewReader(conn)}
}

// Read goes through the buffer, so that nothing is lost between two answers.
func (c *rawConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// send writes a request's head and what follows it. Writing may fail if the server has answered already; then reading
// shows the answer.
func (c *rawConn) send(method, path string, headers []string, body string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: storage.example\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + body)
	_, _ = io.WriteString(c.Conn, b.String())
}

// put sends a data range.
func (c *rawConn) put(path string, first, total int64, body string) {
	c.send("PUT", path, []string{
		fmt.Sprintf("Content-Range: bytes %d-%d/%d", first, first+int64(len(body))-1, total),
		fmt.Sprintf("Content-Length: %d", len(body)),
	}, body)
}

// query asks how far the session is.
func (c *rawConn) query(path string, total int64) {
	c.send("PUT", path, []string{fmt.Sprintf("Content-Range: bytes */%d", total), "Content-Length: 0"}, "")
}

// storageReply is one answer.
type storageReply struct {
	status  int
	code    string // issue.code, "" when the body is empty
	durable string // Range
	header  nethttp.Header
	body    []byte
	close   bool
}

// refusal returns, in one line, what a client must know of a refusal.
func (r storageReply) refusal() string {
	return fmt.Sprintf("%d %s, again after %s, close %v", r.status, r.code, r.header.Get("Retry-After"), r.close)
}

// reply reads one answer.
func (c *rawConn) reply() storageReply {
	c.t.Helper()
	return effort.Must(c.tryReply())(c.t)
}

func (c *rawConn) tryReply() (storageReply, error) {
	res, err := nethttp.ReadResponse(c.Reader, nil)
	if err != nil {
		return storageReply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return storageReply{}, err
	}
	got := storageReply{status: res.StatusCode, durable: res.Header.Get("Range"), header: res.Header,
		body: body, close: res.Close}
	if len(body) == 0 {
		return got, nil
	}
	var e struct {
		Issue struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"issue"`
		RequestID uuid.UUID `json:"request_id"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Issue.Message == "" || e.RequestID == (uuid.UUID{}) {
		return got, fmt.Errorf("body %q is no APIError: %w", body, errors.Join(err, errors.ErrUnsupported))
	}
	got.code = e.Issue.Code
	return got, nil
}

// ended reports whether the server closes the connection without another byte.
func (c *rawConn) ended() error {
	if half, ok := c.Conn.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	rest, err := io.ReadAll(c)
	if len(rest) > 0 {
		return fmt.Errorf("more came: %.200q", rest)
	}
	if listen.IsTimeout(err) {
		return err
	}
	return nil // an end or a reset
}

// hookedBook lets a test hold or fail the ledger's writes, notice a new writer, and let a session expire at once.
type hookedBook struct {
	ledger.Files
	opened   chan struct{} // one token for each OpenUpload; nil: not wanted
	onOpen   func()        // before each OpenUpload; set before the first request
	mu       sync.Mutex    // guards the fields below
	onAppend func(append func() (ledger.Upload, error)) (ledger.Upload, error)
	expired  map[uuid.UUID]bool
}

// hook wraps f around every AppendChunk. With nil it removes the wrapper.
func (b *hookedBook) hook(f func(append func() (ledger.Upload, error)) (ledger.Upload, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onAppend = f
}

// expire makes the session look expired from now on.
func (b *hookedBook) expire(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expired == nil {
		b.expired = make(map[uuid.UUID]bool)
	}
	b.expired[id] = true
}

func (b *hookedBook) aged(u ledger.Upload) ledger.Upload {
	b.mu.Lock()
	defer b.mu.Unlock()
	u.Expired = u.Expired || b.expired[u.Verification]
	return u
}

func (b *hookedBook) UploadState(ctx context.Context, id uuid.UUID) (ledger.Upload, error) {
	u, err := b.Files.UploadState(ctx, id)
	return b.aged(u), err
}

func (b *hookedBook) OpenUpload(ctx context.Context, id uuid.UUID) (ledger.Upload, error) {
	if b.onOpen != nil {
		b.onOpen()
	}
	u, err := b.Files.OpenUpload(ctx, id)
	select {
	case b.opened <- struct{}{}:
	default:
	}
	return b.aged(u), err
}

func (b *hookedBook) AppendChunk(
	ctx context.Context, id uuid.UUID, writer, offset int64, data []byte,
) (ledger.Upload, error) {
	b.mu.Lock()
	f := b.onAppend
	b.mu.Unlock()
	write := func() (ledger.Upload, error) { return b.Files.AppendChunk(ctx, id, writer, offset, data) }
	if f == nil {
		return write()
	}
	return f(write)
}

// openBook opens a ledger of its own with one workspace.
func openBook(t testing.TB) (ledger.Book, uuid.UUID) {
	t.Helper()
	ctx := context.Background()
	book := effort.Must(sqlstore.Open(ctx, effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	t.Cleanup(func() { effort.OK(t, book.Close()) })
	w := effort.Must(book.CreateWorkspace(ctx, uuid.New(), "test"))(t)
	return book, w.ID
}
