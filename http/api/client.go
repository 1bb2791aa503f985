package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

const (
	// clientPatience bounds how long one request is repeated while the service can't be reached or answers 429 and 503. It
	// is longer than a restart of a node and than any Retry-After that the service gives.
	clientPatience = 5 * time.Minute

	// firstPatience replaces clientPatience until the service has answered once. Before that, a wrong URL is more
	// likely than a restart, and a person waits.
	firstPatience = 5 * time.Second

	// retryDefault is the wait when the service names none.
	retryDefault = 2 * time.Second

	// retryMax bounds a Retry-After. The service never gives more than a minute.
	retryMax = 2 * time.Minute

	// answerBytesMax bounds a JSON answer; the largest is a page of history.
	answerBytesMax = 1 << 20
)

var (
	// ErrRefused is in every error that has the service's refusal of a request. HasCode tells which refusal it is.
	ErrRefused = errors.New("the service refuses")

	// ErrNoAnswer: nothing answers at the URL.
	ErrNoAnswer = errors.New("no Rollcall API answers")

	// ErrStranger: the server at the URL is not a Rollcall API.
	ErrStranger = errors.New("it does not answer like a Rollcall API")

	// ErrUnfinished: the connection was cut too often during an upload or a download. Stored bytes stay: call the
	// method again.
	ErrUnfinished = errors.New("the connection was cut too often")
)

// Client is a client of the API. If the service says "later", it repeats a request with the same idempotency key, for
// five minutes at most. It sends its key only to the API. Its methods may be called from many goroutines.
type Client struct {
	Base, Key string
	HTTP      *http.Client
	Notice    func(text string) // called when the client has to wait; may be nil

	Patient bool // wait for the first answer as long as for later ones: five minutes, not seconds

	answered atomic.Bool // the service has answered once
}

// NewClient makes a client of the API at base, such as https://verify.example.com, with an API key.
func NewClient(base, key string) *Client {
	return &Client{
		Base: strings.TrimSuffix(base, "/"), Key: key,
		HTTP: &http.Client{
			// A redirect could send the key to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                 http.ProxyFromEnvironment,
				ResponseHeaderTimeout: 30 * time.Second, // the service usually answers in milliseconds; on a timeout ask again
				IdleConnTimeout:       30 * time.Second,
				TLSHandshakeTimeout:   10 * time.Second,
			},
		},
	}
}

// Create makes the verification of an idempotency key, or recovers it. A repeat with the same key and the same number
// of bytes charges nothing twice. filename is for people, and has no path. If the answer has an Upload, send the
// bytes there.
func (c *Client) Create(ctx context.Context, identity uuid.UUID, bytes int64, filename string) (Creation, error) {
	made, _, err := c.CreateFresh(ctx, identity, bytes, filename)
	return made, err
}

// CreateFresh is Create, and reports whether it made the verification.
func (c *Client) CreateFresh(ctx context.Context, identity uuid.UUID, bytes int64,
	filename string) (made Creation, fresh bool, err error) {
	header := http.Header{}
	header.Set("Idempotency-Key", identity.String())
	header.Set("X-Upload-Content-Length", strconv.FormatInt(bytes, 10))
	header.Set("X-Upload-Filename", url.PathEscape(filename))
	answer, err := c.Ask(ctx, http.MethodPost, "/v1/verifications", header)
	if err != nil {
		return made, false, err
	}
	return made, answer.StatusCode == http.StatusCreated, c.readJSON(answer, &made)
}

// Detail reads a verification. It also returns how long to wait before the next poll.
func (c *Client) Detail(ctx context.Context, id string) (Detail, time.Duration, error) {
	var d Detail
	header, err := c.AskJSON(ctx, http.MethodGet, "/v1/verifications/"+id, nil, &d)
	return d, retryAfter(header, retryDefault), err
}

// AskJSON sends a request and reads the JSON answer into out.
func (c *Client) AskJSON(ctx context.Context, method, path string, header http.Header, out any) (http.Header, error) {
	answer, err := c.Ask(ctx, method, path, header)
	if err != nil {
		return nil, err
	}
	return answer.Header, c.readJSON(answer, out)
}

