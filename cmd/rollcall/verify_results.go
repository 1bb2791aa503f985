package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/http/api"
	"rollcall/smtp"
)

// verifySummary is what verify --json prints, beside the results.
type verifySummary struct {
	ID         string        `json:"id"`
	Status     string        `json:"status"`
	Rows       int64         `json:"rows"`
	Duplicates int64         `json:"duplicates"`
	Total      int64         `json:"total"`
	Cancelled  int64         `json:"cancelled"`
	Outcomes   client.Tally  `json:"outcomes"`
	Credits    creditSummary `json:"credits"`
	Out        *string       `json:"out"`
	took       time.Duration
	full       client.Tally // of mailbox_full
}

// creditSummary says what a verification cost.
type creditSummary struct {
	Charged  int64 `json:"charged"`
	Released int64 `json:"released"`
}

// resultView is one row of the results as JSON.
type resultView struct {
	Email   string `json:"email"`
	Result  string `json:"result"`
	Message string `json:"message"`
	Checked string `json:"checked_at"`
}

func resultOf(row []string) resultView {
	return resultView{Email: row[0], Result: row[1], Message: row[2], Checked: row[3]}
}

// fullReason is the reason that stands under two outcomes.
var fullReason, _, _ = strings.Cut(smtp.MailboxFull.Message(), " ")

// deliver writes the results to where they belong and counts them.
func (r *verifyRun) deliver(ctx context.Context, d api.Detail) (verifySummary, error) {
	s := verifySummary{ID: d.ID, Status: d.Status, Cancelled: d.Progress.Cancelled, Outcomes: client.Tally{},
		full: client.Tally{}}
	for _, o := range smtp.Outcomes {
		s.Outcomes[o.String()] = 0
	}
	if d.Input != nil {
		s.Rows, s.Duplicates = d.Input.Rows, d.Input.Duplicates
	}
	if d.Progress.Total != nil {
		s.Total = *d.Progress.Total
	}
	if d.CompletedAt != nil {
		s.took = time.Time(*d.CompletedAt).Sub(time.Time(d.CreatedAt))
	}
	r.view.stop()
	var err error
	switch {
	case r.flags.out.Name != "":
		s.Out = &r.flags.out.Name
		err = r.flags.out.Write(func(w io.Writer) error { return r.toCSV(ctx, d.ID, w, &s) })
	case r.flags.json:
		err = r.toJSON(ctx, d.ID, &s)
	default:
		out := bufio.NewWriter(r.stdout)
		err = r.toCSV(ctx, d.ID, out, &s)
		err = errors.Join(err, out.Flush())
	}
	s.Credits = creditSummary{Charged: s.Outcomes.Charged(), Released: s.Outcomes[smtp.Unknown.String()] +
		s.Cancelled}
	return s, err
}

// count counts one row.
func (s *verifySummary) count(row []string) error {
	s.Outcomes[row[1]]++
	if reason, _, _ := strings.Cut(row[2], " "); reason == fullReason {
		s.full[row[1]]++
	}
	return nil
}

// toCSV writes the results as they come, byte for byte; with --spreadsheet with cells that
// a spreadsheet takes for text.
func (r *verifyRun) toCSV(ctx context.Context, id string, out io.Writer, s *verifySummary) error {
	if !r.flags.spreadsheet {
		return r.client.EachResult(ctx, id, out, s.count)
	}
	rows := csv.NewWriter(out)
	err := rows.Write(resultHeadings)
	if err == nil {
		err = r.client.EachResult(ctx, id, io.Discard, func(row []string) error {
			if err := s.count(row); err != nil {
				return err
			}
			for i, cell := range row {
				row[i] = asText(cell)
			}
			return rows.Write(row)
		})
	}
	rows.Flush()
	return errors.Join(err, rows.Error())
}

// resultHeadings are the names of the columns.
var resultHeadings = []string{"email", "result", "message", "checked_at"}

// asText puts a quote before a cell that a spreadsheet would run as a formula (OWASP, CSV
// injection): addresses may begin with any of these.
func asText(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// toJSON writes the opening of the JSON object with the results; close writes the rest.
func (r *verifyRun) toJSON(ctx context.Context, id string, s *verifySummary) error {
	out := bufio.NewWriter(r.stdout)
	out.WriteString(`{"results":[`)
	separator := "\n"
	err := r.client.EachResult(ctx, id, io.Discard, func(row []string) error {
		text, err := json.Marshal(resultOf(row))
		if err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		out.WriteString(separator)
		out.Write(text)
		separator = ",\n"
		return s.count(row)
	})
	out.WriteString("],\n")
	return errors.Join(err, out.Flush())
}

// close prints the closing table, or with --json the summary.
func (r *verifyRun) close(s verifySummary) error {
	if r.flags.json {
		text, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("write the output: %w", err)
		}
		if s.Out == nil {
			text = text[1:] // toJSON has opened the object
		}
		_, err = r.stdout.Write(append(text, '\n'))
		return err
	}
	return r.view.closing(s)
}
