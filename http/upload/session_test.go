package upload_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"rollcall/config/effort"
	"rollcall/http/upload"
)

// head is a request with one Content-Range.
func head(contentRange string, length int64) upload.Request {
	return upload.Request{ContentRanges: []string{contentRange}, Length: length}
}

// bare is a request without Content-Range.
func bare(length int64) upload.Request { return upload.Request{Length: length} }

func refused(err error) upload.Decision { return upload.Decision{Action: upload.Refuse, Err: err} }

func incomplete(durable int64) upload.Decision {
	return upload.Decision{Action: upload.Incomplete, Durable: durable}
}

func take(durable, skip, store int64) upload.Decision {
	return upload.Decision{Action: upload.Take, Durable: durable, Skip: skip, Store: store}
}

// TestSessionDecides walks through the table of the storage URL: a file of
// 100 bytes, 40 of them durable where nothing else is said.
func TestSessionDecides(t *testing.T) {
	fresh := upload.Session{Declared: 100}
	open := upload.Session{Declared: 100, Durable: 40}
	full := upload.Session{Declared: 100, Durable: 100}
	expired := upload.Session{Declared: 100, Durable: 40, Expired: true}
	cancelled := upload.Session{Declared: 100, Durable: 40, Cancelled: true}
	done := upload.Decision{Action: upload.Done, Durable: 100}
	cases := []struct {
		name    string
		session upload.Session
		request upload.Request
		want    upload.Decision
	}{
		{"whole file", fresh, head("bytes 0-99/100", 100), take(0, 0, 100)},
		{"whole file without range", fresh, bare(100), take(0, 0, 100)},
		{"whole file again, part durable", open, head("bytes 0-99/100", 100), take(40, 40, 60)},
		{"whole file again without range", open, bare(100), take(40, 40, 60)},
		{"piece at the end, not last", open, head("bytes 40-41/100", 2), take(40, 0, 2)},
		{"piece at the end, last", open, head("bytes 40-99/100", 60), take(40, 0, 60)},
		{"overlap", open, head("bytes 30-49/100", 20), take(40, 10, 10)},
		{"overlap by all but one byte", open, head("bytes 0-40/100", 41), take(40, 40, 1)},
		{"all old", open, head("bytes 0-39/100", 40), incomplete(40)},
		{"gap", open, head("bytes 41-99/100", 59), incomplete(40)},
		{"gap at byte zero", fresh, head("bytes 1-99/100", 99), incomplete(0)},
		{"query", open, head("bytes */100", 0), incomplete(40)},
		{"query without length", open, head("bytes */100", upload.LengthUnknown), incomplete(40)},
		{"query of unknown total", open, head("bytes */*", 0), incomplete(40)},
		{"query, nothing stored", fresh, head("bytes */100", 0), incomplete(0)},
		{"query with a body", open, head("bytes */100", 3), refused(upload.ErrRangeInvalid)},
		{"query with another total", open, head("bytes */99", 0), refused(upload.ErrLengthMismatch)},
		{"query, complete", full, head("bytes */100", 0), done},
		{"query with another total, complete", full, head("bytes */7", 0), done},
		{"other bytes, complete", full, head("bytes 0-4/5", 5), done},
		{"nonsense, complete", full, head("nonsense", 5), done},
		{"complete and cancelled later", upload.Session{Declared: 1, Durable: 1, Cancelled: true}, bare(1),
			upload.Decision{Action: upload.Done, Durable: 1}},
		{"complete and expired later", upload.Session{Declared: 1, Durable: 1, Expired: true}, bare(1),
			upload.Decision{Action: upload.Done, Durable: 1}},
		{"data with another total", open, head("bytes 40-49/50", 10), refused(upload.ErrLengthMismatch)},
		{"data beyond the file", open, head("bytes 40-100/101", 61), refused(upload.ErrLengthMismatch)},
		{"last beyond the total", open, head("bytes 40-100/100", 61), refused(upload.ErrRangeInvalid)},
		{"first after last", open, head("bytes 41-40/100", 0), refused(upload.ErrRangeInvalid)},
		{"length shorter than the range", open, head("bytes 40-49/100", 9), refused(upload.ErrRangeInvalid)},
		{"length longer than the range", open, head("bytes 40-49/100", 11), refused(upload.ErrRangeInvalid)},
		{"gap with a wrong length", open, head("bytes 50-59/100", 9), refused(upload.ErrRangeInvalid)},
		{"other unit", open, head("rows 40-49/100", 10), refused(upload.ErrRangeInvalid)},
		{"several ranges", open, head("bytes 40-44,45-49/100", 10), refused(upload.ErrRangeInvalid)},
		{"several headers", open,
			upload.Request{ContentRanges: []string{"bytes 40-49/100", "bytes 40-49/100"}, Length: 10},
			refused(upload.ErrRangeInvalid)},
		{"no range, short", open, bare(99), refused(upload.ErrLengthMismatch)},
		{"no range, empty", open, bare(0), refused(upload.ErrLengthMismatch)},
		{"no range, long", open, bare(101), refused(upload.ErrTooLarge)},
		{"no length", open, bare(upload.LengthUnknown), refused(upload.ErrLengthRequired)},
		{"no length with a data range", open, head("bytes 40-49/100", upload.LengthUnknown),
			refused(upload.ErrLengthRequired)},
		{"transfer encoding", open, upload.Request{Length: upload.LengthUnknown, Transfer: true},
			refused(upload.ErrLengthRequired)},
		{"transfer encoding on a complete file", full, upload.Request{Length: 100, Transfer: true},
			refused(upload.ErrLengthRequired)},
		{"content encoding", open, upload.Request{Length: 100, Encoded: true}, refused(upload.ErrEncoding)},
		{"expired, data", expired, head("bytes 40-99/100", 60), refused(upload.ErrExpired)},
		{"expired, query", expired, head("bytes */100", 0), refused(upload.ErrExpired)},
		{"cancelled, data", cancelled, head("bytes 40-99/100", 60), refused(upload.ErrCancelled)},
		{"cancelled, query", cancelled, head("bytes */100", 0), refused(upload.ErrCancelled)},
		{"expired before a wrong total is seen", expired, head("bytes */7", 0), refused(upload.ErrExpired)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := upload.Decide(c.session, c.request); got != c.want {
				t.Errorf("Decide(%+v, %+v) = %+v, want %+v", c.session, c.request, got, c.want)
			}
		})
	}
}

