package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// defects are what a customer may not send, one way each.
var defects = []struct {
	name, file, code string
	row              int64
}{
	{"empty file", "", CodeNoAddresses, 0},
	{"byte order mark only", "\ufeff", CodeNoAddresses, 0},
	{"header only", "email\n", CodeNoAddresses, 0},
	{"header only, no line end", "email", CodeNoAddresses, 0},
	{"UTF-16 LE with mark", "\xff\xfea\x00@\x00b\x00\n\x00", CodeEncoding, 1},
	{"UTF-16 BE with mark", "\xfe\xff\x00a\x00@\x00b\x00\n", CodeEncoding, 1},
	{"UTF-16 LE without mark", "a\x00@\x00b\x00\n\x00", CodeEncoding, 1},
	{"UTF-32 LE with mark", "\xff\xfe\x00\x00a\x00\x00\x00", CodeEncoding, 1},
	{"UTF-32 BE with mark", "\x00\x00\xfe\xff\x00\x00\x00a", CodeEncoding, 1},
	{"NUL in the header", "e\x00mail\na@b.test\n", CodeEncoding, 1},
	{"NUL in an address", "email\na@b.test\na\x00@b.test\n", CodeEncoding, 3},
	{"NUL in quotes", "email\n\"a\x00@b.test\"\n", CodeEncoding, 2},
	{"NUL after quotes", "email\n\"a@b.test\"\x00\n", CodeEncoding, 2},
	{"NUL as a row", "a@b.test\n\x00\n", CodeEncoding, 2},
	{"NUL at the end", "a@b.test\n\x00", CodeEncoding, 2},
	{"broken UTF-8", "email\na@b.test\n\xe9mile@b.test\n", CodeEncoding, 3},
	{"broken UTF-8 in the header", "\xe9\na@b.test\n", CodeEncoding, 1},
	{"broken UTF-8 in a domain", "a@b.test\na@b\xff.test\n", CodeEncoding, 2},
	{"broken UTF-8 in quotes", "a@b.test\n\"\xc3(\"\n", CodeEncoding, 2},
	{"broken UTF-8 after quotes", "a@b.test\n\"a@b.test\"\xff\n", CodeEncoding, 2},
	{"overlong", "a@b.test\n\xc0\xaf@b.test\n", CodeEncoding, 2},
	{"surrogate", "a@b.test\n\xed\xa0\x80@b.test\n", CodeEncoding, 2},
	{"beyond U+10FFFF", "a@b.test\n\xf4\x90\x80\x80@b.test\n", CodeEncoding, 2},
	{"character cut off at the end", "a@b.test\na@b.test\xc3", CodeEncoding, 2},
	{"lone CR as line end", "a@b.test\rc@b.test\r", CodeMalformed, 1},
	{"lone CR at the end", "a@b.test\nc@b.test\r", CodeMalformed, 2},
	{"two CR before LF", "a@b.test\na@b.test\r\r\n", CodeMalformed, 2},
	{"lone CR after quotes", "a@b.test\n\"a@b.test\"\rx", CodeMalformed, 2},
	{"lone CR as a row", "a@b.test\n\r", CodeMalformed, 2},
	{"stray quote", "a@b.test\na\"b@c.test\n", CodeMalformed, 2},
	{"quoted local part without quotes of CSV", "a@b.test\n\"a b\"@c.test\n", CodeMalformed, 2},
	{"space before the quote", "a@b.test\n \"a@b.test\"\n", CodeMalformed, 2},
	{"space after the quote", "a@b.test\n\"a@b.test\" \n", CodeMalformed, 2},
	{"quote in the header", "e\"mail\na@b.test\n", CodeMalformed, 1},
	{"unclosed quote", "h\na@b.test\n\"a@b.test\nc@d.test\n", CodeMalformed, 3},
	{"a quote alone", "a@b.test\n\"", CodeMalformed, 2},
	{"unclosed quote with a long rest", "h\n\"a@b.test\n" + long, CodeRecordTooLong, 2},
	{"blank line between", "a@b.test\n\nc@d.test\n", CodeBlankRecord, 2},
	{"blank line between, CRLF", "a@b.test\r\n\r\nc@d.test\r\n", CodeBlankRecord, 2},
	{"blank line at the end", "a@b.test\n\n", CodeBlankRecord, 2},
	{"blank line at the end, CRLF", "a@b.test\r\n\r\n", CodeBlankRecord, 2},
	{"blank first record", "\na@b.test\n", CodeBlankRecord, 1},
	{"blank first record after the mark", "\ufeff\na@b.test\n", CodeBlankRecord, 1},
	{"one line end", "\n", CodeBlankRecord, 1},
	{"only spaces", "a@b.test\n   \nc@d.test\n", CodeBlankRecord, 2},
	{"only spaces at the end", "a@b.test\n  ", CodeBlankRecord, 2},
	{"a tab", "a@b.test\n\t\n", CodeBlankRecord, 2},
	{"a no-break space", "a@b.test\n\u00a0\n", CodeBlankRecord, 2},
	{"empty quotes", "a@b.test\n\"\"\n", CodeBlankRecord, 2},
	{"empty quotes at the end", "a@b.test\n\"\"", CodeBlankRecord, 2},
	{"spaces in quotes", "a@b.test\n\"  \"\n", CodeBlankRecord, 2},
	{"line end in quotes", "a@b.test\n\"\r\n\"\n", CodeBlankRecord, 2},
	{"second column", "a@b.test\nc@d.test,Ada\n", CodeExtraColumn, 2},
	{"second column in the header", "email,name\na@b.test,Ada\n", CodeExtraColumn, 1},
	{"trailing comma", "a@b.test\nc@d.test,\n", CodeExtraColumn, 2},
	{"trailing comma after quotes", "a@b.test\n\"c@d.test\",\n", CodeExtraColumn, 2},
	{"commas only", "a@b.test\n,,\n", CodeExtraColumn, 2},
	{"second column of a bad address", "a@b.test\nnothing,Ada\n", CodeExtraColumn, 2},
	{"field of 1,025 bytes", "a@b.test\n" + long + "x\n", CodeRecordTooLong, 2},
	{"field of 1,024 bytes", "a@b.test\n" + long + "\n", CodeInvalidAddress, 2},
	{"field of 1,024 bytes, CRLF", "a@b.test\n" + long + "\r\n", CodeInvalidAddress, 2},
	{"field of 1,024 bytes, no line end", "a@b.test\n" + long, CodeInvalidAddress, 2},
	{"field of 1,024 bytes in quotes", "a@b.test\n\"" + long + "\"\n", CodeInvalidAddress, 2},
	{"field of 1,025 bytes in quotes", "a@b.test\n\"" + long + "x\"\n", CodeRecordTooLong, 2},
	{"field of 1,025 quotes", "a@b.test\n\"" + strings.Repeat(`""`, 1025) + "\"\n", CodeRecordTooLong, 2},
	{"field of 1,025 bytes, two in a character", "a@b.test\n" + long[1:] + "ä\n", CodeRecordTooLong, 2},
	{"header of 1,025 bytes", long + "x\na@b.test\n", CodeRecordTooLong, 1},
	{"comma as byte 1,025", "a@b.test\n" + long + ",\n", CodeExtraColumn, 2},
	{"broken UTF-8 as byte 1,025", "a@b.test\n" + long + "\xff\n", CodeEncoding, 2},
	{"lone CR as byte 1,025", "a@b.test\n" + long + "\rx\n", CodeMalformed, 2},
	{"defects beyond byte 1,025", "a@b.test\n" + long + "x,\x00\n", CodeRecordTooLong, 2},
	{"space before", "a@b.test\n c@d.test\n", CodeInvalidAddress, 2},
	{"space after", "a@b.test\nc@d.test \n", CodeInvalidAddress, 2},
	{"display name", "a@b.test\nAda <c@d.test>\n", CodeInvalidAddress, 2},
	{"comment", "a@b.test\nc@d.test(Ada)\n", CodeInvalidAddress, 2},
	{"route", "a@b.test\n\"<@x.test,@y.test:c@d.test>\"\n", CodeInvalidAddress, 2},
	{"domain literal", "a@b.test\nc@[192.0.2.1]\n", CodeInvalidAddress, 2},
	{"second header", "email\nemail\na@b.test\n", CodeInvalidAddress, 2},
	{"two addresses", "a@b.test\na@b.test;c@d.test\n", CodeInvalidAddress, 2},
	{"long local part", "h\n" + long[:65] + "@d.test\n", CodeInvalidAddress, 2},
	{"long label", "h\na@" + long[:64] + ".test\n", CodeInvalidAddress, 2},
	{"long address", "h\na@" + domain190 + "\n" + long[:64] + "@" + domain190 + "\n", CodeInvalidAddress, 3},
	{"control in a quoted local part", "h\n\"\"\"a\tb\"\"@c.test\"\n", CodeInvalidAddress, 2},
	{"line end in an address", "h\n\"a@b.test\n\"\n", CodeInvalidAddress, 2},
	{"decomposed local part", "h\njose\u0301@b.test\n", CodeInvalidAddress, 2},
	{"domain that is no IDN", "h\na@xn--zzzzzzzz9.test\n", CodeInvalidAddress, 2},
	{"two byte order marks before an address", "\ufeff\ufeffa@b.test\nc@d.test\n", CodeInvalidAddress, 1},
	{"byte order mark in the middle", "a@b.test\n\ufeffc@d.test\n", CodeInvalidAddress, 2},
	{"records that span lines are one row", "\"e\nmail\"\na@b.test\nnothing\n", CodeInvalidAddress, 3},
	{"one row too many", "h\n" + strings.Repeat("a@b.test\n", 10), CodeTooManyRows, 11},
	{"one row too many without header", strings.Repeat("a@b.test\n", 10), CodeTooManyRows, 10},
	{"one row too many at a new domain", strings.Repeat("a@b.test\n", 9) + "a@c.test", CodeTooManyRows, 10},
	{"blank line after the last allowed row", strings.Repeat("a@b.test\n", 9) + "\n", CodeBlankRecord, 10},
	{"first of several defects", "a@b.test\n\nc@d.test,\n\x00", CodeBlankRecord, 2},
}

