package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// seenAt is when everything of these tests was answered.
var seenAt = time.Date(2026, 11, 20, 20, 15, 0, 123e6, time.UTC)

// answered is an attempt at RCPT, judged by the rules of now.
func answered(code int, enhanced smtp.EnhancedCode, text string) evidence.Attempt {
	a := evidence.Attempt{At: seenAt, Stage: smtp.StageRcpt, Host: "mx.example.test", Source: "192.0.2.7",
		TLS: true, Code: code, Enhanced: enhanced, Text: text}
	verdict.Builtin().Decide(&a)
	return a
}

func everyCase() []evidence.Case {
	missing := answered(550, smtp.EnhancedCode{5, 1, 1}, "user unknown")
	before := missing // as older rules took it: for a policy
	before.Outcome, before.Reason, before.Blame = smtp.Undecided, smtp.Policy, smtp.BlameNobody
	before.Rule, before.Version = "older", 1
	accepted := answered(250, smtp.EnhancedCode{}, "ok")
	busy := evidence.Attempt{At: seenAt, Stage: smtp.StageConnect, Host: "mx.example.test",
		Trouble: evidence.TroubleTimeout}
	verdict.Builtin().Decide(&busy)
	return []evidence.Case{
		{Attempts: []evidence.Attempt{missing}, Hosts: 2},
		{Attempts: []evidence.Attempt{accepted}, Hosts: 1, Behaviour: evidence.AcceptBehaviour{Accepted: 3,
			First: seenAt.Add(-17 * time.Second), Last: seenAt,
			Controls: []evidence.Attempt{accepted, accepted, accepted}}},
		{Attempts: []evidence.Attempt{busy, busy}, Omitted: 7, Hosts: 1, GaveUp: true},
		{NoRoute: smtp.DomainNotFound},
		{Attempts: []evidence.Attempt{before}, Hosts: 1, GaveUp: true},
		{Attempts: []evidence.Attempt{accepted}, Behaviour: evidence.AcceptBehaviour{Refused: 1, First: seenAt, Last: seenAt,
			Controls: []evidence.Attempt{missing}}},
		{Attempts: []evidence.Attempt{missing}, Hosts: 1}, // settled as mailbox_full: not by this
	}
}

// settlesCases settles a file of 8 with these cases, in two settlements, and its last address without evidence.
func settlesCases(d *ledgertest.Fixture, cases []evidence.Case) ledger.Verification {
	d.T.Helper()
	v, l := d.Prepares(int64(len(cases) + 1))
	first := ledger.Settlement{Lease: l, Number: 1}
	var entries []evidence.Entry
	for i, c := range cases {
		r := ledgertest.OneResult(int64(i), smtp.Valid)
		r.Outcome, r.Reason = verdict.Conclude(c)
		if i == 6 {
			r.Reason = smtp.MailboxFull
		}
		first.Results = append(first.Results, r)
		entries = append(entries, evidence.Entry{Ordinal: int64(i), Case: c})
	}
	first.Results[3].Email = "Mixed.Case@EXAMPLE.test"
	var err error
	if first.Evidence, err = evidence.Pack(entries); err == nil {
		_, err = d.Settle(d.T.Context(), first)
	}
	effort.OK(d.T, err)
	d.Settles(l, 2, int64(len(cases)), int64(len(cases)), smtp.Valid)
	return v
}

func (r *rig) findsEvidence(id, address string) (int, admin.Explanation, string) {
	r.t.Helper()
	body := effort.Must(json.Marshal(map[string]string{"address": address}))(r.t)
	status, text := r.ask("POST", "/v1/verifications/"+id+"/evidence", string(body))
	var f admin.Explanation
	if status == 200 {
		effort.OK(r.t, json.Unmarshal([]byte(text), &f), text)
	}
	return status, f, text
}

