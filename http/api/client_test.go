package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
)

// testKey is a key that the client must send only to the API.
const testKey = "rc_canary_canary"

func newTestClient(t *testing.T, handler http.HandlerFunc) (*Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return NewClient(server.URL, testKey), server
}

func TestCreateIsRepeatedWithItsIdentityWhileTheServiceSaysLater(t *testing.T) {
	for _, x := range []struct {
		status int
		body   string
	}{
		{http.StatusTooManyRequests, ""},
		{http.StatusServiceUnavailable, ""},
		{http.StatusConflict, `{"issue":{"code":"request_in_progress","message":"wait"}}`},
	} {
		t.Run(http.StatusText(x.status), func(t *testing.T) {
			var identities []string
			client, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				identities = append(identities, r.Header.Get("Idempotency-Key")+" "+""+r.Header.Get("X-Upload-Content-Length"))
				if len(identities) < 3 {
					w.Header().Set("Retry-After", "0")
					w.WriteHeader(x.status)
					fmt.Fprint(w, x.body)
					return
				}
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, `{"id":"x","status":"uploading"}`)
			})
			identity := uuid.New()
			made := effort.Must(client.Create(t.Context(), identity, 42, "a.csv"))(t)
			effort.MustBe(t, made.ID, "x")
			for i, got := range identities {
				effort.Is(t, got, identity.String()+" 42", "try", i+1)
			}
		})
	}
}

func TestFilenameIsSentPercentEncoded(t *testing.T) {
	client, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":%q,"status":"uploading"}`, r.Header.Get("X-Upload-Filename"))
	})
	made, err := client.Create(t.Context(), uuid.New(), 1, "Büro Liste.csv")
	want := "B%C3%BCro%20Liste.csv"
	effort.ErrorIf(t, err != nil || made.ID != want, "got %q and %v, want %q", made.ID, err, want)
}

func TestRefusalsAreToldInOneLine(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"issue", 401, `{"issue":{"code":"invalid_api_key","message":"Check the key."},"request_id":"r1"}`,
			"the service refuses: Check the key. (invalid_api_key, request r1)"},
		{"issue with a row", 422, `{"issue":{"code":"c","message":"m","row":7},"request_id":"r2"}`,
			"the service refuses: row 7: m (c, request r2)"},
		{"another program", 404, "<html>", "answers 404: it does not answer like a Rollcall API"},
		{"redirect", 302, "", "answers 302: it does not answer like a Rollcall API"},
		{"admin listener", 401, `{"error":{"code":"unauthorized","message":"m"}}`, "is the admin listener of a node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			})
			_, _, err := client.Detail(t.Context(), "x")
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(),
				"\n") {
				t.Errorf("%s: got %v, want one line with %q", server.URL, err, c.want)
			}
		})
	}
}

func TestNothingThereIsSaidSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := NewClient("http://127.0.0.1:1", testKey)
		client.HTTP = &http.Client{Transport: nobodyThere{}}
		begin := time.Now()
		_, _, err := client.Detail(t.Context(), "x")
		effort.ErrorIf(t, !errors.Is(err, ErrNoAnswer) || time.Since(begin) > firstPatience,
			"got %v after %v", err, time.Since(begin))
	})
}

// nobodyThere refuses every connection.
type nobodyThere struct{}

// RoundTrip implements http.RoundTripper.
func (nobodyThere) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

func TestWaitingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
	})
	effort.Denied(effort.First(client.Detail(ctx, "x")))(t, context.Canceled)
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		name, header string
		want         time.Duration
	}{
		{"seconds", "7", 7 * time.Second},
		{"nothing", "", time.Minute},
		{"a date", "Fri, 20 Nov 2026 11:26:00 GMT", time.Minute},
		{"negative", "-1", time.Minute},
		{"an hour", "3600", retryMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{"Retry-After": {c.header}}
			effort.Is(t, retryAfter(header, time.Minute), c.want, c.header)
		})
	}
}

// storage is a storage URL that keeps the bytes it gets. Its other fields let it misbehave.
type storage struct {
	t    *testing.T
	size int

	mu      sync.Mutex // guards the fields below
	kept    []byte
	faults  []func(w http.ResponseWriter, body []byte) // one for each data request, in order
	queries int
}

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	effort.ErrorIf(s.t, r.Header.Get("X-API-Key") != "" || r.Header.Get("Authorization") != "",
		"the key was sent to the storage")
	effort.Is(s.t, r.Method, http.MethodPut)
	body, _ := io.ReadAll(r.Body) // of a cut body, the part that arrived
	s.mu.Lock()
	defer s.mu.Unlock()
	want := fmt.Sprintf("bytes %d-%d/%d", len(s.kept), s.size-1, s.size)
	if len(body) == 0 {
		s.queries++
		want = fmt.Sprintf("bytes */%d", s.size)
	}
	effort.Is(s.t, r.Header.Get("Content-Range"), want, "got Content-Range")
	if len(body) > 0 && len(s.faults) > 0 {
		fault := s.faults[0]
		s.faults = s.faults[1:]
		fault(w, body)
		return
	}
	s.kept = append(s.kept, body...)
	s.answer(w)
}

func (s *storage) answer(w http.ResponseWriter) {
	if len(s.kept) > 0 && len(s.kept) < s.size {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(s.kept)-1))
	}
	if len(s.kept) < s.size {
		w.WriteHeader(http.StatusPermanentRedirect)
	}
}

func TestUploadGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("someone@example.test\n", 50))
	part := func(s *storage, n int) func(http.ResponseWriter, []byte) {
		return func(w http.ResponseWriter, body []byte) {
			s.kept = append(s.kept, body[:n]...)
			s.answer(w)
		}
	}
	cut := func(s *storage, n int) func(http.ResponseWriter, []byte) {
		return func(w http.ResponseWriter, body []byte) {
			s.kept = append(s.kept, body[:n]...)
			panic(http.ErrAbortHandler) // the connection is reset without an answer
		}
	}
	busy := func(status int) func(http.ResponseWriter, []byte) {
		return func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
		}
	}
	for _, c := range []struct {
		name   string
		before int // bytes of an earlier run
		faults func(s *storage) []func(http.ResponseWriter, []byte)
	}{
		{name: "all at once"},
		{name: "an earlier run stored a part", before: 100},
		{name: "an earlier run stored everything", before: len(data)},
		{name: "the storage takes less than was sent", faults: func(s *storage) []func(http.ResponseWriter, []byte) {
			return []func(http.ResponseWriter, []byte){part(s, 1), part(s, 0), part(s, 300)}
		}},
		{name: "connections are cut", faults: func(s *storage) []func(http.ResponseWriter, []byte) {
			return []func(http.ResponseWriter, []byte){cut(s, 0), cut(s, 17), cut(s, 1)}
		}},
		{name: "cut after the last byte", faults: func(s *storage) []func(http.ResponseWriter, []byte) {
			return []func(http.ResponseWriter, []byte){cut(s, len(data))}
		}},
		{name: "the storage says later", faults: func(s *storage) []func(http.ResponseWriter, []byte) {
			return []func(http.ResponseWriter, []byte){busy(503), busy(429)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &storage{t: t, size: len(data), kept: append([]byte(nil), data[:c.before]...)}
			if c.faults != nil {
				s.faults = c.faults(s)
			}
			server := httptest.NewServer(s)
			defer server.Close()
			client := NewClient("http://127.0.0.1:1", testKey)
			told := int64(0)
			sent := func(n int64) { told = n }
			effort.OK(t, client.Upload(t.Context(), server.URL, bytes.NewReader(data), int64(len(data)), sent))
			effort.ErrorIf(t, !bytes.Equal(s.kept, data) || len(s.faults) != 0 || told != int64(len(data)),
				"kept %d of %d bytes, %d faults left, told %d", len(s.kept), len(data), len(s.faults), told)
		})
	}
}

func TestUploadGivesUpWhereTheStorageRefuses(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"issue":{"code":"upload_expired","message":"Create it again."},"request_id":"r"}`)
	}))
	defer server.Close()
	client := NewClient("http://127.0.0.1:1", testKey)
	err := client.Upload(t.Context(), server.URL, strings.NewReader("x"), 1, func(int64) {})
	want := "the storage refuses the upload: Create it again. (upload_expired)"
	effort.ErrorIf(t, err == nil || err.Error() != want, "got %v, want %s", err, want)
}

func TestNextByte(t *testing.T) {
	for _, c := range []struct {
		name, header string
		want         int64
		fails        bool
	}{
		{name: "nothing stored", header: "", want: 0},
		{name: "one byte", header: "bytes=0-0", want: 1},
		{name: "many", header: "bytes=0-41", want: 42},
		{name: "not from the start", header: "bytes=5-41", fails: true},
		{name: "no number", header: "bytes=0-x", fails: true},
		{name: "negative", header: "bytes=0--2", fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := nextByte(c.header)
			effort.Is(t, got, c.want, c.header, err)
			effort.Is(t, err != nil, c.fails, c.header)
		})
	}
}

func TestNewKeysAreReadBack(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text, made := NewKey()
		read, ok := ParseKey([]byte(text))
		effort.FatalIf(t, !ok || read != made || len(text) != KeyLength || seen[text],
			"%q: read %+v, %v; made %+v", text, read, ok, made)
		effort.MustBe(t, made.SHA256, sha256.Sum256([]byte(text[len(text)-49:])), "the hash is not that of the secret")
		seen[text] = true
	}
}

// TestEverySlipIsSeen changes each character of a key, swaps neighbours and cuts it.
func TestEverySlipIsSeen(t *testing.T) {
	text, _ := NewKey()
	for i := range text {
		b := []byte(text)
		b[i] ^= 1
		_, ok := ParseKey(b)
		effort.ErrorIf(t, ok, "a slip at %d is not seen", i)
		_, ok = ParseKey([]byte(text[:i]))
		effort.ErrorIf(t, ok, "a key cut at %d is read", i)
		if i > 0 && text[i] != text[i-1] {
			b = []byte(text)
			b[i], b[i-1] = b[i-1], b[i]
			_, ok := ParseKey(b)
			effort.ErrorIf(t, ok, "neighbours swapped at %d are not seen", i)
		}
	}
	_, ok := ParseKey([]byte(text + "0"))
	effort.ErrorIf(t, ok, "a longer key is read")
}

func FuzzParse(f *testing.F) {
	text, _ := NewKey()
	f.Add([]byte(text))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := ParseKey(b)
		effort.ErrorIf(t, ok && (len(b) != KeyLength || len(k.ID) != idLength), "%q gives %+v", b, k)
	})
}
