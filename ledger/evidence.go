package ledger

import "time"

// EvidenceMax bounds the evidence of one settlement: 768 KiB before it is compressed,
// and an eighth more, since what is compressed already may grow a little. CockroachDB
// wants rows below 1 MiB.
const EvidenceMax = 864 << 10

// StoredSettlement is one settlement with what it rests on, as it is shown to an operator.
// What it points to is good until the call that it was given to returns.
type StoredSettlement struct {
	Number, Epoch int64
	At            time.Time // of the commit
	Results       *Batch
	Evidence      []byte // as it was settled; empty: there was none, or a sweep is erasing it
}
