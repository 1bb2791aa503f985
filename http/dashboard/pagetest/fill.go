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

// upload makes a verification with all its bytes, and returns it with the lease of a node.
func upload(ctx context.Context, g *Rig, workspace uuid.UUID, name string) (
	v ledger.Verification, l ledger.Lease, err error) {
	d := &ledgertest.Fixture{Book: g.Book, T: g.t, Workspace: workspace, Node: g.Node}
	file := []byte("a@slow.test\n")
	n := d.Asks(int64(len(file)))
	n.Filename = name
	if v, _, err = g.Book.Create(ctx, n); err != nil {
		return v, l, err
	}
	d.FillsWith(v, file)
	return v, d.Takes(v.ID), nil
}

// fillOverdue settles three of four addresses of a file that should have ended an hour ago.
func fillOverdue(ctx context.Context, g *Rig) error {
	v, l, err := upload(ledger.WithActor(ctx, "key:"+g.Key.ID), g, g.Workspace.ID, "late <i>.csv")
	if err == nil {
		_, err = g.Book.Prepare(ctx, l, 4, 0, 4)
	}
	if err != nil {
		return err
	}
	at := time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond)
	first := evidence.Attempt{At: at, Stage: smtp.StageRcpt, Host: "mx1.slow.test", Source: Source, Code: 450, Text: Hostile,
		Outcome: smtp.Undecided, Reason: smtp.Greylisted, Rule: "grey", Version: 3}
	second := first
	second.TLS, second.Code, second.Enhanced, second.Text = true, 550, smtp.EnhancedCode{5, 1, 1}, "<b>^</b> is nobody here"
	second.Outcome, second.Reason, second.Rule, second.Version = smtp.Invalid, smtp.MailboxNotFound, "rcpt-5.1.1", 7
	s := ledger.Settlement{Lease: l, Number: 1, Results: []ledger.Result{
		{Ordinal: 0, Email: Asked, Outcome: smtp.Invalid, Reason: smtp.MailboxNotFound, At: at},
		{Ordinal: 1, Email: "ben@slow.test", Outcome: smtp.Unknown, Reason: smtp.Greylisted, At: at},
		{Ordinal: 2, Email: Unkept, Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: at}}}
	if s.Evidence, err = evidence.Pack([]evidence.Entry{{Ordinal: 0, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first, second}}},
		{Ordinal: 1, Case: evidence.Case{Hosts: 1, Attempts: []evidence.Attempt{first}, GaveUp: true}}}); err != nil {
		return err
	}
	if _, err = g.Book.Settle(ctx, s); err != nil {
		return err
	}
	g.Overdue, err = g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Minute),
		Expected: time.Now().Add(-time.Hour),
		Why:      "1 address waits for slow.test, which asked us to come <b>later</b>"})
	g.Overdue.Filename = v.Filename
	return err
}

// fillOver makes a file that was cancelled, "gone.csv", in the workspace of Open.
func fillOver(ctx context.Context, g *Rig) error {
	ctx = ledger.WithActor(ctx, "user:"+g.Anna.String())
	v, _, err := g.Book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: g.Workspace.ID, Identity: uuid.New(), Filename: "gone.csv",
		Bytes: 7, BytesMax: 1 << 20, UploadExpiry: time.Hour, Limits: limits})
	if err == nil {
		g.Over, err = g.Book.Cancel(ctx, g.Workspace.ID, v.ID)
	}
	return err
}

// fillPoor makes a file in a workspace without credits.
func fillPoor(ctx context.Context, g *Rig) error {
	poor, err := g.Book.CreateWorkspace(ctx, uuid.New(), "poor & co")
	if err != nil {
		return err
	}
	_, l, err := upload(ctx, g, poor.ID, "unpaid.csv")
	if err == nil {
		g.Poor, err = g.Book.Prepare(ctx, l, 3, 0, 3)
	}
	return err
}

// fillAccess makes a key with an id and a label, and an owner with an email and a name.
func fillAccess(ctx context.Context, g *Rig, id, label, email, name string) (err error) {
	if g.Key, err = g.Book.CreateKey(ctx, ledger.Key{ID: id, Workspace: g.Workspace.ID, Label: label}); err != nil {
		return err
	}
	token, cookie := signin.NewToken(), signin.NewToken()
	link, _ := token.Hash()
	session, _ := cookie.Hash()
	if _, err = g.Book.MakeLink(ctx, ledger.Link{ID: link, Purpose: ledger.InviteLink, Workspace: g.Workspace.ID,
		Email: email, Role: ledger.Owner, MadeBy: "operator test"}); err != nil {
		return err
	}
	g.Anna = uuid.New()
	_, err = g.Book.AcceptLink(ctx, ledger.Accept{Link: link, User: g.Anna, Name: name, Password: "x",
		Session: ledger.NewSession{ID: session, Agent: "test", Network: "127.0.0.1", Life: time.Hour}})
	return err
}

