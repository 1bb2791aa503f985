package signin

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // apps support it (RFC 6238, 1.2); codes depend on the secret, not on collisions
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"rsc.io/qr"

	"rollcall/ledger"
)

// stepLife is how long after the password a code may be given.
const stepLife = 10 * time.Minute

// againFor is how long a repeat of the form that turned codes on gets the same answer.
const againFor = 10 * time.Minute

var (
	// ErrCode: a code is wrong or used.
	ErrCode = errors.New("signin: the code is wrong or was used")
	// ErrStep: the page for the code is too old, or the user's sign-in changed since.
	ErrStep = errors.New("signin: sign in from the beginning")
	// ErrOn: codes are on already.
	ErrOn = errors.New("signin: codes are on already")
	// ErrOff: codes are off.
	ErrOff = errors.New("signin: codes are off")
	// ErrNoPassword: a user has no password, so codes would guard nothing; the provider is the user's only way to
	// sign in.
	ErrNoPassword = errors.New("signin: there is no password")
	// ErrFormUsed: the session of a form has ended.
	ErrFormUsed = errors.New("signin: the form was used")
)

// codeRule limits a user's wrong codes from all networks together. To try a code, one must know the password.
var codeRule = ledger.AttemptRule{Free: 10, Window: 15 * time.Minute, First: time.Minute, Most: 15 * time.Minute}

// CodeWanted: only the code is missing. Pass Step to Code.
type CodeWanted struct{ Step string }

// Error implements error.
func (c *CodeWanted) Error() string { return "signin: a code is wanted" }

// step is a user for whom only the code is missing.
type step struct {
	User    uuid.UUID `json:"u"`
	Email   string    `json:"e"`
	Factors []byte    `json:"f"` // state of their sign-in: a change ends the step
	Until   int64     `json:"t"`
	Link    Token     `json:"l"` // an invitation to accept after the code
}

// wantCode returns the error that asks a user for a code after the first proof, or nil for a user without codes.
func (s *Service) wantCode(u ledger.User, link Token) error {
	if u.TOTP == "" {
		return nil
	}
	factors := u.Factors()
	return &CodeWanted{Step: s.steps.seal("step", step{User: u.ID, Email: u.Email, Factors: factors[:],
		Until: s.now().Add(stepLife).Unix(), Link: link})}
}

