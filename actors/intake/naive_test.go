package intake

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// answer is what a reader says of a file, in a form that can be compared.
type answer struct {
	Code      string // of the defect; "" for a good file
	Row       int64
	Rows      int64
	Addresses []found
}

type found struct {
	Spelling string
	Address  smtp.Address
}

// naive is the second reader: the whole file in memory, each record cut out first and judged afterwards, a map of
// strings for what was seen. It shares nothing with Read but smtp.ParseAddress.
func naive(file []byte, rowsMax int64) answer {
	var a answer
	seen := map[string]bool{}
	rest := strings.TrimPrefix(string(file), "\ufeff")
	for row := int64(1); rest != ""; row++ {
		field, after, code := naiveRecord(rest)
		rest = after
		address, err := smtp.ParseAddress(field)
		switch {
		case code != "":
		case strings.TrimSpace(field) == "":
			code = "csv_blank_record"
		case err == nil && a.Rows == rowsMax:
			code = "csv_too_many_rows"
		case err == nil:
			a.Rows++
			if !seen[address.String()] {
				a.Addresses = append(a.Addresses, found{field, address})
			}
			seen[address.String()] = true
		case row > 1 || naiveHidden(field):
			code = "csv_invalid_address"
		}
		if code != "" {
			return answer{Code: code, Row: row}
		}
	}
	if a.Rows == 0 {
		return answer{Code: "csv_no_addresses"}
	}
	return a
}

// naiveHidden reports whether byte order marks are all that keeps field from being an address.
func naiveHidden(field string) bool {
	for strings.HasPrefix(field, "\ufeff") {
		field = field[len("\ufeff"):]
		if _, err := smtp.ParseAddress(field); err == nil {
			return true
		}
	}
	return false
}

// naiveRecord cuts the first record off. Of several defects in it, the one at the earliest byte is given.
func naiveRecord(text string) (field, rest, code string) {
	if text[0] == '"' {
		return naiveQuoted(text)
	}
	line, rest, ended := strings.Cut(text, "\n")
	if ended {
		line = strings.TrimSuffix(line, "\r")
	}
	at, code := naiveText(line)
	for _, other := range []struct{ mark, code string }{
		{",", "csv_extra_column"}, {"\"", "csv_malformed"}, {"\r", "csv_malformed"},
	} {
		if i := strings.Index(line, other.mark); i >= 0 && (code == "" || i <= at) {
			at, code = i, other.code
		}
	}
	return line, rest, code
}

func naiveQuoted(text string) (field, rest, code string) {
	end := 1
	for end < len(text) && (text[end] != '"' || strings.HasPrefix(text[end:], `""`)) {
		if text[end] == '"' {
			end++
		}
		end++
	}
	field = strings.ReplaceAll(text[1:min(end, len(text))], `""`, `"`)
	if _, code := naiveText(field); code != "" {
		return "", "", code
	}
	if end >= len(text) {
		return "", "", "csv_malformed"
	}
	rest = text[end+1:]
	switch {
	case rest == "":
	case strings.HasPrefix(rest, "\n"):
		rest = rest[1:]
	case strings.HasPrefix(rest, "\r\n"):
		rest = rest[2:]
	case rest[0] == ',':
		return "", "", "csv_extra_column"
	case naiveBroken(rest):
		return "", "", "csv_encoding"
	default:
		return "", "", "csv_malformed"
	}
	return field, rest, ""
}

// naiveText finds the first place where a value is not text or is too long.
func naiveText(value string) (at int, code string) {
	for i, r := range value {
		width := len(string(r))
		switch {
		case naiveBroken(value[i:]):
			return i, "csv_encoding"
		case i+width > 1024:
			return i, "csv_record_too_long"
		}
	}
	return 0, ""
}

// naiveBroken reports whether text starts with NUL or with what is not UTF-8.
func naiveBroken(text string) bool {
	first := []rune(text[:min(len(text), 4)])[0]
	return first == 0 || first == utf8.RuneError && !strings.HasPrefix(text, "\ufffd")
}

// FuzzReadCSV holds Read against the second reader: the same defect in the same
// row, or the same addresses, however the bytes are cut.
func FuzzReadCSV(f *testing.F) {
	for _, seed := range []string{
		"email\na@b.test\nA@B.test\r\na@b.test\n", "\ufeff\"a@b.test\"\n\n",
		"h\n\"\"\"a b\"\"@c.test\"\r\nä@bücher.test",
		"a@b.test\nc@d.test,\n", "a@b\rc", "\"a", "a@b\n\x00", "a@b\n\xff", "\ufeff\ufeffa@b\n",
		"a@b\na@B\na@c\na@d\n",
		"a@b\n" + strings.Repeat("x", 1030), "a@b\n\"" + strings.Repeat(`""`, 1030), "a@b\n\"\r\n\"",
	} {
		f.Add([]byte(seed), uint64(len(seed)))
	}
	f.Fuzz(func(t *testing.T, file []byte, cuts uint64) {
		const rowsMax = 4
		want := naive(file, rowsMax)
		random := rand.New(rand.NewPCG(cuts, 0))
		for _, source := range []io.Reader{bytes.NewReader(file), &cutter{file, random}} {
			effort.Same(t, effort.Must(ask(source, rowsMax))(t), want, "the second reader has")
		}
	})
}
