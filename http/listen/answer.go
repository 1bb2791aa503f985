package listen

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"rollcall/http/api"
)

type refusal struct {
	status  int
	message string // what the client should do, in one sentence
}

var refusals = map[api.Code]refusal{
	api.BadRequest:      {400, "The request is not well-formed HTTP."},
	api.RequestTimeout:  {408, "The request did not arrive in time."},
	api.LengthRequired:  {411, "Send a Content-Length; Transfer-Encoding is not supported here."},
	api.HeadersTooLarge: {431, "The request line and headers are larger than 16 KiB."},

	api.RouteNotFound:    {404, "There is nothing at this path."},
	api.MethodNotAllowed: {405, "This path does not support this method; see the Allow header."},

	api.MissingAPIKey:    {401, "Send your API key in the X-API-Key header."},
	api.InvalidAPIKey:    {401, "The API key is not accepted; check the key and send it once."},
	api.OriginNotAllowed: {403, "This browser origin is not permitted."},
	api.ActionNotAllowed: {403, "This API key or user may not do this."},

	api.RateLimited:        {429, "Too many requests; send the same request again after Retry-After."},
	api.ServiceUnavailable: {503, "No answer is possible now; send the same request again after Retry-After."},
	api.Overloaded:         {503, "The service is busy; send the same request again after Retry-After."},
	api.InternalError:      {503, "A fault on our side; send the same request again after Retry-After."},

	api.MissingIdempotency:  {422, "Send an Idempotency-Key header with a UUID of your own for this file."},
	api.InvalidIdempotency:  {422, "Send one Idempotency-Key header with one UUID."},
	api.MissingUploadLength: {422, "Send the length of the file in bytes as X-Upload-Content-Length."},
	api.InvalidUploadLength: {422, "X-Upload-Content-Length must be one integer of at least 1."},
	api.InvalidFilename: {422, "X-Upload-Filename must be one percent-encoded UTF-8 name of at most 1024 " +
		"characters, without path separators and control characters."},
	api.UnexpectedBody: {422, "This request has no body; send the file to the upload URL."},
	api.IdempotencyReused: {409, "This Idempotency-Key was used for a file of another length; " +
		"use a new one for a new file."},
	api.RequestInProgress: {409, "The same creation is still running; send it again after Retry-After."},
	api.FileTooLarge:      {413, "The file is larger than limits.max_file_bytes of GET /v1/verifications."},
	api.TooManyActive: {429, "Too many verifications are unfinished; wait for one to finish or cancel one, " +
		"then send the same request again."},
	api.TooManyBytes: {429, "With this file the workspace would store more bytes than it may " +
		"have; wait until some files are finished and erased or cancel one, then send the same request again."},
	api.TooManyUnpaid: {429, "Too many verifications of the last 24 hours never held credits: they were refused or " +
		"cancelled, or still wait; send the same request again after Retry-After."},

	api.InvalidLimit:     {422, "The parameter limit must be an integer from 1 to 100."},
	api.InvalidKind:      {422, "The parameter kind must be single or bulk."},
	api.InvalidCursor:    {422, "The parameter cursor must be a next_cursor of the same filter."},
	api.InvalidParameter: {422, "A query parameter was given twice; give it once."},
	api.InvalidID:        {422, "The verification id in the path must be a UUID."},
	api.NotFound:         {404, "There is no such verification in the workspace of this API key."},
	api.ResultsExpired:   {404, "The results were deleted at the end of their retention."},

	api.UploadLengthMismatch: {400, "The length differs from the X-Upload-Content-Length of the creation."},
	api.UploadRangeInvalid:   {400, "Content-Range must be one range of bytes that fits the Content-Length."},
	api.UploadTooLarge:       {413, "The body is larger than the X-Upload-Content-Length of the creation."},
	api.UnsupportedEncoding:  {415, "Send the bytes as they are, without Content-Encoding."},
	api.UploadNotFound:       {404, "There is no such upload."},
	api.UploadExpired:        {410, "The upload URL has expired; create another with a new Idempotency-Key."},
	api.UploadCancelled:      {410, "The verification is cancelled or failed and accepts no more bytes."},
	api.StorageUnavailable: {503, "The storage cannot answer now; wait for Retry-After, ask for the status " +
		"and go on from there."},
}

