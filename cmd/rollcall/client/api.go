package client

import (
	"bytes"
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

	"rollcall/cmd/rollcall/term"
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

// ErrRefused is in every error that repeats what the service said about a request.
var ErrRefused = errors.New("the service refuses")

// API is a customer of the API. It repeats a request with the same
// identity when the service says "later", and never sends its key anywhere but
// to the API.
type API struct {
	Base, Key string
	HTTP      *http.Client
	Notice    func(text string) // told when something makes us wait
	Answered  bool              // the service has answered once
}

// NewAPI makes a client of the API at base.
func NewAPI(base, key string, notice func(string)) *API {
	return &API{
		Base: strings.TrimSuffix(base, "/"), Key: key, Notice: notice,
		HTTP: &http.Client{
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

// Create makes the verification of an identity, or recovers it.
func (c *API) Create(ctx context.Context, identity uuid.UUID, bytes int64,
	filename string) (api.Creation, error) {
	made, _, err := c.CreateFresh(ctx, identity, bytes, filename)
	return made, err
}

// CreateFresh is create, and says whether it made the verification.
func (c *API) CreateFresh(ctx context.Context, identity uuid.UUID, bytes int64,
	filename string) (made api.Creation, fresh bool, err error) {
	header := http.Header{}
	header.Set("Idempotency-Key", identity.String())
	header.Set("X-Upload-Content-Length", strconv.FormatInt(bytes, 10))
	header.Set("X-Upload-Filename", url.PathEscape(filename))
	answer, err := c.Ask(ctx, http.MethodPost, "/v1/verifications", header)
	if err != nil {
		return made, false, err
	}
	return made, answer.StatusCode == http.StatusCreated, c.read(answer, &made)
}

// Detail reads a verification and how long to wait before the next look.
func (c *API) Detail(ctx context.Context, id string) (api.Detail, time.Duration, error) {
	var d api.Detail
	header, err := c.AskJSON(ctx, http.MethodGet, "/v1/verifications/"+id, nil, &d)
	return d, retryAfter(header, retryDefault), err
}

// AskJSON asks and reads a JSON answer into out.
func (c *API) AskJSON(ctx context.Context, method, path string, header http.Header,
	out any) (http.Header, error) {
	answer, err := c.Ask(ctx, method, path, header)
	if err != nil {
		return nil, err
	}
	return answer.Header, c.read(answer, out)
}

// read reads a JSON answer into out.
func (c *API) read(answer *http.Response, out any) error {
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, answerBytesMax)).Decode(out); err != nil {
		return fmt.Errorf("%s did not answer like a Rollcall API; check --api", c.Base)
	}
	return nil
}

// Ask sends a request, again while the service can't be reached or says
// "later", and gives its answer when that is a success.
func (c *API) Ask(ctx context.Context, method, path string, header http.Header) (*http.Response,
	error) {
	begin := time.Now()
	for try := 0; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, c.Base+path, nil)
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		for name, values := range header {
			request.Header[name] = values
		}
		request.Header.Set("X-API-Key", c.Key)
		answer, err := c.HTTP.Do(request)
		wait, reason := backoff(try), "the service can't be reached"
		if err == nil {
			c.Answered = true
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
func (c *API) pause(ctx context.Context, p pause) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	patience := clientPatience
	if !c.Answered {
		patience = firstPatience
	}
	if time.Since(p.begin)+p.wait > patience {
		if errors.Is(p.cause, ErrRefused) {
			return p.cause
		}
		return fmt.Errorf("no Rollcall API answers at %s: start a node with `rollcall serve`, or check --api",
			c.Base)
	}
	if p.wait >= time.Second {
		c.Notice(fmt.Sprintf("%s, going on in %s", p.reason, p.wait.Round(time.Second)))
	}
	return term.Sleep(ctx, p.wait)
}

// refusal makes an error of an answer that is no success; later says that the
// same request may succeed later.
func (c *API) refusal(answer *http.Response) (err error, later bool) {
	defer answer.Body.Close()
	later = answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable
	var body api.Error
	text, readErr := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	if readErr != nil || json.Unmarshal(text, &body) != nil || body.Issue.Code == "" {
		if bytes.HasPrefix(text, []byte(adminErrorStart)) {
			return fmt.Errorf("%w: %s is the admin listener of a node, for operators: give the URL of its API (http.listen) "+
				"as --api", ErrRefused, c.Base), later
		}
		return fmt.Errorf("%w: %s answers %d: check --api", ErrRefused, c.Base, answer.StatusCode), later
	}
	later = later || body.Issue.Code == api.RequestInProgress // an earlier try, which we gave up, still runs
	return refusedError{body}, later
}

// adminErrorStart is what errors of the admin listener begin with, and none of the API does.
const adminErrorStart = `{"error":{`

// refusedError is an error of the API.
type refusedError struct{ body api.Error }

func (e refusedError) Error() string {
	return fmt.Sprintf("%s: %s (%s, request %s)", ErrRefused, IssueText(&e.body.Issue), e.body.Issue.Code,
		e.body.RequestID)
}

// Is makes errors.Is(err, ErrRefused) true.
func (e refusedError) Is(target error) bool { return target == ErrRefused }

// HasCode reports whether an error is a refusal with a code.
func HasCode(err error, code api.Code) bool {
	refused := refusedError{}
	return errors.As(err, &refused) && refused.body.Issue.Code == code
}

// IssueText is an issue in one line, with its row.
func IssueText(i *api.Issue) string {
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

const (
	// HistoryPageMax is the most that the service gives at once.
	HistoryPageMax = 100

	// prefixLeast is how much of an id must be typed: with four characters of a UUID two of a
	// hundred verifications are alike in about one case of fourteen, and then both are named.
	prefixLeast = 4

	// alikeShown is how many verifications with one prefix are named.
	alikeShown = 10
)

// FileName is the name of a file for people.
func FileName(name *string) string {
	if name == nil || *name == "" {
		return "-"
	}
	return term.Printable(*name)
}

// issuesShown bounds for how many verifications the list says what they wait for: each is a request of its own.
const issuesShown = 5
