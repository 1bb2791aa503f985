package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	httpd "rollcall/http"
	"rollcall/http/dashboard"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// waits returns what the open addresses of a verification wait for, as the test has set it.
func (g *rig) waits(_ context.Context, id string) (inspect.Verification, error) {
	if found, ok := g.waiting[id]; ok {
		return found, nil
	}
	return inspect.Verification{}, inspect.ErrNotThere
}

func TestACheckOfOneAddressIsMadeOnce(t *testing.T) {
	g := newRig(t)
	member, form := g.as["member"], uuid.NewString()
	first := member.post(g.path("/check"), "form", form, "address", " anna@acme.test ")
	again := member.post(g.path("/check"), "form", form, "address", "anna@acme.test")
	at := first.Header.Get("Location")
	effort.FatalIf(t, first.Status != 303 || at == "" || again.Header.Get("Location") != at || g.wakes.Load() == 0,
		"%d %q, again %d %q", first.Status, at, again.Status, again.Header.Get("Location"))
	effort.Lacks(t, at, "anna", "the address is in the URL")
	if page := member.get(at); page.Status != 200 || !strings.Contains(page.Body, "anna@acme.test") {
		t.Errorf("%d %s", page.Status, page.Body)
	} else if strings.Contains(page.Body, "/results.csv") || strings.Contains(page.Body, "Size") {
		t.Errorf("the page of one address shows something about a file: %s", page.Body)
	}
	member.post(g.path("/check"), "form", form, "address", "ben@acme.test").Is(t, 409, "the form with another address")
	for _, bad := range []string{"", "anna", "a@b@c", `<script>@x`, "a b@acme.test"} {
		a := member.post(g.path("/check"), "form", uuid.NewString(), "address", bad)
		effort.ErrorIf(t, a.Status != 422 || !strings.Contains(a.Body, `id="problem"`) ||
			strings.Contains(a.Body, "<script>@"), "%q: %d", bad, a.Status)
	}
	effort.Is(t, member.post(g.path("/check"), "address", "anna@acme.test").Status, 422, "without the id of the form")
}

// judged makes a verification with a settlement of outcomes and their evidence.
func (g *rig) judged(results []ledger.Result, cases map[int64]evidence.Case) ledger.Verification {
	g.t.Helper()
	g.verification("list.csv", int64(len(results)))
	var entries []evidence.Entry
	for _, r := range results {
		if c, ok := cases[r.Ordinal]; ok {
			entries = append(entries, evidence.Entry{Ordinal: r.Ordinal, Case: c})
		}
	}
	return effort.Must(g.book.Settle(context.Background(), ledger.Settlement{Lease: g.held, Number: 1, Results: results,
		Evidence: effort.Must(evidence.Pack(entries))(g.t)}))(g.t)
}

