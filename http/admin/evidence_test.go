package admin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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

// judgedBefore is an attempt as older rules took it: for a policy.
func judgedBefore(a evidence.Attempt) evidence.Attempt {
	a.Outcome, a.Reason, a.Blame, a.Rule, a.Version = smtp.Undecided, smtp.Policy, smtp.BlameNobody, "older", 1
	return a
}

func everyCase() []evidence.Case {
	missing := answered(550, smtp.EnhancedCode{5, 1, 1}, "user unknown")
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
		{Attempts: []evidence.Attempt{judgedBefore(missing)}, Hosts: 1, GaveUp: true},
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
		if status != want || !strings.Contains(text, `"`+code+`"`) || !strings.Contains(text, words) {
			t.Errorf("%s: %d %s", address, status, text)
		}
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
	sent(r.raw("POST", path, `{"address":"a@b.test"}`, "")).is(t, 401, "without the token")
	damaged := ledgertest.Batch(l, 2, 1, 1, smtp.Valid)
	damaged.Evidence = []byte("no cases")
	effort.Must(d.Settle(t.Context(), damaged))(t)
	refused(running.ID.String(), "user1@example.test", 500, "damaged", "rollcall audit")
	if text := log.String(); strings.Contains(text, "@") || !strings.Contains(text, "cannot be read") {
		t.Errorf("log: %s", text)
	}
}

// TestAnAddressIsFoundBySpellingsOfItsDomain, and not by those of its local part.
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
		if want < 0 && !errors.Is(err, admin.ErrNotSettled) || want >= 0 && (err != nil || f.Result.Ordinal != want) {
			t.Errorf("%s: got %+v, %v, want %d", address, f, err, want)
		}
	}
}

// TestWhatIsPackedFitsTheLedger: the bounds of the two agree.
func TestWhatIsPackedFitsTheLedger(t *testing.T) {
	if evidence.PackedMax > ledger.EvidenceMax {
		t.Errorf("%d bytes may be packed, %d are kept", evidence.PackedMax, ledger.EvidenceMax)
	}
}
