package intake

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrLimits says that the Limits given to Read are not usable.
var ErrLimits = errors.New("intake: limits are not usable")

// The codes of defects, as the customer reads them in issue.code.
const (
	CodeEncoding       = "csv_encoding"
	CodeMalformed      = "csv_malformed"
	CodeBlankRecord    = "csv_blank_record"
	CodeExtraColumn    = "csv_extra_column"
	CodeInvalidAddress = "csv_invalid_address"
	CodeRecordTooLong  = "csv_record_too_long"
	CodeNoAddresses    = "csv_no_addresses"
	CodeTooManyRows    = "csv_too_many_rows"
)

// Defect is the reason why a file or a row is refused. Read returns the first defect in the order of the bytes, so the
// same file always has the same one.
type Defect struct {
	Code    string // one of the codes above
	Message string // sentences that say what to do; never quotes the file
	Row     int64  // the record, the first being 1 and the header counted; 0: no record is to blame
	Kind    Kind   // what is wrong, more precisely than Code

	// Text is the row as written; after TextMax bytes "…" stands for the rest. Means are the addresses that it
	// certainly means. Both quote the file: they are for its owner, and stay out of logs.
	Text  string
	Means []string
}

// Error is for logs; it quotes nothing of the file either.
func (d *Defect) Error() string {
	if d.Row == 0 {
		return "intake: " + d.Code
	}
	return fmt.Sprintf("intake: %s in record %d", d.Code, d.Row)
}

// Shown is Text for a page, at most most bytes long: unprintable bytes and characters are escaped as in Go.
func (d *Defect) Shown(most int) string {
	var b strings.Builder
	for rest := d.Text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		one := rest[:size]
		if rest = rest[size:]; !unicode.IsPrint(r) || r == utf8.RuneError {
			one = strings.Trim(strconv.Quote(one), `"`)
		}
		if b.Len()+len(one) > most-len(goesOn) {
			return b.String() + goesOn
		}
		b.WriteString(one)
	}
	return b.String()
}

// goesOn stands where a text is cut.
const goesOn = "…"

// Note reports whether the service takes the file in spite of it.
func (d *Defect) Note() bool {
	return d.Kind == KindHeader || d.Kind == KindSep || d.Kind == KindBeside
}

// newDefect is a defect of a kind; details are what its sentence leaves open.
func newDefect(kind Kind, row int64, details ...any) *Defect {
	k := kinds[kind]
	return &Defect{Code: k.code, Row: row, Kind: kind, Message: fmt.Sprintf(k.says, details...) + " " + k.do + uploadAgain}
}

const uploadAgain = " and upload the file again."

// Advice is the message for somebody who has not uploaded the file.
func (d *Defect) Advice() string { return strings.Replace(d.Message, uploadAgain, ".", 1) }

// tellMore adds how many more rows have defects.
func (d *Defect) tellMore(more int) {
	switch {
	case more >= moreMax:
		d.Message += " More than 1,000 more rows have defects."
	case more == 1:
		d.Message += " One more row has a defect."
	case more > 1:
		d.Message += fmt.Sprintf(" %d more rows have defects.", more)
	}
}
