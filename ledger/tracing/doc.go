// Package tracing measures how long the work takes, for an OpenTelemetry collector: a request, an upload, the
// reading of a file, a settlement, an SMTP session. It is off by default, and then a span costs a comparison with
// nil: 15 ns and no allocation, where the API's own no-op tracer takes 209 ns and one (BenchmarkOff).
//
// A span deliberately has only numbers, the UUID of a verification, and our own words. It cannot have an address, a
// token, a path or the text of an error.
package tracing
