package upload_test

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/upload"
	"rollcall/ledger"
)

const (
	length0   = "Content-Length: 0"
	length100 = "Content-Length: 100"
	chunked   = "Transfer-Encoding: chunked"
)

// piece returns the headers of a piece of a file.
func piece(contentRange string, length int) []string {
	return []string{"Content-Range: bytes " + contentRange, fmt.Sprint("Content-Length: ", length)}
}

// bytesOf returns a text of n bytes in which neighbouring bytes differ.
func bytesOf(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "user%d@example.test\n", i)
	}
	return b.String()[:n]
}

// TestStorageURLAnswersByTheTable checks every row of the storage URL's table on a real connection. A file of 100
// bytes has 40 durable. A row has one request, its answer, whether the connection can be used again, and what is
// durable afterwards.
func TestStorageURLAnswersByTheTable(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	file := bytesOf(100)
	for _, c := range []struct {
		name        string
		durable     int // before
		method      string
		headers     []string
		body        string
		status      int
		code        string
		rangeHeader string
		closed      bool
		after       int
	}{
		{"whole file", 0, "PUT", []string{"Content-Range: bytes 0-99/100", length100}, file, 200, "", "", false, 100},
		{"whole file without range", 0, "PUT", []string{length100}, file, 200, "", "", false, 100},
		{"next piece", 40, "PUT", piece("40-50/100", 11), file[40:51], 308, "", "bytes=0-50", false, 51},
		{"last piece", 40, "PUT", piece("40-99/100", 60), file[40:], 200, "", "", false, 100},
		{"overlap", 40, "PUT", piece("30-49/100", 20), file[30:50], 308, "", "bytes=0-49", false, 50},
		{"all old", 40, "PUT", piece("10-19/100", 10), file[10:20], 308, "", "bytes=0-39", true, 40},
		{"gap", 40, "PUT", piece("41-99/100", 59), file[41:], 308, "", "bytes=0-39", true, 40},
		{"query", 40, "PUT", piece("*/100", 0), "", 308, "", "bytes=0-39", false, 40},
		{"query without length", 40, "PUT", []string{"Content-Range: bytes */100"}, "", 308, "", "bytes=0-39", false, 40},
		{"last piece again", 100, "PUT", piece("40-99/100", 60), file[40:], 200, "", "", true, 100},
		{"other bytes, complete", 100, "PUT", []string{"Content-Length: 7"}, "changed", 200, "", "", true, 100},
		{"query with another total", 40, "PUT", piece("*/99", 0), "", 400, "upload_length_mismatch", "", false, 40},
		{"data with another total", 40, "PUT", piece("40-41/99", 2), "xx", 400, "upload_length_mismatch", "", true, 40},
		{"last beyond the file", 40, "PUT", piece("99-100/100", 2), "xx", 400, "upload_range_invalid", "", true, 40},
		{"length is not the range's", 40, "PUT", piece("40-41/100", 3), "xxx", 400, "upload_range_invalid", "", true, 40},
		{"query with a body", 40, "PUT", piece("*/100", 2), "xx", 400, "upload_range_invalid", "", true, 40},
		{"other unit", 40, "PUT", []string{"Content-Range: rows 40-41/100", "Content-Length: 2"}, "xx",
			400, "upload_range_invalid", "", true, 40},
		{"several ranges", 40, "PUT", piece("40-40,41-41/100", 2), "xx", 400, "upload_range_invalid", "", true, 40},
		{"several range headers", 40, "PUT", []string{"Content-Range: bytes 40-41/100",
			"Content-Range: bytes 40-41/100", "Content-Length: 2"}, "xx", 400, "upload_range_invalid", "", true, 40},
		{"no range, short", 40, "PUT", []string{"Content-Length: 99"}, file[:99],
			400, "upload_length_mismatch", "", true, 40},
		{"no range, empty", 40, "PUT", []string{length0}, "", 400, "upload_length_mismatch", "", false, 40},
		{"no range, long", 40, "PUT", []string{"Content-Length: 101"}, file + "x", 413, "upload_too_large", "", true, 40},
		{"no length", 40, "PUT", nil, "", 411, "length_required", "", true, 40},
		{"no length with a range", 40, "PUT", []string{"Content-Range: bytes 40-41/100"}, "",
			411, "length_required", "", true, 40},
		{"chunked", 40, "PUT", []string{chunked}, "0\r\n\r\n", 411, "length_required", "", true, 40},
		{"chunked with length", 40, "PUT", []string{chunked, length100}, "0\r\n\r\n", 411, "length_required", "", true, 40},
		{"transfer encoding identity", 40, "PUT", []string{"Transfer-Encoding: identity", length100}, file,
			411, "length_required", "", true, 40},
		{"transfer encoding gzip", 40, "PUT", []string{"Transfer-Encoding: gzip", length100}, file,
			411, "length_required", "", true, 40},
		{"content encoding", 40, "PUT", []string{"Content-Encoding: gzip", length100}, file,
			415, "unsupported_encoding", "", true, 40},
		{"key and authorization", 0, "PUT", []string{"X-API-Key: rc_a_b", "Authorization: Bearer x", length100}, file,
			200, "", "", false, 100},
		{"other content type", 0, "PUT", []string{"Content-Type: application/json", length100}, file,
			200, "", "", false, 100},
		{"delete", 40, "DELETE", nil, "", 405, "method_not_allowed", "", false, 40},
		{"get", 40, "GET", nil, "", 405, "method_not_allowed", "", true, 40},
		{"head", 40, "HEAD", nil, "", 405, "", "", true, 40},
		{"post", 40, "POST", []string{length100}, file, 405, "method_not_allowed", "", true, 40},
		{"patch", 40, "PATCH", []string{length100}, file, 405, "method_not_allowed", "", true, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, path := rig.create(100)
			if c.durable > 0 {
				seed := rig.dial()
				seed.put(path, 0, 100, file[:c.durable])
				seed.reply()
			}
			conn := rig.dial()
			conn.send(c.method, path, c.headers, c.body)
			if c.method == "HEAD" {
				head, err := conn.ReadString('\n')
				effort.FatalIf(t, err != nil || !strings.HasPrefix(head, "HTTP/1.1 405 "),
					"answer begins %q, %v", head, err)
				return
			}
			got := conn.reply()
			effort.ErrorIf(t, got.status != c.status || got.code != c.code || got.durable != c.rangeHeader ||
				got.close != c.closed, "got %d %q Range %q close %v, want %d %q %q %v", got.status, got.code,
				got.durable, got.close, c.status, c.code, c.rangeHeader, c.closed)
			effort.ErrorIf(t, (got.status == 200 || got.status == 308) && len(got.body) > 0,
				"body %q, want none", got.body)
			effort.ErrorIf(t, got.header.Get("Location") != "" || got.header.Get("X-Request-Id") == "" ||
				got.header.Get("Cache-Control") != "no-store", "headers %v", got.header)
			effort.Is(t, got.header.Get("Allow") == "PUT, OPTIONS", got.status == 405, "Allow")
			effort.Is(t, rig.durable(id), int64(c.after), "durable", c.after)
			effort.ErrorIf(t, c.after == 100 && string(rig.file(id)) != file, "the stored bytes are not the sent ones")
			if c.closed {
				effort.OK(t, conn.ended())
				return
			}
			conn.query(path, 100)
			if again := conn.reply(); again.status != 200 && again.status != 308 {
				t.Errorf("the next request on the connection got %d", again.status)
			}
		})
	}
}

