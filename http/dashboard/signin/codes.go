package signin

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// stepLife is how long somebody may take for the code after the password.
const stepLife = 10 * time.Minute

// againFor is how long the form that turned codes on gets the same answer again.
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
	// ErrNoPassword: a user has no password, so codes would guard nothing, and the provider is the only way to sign in.
	ErrNoPassword = errors.New("signin: there is no password")
	// ErrFormUsed: the session of a form has ended.
	ErrFormUsed = errors.New("signin: the form was used")
)

// codeRule limits a user's wrong codes from all networks together: giving one requires the password.
var codeRule = ledger.AttemptRule{Free: 10, Window: 15 * time.Minute, First: time.Minute, Most: 15 * time.Minute}

// CodeWanted: only the code is missing. Step is for the next call, see Code.
type CodeWanted struct{ Step string }

// Error says so.
func (c *CodeWanted) Error() string { return "signin: a code is wanted" }

// step is a user for whom only the code is missing.
type step struct {
	User    uuid.UUID `json:"u"`
	Email   string    `json:"e"`
	Factors []byte    `json:"f"` // state of their sign-in: a change ends the step
	Until   int64     `json:"t"`
	Link    Token     `json:"l"` // an invitation that is accepted with the code
}

// wantCode is the answer for a user with codes after the first proof; nil for a user without codes.
func (s *Service) wantCode(u ledger.User, link Token) error {
	if u.TOTP == "" {
		return nil
	}
	factors := u.Factors()
	return &CodeWanted{Step: s.steps.seal("step", step{User: u.ID, Email: u.Email, Factors: factors[:],
		Until: s.now().Add(stepLife).Unix(), Link: link})}
}

// Code begins the session of a step with a code. The same step with the same code again is one session. ErrCode,
// ErrStep, *Wait, ErrBusy.
func (s *Service) Code(ctx context.Context, sealed, code string, b Browser) (Token, ledger.SignedIn, error) {
	var at step
	none := ledger.SignedIn{}
	if !s.steps.open("step", sealed, &at) || s.now().Unix() >= at.Until || len(code) > PasswordMost {
		return "", none, ErrStep
	}
	random := s.keyed("code", sealed, code)
	token := tokenOf(random[:])
	leave, err := s.turns.take(ctx, random, turnsMost)
	if err != nil {
		return "", none, err
	}
	defer leave()
	u, err := s.book.UserByEmail(ctx, at.Email)
	// The session is read after the user: a node that used this code meanwhile has begun the session, too.
	if in, err := SessionNow(ctx, s, token); err == nil {
		return token, in, nil // this form again, also one sent at the same time
	}
	factors := u.Factors()
	if err == nil && (u.ID != at.User || !u.Disabled.IsZero() || !bytes.Equal(factors[:], at.Factors)) {
		err = ErrStep
	}
	if err != nil {
		return "", none, err
	}
	var in ledger.SignedIn
	err = s.spendCode(ctx, u, code, b, func(next TOTPState) (err error) {
		n := s.newSession(token, b)
		n.TOTPWas, n.TOTP = u.TOTP, s.states.seal(u.ID.String(), next)
		in, err = s.begin(ctx, u, at.Link, n)
		return err
	})
	if err != nil {
		return "", none, err
	}
	return token, in, nil
}

// begin begins a session of a proven user, or finds it begun, and accepts an invitation; "": none. Errors: ErrWrong if
// the user was disabled or changed the way of signing in since, ErrFormUsed, ledger.ErrChanged for a used code.
func (s *Service) begin(ctx context.Context, u ledger.User, link Token, n ledger.NewSession) (in ledger.SignedIn, err error) {
	n.User, n.Proved = u.ID, u.Factors()
	if link != "" {
		id, _ := link.Hash()
		in, err = s.book.AcceptLink(ctx, ledger.Accept{Link: id, OIDC: u.OIDC, Session: n})
		s.sessions.forgetUser(u)
	} else {
		in, err = s.book.BeginSession(ctx, n)
	}
	switch {
	case errors.Is(err, ledger.ErrNoSuchUser), errors.Is(err, ledger.ErrChanged) && n.TOTP == "":
		err = ErrWrong
	case errors.Is(err, ledger.ErrIllegal):
		err = ErrFormUsed
	}
	return in, err
}

