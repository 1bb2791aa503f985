package intake

import (
	"errors"
	"fmt"
	"strings"
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

// Defect is why a file is refused, or one row of it. What Read gives is the first of a file, in the order of its
// bytes: the same file has the same one for ever.
type Defect struct {
	Code    string // one of the codes above
	Message string // sentences that say what to do; never quotes the file
	Row     int64  // the record, the first being 1 and the header counted; 0: no record is to blame
	Kind    Kind   // what is wrong, closer than Code

	// Text is the row as it stands, at most TextMax bytes, and Means are the addresses that it means where that is
	// certain. They quote the file: they are for its owner, and stay out of logs and of the ledger.
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

// Note reports whether the service takes the file in spite of it.
func (d *Defect) Note() bool { return d.Kind == KindHeader || d.Kind == KindSep }

// newDefect is a defect of a kind; details are what its sentence leaves open.
func newDefect(kind Kind, row int64, details ...any) *Defect {
	k := kinds[kind]
	return &Defect{Code: k.code, Row: row, Kind: kind,
		Message: fmt.Sprintf(k.says, details...) + " " + k.do + uploadAgain}
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
