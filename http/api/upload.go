package api

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// uploadTriesMax bounds the tries that store nothing new. With backoff they take about two minutes, longer than a
// restart of a node.
const uploadTriesMax = 14

type uploadStep struct {
	done  bool          // all bytes are durable
	next  int64         // otherwise the first missing byte; -1: unknown, so ask
	later bool          // try again
	wait  time.Duration // before the next try; 0: at once
	err   error
}

// Upload sends size bytes of file to the storage URL and returns when everything is durable. After a cut connection
// it continues. It calls sent, which may be nil, with the number of bytes sent. Errors: ErrUnfinished, or the
// storage's refusal.
//
// The request has no API key: the URL is the secret, and the storage must not see the key.
func (c *Client) Upload(ctx context.Context, target string, file io.ReaderAt, size int64, sent func(int64)) error {
	if sent == nil {
		sent = func(int64) {}
	}
	next := int64(-1) // ask first: an earlier run may have stored a part
	durable, failures := int64(-1), 0
	for {
		var step uploadStep
		if next < 0 {
			step = c.putRange(ctx, target, http.NoBody, fmt.Sprintf("bytes */%d", size))
		} else {
			section := io.NewSectionReader(file, next, size-next)
			body := &countedReader{from: section, count: next, tell: sent}
			step = c.putRange(ctx, target, body, fmt.Sprintf("bytes %d-%d/%d", next, size-1, size))
		}
		if step.err != nil && !step.later {
			return step.err
		}
		if step.done {
			sent(size)
			return nil
		}
		if step.next > durable {
			durable, failures = step.next, 0
		} else if failures++; failures > uploadTriesMax {
			return fmt.Errorf("upload: %w", ErrUnfinished)
		}
		next = step.next
		if step.wait == 0 && step.later {
			step.wait = backoff(failures)
		}
		if err := sleep(ctx, step.wait); err != nil {
			return err
		}
	}
}

func (c *Client) putRange(ctx context.Context, target string, body io.Reader, contentRange string) uploadStep {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, target, body)
	if err != nil {
		return uploadStep{err: errors.New("the service returned an invalid upload URL")}
	}
	request.Header.Set("Content-Type", "text/csv")
	request.Header.Set("Content-Range", contentRange)
	if r, ok := body.(*countedReader); ok {
		request.ContentLength = r.from.Size()
	}
	answer, err := c.HTTP.Do(request)
	if err != nil { // the cause is left out: it contains the URL, a secret
		return uploadStep{next: -1, later: true, err: errors.New("the connection to the storage was cut")}
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return uploadStep{done: true}
	case http.StatusPermanentRedirect: // 308 means "incomplete" here; Range has the durable bytes
		next, err := nextByte(answer.Header.Get("Range"))
		return uploadStep{next: next, err: err}
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax)) // if there is no body, the status is enough
	step := uploadStep{next: -1, err: storageRefusal(answer.StatusCode, text)}
	status := answer.StatusCode
	if status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500 {
		step.later, step.wait = true, retryAfter(answer.Header, retryDefault)
	}
	return step
}

// storageRefusal returns the storage's answer as an error.
func storageRefusal(status int, body []byte) error {
	var e Error
	if json.Unmarshal(body, &e) == nil && e.Issue.Message != "" {
		return fmt.Errorf("the storage refuses the upload: %s (%s)", IssueText(&e.Issue), e.Issue.Code)
	}
	return fmt.Errorf("the storage refuses the upload with status %d", status)
}

// nextByte reads the Range header of a 308: "bytes=0-41" means continue with byte 42, no header means begin with byte
// 0.
func nextByte(header string) (int64, error) {
	if header == "" {
		return 0, nil
	}
	last, ok := strings.CutPrefix(header, "bytes=0-")
	n, err := strconv.ParseInt(last, 10, 64)
	if !ok || err != nil || n < 0 {
		return 0, fmt.Errorf("the storage answered with an invalid Range: %q", header)
	}
	return n + 1, nil
}

type countedReader struct {
	from  *io.SectionReader
	count int64
	tell  func(int64)
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.count += int64(n)
	r.tell(r.count)
	return n, err
}

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

// Verify creates the verification of a file, uploads it, and waits for its end. Called again with the same bytes, it
// continues or returns the earlier verification, and charges nothing more. It returns the errors of Create, Upload
// and Wait.
func (c *Client) Verify(ctx context.Context, f File) (done Detail, err error) {
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

// Wait polls a verification as the service asks, until it is final. A failed verification is an error with the reason
// and, for a defect, the row. A cancelled one is no error: see Status.
func (c *Client) Wait(ctx context.Context, id string) (Detail, error) {
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

const resultColumns = 4

// Results returns the present results, also before the end. If there is an error, the last pair has it.
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

// EachResult reads the present results, copies their bytes to raw, and calls visit with each row below the header. A
// row is valid only until visit returns.
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
func (c *Client) Cancel(ctx context.Context, id string) (done Cancellation, err error) {
	_, err = c.AskJSON(ctx, http.MethodPost, "/v1/verifications/"+id+"/cancel", nil, &done)
	return done, err
}

// Credits returns the credits that are available: not held, not spent.
func (c *Client) Credits(ctx context.Context) (balance Credits, err error) {
	_, err = c.AskJSON(ctx, http.MethodGet, "/v1/credits", nil, &balance)
	return balance, err
}

// HistoryPageMax is the largest page of the service.
const HistoryPageMax = 100

// History returns a page of the history, newest first, after a cursor; nil: the first page.
func (c *Client) History(ctx context.Context, limit int, cursor *string) (page History, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != nil {
		query.Set("cursor", *cursor)
	}
	_, err = c.AskJSON(ctx, http.MethodGet, "/v1/verifications?"+query.Encode(), nil, &page)
	return page, err
}

// Pages returns the pages of the history, newest first, to its end.
func (c *Client) Pages(ctx context.Context, limit int) iter.Seq2[History, error] {
	return func(yield func(History, error) bool) {
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
