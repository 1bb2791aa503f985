package intake

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/smtp"
)

// Kind is the word, for programs, for what is wrong with a file or a row.
type Kind string

// The kinds of defects. Those of a whole file come first.
const (
	KindWorkbook  Kind = "workbook"
	KindPDF       Kind = "pdf"
	KindWebPage   Kind = "web_page"
	KindZip       Kind = "zip"
	KindOffice    Kind = "office_document"
	KindJSON      Kind = "json"
	KindXML       Kind = "xml"
	KindContacts  Kind = "vcard"
	KindMailbox   Kind = "mailbox"
	KindRichText  Kind = "rich_text"
	KindPicture   Kind = "picture"
	KindUTF32     Kind = "utf_32"
	KindUTF16     Kind = "utf_16"
	KindLoneCR    Kind = "lone_cr"
	KindNoAddress Kind = "no_addresses"
	KindTooMany   Kind = "too_many_rows"

	KindNotUTF8     Kind = "not_utf_8"
	KindNUL         Kind = "nul"
	KindStrayCR     Kind = "stray_cr"
	KindQuoteOpen   Kind = "quote_open"
	KindQuoteInside Kind = "quote_inside"
	KindBlank       Kind = "blank"
	KindColumns     Kind = "columns"
	KindSemicolons  Kind = "semicolons"
	KindTabs        Kind = "tabs"
	KindTooLong     Kind = "too_long"
	KindName        Kind = "name_beside_address"
	KindBrackets    Kind = "angle_brackets"
	KindMailto      Kind = "mailto"
	KindInvisible   Kind = "invisible_character"
	KindNoBreak     Kind = "no_break_space"
	KindSpace       Kind = "space"
	KindNoAt        Kind = "no_at_sign"
	KindTwo         Kind = "two_addresses"
	KindLocalLong   Kind = "local_part_too_long"
	KindLabelLong   Kind = "label_too_long"
	KindMalformed   Kind = "malformed"

	// These are notes. A first row may be anything, and an address may have quotes of a text or email= in it: such
	// rows are seldom meant.
	KindHeader Kind = "bad_address_as_header"
	KindSep    Kind = "sep"
	KindBeside Kind = "text_beside_address"
)

const (
	saveUTF8 = "Save the file as CSV in UTF-8"
	export   = "Export the addresses as CSV in UTF-8"
	mendRow  = "Correct or delete it"
)

