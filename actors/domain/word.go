package domain

import (
	"fmt"
	"time"

	"rollcall/ledger"
)

// factLine is a fact as it is stored; times are Unix milliseconds. A line of a newer program is ignored.
const factLine = "habit1 accepted=%d refused=%d first=%d last=%d"

// countMax bounds a count that is read: a larger one isn't ours.
const countMax = 1_000_000

func (k fact) stored(key string) ledger.Fact {
	line := fmt.Sprintf(factLine, k.accepted, k.refused, k.first.UnixMilli(), k.last.UnixMilli())
	return ledger.Fact{Key: key, Data: []byte(line), Expires: k.until}
}

// readFact reads a stored fact. It is believed no longer than a fact of our own, since its end is by another node's
// clock.
func readFact(l ledger.Fact, now time.Time) (fact, bool) {
	var k fact
	var first, last int64
	line := string(l.Data)
	n, err := fmt.Sscanf(line, factLine, &k.accepted, &k.refused, &first, &last)
	if err != nil || n != 4 || fmt.Sprintf(factLine, k.accepted, k.refused, first, last) != line ||
		min(k.accepted, k.refused) < 0 || k.accepted+k.refused < 1 ||
		max(k.accepted, k.refused) > countMax || last < first {
		return fact{}, false
	}
	k.first, k.last = time.UnixMilli(first), time.UnixMilli(last)
	life := partLife
	if k.isDecided() {
		life = factLife
	}
	k.until = now.Add(life)
	if l.Expires.Before(k.until) {
		k.until = l.Expires
	}
	return k, !now.After(k.until)
}