// TestEveryDecisionKeepsTheSession draws sessions and heads and checks what
// must hold for all of them: the whole body is accounted for, nothing is
// stored twice or beyond the file, and only full sessions are done.
func TestEveryDecisionKeepsTheSession(t *testing.T) {
	effort.Check(t, func(t *rapid.T) {
		declared := rapid.Int64Range(1, 50).Draw(t, "declared")
		s := upload.Session{
			Declared: declared, Durable: rapid.Int64Range(0, declared).Draw(t, "durable"),
			Expired: rapid.Bool().Draw(t, "expired"), Cancelled: rapid.Bool().Draw(t, "cancelled"),
		}
		r := bare(rapid.Int64Range(-1, 60).Draw(t, "length"))
		if rapid.Bool().Draw(t, "ranged") {
			text := rapid.StringMatching(`bytes ([0-5]?[0-9]-[0-5]?[0-9]|\*)/([0-5]?[0-9]|\*)`).Draw(t, "range")
			r.ContentRanges = []string{text}
		}
		d := upload.Decide(s, r)
		switch d.Action {
		case upload.Take:
			if d.Skip+d.Store != r.Length || d.Store < 1 || s.Durable+d.Store > s.Declared ||
				s.Expired || s.Cancelled {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		case upload.Done:
			if !s.Complete() {
				t.Fatalf("Decide(%+v, %+v) = done", s, r)
			}
		case upload.Incomplete:
			if s.Complete() || d.Durable != s.Durable {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		case upload.Refuse:
			if d.Err == nil || (s.Complete() && !errors.Is(d.Err, upload.ErrLengthRequired)) {
				t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
			}
		default:
			t.Fatalf("Decide(%+v, %+v) = %+v", s, r, d)
		}
	})
}

func tokens(t *testing.T, fill byte) *upload.Tokens {
	t.Helper()
	made, err := upload.NewTokens(bytes.Repeat([]byte{fill}, upload.TokenKeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTokenNamesItsVerificationAlways(t *testing.T) {
	id := uuid.MustParse("6f1d0c53-6f3a-4c3b-9f4e-0123456789ab")
	one, other := tokens(t, 1), tokens(t, 1)
	if len(one.Token(id)) != upload.TokenBytes || one.Token(id) != other.Token(id) {
		t.Fatalf("tokens of one key and id: %d and %d characters, equal: %v",
			len(one.Token(id)), len(other.Token(id)), one.Token(id) == other.Token(id))
	}
	if got, ok := other.Parse(one.Token(id)); !ok || got != id {
		t.Errorf("Parse = %v, %v; want %v", got, ok, id)
	}
	want := "http://127.0.0.1:8082/upload/" + one.Token(id)
	for _, base := range []string{"http://127.0.0.1:8082", "http://127.0.0.1:8082/"} {
		if got := one.URL(base, id); got != want {
			t.Errorf("URL(%q) = %q, want %q", base, got, want)
		}
	}
}

// TestAlteredTokenIsUnknown changes every character of a token, and its form.
func TestAlteredTokenIsUnknown(t *testing.T) {
	made := tokens(t, 1)
	token := made.Token(uuid.New())
	bad := map[string]string{
		"empty": "", "short": token[:63], "long": token + "A", "of another key": tokens(t, 2).Token(uuid.New()),
		"padded": token[:62] + "==", "with a line end": token[:63] + "\n", "zeros": strings.Repeat("A", 64),
	}
	for name, text := range bad {
		if id, ok := made.Parse(text); ok {
			t.Errorf("a token that is %s names %v", name, id)
		}
	}
	for i := range token {
		for _, c := range "Az0-_" {
			if altered := token[:i] + string(c) + token[i+1:]; altered != token {
				if id, ok := made.Parse(altered); ok {
					t.Fatalf("with character %d changed to %q the token names %v", i, c, id)
				}
			}
		}
	}
}

func TestTokenKeyHasOneLength(t *testing.T) {
	for _, n := range []int{0, 31, 33} {
		if _, err := upload.NewTokens(make([]byte, n)); !errors.Is(err, upload.ErrTokenKey) {
			t.Errorf("NewTokens with %d bytes: %v, want ErrTokenKey", n, err)
		}
	}
}

func TestContentRangeIsReadOrRefused(t *testing.T) {
	whole := upload.Range{First: 0, Last: 9, Total: 10}
	cases := []struct {
		name, text string
		want       upload.Range
		wantErr    error
	}{
		{"whole file", "bytes 0-9/10", whole, nil},
		{"one byte", "bytes 4-4/10", upload.Range{First: 4, Last: 4, Total: 10}, nil},
		{"unit in capitals", "BYTES 0-9/10", whole, nil},
		{"leading zeros", "bytes 00-09/010", whole, nil},
		{"largest total", "bytes 0-0/9223372036854775807", upload.Range{Total: 1<<63 - 1}, nil},
		{"query", "bytes */10", upload.Range{Query: true, Total: 10}, nil},
		{"query of unknown total", "bytes */*", upload.Range{Query: true, Total: upload.TotalUnknown}, nil},
		{"empty", "", upload.Range{}, upload.ErrRangeInvalid},
		{"no unit", "0-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"other unit", "rows 0-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"request form", "bytes=0-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"two spaces", "bytes  0-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"several ranges", "bytes 0-1,2-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"first after last", "bytes 5-4/10", upload.Range{}, upload.ErrRangeInvalid},
		{"last beyond total", "bytes 0-10/10", upload.Range{}, upload.ErrRangeInvalid},
		{"data of unknown total", "bytes 0-9/*", upload.Range{}, upload.ErrRangeInvalid},
		{"open end", "bytes 5-/10", upload.Range{}, upload.ErrRangeInvalid},
		{"suffix", "bytes -5/10", upload.Range{}, upload.ErrRangeInvalid},
		{"no total", "bytes 0-9", upload.Range{}, upload.ErrRangeInvalid},
		{"total zero", "bytes */0", upload.Range{}, upload.ErrRangeInvalid},
		{"sign", "bytes +0-9/10", upload.Range{}, upload.ErrRangeInvalid},
		{"negative total", "bytes */-10", upload.Range{}, upload.ErrRangeInvalid},
		{"hexadecimal", "bytes 0-9/0x0a", upload.Range{}, upload.ErrRangeInvalid},
		{"over 63 bits", "bytes 0-9/9223372036854775808", upload.Range{}, upload.ErrRangeInvalid},
		{"trailing space", "bytes 0-9/10 ", upload.Range{}, upload.ErrRangeInvalid},
		{"star in span", "bytes *-9/10", upload.Range{}, upload.ErrRangeInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := upload.ParseRange(c.text)
			if got != c.want || !errors.Is(err, c.wantErr) {
				t.Errorf("ParseRange(%q) = %+v, %v; want %+v, %v", c.text, got, err, c.want, c.wantErr)
			}
		})
	}
}

func TestDurableRangeNamesTheLastByte(t *testing.T) {
	for durable, want := range map[int64]string{0: "", 1: "bytes=0-0", 262144: "bytes=0-262143"} {
		if got := upload.DurableRange(durable); got != want {
			t.Errorf("DurableRange(%d) = %q, want %q", durable, got, want)
		}
	}
}

var naiveRange = regexp.MustCompile(`^(?i:bytes) (?:(\*)|([0-9]+)-([0-9]+))/(?:(\*)|([0-9]+))$`)

// naiveParse is a second reader of Content-Range, by regular expression and big numbers.
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

// FuzzUploadRange compares the reader with a naive one: the same texts are
// refused, and the others mean the same.
func FuzzUploadRange(f *testing.F) {
	for _, seed := range []string{
		"bytes 0-9/10", "bytes */10", "bytes */*", "BYTES 5-5/6", "bytes 0-9/*", "bytes 3-2/9", "bytes 0-1,3-4/9",
		"bytes 0-0/9223372036854775807", "bytes 0-0/9223372036854775808", "bytes=0-1/2", "bytes */0",
		"bytes 1-1/1\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := upload.ParseRange(text)
		want, ok := naiveParse(text)
		if ok != (err == nil) {
			t.Fatalf("ParseRange(%q) error %v, the naive reader accepts: %v", text, err, ok)
		}
		if !ok {
			return
		}
		said := fmt.Sprintf("data %d %d %d", got.First, got.Last, got.Total)
		if got.Query {
			said = fmt.Sprintf("query %d", got.Total)
		}
		if said != want {
			t.Fatalf("ParseRange(%q) = %s, want %s", text, said, want)
		}
	})
}
