package http

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
)

type detailOf struct{ workspace, id uuid.UUID }

func (s *Server) detail(ctx context.Context, r *request) {
	v, err := s.details.read(ctx, detailOf{r.key.Workspace, r.id})
	if err != nil {
		s.notFoundOr(r, "read verification", err)
		return
	}
	if now := s.now(); !v.Status.Final() {
		wait := s.looks.plan(look{r.key.ID, v.ID}, now, RetryAfter(v, now))
		r.Response.Header.Set(listen.HeaderRetryAfter, strconv.Itoa(wait))
	}
	listen.WriteJSON(r.RequestCtx, fasthttp.StatusOK, api.Detail{
		Summary: summaryOf(v), Input: inputOf(v), Issue: issueOf(v.Issue), Upload: s.uploadOf(v),
	})
}

func (s *Server) cancel(ctx context.Context, r *request) {
	v, err := s.options.Book.Cancel(ctx, r.key.Workspace, r.id)
	if err != nil {
		s.notFoundOr(r, "cancel", err)
		return
	}
	s.options.Wake()
	status := fasthttp.StatusOK
	if v.Status == ledger.Cancelling {
		status = fasthttp.StatusAccepted
	}
	listen.WriteJSON(r.RequestCtx, status, api.Cancellation{ID: v.ID.String(), Status: string(v.Status)})
}

// notFoundOr answers 404 for a missing verification, and 503 for any other error.
func (s *Server) notFoundOr(r *request, step string, err error) {
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		s.refuse(r, api.NotFound, 0)
	case errors.Is(err, ledger.ErrResultsExpired):
		s.refuse(r, api.ResultsExpired, 0)
	default:
		s.unavailable(r, step, err)
	}
}

func summaryOf(v ledger.Verification) api.Summary {
	sum := api.Summary{
		ID:             v.ID.String(),
		Filename:       textOrNull(v.Filename),
		SubmissionKind: string(v.Kind),
		SingleEmail:    textOrNull(v.SingleEmail),
		CreatedAt:      api.Time(v.Created),
		Status:         string(v.Status),
		Progress: api.Progress{
			Completed: v.Counts.Valid + v.Counts.Invalid + v.Counts.CatchAll + v.Counts.Unknown,
			Errors:    v.Counts.Error,
			Cancelled: v.Counts.Cancelled,
		},
	}
	if v.Total >= 0 {
		sum.Progress.Total = &v.Total
	}
	if !v.Completed.IsZero() {
		sum.CompletedAt = new(api.Time(v.Completed))
	}
	if v.Kind == ledger.Single && v.Status.Final() && v.SingleOutcome.Final() {
		sum.Outcome = textOrNull(v.SingleOutcome.String())
	}
	return sum
}

// inputOf is null until intake has read the file.
func inputOf(v ledger.Verification) *api.Input {
	if v.Rows == 0 {
		return nil
	}
	return &api.Input{Rows: v.Rows, Duplicates: v.Duplicates}
}

func issueOf(issue *ledger.Issue) *api.Issue {
	if issue == nil {
		return nil
	}
	shown := &api.Issue{Code: api.Code(issue.Code), Message: issue.Message}
	if issue.Row > 0 {
		shown.Row = &issue.Row
	}
	return shown
}

// uploadOf is the upload URL, while bytes are missing and it has not expired.
func (s *Server) uploadOf(v ledger.Verification) *api.Upload {
	if v.Status != ledger.Uploading || v.Durable >= v.Bytes || !s.now().Before(v.UploadExpires) {
		return nil
	}
	return &api.Upload{
		Method: fasthttp.MethodPut, URL: s.options.PublicUpload(v.ID), ExpiresAt: api.Time(v.UploadExpires),
	}
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *Server) credits(ctx context.Context, r *request) {
	balance, err := s.balances.read(ctx, r.key.Workspace)
	if err != nil {
		s.unavailable(r, "read balance", err)
		return
	}
	h := &r.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "no-store")
	r.SetContentType(listen.JSONType)
	var buffer [64]byte
	body := append(buffer[:0], `{"credits":`...)
	body = strconv.AppendInt(body, int64(balance.Available), 10)
	r.SetBody(append(body, '}'))
}

