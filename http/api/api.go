package api

import (
	_ "embed"
	"time"
)

// OpenAPI is the description of the interface in OpenAPI 3.0, as served at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Time is a time in an answer: RFC 3339, UTC, always with milliseconds.
type Time time.Time

// TimeOrNull returns a time for an answer. For the zero time it returns nil, which is written as null.
func TimeOrNull(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return new(Time(t))
}

// timeLayout is RFC 3339 in UTC with a fixed fraction, so that texts sort as times do.
const timeLayout = "2006-01-02T15:04:05.000Z"

// AppendTime appends t as every answer shows it.
func AppendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, timeLayout) }

// MarshalJSON writes the time as a JSON text.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(timeLayout)+2)
	b = append(b, '"')
	b = AppendTime(b, time.Time(t))
	return append(b, '"'), nil
}

// String is the time as every answer shows it.
func (t Time) String() string { return string(AppendTime(nil, time.Time(t))) }

// UnmarshalJSON reads any RFC 3339 text.
func (t *Time) UnmarshalJSON(b []byte) error { return (*time.Time)(t).UnmarshalJSON(b) }

// Issue describes a problem of a request or a file.
type Issue struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Row     *int64 `json:"row,omitempty"` // 1-based record of a CSV defect
}

// Error is the body of every refusal.
type Error struct {
	Issue     Issue  `json:"issue"`
	RequestID string `json:"request_id"` // UUID, also in the header X-Request-Id
}

// Upload is the destination of the bytes.
type Upload struct {
	Method    string `json:"method"` // always PUT
	URL       string `json:"url"`    // a secret: anybody who has it can write this file
	ExpiresAt Time   `json:"expires_at"`
}

// Creation answers POST /v1/verifications.
type Creation struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Upload *Upload `json:"upload,omitempty"` // null unless bytes are missing and the URL works
}

// Progress counts addresses; the three counters are disjoint.
type Progress struct {
	Total     *int64 `json:"total"`     // distinct addresses; null until the file is read
	Completed int64  `json:"completed"` // valid, invalid, catch_all and unknown
	Errors    int64  `json:"errors"`
	Cancelled int64  `json:"cancelled"` // never checked
}

// Input is what intake found in the file.
type Input struct {
	Rows       int64 `json:"rows"`       // records without the header
	Duplicates int64 `json:"duplicates"` // rows - duplicates = total
}

// Summary is one verification in the history.
type Summary struct {
	ID             string   `json:"id"`
	Filename       *string  `json:"filename"`
	SubmissionKind string   `json:"submission_kind"` // single or bulk
	SingleEmail    *string  `json:"single_email"`
	Outcome        *string  `json:"outcome"` // of a finished single
	CreatedAt      Time     `json:"created_at"`
	CompletedAt    *Time    `json:"completed_at"`
	Status         string   `json:"status"`
	Progress       Progress `json:"progress"`
}

// Detail answers GET /v1/verifications/{id}.
type Detail struct {
	Summary
	Input  *Input  `json:"input"`
	Issue  *Issue  `json:"issue"`
	Upload *Upload `json:"upload"`
}

// Limits are the rules for a new file.
type Limits struct {
	MaxFileBytes int64 `json:"max_file_bytes"`
	MaxRows      int64 `json:"max_rows"`
}

// History answers GET /v1/verifications.
type History struct {
	Verifications []Summary `json:"verifications"`
	NextCursor    *string   `json:"next_cursor"` // null on the last page
	Limits        Limits    `json:"limits"`
}

// Cancellation answers POST /v1/verifications/{id}/cancel.
type Cancellation struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Credits answers GET /v1/credits.
type Credits struct {
	Credits int64 `json:"credits"` // available, not held
}
