package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/http/api"
)

const (
	// clientPatience bounds how long one request is repeated while the service
	// can't be reached or answers 429 and 503. It is longer than a restart of a
	// node and than any Retry-After that the service gives.
	clientPatience = 5 * time.Minute

	// firstPatience is the same before the first answer of all: then a wrong
	// URL is more probable than a restart, and a person waits.
	firstPatience = 5 * time.Second

	// retryDefault is the wait when the service names none.
	retryDefault = 2 * time.Second

	// retryMax bounds a Retry-After: a minute is the longest that the service gives.
	retryMax = 2 * time.Minute

	// answerBytesMax bounds a JSON answer; the largest is a page of history.
	answerBytesMax = 1 << 20
)

// errRefused is in every error that repeats what the service said about a request.
var errRefused = errors.New("the service refuses")

// apiClient is a customer of the API. It repeats a request with the same
// identity when the service says "later", and never sends its key anywhere but
// to the API.
type apiClient struct {
	base, key string
	http      *http.Client
	notice    func(text string) // told when something makes us wait
	answered  bool              // the service has answered once
}

// newAPIClient makes a client of the API at base.
func newAPIClient(base, key string, notice func(string)) *apiClient {
	return &apiClient{
		base: strings.TrimSuffix(base, "/"), key: key, notice: notice,
		http: &http.Client{
			// A redirect could carry the key to another place.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				Proxy:                 http.ProxyFromEnvironment,
				ResponseHeaderTimeout: 30 * time.Second, // the service answers in milliseconds; then ask again
				IdleConnTimeout:       30 * time.Second,
				TLSHandshakeTimeout:   10 * time.Second,
			},
		},
	}
}

// create makes the verification of an identity, or recovers it.
func (c *apiClient) create(ctx context.Context, identity uuid.UUID, bytes int64,
	filename string) (api.Creation, error) {
	made, _, err := c.createFresh(ctx, identity, bytes, filename)
	return made, err
}

// createFresh is create, and says whether it made the verification.
func (c *apiClient) createFresh(ctx context.Context, identity uuid.UUID, bytes int64,
	filename string) (made api.Creation, fresh bool, err error) {
	header := http.Header{}
	header.Set("Idempotency-Key", identity.String())
	header.Set("X-Upload-Content-Length", strconv.FormatInt(bytes, 10))
	header.Set("X-Upload-Filename", url.PathEscape(filename))
	answer, err := c.ask(ctx, http.MethodPost, "/v1/verifications", header)
	if err != nil {
		return made, false, err
	}
	return made, answer.StatusCode == http.StatusCreated, c.read(answer, &made)
}

// detail reads a verification and how long to wait before the next look.
func (c *apiClient) detail(ctx context.Context, id string) (api.Detail, time.Duration, error) {
	var d api.Detail
	header, err := c.askJSON(ctx, http.MethodGet, "/v1/verifications/"+id, nil, &d)
	return d, retryAfter(header, retryDefault), err
}

// askJSON asks and reads a JSON answer into out.
func (c *apiClient) askJSON(ctx context.Context, method, path string, header http.Header,
	out any) (http.Header, error) {
	answer, err := c.ask(ctx, method, path, header)
	if err != nil {
		return nil, err
	}
	return answer.Header, c.read(answer, out)
}

// read reads a JSON answer into out.
func (c *apiClient) read(answer *http.Response, out any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, answerBytesMax)).Decode(out); err != nil {
		return fmt.Errorf("%s is no Rollcall API: its answer is no JSON of ours: check --api", c.base)
	}
	return nil
}

// ask sends a request, again while the service can't be reached or says
// "later", and gives its answer when that is a success.
func (c *apiClient) ask(ctx context.Context, method, path string, header http.Header) (*http.Response,
	error) {
	begin := time.Now()
	for try := 0; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		for name, values := range header {
			request.Header[name] = values
		}
		request.Header.Set("X-API-Key", c.key)
		answer, err := c.http.Do(request)
		wait, reason := backoff(try), "the service can't be reached"
		if err == nil {
			c.answered = true
			if answer.StatusCode/100 == 2 {
				return answer, nil
			}
			refusal, later := c.refusal(answer)
			if !later {
				return nil, refusal
			}
			wait, reason, err = retryAfter(answer.Header, retryDefault), "the service asks us to wait", refusal
		}
		if err := c.pause(ctx, pause{begin: begin, wait: wait, reason: reason, cause: err}); err != nil {
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

// pause waits, unless the patience is at its end: then it gives the cause.
func (c *apiClient) pause(ctx context.Context, p pause) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	patience := clientPatience
	if !c.answered {
		patience = firstPatience
	}
	if time.Since(p.begin)+p.wait > patience {
		if errors.Is(p.cause, errRefused) {
			return p.cause
		}
		return fmt.Errorf("no Rollcall API answers at %s: start a node with `rollcall serve`, or check --api",
			c.base)
	}
	if p.wait >= time.Second {
		c.notice(fmt.Sprintf("%s, going on in %s", p.reason, p.wait.Round(time.Second)))
	}
	return sleep(ctx, p.wait)
}

// refusal makes an error of an answer that is no success; later says that the
// same request may succeed later.
func (c *apiClient) refusal(answer *http.Response) (err error, later bool) {
	defer answer.Body.Close()
	later = answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable
	var body api.Error
	text, readErr := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	if readErr != nil || json.Unmarshal(text, &body) != nil || body.Issue.Code == "" {
		return fmt.Errorf("%w: %s answers %d: check --api", errRefused, c.base, answer.StatusCode), later
	}
	later = later || body.Issue.Code == api.RequestInProgress // an earlier try, which we gave up, still runs
	return refusedError{body}, later
}

// refusedError is an error of the API.
type refusedError struct{ body api.Error }

func (e refusedError) Error() string {
	return fmt.Sprintf("%s: %s (%s, request %s)", errRefused, issueText(&e.body.Issue), e.body.Issue.Code, e.body.RequestID)
}

// Is makes errors.Is(err, errRefused) true.
func (e refusedError) Is(target error) bool { return target == errRefused }

// hasCode says whether an error is a refusal with a code.
func hasCode(err error, code api.Code) bool {
	refused := refusedError{}
	return errors.As(err, &refused) && refused.body.Issue.Code == code
}

// issueText is an issue in one line, with its row.
func issueText(i *api.Issue) string {
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

// backoff is the wait after a try without an answer: 250 ms, doubled up to 16 s.
func backoff(try int) time.Duration { return 250 * time.Millisecond << min(try, 6) }

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
