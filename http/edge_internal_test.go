package http

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"

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

// FuzzCreateHeaders checks that no headers make a creation that breaks the rules.
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

// TestRateLimiterStaysBounded: at its bound it forgets the least recently used name.
func TestRateLimiterStaysBounded(t *testing.T) {
	now := time.Now()
	l := newRateLimiter(Rate{PerSecond: 1, Burst: 2}, oneNode, func() time.Time { return now })
	first, second := l.takeToken("a"), l.takeToken("a")
	effort.ErrorIf(t, first != 0 || second != 0 || l.takeToken("a") != time.Second, "a burst of 2 is not 2")
	if l.returnToken("a"); l.takeToken("a") != 0 || l.takeToken("a") != time.Second {
		t.Error("a returned token is missing")
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
		t.Errorf("%d names are kept, want %d, among them all in use", n, bucketsMax)
	}
}

// TestWhoWaitsAsToldGetsAToken: also at rates whose interval is not a whole number of nanoseconds, and while others
// are refused at the same time.
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

// TestBadKeysPushNoGoodOneOut: however many keys are guessed, good keys stay in the cache.
func TestBadKeysPushNoGoodOneOut(t *testing.T) {
	book := &guessedBook{good: map[string]ledger.Key{"good": {ID: "good"}}}
	c := newKeyCache(book, time.Now)
	effort.Must(c.askLedger(t.Context(), api.Key{ID: "good"}))(t)
	for i := range badKeysMax + 10 {
		_, err := c.askLedger(t.Context(), api.Key{ID: fmt.Sprint("bad ", i)})
		effort.FatalIf(t, !errors.Is(err, errBadKey), "%v", err)
	}
	if _, known := c.recall(api.Key{ID: "good"}); known == keyUnknown || c.bad.Len() != badKeysMax {
		t.Errorf("the good key has state %v, and %d bad keys are cached, want %d", known, c.bad.Len(), badKeysMax)
	}
	delete(book.good, "good")
	if _, err := c.askLedger(t.Context(), api.Key{ID: "good"}); !errors.Is(err, errBadKey) || c.good.Len() != 0 {
		t.Errorf("a revoked key has state %v, and %d are cached", err, c.good.Len())
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

// TestRetryAfter checks every boundary of how long a client has to wait.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	const unknown = -1 << 62
	for _, c := range []struct {
		name             string
		status           ledger.Status
		age, finish, try time.Duration // relative to now; zero: unknown
		issue            *ledger.Issue
		want             int
	}{
		{"uploading", ledger.Uploading, 0, unknown, unknown, nil, 1},
		{"preparing", ledger.Preparing, 19 * time.Second, unknown, unknown, nil, 1},
		{"preparing for long", ledger.Preparing, time.Hour, unknown, unknown, nil, 2},
		{"cancelling", ledger.Cancelling, time.Hour, time.Hour, unknown, nil, 2},
		{"just begun, nothing known", ledger.Verifying, 0, unknown, unknown, nil, 1},
		{"the clock was set back", ledger.Verifying, -time.Hour, unknown, unknown, nil, 1},
		{"19.9 s", ledger.Verifying, 19900 * time.Millisecond, unknown, unknown, nil, 1},
		{"20 s", ledger.Verifying, 20 * time.Second, unknown, unknown, nil, 2},
		{"five minutes", ledger.Verifying, 5 * time.Minute, unknown, unknown, nil, 30},
		{"a day", ledger.Verifying, 24 * time.Hour, unknown, unknown, nil, 30},
		{"done in four seconds, just begun", ledger.Verifying, time.Second, 4 * time.Second, unknown, nil, 1},
		{"done in four seconds", ledger.Verifying, time.Hour, 4 * time.Second, unknown, nil, 4},
		{"done in a bit less", ledger.Verifying, time.Hour, 3900 * time.Millisecond, unknown, nil, 4},
		{"done now", ledger.Verifying, time.Hour, 0, unknown, nil, 1},
		{"done in an hour, an old one", ledger.Verifying, time.Hour, time.Hour, unknown, nil, 30},
		{"overdue for a moment", ledger.Verifying, time.Hour, -time.Second, unknown, nil, 1},
		{"overdue for ten seconds", ledger.Verifying, time.Hour, -10 * time.Second, unknown, nil, 10},
		{"overdue for an hour", ledger.Verifying, time.Hour, -time.Hour, unknown, nil, 30},
		{"credits", ledger.Waiting, 0, unknown, unknown, &ledger.Issue{Code: string(api.CreditsRequired)}, 1},
		{"credits for long", ledger.Waiting, time.Hour, unknown, unknown, &ledger.Issue{Code: string(api.CreditsRequired)}, 60},
		{"a receiver in an hour", ledger.Waiting, 0, unknown, time.Hour, nil, 60},
		{"in sixteen seconds", ledger.Waiting, 0, unknown, 16 * time.Second, nil, 16},
		{"in a bit more", ledger.Waiting, 0, unknown, 16*time.Second + 1, nil, 17},
		{"in a second, an old one", ledger.Waiting, 5 * time.Minute, unknown, time.Second, nil, 30},
		{"was to be asked long ago", ledger.Waiting, 0, unknown, -time.Hour, nil, 1},
		{"in a minute, and done then", ledger.Waiting, 0, time.Minute, time.Minute, nil, 60},
		{"done sooner than was said", ledger.Waiting, 0, 5 * time.Second, time.Hour, nil, 5},
		{"done long ago, as was said", ledger.Waiting, 0, -time.Minute, time.Hour, nil, 60},
		{"completed", ledger.Completed, 0, unknown, unknown, nil, 0},
		{"failed", ledger.Failed, 0, unknown, unknown, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := ledger.Verification{Status: c.status, Created: now.Add(-c.age), Issue: c.issue}
			if c.finish != unknown {
				v.Expected = now.Add(c.finish)
			}
			if c.try != unknown {
				v.NextTry = now.Add(c.try)
			}
			effort.Is(t, RetryAfter(v, now), c.want, "Retry-After")
		})
	}
}