// kinds has for each kind the code that the customer reads, what is wrong, and what to do.
var kinds = map[Kind]struct{ code, says, do string }{
	KindWorkbook: {CodeEncoding, "The file is a workbook, not CSV.", "Save its sheet as CSV in UTF-8"},
	KindPDF:      {CodeEncoding, "The file is a PDF, not CSV.", export},
	KindWebPage:  {CodeEncoding, "The file is a web page, not CSV.", export},
	KindZip:      {CodeEncoding, "The file is compressed.", "Unpack it"},
	KindOffice:   {CodeEncoding, "The file is an office document, not CSV.", export},
	KindJSON:     {CodeMalformed, "The file is JSON, not CSV.", export},
	KindXML:      {CodeMalformed, "The file is XML, not CSV.", export},
	KindContacts: {CodeInvalidAddress, "The file has contacts (vCard), not CSV.", export},
	KindMailbox:  {CodeInvalidAddress, "The file has messages (mbox), not CSV.", export},
	KindRichText: {CodeInvalidAddress, "The file is formatted text (RTF), not CSV.", export},
	KindPicture:  {CodeEncoding, "The file is a picture, not CSV.", export},
	KindUTF32:    {CodeEncoding, "The file is in UTF-32, not in UTF-8.", saveUTF8},
	KindUTF16:    {CodeEncoding, "The file is in UTF-16, not in UTF-8.", saveUTF8},
	KindLoneCR: {CodeMalformed, "The lines end in CR alone, as on old Macs.",
		"Save the file with LF or CRLF line ends"},
	KindNoAddress: {CodeNoAddresses, "The file has no addresses.", "Put one address in each row"},
	KindTooMany:   {CodeTooManyRows, "The file has more than %d addresses.", "Split it into smaller files"},

	KindNotUTF8: {CodeEncoding, "This row is not UTF-8 text, perhaps Latin-1 (Windows-1252).", saveUTF8},
	KindNUL:     {CodeEncoding, "This row has a NUL character.", "Delete that character"},
	KindStrayCR: {CodeMalformed, "This row has a CR that ends no line.", "Save the file with LF or CRLF line ends"},
	KindQuoteOpen: {CodeMalformed, `The quote (") that this row begins with is never closed.`,
		"Close or delete it"},
	KindQuoteInside: {CodeMalformed, `This row has a quote (") within it, or text after the closing one.`,
		"Write the address without quotes"},
	KindBlank:      {CodeBlankRecord, "This row is blank.", "Delete it"},
	KindColumns:    {CodeExtraColumn, "This row has more than one column.", "Keep the addresses only"},
	KindSemicolons: {CodeInvalidAddress, "This row has columns with semicolons between.", "Keep the addresses only"},
	KindTabs:       {CodeInvalidAddress, "This row has columns with tabs between.", "Keep the addresses only"},
	KindTooLong: {CodeRecordTooLong, "This row is over 1,024 bytes, or a quote in it is not closed.",
		"Correct it"},
	KindName:      {CodeInvalidAddress, "This row has a name beside the address.", "Keep the address only"},
	KindBrackets:  {CodeInvalidAddress, "This row has angle brackets around the address.", "Take them away"},
	KindMailto:    {CodeInvalidAddress, "This row has mailto: before the address.", "Keep the address only"},
	KindInvisible: {CodeInvalidAddress, "This row has an invisible character (%U).", "Delete that character"},
	KindNoBreak:   {CodeInvalidAddress, "This row has a no-break or other special space (%U).", "Delete that space"},
	KindSpace:     {CodeInvalidAddress, "This row has a space in it or around it.", "Delete that space"},
	KindNoAt:      {CodeInvalidAddress, "This row has no @ sign.", mendRow},
	KindTwo:       {CodeInvalidAddress, "This row has more than one address.", "Give each its own row"},
	KindLocalLong: {CodeInvalidAddress, "This row has a %v.", mendRow},
	KindLabelLong: {CodeInvalidAddress, "This row has a %v.", mendRow},
	KindMalformed: {CodeInvalidAddress, "This row has a %v.", mendRow},

	KindHeader: {CodeInvalidAddress, "The first row looks like an address, but it is none: it is taken for the header " +
		"and not checked.", "If it is an address, correct it"},
	KindSep: {CodeInvalidAddress, "The first row is a line for spreadsheets (sep=): it is taken for the header.",
		"Delete it"},
	KindBeside: {CodeInvalidAddress, "This address has quotes or a word with = in front: they are taken as part of it.",
		"If they aren't, take them away"},
}

// OfWhole reports whether a kind is of a whole file and not of one of its rows.
func (k Kind) OfWhole() bool {
	switch k {
	case KindWorkbook, KindPDF, KindWebPage, KindZip, KindOffice, KindJSON, KindXML, KindContacts, KindMailbox,
		KindRichText, KindPicture, KindUTF32, KindUTF16, KindLoneCR, KindTooMany:
		return true
	}
	return false
}

// Sentence says what a kind of file is and what to do; use it for kinds without details.
func (k Kind) Sentence() string { return kinds[k].says + " " + kinds[k].do }

// NoAddresses is the defect of a file that has none.
func NoAddresses() *Defect { return newDefect(KindNoAddress, 0) }

// TextMax bounds the text of a row in a Defect, in bytes, without what says that it goes on.
const TextMax = 200

// Check looks at a text that should be one address, as in a row of a file, and returns what is wrong with it, or
// a note; nil when there is nothing to say.
func Check(text string, row int64) *Defect {
	if strings.TrimSpace(text) == "" {
		return newDefect(KindBlank, row)
	}
	if len(text) > FieldBytesMax {
		return newDefect(KindTooLong, row).quote([]byte(text))
	}
	_, err := smtp.ParseAddress(text)
	if err == nil {
		return noteBeside(text, row)
	}
	return malformed(text, err, row)
}

// quotes are typographic quotation marks; none is the keyboard's ".
const quotes = "“”„‟«»‹›‘’‚‛「」"

