package intake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// ask reads a file with Read and gives its answer.
func ask(r io.Reader, rowsMax int64) (answer, error) {
	f, err := Read(r, Limits{RowsMax: rowsMax})
	var d *Defect
	if errors.As(err, &d) {
		return answer{Code: d.Code, Row: d.Row}, nil
	}
	if err != nil {
		return answer{}, err
	}
	a := answer{Rows: f.Rows()}
	for i := range f.Len() {
		a.Addresses = append(a.Addresses, found{spelled(f, i), f.Address(i)})
	}
	return a, checkFile(f)
}

// checkFile holds what must be true of every File.
func checkFile(f *File) error {
	if f.Len() < 1 || f.Rows() != int64(f.Len())+f.Duplicates() {
		return fmt.Errorf("%d rows, %d addresses, %d duplicates", f.Rows(), f.Len(), f.Duplicates())
	}
	fresh := 0 // domains are numbered in the order in which they come
	for i := range f.Len() {
		id := f.DomainID(i)
		if f.Domain(i) != f.Address(i).Domain || f.Domains()[id] != f.Domain(i) || id > fresh {
			return fmt.Errorf("ordinal %d has domain %d of %d", i, id, fresh)
		}
		if id == fresh {
			fresh++
		}
	}
	if fresh != len(f.Domains()) {
		return fmt.Errorf("%d domains are used, %d are listed", fresh, len(f.Domains()))
	}
	return nil
}

// goodFiles are what a customer may send.
var goodFiles = []struct {
	name, file string
	rows       int64
	want       string // spellings, a space between them
}{
	{"one row", "a@b.test\n", 1, "a@b.test"},
	{"last line without line end", "a@b.test\nc@d.test", 2, "a@b.test c@d.test"},
	{"header", "email\na@b.test\n", 1, "a@b.test"},
	{"header in quotes with everything", "\"e-mail, \"\"all\"\"\r\nof them\"\na@b.test\n", 1, "a@b.test"},
	{"header that is almost an address", "Ada <a@b.test>\na@b.test\n", 1, "a@b.test"},
	{"header that is too long an address", long[:64] + "@" + domain190 + "\na@b.test\n", 1, "a@b.test"},
	{"header of 1,024 bytes", strings.Repeat("h", 1024) + "\na@b.test\n", 1, "a@b.test"},
	{"header of 1,024 doubled quotes", `"` + strings.Repeat(`""`, 1024) + "\"\r\na@b.test\n", 1, "a@b.test"},
	{"header beyond ASCII", "E-Mail-Adreßen\na@b.test\n", 1, "a@b.test"},
	{"first record is an address", "a@b.test\nc@b.test\n", 2, "a@b.test c@b.test"},
	{"byte order mark", "\ufeffa@b.test\nc@b.test\n", 2, "a@b.test c@b.test"},
	{"byte order mark and quotes", "\ufeff\"a@b.test\"\n", 1, "a@b.test"},
	{"two byte order marks before a header", "\ufeff\ufeffemail\na@b.test\n", 1, "a@b.test"},
	{"LF and CRLF mixed", "email\r\na@b.test\nc@d.test\r\n", 2, "a@b.test c@d.test"},
	{"CRLF and no line end", "a@b.test\r\nc@d.test", 2, "a@b.test c@d.test"},
	{"quoted addresses", "\"a@b.test\"\n\"c@d.test\"\r\n\"e@f.test\"", 3, "a@b.test c@d.test e@f.test"},
	{"quoted local part", "\"\"\"a,b\"\"@c.test\"\n", 1, `"a,b"@c.test`},
	{"formula", "=1+1@b.test\n-x@b.test\n", 2, "=1+1@b.test -x@b.test"},
	{"duplicate", "a@b.test\nc@b.test\na@b.test\n", 3, "a@b.test c@b.test"},
	{"duplicate in quotes", "a@b.test\n\"a@b.test\"\n", 2, "a@b.test"},
	{"duplicate domain in other case, first spelling stays", "a@B.Test\na@b.test\na@b.TEST\n", 3, "a@B.Test"},
	{"duplicate as U-label and A-label", "a@ü.test\na@xn--tda.test\na@Ü.test\n", 3, "a@ü.test"},
	{"local part in other case is another address", "a@b.test\nA@b.test\n", 2, "a@b.test A@b.test"},
	{"quoted local part is another address", "a@b.test\n\"\"\"a\"\"@b.test\"\n", 2, `a@b.test "a"@b.test`},
	{"same local part at another domain", "a@b.test\na@c.test\n", 2, "a@b.test a@c.test"},
	{"parts that join to the same text", "a@b.cd\na@bc.d\n", 2, "a@b.cd a@bc.d"},
	{"beyond ASCII", "джо@b.test\nджо@b.test\n", 2, "джо@b.test"},
	{"rows at the limit", "h\n" + strings.Repeat("a@b.test\n", 9), 9, "a@b.test"},
}

