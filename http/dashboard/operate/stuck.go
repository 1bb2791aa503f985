package operate

import (
	"bytes"
	"cmp"
	"time"

	"rollcall/ledger"
)

// overdueBy says by how much the expected end of a verification has passed; 0 when it has not, or is not known.
func overdueBy(v ledger.Verification, now time.Time) time.Duration {
	if v.Expected.IsZero() {
		return 0
	}
	return max(0, now.Sub(v.Expected))
}

// stuckFirst orders verifications that are not done for who looks for what is stuck. First come those whose expected end
// has passed, the longest overdue first. Then come those that have an issue, or whose lease has run out. Then all others.
// Ties go to the oldest.
func stuckFirst(a, b ledger.Verification, now time.Time) int {
	return cmp.Or(
		cmp.Compare(overdueBy(b, now), overdueBy(a, now)),
		boolOrder(waitsForSomebody(b, now))-boolOrder(waitsForSomebody(a, now)),
		a.Created.Compare(b.Created),
		bytes.Compare(a.ID[:], b.ID[:]))
}

// waitsForSomebody reports whether a verification has an issue, or no node renews its lease.
func waitsForSomebody(v ledger.Verification, now time.Time) bool {
	return v.Issue != nil || !v.LeasedUntil.IsZero() && v.LeasedUntil.Before(now)
}