// Running makes a file in work at a node, "runs.csv", without final addresses.
func Running(t testing.TB, g *Rig) ledger.Verification {
	t.Helper()
	v, l, err := upload(t.Context(), g, g.Workspace.ID, "runs.csv")
	if err == nil {
		v, err = g.Book.Prepare(t.Context(), l, 2, 0, 2)
	}
	effort.OK(t, err)
	return v
}

// Settled makes a verification of n addresses, each settled by itself as valid: it has n + 1 entries.
func (g *Rig) Settled(t testing.TB, n int64) ledger.Verification {
	t.Helper()
	v, l, err := upload(t.Context(), g, g.Workspace.ID, "many.csv")
	if err == nil {
		_, err = g.Book.Prepare(t.Context(), l, n, 0, n)
	}
	for i := int64(0); i < n && err == nil; i++ {
		v, err = g.Book.Settle(t.Context(), ledger.Settlement{Lease: l, Number: i + 1, Results: []ledger.Result{{Ordinal: i,
			Email: fmt.Sprintf("user%d@slow.test", i), Outcome: smtp.Valid, Reason: smtp.MailboxExists, At: time.Now().Truncate(time.Millisecond)}}})
	}
	effort.OK(t, err)
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

// ands is the worst text of n bytes: HTML writes each "&" with five. Its end makes every text different.
func ands(bytes, number int) string {
	end := fmt.Sprint(number)
	return strings.Repeat("&", bytes-len(end)) + end
}

// Crowd fills a workspace with n of each: files that wait for receivers, grants, keys (all revoked except the oldest
// ten), and members. Each has the longest allowed texts.
func (g *Rig) Crowd(t testing.TB, n int) ledger.Workspace {
	t.Helper()
	w, err := g.Book.CreateWorkspace(t.Context(), uuid.New(), ands(200, 0))
	for i := 0; i < n && err == nil; i++ {
		if err = crowdFile(t.Context(), g, w, i); err == nil {
			err = crowdAccess(t.Context(), g, w, i)
		}
	}
	effort.OK(t, err)
	return w
}

// crowdFile makes a file that waits for receivers.
func crowdFile(ctx context.Context, g *Rig, w ledger.Workspace, i int) error {
	_, err := g.Book.Grant(ledger.WithAuthor(ctx, ands(200, i)), uuid.New(), w.ID, 1, ands(200, i))
	if err != nil {
		return err
	}
	_, l, err := upload(ctx, g, w.ID, ands(1024, i))
	if err == nil {
		_, err = g.Book.Prepare(ctx, l, 1, 0, 1)
	}
	if err == nil {
		_, err = g.Book.Wait(ctx, l, ledger.Estimate{Next: time.Now().Add(time.Hour), Expected: time.Now().Add(-time.Hour),
			Why: ands(ledger.WhyMax, i)})
	}
	return err
}

// crowdAccess makes a key and a member.
func crowdAccess(ctx context.Context, g *Rig, w ledger.Workspace, i int) error {
	id := fmt.Sprintf("crowd%07d", i)
	_, err := g.Book.CreateKey(ctx, ledger.Key{ID: id, Workspace: w.ID, Label: ands(200, i)})
	if err == nil && i >= 10 {
		_, err = g.Book.RevokeKey(ctx, id)
	}
	if err != nil {
		return err
	}
	link := ledger.Hash{1, byte(i), byte(i >> 8)}
	if _, err = g.Book.MakeLink(ctx, ledger.Link{ID: link, Purpose: ledger.InviteLink, Workspace: w.ID,
		Email: ands(ledger.EmailMax-len("@acme.test"), i) + "@acme.test", Role: ledger.Owner, MadeBy: "operator test"}); err != nil {
		return err
	}
	_, err = g.Book.AcceptLink(ctx, ledger.Accept{Link: link, User: uuid.New(), Name: ands(ledger.NameMax, i), Password: "x",
		Session: ledger.NewSession{ID: ledger.Hash{2, byte(i), byte(i >> 8)}, Life: time.Hour}})
	return err
}
