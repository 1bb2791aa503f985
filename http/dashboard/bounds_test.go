package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// pageMax bounds a page, as package view enforces it.
const pageMax = 512 << 10

// ands are the worst text of so many bytes: HTML writes each with five. It ends so that no two are the same.
func ands(bytes, number int) string {
	end := fmt.Sprint(number)
	return strings.Repeat("&", bytes-len(end)) + end
}

// bounded fails unless a page is answered and takes half of what a page may.
func (g *rig) bounded(path string) answer {
	g.t.Helper()
	a := g.as["owner"].get(path)
	if a.status != 200 || len(a.body) > pageMax/2 {
		g.t.Errorf("%s: %d with %d bytes", path, a.status, len(a.body))
	}
	return a
}

// named makes an owner whose name has all the bytes that it may have, and gives the context in which they act.
func (g *rig) named(number int) context.Context {
	g.t.Helper()
	id := uuid.New()
	link, _ := g.invite(ands(ledger.EmailMax-len("@acme.test"), number)+"@acme.test", g.workspace, ledger.Owner).Hash()
	session, _ := signin.NewToken().Hash()
	_, err := g.book.AcceptLink(g.t.Context(), ledger.Accept{Link: link, User: id, Name: ands(ledger.NameMax, number),
		Password: keptPassword, Session: ledger.NewSession{ID: session, Life: time.Hour}})
	if err != nil {
		g.t.Fatal(err)
	}
	return ledger.WithActor(g.t.Context(), "user:"+id.String())
}

// morePattern is the link to the next page of a list.
var morePattern = regexp.MustCompile(`<a href="([^"]+)">Next page ›</a>`)

