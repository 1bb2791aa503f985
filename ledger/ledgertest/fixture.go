package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
)

// Hour is a lease that no test outlives.
const Hour = time.Hour

// Fixture is a book with one workspace and one node, and the few moves that most
// tests begin with. A failed move ends the test.
type Fixture struct {
	ledger.Book
	T         testing.TB
	Workspace uuid.UUID
	Node      uuid.UUID
}

// NewFixture makes a workspace with credits.
func NewFixture(t testing.TB, book ledger.Book, credits ledger.Credits) *Fixture {
	t.Helper()
	d := &Fixture{Book: book, T: t, Workspace: uuid.New(), Node: uuid.New()}
	effort.Must(book.CreateWorkspace(t.Context(), d.Workspace, "desk"))(t)
	if credits > 0 {
		d.Grants(credits)
	}
	return d
}

// Grants adds credits.
func (d *Fixture) Grants(n ledger.Credits) ledger.Balance {
	d.T.Helper()
	b, err := d.Grant(d.T.Context(), uuid.New(), d.Workspace, n, "test")
	effort.OK(d.T, err, "grant", n)
	return b
}

// Asks returns an allowed create of a file of some bytes.
func (d *Fixture) Asks(bytes int64) ledger.NewVerification {
	return ledger.NewVerification{ID: uuid.New(), Workspace: d.Workspace, Identity: uuid.New(),
		Filename: "list.csv", Bytes: bytes, BytesMax: 1 << 30, Limits: ledger.Limits{Open: 1000, Stored: 1 << 40, Unpaid: 1000},
		UploadExpiry: Hour}
}

// Creates makes a verification of some bytes.
func (d *Fixture) Creates(bytes int64) ledger.Verification {
	d.T.Helper()
	v, created, err := d.Create(d.T.Context(), d.Asks(bytes))
	effort.FatalIf(d.T, err != nil || !created, "create: created %v, %v", created, err)
	return v
}

// Uploads makes a verification whose bytes are all there.
func (d *Fixture) Uploads() ledger.Verification {
	d.T.Helper()
	v := d.Creates(7)
	d.Fills(v)
	return d.Sees(v.ID)
}

// Fills uploads all bytes of a new verification.
func (d *Fixture) Fills(v ledger.Verification) ledger.Upload {
	d.T.Helper()
	return d.FillsWith(v, bytes.Repeat([]byte("x"), int(v.Bytes)))
}

// FillsWith uploads a file in the largest chunks that there are.
func (d *Fixture) FillsWith(v ledger.Verification, file []byte) ledger.Upload {
	d.T.Helper()
	u, err := d.OpenUpload(d.T.Context(), v.ID)
	for len(file) > 0 && err == nil {
		n := min(len(file), ledger.ChunkBytesMax)
		u, err = d.AppendChunk(d.T.Context(), v.ID, u.Writer, u.Durable, file[:n])
		file = file[n:]
	}
	effort.OK(d.T, err, "upload")
	return u
}

// Sees reads a verification.
func (d *Fixture) Sees(id uuid.UUID) ledger.Verification {
	d.T.Helper()
	return effort.Must(d.Verification(d.T.Context(), d.Workspace, id))(d.T)
}

// Takes leases everything and returns the lease of one verification.
func (d *Fixture) Takes(id uuid.UUID) ledger.Lease {
	d.T.Helper()
	list := effort.Must(d.Lease(d.T.Context(), d.Node, 1000, Hour))(d.T)
	for _, v := range list {
		if v.ID == id {
			return ledger.Lease{Verification: id, Node: d.Node, Epoch: v.Epoch}
		}
	}
	d.T.Fatalf("verification %s is not among the %d leased", id, len(list))
	return ledger.Lease{}
}

// Prepares makes a leased verification of total addresses, held if it is funded.
func (d *Fixture) Prepares(total int64) (ledger.Verification, ledger.Lease) {
	d.T.Helper()
	l := d.Takes(d.Uploads().ID)
	v := effort.Must(d.Prepare(d.T.Context(), l, total, 0, total))(d.T)
	return v, l
}

// Settles commits the next settlement: o for each of the ordinals from first to last.
func (d *Fixture) Settles(l ledger.Lease, number, first, last int64, o smtp.Outcome) ledger.Verification {
	d.T.Helper()
	v, err := d.Settle(d.T.Context(), Batch(l, number, first, last, o))
	effort.OK(d.T, err, "settle", number)
	return v
}

// Batch is a settlement of o for each of the ordinals from first to last.
func Batch(l ledger.Lease, number, first, last int64, o smtp.Outcome) ledger.Settlement {
	s := ledger.Settlement{Lease: l, Number: number}
	for i := first; i <= last; i++ {
		s.Results = append(s.Results, OneResult(i, o))
	}
	return s
}

// OneResult is a result whose address and time follow from its ordinal.
func OneResult(ordinal int64, o smtp.Outcome) ledger.Result {
	return ledger.Result{Ordinal: ordinal, Email: fmt.Sprintf("user%d@example.test", ordinal), Outcome: o,
		Reason: smtp.MailboxExists, At: time.UnixMilli(1_700_000_000_000 + ordinal).UTC()}
}

