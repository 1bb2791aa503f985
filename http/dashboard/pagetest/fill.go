package pagetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// Asked is the address of Overdue with evidence of two attempts, and Unkept one without evidence.
const (
	Asked  = "anna@slow.test"
	Unkept = "dora@slow.test"
)

// Source is the source that asked for Asked, and Rule the rule that judged the reply.
const (
	Source = "192.0.2.7"
	Rule   = "rcpt-5.1.1@00000007"
)

// Password is that of everybody, and KeptPassword its text in the ledger, which costs next to nothing to try.
const (
	Password     = "a horse that nobody rides"
	KeptPassword = "$argon2id$v=19$m=8,t=1,p=1$H7lUOLmAlOobe3snqv3ZhQ$DmKhrNge8PeWCihcU87uy4ApxBcCbVfZfLfMBUv2V5M"
)

// Workspace makes a workspace with credits.
func Workspace(t testing.TB, book ledger.Book, name string, credits ledger.Credits) ledger.Workspace {
	t.Helper()
	w := effort.Must(book.CreateWorkspace(t.Context(), uuid.New(), name))(t)
	if credits > 0 {
		effort.Must(book.Grant(t.Context(), uuid.New(), w.ID, credits, "test"))(t)
	}
	return w
}

// Invite makes an invitation, and returns the secret of its link.
func Invite(t testing.TB, book ledger.People, workspace uuid.UUID, email string, role ledger.Role) signin.Token {
	t.Helper()
	token := signin.NewToken()
	id, _ := token.Hash()
	effort.Must(book.MakeLink(t.Context(), ledger.Link{ID: id, Purpose: ledger.InviteLink, Workspace: workspace,
		Email: email, Role: role, MadeBy: "operator test"}))(t)
	return token
}

// Join makes somebody a member, and returns them in their session with its cookie.
func Join(
	t testing.TB, book ledger.People, workspace uuid.UUID, email, name string, role ledger.Role,
) (ledger.SignedIn, signin.Token) {
	t.Helper()
	link, _ := Invite(t, book, workspace, email, role).Hash()
	cookie := signin.NewToken()
	id, _ := cookie.Hash()
	session := ledger.NewSession{ID: id, Agent: "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0", Network: "127.0.0.1",
		Life: time.Hour}
	return effort.Must(book.AcceptLink(t.Context(), ledger.Accept{Link: link, User: uuid.New(), Name: name,
		Password: KeptPassword, Session: session}))(t), cookie
}

// prepared makes a verification of n addresses, and returns it with the lease of a node.
func (g *Rig) prepared(ctx context.Context, workspace uuid.UUID, name string, n int64) (ledger.Verification, ledger.Lease) {
	g.t.Helper()
	d := &ledgertest.Fixture{Book: g.Book, T: g.t, Workspace: workspace, Node: g.Node}
	file := []byte("a@slow.test\n")
	asks := d.Asks(int64(len(file)))
	asks.Filename = name
	v, _, err := g.Book.Create(ctx, asks)
	effort.OK(g.t, err)
	d.FillsWith(v, file)
	l := d.Takes(v.ID)
	return effort.Must(g.Book.Prepare(ctx, l, n, 0, n))(g.t), l
}

// fillOverdue settles three of four addresses of a file that should have ended an hour ago.
func fillOverdue(ctx context.Context, g *Rig) {
	v, l := g.prepared(ledger.WithActor(ctx, "key:"+g.Key.ID), g.Workspace.ID, "late <i>.csv", 4)
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond)
	first := evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx1.slow.test", Source: Source, Code: 450, Text: Hostile,
		Outcome: smtp.Undecided, Reason: smtp.Greylisted, Rule: "grey", Version: 3}
	second := first
	second.TLS, second.Code, second.Enhanced, second.Text = true, 550, smtp.EnhancedCode{5, 1, 1}, "<b>^</b> is nobody here"
	second.Outcome, second.Reason, second.Rule, second.Version = smtp.Invalid, smtp.MailboxNotFound, "rcpt-5.1.1", 7
	packed := effort.Must(evidence.Pack([]evidence.Entry{
		{Ordinal: 0, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first, second}}},
		{Ordinal: 1, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first}, GaveUp: true}}}))(g.t)
	effort.Must(g.Book.Settle(ctx, ledger.Settlement{Lease: l, Number: 1, Evidence: packed, Results: []ledger.Result{
		{Ordinal: 0, Email: Asked, Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: at},
		{Ordinal: 1, Email: "ben@slow.test", Outcome: smtp.Unknown, Reason: smtp.Greylisted, At: at},
		{Ordinal: 2, Email: Unkept, Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: at}}}))(g.t)
	g.Overdue = effort.Must(g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Minute),
		Expected: time.Now().Add(-time.Hour),
		Why:      "1 address waits for slow.test, which asked us to come <b>later</b>"}))(g.t)
	g.Overdue.Filename = v.Filename
}

