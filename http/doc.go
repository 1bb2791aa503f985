// Package http is the customer API, with its limits and keys.
//
// The API listener (Server) has these routes; all but the last need an X-API-Key:
//
//	GET  /v1/credits                     the available balance
//	POST /v1/verifications               create, or recover by Idempotency-Key
//	GET  /v1/verifications               the history, newest first
//	GET  /v1/verifications/{id}          the progress of one
//	GET  /v1/verifications/{id}/results  the finished addresses as CSV
//	POST /v1/verifications/{id}/cancel   end what is not finished
//	GET  /openapi.yaml                   the description of the above
//
// HEAD answers like GET without a body, OPTIONS answers preflights. The storage URL (package upload) is another
// server on another address, because it streams bodies and the API must not.
//
// Checks are made in one fixed order, so that the same bad request always gets the same answer: framing, route,
// method, network address, key, origin, rate of the key, syntax, existence, state, size. The package decides nothing
// about work or money: it asks the ledger (ledger.Book).
//
// It follows RFC 9110, RFC 9112, RFC 4180 (results) and RFC 9562 (UUIDs); the browser rules are those of the Fetch
// standard. Start with Options, Server and routes.
package http