// WarmCodec makes the codec of results outside of any bubble of synctest, because the codec outlives the bubble.
func WarmCodec(t testing.TB) {
	t.Helper()
	p := effort.Must(ledger.EncodeResults([]ledger.Result{OneResult(0, smtp.Valid)}))(t)
	effort.OK(t, new(ledger.Batch).Decode(p.Bytes))
}

// Account reads the balance.
func (d *Fixture) Account() ledger.Balance {
	d.T.Helper()
	return effort.Must(d.Balance(d.T.Context(), d.Workspace))(d.T)
}

// Reads returns the results of a verification.
func (d *Fixture) Reads(id uuid.UUID) []ledger.Result {
	d.T.Helper()
	var list []ledger.Result
	effort.OK(d.T, d.Results(d.T.Context(), d.Workspace, id, func(r ledger.Result) error {
		list = append(list, r)
		return nil
	}))
	return list
}

// Exercise runs the suite, or some groups of it; open gives a new, empty book each time and closes it with the test.
// Closing a book twice must be harmless.
func Exercise(t *testing.T, open func(t *testing.T) ledger.Book, groups ...string) {
	for _, group := range []struct {
		name  string
		tests []exercise
	}{
		{"tenants", tenants}, {"uploads", uploads}, {"leases", leases}, {"intake", intake},
		{"settlements", settlements}, {"evidence", evidences}, {"cancel", cancels}, {"reading", readings}, {"sweep", sweeps},
		{"refusals", refusals}, {"limits", limits}, {"quotas", quotas}, {"repeats", repeats}, {"races", races},
		{"processes", processes}, {"facts", facts}, {"operators", operators}, {"outlooks", outlooks},
		{"people", people}, {"people sessions", peopleSessions}, {"single checks", singles},
		{"recent results", recents}, {"statements", statements},
	} {
		if len(groups) > 0 && !slices.Contains(groups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, e := range group.tests {
				t.Run(e.name, func(t *testing.T) {
					d := NewFixture(t, open(t), e.credits)
					e.run(d)
					d.Audits()
					effort.Is(t, d.AddsUp(2), "", "statement")
				})
			}
		})
	}
}

// exercise is one test on a fresh book with one workspace; the book is audited after it.
type exercise struct {
	name    string
	credits ledger.Credits
	run     func(d *Fixture)
}

// Audits fails the test for each violation.
func (d *Fixture) Audits() ledger.AuditReport {
	d.T.Helper()
	report := effort.Must(d.Audit(d.T.Context()))(d.T)
	for _, v := range report.Violations {
		d.T.Errorf("audit: %s of %s: %s", v.Invariant, v.Subject, v.Detail)
	}
	return report
}

// has fails the test unless the account is as given.
func (d *Fixture) has(granted, available, held, spent ledger.Credits) {
	d.T.Helper()
	want := ledger.Balance{Granted: granted, Available: available, Held: held, Spent: spent}
	effort.Is(d.T, d.Account(), want, "balance")
}

// is fails the test unless v is in the given state.
func (d *Fixture) is(v ledger.Verification, want ledger.State) {
	d.T.Helper()
	effort.Is(d.T, v.State(), want, "state")
	effort.Not(d.T, v.Status.Final(), v.Completed.IsZero(), v.Status, "with completed", v.Completed)
}

// ok ends the test on an error.
func (d *Fixture) ok(err error) {
	d.T.Helper()
	effort.OK(d.T, err)
}