// fillOver makes a file that was cancelled, "gone.csv", in the workspace of Open.
func fillOver(ctx context.Context, g *Rig) {
	ctx = ledger.WithActor(ctx, "user:"+g.Anna.String())
	v, _, err := g.Book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.Workspace.ID, Identity: uuid.New(), Filename: "gone.csv",
		Bytes: 7, BytesMax: 1 << 20, UploadExpiry: time.Hour, Limits: limits})
	effort.OK(g.t, err)
	g.Over = effort.Must(g.Book.Cancel(ctx, g.Workspace.ID, v.ID))(g.t)
}

// Running makes a file in work at a node, "runs.csv", without final addresses.
func Running(t testing.TB, g *Rig) ledger.Verification {
	t.Helper()
	v, _ := g.prepared(t.Context(), g.Workspace.ID, "runs.csv", 2)
	return v
}

// Settled makes a verification of n addresses, each settled by itself as valid: it has n + 1 entries.
func (g *Rig) Settled(t testing.TB, n int64) (v ledger.Verification) {
	t.Helper()
	_, l := g.prepared(t.Context(), g.Workspace.ID, "many.csv", n)
	for i := range n {
		v = effort.Must(g.Book.Settle(t.Context(), ledgertest.Batch(l, i+1, i, i, smtp.Valid)))(t)
	}
	return v
}

// Of gives what the ledger answers about the workspace of a Rig.
func Of[Out any](t testing.TB, g *Rig, ask func(context.Context, uuid.UUID) (Out, error)) Out {
	t.Helper()
	return effort.Must(ask(t.Context(), g.Workspace.ID))(t)
}

// Sessions returns how many sessions of Anna are valid.
func (g *Rig) Sessions(t testing.TB) int {
	t.Helper()
	found := effort.Must(g.Book.Sessions(t.Context(), g.Anna, time.Hour))(t)
	return len(found)
}

// Log gives the newest lines of the operator log.
func (g *Rig) Log(t testing.TB) []ledger.LogLine {
	t.Helper()
	return effort.Must(g.Book.OperatorLog(t.Context(), ledger.LogQuery{Limit: 100}))(t)
}

// Ands is the worst text of n bytes: HTML writes each "&" with five. Its end makes every text different.
func Ands(bytes, number int) string {
	end := fmt.Sprint(number)
	return strings.Repeat("&", bytes-len(end)) + end
}

// Crowd fills a workspace with n of each: files that wait for receivers, grants, keys (all revoked except the oldest
// ten), and members. Each has the longest allowed texts.
func (g *Rig) Crowd(t testing.TB, n int) ledger.Workspace {
	t.Helper()
	ctx, w := t.Context(), Workspace(t, g.Book, Ands(200, 0), 0)
	for i := range n {
		effort.Must(g.Book.Grant(ledger.WithAuthor(ctx, Ands(200, i)), uuid.New(), w.ID, 1, Ands(200, i)))(t)
		_, l := g.prepared(ctx, w.ID, Ands(1024, i), 1)
		effort.Must(g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Hour), Expected: time.Now().Add(-time.Hour),
			Why: Ands(ledger.WhyMax, i)}))(t)
		id := fmt.Sprintf("crowd%07d", i)
		effort.Must(g.Book.CreateKey(ctx, ledger.Key{ID: id, Workspace: w.ID, Label: Ands(200, i)}))(t)
		if i >= 10 {
			effort.Must(g.Book.RevokeKey(ctx, id))(t)
		}
		Join(t, g.Book, w.ID, Ands(ledger.EmailMax-len("@acme.test"), i)+"@acme.test", Ands(ledger.NameMax, i), ledger.Owner)
	}
	return w
}
