package api

// Code is the stable name of an issue, for programs; the message is for people.
type Code string

// Refusals of a request. Package http has the status and the text of each.
const (
	BadRequest          Code = "bad_request"       // no HTTP request could be read
	RequestTimeout      Code = "request_timeout"   // the request did not arrive in time
	LengthRequired      Code = "length_required"   // Transfer-Encoding, or a body without a length
	HeadersTooLarge     Code = "headers_too_large" // over 16 KiB
	RouteNotFound       Code = "route_not_found"
	MethodNotAllowed    Code = "method_not_allowed"
	MissingAPIKey       Code = "missing_api_key"
	InvalidAPIKey       Code = "invalid_api_key"
	OriginNotAllowed    Code = "origin_not_allowed"
	ActionNotAllowed    Code = "action_not_allowed"
	RateLimited         Code = "rate_limited"
	ServiceUnavailable  Code = "service_unavailable"
	Overloaded          Code = "overloaded"
	InternalError       Code = "internal_error"
	MissingIdempotency  Code = "missing_idempotency_key"
	InvalidIdempotency  Code = "invalid_idempotency_key"
	MissingUploadLength Code = "missing_upload_length"
	InvalidUploadLength Code = "invalid_upload_length"
	InvalidFilename     Code = "invalid_filename"
	UnexpectedBody      Code = "unexpected_body"
	IdempotencyReused   Code = "idempotency_key_reused"
	RequestInProgress   Code = "request_in_progress"
	FileTooLarge        Code = "file_too_large"
	TooManyActive       Code = "too_many_active_verifications"
	TooManyBytes        Code = "too_many_stored_bytes"
	TooManyUnpaid       Code = "too_many_unpaid_verifications"
	InvalidLimit        Code = "invalid_limit"
	InvalidKind         Code = "invalid_kind"
	InvalidCursor       Code = "invalid_cursor"
	InvalidParameter    Code = "invalid_parameter"
	InvalidID           Code = "invalid_verification_id"
	NotFound            Code = "verification_not_found"
	ResultsExpired      Code = "results_expired"
)

// Refusals of the storage URL.
const (
	UploadLengthMismatch Code = "upload_length_mismatch"
	UploadRangeInvalid   Code = "upload_range_invalid"
	UploadTooLarge       Code = "upload_too_large"
	UnsupportedEncoding  Code = "unsupported_encoding"
	UploadNotFound       Code = "upload_not_found"
	UploadExpired        Code = "upload_expired" // also the issue of a file whose bytes never came
	UploadCancelled      Code = "upload_cancelled"
	StorageUnavailable   Code = "storage_unavailable" // also of a create, while the ledger's disk is nearly full
)

// CreditsRequired is the issue of a file that waits for credits.
const CreditsRequired Code = "credits_required"

// ReceiversWait is the issue of a file that waits for receivers: which ones, why, and until when. The customer needs to
// do nothing.
const ReceiversWait Code = "receivers_wait"