func TestGoodFiles(t *testing.T) {
	for _, tt := range goodFiles {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ask(strings.NewReader(tt.file), 9)
			var spellings []string
			for _, a := range got.Addresses {
				spellings = append(spellings, a.Spelling)
			}
			same := got.Rows == tt.rows && strings.Join(spellings, " ") == tt.want
			effort.ErrorIf(t, err != nil || got.Code != "" || !same,
				"%q: got %+v, %v, want %d rows with %s", tt.file, got, err, tt.rows, tt.want)
			if second := naive([]byte(tt.file), 9); !reflect.DeepEqual(got, second) {
				t.Errorf("%q: got %+v, the second reader has %+v", tt.file, got, second)
			}
		})
	}
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.csv")
	effort.FatalIf(t, err != nil || len(files) == 0, "golden files: %v, %v", files, err)
	for _, name := range files {
		in := effort.Must(os.Open(name))(t)
		defer in.Close()
		f, err := Read(in, Limits{RowsMax: 1000})
		effort.OK(t, err, name)
		got := fmt.Sprintf("%d rows, %d duplicates\n", f.Rows(), f.Duplicates())
		for i := range f.Len() {
			got += fmt.Sprintf("%d %d %s %s\n", i, f.DomainID(i), f.Address(i), spelled(f, i))
		}
		want, err := os.ReadFile(strings.TrimSuffix(name, ".csv") + ".want")
		effort.ErrorIf(t, err != nil || got != string(want), "%s: got\n%swant\n%s%v", name, got, want, err)
	}
}

// The cuts that a source makes are no part of the file.
func TestHowTheSourceCutsMakesNoDifference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range effort.Cases(60) {
		file := randomFile(random)
		want := effort.Must(ask(bytes.NewReader(file), 5000))(t)
		if second := naive(file, 5000); !reflect.DeepEqual(want, second) {
			t.Fatalf("round %d: got %.200v, the second reader has %.200v", round, want, second)
		}
		for name, source := range map[string]io.Reader{
			"byte by byte":         iotest.OneByteReader(bytes.NewReader(file)),
			"half":                 iotest.HalfReader(bytes.NewReader(file)),
			"end with the last":    iotest.DataErrReader(bytes.NewReader(file)),
			"random with nothings": &cutter{file, random},
		} {
			effort.Same(t, effort.Must(ask(source, 5000))(t), want, "round", round, name)
		}
	}
}

// cutter is a reader that returns a file in pieces of random size, some of them empty.
type cutter struct {
	rest   []byte
	random *rand.Rand
}

func (c *cutter) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:c.random.IntN(min(len(c.rest), 1<<c.random.IntN(14))+1)])
	c.rest = c.rest[n:]
	return n, nil
}