// labels are what forms and programs put before an address.
var labels = regexp.MustCompile(`^(?i:e-?mail|mail|address|adresse|user|name|to|from|cc)=`)

// noteBeside returns a note for an address that seems to contain more than was meant; nil for others.
func noteBeside(text string, row int64) *Defect {
	meant := strings.Trim(labels.ReplaceAllString(text, ""), quotes)
	if meant == text || !isAddress(meant) {
		return nil
	}
	d := newDefect(KindBeside, row).quote([]byte(text))
	d.Means = []string{meant}
	return d
}

// malformed returns what is wrong with a text that is no address, and the address that it means.
func malformed(text string, cause error, row int64) *Defect {
	kind, details := kindOf(text, cause)
	d := newDefect(kind, row, details...).quote([]byte(text))
	d.Means = meant(text)
	return d
}

// quote keeps the text of a row.
func (d *Defect) quote(row []byte) *Defect {
	if d.Text = string(row); len(row) > TextMax {
		end := TextMax
		for end > TextMax-utf8.UTFMax && !utf8.RuneStart(row[end]) {
			end--
		}
		d.Text = string(row[:end]) + goesOn
	}
	return d
}

// kindOf finds the closest kind of a text that is no address, and the details of its sentence.
func kindOf(text string, cause error) (Kind, []any) {
	plain := strings.TrimSpace(text)
	space, invisible := strings.IndexFunc(text, isSpecialSpace), strings.IndexFunc(text, isInvisible)
	switch pieces := addressesIn(text); {
	case len(pieces) > 1:
		return KindTwo, nil
	case invisible >= 0:
		return KindInvisible, []any{runeAt(text, invisible)}
	case space >= 0:
		return KindNoBreak, []any{runeAt(text, space)}
	case strings.ContainsRune(plain, '\t'):
		return KindTabs, nil
	case strings.ContainsRune(plain, ';'):
		return KindSemicolons, nil
	case hasMailto(plain):
		return KindMailto, nil
	case strings.HasPrefix(plain, "<") && strings.HasSuffix(plain, ">"):
		return KindBrackets, nil
	case len(pieces) == 1 && strings.ContainsAny(plain, "<("):
		return KindName, nil
	case strings.ContainsAny(text, " \t\n") && !strings.ContainsAny(text, "@＠"):
		return KindNoAt, nil
	case strings.ContainsAny(text, " \t\n"):
		return KindSpace, nil
	case errors.Is(cause, smtp.ErrLocalLong):
		return KindLocalLong, []any{cause}
	case errors.Is(cause, smtp.ErrLabelLong):
		return KindLabelLong, []any{cause}
	}
	return KindMalformed, []any{cause}
}

func runeAt(text string, at int) rune {
	r, _ := utf8.DecodeRuneInString(text[at:])
	return r
}

// isSpecialSpace reports whether a character is a space that no key of a keyboard writes.
func isSpecialSpace(r rune) bool { return r > '~' && unicode.IsSpace(r) }

// isInvisible reports whether a character shows nothing and can't be in an address; the joiners of some scripts can.
func isInvisible(r rune) bool {
	return r != '\u200c' && r != '\u200d' && unicode.Is(unicode.Cf, r) || r != '\t' && r != '\n' && r != '\r' &&
		unicode.IsControl(r)
}

const mailto = "mailto:"

func hasMailto(text string) bool {
	return len(text) > len(mailto) && strings.EqualFold(text[:len(mailto)], mailto)
}

// meant returns the addresses that a text means: only if each part that has an @ sign is an address.
func meant(text string) []string {
	pieces := addressesIn(text)
	if len(pieces) == 0 || strings.Count(text, "@")+strings.Count(text, "＠") != len(pieces) {
		return nil
	}
	return pieces
}

