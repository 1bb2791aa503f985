package secure_test

import (
	"errors"
	"strings"
	"testing"

	"rollcall/cluster/secure"
)

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"one label", "a", true},
		{"host name", "node-1.example.net", true},
		{"pod", "rollcall-0.rollcall.mail.svc.cluster.local", true},
		{"digits first", "1a", true},
		{"longest", strings.Repeat("a.", 63) + "aa", true},
		{"too long", strings.Repeat("a.", 64) + "a", false},
		{"longest label", strings.Repeat("a", 63), true},
		{"label too long", strings.Repeat("a", 64), false},
		{"empty", "", false},
		{"empty label", "a..b", false},
		{"dot at the end", "a.", false},
		{"capitals", "Node", false},
		{"underscore", "node_1", false},
		{"pattern", "*.example.net", false},
		{"hyphen first", "-a", false},
		{"hyphen last", "a-.b", false},
		{"path", "../ca", false},
		{"IPv4", "10.0.0.1", false},
		{"IPv6", "::1", false},
		{"not ASCII", "knötchen", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := secure.CheckName(c.text)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, secure.ErrName) {
				t.Errorf("CheckName(%q): %v, want ok %v", c.text, err, c.ok)
			}
		})
	}
}