// actsWhileItMay: every change of a session reads the session and the role in its own transaction.
func actsWhileItMay(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("first@acme.test", ledger.Owner)
	list := d.Creates(7)
	for _, c := range []struct {
		name string
		ends func(in ledger.SignedIn) error
		own  error // of a change that is in no workspace
		in   error
		file error // of the last bytes of an upload that they began
	}{
		{"nothing", func(ledger.SignedIn) error { return nil }, nil, nil, nil},
		{"disabled", func(in ledger.SignedIn) error { _, err := d.DisableUser(ctx, in.User.ID, true); return err },
			ledger.ErrNoSuchSession, ledger.ErrNoSuchSession, ledger.ErrNoSuchSession},
		{"signed out", func(in ledger.SignedIn) error { return d.EndSession(ctx, in.User.ID, in.Session.ID) },
			ledger.ErrNoSuchSession, ledger.ErrNoSuchSession, ledger.ErrNoSuchSession},
		{"a lower role", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, ledger.Member) },
			nil, ledger.ErrNotAllowed, nil},
		{"the lowest role", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, ledger.Viewer) },
			nil, ledger.ErrNotAllowed, ledger.ErrNotAllowed},
		{"no member", func(in ledger.SignedIn) error { return d.SetRole(ctx, d.Workspace, in.User.ID, "") },
			nil, ledger.ErrNotAllowed, ledger.ErrNotAllowed},
	} {
		in := d.Joins(uuid.NewString()+"@acme.test", ledger.Owner)
		as := ledger.WithActor(ctx, acts(in.User.ID))
		acting := ledger.Acting{Session: in.Session.ID, Idle: time.Hour}
		own := ledger.WithActing(as, acting)
		acting.Workspace, acting.Role = d.Workspace, ledger.Owner
		inside := ledger.WithActing(as, acting)
		file := effort.Must(effort.First(d.Create(as, d.Asks(7))))(d.T)
		d.ok(c.ends(in))
		u := effort.Must(d.OpenUpload(ctx, file.ID))(d.T)
		by, _ := ledger.UserOf(u.MadeBy)
		uploads := ledger.WithActing(ctx, ledger.Acting{User: by, Workspace: d.Workspace, Role: ledger.Member})
		u, err := d.AppendChunk(uploads, file.ID, u.Writer, 0, []byte("a@b.tst"))
		effort.ErrorIf(d.T, !errors.Is(err, c.file) || (u.Durable == 7) != (c.file == nil),
			"%s: an upload: %+v, %v; want %v", c.name, u, err, c.file)
		invitation := d.invitation(uuid.NewString()+"@acme.test", ledger.Owner)
		invitation.MadeBy = acts(in.User.ID)
		for what, change := range map[string]func(ctx context.Context) error{
			"key": func(ctx context.Context) error {
				_, err := d.CreateKey(ctx, ledger.Key{ID: uuid.NewString()[:12], Workspace: d.Workspace})
				return err
			},
			"invitation": func(ctx context.Context) error { _, err := d.MakeLink(ctx, invitation); return err },
			"role":       func(ctx context.Context) error { return d.SetRole(ctx, d.Workspace, uuid.New(), "") },
			"cancel":     func(ctx context.Context) error { _, err := d.Cancel(ctx, d.Workspace, list.ID); return err },
			"file":       func(ctx context.Context) error { _, _, err := d.Create(ctx, d.Asks(7)); return err },
			"log": func(ctx context.Context) error {
				return d.LogWorkspace(ctx, d.Workspace, ledger.WorkspaceLine{Action: "x"})
			},
		} {
			effort.ErrIs(d.T, change(inside), c.in, fmt.Sprintf("%s: %s", c.name, what))
		}
		d.refused(d.SetPassword(own, in.User.ID, "$argon2id$2", in.Session.ID), c.own)
	}
	in := d.Joins("idle@acme.test", ledger.Owner)
	d.nextMillisecond(in.Session.Seen)
	d.nextMillisecond(in.Session.Seen.Add(time.Millisecond))
	late := ledger.WithActing(ctx, ledger.Acting{Session: in.Session.ID, Idle: time.Millisecond})
	d.refused(d.EndSession(late, in.User.ID, in.Session.ID), ledger.ErrNoSuchSession)
}

// keysOfOwners: a key made by a user is suspended while they are disabled or no owner of its workspace.
func keysOfOwners(d *Fixture) {
	ctx := d.T.Context()
	d.Joins("first@acme.test", ledger.Owner)
	anna := d.Joins("anna@acme.test", ledger.Owner).User.ID
	by := ledger.WithActor(ctx, acts(anna))
	effort.Must(d.CreateKey(by, ledger.Key{ID: "abcdefghij12", Workspace: d.Workspace}))(d.T)
	effort.Must(d.CreateKey(ledger.WithActor(ctx, "operator"), ledger.Key{ID: "operator1234",
		Workspace: d.Workspace}))(d.T)
	works := func(when string, want bool) {
		d.T.Helper()
		k := effort.Must(d.KeyByID(ctx, "abcdefghij12"))(d.T)
		all := effort.Must(d.Keys(ctx, d.Workspace))(d.T)
		for _, l := range all {
			effort.ErrorIf(d.T, l.Works() != (want || l.ID != k.ID) || k.Works() != want,
				"%s: %s works: %v, %v; want %v", when, l.ID, l.Works(), k.Works(), want)
		}
	}
	disable := func(yes bool) { effort.Must(d.DisableUser(ctx, anna, yes))(d.T) }
	works("made", true)
	disable(true)
	works("disabled", false)
	disable(false)
	works("enabled", true)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ledger.Member))
	works("a member", false)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ledger.Owner))
	works("an owner again", true)
	d.ok(d.SetRole(ctx, d.Workspace, anna, ""))
	works("gone", false)
}

// invitedAgain: of two invitations of one person to one workspace the newer one can be used.
func invitedAgain(d *Fixture) {
	ctx := d.T.Context()
	elsewhere := d.other(d.T, 0)
	there := elsewhere.links(elsewhere.invitation("anna@acme.test", ledger.Member))
	first := d.links(d.invitation("anna@acme.test", ledger.Owner))
	second := d.links(d.invitation("Anna@acme.test", ledger.Viewer))
	denied(effort.First(d.LinkByID(ctx, first.ID)))(d, ledger.ErrNoSuchLink)
	for _, l := range []ledger.Link{second, there} {
		effort.Must(effort.First(d.LinkByID(ctx, l.ID)))(d.T)
	}
}
