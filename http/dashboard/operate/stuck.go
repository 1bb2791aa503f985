package operate

import (
	"bytes"
	"cmp"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// stuckFirst orders open verifications by how much they need somebody to look: those that are overdue first, the longest
// overdue before the others; then those that wait with an issue, or whose lease ran out; then the rest. Within these two the
// oldest comes first.
func stuckFirst(a, b ledger.Verification, now time.Time) int {
	group := func(v ledger.Verification) int {
		switch {
		case isOverdue(v, now):
			return 0
		case v.Issue != nil || leaseRanOut(v, now):
			return 1
		}
		return 2
	}
	of := group(a)
	order := cmp.Compare(of, group(b))
	if order == 0 && of == 0 {
		order = a.Expected.Compare(b.Expected)
	}
	return cmp.Or(order, a.Created.Compare(b.Created), bytes.Compare(a.ID[:], b.ID[:]))
}

// isOverdue reports whether the expected end of a verification has passed.
func isOverdue(v ledger.Verification, now time.Time) bool {
	return !v.Expected.IsZero() && v.Expected.Before(now)
}

// leaseRanOut reports whether the node that has a verification has not renewed its lease in time.
func leaseRanOut(v ledger.Verification, now time.Time) bool {
	if v.LeasedUntil.IsZero() { // the ledger gives no time for a lease that is over
		return v.LeasedBy != uuid.Nil
	}
	return !v.LeasedUntil.After(now)
}
