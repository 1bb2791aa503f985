package http

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/smtp"
)

func TestFilenames(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		ok               bool
	}{
		{"plain", "list.csv", "list.csv", true},
		{"space", "my%20list.csv", "my list.csv", true},
		{"plus is a plus", "a+b.csv", "a+b.csv", true},
		{"two bytes", "na%C3%AFve.csv", "naïve.csv", true},
		{"lower-case hex", "na%c3%afve.csv", "naïve.csv", true},
		{"not encoded", "naïve.csv", "naïve.csv", true},
		{"decoded once", "a%2541", "a%41", true},
		{"right to left", "%D7%A9.csv", "ש.csv", true},
		{"joined emoji", "👩‍💻.csv", "👩‍💻.csv", true},
		{"dots in the name", "a..b", "a..b", true},
		{"1024 characters", strings.Repeat("a", 1024), strings.Repeat("a", 1024), true},
		{"1025 characters", strings.Repeat("a", 1025), "", false},
		{"cut code", "a%", "", false},
		{"half a code", "a%4", "", false},
		{"no hex", "a%zz", "", false},
		{"not UTF-8", "%C3", "", false},
		{"overlong slash", "%C0%AF", "", false},
		{"surrogate", "%ED%A0%80", "", false},
		{"slash", "a/b", "", false},
		{"encoded slash", "a%2fb", "", false},
		{"backslash", "a%5Cb", "", false},
		{"parent", "..", "", false},
		{"itself", ".", "", false},
		{"NUL", "%00", "", false},
		{"line feed", "a%0Ab", "", false},
		{"delete", "a%7F", "", false},
		{"C1 control", "a%C2%85", "", false},
		{"line separator", "a%E2%80%A8b", "", false},
		{"override of direction", "a%E2%80%AEvsc.exe", "", false},
	} {
		got, ok := parseFilename([]byte(c.text))
		effort.ErrorIf(t, ok != c.ok || ok && got != c.want,
			"%s: %q gives %q, %v; want %q, %v", c.name, c.text, got, ok, c.want, c.ok)
	}
}

func FuzzFilename(f *testing.F) {
	for _, s := range []string{"a.csv", "%41%2f", "%", "naïve", "%E2%80%AE"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		name, ok := parseFilename(text)
		if !ok {
			return
		}
		effort.ErrorIf(t, name == "" || !utf8.ValidString(name) || strings.ContainsAny(name, "/\\\x00\r\n") ||
			len(name) > len(text), "%q gives %q", text, name)
	})
}

// FuzzCreateHeaders wants that no header makes a creation outside the rules.
func FuzzCreateHeaders(f *testing.F) {
	f.Add("11111111-1111-4111-8111-111111111111", "1", "a")
	f.Add("", "99999999999999999999", "%2e%2e")
	s := &Server{options: Options{MaxFileBytes: 100}}
	f.Fuzz(func(t *testing.T, identity, length, filename string) {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.Set(headerIdempotency, identity)
		ctx.Request.Header.Set(headerLength, length)
		ctx.Request.Header.Set(headerFilename, filename)
		n, refused := s.readCreate(&request{RequestCtx: &ctx})
		status, _ := listen.Refusal(refused)
		effort.ErrorIf(t, refused != "" && status >= 500, "refused as %q", refused)
		effort.ErrorIf(t, refused == "" && (n.Bytes < 1 || !strings.EqualFold(n.Identity.String(), identity)),
			"%q, %q gives %+v", identity, length, n)
	})
}

func FuzzCursor(f *testing.F) {
	c := newCursorSealer([cursorKeyBytes]byte{})
	workspace := uuid.New()
	p := ledger.Position{Created: time.UnixMilli(1_760_000_000_123), ID: uuid.New()}
	good := c.seal(p, workspace, ledger.Bulk)
	f.Add([]byte(good))
	f.Add([]byte(good + "A"))
	f.Add([]byte(strings.Repeat("A", 600)))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := c.open(text, workspace, ledger.Bulk)
		effort.MustBe(t, ok, string(text) == good, text, "opens")
		effort.ErrorIf(t, ok && (!got.Created.Equal(p.Created) || got.ID != p.ID), "got %+v, want %+v", got, p)
		if _, ok := c.open(text, workspace, ""); ok {
			t.Error("a cursor opens with another filter")
		}
	})
}

// TestRateLimiterStaysBounded and forgets the name that was not used for longest.
func TestRateLimiterStaysBounded(t *testing.T) {
	now := time.Now()
	l := newRateLimiter(Rate{PerSecond: 1, Burst: 2}, oneNode, func() time.Time { return now })
	first, second := l.takeToken("a"), l.takeToken("a")
	effort.ErrorIf(t, first != 0 || second != 0 || l.takeToken("a") != time.Second, "a burst of 2 is not 2")
	if l.returnToken("a"); l.takeToken("a") != 0 || l.takeToken("a") != time.Second {
		t.Error("a token that was given back is not there")
	}
	now = now.Add(time.Minute)
	l.returnToken("a")
	first, second = l.takeToken("a"), l.takeToken("a")
	effort.ErrorIf(t, first != 0 || second != 0 || l.takeToken("a") == 0,
		"giving back to a full bucket makes it hold more than a burst")
	l.returnToken("nobody")
	effort.ErrorIf(t, l.buckets.Len() != 1, "giving back to a full bucket makes a name")
	for i := range bucketsMax {
		if i == bucketsMax/2 {
			l.takeToken("a") // is used
		}
		l.takeToken(fmt.Sprint("flood ", i))
	}
	if n := l.buckets.Len(); n != bucketsMax || l.takeToken("a") == 0 || l.takeToken("flood 0") != 0 {
		t.Errorf("%d names are kept, want %d, with those that are in use", n, bucketsMax)
	}
}