func TestStorageURLKnowsOnlyItsOwnPaths(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.create(10)
	unknown := "/upload/" + rig.tokens.Token(uuid.New()) // signed, but for no verification
	for _, c := range []struct {
		name, path string
		status     int
		code       string
	}{
		{"root", "/", 404, "route_not_found"},
		{"other path", "/v1/credits", 404, "route_not_found"},
		{"no token", "/upload/", 404, "upload_not_found"},
		{"altered token", path[:len(path)-2] + "xx", 404, "upload_not_found"},
		{"short token", path[:len(path)-1], 404, "upload_not_found"},
		{"longer path", path + "/x", 404, "upload_not_found"},
		{"slash at the end", path + "/", 404, "upload_not_found"},
		{"no such verification", unknown, 404, "upload_not_found"},
		{"two slashes", "/" + path, 404, "route_not_found"},
		{"dots", "/x/.." + path, 404, "route_not_found"},
		{"percent", strings.Replace(path, "/upload", "/%75pload", 1), 404, "route_not_found"},
		{"absolute form", "http://other.example" + path, 308, ""},
		{"query string", path + "?x=1", 308, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := rig.dial()
			conn.query(c.path, 10)
			if got := conn.reply(); got.status != c.status || got.code != c.code {
				t.Errorf("got %d %q, want %d %q", got.status, got.code, c.status, c.code)
			}
		})
	}
}

