package view

import (
	"slices"

	"rollcall/ledger"
)

// WorkingFirst puts keys in the order of a register: those that can be revoked, then the others, the newest first in each. The
// ledger gives the oldest first.
func WorkingFirst(keys []ledger.Key) []ledger.Key {
	var working, revoked []ledger.Key
	for _, k := range slices.Backward(keys) {
		if k.Works() {
			working = append(working, k)
		} else {
			revoked = append(revoked, k)
		}
	}
	return append(working, revoked...)
}
