package evidence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// seenAt is when everything of these tests was answered.
var seenAt = time.Date(2026, 11, 20, 20, 15, 0, 123e6, time.UTC)

// answered is an attempt at RCPT, judged by the rules of now.
func answered(code int, enhanced smtp.EnhancedCode, text string) smtpevidence.Attempt {
	a := smtpevidence.Attempt{At: seenAt, Stage: smtp.StageRcpt, Host: "mx.example.test", Source: "192.0.2.7",
		TLS: true, Code: code, Enhanced: enhanced, Text: text}
	verdict.Builtin().Decide(&a)
	return a
}

func everyCase() []smtpevidence.Case {
	missing := answered(550, smtp.EnhancedCode{5, 1, 1}, "user unknown")
	before := missing // as older rules took it: for a policy
	before.Outcome, before.Reason, before.Blame = smtp.Undecided, smtp.Policy, smtp.BlameNobody
	before.Rule, before.Version = "older", 1
	accepted := answered(250, smtp.EnhancedCode{}, "ok")
	busy := smtpevidence.Attempt{At: seenAt, Stage: smtp.StageConnect, Host: "mx.example.test",
		Trouble: smtpevidence.TroubleTimeout}
	verdict.Builtin().Decide(&busy)
	return []smtpevidence.Case{
		{Attempts: []smtpevidence.Attempt{missing}, Hosts: 2},
		{Attempts: []smtpevidence.Attempt{accepted}, Hosts: 1, Behaviour: smtpevidence.AcceptBehaviour{Accepted: 3,
			First: seenAt.Add(-17 * time.Second), Last: seenAt,
			Controls: []smtpevidence.Attempt{accepted, accepted, accepted}}},
		{Attempts: []smtpevidence.Attempt{busy, busy}, Omitted: 7, Hosts: 1, GaveUp: true},
		{NoRoute: smtp.DomainNotFound},
		{Attempts: []smtpevidence.Attempt{before}, Hosts: 1, GaveUp: true},
		{Attempts: []smtpevidence.Attempt{accepted}, Behaviour: smtpevidence.AcceptBehaviour{Refused: 1,
			First: seenAt, Last: seenAt, Controls: []smtpevidence.Attempt{missing}}},
		{Attempts: []smtpevidence.Attempt{missing}, Hosts: 1}, // settled as mailbox_full: not by this
	}
}

// settlesCases settles a file of 8 with these cases, in two settlements, and its last address without evidence.
func settlesCases(d *ledgertest.Fixture, cases []smtpevidence.Case) ledger.Verification {
	d.T.Helper()
	v, l := d.Prepares(int64(len(cases) + 1))
	first := ledger.Settlement{Lease: l, Number: 1}
	var entries []smtpevidence.Entry
	for i, c := range cases {
		r := ledgertest.OneResult(int64(i), smtp.Valid)
		r.Outcome, r.Reason = verdict.Conclude(c)
		if i == 6 {
			r.Reason = smtp.MailboxFull
		}
		first.Results = append(first.Results, r)
		entries = append(entries, smtpevidence.Entry{Ordinal: int64(i), Case: c})
	}
	first.Results[3].Email = "Mixed.Case@EXAMPLE.test"
	var err error
	if first.Evidence, err = smtpevidence.Pack(entries); err == nil {
		_, err = d.Settle(d.T.Context(), first)
	}
	effort.OK(d.T, err)
	d.Settles(l, 2, int64(len(cases)), int64(len(cases)), smtp.Valid)
	return v
}

func newFixture(t *testing.T, credits ledger.Credits) *ledgertest.Fixture {
	t.Helper()
	book := effort.Must(sqlstore.Open(t.Context(), effort.Ledger(t, sqlstore.Migrate), sqlstore.Options{}))(t)
	t.Cleanup(func() { effort.OK(t, book.Close()) })
	return ledgertest.NewFixture(t, book, credits)
}

