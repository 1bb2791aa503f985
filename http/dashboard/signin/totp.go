package signin

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // apps support it (RFC 6238, 1.2); codes depend on the secret, not on collisions
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

// The defaults of all apps (RFC 6238, 4 and 5.2).
const (
	// TOTPDigits is the length of a code.
	TOTPDigits = 6
	// TOTPPeriod is how long a code is valid.
	TOTPPeriod = 30 * time.Second
	// totpSkew is how many periods a clock may be off, in both directions.
	totpSkew = 1
)

// TOTPSecretBytes is the length of a secret: that of the hash (RFC 4226, 4).
const TOTPSecretBytes = sha1.Size

// Recoveries is how many recovery codes there are.
const Recoveries = 10

// recoveryBytes are the random bytes of such a code: 80 bits, too many to guess, 16 letters.
const recoveryBytes = 10

// totpLetters are the letters of secrets and codes, as apps read them.
var totpLetters = base32.StdEncoding.WithPadding(base32.NoPadding)

// TOTPStep is the number of the period of a moment.
func TOTPStep(at time.Time) int64 { return at.Unix() / int64(TOTPPeriod/time.Second) }

// TOTPCode is the code of a period (RFC 4226, 5.3).
func TOTPCode(secret []byte, step int64) string {
	var counter [8]byte
	binary.BigEndian.PutUint64(counter[:], uint64(step))
	m := hmac.New(sha1.New, secret)
	m.Write(counter[:])
	sum := m.Sum(nil)
	at := sum[len(sum)-1] & 0xf
	n := binary.BigEndian.Uint32(sum[at:at+4]) & 0x7fffffff
	return fmt.Sprintf("%0*d", TOTPDigits, n%1_000_000)
}

// TOTPState is the stored state of a user's codes.
type TOTPState struct {
	Secret   []byte    `json:"s"`
	Last     int64     `json:"l"` // the period of the last code that was used: it and those before it are used up
	Form     uuid.UUID `json:"f"` // with which the recovery codes were made
	Made     int64     `json:"m"` // when, in seconds
	Recovery [][]byte  `json:"r"` // hashes of the unused recovery codes
}

// BeginTOTP is the state after the first code was given, which shows that the app has the secret; false for a wrong
// one.
func BeginTOTP(secret []byte, recovery []string, form uuid.UUID, code string, now time.Time) (TOTPState, bool) {
	return TOTPState{Secret: secret, Last: -1}.Renew(recovery, form, now).useCode(plainCode(code), now)
}

// Renew is the state with new recovery codes, made with a form, in place of the old ones.
func (s TOTPState) Renew(recovery []string, form uuid.UUID, now time.Time) TOTPState {
	s.Form, s.Made, s.Recovery = form, now.Unix(), nil
	for _, r := range recovery {
		s.Recovery = append(s.Recovery, digest(r))
	}
	return s
}

// Use is the state after a code or a recovery code; false for a wrong or used one.
func (s TOTPState) Use(code string, now time.Time) (TOTPState, bool) {
	code = plainCode(code)
	if next, ok := s.useCode(code, now); ok {
		return next, true
	}
	if i := s.recoveryAt(code); i >= 0 {
		s.Recovery = slices.Delete(slices.Clone(s.Recovery), i, i+1)
		return s, true
	}
	return s, false
}

// Recovers reports whether a code is an unused recovery code.
func (s TOTPState) Recovers(code string) bool { return s.recoveryAt(code) >= 0 }

// recoveryAt is the index of a recovery code; -1: it is none.
func (s TOTPState) recoveryAt(code string) int {
	sum := digest(code)
	return slices.IndexFunc(s.Recovery, func(kept []byte) bool { return subtle.ConstantTimeCompare(sum, kept) == 1 })
}

func (s TOTPState) useCode(code string, now time.Time) (TOTPState, bool) {
	for step := TOTPStep(now) - totpSkew; step <= TOTPStep(now)+totpSkew; step++ {
		if subtle.ConstantTimeCompare([]byte(code), []byte(TOTPCode(s.Secret, step))) == 1 && step > s.Last {
			s.Last = step
			return s, true
		}
	}
	return s, false
}

// plainCode is a code without separators.
func plainCode(code string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "\u00a0", "", "\u202f", "").Replace(code))
}

// digest is the stored hash of a recovery code.
func digest(code string) []byte {
	sum := sha256.Sum256([]byte(plainCode(code)))
	return sum[:16]
}

// RecoveryCode writes a recovery code from the first ten of some random bytes.
func RecoveryCode(random []byte) string {
	return grouped(totpLetters.EncodeToString(random[:recoveryBytes]), "-")
}

// SecretText writes a secret for people.
func SecretText(secret []byte) string { return grouped(totpLetters.EncodeToString(secret), " ") }

// grouped parts a text into groups of four.
func grouped(text, between string) string {
	var groups []string
	for part := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(part))
	}
	return strings.Join(groups, between)
}

// TOTPURI is a secret as apps read it from a picture.
func TOTPURI(issuer, account string, secret []byte) string {
	q := url.Values{"secret": {totpLetters.EncodeToString(secret)}, "issuer": {issuer}}
	return "otpauth://totp/" + url.PathEscape(issuer+":"+account) + "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// QRPicture is a QR code: its width in squares, with a margin of four on each side, and its dark squares as an SVG
// path.
func QRPicture(text string) (width int, path string, err error) {
	const margin = 4 // ISO/IEC 18004, 6.3.8
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return 0, "", fmt.Errorf("signin: draw a QR code: %w", err)
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
