package listen

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"rollcall/config/effort"
	"rollcall/http/api"
)

// TestEveryCodeHasItsRow and every row a text that can be shown.
func TestEveryCodeHasItsRow(t *testing.T) {
	for code, r := range refusals {
		effort.ErrorIf(t, r.status < 400 || r.status > 599 || !strings.HasSuffix(r.message, "."), "%s: %+v", code, r)
	}
	var ctx fasthttp.RequestCtx
	WriteIssue(&ctx, api.Code("no such code"), 0)
	effort.Is(t, ctx.Response.StatusCode(), 503, "an unknown code", ctx.Response.Body())
	effort.Has(t, string(ctx.Response.Body()), "internal_error", "an unknown code")
}

// TestFramingIssues names what cannot be waited for in a test: a slow sender.
func TestFramingIssues(t *testing.T) {
	for _, c := range []struct {
		err  error
		want api.Code
	}{
		{os.ErrDeadlineExceeded, api.RequestTimeout},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, api.RequestTimeout},
		{fasthttp.ErrUnsupportedTransferEncoding, api.LengthRequired},
		{&fasthttp.ErrSmallBuffer{}, api.HeadersTooLarge},
		{io.ErrUnexpectedEOF, api.BadRequest},
	} {
		got, _ := FramingIssue(c.err)
		effort.ErrorIf(t, got != c.want, "%v: %s, want %s", c.err, got, c.want)
	}
}

func TestAddresses(t *testing.T) {
	same := [][2]string{{"192.0.2.1", "::ffff:192.0.2.1"}, {"2001:db8::1", "2001:db8::ffff:1"}}
	other := [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8:0:1::1"}}
	for _, p := range same {
		effort.Is(t, NetworkOf(netip.MustParseAddr(p[0])), NetworkOf(netip.MustParseAddr(p[1])), p, "counted apart")
	}
	for _, p := range other {
		effort.Not(t, NetworkOf(netip.MustParseAddr(p[0])), NetworkOf(netip.MustParseAddr(p[1])), p, "are counted together")
	}
}

// TestWarningsAreFew writes one a thousand times a second for twelve seconds.
func TestWarningsAreFew(t *testing.T) {
	var lines bytes.Buffer
	c := Warning{Log: slog.New(slog.NewTextHandler(&lines, nil)), Message: "ledger did not answer"}
	begun := time.Now()
	for i := range 12_000 {
		c.Write(begun.Add(time.Duration(i)*time.Millisecond), "stage", "create")
	}
	got := lines.String()
	n := strings.Count(got, "\n")
	effort.ErrorIf(t, n != 3 || strings.Count(got, "more=0") != 1 || strings.Count(got, "more=4999") != 2 ||
		strings.Count(got, "level=WARN") != 3, "got %d lines, want 3 that say how many were not logged:\n%s", n, got)
}