func TestTheTalkAboutAnAddressIsShown(t *testing.T) {
	g := newRig(t)
	at := time.Date(2026, 11, 22, 4, 0, 58, 0, time.UTC)
	said := evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx1.acme.test", Source: "192.0.2.77", TLS: true, Code: 550,
		Enhanced: smtp.EnhancedCode{5, 1, 1}, Text: "No ^ here <script>alert(1)</script>", Outcome: smtp.Invalid,
		Reason: smtp.MailboxNotFound, Rule: "rcpt-5.1.1"}
	quiet := evidence.Attempt{At: at, Stage: smtp.StageConnect, Host: "mx2.acme.test", Trouble: evidence.TroubleTimeout}
	control := said
	control.Code, control.Outcome, control.Reason, control.Text = 550, smtp.Invalid, smtp.MailboxNotFound, "Nobody"
	v := g.judged([]ledger.Result{result(0, "ghost@acme.test", smtp.Invalid, smtp.MailboxNotFound), result(1, "info@gmial.com", smtp.Valid, smtp.MailboxExists)},
		map[int64]evidence.Case{0: {Attempts: []evidence.Attempt{quiet, said}, Omitted: 1, Hosts: 2,
			Behaviour: evidence.AcceptBehaviour{Refused: 1, First: at, Last: at, Controls: []evidence.Attempt{control}}}})
	page := g.as["viewer"].get(g.path("/verifications/" + v.ID.String() + "/addresses/0?in=1"))
	for _, want := range []string{"ghost@acme.test", "&gt; RCPT TO:&lt;ghost@acme.test&gt;", "&lt; 550 5.1.1 No ‹the address› here &lt;script&gt;",
		"The receiver didn't answer in time.", "rcpt-5.1.1", "RCPT TO:&lt;a made-up name&gt;", "about real addresses can be trusted", "22 Nov 2026 04:00:58", "Read as invalid (mailbox_not_found), by rule", "1 attempt between the first and the last isn't kept.", "mx2.acme.test"} {
		effort.Is(t, page.Status, 200)
		effort.Has(t, page.Body, want)
	}
	for _, secret := range []string{"192.0.2.77", "<script>alert"} {
		effort.Lacks(t, page.Body, secret, "the page says")
	}
	a := g.as["viewer"].get(g.path("/verifications/" + v.ID.String() + "/addresses/1?in=1"))
	for _, want := range []string{"No evidence was kept", "looks like a typing error for gmail.com.", "a role address:"} {
		effort.Has(t, a.Body, want, "the page does not say")
	}
	for _, path := range []string{"/addresses/2?in=1", "/addresses/-1?in=1", "/addresses/x?in=1", "/addresses/0?in=2", "/addresses/0",
		"/addresses/0?in=0", "/addresses/0?in=-1", "/addresses/0?in=x", "/addresses/0?in=9223372036854775807", "/addresses/0?in=9223372036854775808"} {
		effort.Is(t, g.as["viewer"].get(g.path("/verifications/"+v.ID.String()+path)).Status, 404, path)
	}
	g.as["stranger"].get("/w/"+g.other.String()+"/verifications/"+v.ID.String()+"/addresses/0?in=1").
		Is(t, 404, "through another workspace")
}

// TestOneSettlementIsRead: for an address's page, at most the settlement in the URL is read.
func TestOneSettlementIsRead(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 5)
	for i := range int64(5) {
		s := ledger.Settlement{Lease: g.held, Number: i + 1, Results: []ledger.Result{result(i, fmt.Sprintf("name%d@acme.test", i),
			smtp.Valid, smtp.MailboxExists)}}
		effort.Must(g.book.Settle(t.Context(), s))(t)
	}
	for _, c := range []struct {
		place        string
		status, read int64
	}{{"0?in=1", 200, 1}, {"2?in=3", 200, 1}, {"4?in=5", 200, 1}, {"4?in=1", 404, 1}, {"0?in=5", 404, 1}, {"0?in=6", 404, 0}, {"0", 404, 0},
		{"9?in=0", 404, 0}} {
		before := g.book.settlements.Load()
		a := g.as["viewer"].get(g.path("/verifications/" + v.ID.String() + "/addresses/" + c.place))
		if read := g.book.settlements.Load() - before; int64(a.Status) != c.status || read != c.read {
			t.Errorf("%s: %d, %d settlements were read, want %d and %d", c.place, a.Status, read, c.status, c.read)
		}
	}
	at := g.as["member"].post(g.path("/check"), "form", uuid.NewString(), "address", "anna@acme.test").Header.Get("Location")
	l := g.lease(uuid.MustParse(at[strings.LastIndex(at, "/")+1:]))
	effort.Must(g.book.Prepare(t.Context(), l, 1, 0, 1))(t)
	effort.Must(g.book.Settle(t.Context(), ledger.Settlement{Lease: l, Number: 1,
		Results: []ledger.Result{result(0, "anna@acme.test", smtp.Valid, smtp.MailboxExists)}}))(t)
	g.as["viewer"].get(at+"/addresses/0").Says(t, 200, "anna@acme.test", "a check of one address")
}

