package smtp

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// The longest parts of an address, in octets of the form that is sent in RCPT.
const (
	LocalBytesMax   = 64  // RFC 5321 §4.5.3.1.1; quotes count
	LabelBytesMax   = 63  // RFC 1035 §2.3.4
	DomainBytesMax  = 253 // RFC 1035 §2.3.4: 255 on the wire, less the first length and the root
	AddressBytesMax = 254 // RFC 5321 §4.5.3.1.3: a path of 256, less the angle brackets
)

// malformed is one of a closed list of causes why a text is not an address. None of them quotes the text. It is an
// ErrMalformed.
type malformed string

func (m malformed) Error() string { return "malformed address: " + string(m) }

func (m malformed) Unwrap() error { return ErrMalformed }

// The causes that can be seen in an address as a whole and in its local part.
const (
	errNoAt         = malformed("it has no @ sign")
	errLocalEmpty   = malformed("there is nothing before the @ sign")
	ErrLocalLong    = malformed("the part before the @ sign is over 64 octets")
	errLocalDot     = malformed("a dot stands first, last or twice in a row before the @ sign")
	errLocalByte    = malformed("a character before the @ sign is not allowed there")
	errSpace        = malformed("there is a space in it or around it")
	errLocalControl = malformed("there is an invisible or control character before the @ sign")
	errLocalUTF8    = malformed("the part before the @ sign is not UTF-8")
	errLocalNFC     = malformed("the part before the @ sign is not in Unicode's composed form (NFC)")
	errQuoteOpen    = malformed("the quoted part before the @ sign has no end")
	errQuoteAfter   = malformed("the quoted part is not followed by the @ sign")
	errAddressLong  = malformed("the address is over 254 octets")
)

// Address is one mailbox, local@domain (RFC 5321 §4.1.2, RFC 6531 §3.3), well-formed.
type Address struct {
	Local  string // exactly as spelled, in NFC; a quoted local part keeps its quotes
	Domain string // lower-case A-label (RFC 5890)
}

// String returns the address as it is sent in RCPT, without angle brackets.
func (a Address) String() string { return a.Local + "@" + a.Domain }

// ASCII reports whether the local part is ASCII, so that no SMTPUTF8 is needed.
func (a Address) ASCII() bool {
	return !strings.ContainsFunc(a.Local, func(r rune) bool { return r >= utf8.RuneSelf })
}

// ParseAddress reads exactly one address. A display name, comment, route, angle bracket, space or domain literal is
// an error. LocalPart checks the local part, and ParseDomain checks the domain. The address has at most
// AddressBytesMax octets. A domain of one label is well-formed.
//
// The error is ErrMalformed. An accepted address has no CR, LF or NUL, and no angle bracket outside quotes, so it
// can stand in a RCPT line unchanged. The result shares memory with text where the spelling allows it.
func ParseAddress(text string) (Address, error) {
	n, err := LocalPart(text)
	if err != nil {
		return Address{}, err
	}
	domain, err := ParseDomain(text[n+1:])
	if err != nil {
		return Address{}, err
	}
	if n+1+len(domain) > AddressBytesMax {
		return Address{}, errAddressLong
	}
	return Address{Local: text[:n], Domain: domain}, nil
}

// What a byte means in an unquoted local part.
const (
	byteRefused = iota
	byteAtext   // RFC 5322 §3.2.3
	byteDot
	byteAt
	byteSpace
	byteControl
	byteHigh // the start of a character that is not ASCII (RFC 6531 §3.3)
)

var localClass = localClasses()

func localClasses() (class [256]byte) {
	for c := range 256 {
		switch {
		case c >= utf8.RuneSelf:
			class[c] = byteHigh
		case c == ' ' || c == '\t':
			class[c] = byteSpace
		case c < ' ' || c == 0x7f:
			class[c] = byteControl
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
			class[c] = byteAtext
		}
	}
	for _, c := range []byte("!#$%&'*+-/=?^_`{|}~") {
		class[c] = byteAtext
	}
	class['.'] = byteDot
	class['@'] = byteAt
	return class
}

