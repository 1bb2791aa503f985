package signin_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
)

var secret = []byte("12345678901234567890")

func TestCodesAreThoseOfTheStandards(t *testing.T) {
	t.Parallel()
	// RFC 4226, appendix D.
	for i, want := range []string{"755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"} {
		effort.Is(t, signin.TOTPCode(secret, int64(i)), want, fmt.Sprintf("counter %d", i))
	}
	// RFC 6238, appendix B: the last six of its eight digits.
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924",
		2000000000: "279037", 20000000000: "353130"} {
		effort.Is(t, signin.TOTPCode(secret, signin.TOTPStep(time.Unix(at, 0))), want, fmt.Sprintf("at %d", at))
	}
}

func TestACodeWorksOnceAndAboutItsTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_010, 0)
	at := func(periods int) string { return signin.TOTPCode(secret, signin.TOTPStep(now)+int64(periods)) }
	for off, want := range map[int]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		_, ok := signin.BeginTOTP(secret, nil, uuid.New(), at(off), now)
		effort.ErrorIf(t, ok != want, "a code of %d periods off: %v", off, ok)
	}
	s, ok := signin.BeginTOTP(secret, nil, uuid.New(), at(0)[:3]+" "+at(0)[3:], now)
	effort.FatalIf(t, !ok, "the right code is refused")
	for _, used := range []string{at(0), at(-1), "", at(0)[:5], at(0) + "0", "000000"} {
		_, ok := s.Use(used, now)
		effort.ErrorIf(t, ok && used != at(1), "%q is taken after a newer one was used", used)
	}
	next, ok := s.Use(at(1), now)
	effort.ErrorIf(t, !ok, "the next code is refused")
	if _, ok := next.Use(at(1), now); ok {
		t.Error("a code is taken twice")
	}
}

func TestCodesOfOneUseWorkOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_010, 0)
	codes := []string{signin.RecoveryCode([]byte("abcdefghij")), signin.RecoveryCode([]byte("0123456789"))}
	s, ok := signin.BeginTOTP(secret, codes, uuid.New(), signin.TOTPCode(secret, signin.TOTPStep(now)), now)
	effort.FatalIf(t, !ok || len(codes[0]) != 19 || codes[0] == codes[1], "%v %q", ok, codes)
	used, ok := s.Use(strings.ToLower(strings.ReplaceAll(codes[0], "-", " ")), now)
	effort.FatalIf(t, !ok || len(used.Recovery) != 1 || len(s.Recovery) != 2,
		"%v, %d left, %d before", ok, len(used.Recovery), len(s.Recovery))
	if _, ok := used.Use(codes[0], now); ok {
		t.Error("taken twice")
	}
	if _, ok := used.Use(codes[1][:18], now); ok {
		t.Error("a part of one is taken")
	}
	if _, ok := used.Use(codes[1], now); !ok {
		t.Error("another one is refused")
	}
}

func TestWhatAppsRead(t *testing.T) {
	t.Parallel()
	text := signin.TOTPURI("Rollcall", "anna+x@acme.test", secret)
	u, err := url.Parse(text)
	effort.ErrorIf(t, err != nil || u.Scheme != "otpauth" || u.Host != "totp" ||
		u.Path != "/Rollcall:anna+x@acme.test" || u.Query().Get("secret") != "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" ||
		u.Query().Get("issuer") != "Rollcall", "%s: %v", text, err)
	effort.Is(t, signin.SecretText(secret), "GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ")
	width, path, err := signin.QRPicture(text)
	effort.ErrorIf(t, err != nil || width < 29 || !strings.HasPrefix(path, "M4 4h7v1h-7z") ||
		strings.Trim(path, "Mhvz0123456789- ") != "", "%d %.40s %v", width, path, err)
	if _, _, err := signin.QRPicture(strings.Repeat("x", 10_000)); err == nil {
		t.Error("a picture of 10,000 bytes")
	}
}
