package scheduler

import (
	"time"

	"rollcall/actors/receiver/fairqueue"
)

// hostQueue is one set of hosts and what waits for them. Its sessions serve every address whose
// route begins with these hosts, whatever the domain or verification.
type hostQueue struct {
	*waiting
	*route
	behind int       // addresses that their clients keep back for these hosts
	greyed time.Time // when the newest that came back after greylisting was first put off
	barren barren
}

// left is how many addresses are still to be asked, as far as is known: those that wait here, and behind.
func (l *hostQueue) left() int { return l.Queued() + l.behind }

// hostQueue is what waits in a queue, and flow a verification with something that waits.
type (
	waiting = fairqueue.HostQueue[*Probe]
	flow    = fairqueue.Flow[*Probe]
)

// smallFlow is of how many addresses a verification is not interrupted for another one of
// which nothing was asked. Guess.
const smallFlow = 50

// knowsSomething reports whether something is known of the hosts that is worth keeping.
func (l *hostQueue) knowsSomething(now time.Time) bool {
	return l.barren.worthKeeping(now) || l.route.knowsSomething(now)
}
