package upload_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"rollcall/http/upload"
)

func tokens(t *testing.T, fill byte) *upload.Tokens {
	t.Helper()
	made, err := upload.NewTokens(bytes.Repeat([]byte{fill}, upload.TokenKeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTokenNamesItsVerificationAlways(t *testing.T) {
	id := uuid.MustParse("6f1d0c53-6f3a-4c3b-9f4e-0123456789ab")
	one, other := tokens(t, 1), tokens(t, 1)
	if len(one.Token(id)) != upload.TokenBytes || one.Token(id) != other.Token(id) {
		t.Fatalf("tokens of one key and id: %d and %d characters, equal: %v",
			len(one.Token(id)), len(other.Token(id)), one.Token(id) == other.Token(id))
	}
	if got, ok := other.Parse(one.Token(id)); !ok || got != id {
		t.Errorf("Parse = %v, %v; want %v", got, ok, id)
	}
	want := "http://127.0.0.1:8082/upload/" + one.Token(id)
	for _, base := range []string{"http://127.0.0.1:8082", "http://127.0.0.1:8082/"} {
		if got := one.URL(base, id); got != want {
			t.Errorf("URL(%q) = %q, want %q", base, got, want)
		}
	}
}

// TestAlteredTokenIsUnknown changes every character of a token, and its form.
func TestAlteredTokenIsUnknown(t *testing.T) {
	made := tokens(t, 1)
	token := made.Token(uuid.New())
	bad := map[string]string{
		"empty": "", "short": token[:63], "long": token + "A", "of another key": tokens(t, 2).Token(uuid.New()),
		"padded": token[:62] + "==", "with a line end": token[:63] + "\n", "zeros": strings.Repeat("A", 64),
	}
	for name, text := range bad {
		if id, ok := made.Parse(text); ok {
			t.Errorf("a token that is %s names %v", name, id)
		}
	}
	for i := range token {
		for _, c := range "Az0-_" {
			if altered := token[:i] + string(c) + token[i+1:]; altered != token {
				if id, ok := made.Parse(altered); ok {
					t.Fatalf("with character %d changed to %q the token names %v", i, c, id)
				}
			}
		}
	}
}

func TestTokenKeyHasOneLength(t *testing.T) {
	for _, n := range []int{0, 31, 33} {
		if _, err := upload.NewTokens(make([]byte, n)); !errors.Is(err, upload.ErrTokenKey) {
			t.Errorf("NewTokens with %d bytes: %v, want ErrTokenKey", n, err)
		}
	}
}