// TestTheEndIsSeenInTime: clients poll files as they are told. The files take any time, wait now and then, and have
// any expected end. Each client sees the end within a tenth of the file's time, or a second.
func TestTheEndIsSeenInTime(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		created := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
		took := time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "took")) * 100 * time.Millisecond
		end := created.Add(took)
		within := rapid.Int64Range(0, int64(took))
		at, looks := created, 0
		for ; at.Before(end); looks++ {
			v := ledger.Verification{Created: created, Status: rapid.SampledFrom([]ledger.Status{ledger.Uploading, ledger.Preparing,
				ledger.Verifying, ledger.Waiting, ledger.Cancelling}).Draw(t, "status")}
			if rapid.Bool().Draw(t, "expected") {
				v.Expected = created.Add(2 * time.Duration(within.Draw(t, "finish")))
			}
			if v.Status == ledger.Waiting {
				v.NextTry = created.Add(time.Duration(within.Draw(t, "try"))) // nothing ends before
			}
			wait := RetryAfter(v, at)
			effort.FatalIf(t, wait < 1 || wait > againMost,
				"%s after %v: Retry-After %d", v.Status, at.Sub(created), wait)
			at = at.Add(time.Duration(wait) * time.Second)
		}
		if late := at.Sub(end); late > max(took/10, time.Second) {
			t.Errorf("the end after %v is seen %v later, by poll %d", took, late, looks)
		}
	})
}

// TestWhoWaitsAsToldMeetsNoLimit: clients of one key poll many files as they are told, over a slow line, while
// another client polls one of these files all the time. No poll is refused, and with few files nobody waits longer
// than wanted.
func TestWhoWaitsAsToldMeetsNoLimit(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		start := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
		now, nodes := start, rapid.IntRange(1, 3).Draw(t, "nodes")
		most := rapid.IntRange(1, 15).Draw(t, "most") // of one node
		reads := Rate{PerSecond: float64(2 * nodes * most), Burst: 2*nodes*most + rapid.IntRange(0, 20).Draw(t, "burst")}
		bounds, plans := make([]*rateLimiter, nodes), make([]*polls, nodes)
		for i := range plans {
			count := func() int { return nodes }
			bounds[i] = newRateLimiter(reads, count, func() time.Time { return now })
			plans[i] = newPolls(reads, count)
		}
		next, longest := make([]time.Time, rapid.IntRange(1, most*againMost/2).Draw(t, "files")), rapid.IntRange(1, againAsking).Draw(t, "longest")
		for i := range next { // the first polls take a third of the limit
			next[i] = start.Add(time.Duration(i) * 3 * time.Second / time.Duration(reads.PerSecond))
		}
		for range 20 * len(next) {
			i := 0
			for j := range next {
				if next[j].Before(next[i]) {
					i = j
				}
			}
			now = next[i]
			if wait := bounds[i%nodes].takeToken("key"); wait > 0 {
				t.Fatalf("a poll of file %d of %d after %v is refused", i, len(next), now.Sub(start))
			}
			wanted := rapid.IntRange(1, longest).Draw(t, "wanted")
			wait := plans[i%nodes].plan(poll{"key", uuid.UUID{byte(i), byte(i >> 8)}}, now, wanted)
			effort.FatalIf(t, wait < wanted || wait > againMost || len(next) <= most && wait > wanted,
				"%d files, %d a second: wait %d, wanted %d", len(next), most, wait, wanted)
			plans[0].plan(poll{"key", uuid.UUID{}}, now, 1) // at the first file
			next[i] = now.Add(time.Duration(wait)*time.Second + time.Duration(rapid.IntRange(0, 100).Draw(t, "line"))*time.Millisecond)
		}
	})
}

