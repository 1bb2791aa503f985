package throttle

import "time"

// Scope is how far a cause reaches.
type Scope uint8

// The scopes, from narrow to wide.
const (
	ScopeAddress Scope = iota
	ScopeDomain
	ScopeTenant
	ScopeHost
	ScopeReceiver
)

// String names a scope.
func (s Scope) String() string {
	return [...]string{"address", "mail domain", "one customer's list", "host", "receiver"}[s]
}

// narrowScope is all mail domains of a receiver, all customers who ask there, or all its hosts: a running sum
// for each, and who was asked, and answered, last.
type narrowScope struct {
	sums        map[string]*suspicion
	asked, good newest
	plainAt     time.Time // when one was asked last of which little is odd
}

const (
	// tooOddFrom is from which share of odd addresses on a domain or a list says nothing about the receiver, if
	// another one was asked within othersWithin. Guesses.
	tooOddFrom   = 0.35
	othersWithin = 10 * time.Second
)

func newNarrowScope() narrowScope { return narrowScope{sums: map[string]*suspicion{}} }

// of finds or makes the sum of one.
func (n *narrowScope) of(key string) *suspicion {
	s := n.sums[key]
	if s == nil {
		if len(n.sums) >= scopesMax {
			n.shrink()
		}
		s = &suspicion{}
		n.sums[key] = s
	}
	return s
}

// shrink drops those that nothing is suspected of, and, where all are, the least suspected one.
func (n *narrowScope) shrink() {
	least := ""
	for k, o := range n.sums {
		if o.sum == 0 {
			delete(n.sums, k)
		} else if l := n.sums[least]; l == nil || o.sum < l.sum || o.sum == l.sum && o.since.Before(l.since) {
			least = k
		}
	}
	if len(n.sums) >= 2*scopesMax {
		delete(n.sums, least)
	}
}

// note notes who was asked at a time, and whether it was answered.
func (n *narrowScope) note(key string, at time.Time, good bool) {
	n.asked.note(key, at)
	if n.of(key).odd < tooOddFrom {
		n.plainAt = at
	}
	if good {
		n.good.note(key, at)
	}
}

// explains reports whether one is believed to be the cause of what its addresses get: another one was answered
// since, and nothing bad came of others after that.
func (n *narrowScope) explains(key string) bool {
	s := n.sums[key]
	if s == nil || !s.believed() {
		return false
	}
	at := n.good.other(key)
	return at.After(s.since) && !n.asked.other(key).After(at)
}

// isTooOdd reports whether so much of one is odd that it says nothing about the receiver, while others are asked.
func (n *narrowScope) isTooOdd(key string, at time.Time) bool {
	s := n.sums[key]
	return s != nil && s.odd >= tooOddFrom && at.Sub(n.plainAt) < othersWithin
}

// nobodyElse reports whether others were asked since a time and none was answered.
func (n *narrowScope) nobodyElse(key string, since time.Time) bool {
	return n.asked.other(key).After(since) && !n.good.other(key).After(since)
}

// newest remembers when one was noted last, and when another one.
type newest struct {
	key         string
	at, otherAt time.Time
}

func (n *newest) note(key string, at time.Time) {
	if key != n.key {
		n.otherAt, n.key = n.at, key
	}
	n.at = at
}

// other is when another one than key was noted last.
func (n *newest) other(key string) time.Time {
	if key == n.key {
		return n.otherAt
	}
	return n.at
}