// TestEvidenceThatIsNotThere: what to do is said, and an address is in no log.
func TestEvidenceThatIsNotThere(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *admin.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	d := ledgertest.NewFixture(t, r.book, 50)
	done := settlesCases(d, everyCase())
	running, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	refused := func(id, address string, want int, code, words string) {
		t.Helper()
		status, _, text := r.findsEvidence(id, address)
		effort.ErrorIf(t, status != want || !strings.Contains(text, `"`+code+`"`) || !strings.Contains(text, words),
			"%s: %d %s", address, status, text)
	}
	refused(done.ID.String(), "USER0@example.test", 404, "address_not_found", "the verification is completed")
	refused(done.ID.String(), "nobody", 404, "address_not_found", "compare the spelling")
	refused(running.ID.String(), "user1@example.test", 404, "address_not_settled", "ask again later")
	refused(uuid.NewString(), "a@b.test", 404, "verification_not_found", "no such verification")
	refused("1", "a@b.test", 400, "invalid_request", "UUID")
	refused(done.ID.String(), "", 400, "invalid_request", "address")
	effort.Must(r.book.Sweep(t.Context(), ledger.Retention{Results: time.Nanosecond}))(t)
	refused(done.ID.String(), "user0@example.test", 410, "expired", "erased")
	path := "/v1/verifications/" + done.ID.String() + "/evidence"
	sent(r.raw("POST", path, `{"address":"a@b.test"}`, "")).Is(t, 401, "without the token")
	damaged := ledgertest.Batch(l, 2, 1, 1, smtp.Valid)
	damaged.Evidence = []byte("no cases")
	effort.Must(d.Settle(t.Context(), damaged))(t)
	refused(running.ID.String(), "user1@example.test", 500, "damaged", "rollcall audit")
	text := log.String()
	effort.ErrorIf(t, strings.Contains(text, "@") || !strings.Contains(text, "cannot be read"), "log: %s", text)
}

// TestReplayListsWhatWouldChange: it lists the addresses whose verdict would change; with All, every address.
func TestReplayListsWhatWouldChange(t *testing.T) {
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 50)
	v := settlesCases(d, everyCase())
	before, stood := d.Account(), d.Sees(v.ID)
	replays := func(all bool) (lines []admin.Replayed, summary admin.ReplaySummary) {
		summary = effort.Must(admin.ReplayEvidence(t.Context(), r.book, v.ID, admin.ReplayQuery{
			Rules: verdict.Builtin(), All: all,
			Yield: func(one admin.Replayed) error { lines = append(lines, one); return nil }}))(t)
		return lines, summary
	}
	lines, summary := replays(false)
	effort.MustBe(t, len(lines), 2, lines)
	changed := lines[0]
	effort.Is(t, changed.Before.Rule, "older@00000001", "rules", changed)
	effort.Has(t, changed.After.Rule, "@", "rules", changed)
	changed.Before.Rule, changed.After.Rule = "", ""
	want := admin.Replayed{Ordinal: 4, Address: "user4@example.test",
		Before: admin.Judged{Verdict: admin.Verdict{Outcome: "unknown", Reason: "policy"}},
		After:  admin.Judged{Verdict: admin.Verdict{Outcome: "invalid", Reason: "mailbox_not_found"}}}
	effort.Is(t, changed, want, lines[1])
	effort.Is(t, lines[1].Ordinal, 6)
	wants := admin.ReplaySummary{Verification: v.ID, Status: ledger.Completed, Addresses: 8, Replayed: 7,
		Same: 5, Outcomes: 1, Reasons: 1, Unexplained: 1,
		Changes: []admin.Change{{Before: "unknown", After: "invalid", Count: 1}}}
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
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 50)
	v := settlesCases(d, everyCase())
	enough, n := errors.New("enough"), 0
	q := admin.ReplayQuery{Rules: verdict.Builtin(), All: true,
		Yield: func(admin.Replayed) error { n++; return enough }}
	_, err := admin.ReplayEvidence(t.Context(), r.book, v.ID, q)
	effort.ErrorIf(t, !errors.Is(err, enough) || n != 1, "%d calls, %v", n, err)
	ctx, cancel := context.WithCancel(t.Context())
	q.Yield = func(admin.Replayed) error { cancel(); return nil }
	effort.Denied(admin.ReplayEvidence(ctx, r.book, v.ID, q))(t, context.Canceled, "cancelled")
	_, l := d.Prepares(3)
	s := ledgertest.Batch(l, 1, 0, 1, smtp.Valid)
	for name, ordinals := range map[string][]int64{"of another settlement": {2}, "twice": {1, 1}} {
		var entries []evidence.Entry
		for _, o := range ordinals {
			entries = append(entries, evidence.Entry{Ordinal: o, Case: everyCase()[0]})
		}
		packed := effort.Must(evidence.Pack(entries))(t)
		s.Evidence = packed
		q.Yield = func(admin.Replayed) error { return nil }
		effort.Denied(admin.ReplayEvidence(t.Context(), one{s: s}, v.ID, q))(t, evidence.ErrPacked, name)
	}
}

