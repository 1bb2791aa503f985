package smtplab

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Mailbox is what a receiver of the lab knows about a local part.
type Mailbox uint8

// The kinds of mailbox. The local part decides, in any case of letters.
const (
	NotFound     Mailbox = iota // everything else, nobody..., ghost...
	Exists                      // name, first.last, name12, at most 15 bytes
	Disabled                    // disabled...
	Full                        // full...
	OverQuota                   // overquota...: full at the moment
	Restricted                  // restricted...: takes mail from members only
	Busy                        // busy...: receives too much at the moment
	Grey                        // grey...: greylisted alone, whoever asks
	Deferred                    // deferred...: put off for ever
	Refused                     // refused...: nothing of ours is taken for it
	Cut                         // cut...: the connection ends instead of an answer
	Closing                     // closing...: 421, and the end of the session
	MailboxKinds                // how many kinds there are
)

// mailboxBytesMax is the longest local part that exists. Control probes are
// longer (16 bytes and more), so a receiver that knows its mailboxes refuses
// them whatever they look like.
const mailboxBytesMax = 15

// digitsMax is the most digits at the end of a mailbox's name: a year.
const digitsMax = 4

var mailboxPrefixes = [...]struct {
	prefix string
	kind   Mailbox
}{
	{"nobody", NotFound},
	{"ghost", NotFound},
	{"disabled", Disabled},
	{"full", Full},
	{"overquota", OverQuota},
	{"restricted", Restricted},
	{"busy", Busy},
	{"grey", Grey},
	{"deferred", Deferred},
	{"refused", Refused},
	{"cut", Cut},
	{"closing", Closing},
}

// mailboxOf tells the kind of a local part: letters, at most one dot between
// letters, at most four digits at the end, 15 bytes in all, and the first letters
// may name a kind. What has another form does not exist.
func mailboxOf(local []byte) Mailbox {
	if len(local) > mailboxBytesMax || !wellNamed(local) {
		return NotFound
	}
	for i := range mailboxPrefixes {
		p := &mailboxPrefixes[i]
		if len(local) >= len(p.prefix) && bytes.EqualFold(local[:len(p.prefix)], []byte(p.prefix)) {
			return p.kind
		}
	}
	return Exists
}

// wellNamed reports whether local is letters [ "." letters ] [ 1 to 4 digits ].
func wellNamed(local []byte) bool {
	letters, dots := 0, 0
	for i := 0; i < len(local); {
		r, size := rune(local[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(local[i:])
		}
		switch {
		case 'a' <= r|0x20 && r|0x20 <= 'z' || r >= utf8.RuneSelf && unicode.IsLetter(r):
			letters++
		case r == '.' && letters > 0 && dots == 0:
			letters, dots = 0, 1
		case '0' <= r && r <= '9' && letters > 0:
			return len(local)-i <= digitsMax && onlyDigits(local[i:])
		default:
			return false
		}
		i += size
	}
	return letters > 0
}

func onlyDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