// proveCode uses up a code of a user, and counts a wrong one as a failure. ErrCode, *Wait, ErrBusy.
func (s *Service) proveCode(ctx context.Context, u ledger.User, code string, b Browser) error {
	return s.spendCode(ctx, u, code, b, func(next TOTPState) error {
		return s.book.UseTOTP(ctx, u.ID, u.TOTP, s.states.seal(u.ID.String(), next))
	})
}

// spendCode is proveCode with a function that writes the state with the code used up.
func (s *Service) spendCode(ctx context.Context, u ledger.User, code string, b Browser, keep func(next TOTPState) error) error {
	user, network := s.subjects(u.Email, b)
	codes := ledger.Hash(s.keyed("codes", u.ID.String()))
	leave, err := s.turns.takeBoth(ctx, codes, network)
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
			for _, subject := range []ledger.Hash{user, codes} {
				if err := s.book.ForgetFailures(ctx, subject); err != nil {
					return err
				}
			}
			return nil
		}
		if !errors.Is(err, ledger.ErrChanged) { // changed: another request used this code, or a neighbouring one
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

// SetupCodes makes a secret for a form, always the same for one form.
func (s *Service) SetupCodes(user ledger.User, form uuid.UUID) CodeSetup {
	secret := s.codeSecret(user, form)
	return CodeSetup{Form: form, Secret: SecretText(secret), URI: TOTPURI("Rollcall", user.Email, secret)}
}

func (s *Service) codeSecret(user ledger.User, form uuid.UUID) []byte {
	random := s.keyed("code secret", user.ID.String(), form.String())
	return random[:TOTPSecretBytes]
}

// recoveries are the recovery codes of a form.
func (s *Service) recoveries(user ledger.User, form uuid.UUID) (all []string) {
	for i := range Recoveries {
		random := s.keyed("recovery", user.ID.String(), form.String(), string(rune('a'+i)))
		all = append(all, RecoveryCode(random[:]))
	}
	return all
}

// CodesOn turns codes on for the signed-in user, who proves the password and that the app has the secret, and ends all
// their other sessions. It returns the recovery codes; for some minutes a repeated form gets them again. ErrWrong,
// ErrCode, ErrOn, ErrNoPassword, *Wait, ErrBusy.
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

// CodesOff turns codes off for the signed-in user, who proves the password and gives a code, and ends all their other
// sessions. If they are off already nothing changes. ErrWrong, ErrCode, *Wait, ErrBusy.
func (s *Service) CodesOff(ctx context.Context, in ledger.SignedIn, password, code string, b Browser) error {
	u, err := proveBoth(ctx, s, in, password, code, b)
	if err != nil || u.TOTP == "" {
		return err
	}
	err = s.book.SetTOTP(ctx, u.ID, "", in.Session.ID)
	s.sessions.forgetUser(u)
	return err
}

// RenewRecovery makes new recovery codes for the signed-in user, who proves the password and gives a code. The old ones
// stop working. A repeated form makes no second set: for some minutes it gets the same codes, and again is true.
// ErrOff, ErrWrong, ErrCode, ErrFormUsed, *Wait, ErrBusy.
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
		again = true // this form, sent twice at once
		return nil
	})
	s.sessions.forgetUser(u)
	if err != nil {
		return nil, false, err
	}
	return codes, again, nil
}

// IsRecovery reports whether a code is one of a user's unused recovery codes. It does not use it up.
func IsRecovery(s *Service, u ledger.User, code string) bool {
	var state TOTPState
	return len(code) <= PasswordMost && s.states.open(u.ID.String(), u.TOTP, &state) && state.Recovers(code)
}

// madeBy returns the form that made a user's recovery codes, and when, in seconds. uuid.Nil for a user without codes.
func (s *Service) madeBy(u ledger.User) (uuid.UUID, int64) {
	var state TOTPState
	s.states.open(u.ID.String(), u.TOTP, &state)
	return state.Form, state.Made
}

// CodesLeft is how many recovery codes a user has.
func (s *Service) CodesLeft(u ledger.User) int {
	var state TOTPState
	s.states.open(u.ID.String(), u.TOTP, &state)
	return len(state.Recovery)
}
