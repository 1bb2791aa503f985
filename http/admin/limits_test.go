package admin_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// TestLimitsOfAWorkspace are shown with what is used, changed one by one, and refused out of
// their bounds; what nobody set is the default of the node.
func TestLimitsOfAWorkspace(t *testing.T) {
	r := newRig(t)
	_, w := r.call("POST", "/v1/workspaces", `{"name":"Example"}`)
	id, _ := w["id"].(string)
	path := "/v1/workspaces/" + id + "/limits"
	_, _, err := r.book.Create(t.Context(), ledger.NewVerification{ID: uuid.New(), Workspace: uuid.MustParse(id),
		Identity: uuid.New(), Bytes: 7, BytesMax: 7, Limits: ledger.Limits{Open: 1, Stored: 7, Unpaid: 1}})
	if err != nil {
		t.Fatal(err)
	}
	shows := func(method, body, open, stored, unpaid string) {
		t.Helper()
		want := `{"id":"` + id + `","name":"Example","weight":1,"open":` + open + `,"stored":` + stored + `,"unpaid":` + unpaid + `}`
		status, text := r.raw(method, path, body, "Bearer "+r.token)
		if status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("%s %s: %d %s, want %s", method, body, status, text, want)
		}
	}
	open, stored, unpaid := `{"limit":5,"default":true,"used":1}`, `{"limit":6,"default":true,"used":7}`,
		`{"limit":7,"default":true,"used":1}`
	shows("GET", "", open, stored, unpaid)
	stored = `{"limit":100,"default":false,"used":7}`
	shows("POST", `{"stored":100,"reason":"contract"}`, open, stored, unpaid)
	shows("POST", `{"open":9007199254740992}`, `{"limit":9007199254740992,"default":false,"used":1}`, stored, unpaid)
	shows("POST", `{"open":0}`, open, stored, unpaid)
	for _, wrong := range []string{`{"open":-1}`, `{"stored":9007199254740993}`, `{"unpaid":"7"}`, `{"weight":7}`, ``,
		`{"open":1,"reason":"` + strings.Repeat("x", 201) + `"}`} {
		if status, out := r.call("POST", path, wrong); status != 400 {
			t.Errorf("%s: %d %v", wrong, status, out)
		}
	}
	shows("GET", "", open, stored, unpaid)
	for _, method := range []string{"GET", "POST"} {
		if status, _ := r.call(method, "/v1/workspaces/x/limits", `{}`); status != 400 {
			t.Errorf("%s of no id: %d", method, status)
		}
		if status, _ := r.call(method, "/v1/workspaces/"+uuid.NewString()+"/limits", `{}`); status != 404 {
			t.Errorf("%s of nobody: %d", method, status)
		}
	}
}