// The longest Retry-After in seconds: while a file arrives, is read or is being cancelled; while addresses are asked;
// and while all remaining ones wait for receivers or for credits.
const (
	againShort  = 2
	againAsking = 30
	againMost   = 60
)

// RetryAfter is how many seconds a client should wait before its next look; 0 for a final file. It is at most a tenth
// of the file's age, or a second, so that the client sees the end at most a tenth late; less when the end is expected
// sooner. The longer an end is overdue, the longer the wait. For a waiting file it is the time until a receiver is
// asked again, because nothing changes before.
func RetryAfter(v ledger.Verification, now time.Time) int {
	wait := (now.Sub(v.Created) / 10).Truncate(time.Second)
	switch v.Status {
	case ledger.Uploading, ledger.Preparing, ledger.Cancelling:
		return seconds(wait, againShort)
	case ledger.Verifying:
		if !v.Expected.IsZero() {
			wait = min(wait, v.Expected.Sub(now).Abs())
		}
		return seconds(wait, againAsking)
	case ledger.Waiting:
		wait = max(wait, v.NextTry.Sub(now))
		if v.Expected.After(now) {
			wait = min(wait, v.Expected.Sub(now))
		}
		return seconds(wait, againMost)
	}
	return 0
}

// looksKept is how many keys have a plan, of some 400 bytes and 60 for each file. At the bound the plan of the key with
// the oldest look is dropped.
const looksKept = 16384

// looks plans when the clients of a key look again at its files, so that clients that obey Retry-After don't exceed the
// key's read limit, if its burst is at least 2. Each second gets at most half of the key's rate. As the looks of two
// seconds may come together, it also gets at most half of the burst. Safe for concurrent use.
type looks struct {
	most  int        // that a key may plan for a second, on all nodes together
	nodes func() int // see Options.Nodes

	mu   sync.Mutex
	keys *lru.Cache[string, *lookPlan] // plans guarded by mu; by key id
}

type look struct {
	key          string
	verification uuid.UUID
}

type lookPlan struct {
	until  int64               // the second up to which looks were dropped
	counts [againMost + 1]int  // of looks, by second
	at     map[uuid.UUID]int64 // the second of the next look at each verification
}

func newLooks(reads Rate, nodes func() int) *looks {
	most := int(min(reads.PerSecond, float64(reads.Burst))) / 2
	return &looks{most: most, nodes: nodes, keys: newLRU[*lookPlan](looksKept)}
}

// plan returns the seconds until the next look: wanted, or more when the key's second is full. A client that looks
// early still has only one planned look.
func (l *looks) plan(of look, now time.Time, wanted int) int {
	most := max(l.most/max(l.nodes(), 1), 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.keys.Get(of.key)
	if !known {
		p = &lookPlan{at: make(map[uuid.UUID]int64)}
		l.keys.Add(of.key, p)
	}
	second := now.Unix()
	p.pass(second)
	if before, ok := p.at[of.verification]; ok {
		p.counts[before%int64(len(p.counts))]--
	}
	at := second + int64(wanted)
	for at < second+againMost && p.counts[at%int64(len(p.counts))] >= most {
		at++
	}
	p.counts[at%int64(len(p.counts))]++
	p.at[of.verification] = at
	return int(at - second)
}

// pass drops the looks of past seconds, or all looks if the clock was set back.
func (p *lookPlan) pass(second int64) {
	if p.until == second {
		return
	}
	maps.DeleteFunc(p.at, func(_ uuid.UUID, at int64) bool {
		gone := at < second || second < p.until
		if gone {
			p.counts[at%int64(len(p.counts))]--
		}
		return gone
	})
	p.until = second
}
