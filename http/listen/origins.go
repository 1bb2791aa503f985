package listen

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
)

// Origins are the browser origins whose pages may read an answer. The list is exact; nothing is reflected that is not
// on it, and credentials never are allowed.
type Origins map[string]bool

// NewOrigins makes a list of origins such as https://app.example.com: scheme, host and port, and nothing else. A slash
// at the end or a wildcard would silently match nothing.
func NewOrigins(list []string) (Origins, error) {
	out := make(Origins, len(list))
	for _, origin := range list {
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" ||
			origin != u.Scheme+"://"+u.Host || origin != strings.ToLower(origin) || strings.Contains(origin, "*") {
			return nil, fmt.Errorf("allowed origin %q must look like https://app.example.com", origin)
		}
		out[origin] = true
	}
	return out, nil
}

// Allow lets a page of a listed origin read the answer and the headers that are exposed, and reports whether it does.
// also says of an origin that is not listed whether it may too; nil: none may.
func (o Origins) Allow(ctx *fasthttp.RequestCtx, exposed string, also func(origin string) bool) bool {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	if len(values) != 1 || !o[string(values[0])] && (also == nil || !also(string(values[0]))) {
		return false
	}
	ctx.Response.Header.SetBytesV(fasthttp.HeaderAccessControlAllowOrigin, values[0])
	ctx.Response.Header.Set(fasthttp.HeaderAccessControlExposeHeaders, exposed)
	return true
}

// Foreign reports whether a browser page sent the request that is not listed.
func (o Origins) Foreign(ctx *fasthttp.RequestCtx) bool {
	values := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin)
	return len(values) > 0 && (len(values) > 1 || !o[string(values[0])])
}