// randomFile has a few hundred to a few thousand rows, larger than the buffer,
// and in half of all cases a piece that may be a defect somewhere.
func randomFile(random *rand.Rand) []byte {
	pieces := []string{
		"\n", "\r", ",", "\"", "\x00", "\xff", "ä@b.test\n", "\"a@b.test\"\r\n", "a@Bücher.test\n", " ",
		"\"\"\"q\"\"@b.test\"\n",
		strings.Repeat("y", 1020), strings.Repeat("ü", 510), "\ufeff", "\"\n\"", "a@xn--bcher-kva.test\r\n",
	}
	var file []byte
	defectAt := random.IntN(8000)
	for i := range 200 + random.IntN(4000) {
		ends := []string{"\n", "\r\n"}
		end := ends[random.IntN(2)]
		file = fmt.Appendf(file, "user.%d@domain-%d.test%s", random.IntN(3000), random.IntN(100), end)
		if i == defectAt || random.IntN(300) == 0 && i > defectAt-500 {
			file = append(file, pieces[random.IntN(len(pieces))]...)
		}
	}
	return file
}

func TestFaultOfTheSourceIsNoDefect(t *testing.T) {
	fault := errors.New("the book is closed")
	lost := fmt.Errorf("chunk 7: %w", io.EOF)
	for _, tt := range []struct {
		name   string
		source io.Reader
		want   error
	}{
		{"at once", iotest.ErrReader(fault), fault},
		{"after rows", io.MultiReader(strings.NewReader("a@b.test\n"), iotest.ErrReader(fault)), fault},
		{"in a row", io.MultiReader(strings.NewReader("a@b.test\nc@"), iotest.ErrReader(fault)), fault},
		{"end in the middle", io.MultiReader(strings.NewReader("a@b.test\n"), iotest.ErrReader(lost)), lost},
		{"nothing for ever", nothing{}, io.ErrNoProgress},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Read(tt.source, Limits{RowsMax: 9})
			var d *Defect
			effort.ErrorIf(t, f != nil || !errors.Is(err, tt.want) || errors.As(err, &d),
				"got %v, %v, want %v", f, err, tt.want)
		})
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// A source may be slow to give anything, as long as it gives something at last.
func TestSlowSourceIsNoFault(t *testing.T) {
	source := &slow{rest: "a@b.test\nc@d.test\n"}
	effort.Is(t, effort.Must(ask(source, 9))(t).Rows, 2)
}

// slow is a reader that mostly returns no bytes, and sometimes one.
type slow struct {
	rest  string
	calls int
}

