package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/ledger"
)

// entriesShown is the number of entries in an answer when no limit is asked for: a screen.
const entriesShown = 50

// statement is what moved the credits of one verification.
type statement struct {
	Verification uuid.UUID      `json:"verification"`
	Status       ledger.Status  `json:"status"`
	Addresses    int64          `json:"addresses"` // -1 until they are counted
	Held         ledger.Credits `json:"held"`      // by its entries: ever
	Charged      ledger.Credits `json:"charged"`
	Released     ledger.Credits `json:"released"`
	StillHeld    ledger.Credits `json:"still_held"` // by its row: what the three leave, or the books are off
	Count        int64          `json:"count"`      // of all entries
	Entries      []entry        `json:"entries"`    // newest first
	Next         *string        `json:"next"`       // "after" of the next page; null at the end
}

// entry is one line of the book.
type entry struct {
	At         api.Time         `json:"at"`
	Kind       ledger.EntryKind `json:"kind"`
	Settlement *int64           `json:"settlement"` // null: moved by no settlement
	Credits    ledger.Credits   `json:"credits"`
}

func (s *Server) entries(w http.ResponseWriter, r *http.Request) {
	workspace, ok := workspaceID(w, r)
	if !ok {
		return
	}
	q, err := entriesQuery(r, workspace)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	found, err := s.desk.ReadEntries(r.Context(), q)
	answer(w, newStatement(found), err)
}

// entriesQuery reads the path and ?limit= and ?after=; an error is for the caller.
func entriesQuery(r *http.Request, workspace uuid.UUID) (q EntriesCall, err error) {
	q = EntriesCall{Workspace: workspace, Limit: entriesShown}
	if q.Verification, err = uuid.Parse(r.PathValue("verification")); err != nil {
		return q, errors.New("the verification id must be a UUID")
	}
	values := r.URL.Query()
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > ledger.EntriesMax {
			return q, fmt.Errorf("limit must be a whole number from 1 to %d", ledger.EntriesMax)
		}
	}
	q.After = values.Get("after")
	return q, nil
}

// place writes where an entry stands.
func place(e ledger.Entry) string { return fmt.Sprintf("%d.%d.%s", e.At.UnixMilli(), e.Number, e.Kind) }

// parsePlace reads what place wrote.
func parsePlace(text string) (*ledger.Entry, error) {
	var ms int64
	var e ledger.Entry
	if _, err := fmt.Sscanf(text, "%d.%d.%s", &ms, &e.Number, &e.Kind); err != nil {
		return nil, err
	}
	if !new(ledger.Sums).Add(e.Kind, 0) {
		return nil, fmt.Errorf("no entry is of kind %q", e.Kind)
	}
	e.At = time.UnixMilli(ms)
	return &e, nil
}

// newStatement shows one page of what the ledger found.
func newStatement(s EntriesPage) statement {
	out := statement{Verification: s.Verification.ID, Status: s.Verification.Status,
		Addresses: s.Verification.Total, Held: s.Sums.Held, Charged: s.Sums.Charged, Released: s.Sums.Released,
		StillHeld: s.Verification.Held, Count: s.Count, Entries: make([]entry, len(s.Entries))}
	for i, e := range s.Entries {
		out.Entries[i] = entry{At: api.Time(e.At), Kind: e.Kind, Credits: e.Amount}
		if e.Number > 0 {
			out.Entries[i].Settlement = &s.Entries[i].Number
		}
	}
	if s.Next != "" {
		out.Next = &s.Next
	}
	return out
}