// LocalPart returns the length of the local part at the start of text, so text[n] is the @ sign. It does not look
// beyond that sign.
//
// A local part is a dot-string or a quoted string (RFC 5321 §4.1.2), of 1 to LocalBytesMax octets. Characters beyond
// ASCII (RFC 6531 §3.3) are allowed in NFC, except white space, control and format characters. The joiners U+200C
// and U+200D are allowed, because some scripts need them. The error is ErrMalformed. LocalPart allocates nothing for
// ASCII.
func LocalPart[T string | []byte](text T) (n int, err error) {
	if len(text) > 0 && text[0] == '"' {
		return quotedLocalPart(text)
	}
	dot, high := true, false // dot: no dot may stand here
	for i := 0; i < min(len(text), LocalBytesMax+1); i++ {
		class := localClass[text[i]]
		if class == byteAtext { // the most frequent case first, for speed
			dot = false
			continue
		}
		switch class {
		case byteDot:
			if dot {
				return 0, errLocalDot
			}
			dot = true
		case byteAt:
			return i, localEnd(text[:i], dot, high)
		case byteHigh:
			size, err := highRune(text[i:])
			if err != nil {
				return 0, err
			}
			i += size - 1
			dot, high = false, true
		case byteSpace:
			return 0, errSpace
		case byteControl:
			return 0, errLocalControl
		default:
			return 0, errLocalByte
		}
	}
	if len(text) > LocalBytesMax {
		return 0, ErrLocalLong
	}
	return 0, errNoAt
}

func localEnd[T string | []byte](local T, dot, high bool) error {
	switch {
	case len(local) == 0:
		return errLocalEmpty
	case len(local) > LocalBytesMax:
		return ErrLocalLong
	case dot:
		return errLocalDot
	case high && !norm.NFC.IsNormalString(string(local)):
		return errLocalNFC
	}
	return nil
}

// quotedLocalPart is LocalPart for a text that starts with a quote
// (RFC 5321 §4.1.2, Quoted-string; its characters are %d32-126).
func quotedLocalPart[T string | []byte](text T) (n int, err error) {
	high := false
	for i := 1; i < len(text); i++ {
		if i >= LocalBytesMax {
			return 0, ErrLocalLong
		}
		c := text[i]
		switch {
		case c == '"':
			if i+1 == len(text) || text[i+1] != '@' {
				return 0, errQuoteAfter
			}
			return i + 1, localEnd(text[:i+1], false, high)
		case c == '\\': // quoted-pairSMTP: any printable ASCII character may follow
			i++
			if i == len(text) {
				return 0, errQuoteOpen
			}
			if text[i] < ' ' || text[i] > '~' {
				return 0, errLocalControl
			}
		case c < ' ' || c == 0x7f:
			return 0, errLocalControl
		case c >= utf8.RuneSelf:
			size, err := highRune(text[i:])
			if err != nil {
				return 0, err
			}
			i += size - 1
			high = true
		}
	}
	return 0, errQuoteOpen
}

// highRune returns the size of the character at the start of text, or an error if a local part must not have it.
func highRune[T string | []byte](text T) (size int, err error) {
	r, size := utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200c', '\u200d'
	switch {
	case r == utf8.RuneError && size <= 1:
		return 0, errLocalUTF8
	case unicode.IsSpace(r):
		return 0, errSpace
	case r == zeroWidthNonJoiner || r == zeroWidthJoiner:
		return size, nil
	case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		return 0, errLocalControl
	}
	return size, nil
}

// domainTextMax bounds the input of the UTS 46 mapping, whose work grows with the square of a label. The longest
// domain in UTF-8 has four octets for each of its 253.
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
// An ASCII domain has labels of letters, digits and inner hyphens (RFC 5321 §4.1.2), each of at most LabelBytesMax
// octets, joined by dots, at most DomainBytesMax octets in all. Other domains, and labels that claim to be A-labels,
// are mapped by UTS 46, non-transitional; the result must be such an ASCII domain. A final dot is malformed, a
// single label is not. A domain of digits only is a domain, never a network address.
//
// The error is ErrMalformed. Lower-case ASCII is returned unchanged.
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

// checkDomain checks an ASCII domain. If it returns special, UTS 46 must decide: there is a character beyond ASCII
// or a label that claims to be an A-label.
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

// byteCause returns why a domain may not have the byte at i.
func byteCause(text string, i int) error {
	switch {
	case i == 0 && text[0] == '[':
		return errDomainLiteral
	case text[i] == ' ' || text[i] == '\t':
		return errSpace
	}
	return errDomainByte
}