// TestWhoWaitsAsToldGetsAToken also for rates that no nanosecond divides, and while others are refused at that time.
func TestWhoWaitsAsToldGetsAToken(t *testing.T) {
	for _, r := range []Rate{{20, 40}, {3, 7}, {1.0 / 3, 1}, {0.7, 2}, {997, 13}} {
		now := time.Now()
		l := newRateLimiter(r, oneNode, func() time.Time { return now })
		for range r.Burst {
			effort.MustBe(t, l.takeToken("key"), 0, r, "a full bucket has less than its burst")
		}
		for range 1000 {
			var crowd sync.WaitGroup
			for range 4 {
				crowd.Go(func() { l.takeToken("key") })
			}
			crowd.Wait()
			wait := l.takeToken("key")
			effort.FatalIf(t, wait <= 0 || wait > time.Duration(float64(time.Second)/r.PerSecond)+1,
				"%+v: an empty bucket says to wait %v", r, wait)
			now = now.Add(wait)
			effort.MustBe(t, l.takeToken("key"), 0, r, "after the wait of", wait, "there is no token")
		}
	}
}

func TestPartOfALimit(t *testing.T) {
	for _, c := range []struct {
		all   Rate
		nodes int
		want  Rate
	}{
		{Rate{20, 40}, 0, Rate{20, 40}},
		{Rate{20, 40}, 1, Rate{20, 40}},
		{Rate{20, 40}, 4, Rate{5, 10}},
		{Rate{20, 40}, 3, Rate{20.0 / 3, 14}},
		{Rate{20, 40}, 100, Rate{1, 5}},
		{Rate{0.1, 1}, 3, Rate{0.1, 1}},
	} {
		effort.Is(t, c.all.dividedBy(c.nodes), c.want, fmt.Sprintf("%+v by %d is", c.all, c.nodes))
	}
	nodes := 1
	s := &slots{max: 4, nodes: func() int { return nodes }, used: map[string]int{}}
	var releases []func()
	for _, c := range []struct{ nodes, want int }{{1, 4}, {3, 2}, {9, 1}} {
		nodes = c.nodes
		for r := s.takeSlot("key"); r != nil; r = s.takeSlot("key") {
			releases = append(releases, r)
		}
		effort.Is(t, len(releases), c.want, fmt.Sprintf("of %d nodes one lets downloads run at once", c.nodes))
		for _, release := range releases {
			release()
		}
		releases = nil
	}
	effort.Is(t, len(s.used), 0, s.used, "kept of keys that download nothing")
}

// TestBadKeysPushNoGoodOneOut, however many somebody guesses.
func TestBadKeysPushNoGoodOneOut(t *testing.T) {
	book := &guessedBook{good: map[string]ledger.Key{"good": {ID: "good"}}}
	c := newKeyCache(book, time.Now)
	effort.Must(c.askLedger(t.Context(), api.Key{ID: "good"}))(t)
	for i := range badKeysMax + 10 {
		_, err := c.askLedger(t.Context(), api.Key{ID: fmt.Sprint("bad ", i)})
		effort.FatalIf(t, !errors.Is(err, errBadKey), "%v", err)
	}
	if _, known := c.recall(api.Key{ID: "good"}); known == keyUnknown || c.bad.Len() != badKeysMax {
		t.Errorf("the good key is %v, and %d bad ones are kept, want %d", known, c.bad.Len(), badKeysMax)
	}
	delete(book.good, "good")
	if _, err := c.askLedger(t.Context(), api.Key{ID: "good"}); !errors.Is(err, errBadKey) || c.good.Len() != 0 {
		t.Errorf("a key that was revoked: %v, and %d are kept", err, c.good.Len())
	}
	c.used.Stop()
}

// guessedBook knows some keys.
type guessedBook struct {
	ledger.Book
	good map[string]ledger.Key
}

func (b *guessedBook) UseKeys(context.Context, []string) error { return nil }

func (b *guessedBook) KeyByID(_ context.Context, id string) (ledger.Key, error) {
	if k, ok := b.good[id]; ok {
		return k, nil
	}
	return ledger.Key{}, ledger.ErrNoSuchKey
}

// TestRowsReadBack writes odd rows and reads them with the standard library.
func TestRowsReadBack(t *testing.T) {
	base := time.Date(2026, 2, 28, 23, 59, 59, 999e6, time.UTC)
	var rows []ledger.Result
	for i, email := range []string{
		"a@b.example", `"a,b"@b.example`, `"a\"b"@b.example`, " a@b.example", "=1+1@b.example", "ü@b.example", "",
	} {
		for d := range 3 {
			rows = append(rows, ledger.Result{
				Email: email, Outcome: smtp.Outcomes[(i+d)%len(smtp.Outcomes)], Reason: smtp.Reason(1 + (i*3+d)%26),
				At: base.Add(time.Duration(d)*700*time.Microsecond + time.Duration(i*d)*7919*time.Second).In(time.FixedZone("", 3600)),
			})
		}
	}
	var w rowWriter
	var b []byte
	for _, row := range rows {
		b = w.append(b, row)
	}
	records := effort.Must(csv.NewReader(bytes.NewReader(b)).ReadAll())(t)
	effort.MustBe(t, len(records), len(rows), "records of")
	for i, row := range rows {
		want := []string{row.Email, row.Outcome.String(), row.Reason.Message(), string(api.AppendTime(nil, row.At))}
		effort.Equal(t, records[i], want, "row", i)
	}
}
