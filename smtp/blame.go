package smtp

import "fmt"

// Blame says who caused what was answered.
//
// The numbers are stored in the ledger and sent between nodes: only append.
type Blame uint8

// Who can be to blame.
const (
	BlameNobody Blame = iota
	BlameAddress
	BlameDomain
	BlameReceiver
	BlameSource // us: our address, name or behaviour
)

var blameNames = [...]string{"nobody", "address", "domain", "receiver", "source"}

// Blames lists all of them in the order in which people are shown them.
var Blames = [...]Blame{BlameAddress, BlameDomain, BlameReceiver, BlameSource, BlameNobody}

// String returns the word for records and logs, such as "source".
func (b Blame) String() string {
	if b.Known() {
		return blameNames[b]
	}
	return fmt.Sprintf("blame(%d)", uint8(b))
}

// Known reports whether b is one of these.
func (b Blame) Known() bool { return int(b) < len(blameNames) }
