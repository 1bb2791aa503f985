package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

// LogPage is one page of the operator log, newest first.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  *LogPlace `json:"next"` // of the next page; null at the end
}

// shownName names, for people, what was changed.
func shownName(name string) string {
	if name == throttle.SourcePrefix {
		return name + inspect.DefaultSource
	}
	return name
}

// LogPlace is the beginning of a page: before and after of the call.
type LogPlace struct {
	Before api.Time  `json:"before"`
	After  uuid.UUID `json:"after"`
}

// LogLine is one change.
type LogLine struct {
	ID        uuid.UUID  `json:"id"`
	At        api.Time   `json:"at"`
	Action    string     `json:"action"`
	Author    string     `json:"author"`              // the author's own name; "": none given
	Workspace *uuid.UUID `json:"workspace,omitempty"` // it concerns
	Subject   string     `json:"subject"`
	Old       string     `json:"old"`
	New       string     `json:"new"`
	Reason    string     `json:"reason"`
}

// Log gives one page of the operator log, newest first.
func (d nodeOps) Log(ctx context.Context, q ledger.LogQuery) ([]ledger.LogLine, error) {
	return askLedger(ctx, d.common, "list the operator log", func(ctx context.Context) ([]ledger.LogLine, error) {
		return d.options.Book.OperatorLog(ctx, q)
	})
}

func shownLine(l ledger.LogLine) LogLine {
	out := LogLine{ID: l.ID, At: api.Time(l.At), Action: l.Action, Author: l.Author, Subject: shownName(l.Subject),
		Old: l.Old, New: l.New, Reason: l.Reason}
	if l.Workspace != uuid.Nil {
		out.Workspace = &l.Workspace
	}
	return out
}

// logQuery reads ?before=, ?after= and ?limit=.
func logQuery(r *http.Request) (q ledger.LogQuery, err error) {
	values := r.URL.Query()
	if q.Limit, err = limitOf(r, entriesShown, ledger.LogLinesMax); err != nil {
		return q, err
	}
	if text := values.Get("before"); text != "" {
		if q.Before, err = time.Parse(time.RFC3339, text); err != nil {
			return q, invalid("before must be a time such as 2026-11-21T20:15:00.000Z")
		}
	}
	if text := values.Get("after"); text != "" {
		if q.After, err = uuid.Parse(text); err != nil || q.Before.IsZero() {
			return q, invalid("before and after must be copied from next of an answer")
		}
	}
	return q, nil
}

// line is the log line of a change made outside the ledger.
func line(action, subject, now string) ledger.LogLine {
	return ledger.LogLine{Action: action, Subject: cut(subject), New: cut(now)}
}

// cut shortens a text to the bound of the operator log.
func cut(text string) string {
	if len(text) > ledger.OperatorTextMax {
		text = strings.ToValidUTF8(text[:ledger.OperatorTextMax], "")
	}
	return text
}
