package upload_test

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/upload"
)

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

// FuzzUploadRange compares the reader with a naive one: the same texts are refused, and the others mean the same.
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