func TestResultsAreFoundWithoutAnAddressInAURL(t *testing.T) {
	g := newRig(t)
	var results []ledger.Result
	for i := range int64(60) {
		outcome, reason := smtp.Valid, smtp.MailboxExists
		if i%3 == 0 {
			outcome, reason = smtp.Unknown, smtp.Greylisted
		}
		results = append(results, result(i, fmt.Sprintf("name%02d@acme.test", i), outcome, reason))
	}
	v := g.verification("list.csv", 60, results...)
	path := g.path("/verifications/" + v.ID.String())
	rows := func(a answer) int { return strings.Count(a.Body, ">name") }
	first := g.as["viewer"].get(path + "/results")
	from := regexp.MustCompile(`name="from" value="([^"]+)"`).FindStringSubmatch(first.Body)
	effort.FatalIf(t, rows(first) != 50 || from == nil, "%d rows, %v", rows(first), from)
	older := g.as["viewer"].post(path+"/results", "from", from[1])
	effort.ErrorIf(t, rows(older) != 10 || strings.Contains(older.Body, "Next page ›"), "%d older rows", rows(older))
	for _, c := range []struct {
		pairs []string
		want  int
	}{{[]string{"outcome", "unknown"}, 20}, {[]string{"reason", "greylisted"}, 20}, {[]string{"find", "NAME07"}, 1},
		{[]string{"outcome", "valid", "find", "name09@"}, 0}} {
		if a := g.as["viewer"].post(path+"/results", c.pairs...); rows(a) != c.want || a.Status != 200 {
			t.Errorf("%v: %d, %d rows, want %d", c.pairs, a.Status, rows(a), c.want)
		}
	}
	effort.Is(t, rows(g.as["viewer"].get(path+"/results?find=name07")), 50, "a text in the URL is looked for: rows")
	for _, pairs := range [][]string{{"outcome", "good"}, {"reason", "bad"}, {"from", "x"}, {"from", "0.-1"}} {
		effort.Is(t, g.as["viewer"].post(path+"/results", pairs...).Status, 422, pairs)
	}
	if a := g.as["viewer"].get(path + "/reasons"); a.Status != 200 || !strings.Contains(a.Body, "greylisted") || !strings.Contains(a.Body, "66.7%") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestTheNewestResultsStandOnTheirPage: the page of a file shows its ten newest results until they expire.
func TestTheNewestResultsStandOnTheirPage(t *testing.T) {
	g := newRig(t)
	var results []ledger.Result
	for i := range int64(12) {
		results = append(results, result(i, fmt.Sprintf("name%02d@acme.test", i), smtp.Valid, smtp.MailboxExists))
	}
	over, running := g.verification("list.csv", 12, results...), g.verification("more.csv", 13, results[:4]...)
	shows := func(v ledger.Verification, rows int, has, lacks string) {
		t.Helper()
		a := g.as["viewer"].get(g.path("/verifications/" + v.ID.String()))
		got := strings.Count(a.Body, ">name")
		effort.ErrorIf(t, a.Status != 200 || got != rows || !strings.Contains(a.Body, has) ||
			strings.Contains(a.Body, lacks), "%d with %d rows, want %d, %q and no %q", a.Status, got, rows, has, lacks)
	}
	shows(over, 10, "Newest results", "still to come")
	shows(running, 4, "still to come", "Reload the page")
	effort.Must(g.book.Sweep(t.Context(), ledger.Retention{Results: 1}))(t)
	shows(over, 0, "list.csv", "Newest results")
	shows(running, 4, "Newest results", "Reload the page")
	a := g.as["viewer"].get(g.path("/verifications/"+over.ID.String()) + "/results")
	effort.ErrorIf(t, a.Status != 410 || !strings.Contains(a.Body, "The counts stay"), "erased results: %d", a.Status)
}

// TestReasonsAreGoneWithTheResults: also if they were read and cached before.
func TestReasonsAreGoneWithTheResults(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 1, result(0, "anna@acme.test", smtp.Valid, smtp.MailboxExists))
	path := g.path("/verifications/" + v.ID.String() + "/reasons")
	for range 2 {
		a := g.as["viewer"].get(path)
		effort.FatalIf(t, a.Status != 200 || !strings.Contains(a.Body, "mailbox_exists"), "%d %s", a.Status, a.Body)
	}
	effort.Is(t, g.book.breakdowns.Load(), 1, "the file was read times")
	effort.Must(g.book.Sweep(t.Context(), ledger.Retention{Results: 1}))(t)
	for range 2 {
		if a := g.as["viewer"].get(path); a.Status != 409 || strings.Contains(a.Body, "mailbox_exists") {
			t.Errorf("after the results were deleted: %d", a.Status)
		}
	}
}

// slowBook is a ledger that reads the reasons of a file only when the test lets it.
type slowBook struct {
	ledger.Book
	read atomic.Int64
	let  chan struct{}
}

