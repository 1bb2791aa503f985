package http_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"rollcall/http/api"
)

// TestReadersSeeWhatWasWritten: what was written before a request is in its answer, whoever wrote it, while others
// write and read the same.
func TestReadersSeeWhatWasWritten(t *testing.T) {
	const turns, customers = 30, 4
	e := newEdge(t, nil)
	var granted atomic.Int64
	read := func(path string, into any) error {
		a, err := e.try(call{method: "GET", path: path})
		if err == nil && a.status != 200 {
			err = fmt.Errorf("%s is answered %d %s", path, a.status, a.body)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(a.body, into)
	}
	turn := func() error {
		var credits struct{ Credits int64 }
		if _, err := e.book.Grant(t.Context(), uuid.New(), e.workspace, 1, "test"); err != nil {
			return err
		}
		least := edgeCredits + granted.Add(1)
		if err := read("/v1/credits", &credits); err != nil || credits.Credits < least {
			return fmt.Errorf("%d credits after %d were granted, %v", credits.Credits, least, err)
		}
		made, err := e.try(call{method: "POST", path: "/v1/verifications", headers: creation(uuid.NewString(), "1")})
		var created api.Creation
		if err != nil || json.Unmarshal(made.body, &created) != nil {
			return fmt.Errorf("create is answered %d %s, %v", made.status, made.body, err)
		}
		id := created.ID
		var detail api.Detail
		for _, want := range []string{"uploading", "cancelled"} {
			if err := read("/v1/verifications/"+id, &detail); err != nil || detail.Status != want {
				return fmt.Errorf("detail says %q, want %q, %v", detail.Status, want, err)
			}
			var page api.History
			if err := read("/v1/verifications?limit=100", &page); err != nil {
				return err
			}
			shown := ""
			for _, v := range page.Verifications {
				if v.ID == id {
					shown = v.Status
				}
			}
			if shown != want {
				return fmt.Errorf("history says %q, want %q", shown, want)
			}
			if a, err := e.try(call{method: "POST", path: "/v1/verifications/" + id + "/cancel"}); err != nil || a.status != 200 {
				return fmt.Errorf("cancel is answered %d %s, %v", a.status, a.body, err)
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for range customers {
		wg.Go(func() {
			for range turns {
				if err := turn(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
