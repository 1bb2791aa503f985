package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rollcall/http/api"
)

// uploadTriesMax bounds the tries that store nothing new. With backoff it is
// about two minutes, longer than a restart of a node.
const uploadTriesMax = 14

// uploadStep is the storage URL's answer to one request.
type uploadStep struct {
	done  bool          // all bytes are durable
	next  int64         // otherwise the first missing byte; -1: unknown, ask
	later bool          // try again
	wait  time.Duration // before the next try; 0: at once
	err   error
}

// Upload sends size bytes of file to the storage URL, goes on after a cut connection, and returns when everything is
// durable. It calls sent, which may be nil, with the number of bytes sent. Errors: ErrUnfinished, or the storage's
// refusal.
//
// The request has no API key: the URL is the secret, and the storage must not see the key.
func (c *Client) Upload(ctx context.Context, target string, file io.ReaderAt, size int64,
	sent func(int64)) error {
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

// putRange sends one request to the storage URL and reads the answer.
func (c *Client) putRange(ctx context.Context, target string, body io.Reader,
	contentRange string) uploadStep {
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
	if err != nil { // the cause contains the URL, a secret, so it is left out
		return uploadStep{next: -1, later: true, err: errors.New("the connection to the storage was cut")}
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated:
		return uploadStep{done: true}
	case http.StatusPermanentRedirect: // 308 here means "incomplete", with the durable bytes in Range
		next, err := nextByte(answer.Header.Get("Range"))
		return uploadStep{next: next, err: err}
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax)) // without a body the status says enough
	step := uploadStep{next: -1, err: storageRefusal(answer.StatusCode, text)}
	status := answer.StatusCode
	if status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500 {
		step.later, step.wait = true, retryAfter(answer.Header, retryDefault)
	}
	return step
}

// storageRefusal returns the storage's answer as an error.
func storageRefusal(status int, body []byte) error {
	var e api.Error
	if json.Unmarshal(body, &e) == nil && e.Issue.Message != "" {
		return fmt.Errorf("the storage refuses the upload: %s (%s)", IssueText(&e.Issue), e.Issue.Code)
	}
	return fmt.Errorf("the storage refuses the upload with status %d", status)
}

// nextByte reads the Range header of a 308: "bytes=0-41" means go on at byte 42, no header at byte 0.
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

// countedReader reports how far it was read.
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