func (b *slowBook) Breakdown(context.Context, uuid.UUID, uuid.UUID) (ledger.Breakdown, error) {
	b.read.Add(1)
	<-b.let
	return ledger.Breakdown{AtLeast: true}, nil
}

// TestReasonsAreReadOnceForManyAtOnce: simultaneous readers of one file share a read. Readers of another file do not
// wait for it.
func TestReasonsAreReadOnceForManyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &slowBook{let: make(chan struct{})}
		get := dashboard.NewBreakdowns(book)
		var asked sync.WaitGroup
		ids := [2]uuid.UUID{uuid.New(), uuid.New()}
		for i := range 20 {
			asked.Go(func() {
				found, err := get(t.Context(), ledger.Verification{ID: ids[i%2]})
				effort.ErrorIf(t, err != nil || !found.AtLeast, "%+v %v", found, err)
			})
		}
		synctest.Wait()
		effort.Is(t, book.read.Load(), 2, "ten at once for each of two files: they were read times")
		close(book.let)
		asked.Wait()
	})
}

func TestAPageSaysWhatAddressesWaitFor(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 9)
	g.waiting = map[string]inspect.Verification{v.ID.String(): {Waits: []inspect.Wait{
		{Addresses: 3, For: inspect.ForRetry, Receiver: "uni.example", Reason: "greylisted", Until: g.clock().Add(24 * time.Hour)},
		{Addresses: 1, For: inspect.ForControl}, {Addresses: 2, For: inspect.ForRetry, Reason: "timeout"}, {Addresses: 0, For: inspect.ForRoute},
		{Addresses: 5, For: inspect.ForReceiver, Receiver: "<b>mx.example"}}}}
	page := g.as["viewer"].get(g.path("/verifications/" + v.ID.String()))
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page.Body, "")
	for _, want := range []string{"3 wait to be asked again at uni.example, which makes strangers come back later (greylisting). Next tomorrow at ", "1 waits for a test with made-up names, which shows whether their domain accepts everything.",
		"2 wait to be asked again by a receiver that did not answer in time.",
		"5 wait for their turn at &lt;b&gt;mx.example"} {
		effort.Has(t, text, want, "the page does not say")
	}
	effort.Lacks(t, text, "DNS says", "no address waits for DNS")
}

func TestTheFourNumbersOfTheCreditsAddUp(t *testing.T) {
	g := newRig(t)
	g.verification("list.csv", 40, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists), result(1, "b@x.test", smtp.Unknown, smtp.Greylisted))
	page := g.as["viewer"].get(g.path("/credits"))
	text := regexp.MustCompile(`\s+`).ReplaceAllString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page.Body, " "), " ")
	balance := effort.Must(g.book.Balance(context.Background(), g.workspace))(t)
	want := fmt.Sprintf("1 000 granted = %d available + %d held + %d spent", balance.Available, balance.Held, balance.Spent)
	effort.Has(t, strings.ReplaceAll(text, "\u202f", " "), want, "the page does not say", text)
	effort.Is(t, strings.Count(page.Body, "<g "), ledger.StatementDays, "no chart or no move")
	effort.Has(t, page.Body, ">list.csv</a>", "no chart or no move")
	effort.Is(t, g.as["viewer"].get(g.path("/credits?after=x")).Status, 404, "a broken cursor")
}

func TestTheListSaysWhatCreditsAreMissing(t *testing.T) {
	g := newRig(t)
	viewer := g.as["viewer"]
	effort.Lacks(t, viewer.get(g.path("")).Body, "waiting for credits", "nothing waits, and the list says so")
	g.verification("huge.csv", 900_000_000)
	if a := viewer.get(g.path("")); !strings.Contains(a.Body, "A verification is waiting for credits. It needs 900\u202f000\u202f000 credits; available: ") {
		t.Errorf("the list does not say how many credits are missing: %s", a.Body)
	}
	g.verification("more.csv", 100_000_000)
	if a := viewer.get(g.path("")); !strings.Contains(a.Body, "2 verifications are waiting for credits. They need 1\u202f000\u202f000\u202f000 credits; available: ") {
		t.Errorf("the list does not add up the missing credits: %s", a.Body)
	}
}