func (s *slow) Read(p []byte) (int, error) {
	if s.calls++; s.calls%emptyReadsMax != 0 {
		return 0, nil
	}
	if s.rest == "" {
		return 0, io.EOF
	}
	n := copy(p[:1], s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func TestReadingEndsAtTheDefect(t *testing.T) {
	source := &counter{Reader: io.MultiReader(strings.NewReader("a@b.test\n\"a"), endless{})}
	effort.Is(t, effort.Must(ask(source, 9))(t).Code, CodeRecordTooLong)
	effort.ErrorIf(t, source.bytes > lineMax+2*bufferBytes,
		"%d bytes were read of a line that has no end", source.bytes)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type counter struct {
	io.Reader
	bytes int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes += n
	return n, err
}

func TestLimitsAreRefused(t *testing.T) {
	for _, rows := range []int64{-1, 0, RowsCeiling + 1} {
		_, err := Read(strings.NewReader("a@b.test\n"), Limits{RowsMax: rows})
		effort.ErrIs(t, err, ErrLimits, fmt.Sprintf("%d rows", rows))
	}
	effort.ErrIs(t, (Limits{RowsMax: RowsCeiling}).Validate(), nil, "ceiling")
}

// spelled returns an address in the spelling of the file.
func spelled(f *File, ordinal int) string {
	var b strings.Builder
	f.SpellTo(&b, ordinal)
	return b.String()
}

// 300,000 addresses among which some have the same 32 bits of hash (about ten
// pairs are to be expected) are told apart, and their duplicates are found.
func TestAddressesAreComparedByBytes(t *testing.T) {
	addresses := min(effort.Cases(300_000), 300_000)
	var file bytes.Buffer
	for range 2 {
		for i := range addresses {
			fmt.Fprintf(&file, "u%d@d%d.test\n", i/7, i%7)
		}
	}
	f := effort.Must(Read(&file, Limits{RowsMax: int64(2 * addresses)}))(t)
	effort.FatalIf(t, f.Len() != addresses || f.Duplicates() != int64(addresses) || len(f.Domains()) != 7,
		"%d addresses, %d duplicates, %d domains", f.Len(), f.Duplicates(), len(f.Domains()))
	for i := range addresses {
		want := fmt.Sprintf("u%d@d%d.test", i/7, i%7)
		if spelled(f, i) != want || f.Address(i).String() != want {
			t.Fatalf("ordinal %d is %s, %v, want %s", i, spelled(f, i), f.Address(i), want)
		}
	}
}

// Two domains of the same hash are as good as never met by chance, so the hash is set here.
func TestDomainsAreComparedBeyondTheirHash(t *testing.T) {
	d := newDistinct()
	for _, domain := range []string{"b.test", "c.test"} {
		spelling := d.learn([]byte(domain), domain)
		d.facts[spelling].hash = 7
		d.add([]byte("a"), spelling)
		d.add([]byte("a"), spelling)
	}
	d.flush()
	effort.ErrorIf(t, d.file.Len() != 2 || d.file.Rows() != 4 || d.file.Domain(1) != "c.test",
		"%d addresses in %d rows, want 2 in 4", d.file.Len(), d.file.Rows())
}

// Addresses whose two halves are the same, or that differ in one half only, do not meet in one place of the table.
func TestNobodyCanChooseHashes(t *testing.T) {
	const addresses = 20_000
	files := map[string]func(i int) string{
		"halves alike":   func(i int) string { return fmt.Sprintf("d%d@d%d", i, i) },
		"one local part": func(i int) string { return fmt.Sprintf("a@d%d", i) },
		"one domain":     func(i int) string { return fmt.Sprintf("d%d@a", i) },
		"halves exchanged": func(i int) string {
			return fmt.Sprintf("d%d@d%d", i/2+i%2*addresses, i/2+(1-i%2)*addresses)
		},
	}
	for name, row := range files {
		d := newDistinct()
		for i := range addresses {
			local, domain, _ := bytes.Cut([]byte(row(i)), []byte("@"))
			d.add(local, d.learn(domain, string(domain)))
		}
		d.flush()
		run, longest := 0, 0 // of slots that are taken
		for _, slot := range d.addresses.slots {
			if run++; slot == 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		if d.file.Len() != addresses || longest > 500 { // 100 or so at this load
			t.Errorf("%s: %d addresses, %d slots taken in a row", name, d.file.Len(), longest)
		}
	}
}

func TestArenaGivesBackWhatWasPut(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 100 {
		var a arena
		var texts [][]byte
		var places []uint32
		count := 1 + random.IntN(5000)
		if round == 0 {
			count = 100_000 // 6 MB: some blocks of the largest size
		}
		for range count {
			text := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(random.IntN(255)+1))
			texts, places = append(texts, text), append(places, a.put(text))
		}
		for i, text := range texts {
			if got := a.get(places[i]); got != string(text) {
				t.Fatalf("text %d at %d is %q, want %q", i, places[i], got, text)
			}
		}
		for i, block := range a.blocks {
			effort.FatalIf(t, block.Cap() != min(arenaFirst<<i, arenaBlock), "block %d has %d bytes", i, block.Cap())
		}
	}
}

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

// naive is the second reader. It has the whole file in memory, cuts out each record before it judges it, and keeps the
// addresses in a map. It shares nothing with Read but smtp.ParseAddress.
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

// naiveBroken reports whether text starts with NUL or invalid UTF-8.
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
