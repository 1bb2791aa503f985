package http

import (
	"context"
	"errors"
	"strconv"

	"github.com/google/uuid"
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
		wait := s.polls.plan(poll{r.key.ID, v.ID}, now, RetryAfter(v, now))
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
		CompletedAt: api.TimeOrNull(v.Completed),
	}
	if v.Total >= 0 {
		sum.Progress.Total = &v.Total
	}
	if v.Kind == ledger.Single && v.Status.Final() && v.SingleOutcome.Final() {
		sum.Outcome = textOrNull(v.SingleOutcome.String())
	}
	return sum
}

// inputOf returns null until intake has read the file.
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

// uploadOf returns the upload URL while bytes are missing and the URL has not expired.
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
