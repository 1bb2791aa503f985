package status

import (
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
)

// Causes is how many causes there are.
const Causes = len(inspect.Causes)

// Blocked is what keeps us from asking a receiver more.
type Blocked struct {
	Cause wire.Cause // FREE: nothing keeps us
	Until time.Time  // zero: not known
	Why   string     // Cause as a sentence, with the numbers; "" where nobody reads it
}

// Word returns the cause as a word for people.
func (b Blocked) Word() string {
	if b.Cause < 0 || int(b.Cause) >= Causes {
		return ""
	}
	return inspect.Causes[b.Cause]
}

// Free reports whether nothing keeps us from asking more.
func (b Blocked) Free() bool { return b.Cause == wire.Cause_FREE }
