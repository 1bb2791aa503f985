package totp

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what apps know (RFC 6238, 1.2); a code rests on the secret and not on collisions
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"rsc.io/qr"
)

// What every app takes without being asked (RFC 6238, 4 and 5.2).
const (
	// Digits is how long a code is.
	Digits = 6
	// Period is how long a code holds.
	Period = 30 * time.Second
	// skew is how many periods a clock may be off, in both directions.
	skew = 1
)

// SecretBytes is the length of a secret: that of the hash (RFC 4226, 4).
const SecretBytes = sha1.Size

// Recoveries is how many recovery codes there are.
const Recoveries = 10

// recoveryBytes are the random bytes of such a code, which nobody guesses: 80 bits, 16 letters.
const recoveryBytes = 10

// letters are those of secrets and codes, as apps read them.
var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

// Step is the number of the period in which a moment is.
func Step(at time.Time) int64 { return at.Unix() / int64(Period/time.Second) }

// Code is the code of a period (RFC 4226, 5.3).
func Code(secret []byte, step int64) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	m := hmac.New(sha1.New, secret)
	m.Write(counter[:])
	sum := m.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	n := binary.BigEndian.Uint32(sum[at:at+4]) & 0x7fffffff
	return fmt.Sprintf("%0*d", Digits, n%1_000_000)
}

// State is what is remembered of the recovery codesr.
type State struct {
	Secret   []byte    `json:"s"`
	Last     int64     `json:"l"` // the period of the last code that was used: it and those before it are used up
	Form     uuid.UUID `json:"f"` // with which the recovery codes were made
	Made     int64     `json:"m"` // when, in seconds
	Recovery [][]byte  `json:"r"` // hashes of the recovery codes that are left
}

// Begin is the state after the first code was given, which shows that the app has the secret; false for a wrong one.
func Begin(secret []byte, recovery []string, form uuid.UUID, code string, now time.Time) (State, bool) {
	return State{Secret: secret, Last: -1}.Renew(recovery, form, now).useCode(plain(code), now)
}

// Renew is the state with other recovery codes, in place of those that were left, made with a form.
func (s State) Renew(recovery []string, form uuid.UUID, now time.Time) State {
	s.Form, s.Made, s.Recovery = form, now.Unix(), nil
	for _, r := range recovery {
		s.Recovery = append(s.Recovery, digest(r))
	}
	return s
}

// Use is the state after a code or one of the recovery codes; false for one that is wrong or was used.
func (s State) Use(code string, now time.Time) (State, bool) {
	code = plain(code)
	if next, ok := s.useCode(code, now); ok {
		return next, true
	}
	if i := s.recoveryAt(code); i >= 0 {
		s.Recovery = slices.Delete(slices.Clone(s.Recovery), i, i+1)
		return s, true
	}
	return s, false
}

// Recovers reports whether a code is one of the codes of one use that are left.
func (s State) Recovers(code string) bool { return s.recoveryAt(code) >= 0 }

// recoveryAt is the place of a code of one use; -1: it is none.
func (s State) recoveryAt(code string) int {
	sum := digest(code)
	return slices.IndexFunc(s.Recovery, func(kept []byte) bool { return subtle.ConstantTimeCompare(sum, kept) == 1 })
}

func (s State) useCode(code string, now time.Time) (State, bool) {
	for step := Step(now) - skew; step <= Step(now)+skew; step++ {
		if subtle.ConstantTimeCompare([]byte(code), []byte(Code(s.Secret, step))) == 1 && step > s.Last {
			s.Last = step
			return s, true
		}
	}
	return s, false
}

// plain is a code without what people put between its parts.
func plain(code string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "\u00a0", "", "\u202f", "").Replace(code))
}

// digest is what is kept of a code of one use.
func digest(code string) []byte {
	sum := sha256.Sum256([]byte(plain(code)))
	return sum[:16]
}

// Recovery writes a code of one use from random bytes, of which it takes the first ten.
func Recovery(random []byte) string {
	return grouped(letters.EncodeToString(random[:recoveryBytes]), "-")
}

// Text writes a secret for people.
func Text(secret []byte) string { return grouped(letters.EncodeToString(secret), " ") }

// grouped parts a text into groups of four.
func grouped(text, between string) string {
	var groups []string
	for part := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(part))
	}
	return strings.Join(groups, between)
}

// URI is a secret as apps read it from a picture.
func URI(issuer, account string, secret []byte) string {
	q := url.Values{"secret": {letters.EncodeToString(secret)}, "issuer": {issuer}}
	return "otpauth://totp/" + url.PathEscape(issuer+":"+account) + "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// Picture is a QR code: how many squares it is wide, a margin of four on each side included, and its dark squares as a path
// of SVG.
func Picture(text string) (width int, path string, err error) {
	const margin = 4 // ISO/IEC 18004, 6.3.8
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return 0, "", fmt.Errorf("totp: draw a QR code: %w", err)
	}
	var b strings.Builder
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			run := 0
			for x+run < code.Size && code.Black(x+run, y) {
				run++
			}
			if run > 0 {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", x+margin, y+margin, run, run)
				x += run
			}
		}
	}
	return code.Size + 2*margin, b.String(), nil
}
