package http

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/http/listen"
	"rollcall/ledger"
)

const (
	headerIdempotency = "Idempotency-Key"
	headerLength      = "X-Upload-Content-Length"
	headerFilename    = "X-Upload-Filename"

	// createWait is how long a create waits for another create with the same idempotency key.
	createWait = 5 * time.Second
)

func (s *Server) create(ctx context.Context, r *request) {
	n, refused := s.readCreate(r)
	if refused != "" {
		s.refuse(r, refused, 0)
		return
	}
	leave, ok := s.creates.enter(ctx, identity{n.Workspace, n.Identity})
	if !ok {
		s.refuse(r, api.RequestInProgress, 1)
		return
	}
	defer leave()
	v, created, err := s.options.Book.Create(ctx, n)
	switch {
	case errors.Is(err, ledger.ErrIdentityReused):
		s.refuse(r, api.IdempotencyReused, 0)
	case errors.Is(err, ledger.ErrFileTooLarge):
		s.refuse(r, api.FileTooLarge, 0)
	case err != nil:
		s.notCreated(r, err)
	default:
		status := fasthttp.StatusOK
		if created {
			status = fasthttp.StatusCreated
			s.log.Info("verification created", "workspace", v.Workspace, "verification", v.ID,
				"request", listen.RequestID(r.RequestCtx))
		}
		listen.WriteJSON(r.RequestCtx, status, api.Creation{
			ID: v.ID.String(), Status: string(v.Status), Upload: s.uploadOf(v),
		})
	}
}

// limitRetryAfter is the wait, in seconds, for limits that end only by the customer's action or with time.
const limitRetryAfter = 60

// unpaidRetryMost bounds the Retry-After of the daily limit: a raised limit or new credits may end the wait early.
const unpaidRetryMost = time.Hour

// notCreated answers a create that failed because of a limit of its workspace, the ledger's disk, or a missing answer
// of the ledger.
func (s *Server) notCreated(r *request, err error) {
	refuse := func(limit string, code api.Code, after int) {
		s.metrics.limited.WithLabelValues(limit).Inc()
		s.refuse(r, code, after)
	}
	var later *ledger.Later
	switch {
	case errors.Is(err, ledger.ErrTooManyOpen):
		refuse("open", api.TooManyActive, limitRetryAfter)
	case errors.Is(err, ledger.ErrTooManyBytes):
		refuse("stored_bytes", api.TooManyBytes, limitRetryAfter)
	case errors.As(err, &later):
		after := max(time.Second, min(later.After, unpaidRetryMost))
		refuse("unpaid", api.TooManyUnpaid, int(math.Ceil(after.Seconds())))
	case errors.Is(err, ledger.ErrNoSuchSession), errors.Is(err, ledger.ErrNotAllowed):
		s.refuse(r, api.ActionNotAllowed, 0)
	case errors.Is(err, ledger.ErrNoRoom):
		refuse("disk", api.StorageUnavailable, limitRetryAfter)
	default:
		s.unavailable(r, "create", err)
	}
}

// readCreate reads the headers of a create. The code names the first invalid header.
func (s *Server) readCreate(r *request) (ledger.NewVerification, api.Code) {
	n := ledger.NewVerification{
		ID: uuid.New(), Workspace: r.key.Workspace,
		BytesMax: s.options.MaxFileBytes, Limits: s.options.PerWorkspace, UploadExpiry: s.options.UploadExpiry,
	}
	h := &r.Request.Header
	text, count := only(h, headerIdempotency)
	if count == 0 {
		return n, api.MissingIdempotency
	}
	var ok bool
	if n.Identity, ok = parseUUID(text); !ok || count > 1 {
		return n, api.InvalidIdempotency
	}
	if text, count = only(h, headerLength); count == 0 {
		return n, api.MissingUploadLength
	}
	if n.Bytes, ok = parseLength(text); !ok || count > 1 {
		return n, api.InvalidUploadLength
	}
	if text, count = only(h, headerFilename); count > 0 {
		if n.Filename, ok = parseFilename(text); !ok || count > 1 {
			return n, api.InvalidFilename
		}
	}
	return n, ""
}

// only returns the first value of a header and the number of values. An empty value counts as absent.
func only(h *fasthttp.RequestHeader, name string) (value []byte, count int) {
	values := h.PeekAll(name)
	if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
		return nil, 0
	}
	return values[0], len(values)
}

// parseLength reads decimal digits. A number beyond 64 bits counts as too large, not as malformed.
func parseLength(text []byte) (int64, bool) {
	n, _ := strconv.ParseInt(string(text), 10, 64) // ParseInt returns the largest number if the text is beyond it
	return n, n >= 1 && len(bytes.Trim(text, "0123456789")) == 0
}

type identity struct{ workspace, key uuid.UUID }

// createLock admits one create of an identity at a time.
type createLock struct {
	wait   time.Duration // for the one inside
	inside sync.Map      // by identity; a chan struct{} that is closed when its create ends
}

// enter waits for its turn, at most g.wait. If ok is true, leave must be called.
func (g *createLock) enter(ctx context.Context, id identity) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, g.wait)
	defer cancel()
	mine := make(chan struct{})
	for {
		busy, taken := g.inside.LoadOrStore(id, mine)
		if !taken {
			return func() { g.inside.Delete(id); close(mine) }, true
		}
		select {
		case <-busy.(chan struct{}):
		case <-ctx.Done():
			return nil, false
		}
	}
}