func (c *Client) readJSON(answer *http.Response, out any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, answerBytesMax)).Decode(out); err != nil {
		return fmt.Errorf("%s: %w", c.Base, ErrStranger)
	}
	return nil
}

// Ask sends a request, repeats it while the service can't be reached or says "later", and returns a successful answer.
func (c *Client) Ask(ctx context.Context, method, path string, header http.Header) (*http.Response, error) {
	begin := time.Now()
	for try := 0; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, c.Base+path, nil)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		maps.Copy(request.Header, header)
		request.Header.Set("X-API-Key", c.Key)
		answer, err := c.HTTP.Do(request)
		wait, reason := backoff(try), "the service can't be reached"
		if err == nil {
			c.answered.Store(true)
			if answer.StatusCode/100 == 2 {
				return answer, nil
			}
			refusal, later := c.refusalOf(answer)
			if !later {
				return nil, refusal
			}
			wait, reason, err = retryAfter(answer.Header, retryDefault), "the service asks us to wait", refusal
		}
		if err := c.waitFor(ctx, pause{begin: begin, wait: wait, reason: reason, cause: err}); err != nil {
			return nil, err
		}
	}
}

// pause is one wait before a request is repeated.
type pause struct {
	begin  time.Time // of the first try
	wait   time.Duration
	reason string // for people
	cause  error  // of the last try
}

// waitFor waits. If the patience is used up, it returns the cause.
func (c *Client) waitFor(ctx context.Context, p pause) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	patience := clientPatience
	if !c.Patient && !c.answered.Load() {
		patience = firstPatience
	}
	if time.Since(p.begin)+p.wait > patience {
		if errors.Is(p.cause, ErrRefused) {
			return p.cause
		}
		return fmt.Errorf("%w at %s", ErrNoAnswer, c.Base)
	}
	if p.wait >= time.Second && c.Notice != nil {
		c.Notice(fmt.Sprintf("%s, going on in %s", p.reason, p.wait.Round(time.Second)))
	}
	return sleep(ctx, p.wait)
}

// refusalOf returns the error of an unsuccessful answer. later reports whether the same request may succeed later.
func (c *Client) refusalOf(answer *http.Response) (err error, later bool) {
	defer answer.Body.Close()
	later = answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable
	var body Error
	text, readErr := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	if readErr != nil || json.Unmarshal(text, &body) != nil || body.Issue.Code == "" {
		if bytes.HasPrefix(text, []byte(adminErrorStart)) {
			return fmt.Errorf("%w: %s is the admin listener of a node, for operators; the API is at its http.listen",
				ErrRefused, c.Base), later
		}
		return fmt.Errorf("%w: %s answers %d: %w", ErrRefused, c.Base, answer.StatusCode, ErrStranger), later
	}
	later = later || body.Issue.Code == RequestInProgress // an earlier try that the client gave up still runs
	return refusedError{body}, later
}

// adminErrorStart begins every error of the admin listener, and no error of the API.
const adminErrorStart = `{"error":{`

type refusedError struct{ body Error }

func (e refusedError) Error() string {
	return fmt.Sprintf("%s: %s (%s, request %s)", ErrRefused, IssueText(&e.body.Issue), e.body.Issue.Code,
		e.body.RequestID)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e refusedError) Is(target error) bool { return target == ErrRefused }

// HasCode reports whether an error is a refusal with a code.
func HasCode(err error, code Code) bool {
	refused := refusedError{}
	return errors.As(err, &refused) && refused.body.Issue.Code == code
}

// IssueText is an issue in one line, with its row.
func IssueText(i *Issue) string {
	if i.Row != nil {
		return fmt.Sprintf("row %d: %s", *i.Row, i.Message)
	}
	return i.Message
}

// retryAfter reads Retry-After in seconds, the form that the service uses.
func retryAfter(header http.Header, otherwise time.Duration) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return otherwise
	}
	return min(time.Duration(seconds)*time.Second, retryMax)
}

// backoff returns the wait after a try without an answer: 250 ms, doubled with each try up to 16 s.
func backoff(try int) time.Duration { return 250 * time.Millisecond << min(try, 6) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