func TestCancellingAsksFirst(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 3)
	member := g.as["member"]
	at := g.path("/verifications/" + v.ID.String())
	effort.Has(t, member.get(at).Body, `<noscript><p><a class="button danger" href="`+at+`/cancel">`,
		"without script nothing leads to the question")
	for range 2 {
		member.get(at+"/cancel").Says(t, 200, "Cancel list.csv?")
	}
	effort.Lacks(t, member.get(at).Body, "cancelling", "the question cancels")
	for range 2 {
		member.post(at+"/cancel", "form", uuid.NewString())
	}
	if a := member.get(at); !strings.Contains(a.Body, "cancelling") || g.wakes.Load() != 2 {
		t.Errorf("it was not cancelled, or the engine was woken %d times: %s", g.wakes.Load(), a.Body)
	}
	effort.Is(t, member.post(g.path("/verifications/"+uuid.NewString()+"/cancel"), "form", uuid.NewString()).Status, 404,
		"one that is not there")
}

func TestTheExampleCanBeUploaded(t *testing.T) {
	g := newRig(t)
	a := g.as["member"].get(g.path("/example.csv"))
	effort.ErrorIf(t, a.Header.Get("Content-Disposition") != `attachment; filename="example.csv"` ||
		strings.Count(a.Body, "@example.") != 3 || !strings.HasPrefix(a.Body, "email\n"), "%v %q", a.Header, a.Body)
}

// nodes count how often they are asked, and answer one line when the test allows it.
type nodes struct {
	asked atomic.Int64
	let   chan struct{} // closed: they answer at once
	err   error
}

func (n *nodes) waits(context.Context, string) (inspect.Verification, error) {
	n.asked.Add(1)
	<-n.let
	return inspect.Verification{Waits: []inspect.Wait{{Addresses: 1, For: inspect.ForRoute}}}, n.err
}

// TestNodesAreAskedOnceForAllPagesOfAVerification: in a bubble time passes when all goroutines wait.
func TestNodesAreAskedOnceForAllPagesOfAVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{let: make(chan struct{})}
		now := time.Now()
		get := dashboard.NewWaits(n.waits, func() time.Time { return now })
		id := uuid.New()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				effort.Is(t, get(t.Context(), id), 1)
			})
		}
		synctest.Wait()
		close(n.let)
		all.Wait()
		effort.Is(t, n.asked.Load(), 1, "8 pages have asked the nodes times")
		for _, c := range []struct {
			after time.Duration
			want  int64
		}{{0, 1}, {1999 * time.Millisecond, 1}, {time.Millisecond, 2}, {time.Second, 2}} {
			now = now.Add(c.after)
			if lines := get(t.Context(), id); lines != 1 || n.asked.Load() != c.want {
				t.Errorf("%v later: %d lines, asked %d times, want %d", c.after, lines, n.asked.Load(), c.want)
			}
		}
		get(t.Context(), uuid.New())
		effort.ErrorIf(t, n.asked.Load() != 3, "another verification: asked %d times", n.asked.Load())
		n.err = errors.New("nobody answers")
		for range 2 { // a missing answer is cached as long as an answer
			if lines := get(t.Context(), uuid.UUID{1}); lines != 0 || n.asked.Load() != 4 {
				t.Errorf("%d lines of nobody, asked %d times", lines, n.asked.Load())
			}
		}
	})
}

func TestASlowNodeHoldsNoPageLongerThanASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{let: make(chan struct{})}
		get := dashboard.NewWaits(n.waits, time.Now)
		at := time.Now()
		for i := range 2 {
			if lines := get(t.Context(), uuid.UUID{1}); lines != 0 || time.Since(at) != time.Duration(i+1)*time.Second {
				t.Errorf("page %d had %d lines after %v", i+1, lines, time.Since(at))
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		get(gone, uuid.UUID{1})
		effort.ErrorIf(t, time.Since(at) != 2*time.Second, "a page waits whose browser is gone")
		effort.Is(t, n.asked.Load(), 1, "asked times at once")
		close(n.let)
	})
}

// settle settles more results of the newest verification.
func (g *rig) settle(number int64, results ...ledger.Result) {
	g.t.Helper()
	effort.Must(g.book.Settle(g.t.Context(), ledger.Settlement{Lease: g.held, Number: number, Results: results}))(g.t)
}