// panickyBook panics at the first question about a balance, and waits at the second.
type panickyBook struct {
	ledger.Book
	asked   atomic.Int64
	entered chan struct{}
	open    chan struct{}
}

func (b *panickyBook) Balance(context.Context, uuid.UUID) (ledger.Balance, error) {
	n := b.asked.Add(1)
	b.entered <- struct{}{}
	<-b.open
	if n == 2 {
		panic("in a goroutine of its own")
	}
	return ledger.Balance{Available: ledger.Credits(n)}, nil
}

// TestQuestionsAreShared: ten requests arrive while a question runs. They share one question that begins afterwards,
// and all get its panic as an error. The next request asks again.
func TestQuestionsAreShared(t *testing.T) {
	book := &panickyBook{entered: make(chan struct{}, 20), open: make(chan struct{})}
	var panics atomic.Int64
	b := newReads(book.Balance, nil, func() { panics.Add(1) })
	workspace := uuid.New()
	first := make(chan error, 1)
	go func() {
		balance, err := b.read(t.Context(), workspace)
		if balance.Available != 1 {
			err = fmt.Errorf("balance %+v, %w", balance, err)
		}
		first <- err
	}()
	<-book.entered
	late := make(chan error, 10)
	for range 10 {
		go func() {
			_, err := b.read(t.Context(), workspace)
			late <- err
		}()
	}
	for waiting := false; !waiting; { // until at least one request waits for the next question
		b.mu.Lock()
		waiting = b.running[workspace].next != nil
		b.mu.Unlock()
		runtime.Gosched()
	}
	close(book.open)
	effort.ErrIs(t, <-first, nil, "first")
	failed := 0
	for range 10 {
		if err := <-late; errors.Is(err, errNoAnswer) {
			failed++
		}
	}
	effort.ErrorIf(t, failed == 0 || panics.Load() != 1 || book.asked.Load() > 11,
		"%d failed, %d panics, %d questions", failed, panics.Load(), book.asked.Load())
	balance, err := b.read(t.Context(), workspace)
	effort.ErrorIf(t, err != nil || balance.Available < 3, "afterwards: %+v %v", balance, err)
}

// TestAnswersAreKeptWhileNothingIsWritten reads one answer again and again, with writes in between.
func TestAnswersAreKeptWhileNothingIsWritten(t *testing.T) {
	var asked, count uint64
	var fails, writing, begins bool
	r := newReads(func(context.Context, int) (uint64, error) {
		asked++
		if begins {
			count++
		}
		if fails {
			return 0, errNoAnswer
		}
		return asked, nil
	}, func() (uint64, bool) { return count, !writing }, func() {})
	for _, c := range []struct {
		name  string
		then  func()
		asked uint64
	}{
		{"first", func() {}, 1},
		{"nothing was written", func() {}, 1},
		{"something was written", func() { count += 2 }, 2},
		{"nothing since", func() {}, 2},
		{"something is being written", func() { count++; writing = true }, 3},
		{"and still is", func() {}, 4},
		{"it is written", func() { count++; writing = false }, 5},
		{"the ledger fails", func() { count += 2; fails = true }, 6},
		{"and again", func() {}, 7},
		{"something is written while it is asked", func() { fails, begins = false, true }, 8},
		{"which may be in it or not", func() { begins = false; count++ }, 9},
		{"nothing since that", func() {}, 9},
	} {
		c.then()
		answer, err := r.read(t.Context(), 1)
		effort.ErrorIf(t, asked != c.asked || (err != nil) != fails || err == nil && answer != c.asked,
			"%s: answer %d of question %d, want question %d; %v", c.name, answer, asked, c.asked, err)
	}
	for of := range 2 * keptMax {
		if _, err := r.read(t.Context(), of); err != nil || len(r.kept) > keptMax {
			t.Fatalf("%d answers are cached, %v; want %d at most", len(r.kept), err, keptMax)
		}
	}
}
