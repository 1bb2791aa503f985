package http_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
)

// requestsInOne is how many requests are drawn at a time: one takes a quarter of a millisecond.
const requestsInOne = 20

// TestGeneratedRequests sends requests that are right, nearly right, or meant to harm: none gets an answer that
// openapi.yaml does not describe (the rig checks each), and none finds a fault of ours.
func TestGeneratedRequests(t *testing.T) {
	t.Parallel()
	effort.NotShort(t, "hundreds of requests")
	e := newEdge(t, nil)
	known := e.create("10").String()
	long, hostile := strings.Repeat("a", 4000), "http://evil.example"
	one := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) } // "-" sends none
	ids := one(known, known, strings.ToUpper(known), uuid.NewString(), known[1:], "%00", "..", "null", "-1", "{id}",
		"%F0%9F%98%80", long, uuid.Nil.String())
	methods := one("GET", "GET", "POST", "POST", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "BREW")
	paths := one("/v1/credits", "/v1/verifications", "/v1/verifications", "/v1/verifications/ID", "/v2/credits", "/v0",
		"/none",
		"/v1/verifications/ID/results", "/v1/verifications/ID/cancel", "/v1/verifications/ID/other", "/v1", "/v1/credits/")
	queries := one("", "", "", "?limit=5&kind=bulk", "?limit=0", "?limit=x", "?cursor="+long[:600], "?kind=all", "?a=b",
		"?limit=1&limit=2", "?%ff=%", "?cursor=AAAA")
	bodies := one("", "", "{}", "\x00\xff", strings.Repeat("x", 9000))
	values := map[string]*rapid.Generator[string]{
		"X-API-Key":               one(e.key, e.key, e.key, e.key, "-", e.key[:20], "rc_x_y", "é", long),
		"Idempotency-Key":         one("-", "new", "new", "new", uuid.Nil.String(), "1", known+","+known, "{"+known+"}"),
		"X-Upload-Content-Length": one("-", "1", "10", "10", "0", "-1", "1e3", "1048577", "9223372036854775808", " 7 ", ""),
		"X-Upload-Filename":       one("-", "a.csv", "%C3%BC.csv", "../x", "%2e%2e%2fx", "%", "%E2%80%AE", long[:1025]),
		"Origin":                  one("-", "-", "-", listedOrigin, "null", hostile, "https://a b"),
		"Accept":                  one("-", "*/*", "application/json", "text/html", "x"),
		"Content-Type":            one("-", "text/csv", "application/json", "multipart/form-data; boundary=x"),
		"Content-Encoding":        one("-", "-", "gzip", "br"),
		"Range":                   one("-", "-", "bytes=0-1", "bytes=5-1", "x"),
		"Expect":                  one("-", "-", "-", "nothing"),
	}
	names := []string{}
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same draws make the same request
	seen := map[int]int{}
	effort.Check(t, func(draw *rapid.T) {
		for range requestsInOne {
			c := call{method: methods.Draw(draw, "method"), body: bodies.Draw(draw, "body"), headers: map[string]string{},
				path: strings.Replace(paths.Draw(draw, "path"), "ID", ids.Draw(draw, "id"), 1) + queries.Draw(draw, "query")}
			for _, name := range names {
				if c.headers[name] = values[name].Draw(draw, name); c.headers[name] == "new" {
					c.headers[name] = uuid.NewString()
				}
			}
			a, err := e.try(c)
			if err != nil {
				continue // our own HTTP client doesn't send it, or the node hung up on what is no HTTP
			}
			e.checker.check(t, c, a)
			if seen[a.status]++; a.code() == "internal_error" || a.status == http.StatusInternalServerError {
				draw.Fatalf("%s %s: got %d %s", c.method, c.path, a.status, a.body)
			}
		}
	})
	for _, status := range []int{200, 201, 401, 403, 404, 405, 422} {
		if seen[status] == 0 {
			t.Errorf("no request was answered with %d: %v", status, seen)
		}
	}
}