func TestDefects(t *testing.T) {
	for _, tt := range defects {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, tt.file, answer{Code: tt.code, Row: tt.row})
		})
	}
}

// refused holds that both readers refuse a file for the same defect.
func refused(t *testing.T, file string, want answer) {
	t.Helper()
	got, err := ask(strings.NewReader(file), 9)
	effort.ErrorIf(t, err != nil || !reflect.DeepEqual(got, want), "%q: got %+v, %v, want %+v", file, got, err, want)
	effort.Same(t, naive([]byte(file), 9), want, file, "the second reader has")
}

// long is the longest field.
var long = strings.Repeat("x", FieldBytesMax)

// domain190 is a domain of 190 octets: with a local part of 64 the address is too long.
var domain190 = strings.Repeat(strings.Repeat("d", 62)+".", 3) + "d"

// A domain that was accepted once is not looked at again: what depends on the whole row still is.
func TestKnownDomainIsNoShortCut(t *testing.T) {
	mapped := strings.Repeat("\u00ad", 480) + "b.test" // 966 bytes that map to b.test
	for _, tt := range []struct {
		name, file, code string
	}{
		{"field too long", "a@" + mapped + "\n" + long[:64] + "@" + mapped + "\n", CodeRecordTooLong},
		{"quote not closed, and a byte more", "a@b.test\n\"a@b.testx\n", CodeMalformed},
		{"text after the quote", "a@b.test\n\"a@b.test\"x\n", CodeMalformed},
		{"quote within quotes", "a@b.test\n\"\"a@b.test\"\n", CodeMalformed},
		{"quotes doubled within quotes", "a@b.test\n\"\"\"a@b.test\"\n", CodeInvalidAddress},
		{"comma within quotes", "a@b.test\n\"a,c@b.test\"\n", CodeInvalidAddress},
		{"line end within quotes", "a@b.test\n\"a@b.test\n\"\n", CodeInvalidAddress},
		{"CR within quotes", "a@b.test\n\"a@b.test\r\"\n", CodeInvalidAddress},
		{"second column in quotes", "a@b.test\n\"a@b.test\",\"c@b.test\"\n", CodeExtraColumn},
		{"comma in the local part", "a@b.test\na,@b.test\n", CodeExtraColumn},
		{"quote before it", "a@b.test\n\"a@b.test\n", CodeMalformed},
		{"quoted local part without quotes of CSV", "a@b.test\n\"a b\"@b.test\n", CodeMalformed},
		{"lone CR after it", "a@b.test\na@b.test\r\r\n", CodeMalformed},
		{"space before it", "a@b.test\na@ b.test\n", CodeInvalidAddress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, tt.file, answer{Code: tt.code, Row: 2})
		})
	}
}

