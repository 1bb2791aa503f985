package upload_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/upload"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
)

// TestEarlyAnswerNeverRunsTheBody hides a request in the body of every request that is answered before its last byte.
// In stream mode fasthttp would run it, at some paddings; a second answer on the connection shows it.
func TestEarlyAnswerNeverRunsTheBody(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, open := rig.create(100)
	_, full := rig.create(3)
	_, large := rig.create(200_000)
	_, expired := rig.createFor(100, time.Nanosecond)
	for path, text := range map[string]string{open: bytesOf(40), full: "abc", large: bytesOf(100_000)} {
		seed := rig.dial()
		seed.put(path, 0, map[string]int64{open: 100, full: 3, large: 200_000}[path], text)
		seed.reply()
	}
	hidden := "PUT " + open + " HTTP/1.1\r\nHost: storage.example\r\nContent-Range: bytes */100\r\n" +
		"Content-Length: 0\r\n\r\n"
	const length = "Content-Length: %d"
	cases := []struct {
		name, method, path string
		headers            []string // with %d for the body's length, %old and %gap for the last byte of such a range
		status             int
	}{
		{"complete", "PUT", full, []string{length}, 200},
		{"old data", "PUT", large, []string{length, "Content-Range: bytes 0-%old/200000"}, 308},
		{"gap", "PUT", large, []string{length, "Content-Range: bytes 100001-%gap/200000"}, 308},
		{"too large", "PUT", open, []string{length}, 413},
		{"other length than the range", "PUT", open, []string{length, "Content-Range: bytes 40-41/100"}, 400},
		{"other total", "PUT", open, []string{length, "Content-Range: bytes 40-41/77"}, 400},
		{"bad range", "PUT", open, []string{length, "Content-Range: nonsense"}, 400},
		{"query with a body", "PUT", open, []string{length, "Content-Range: bytes */100"}, 400},
		{"encoded", "PUT", open, []string{length, "Content-Encoding: br"}, 415},
		{"unknown token", "PUT", "/upload/x", []string{length}, 404},
		{"unknown path", "PUT", "/x", []string{length}, 404},
		{"expired", "PUT", expired, []string{length}, 410},
		{"post", "POST", open, []string{length}, 405},
		{"get", "GET", open, []string{length}, 405},
		{"options", "OPTIONS", open, []string{length}, 204},
		{"options of another origin", "OPTIONS", open, []string{length, "Origin: null"}, 403},
		{"identity", "PUT", open, []string{"Transfer-Encoding: identity", length}, 411},
		{"identity, no length", "PUT", open, []string{"Transfer-Encoding: identity"}, 411},
		{"chunked and length", "PUT", open, []string{"Transfer-Encoding: chunked", length}, 411},
		{"no length", "PUT", open, nil, 411},
	}
	try := effort.EveryNth(3)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for padding := 0; padding <= 70_000; padding += 350 {
				if !try() {
					continue
				}
				body := strings.Repeat("x", padding) + hidden
				numbers := strings.NewReplacer("%d", strconv.Itoa(len(body)), "%old", strconv.Itoa(len(body)-1),
					"%gap", strconv.Itoa(100_000+len(body)))
				headers := make([]string, 0, len(c.headers))
				for _, h := range c.headers {
					headers = append(headers, numbers.Replace(h))
				}
				conn := rig.dial()
				conn.send(c.method, c.path, headers, body)
				if got := conn.reply(); got.status != c.status {
					t.Fatalf("padding %d: got %d %q, want %d", padding, got.status, got.code, c.status)
				}
				effort.OK(t, conn.ended(), "padding", padding)
				_ = conn.Close()
			}
		})
	}
}