// Refusal is the status and the text of an issue code.
func Refusal(code api.Code) (status int, message string) {
	r, known := refusals[code]
	if !known {
		r = refusals[api.InternalError]
	}
	return r.status, r.message
}

// Common header names of answers.
const (
	HeaderRequestID  = "X-Request-Id"
	HeaderRetryAfter = "Retry-After"
)

// JSONType is the media type of every answer except the results and the API description.
const JSONType = "application/json"

// WriteIssue makes the answer a refusal: status, body, request id, no-store, and Retry-After when retryAfter (seconds)
// is above zero. Headers set earlier, such as CORS, stay.
func WriteIssue(ctx *fasthttp.RequestCtx, code api.Code, retryAfter int) {
	r, known := refusals[code]
	if !known {
		code, r = api.InternalError, refusals[api.InternalError]
	}
	h := &ctx.Response.Header
	if retryAfter > 0 {
		h.Set(HeaderRetryAfter, strconv.Itoa(retryAfter))
	} else {
		h.Del(HeaderRetryAfter)
	}
	if r.status == fasthttp.StatusUnauthorized {
		h.Set(fasthttp.HeaderWWWAuthenticate, `ApiKey header="X-API-Key"`)
	}
	body := api.Error{Issue: api.Issue{Code: code, Message: r.message}, RequestID: RequestID(ctx)}
	WriteJSON(ctx, r.status, body)
}

// WriteJSON makes v the answer. The shapes of package api always encode.
func WriteJSON(ctx *fasthttp.RequestCtx, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = fasthttp.StatusServiceUnavailable, nil
	}
	WriteBody(ctx, status, body)
}

// WriteBody makes JSON the answer. The caller must not change it afterwards.
func WriteBody(ctx *fasthttp.RequestCtx, status int, body []byte) {
	ctx.Response.ResetBody()
	ctx.SetStatusCode(status)
	ctx.SetContentType(JSONType)
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	ctx.Response.SetBodyRaw(body)
}

// RequestID returns the id of this request, which is made at first use and sent as X-Request-Id. It names a request
// in our logs and is no secret, so a fast generator suffices.
func RequestID(ctx *fasthttp.RequestCtx) string {
	if id := ctx.Response.Header.Peek(HeaderRequestID); len(id) > 0 {
		return string(id)
	}
	var id uuid.UUID
	a, b := rand.Uint64(), rand.Uint64()
	for i := range 8 {
		id[i], id[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	id[6] = id[6]&0x0f | 0x40 // version 4, RFC 9562 §5.4
	id[8] = id[8]&0x3f | 0x80
	s := id.String()
	ctx.Response.Header.Set(HeaderRequestID, s)
	return s
}

// Jitter returns a number of seconds from least to least+spread, so that many clients that were refused together do
// not come back together.
func Jitter(least, spread int) int { return least + rand.IntN(spread+1) }

// RefusalText is the whole answer to a refused connection.
func RefusalText(code api.Code, retryAfter int) string {
	ctx := &fasthttp.RequestCtx{}
	WriteIssue(ctx, code, retryAfter)
	ctx.SetConnectionClose()
	return ctx.Response.String()
}

// Origins are the browser origins whose pages may read an answer. Only listed origins are reflected, and credentials
// are never allowed.
type Origins map[string]bool

// NewOrigins makes Origins of a list such as https://app.example.com, which the configuration has checked.
func NewOrigins(list []string) Origins {
	out := make(Origins, len(list))
	for _, origin := range list {
		out[origin] = true
	}
	return out
}

// Allow lets a page of a listed origin read the answer and the exposed headers, and reports whether it did. The
// function also reports whether an unlisted origin may do that too; if it is nil, none may.
func (o Origins) Allow(ctx *fasthttp.RequestCtx, exposed string, also func(origin string) bool) bool {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	if len(values) != 1 || !o[string(values[0])] && (also == nil || !also(string(values[0]))) {
		return false
	}
	ctx.Response.Header.SetBytesV(fasthttp.HeaderAccessControlAllowOrigin, values[0])
	ctx.Response.Header.Set(fasthttp.HeaderAccessControlExposeHeaders, exposed)
	return true
}

// Foreign reports whether a browser page of an unlisted origin sent the request.
func (o Origins) Foreign(ctx *fasthttp.RequestCtx) bool {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	return len(values) > 0 && (len(values) > 1 || !o[string(values[0])])
}