// TestAnUploadThatASweepEndedIsGone: an upload that a sweep has ended is gone. The model of a session covers that it
// accepts no more bytes.
func TestAnUploadThatASweepEndedIsGone(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, nil)
	_, path := rig.createFor(100, time.Nanosecond)
	const day = 24 * time.Hour
	effort.Must(rig.store.Sweep(t.Context(), ledger.Retention{Uploads: day, Results: day, Funding: day}))(t)
	conn := rig.dial()
	conn.query(path, 100)
	effort.Is(t, conn.reply().refusal(), "410 upload_expired, again after , close false")
}

func TestPreflightIsForListedOriginsOnly(t *testing.T) {
	t.Parallel()
	rig := newStorageRig(t, func(o *upload.Options) {
		o.PagesOrigin = func() string { return "http://pages.example:8080" }
	})
	_, path := rig.create(10)
	for _, c := range []struct {
		name, origin string
		listed       bool
	}{
		{"our own pages", "http://pages.example:8080", true},
		{"listed", "https://app.example", true},
		{"other scheme", "http://app.example", false},
		{"suffix", "https://evil-app.example", false},
		{"capitals", "https://APP.example", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := rig.dial()
			conn.send("OPTIONS", path, []string{"Origin: " + c.origin, "Access-Control-Request-Method: PUT",
				"Access-Control-Request-Headers: content-range, content-type"}, "")
			pre := conn.reply()
			conn = rig.dial()
			conn.send("PUT", path, []string{"Origin: " + c.origin, "Content-Range: bytes */10", length0}, "")
			put := conn.reply()
			wantStatus, wantOrigin := 403, ""
			if c.listed {
				wantStatus, wantOrigin = 204, c.origin
			}
			effort.Is(t, pre.status, wantStatus, "preflight")
			effort.Is(t, put.status, 308, "preflight")
			for _, got := range []storageReply{pre, put} {
				h := got.header
				effort.ErrorIf(t, h.Get("Access-Control-Allow-Origin") != wantOrigin || h.Get("Vary") != "Origin" ||
					h.Get("Access-Control-Allow-Credentials") != "", "headers %v", h)
			}
			if c.listed && (pre.header.Get("Access-Control-Allow-Methods") != "PUT" ||
				pre.header.Get("Access-Control-Allow-Headers") != "Content-Type, Content-Range" ||
				pre.header.Get("Access-Control-Max-Age") != "600" ||
				!strings.HasPrefix(put.header.Get("Access-Control-Expose-Headers"), "Range, Retry-After")) {
				t.Errorf("preflight %v, PUT %v", pre.header, put.header)
			}
		})
	}
}

func tokens(fill byte) *upload.Tokens { return upload.NewTokens([upload.TokenKeyBytes]byte{fill}) }

