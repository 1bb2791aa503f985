package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
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
)

// TestEvidenceThatIsNotThere: the answer says what to do, and no log contains an address.
func TestEvidenceThatIsNotThere(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *admin.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	d := ledgertest.NewFixture(t, r.book, 50)
	done, l := d.Prepares(1)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	running, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	refused := func(id, address string, want int, code, words string) {
		t.Helper()
		body := effort.Must(json.Marshal(map[string]string{"address": address}))(t)
		status, text := r.ask("POST", "/v1/verifications/"+id+"/evidence", string(body))
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

// nobodyWorks is an inspector of nodes that work on no verification.
type nobodyWorks struct{ *fakeInspector }

func (nobodyWorks) Verification(context.Context, string) (inspect.Verification, error) {
	return inspect.Verification{}, &inspect.Unreachable{Silent: []inspect.UnreachableNode{{Node: "node-2", Why: "lost"}}}
}

// TestWhyNobodyWorksOnAVerification: the ledger gives the reason, in each state of a verification.
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
	told(v.ID, ledger.Verifying, 4, 3, "no node that answers is working on it", "stays unreachable, another node takes it",
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