// addressesIn returns the addresses between separators, without the signs and words that people and programs add.
func addressesIn(text string) (found []string) {
	clean := strings.Map(func(r rune) rune {
		switch {
		case isInvisible(r):
			return -1
		case isSpecialSpace(r):
			return ' '
		case r == '＠': // of keyboards for Chinese and Japanese
			return '@'
		}
		return r
	}, text)
	if whole := bare(clean); isAddress(whole) {
		return []string{whole}
	}
	between := func(r rune) bool { return strings.ContainsRune("\t\n\r,;|<>()", r) }
	for _, piece := range strings.FieldsFunc(clean, between) {
		if piece = bare(piece); isAddress(piece) {
			found = append(found, piece)
			continue
		}
		words := strings.FieldsFunc(piece, func(r rune) bool { return r == ' ' || r == '/' })
		if !slices.ContainsFunc(words, func(word string) bool { return !isAddress(word) }) {
			found = append(found, words...) // beside anything else a space may belong to the address
		}
	}
	return found
}

// bare takes away what stands around an address: spaces, mailto:, brackets, quotes, an end of a sentence.
func bare(text string) string {
	text = strings.TrimSpace(text)
	if hasMailto(text) {
		text, _, _ = strings.Cut(text[len(mailto):], "?")
	}
	if strings.HasPrefix(text, `="`) { // a formula of a spreadsheet, for a text
		text = text[1:]
	}
	return strings.TrimRight(strings.TrimLeft(text, "<'\" "), ">'\".,;: ")
}

func isAddress(text string) bool {
	_, err := smtp.ParseAddress(text)
	return err == nil
}

// forms are what files of other kinds begin with, in lower case.
var forms = []struct {
	kind  Kind
	start *regexp.Regexp
}{
	{KindJSON, regexp.MustCompile(`^(\{\s*"|\[\s*["{])`)},
	{KindXML, regexp.MustCompile(`^<\?xml\b`)},
	{KindContacts, regexp.MustCompile(`^begin:vcard\b`)},
	{KindMailbox, regexp.MustCompile(`^from \S+ .+\n(?s:.*\n)?[a-z-]+: `)},
	{KindRichText, regexp.MustCompile(`^\{\\rtf`)},
	{KindPicture, regexp.MustCompile(`^(\x{fffd}png\r\n|gif8[79]a|\x{fffd}\x{fffd}\x{fffd}.{3}(jfif|exif))`)},
	{KindUTF32, regexp.MustCompile(`^(\x{fffd}\x{fffd}\x00\x00|\x00\x00\x{fffd}\x{fffd})`)},
}

// WholeKind tells by its first bytes what a file is that is not CSV in UTF-8; "" when they don't say.
func WholeKind(start []byte) Kind {
	lower := bytes.ToLower(start[:min(len(start), 512)])
	page := bytes.TrimSpace(bytes.TrimPrefix(lower, []byte(byteOrderMark)))
	starts := func(what string) bool { return bytes.HasPrefix(start, []byte(what)) }
	switch {
	case starts("PK\x03\x04") && bytes.Contains(start, []byte("xl/")), starts("PK\x03\x04") &&
		bytes.Contains(start, []byte("[Content_Types].xml")), starts("\xd0\xcf\x11\xe0"):
		return KindWorkbook
	case starts("PK\x03\x04") && (bytes.Contains(start, []byte("opendocument")) || bytes.Contains(start, []byte("word/"))):
		return KindOffice
	case starts("PK\x03\x04"), starts("\x1f\x8b"):
		return KindZip
	case starts("%PDF-"):
		return KindPDF
	case bytes.HasPrefix(page, []byte("<!doctype html")), bytes.HasPrefix(page, []byte("<html")):
		return KindWebPage
	}
	for _, form := range forms {
		if form.start.Match(page) {
			return form.kind
		}
	}
	switch {
	case starts("\xff\xfe"), starts("\xfe\xff"), isUTF16(start):
		return KindUTF16
	case bytes.IndexByte(start, '\r') >= 0 && bytes.IndexByte(start, '\n') < 0:
		return KindLoneCR
	}
	return ""
}

// isUTF16 reports whether every other byte of a text is NUL, as where ASCII is written in UTF-16.
func isUTF16(start []byte) bool {
	nul := [2]int{}
	some := start[:min(len(start), 64)&^1]
	for i, c := range some {
		if c == 0 {
			nul[i%2]++
		}
	}
	return len(some) >= 4 && (nul[0] == 0) != (nul[1] == 0) && max(nul[0], nul[1]) > len(some)/3
}
