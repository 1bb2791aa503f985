package http

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
	"rollcall/ledger"
)

// detailOf names a verification of a workspace.
type detailOf struct{ workspace, id uuid.UUID }

// detail answers GET /v1/verifications/{id}.
func (s *Server) detail(ctx context.Context, r *request) {
	v, err := s.details.read(ctx, detailOf{r.key.Workspace, r.id})
	if err != nil {
		s.notFoundOr(r, "read verification", err)
		return
	}
	if wait := RetryAfter(v, s.now()); wait > 0 {
		r.Response.Header.Set(headerRetryAfter, strconv.Itoa(wait))
	}
	writeJSON(r.RequestCtx, fasthttp.StatusOK, api.Detail{
		Summary: summaryOf(v), Input: inputOf(v), Issue: issueOf(v.Issue), Upload: s.uploadOf(v),
	})
}

// cancel answers POST /v1/verifications/{id}/cancel.
func (s *Server) cancel(ctx context.Context, r *request) {
	v, err := s.options.Book.Cancel(ctx, r.key.Workspace, r.id)
	if err != nil {
		s.notFoundOr(r, "cancel", err)
		return
	}
	s.wake()
	status := fasthttp.StatusOK
	if v.Status == ledger.Cancelling {
		status = fasthttp.StatusAccepted
	}
	writeJSON(r.RequestCtx, status, api.Cancellation{ID: v.ID.String(), Status: string(v.Status)})
}

// wake tells the engine to look at the ledger soon.
func (s *Server) wake() {
	if s.options.Wake != nil {
		s.options.Wake()
	}
}

// notFoundOr answers 404 for what is not there, and 503 for anything else.
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

// summaryOf shows a verification as the contract does.
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
		completed := api.Time(v.Completed)
		sum.CompletedAt = &completed
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

// issueOf shows the issue of a file.
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

const (
	// againLeast and againMost bound what a client is told to wait while addresses are
	// asked, in seconds, and againFirst is the least while it is not known when the last
	// of them is expected to be final.
	againLeast, againFirst, againMost = 2, 5, 30

	// calmLeast and calmMost bound it while all that is left waits for receivers.
	calmLeast, calmMost = 15, 60
)

// RetryAfter is how many seconds a client should wait before it looks again; 0
// for what will not change any more.
func RetryAfter(v ledger.Verification, now time.Time) int {
	switch v.Status {
	case ledger.Uploading, ledger.Preparing, ledger.Cancelling:
		return 2
	case ledger.Verifying:
		return verifyingAgain(v, now)
	case ledger.Waiting:
		if v.Issue != nil && v.Issue.Code == string(api.CreditsRequired) {
			return 60
		}
		return waitingAgain(v, now)
	}
	return 0
}

// verifyingAgain is a tenth of the age, so that a long file is looked at less often, and
// no longer than until the finish that is expected. One that is overdue is looked at
// less often the longer it is.
func verifyingAgain(v ledger.Verification, now time.Time) int {
	again := seconds(now.Sub(v.Created)/10, againFirst, againMost)
	if v.Expected.IsZero() {
		return again
	}
	return seconds(v.Expected.Sub(now).Abs(), againLeast, again)
}

// waitingAgain is until a receiver is asked again, and no longer than calmLeast after the
// finish that is expected: nothing changes before.
func waitingAgain(v ledger.Verification, now time.Time) int {
	again := seconds(v.NextTry.Sub(now), calmLeast, calmMost)
	if v.Expected.After(now) {
		again = min(again, seconds(v.Expected.Sub(now)+calmLeast*time.Second, calmLeast, calmMost))
	}
	return again
}