// TestAnAddressIsFoundBySpellingsOfItsDomain: other spellings of its local part don't find it.
func TestAnAddressIsFoundBySpellingsOfItsDomain(t *testing.T) {
	r := newRig(t)
	d := ledgertest.NewFixture(t, r.book, 9)
	v, l := d.Prepares(3)
	s := ledgertest.Batch(l, 1, 0, 2, smtp.Valid)
	s.Results[0].Email, s.Results[1].Email = "Anna@xn--bcher-kva.example", "no address at all"
	effort.Must(d.Settle(t.Context(), s))(t)
	for address, want := range map[string]int64{"Anna@bücher.example": 0, "Anna@BÜCHER.Example": 0,
		"anna@bücher.example": -1, "no address at all": 1, "user2@example.test": 2, "xuser2@example.test": -1} {
		f, err := admin.FindEvidence(t.Context(), r.book, v.ID, address)
		effort.ErrorIf(t, want < 0 && !errors.Is(err, admin.ErrNotSettled) || want >= 0 &&
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
	effort.ErrorIf(t, evidence.PackedMax > ledger.EvidenceMax,
		"%d bytes may be packed, %d are kept", evidence.PackedMax, ledger.EvidenceMax)
}

// nobodyWorks is an inspector of nodes that work on no verification.
type nobodyWorks struct{ *fakeInspector }

func (nobodyWorks) Verification(context.Context, string) (inspect.Verification, error) {
	return inspect.Verification{}, &inspect.Unreachable{Silent: []inspect.UnreachableNode{{Node: "node-2", Why: "lost"}}}
}

// TestWhyNobodyWorksOnAVerification is told from the ledger, in each of its states.
func TestWhyNobodyWorksOnAVerification(t *testing.T) {
	r := newThrottleRig(t, func(o *admin.Options) { o.Inspector = nobodyWorks{} })
	d := ledgertest.NewFixture(t, r.book, 5)
	told := func(id uuid.UUID, status ledger.Status, total, final int64, words ...string) {
		t.Helper()
		code, text := r.ask("GET", "/v1/verifications/"+id.String()+"/waits", "")
		var v inspect.Verification
		err := json.Unmarshal([]byte(text), &v)
		effort.ErrorIf(t, err != nil || code != 200 || v.Status != string(status) || v.Total != total ||
			v.Final != final || v.ID != id.String() || v.Workspace != d.Workspace.String() || v.Waits == nil ||
			v.Node != "" || v.At.IsZero(), "%s: %d %v %s", status, code, err, text)
		for _, w := range words {
			effort.Has(t, v.Why, w, status)
		}
	}
	uploading := d.Creates(700)
	effort.Must(d.OpenUpload(t.Context(), uploading.ID))(t)
	told(uploading.ID, ledger.Uploading, 0, 0, "0 of 700 bytes", "can continue until ")
	preparing := d.Uploads()
	told(preparing.ID, ledger.Preparing, 0, 0, "being read", "no node works on it yet")
	poor, _ := d.Prepares(7)
	told(poor.ID, ledger.Waiting, 7, 0, "needs 7", "5 available", "rollcall credits grant")
	v, l := d.Prepares(4)
	d.Settles(l, 1, 0, 2, smtp.Valid)
	told(v.ID, ledger.Verifying, 4, 3, "no node that answers is working on it", "stays unreachable, another one takes it",
		"without an answer are node-2 (lost)")
	next := time.Now().Add(time.Hour)
	effort.Must(d.Wait(t.Context(), l, ledger.Estimate{Next: next}))(t)
	effort.OK(t, d.Release(t.Context(), l))
	told(v.ID, ledger.Waiting, 4, 3, "no node that answers is working on it; no node works on it yet")
	l = d.Takes(v.ID)
	d.Settles(l, 2, 3, 3, smtp.Unknown)
	told(v.ID, ledger.Completed, 4, 4, "nothing waits", "3 valid", "1 unknown")
	parked, l := d.Prepares(1)
	effort.Must(d.Park(t.Context(), l, ledger.Estimate{Next: next}, []byte("state")))(t)
	told(parked.ID, ledger.Waiting, 1, 0, "waits in the ledger", "before ")
	code, text := r.ask("GET", "/v1/verifications/"+parked.ID.String()+"/waits", "")
	effort.Is(t, code, 200, "what a parked one waits for")
	effort.Has(t, text, `"addresses":1,"for":"retry"`, "what a parked one waits for")
	effort.Must(d.Cancel(t.Context(), d.Workspace, uploading.ID))(t)
	told(uploading.ID, ledger.Cancelled, 0, 0, "it ended at")
	effort.Must(r.book.Sweep(t.Context(), ledger.Retention{Results: time.Nanosecond}))(t)
	told(v.ID, ledger.Completed, 4, 4, "3 valid", "results were erased")
	code, text = r.ask("GET", "/v1/verifications/"+uuid.NewString()+"/waits", "")
	effort.Is(t, code, 404, "an unknown id")
	effort.Has(t, text, "there is no verification with this id", "an unknown id")
}
