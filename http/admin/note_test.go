package admin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// closedLog is a ledger that takes no line of the operator log.
type closedLog struct{ *sickBook }

func (closedLog) Note(context.Context, ledger.LogLine) error { return errors.New("the log is closed") }

// TestTheLogOfTheNodeHasNoEmail when the ledger does not take a line of the operator log. What is no email it has.
func TestTheLogOfTheNodeHasNoEmail(t *testing.T) {
	var logs bytes.Buffer
	var service *admin.Service
	r := newRig(t, func(o *admin.Options) {
		o.Book, o.PagesURL = closedLog{o.Book.(*sickBook)}, func() string { return "https://rollcall.test" }
		o.Inspector = &fakeInspector{}
		o.Log = slog.New(slog.NewTextHandler(&logs, nil))
		o.Pages = func(d *admin.Service) admin.Pages { service = d; return nil }
	})
	w := effort.Must(r.book.CreateWorkspace(t.Context(), uuid.New(), "acme"))(t)
	const email = "anna@acme.test"
	for _, c := range []struct {
		action string
		do     func() error
	}{
		{"user invite", func() error {
			link, err := service.Invite(t.Context(), admin.InviteCall{Workspace: w.ID, Email: email, Role: ledger.Viewer})
			if err != nil {
				return err
			}
			id, _ := signin.Token(link.URL[strings.LastIndex(link.URL, "/")+1:]).Hash()
			_, err = r.book.AcceptLink(t.Context(), ledger.Accept{Link: id, User: uuid.New(), Password: "x",
				Session: ledger.NewSession{ID: ledger.Hash{1}, Life: time.Hour}})
			return err
		}},
		{"user password link", func() error { _, err := service.MakePasswordLink(t.Context(), email); return err }},
		{"user end-sessions", func() error { _, _, err := service.EndSessions(t.Context(), email); return err }},
		{"user end-two-step", func() error { _, err := service.ResetTOTP(t.Context(), email); return err }},
		{"user disable", func() error { _, err := service.DisableUser(t.Context(), email, true); return err }},
		{"session close", func() error {
			return service.CloseSession(t.Context(), admin.CloseCall{Key: "mx.big.test", Session: 1})
		}},
	} {
		logs.Reset()
		effort.OK(t, c.do())
		effort.ErrorIf(t, !strings.Contains(logs.String(), "operator log not written") ||
			!strings.Contains(logs.String(), `action="`+c.action+`"`) || strings.Contains(logs.String(), "anna"),
			"%s: the log of the node says %s", c.action, &logs)
	}
	effort.Has(t, logs.String(), "subject=mx.big.test", "the log of the node")
}
