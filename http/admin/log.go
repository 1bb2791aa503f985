package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/view"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// LogPage is one page of the operator log, newest first.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  *LogPlace `json:"next"` // of the next page; null at the end
}

// shownName is what was changed as people are shown it.
func shownName(name string) string {
	if name == throttle.SourcePrefix {
		return name + view.DefaultSource
	}
	return name
}

// LogPlace is where a page begins: before and after of the call.
type LogPlace struct {
	Before api.Time  `json:"before"`
	After  uuid.UUID `json:"after"`
}

// LogLine is one change that somebody made.
type LogLine struct {
	ID        uuid.UUID  `json:"id"`
	At        api.Time   `json:"at"`
	Action    string     `json:"action"`
	Author    string     `json:"author"`              // as they named themselves; "": nobody did
	Workspace *uuid.UUID `json:"workspace,omitempty"` // it concerns
	Subject   string     `json:"subject"`
	Old       string     `json:"old"`
	New       string     `json:"new"`
	Reason    string     `json:"reason"`
}

func (s *Server) operatorLog(w http.ResponseWriter, r *http.Request) {
	q, err := logQuery(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), ledgerTimeout)
	defer cancel()
	found, err := s.desk.Log(ctx, q)
	if err != nil {
		answer(w, nil, err)
		return
	}
	out := LogPage{Lines: []LogLine{}}
	for _, l := range found {
		shown := LogLine{ID: l.ID, At: api.Time(l.At), Action: l.Action, Author: l.Author, Subject: shownName(l.Subject),
			Old: l.Old, New: l.New, Reason: l.Reason}
		if l.Workspace != uuid.Nil {
			shown.Workspace = &l.Workspace
		}
		out.Lines = append(out.Lines, shown)
	}
	if n := len(found); n == q.Limit {
		out.Next = &LogPlace{api.Time(found[n-1].At), found[n-1].ID}
	}
	writeJSON(w, http.StatusOK, out)
}

// logQuery reads ?before=, ?after= and ?limit=; an error is for the caller.
func logQuery(r *http.Request) (q ledger.LogQuery, err error) {
	values := r.URL.Query()
	q.Limit = entriesShown
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > ledger.LogLinesMax {
			return q, fmt.Errorf("limit must be a whole number from 1 to %d", ledger.LogLinesMax)
		}
	}
	if text := values.Get("before"); text != "" {
		if q.Before, err = time.Parse(time.RFC3339, text); err != nil {
			return q, errors.New("before must be a time such as 2026-11-21T20:15:00.000Z")
		}
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = uuid.Parse(text); err != nil || q.Before.IsZero() {
			return q, errors.New("before and after must be those of the next of an answer, as they are")
		}
	}
	return q, nil
}

// line is what is noted of a change that the ledger does not make itself.
func line(action, subject, now string) ledger.LogLine {
	return ledger.LogLine{Action: action, Subject: cut(subject), New: cut(now)}
}

// cut shortens a text to what the operator log takes.
func cut(text string) string {
	if len(text) > ledger.OperatorTextMax {
		text = strings.ToValidUTF8(text[:ledger.OperatorTextMax], "")
	}
	return text
}