// TestReplayListsWhatWouldChange: it lists the addresses whose verdict would change; with All, every address.
func TestReplayListsWhatWouldChange(t *testing.T) {
	d := newFixture(t, 50)
	v := settlesCases(d, everyCase())
	before, stood := d.Account(), d.Sees(v.ID)
	replays := func(all bool) (lines []evidence.Replayed, summary evidence.ReplaySummary) {
		summary = effort.Must(evidence.Replay(t.Context(), d, v.ID, evidence.ReplayQuery{
			Rules: verdict.Builtin(), All: all,
			Yield: func(one evidence.Replayed) error { lines = append(lines, one); return nil }}))(t)
		return lines, summary
	}
	lines, summary := replays(false)
	effort.MustBe(t, len(lines), 2, lines)
	changed := lines[0]
	effort.Is(t, changed.Before.Rule, "older@00000001", "rules", changed)
	effort.Has(t, changed.After.Rule, "@", "rules", changed)
	changed.Before.Rule, changed.After.Rule = "", ""
	want := evidence.Replayed{Ordinal: 4, Address: "user4@example.test",
		Before: evidence.Judged{Verdict: evidence.Verdict{Outcome: "unknown", Reason: "policy"}},
		After:  evidence.Judged{Verdict: evidence.Verdict{Outcome: "invalid", Reason: "mailbox_not_found"}}}
	effort.Is(t, changed, want, lines[1])
	effort.Is(t, lines[1].Ordinal, 6)
	wants := evidence.ReplaySummary{Verification: v.ID, Status: ledger.Completed, Addresses: 8, Replayed: 7,
		Same: 5, Outcomes: 1, Reasons: 1, Unexplained: 1,
		Changes: []evidence.Change{{Before: "unknown", After: "invalid", Count: 1}}}
	effort.Same(t, summary, wants)
	if lines, _ := replays(true); len(lines) != 7 {
		t.Errorf("all: %+v", lines)
	}
	after := d.Account()
	effort.ErrorIf(t, after != before || d.Sees(v.ID) != stood, "a replay changed the book: %+v, %+v", before, after)
}

// TestReplayEndsWithItsReader: an error of yield comes back, and so does the end of
// the context; cases that were not settled are damage.
func TestReplayEndsWithItsReader(t *testing.T) {
	d := newFixture(t, 50)
	v := settlesCases(d, everyCase())
	enough, n := errors.New("enough"), 0
	q := evidence.ReplayQuery{Rules: verdict.Builtin(), All: true,
		Yield: func(evidence.Replayed) error { n++; return enough }}
	_, err := evidence.Replay(t.Context(), d, v.ID, q)
	effort.ErrorIf(t, !errors.Is(err, enough) || n != 1, "%d calls, %v", n, err)
	ctx, cancel := context.WithCancel(t.Context())
	q.Yield = func(evidence.Replayed) error { cancel(); return nil }
	effort.Denied(evidence.Replay(ctx, d, v.ID, q))(t, context.Canceled, "cancelled")
	_, l := d.Prepares(3)
	s := ledgertest.Batch(l, 1, 0, 1, smtp.Valid)
	for name, ordinals := range map[string][]int64{"of another settlement": {2}, "twice": {1, 1}} {
		var entries []smtpevidence.Entry
		for _, o := range ordinals {
			entries = append(entries, smtpevidence.Entry{Ordinal: o, Case: everyCase()[0]})
		}
		packed := effort.Must(smtpevidence.Pack(entries))(t)
		s.Evidence = packed
		q.Yield = func(evidence.Replayed) error { return nil }
		effort.Denied(evidence.Replay(t.Context(), one{s: s}, v.ID, q))(t, smtpevidence.ErrPacked, name)
	}
}

// TestAnAddressIsFoundBySpellingsOfItsDomain: other spellings of its local part don't find it.
func TestAnAddressIsFoundBySpellingsOfItsDomain(t *testing.T) {
	d := newFixture(t, 9)
	v, l := d.Prepares(3)
	s := ledgertest.Batch(l, 1, 0, 2, smtp.Valid)
	s.Results[0].Email, s.Results[1].Email = "Anna@xn--bcher-kva.example", "no address at all"
	effort.Must(d.Settle(t.Context(), s))(t)
	for address, want := range map[string]int64{"Anna@bücher.example": 0, "Anna@BÜCHER.Example": 0,
		"anna@bücher.example": -1, "no address at all": 1, "user2@example.test": 2, "xuser2@example.test": -1} {
		f, err := evidence.Find(t.Context(), d, v.ID, address)
		effort.ErrorIf(t, want < 0 && !errors.Is(err, evidence.ErrNotSettled) || want >= 0 &&
			(err != nil || f.Result.Ordinal != want), "%s: got %+v, %v, want %d", address, f, err, want)
	}
}

// one is a ledger of one settlement.
type one struct {
	ledger.Book
	s ledger.Settlement
}

func (o one) Evidence(_ context.Context, _ uuid.UUID, _ int64, yield func(ledger.StoredSettlement) error) (
	ledger.Verification, error) {
	p, err := ledger.EncodeResults(o.s.Results)
	var batch ledger.Batch
	if err == nil {
		err = batch.Decode(p.Bytes)
	}
	if err == nil {
		err = yield(ledger.StoredSettlement{Number: 1, Results: &batch, Evidence: o.s.Evidence})
	}
	return ledger.Verification{}, err
}

// TestWhatIsPackedFitsTheLedger: the bounds of the two agree.
func TestWhatIsPackedFitsTheLedger(t *testing.T) {
	effort.ErrorIf(t, smtpevidence.PackedMax > ledger.EvidenceMax,
		"%d bytes may be packed, %d are kept", smtpevidence.PackedMax, ledger.EvidenceMax)
}