// walk reads all pages of a list and gives their bodies.
func (g *rig) walk(path string) (pages []string) {
	g.t.Helper()
	for path != "" && len(pages) < 20 {
		a := g.bounded(path)
		pages = append(pages, a.body)
		path = ""
		if m := morePattern.FindStringSubmatch(a.body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	return pages
}

// rowsOn counts the rows of a register.
func rowsOn(page string) int { return strings.Count(page, `<th scope="row"`) }

func TestPeopleFillAPageAndNoMore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	const invited, members = 450, 550 // as many as one workspace may have
	ctx := g.named(0)
	for i := 4; i < members; i++ {
		g.named(i)
	}
	for i := range invited {
		_, err := g.book.MakeLink(ctx, ledger.Link{ID: ledger.Hash{1, byte(i), byte(i >> 8)}, Purpose: ledger.InviteLink,
			Workspace: g.workspace, Email: ands(ledger.EmailMax-len("@acme.test"), 10_000+i) + "@acme.test", Role: ledger.Viewer,
			MadeBy: ledger.Actor(ctx)})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages := g.walk(g.path("/people"))
	if len(pages) != 5 {
		t.Fatalf("%d pages", len(pages))
	}
	for i, want := range []struct{ withdraw, members int }{{200, 0}, {200, 0}, {50, 150}, {0, 200}, {0, 200}} {
		withdraw, all := strings.Count(pages[i], ">Withdraw<"), rowsOn(pages[i])
		if withdraw != want.withdraw || all != want.withdraw+want.members {
			t.Errorf("page %d has %d invitations among %d rows, want %+v", i+1, withdraw, all, want)
		}
	}
	for path, want := range map[string]int{"?page=5": 200, "?page=6": 200, "?page=99999999999": 200, "?page=0": 404, "?page=-1": 404,
		"?page=x": 404, "?page=99999999999999999999": 404} {
		if a := g.as["owner"].get(g.path("/people") + path); a.status != want {
			t.Errorf("%s: %d, want %d", path, a.status, want)
		}
	}
	link := regexp.MustCompile(`href="(/w/[^"]+/people/[^"?]+)"`).FindStringSubmatch(pages[4])
	if link == nil {
		t.Fatal("no member has a link")
	}
	name := ands(ledger.NameMax, 0)
	if strings.Contains(pages[4], html.EscapeString(name[:web.ShortMax])) {
		t.Error("a register has a whole text")
	}
	if a := g.bounded(link[1]); !strings.Contains(a.body, html.EscapeString(name[:ledger.NameMax-3])) {
		t.Errorf("the page of a member does not show the whole name: %.3000s", a.body)
	}
}

func TestKeysFillAPageAndNoMore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ctx := g.named(0)
	key := func(i int) string { return fmt.Sprintf("key%09d", i) }
	for i := range 450 {
		k := ledger.Key{ID: key(i), Workspace: g.workspace, Label: ands(200, i)}
		_, err := g.book.CreateKey(ctx, k)
		if err == nil && i >= 250 {
			_, err = g.book.RevokeKey(ctx, k.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pages := g.walk(g.path("/keys"))
	if len(pages) != 3 {
		t.Fatalf("%d pages", len(pages))
	}
	for i, want := range []struct{ works, revoked int }{{200, 0}, {50, 150}, {0, 50}} {
		works, all := strings.Count(pages[i], ">Revoke…<"), rowsOn(pages[i])
		if works != want.works || all != want.works+want.revoked {
			t.Errorf("page %d has %d keys that work among %d rows, want %+v", i+1, works, all, want)
		}
	}
	for i, first := range []int{249, 49, 299} { // newest first
		if at := strings.Index(pages[i], "rc_key"); !strings.HasPrefix(pages[i][at:], "rc_"+key(first)) {
			t.Errorf("page %d begins with %.20s, want %s", i+1, pages[i][at:], key(first))
		}
	}
	if a := g.as["owner"].get(g.path("/keys?page=x")); a.status != 404 {
		t.Errorf("no page: %d", a.status)
	}
	if a := g.bounded(g.path("/keys/" + key(7))); !strings.Contains(a.body, html.EscapeString(ands(200, 7))) {
		t.Error("the page of a key does not show its whole label")
	}
}

func TestNamesOfFilesFillAPageAndNoMore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ctx := g.named(0)
	var last ledger.Verification
	for i := range 101 {
		v, _, err := g.book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.workspace, Identity: uuid.New(),
			Filename: ands(1024, i), Bytes: 4, BytesMax: 1 << 20, Limits: ledger.Limits{Open: 1000, Stored: 1 << 30, Unpaid: 1000},
			UploadExpiry: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		last = v
	}
	if n := rowsOn(g.bounded(g.path("")).body); n != 50 {
		t.Errorf("the list has %d rows", n)
	}
	if n := rowsOn(g.bounded(g.path("/activity")).body); n != 100 {
		t.Errorf("the log has %d rows", n)
	}
	for _, below := range []string{"", "/cancel"} {
		a := g.bounded(g.path("/verifications/" + last.ID.String() + below))
		if !strings.Contains(a.body, html.EscapeString(last.Filename)) {
			t.Errorf("the page %q of the file does not show its whole name", below)
		}
	}
}

func TestAddressesFillAPageAndNoMore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	if _, err := g.book.Grant(t.Context(), uuid.New(), g.workspace, 10_000, ands(ledger.OperatorTextMax, 0)); err != nil {
		t.Fatal(err)
	}
	var results []ledger.Result
	for i := range 60 {
		email := ands(ledger.EmailBytesMax/2-1, i) + "@" + ands(ledger.EmailBytesMax/2, i)
		results = append(results, result(int64(i), email, smtp.Unknown, smtp.Greylisted))
	}
	results[59].Outcome, results[59].Reason = smtp.Valid, smtp.MailboxExists // which costs a credit: the days are drawn
	var v ledger.Verification
	for i := range 49 { // with the two grants: 51 moves of credits
		v = g.verification(ands(1024, i), 60, results...)
	}
	base := g.path("/verifications/" + v.ID.String())
	for path, want := range map[string]int{base: 10 + 6, base + "/results": 50, base + "/reasons": 21 + 2,
		g.path("/credits"): 50 + ledger.StatementDays + 2} {
		if n := rowsOn(g.bounded(path).body); n != want {
			t.Errorf("%s has %d rows, want %d", path, n, want)
		}
	}
	if a := g.bounded(base + "/addresses/3?in=1"); !strings.Contains(a.body, html.EscapeString(results[3].Email)) {
		t.Error("the page of an address does not show it whole")
	}
}
