package domain

import (
	"fmt"
	"time"

	"rollcall/ledger"
)

// What is kept of a domain in the store, in one line. Lines of a newer program are
// not understood, and so ignored.
const (
	factLine = "habit1 accepted=%d refused=%d first=%d last=%d" // times as Unix milliseconds

	// Of a program that asked one control probe and believed it.
	wordCatchAll  = "catch_all"
	wordMailboxes = "mailboxes" // it tells those it has from those it has not
)

// countMax bounds a count that is read: what is more is not ours.
const countMax = 1_000_000

func (k fact) stored(key string) ledger.Fact {
	line := fmt.Sprintf(factLine, k.accepted, k.refused, k.first.UnixMilli(), k.last.UnixMilli())
	return ledger.Fact{Key: key, Data: []byte(line), Expires: k.until}
}

// readFact reads what is stored. What it says is believed for no longer than a fact of
// our own would be: its end is by another clock.
func readFact(l ledger.Fact, now time.Time) (fact, bool) {
	var k fact
	switch word := string(l.Data); word {
	case wordCatchAll, wordMailboxes:
		// One control probe, factLife before the end.
		k.first = l.Expires.Add(-factLife)
		k.last = k.first
		if word == wordCatchAll {
			k.accepted = 1
		} else {
			k.refused = 1
		}
	default:
		var first, last int64
		n, err := fmt.Sscanf(word, factLine, &k.accepted, &k.refused, &first, &last)
		if err != nil || n != 4 || fmt.Sprintf(factLine, k.accepted, k.refused, first, last) != word ||
			min(k.accepted, k.refused) < 0 || k.accepted+k.refused < 1 ||
			max(k.accepted, k.refused) > countMax || last < first {
			return fact{}, false
		}
		k.first, k.last = time.UnixMilli(first), time.UnixMilli(last)
	}
	life := partLife
	if k.decided() {
		life = factLife
	}
	k.until = now.Add(life)
	if l.Expires.Before(k.until) {
		k.until = l.Expires
	}
	return k, !now.After(k.until)
}
