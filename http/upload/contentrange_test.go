package upload_test

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"testing"

	"rollcall/http/upload"
)

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
