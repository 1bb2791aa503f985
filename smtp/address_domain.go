package smtp

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// domainTextMax bounds the text that is given to the mapping of UTS 46, whose
// work grows with the square of a label. The longest domain in UTF-8 has four
// octets for each of its 253; what is longer holds characters to be dropped.
const domainTextMax = 4 * DomainBytesMax

// The causes that can be seen in a domain.
const (
	errDomainEmpty   = malformed("there is nothing after the @ sign")
	errDomainLong    = malformed("the domain is over 253 octets")
	errDomainLiteral = malformed("a network address in brackets is not accepted as a domain")
	errDomainByte    = malformed("a character of the domain is not allowed there")
	errDomainUTF8    = malformed("the domain is not UTF-8")
	errDomainIDN     = malformed("the domain is not a well-formed internationalized name")
	errLabelEmpty    = malformed("a dot stands first, last or twice in a row in the domain")
	ErrLabelLong     = malformed("a label of the domain is over 63 octets")
	errLabelHyphen   = malformed("a label of the domain starts or ends with a hyphen")
)

// internationalized is UTS 46 processing, non-transitional, with the checks of
// RFC 5891 §5.4 and the Bidi rule (RFC 5893). Lengths are checked afterwards.
var internationalized = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false))

// ParseDomain returns a domain as lower-case A-labels (RFC 5890 §2.3.2.1).
//
// An ASCII domain is labels of letters, digits and inner hyphens (RFC 5321
// §4.1.2) of at most LabelBytesMax octets, with dots between them and at most
// DomainBytesMax in all. Any other is mapped by UTS 46, non-transitional, and
// the outcome must be such a domain; so must a label that claims to be an
// A-label. A final dot is malformed, a single label is not. A domain of digits
// only is a domain, never a network address.
//
// The error is ErrMalformed. Lower-case ASCII is given back as it is.
func ParseDomain(text string) (string, error) {
	upper, special, err := checkDomain(text)
	switch {
	case special:
		return parseInternationalized(text)
	case err != nil:
		return "", err
	case upper:
		return strings.ToLower(text), nil
	}
	return text, nil
}

func parseInternationalized(text string) (string, error) {
	if len(text) > domainTextMax {
		return "", errDomainLong
	}
	if !utf8.ValidString(text) {
		return "", errDomainUTF8
	}
	domain, err := internationalized.ToASCII(text)
	if err != nil {
		return "", errDomainIDN // its own error quotes the label
	}
	if _, _, err := checkDomain(domain); err != nil {
		return "", err
	}
	return strings.ToLower(domain), nil
}

// checkDomain looks at an ASCII domain. With special it is for UTS 46 to say:
// there is a character beyond ASCII or a label that claims to be an A-label.
func checkDomain(text string) (upper, special bool, err error) {
	start := 0 // of the label
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
		case 'A' <= c && c <= 'Z':
			upper = true
		case c == '.':
			if err == nil {
				err = checkLabel(text[start:i])
			}
			special = special || claimsALabel(text[start:i])
			start = i + 1
		case c >= utf8.RuneSelf:
			special = true
		case err == nil:
			err = byteCause(text, i)
		}
	}
	special = special || claimsALabel(text[start:])
	if err == nil {
		err = checkLabel(text[start:])
	}
	switch {
	case text == "":
		err = errDomainEmpty
	case err == nil && len(text) > DomainBytesMax:
		err = errDomainLong
	}
	return upper, special, err
}

func claimsALabel(label string) bool {
	return len(label) >= 4 && strings.EqualFold(label[:4], "xn--")
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errLabelEmpty
	case len(label) > LabelBytesMax:
		return ErrLabelLong
	case label[0] == '-' || label[len(label)-1] == '-':
		return errLabelHyphen
	}
	return nil
}

// byteCause says what is wrong with the byte at i, which no domain may have.
func byteCause(text string, i int) error {
	switch {
	case i == 0 && text[0] == '[':
		return errDomainLiteral
	case text[i] == ' ' || text[i] == '\t':
		return errSpace
	}
	return errDomainByte
}