func TestTokenNamesItsVerificationAlways(t *testing.T) {
	id := uuid.MustParse("6f1d0c53-6f3a-4c3b-9f4e-0123456789ab")
	one, other := tokens(1), tokens(1)
	effort.FatalIf(t, len(one.Token(id)) != upload.TokenBytes || one.Token(id) != other.Token(id),
		"tokens of one key and id: %d and %d characters, equal: %v", len(one.Token(id)), len(other.Token(id)),
		one.Token(id) == other.Token(id))
	got, ok := other.Parse(one.Token(id))
	effort.ErrorIf(t, !ok || got != id, "Parse = %v, %v; want %v", got, ok, id)
	want := "http://127.0.0.1:8082/upload/" + one.Token(id)
	for _, base := range []string{"http://127.0.0.1:8082", "http://127.0.0.1:8082/"} {
		effort.Is(t, one.URL(base, id), want, fmt.Sprintf("URL(%q) =", base))
	}
}

// TestAlteredTokenIsUnknown changes every character of a token, and its form.
func TestAlteredTokenIsUnknown(t *testing.T) {
	made := tokens(1)
	token := made.Token(uuid.New())
	bad := map[string]string{
		"empty": "", "short": token[:63], "long": token + "A", "of another key": tokens(2).Token(uuid.New()),
		"padded": token[:62] + "==", "with a line end": token[:63] + "\n", "zeros": strings.Repeat("A", 64),
	}
	for name, text := range bad {
		id, ok := made.Parse(text)
		effort.ErrorIf(t, ok, "a token that is %s names %v", name, id)
	}
	for i := range token {
		for _, c := range "Az0-_" {
			if altered := token[:i] + string(c) + token[i+1:]; altered != token {
				id, ok := made.Parse(altered)
				effort.FatalIf(t, ok, "with character %d changed to %q the token names %v", i, c, id)
			}
		}
	}
}

var naiveRange = regexp.MustCompile(`^(?i:bytes) (?:(\*)|([0-9]+)-([0-9]+))/(?:(\*)|([0-9]+))$`)

// naiveParse is a second reader of Content-Range, made of a regular expression and big numbers.
func naiveParse(text string) (string, bool) {
	m := naiveRange.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	most := new(big.Int).SetUint64(1<<63 - 1)
	number := func(digits string) *big.Int { n, _ := new(big.Int).SetString(digits, 10); return n }
	if m[1] != "" && m[4] != "" {
		return "query -1", true
	}
	if m[4] != "" {
		return "", false
	}
	total := number(m[5])
	if total.Sign() == 0 || total.Cmp(most) > 0 {
		return "", false
	}
	if m[1] != "" {
		return "query " + total.String(), true
	}
	first, last := number(m[2]), number(m[3])
	if first.Cmp(last) > 0 || last.Cmp(total) >= 0 {
		return "", false
	}
	return fmt.Sprintf("data %s %s %s", first, last, total), true
}

// FuzzUploadRange compares the reader with a naive one: both refuse the same texts and read the same values from the
// others.
func FuzzUploadRange(f *testing.F) {
	for _, seed := range []string{
		"bytes 0-9/10", "bytes */10", "bytes */*", "BYTES 5-5/6", "bytes 0-9/*", "bytes 3-2/9", "bytes 0-1,3-4/9",
		"bytes 0-0/9223372036854775807", "bytes 0-0/9223372036854775808", "bytes=0-1/2", "bytes */0",
		"bytes 1-1/1\n",
		"bytes 4-4/10", "BYTES 0-9/10", "bytes 00-09/010", "", "0-9/10", "rows 0-9/10", "bytes=0-9/10",
		"bytes  0-9/10", "bytes 0-1,2-9/10", "bytes 5-4/10", "bytes 0-10/10", "bytes 5-/10", "bytes -5/10",
		"bytes 0-9", "bytes +0-9/10", "bytes */-10", "bytes 0-9/0x0a", "bytes 0-9/9223372036854775808",
		"bytes 0-9/10 ", "bytes *-9/10",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := upload.ParseRange(text)
		want, ok := naiveParse(text)
		effort.MustBe(t, err == nil, ok, "ParseRange", text, err)
		if !ok {
			return
		}
		said := fmt.Sprintf("data %d %d %d", got.First, got.Last, got.Total)
		if got.Query {
			said = fmt.Sprintf("query %d", got.Total)
		}
		effort.MustBe(t, said, want, "ParseRange", text)
	})
}