// TestThePartBringsTheBalanceWhenCreditsWereMoved: if the verification has moved credits, the part contains the
// balance. Only then the ledger is asked for it.
func TestThePartBringsTheBalanceWhenCreditsWereMoved(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 9, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	viewer, path := g.as["viewer"], g.path("/verifications/"+v.ID.String())
	page := viewer.get(path)
	effort.FatalIf(t, !strings.Contains(page.Body, `id="credits">991<`), "the head has not the balance: %s", page.Body)
	tag := viewer.get(path + "/live").Header.Get("ETag")
	asked := func(reads int64, credits string) {
		t.Helper()
		before := g.book.balances.Load()
		a := viewer.get(path+"/live", "If-None-Match", tag)
		found := regexp.MustCompile(` data-credits="([^"]*)"`).FindStringSubmatch(a.Body)
		got := ""
		if found != nil {
			got = found[1]
		}
		if n := g.book.balances.Load() - before; n != reads || got != credits {
			t.Errorf("%d: the balance was read %d times and is %q, want %d and %q", a.Status, n, got, reads, credits)
		}
		tag = a.Header.Get("ETag")
	}
	asked(0, "")
	g.settle(2, result(1, "b@x.test", smtp.Valid, smtp.MailboxExists), result(2, "c@x.test", smtp.Unknown, smtp.Greylisted))
	asked(1, "992")
	asked(0, "")
	effort.Must(g.book.Cancel(t.Context(), g.workspace, v.ID))(t)
	asked(0, "") // being cancelled changes the part but moves no credit
	effort.Must(g.book.FinishCancel(t.Context(), g.held))(t)
	balance := effort.Must(g.book.Store.Balance(t.Context(), g.workspace))(t)
	effort.MustBe(t, balance.Held, 0)
	asked(1, web.Thin(balance.Available))
	asked(0, "")
}

// TestEverythingAPartShowsIsInItsKey: a key is made from the part's JSON, so the JSON must contain everything that a
// template sees.
func TestEverythingAPartShowsIsInItsKey(t *testing.T) {
	t.Parallel()
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		switch _, own := of.MethodByName("MarshalJSON"); {
		case of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice:
			look(of.Elem())
		case of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]():
			effort.ErrorIf(t, own, "%v may leave something out of its JSON", of)
			for f := range of.Fields() {
				effort.ErrorIf(t, f.IsExported() && f.Tag.Get("json") != "", "%v: %s may be left out", of, f.Name)
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[dashboard.LiveView]())
}

// TestOneUserSlowsNobodyElsesPages: a user who sends too many requests must wait. The pages of others are not
// affected.
func TestOneUserSlowsNobodyElsesPages(t *testing.T) {
	g := newRigWith(t, func(*dashboard.Options) {}, func(l *httpd.Limits) { l.Pages = httpd.DefaultLimits().Pages })
	path := g.path("/verifications/" + g.verification("list.csv", 9).ID.String() + "/live")
	var asked, told atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 30 {
				asked.Add(1)
				if a := g.as["viewer"].get(path); a.Status == 429 && a.Header.Get("Retry-After") != "" {
					told.Add(1)
				}
			}
		})
	}
	all.Wait()
	effort.ErrorIf(t, told.Load() == 0 || asked.Load()-told.Load() < 60,
		"of %d requests at once %d were told to wait", asked.Load(), told.Load())
	if a := g.as["viewer"].get(g.path("")); a.Status == 429 && !strings.Contains(a.Body, "Too much at once") {
		t.Errorf("a page: %d %s", a.Status, a.Body)
	}
	g.as["member"].get(path).Says(t, 200, `data-hx-trigger="every 2s"`, "another user")
}

func TestPartsAskAgainAsTheirStateSays(t *testing.T) {
	t.Parallel()
	credits := &ledger.Issue{Code: ledger.CreditsRequired}
	for _, c := range []struct {
		v    ledger.Verification
		want string
	}{
		{ledger.Verification{Status: ledger.Uploading}, "2s"}, {ledger.Verification{Status: ledger.Verifying}, "2s"},
		{ledger.Verification{Status: ledger.Waiting}, "10s"}, {ledger.Verification{Status: ledger.Waiting, Issue: credits}, "5s"},
		{ledger.Verification{Status: ledger.Verifying, Kind: ledger.Single}, "1s"}, {ledger.Verification{Status: ledger.Cancelling}, "2s"},
		{ledger.Verification{Status: ledger.Completed}, ""}, {ledger.Verification{Status: ledger.Failed}, ""},
	} {
		effort.Is(t, dashboard.EveryOf(c.v), c.want, fmt.Sprintf("%s %v", c.v.Status, c.v.Issue))
	}
}