// Code begins the session of a step with a code. Repeated with the same step and code it returns the same session.
// Errors: ErrCode, ErrStep, *Wait, ErrBusy.
func (s *Service) Code(ctx context.Context, sealed, code string, b Browser) (Token, error) {
	var at step
	if !s.steps.open("step", sealed, &at) || s.now().Unix() >= at.Until || len(code) > PasswordMost {
		return "", ErrStep
	}
	random := s.keyed("code", sealed, code)
	token := tokenOf(random[:])
	leave, err := s.queues.take(ctx, random, turnsMost)
	if err != nil {
		return "", err
	}
	defer leave()
	u, err := s.book.UserByEmail(ctx, at.Email)
	// The session is read after the user, because another node that used this code meanwhile has also begun the
	// session.
	if _, err := SessionNow(ctx, s, token); err == nil {
		return token, nil // a repeat of this form, perhaps sent at the same time
	}
	factors := u.Factors()
	if err == nil && (u.ID != at.User || !u.Disabled.IsZero() || !bytes.Equal(factors[:], at.Factors)) {
		err = ErrStep
	}
	if err != nil {
		return "", err
	}
	err = s.spendCode(ctx, u, code, b, func(next TOTPState) error {
		n := s.newSession(token, b)
		n.TOTPWas, n.TOTP = u.TOTP, s.states.seal(u.ID.String(), next)
		return s.begin(ctx, u, at.Link, n)
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// begin begins a session of a proven user, or finds it if it has begun. It also accepts an invitation, unless link is
// "". Errors: ErrWrong if the user was disabled or changed the way of signing in meanwhile, ErrFormUsed,
// ledger.ErrChanged for a used code.
func (s *Service) begin(ctx context.Context, u ledger.User, link Token, n ledger.NewSession) (err error) {
	n.User, n.Proved = u.ID, u.Factors()
	if link != "" {
		id, _ := link.Hash()
		_, err = s.book.AcceptLink(ctx, ledger.Accept{Link: id, OIDC: u.OIDC, Session: n})
		s.sessions.forgetUser(u)
	} else {
		_, err = s.book.BeginSession(ctx, n)
	}
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser), errors.Is(err, ledger.ErrChanged) && n.TOTP == "":
		err = ErrWrong
	case errors.Is(err, ledger.ErrIllegal):
		err = ErrFormUsed
	}
	return err
}

// proveCode uses up a code of a user, and counts a wrong one as a failure. Errors: ErrCode, *Wait, ErrBusy.
func (s *Service) proveCode(ctx context.Context, u ledger.User, code string, b Browser) error {
	return s.spendCode(ctx, u, code, b, func(next TOTPState) error {
		return s.book.UseTOTP(ctx, u.ID, u.TOTP, s.states.seal(u.ID.String(), next))
	})
}

// spendCode is proveCode, but the caller's function writes the state in which the code is used up.
func (s *Service) spendCode(ctx context.Context, u ledger.User, code string, b Browser, keep func(next TOTPState) error) error {
	user, network := s.subjects(u.Email, b)
	codes := ledger.Hash(s.keyed("codes", u.ID.String()))
	leave, err := s.queues.takeBoth(ctx, codes, network)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.mayTry(ctx, user, network, codes); err != nil {
		return err
	}
	var state TOTPState
	good := len(code) <= PasswordMost && s.states.open(u.ID.String(), u.TOTP, &state)
	if good {
		state, good = state.Use(code, s.now())
	}
	if good {
		err := keep(state)
		if err == nil {
			if err = s.book.ForgetFailures(ctx, user); err == nil {
				err = s.book.ForgetFailures(ctx, codes)
			}
			return err
		}
		if !errors.Is(err, ledger.ErrChanged) { // ErrChanged: another request used this code or a neighbouring one
			return err
		}
	}
	if err := s.failed(ctx, codes, codeRule); err != nil {
		return err
	}
	if err := s.failedSignIn(ctx, user, network); err != nil {
		return err
	}
	return ErrCode
}

// CodeSetup is a secret for an app, before codes are on.
type CodeSetup struct {
	Form   uuid.UUID
	Secret string // for people, in groups
	URI    string // for apps
}

// SetupCodes makes a secret for a form. The same form always gets the same secret.
func (s *Service) SetupCodes(user ledger.User, form uuid.UUID) CodeSetup {
	secret := s.codeSecret(user, form)
	return CodeSetup{Form: form, Secret: SecretText(secret), URI: TOTPURI("Rollcall", user.Email, secret)}
}

func (s *Service) codeSecret(user ledger.User, form uuid.UUID) []byte {
	random := s.keyed("code secret", user.ID.String(), form.String())
	return random[:TOTPSecretBytes]
}

func (s *Service) recoveries(user ledger.User, form uuid.UUID) (all []string) {
	for i := range Recoveries {
		random := s.keyed("recovery", user.ID.String(), form.String(), string(rune('a'+i)))
		all = append(all, RecoveryCode(random[:]))
	}
	return all
}

// CodesOn turns codes on for the signed-in user and ends all other sessions of the user. The user proves the
// password, and that the app has the secret. It returns the recovery codes; for some minutes a repeated form gets
// them again. Errors: ErrWrong, ErrCode, ErrOn, ErrNoPassword, *Wait, ErrBusy.
func (s *Service) CodesOn(ctx context.Context, in ledger.SignedIn, form uuid.UUID, password, code string, b Browser) ([]string, error) {
	if !HasPassword(in.User) {
		return nil, ErrNoPassword
	}
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err != nil {
		return nil, err
	}
	now := s.now()
	if u.TOTP != "" {
		if made, at := s.madeBy(u); made == form && now.Unix()-at < int64(againFor.Seconds()) {
			return s.recoveries(u, form), nil
		}
		return nil, ErrOn
	}
	recovery := s.recoveries(u, form)
	state, good := BeginTOTP(s.codeSecret(u, form), recovery, form, code, now)
	if !good {
		user, network := s.subjects(u.Email, b)
		if err := s.failedSignIn(ctx, user, network); err != nil {
			return nil, err
		}
		return nil, ErrCode
	}
	err = s.book.SetTOTP(ctx, u.ID, s.states.seal(u.ID.String(), state), in.Session.ID)
	s.sessions.forgetUser(u)
	if errors.Is(err, ledger.ErrChanged) {
		err = ErrOn
	}
	return recovery, err
}

// CodesOff turns codes off for the signed-in user and ends all other sessions of the user. The user proves the
// password and gives a code. If codes are off already, nothing changes. Errors: ErrWrong, ErrCode, *Wait, ErrBusy.
func (s *Service) CodesOff(ctx context.Context, in ledger.SignedIn, password, code string, b Browser) error {
	u, err := proveBoth(ctx, s, in, password, code, b)
	if err != nil || u.TOTP == "" {
		return err
	}
	err = s.book.SetTOTP(ctx, u.ID, "", in.Session.ID)
	s.sessions.forgetUser(u)
	return err
}

// RenewRecovery makes new recovery codes for the signed-in user, and the old ones stop working. The user proves the
// password and gives a code. A repeated form makes no second set: for some minutes it gets the same codes, and again
// is true. Errors: ErrOff, ErrWrong, ErrCode, ErrFormUsed, *Wait, ErrBusy.
func (s *Service) RenewRecovery(ctx context.Context, in ledger.SignedIn, form uuid.UUID, password, code string, b Browser) (
	codes []string, again bool, err error) {
	u, err := s.prove(ctx, in.User.Email, password, b)
	if err != nil {
		return nil, false, err
	}
	if u.TOTP == "" {
		return nil, false, ErrOff
	}
	codes = s.recoveries(u, form)
	if made, at := s.madeBy(u); made == form {
		if s.now().Unix()-at >= int64(againFor.Seconds()) {
			return nil, true, ErrFormUsed
		}
		return codes, true, nil
	}
	err = s.spendCode(ctx, u, code, b, func(next TOTPState) error {
		renewed := s.states.seal(u.ID.String(), next.Renew(codes, form, s.now()))
		err := s.book.RenewTOTP(ctx, u.ID, u.TOTP, renewed)
		if !errors.Is(err, ledger.ErrChanged) {
			return err
		}
		now, failed := s.book.UserByEmail(ctx, u.Email)
		if failed != nil {
			return failed
		}
		if made, _ := s.madeBy(now); made != form {
			return err
		}
		again = true // the form was sent twice at the same time
		return nil
	})
	s.sessions.forgetUser(u)
	if err != nil {
		return nil, false, err
	}
	return codes, again, nil
}

// IsRecovery reports whether a code is one of a user's unused recovery codes. It does not use the code up.
func IsRecovery(s *Service, u ledger.User, code string) bool {
	var state TOTPState
	return len(code) <= PasswordMost && s.states.open(u.ID.String(), u.TOTP, &state) && state.recoveryAt(code) >= 0
}

// madeBy returns the form that made a user's recovery codes, and when, in seconds. For a user without codes it
// returns uuid.Nil.
func (s *Service) madeBy(u ledger.User) (uuid.UUID, int64) {
	var state TOTPState
	s.states.open(u.ID.String(), u.TOTP, &state)
	return state.Form, state.Made
}

// CodesLeft returns how many recovery codes a user has.
func (s *Service) CodesLeft(u ledger.User) int {
	var state TOTPState
	s.states.open(u.ID.String(), u.TOTP, &state)
	return len(state.Recovery)
}

// The defaults of all apps (RFC 6238, 4 and 5.2).
const (
	// TOTPDigits is the length of a code.
	TOTPDigits = 6
	// TOTPPeriod is how long a code is valid.
	TOTPPeriod = 30 * time.Second
	// totpSkew is how many periods a clock may be wrong, in both directions.
	totpSkew = 1
)

// TOTPSecretBytes is the length of a secret: the length of the hash (RFC 4226, 4).
const TOTPSecretBytes = sha1.Size

// Recoveries is how many recovery codes there are.
const Recoveries = 10

// recoveryBytes is the number of random bytes of a recovery code: 80 bits, too many to guess, written as 16 letters.
const recoveryBytes = 10

// totpLetters are the letters of secrets and codes, as apps read them.
var totpLetters = base32.StdEncoding.WithPadding(base32.NoPadding)

// TOTPStep returns the number of the period at a time.
func TOTPStep(at time.Time) int64 { return at.Unix() / int64(TOTPPeriod/time.Second) }

// TOTPCode returns the code of a period (RFC 4226, 5.3).
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
	Last     int64     `json:"l"` // period of the last used code; codes up to this period are refused
	Form     uuid.UUID `json:"f"` // the form that made the recovery codes
	Made     int64     `json:"m"` // when, in seconds
	Recovery [][]byte  `json:"r"` // hashes of the unused recovery codes
}

// BeginTOTP returns the state after the first code, which proves that the app has the secret. For a wrong code it
// returns false.
func BeginTOTP(secret []byte, recovery []string, form uuid.UUID, code string, now time.Time) (TOTPState, bool) {
	return TOTPState{Secret: secret, Last: -1}.Renew(recovery, form, now).useCode(plainCode(code), now)
}

// Renew returns the state with new recovery codes instead of the old ones. form is the form that made them.
func (s TOTPState) Renew(recovery []string, form uuid.UUID, now time.Time) TOTPState {
	s.Form, s.Made, s.Recovery = form, now.Unix(), nil
	for _, r := range recovery {
		s.Recovery = append(s.Recovery, digest(r))
	}
	return s
}

// Use returns the state after the use of a code or recovery code. For a wrong or used code it returns false.
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

// recoveryAt returns the index of a recovery code, or -1.
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

func plainCode(code string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", "-", "", "\u00a0", "", "\u202f", "").Replace(code))
}

// digest returns the stored hash of a recovery code.
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

func grouped(text, between string) string {
	var groups []string
	for part := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(part))
	}
	return strings.Join(groups, between)
}

// TOTPURI returns a secret in the form that apps read from a picture.
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