func TestDefectSaysWhatToDo(t *testing.T) {
	const secret = "Sekr3t"
	for code, file := range map[string]string{
		CodeEncoding:       "a@b.test\n" + secret + "\x00@b.test",
		CodeMalformed:      "a@b.test\n" + secret + "\"@b.test",
		CodeBlankRecord:    "a@b.test\n\n" + secret + "@b.test",
		CodeExtraColumn:    "a@b.test\n" + secret + "@b.test,",
		CodeInvalidAddress: "a@b.test\n" + secret + "@b..test",
		CodeRecordTooLong:  "a@b.test\n" + strings.Repeat(secret, 1024),
		CodeNoAddresses:    secret,
		CodeTooManyRows:    strings.Repeat(secret+"@b.test\n", 4),
	} {
		_, err := Read(strings.NewReader(file), Limits{RowsMax: 3})
		var d *Defect
		if !errors.As(err, &d) || d.Code != code {
			t.Errorf("%q: got %v, want %s", file, err, code)
			continue
		}
		effort.ErrorIf(t, strings.Contains(d.Message+d.Error(), secret) || strings.Contains(d.Message, "%") ||
			!strings.Contains(d.Message, "upload") || !strings.HasSuffix(d.Message, "."), "%s: message %q, error %q",
			code, d.Message, d.Error())
	}
}