// TestAPartIsMadeAgainOnlyWhenItShowsSomethingElse: a part that is reused because nothing changed equals a part made
// again.
func TestAPartIsMadeAgainOnlyWhenItShowsSomethingElse(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 9, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	path := g.path("/verifications/" + v.ID.String() + "/live")
	viewer, member := g.as["viewer"].get(path), g.as["member"].get(path)
	if viewer.Header.Get("ETag") == member.Header.Get("ETag") || strings.Contains(viewer.Body, "Cancel") || !strings.Contains(member.Body, "Cancel") {
		t.Error("a viewer is shown what a member is")
	}
	for range 3 {
		for name, tag := range map[string]string{"viewer": viewer.Header.Get("ETag"), "member": member.Header.Get("ETag")} {
			if a := g.as[name].get(path, "If-None-Match", tag); a.Status != 304 || a.Header.Get("ETag") != tag {
				t.Errorf("%s: %d %q", name, a.Status, a.Header.Get("ETag"))
			}
		}
		a := g.as["viewer"].get(path, "If-None-Match", member.Header.Get("ETag"))
		effort.ErrorIf(t, a.Status != 200 || a.Body != viewer.Body, "with the tag of another role: %d", a.Status)
	}
	g.settle(2, result(1, "b@x.test", smtp.Valid, smtp.MailboxExists))
	g.as["viewer"].get(path, "If-None-Match", viewer.Header.Get("ETag")).Says(t, 200, ">2<", "after a settlement")
}

func TestAFileThatIsOverSaysWhatItCost(t *testing.T) {
	g := newRig(t)
	none := g.create("none.csv", 10)
	effort.Must(g.book.Cancel(t.Context(), g.workspace, none.ID))(t)
	some := g.verification("some.csv", 2, result(0, "a@x.test", smtp.Valid, smtp.MailboxExists))
	effort.Must(g.book.Cancel(t.Context(), g.workspace, some.ID))(t)
	effort.Must(g.book.FinishCancel(t.Context(), g.held))(t)
	failed := g.create("failed.csv", 4)
	g.engine().FillsWith(failed, []byte("a@b\n"))
	effort.Must(g.book.Refuse(t.Context(), g.lease(failed.ID), ledger.Issue{Code: "invalid_row",
		Message: "The row has no address.", Row: 7, Text: "anna@<b>"}))(t)
	for _, c := range []struct {
		id   uuid.UUID
		as   string
		has  []string
		lack string
	}{
		{none.ID, "member", []string{"cancelled before any address was checked: there are no results, and it cost nothing"}, "can be downloaded as soon"},
		{some.ID, "member", []string{"It was cancelled. Unchecked addresses cost nothing."}, "no results"},
		{failed.ID, "member", []string{"Row 7: The row has no address. No credits were used.", `aria-label="Row 7"><code>anna@&lt;b&gt;</code>`,
			"Upload the corrected file"}, "can be downloaded as soon"},
		{failed.ID, "viewer", []string{"No credits were used.", "anna@&lt;b&gt;"}, "Upload the corrected file"},
	} {
		page := g.as[c.as].get(g.path("/verifications/" + c.id.String())).Body
		for _, want := range c.has {
			effort.Has(t, page, want, c.id, "for a", c.as)
		}
		effort.Lacks(t, page, c.lack, c.id, "for a", c.as)
	}
}

func TestAnExpectedEndHasItsDay(t *testing.T) {
	g := newRig(t)
	v := g.verification("list.csv", 2)
	ends := g.clock().UTC().Truncate(24 * time.Hour).Add(24*time.Hour + 11*time.Hour + 12*time.Minute)
	effort.Must(g.book.Wait(t.Context(), g.held, ledger.Estimate{Next: ends.Add(-time.Hour), Expected: ends}))(t)
	effort.Has(t, g.as["viewer"].get(g.path("/verifications/"+v.ID.String())).Body,
		"It's expected to end tomorrow at 11:12 UTC.", "the page")
}
