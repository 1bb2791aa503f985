package scheduler

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"rollcall/actors/receiver/fairqueue"
	"rollcall/actors/wire"
	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// candidate is one address of one host of a queue.
type candidate struct {
	host     string
	at       netip.Addr
	until    time.Time // not to be dialled before
	failures int       // in a row, without an answer about an address between them
	served   bool      // it has answered about an address
	last     Judgement // the newest of them; without an attempt: never

	aside  time.Time // until when other hosts are asked first: it gives bad answers, and they don't
	doubts int       // times in a row, without a good answer between them
	fails  int       // bad first tries, less good answers
}

// hostQueue is one set of hosts and what waits for them. Its sessions serve every address whose
// route begins with these hosts, whatever the domain or verification.
type hostQueue struct {
	*waiting
	candidates []*candidate
	behind     int                              // addresses that their clients keep back for these hosts
	greyed     time.Time                        // when the newest that came back after greylisting was first put off
	refusals   map[*egressPath]*refusalOfSource // of our sources
	tls        smtp.TLSMode
	tlsUntil   time.Time // when tls falls back to opportunistic
	barren     barren
	alone      time.Time // until when each command waits for its reply
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

// hostsKey tells queues apart: by the names of the hosts, in their order.
func hostsKey(hosts []*wire.Host) string {
	if len(hosts) == 1 {
		return hosts[0].GetName()
	}
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(h.GetName())
		b.WriteByte(',')
	}
	return b.String()
}

func newHostQueue(queue *waiting, hosts []*wire.Host) *hostQueue {
	l := &hostQueue{waiting: queue, tls: smtp.TLSOpportunistic}
	l.learnHosts(hosts)
	return l
}

// learnHosts takes over the addresses of a newer route and keeps what is known of old ones.
func (l *hostQueue) learnHosts(hosts []*wire.Host) {
	old := l.candidates
	fresh := make([]*candidate, 0, len(old))
	for _, h := range hosts {
		for _, at := range h.Addresses() {
			same := func(c *candidate) bool { return c.at == at && c.host == h.GetName() }
			if i := slices.IndexFunc(old, same); i >= 0 {
				fresh = append(fresh, old[i])
			} else {
				fresh = append(fresh, &candidate{host: h.GetName(), at: at})
			}
		}
	}
	l.candidates = fresh
}

// tlsModeNow is the TLS mode for the next session.
func (l *hostQueue) tlsModeNow(now time.Time) smtp.TLSMode {
	if l.tls != smtp.TLSOpportunistic && now.After(l.tlsUntil) {
		l.tls = smtp.TLSOpportunistic
	}
	return l.tls
}

// setMode remembers for a while that a receiver demands TLS, or that its TLS is broken.
func (l *hostQueue) setMode(m smtp.TLSMode, now time.Time) {
	l.tls, l.tlsUntil = m, now.Add(throttle.LearnedFor)
}

// takesGroups reports whether the hosts may be sent commands in groups, where they offer it.
func (l *hostQueue) takesGroups(now time.Time) bool { return !now.Before(l.alone) }

// knowsSomething says whether something is known of the hosts that is worth keeping: TLS,
// refusals of our sources, failures, whose number makes the next wait longer, and for how long they lasted.
func (l *hostQueue) knowsSomething(now time.Time) bool {
	for _, r := range l.refusals {
		if r.count > 0 && now.Before(r.until.Add(throttle.LearnedFor)) {
			return true
		}
	}
	return l.barren.worthKeeping(now) || !l.takesGroups(now) || l.tlsModeNow(now) != smtp.TLSOpportunistic || slices.ContainsFunc(l.candidates, func(c *candidate) bool {
		return c.failures > 0 && now.Before(c.until.Add(throttle.LearnedFor))
	})
}
