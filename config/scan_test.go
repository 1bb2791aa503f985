package config

import (
	"rollcall/config/effort"
	"testing"
)

func TestKeysAreTakenApart(t *testing.T) {
	for _, parts := range [][]string{{"default"}, {"receivers", "a.b"}, {"receivers", `q"u.o\te`, "tls"}, {"", "x"}, {"a", ""}} {
		effort.Equal(t, splitKey(joinKey(parts)), parts, joinKey(parts))
	}
}
