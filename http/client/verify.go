package client

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"rollcall/http/api"
)

// File is a CSV file of one column, at most as large as the service accepts (History has its limits).
type File struct {
	Name    string // for people, without a path; "" for none
	Content io.ReaderAt
	Size    int64 // bytes, at least 1
}

// makeIdentity makes the idempotency key from the file's bytes: the same bytes give the same verification.
func (f File) makeIdentity() (uuid.UUID, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f.Content, 0, f.Size)); err != nil {
		return uuid.Nil, fmt.Errorf("read the file: %w", err)
	}
	return uuid.NewHash(sum, uuid.Nil, nil, 8), nil
}

// Verify creates the verification of a file, uploads it, and waits for its end. Called again with the same bytes it
// goes on, or returns the earlier verification, and charges nothing more. Errors: as of Create, Upload and Wait.
func (c *Client) Verify(ctx context.Context, f File) (done api.Detail, err error) {
	identity, err := f.makeIdentity()
	if err != nil {
		return done, err
	}
	made, err := c.Create(ctx, identity, f.Size, f.Name)
	if err != nil {
		return done, err
	}
	if made.Upload != nil {
		if err := c.Upload(ctx, made.Upload.URL, f.Content, f.Size, nil); err != nil {
			return done, err
		}
	}
	return c.Wait(ctx, made.ID)
}

// Wait polls a verification as the service asks, until it is over. A failed one is an error with the reason, and the
// row of a file's defect; a cancelled one is no error: see Status.
func (c *Client) Wait(ctx context.Context, id string) (api.Detail, error) {
	for {
		d, wait, err := c.Detail(ctx, id)
		if err != nil {
			return d, err
		}
		switch d.Status {
		case "failed":
			if d.Issue == nil {
				return d, errors.New("the verification failed")
			}
			return d, fmt.Errorf("the verification failed: %s (%s)", IssueText(d.Issue), d.Issue.Code)
		case "completed", "completed_with_errors", "cancelled":
			return d, nil
		}
		if err := sleep(ctx, wait); err != nil {
			return d, err
		}
	}
}

// Result is the result for one address.
type Result struct {
	Email     string
	Outcome   string // valid, invalid, catch_all, unknown or error
	Message   string // the reason: a stable word, a space, a sentence
	CheckedAt time.Time
}

// resultColumns are the columns of the results file.
const resultColumns = 4

// Results returns the present results, also before the end. The last pair has the error, if there is one.
func (c *Client) Results(ctx context.Context, id string) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		stopped := errors.New("no more is wanted")
		err := c.EachResult(ctx, id, io.Discard, func(row []string) error {
			at, err := time.Parse(time.RFC3339, row[3])
			if err != nil {
				return fmt.Errorf("read the results: %w", err)
			}
			if !yield(Result{row[0], row[1], row[2], at}, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(Result{}, err)
		}
	}
}

// EachResult reads the present results, copies their bytes to raw, and calls visit with each row below the header; the
// row is only valid until visit returns.
func (c *Client) EachResult(ctx context.Context, id string, raw io.Writer, visit func(row []string) error) error {
	answer, err := c.Ask(ctx, http.MethodGet, "/v1/verifications/"+id+"/results", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	reader := csv.NewReader(io.TeeReader(answer.Body, raw))
	reader.FieldsPerRecord, reader.ReuseRecord = resultColumns, true
	for n := 0; ; n++ {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the results: %w: %w", ErrUnfinished, err)
		}
		if n == 0 {
			continue
		}
		if err := visit(row); err != nil {
			return err
		}
	}
}

// Cancel cancels the unfinished part of a verification.
func (c *Client) Cancel(ctx context.Context, id string) (done api.Cancellation, err error) {
	_, err = c.AskJSON(ctx, http.MethodPost, "/v1/verifications/"+id+"/cancel", nil, &done)
	return done, err
}

// Credits gives the credits that are available: not held, not spent.
func (c *Client) Credits(ctx context.Context) (balance api.Credits, err error) {
	_, err = c.AskJSON(ctx, http.MethodGet, "/v1/credits", nil, &balance)
	return balance, err
}

// HistoryPageMax is the largest page of the service.
const HistoryPageMax = 100

// History returns a page of the history, newest first, after a cursor; nil: the first page.
func (c *Client) History(ctx context.Context, limit int, cursor *string) (page api.History, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != nil {
		query.Set("cursor", *cursor)
	}
	_, err = c.AskJSON(ctx, http.MethodGet, "/v1/verifications?"+query.Encode(), nil, &page)
	return page, err
}

// Pages gives the pages of the history, newest first, to its end.
func (c *Client) Pages(ctx context.Context, limit int) iter.Seq2[api.History, error] {
	return func(yield func(api.History, error) bool) {
		var cursor *string
		for {
			page, err := c.History(ctx, limit, cursor)
			if !yield(page, err) || err != nil || page.NextCursor == nil {
				return
			}
			cursor = page.NextCursor
		}
	}
}