func TestShownRowHidesNothingAndStaysShort(t *testing.T) {
	long := strings.Repeat("ü", TextMax/2)
	for file, want := range map[string]string{
		"a\n\"quoted\" \\ and more\n":                  `"quoted" \ and more`,
		"a\nm\xfcller@x.test\n":                        `m\xfcller@x.test`,
		"a\nann\u202eat\u200b@x.test\t\n":              `ann\u202eat\u200b@x.test\t`,
		"a\n" + long + "\n":                            long,
		"a\nx" + long + "\n":                           "x" + long[:TextMax-2] + "…",
		"a\n" + strings.Repeat("\x01", TextMax) + "\n": strings.Repeat(`\x01`, 79) + "…",
	} {
		_, err := Read(strings.NewReader(file), Limits{RowsMax: 3})
		var d *Defect
		effort.ErrorIf(t, !errors.As(err, &d) || d.Shown(320) != want, "%q: got %q, want %q", file, d.Shown(320), want)
	}
}

var updateMessy = flag.Bool("update-messy", false, "write what is said of the samples into testdata/messy.json")

// sample is a file of testdata/messy.json with the expected findings. The checker of the pages can use it too.
type sample struct {
	Name    string `json:"name"`
	Text    string `json:"text,omitempty"`
	Base64  []byte `json:"base64,omitempty"`  // instead of text: what is no text, or not in UTF-8
	Refused string `json:"refused,omitempty"` // what the service says of the file
	Defects []said `json:"defects,omitempty"` // all of them, and notes
}

type said struct {
	Row     int64    `json:"row,omitempty"`
	Kind    Kind     `json:"kind"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Means   []string `json:"means,omitempty"`
}

func (s sample) file() []byte {
	if s.Text != "" {
		return []byte(s.Text)
	}
	return s.Base64
}

// TestMessyFiles holds what is said of the files that people have.
func TestMessyFiles(t *testing.T) {
	t.Parallel()
	name := filepath.Join("testdata", "messy.json")
	text := effort.Must(os.ReadFile(name))(t)
	var samples []sample
	effort.OK(t, json.Unmarshal(text, &samples))
	seen := map[Kind]bool{}
	for i := range samples {
		want := samples[i]
		got := sample{Name: want.Name, Text: want.Text, Base64: want.Base64}
		effort.Must(Inspect(bytes.NewReader(want.file()), Limits{RowsMax: 100}, nil, func(d *Defect) bool {
			got.Defects = append(got.Defects, said{d.Row, d.Kind, d.Code, d.Message, d.Means})
			seen[d.Kind] = true
			return true
		}))(t)
		_, err := Read(bytes.NewReader(want.file()), Limits{RowsMax: 100})
		if d := (*Defect)(nil); errors.As(err, &d) {
			got.Refused = d.Message
		}
		effort.ErrorIf(t, !*updateMessy && !reflect.DeepEqual(got, want),
			"%s: got\n%+v\nwant\n%+v", want.Name, got, want)
		samples[i] = got
	}
	for kind := range kinds {
		effort.ErrorIf(t, !seen[kind] && kind != KindTooMany, "no sample is of the kind %s", kind)
	}
	if *updateMessy {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		effort.OK(t, errors.Join(e.Encode(samples), os.WriteFile(name, b.Bytes(), 0o644)))
	}
}

// What Check says of one text is what Inspect says of it as a row.
func TestCheckIsInspectOfOneRow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"anna@a.test", "", " ", "Anna <anna@a.test>", "anna@a.test ", "a@b@c", "a;b",
		strings.Repeat("x", FieldBytesMax), strings.Repeat("a", 65) + "@a.test"} {
		var want *Defect
		effort.Must(Inspect(strings.NewReader("email\n"+text+"\n"), Limits{RowsMax: 9}, nil, func(d *Defect) bool {
			want = d
			return false
		}))(t)
		if want != nil && want.Kind == KindNoAddress {
			want = nil
		}
		effort.Same(t, Check(text, 2), want, text)
	}
}

// Rows behind the first with a defect are counted for the message, up to a bound.
func TestMoreRowsAreCounted(t *testing.T) {
	t.Parallel()
	for bad, want := range map[int]string{1: "upload the file again.", 2: " One more row has a defect.",
		3: " 2 more rows have defects.", moreMax + 5: " More than 1,000 more rows have defects."} {
		_, err := Read(strings.NewReader("email\n"+strings.Repeat("a@b.test\nnothing\n", bad)), Limits{RowsMax: 9999})
		d := (*Defect)(nil)
		effort.ErrorIf(t, !errors.As(err, &d) || !strings.HasSuffix(d.Message, want) || d.Row != 3,
			"%d bad rows: got %+v, want %q", bad, d, want)
	}
}
