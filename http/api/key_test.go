package api

import (
	"crypto/sha256"
	"rollcall/config/effort"
	"testing"
)

func TestNewKeysAreReadBack(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		text, made := NewKey()
		read, ok := ParseKey([]byte(text))
		effort.FatalIf(t, !ok || read != made || len(text) != KeyLength || seen[text],
			"%q: read %+v, %v; made %+v", text, read, ok, made)
		effort.MustBe(t, made.SHA256, sha256.Sum256([]byte(text[len(text)-49:])), "the hash is not that of the secret")
		seen[text] = true
	}
}

// TestEverySlipIsSeen changes each character of a key, swaps neighbours and cuts it.
func TestEverySlipIsSeen(t *testing.T) {
	text, _ := NewKey()
	for i := range text {
		b := []byte(text)
		b[i] ^= 1
		if _, ok := ParseKey(b); ok {
			t.Errorf("a slip at %d is not seen", i)
		}
		if _, ok := ParseKey([]byte(text[:i])); ok {
			t.Errorf("a key cut at %d is read", i)
		}
		if i > 0 && text[i] != text[i-1] {
			b = []byte(text)
			b[i], b[i-1] = b[i-1], b[i]
			if _, ok := ParseKey(b); ok {
				t.Errorf("neighbours swapped at %d are not seen", i)
			}
		}
	}
	if _, ok := ParseKey([]byte(text + "0")); ok {
		t.Error("a longer key is read")
	}
}

func FuzzParse(f *testing.F) {
	text, _ := NewKey()
	f.Add([]byte(text))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := ParseKey(b)
		effort.ErrorIf(t, ok && (len(b) != KeyLength || len(k.ID) != idLength), "%q gives %+v", b, k)
	})
}