// TestUnreadableRequestIsRefused sends what is no HTTP request, with a key in it; the rig sees that the log has none.
func TestUnreadableRequestIsRefused(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.create(10)
	put := "PUT " + path + " HTTP/1.1\r\nHost: h\r\n"
	for _, c := range []struct {
		name, text string
		status     int
		code       string
	}{
		{"bad header", put + "X-API-Key " + keyCanary + "\r\n\r\n", 400, "bad_request"},
		{"bad header value", put + "X-API-Key: " + keyCanary + "\x01\r\n\r\n", 400, "bad_request"},
		{"no host", "PUT " + path + " HTTP/1.1\r\nX-API-Key: " + keyCanary + "\r\nContent-Length: 0\r\n\r\n",
			400, "bad_request"},
		{"large head", put + "X-API-Key: " + keyCanary + "\r\nX: " +
			strings.Repeat("x", 17<<10) + "\r\n\r\n", 431, "headers_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := rig.dial()
			_, _ = io.WriteString(conn.Conn, c.text)
			if got := conn.reply(); got.status != c.status || got.code != c.code || !got.close {
				t.Errorf("got %d %q close %v, want %d %q true", got.status, got.code, got.close, c.status, c.code)
			}
			effort.OK(t, conn.ended())
		})
	}
}

// options are those of another listener over the same ledger.
func (r *storageRig) options() upload.Options {
	o := upload.DefaultOptions()
	o.Listen, o.Book, o.Tokens = "127.0.0.1:0", r.book, r.tokens
	o.Wake, o.Log, o.Registerer = func() {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	return o
}

// TestStopAtOnce catches fasthttp between Start and its first accept, and stops a listener that never started.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	for i := range 50 {
		s := upload.New(rig.options())
		if i > 0 {
			effort.OK(t, s.Start())
		}
		effort.OK(t, s.Stop(t.Context()))
		effort.Is(t, s.Addr() != nil, i > 0, "has an address")
	}
}

func TestUsedPortIsSaid(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	o := rig.options()
	o.Listen = rig.storage.Addr().String()
	s := upload.New(o)
	var op *net.OpError
	err := s.Start()
	effort.ErrorIf(t, !errors.As(err, &op), "start on a used port: %v", err)
}

// TestAnUploadEndsWithItsUser: somebody begins an upload at one node, and what ends for them elsewhere ends the
// upload at the other node too.
func TestAnUploadEndsWithItsUser(t *testing.T) {
	t.Parallel()
	r := newStorageRig(t, nil)
	other := newStorageRig(t, func(o *upload.Options) { o.Book = r.store })
	d, ctx := ledgertest.NewFixture(t, r.store, 0), t.Context()
	d.Joins("owner@acme.test", ledger.Owner)
	role := func(to ledger.Role) func(ledger.SignedIn) error {
		return func(in ledger.SignedIn) error { return r.store.SetRole(ctx, d.Workspace, in.User.ID, to) }
	}
	for name, c := range map[string]struct {
		end  func(in ledger.SignedIn) error
		want string
	}{
		"member":  {role(ledger.Member), "200 "},
		"viewer":  {role(ledger.Viewer), "403 action_not_allowed"},
		"removed": {role(""), "403 action_not_allowed"},
		"disabled": {func(in ledger.SignedIn) error {
			_, err := r.store.DisableUser(ctx, in.User.ID, true)
			return err
		}, "403 action_not_allowed"},
		"signed out": {func(in ledger.SignedIn) error {
			return r.store.EndSession(ctx, in.User.ID, in.Session.ID)
		}, "403 action_not_allowed"},
	} {
		in := d.Joins(name[:3]+"@acme.test", ledger.Owner)
		v, _, err := r.store.Create(ledger.WithActor(ctx, "user:"+in.User.ID.String()), d.Asks(8))
		effort.OK(t, err)
		path := upload.PathPrefix + r.tokens.Token(v.ID)
		here := r.dial()
		here.put(path, 0, 8, "a@b.")
		if got := here.reply(); got.status != 308 {
			t.Errorf("%s: the first bytes: %s", name, got.refusal())
		}
		effort.OK(t, c.end(in))
		there := other.dial()
		there.put(path, 4, 8, "tst\n")
		got := there.reply()
		after, err := r.store.UploadState(ctx, v.ID)
		whole := err == nil && after.Status == ledger.Preparing
		effort.ErrorIf(t, fmt.Sprintf("%d %s", got.status, got.code) != c.want || whole != (got.status == 200),
			"%s: the last bytes: %s, want %s; then %+v, %v", name, got.refusal(), c.want, after, err)
	}
}
