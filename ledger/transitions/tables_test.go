package transitions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

// TestALeaseEndsAtItsMillisecond: from then on another may take it, and whoever had it still has it until then.
func TestALeaseEndsAtItsMillisecond(t *testing.T) {
	node := uuid.UUID{1}
	for _, c := range []struct {
		name        string
		r           transitions.Row
		leased, his bool
	}{
		{"before its end", transitions.Row{Node: node, LeaseExpires: 100, Now: 99}, true, true},
		{"at its end", transitions.Row{Node: node, LeaseExpires: 100, Now: 100}, false, true},
		{"nobody's", transitions.Row{LeaseExpires: 100, Now: 99}, false, false},
		{"of a later epoch", transitions.Row{Node: node, LeaseExpires: 100, Now: 99,
			Verification: ledger.Verification{Epoch: 1}}, true, false},
	} {
		effort.Is(t, c.r.Leased(), c.leased, fmt.Sprintf("%s: leased", c.name))
		effort.Is(t, c.r.HeldBy(ledger.Lease{Node: node}), c.his, fmt.Sprintf("%s: held by the node", c.name))
	}
}

func TestAnUploadIsToldAsItsRowHasIt(t *testing.T) {
	id, space, issue := uuid.UUID{2}, uuid.UUID{3}, &ledger.Issue{Code: ledger.UploadExpired}
	r := transitions.Row{Writer: 3, Verification: ledger.Verification{ID: id, Workspace: space, Status: ledger.Failed, Issue: issue,
		Bytes: 9, Durable: 4, UploadExpires: ledger.Clock(100)}}
	for now, expired := range map[int64]bool{99: false, 100: true, 101: true} {
		r.Now = now
		want := ledger.Upload{Verification: id, Workspace: space, Status: ledger.Failed, Issue: issue, Bytes: 9, Durable: 4,
			Expired: expired, Writer: 3}
		effort.Is(t, r.Upload(), want, fmt.Sprintf("at %d", now))
	}
}

func TestTimesAreStoredAsMilliseconds(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8_999_999, time.FixedZone("", 3600))
	for _, c := range []struct {
		name string
		at   time.Time
		ms   int64
		back time.Time
	}{
		{"never", time.Time{}, 0, time.Time{}},
		{"some time", at, at.UnixMilli(), at.Truncate(time.Millisecond).UTC()},
		{"the first millisecond", time.UnixMilli(1), 1, time.UnixMilli(1).UTC()},
	} {
		effort.Is(t, ledger.Millis(c.at), c.ms, c.name)
		effort.Is(t, ledger.Clock(c.ms), c.back, c.name)
	}
}
