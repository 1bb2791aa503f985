package dispatcher

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func file(id byte, bytes int64) ledger.Verification {
	return ledger.Verification{ID: uuid.UUID{id}, Bytes: bytes}
}

func TestLine(t *testing.T) {
	l := line{max: 100}
	next := func(at time.Duration, want byte) {
		t.Helper()
		got := byte(0)
		if v, ok := l.next(noon.Add(at)); ok {
			got = v.ID[0]
		}
		if got != want {
			t.Fatalf("after %v: got file %d, want %d (0: none)", at, got, want)
		}
	}
	next(0, 0)
	l.join(noon, file(1, 500)) // larger than all there is
	l.join(noon, file(2, 10))
	next(0, 1) // alone, however large
	next(0, 0) // until it is over
	l.ended(500)
	next(0, 2)
	l.join(noon, file(3, 95))
	l.join(noon.Add(time.Second), file(4, 40))
	l.join(noon.Add(time.Second), file(5, 40))
	next(time.Minute, 4) // overtakes for a minute
	next(time.Minute+time.Second, 0)
	l.ended(40)
	next(time.Minute+time.Second, 0) // 3 does not fit beside 2, and nobody passes it any more
	l.ended(10)
	next(time.Minute+time.Second, 3)
	l.join(noon.Add(2*time.Minute), file(6, 1))
	l.leave(uuid.UUID{5})
	next(2*time.Minute, 6)
	l.ended(95)
	l.ended(1)
	next(2*time.Minute, 0)
	if l.begun != 0 || l.bytes != 0 || len(l.waiters) != 0 {
		t.Errorf("at the end: %+v", l)
	}
}
