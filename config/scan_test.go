package config

import (
	"slices"
	"testing"
)

func TestKeysAreTakenApart(t *testing.T) {
	for _, parts := range [][]string{{"default"}, {"receivers", "a.b"}, {"receivers", `q"u.o\te`, "tls"}, {"", "x"}, {"a", ""}} {
		if got := splitKey(joinKey(parts)); !slices.Equal(got, parts) {
			t.Errorf("%q became %q and then %q", parts, joinKey(parts), got)
		}
	}
}
