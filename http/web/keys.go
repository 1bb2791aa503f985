package web

import (
	"cmp"
	"slices"

	"rollcall/ledger"
)

// WorkingFirst puts keys in the order of a register: those that can be revoked, then the others, the newest first
// in each. The ledger gives the oldest first.
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

// KeyName is what a key is called.
func KeyName(k ledger.Key) string { return cmp.Or(k.Label, "rc_"+k.ID) }

// Roles are those that a member can have.
var Roles = []ledger.Role{ledger.Viewer, ledger.Member, ledger.Owner}

// RolesText says what they may do.
const RolesText = "Viewers see everything. Members can also upload, check and cancel. Owners also manage keys and " +
	"people, and see the activity."
