package intake

import (
	"errors"
	"fmt"
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

// Defect is why a file is refused: its first defect, in the order of its bytes.
// It is for the customer; the same file has the same defect for ever.
type Defect struct {
	Code    string // one of the codes above
	Message string // a sentence that says what to do; never quotes the file
	Row     int64  // the record, the first being 1 and the header counted; 0: no record is to blame
}

// Error is for logs; it quotes nothing of the file either.
func (d *Defect) Error() string {
	if d.Row == 0 {
		return "intake: " + d.Code
	}
	return fmt.Sprintf("intake: %s in record %d", d.Code, d.Row)
}

// messages say what to do, by code. Those of too many rows and of a malformed
// address have a detail to fill in.
var messages = map[string]string{
	CodeEncoding: "This row is not UTF-8 text. Save the file as CSV in UTF-8 and upload it again.",
	CodeMalformed: "This row breaks the CSV rules for quotes or line ends. " +
		"Correct it and upload the file again.",
	CodeBlankRecord: "This row is blank. Delete it and upload the file again.",
	CodeExtraColumn: "This row has more than one column. " +
		"Keep the addresses only and upload the file again.",
	CodeInvalidAddress: "This row has a %s. Correct or delete it and upload the file again.",
	CodeRecordTooLong: "This row is over 1,024 bytes, or a quote in it is not closed. " +
		"Correct it and upload the file again.",
	CodeNoAddresses: "The file has no addresses. Put one address in each row and upload the file again.",
	CodeTooManyRows: "The file has more than %d addresses. Split it into smaller files and upload those.",
}

func defect(code string, row int64) *Defect {
	return &Defect{Code: code, Message: messages[code], Row: row}
}

func invalidAddress(cause error, row int64) *Defect {
	d := defect(CodeInvalidAddress, row)
	d.Message = fmt.Sprintf(d.Message, cause)
	return d
}

func tooManyRows(rowsMax, row int64) *Defect {
	d := defect(CodeTooManyRows, row)
	d.Message = fmt.Sprintf(d.Message, rowsMax)
	return d
}
