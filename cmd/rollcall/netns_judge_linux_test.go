package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rollcall/smtp/smtplab"
)

// judge compares everything after a story: results, ledger, lab and API.
func (st *stage) judge() {
	st.t.Helper()
	balance, spent := st.balance(), int64(0)
	for i, c := range st.customers {
		spent += c.checkOutcomes(st.truth, st.samples[i])
	}
	if balance.Spent != spent || balance.Held != 0 || balance.Available != balance.Granted-spent {
		st.t.Errorf("balance %+v, want %d spent and none held", balance, spent)
	}
	began := time.Now()
	st.audit()
	st.say("audit took %v", time.Since(began).Round(time.Millisecond))
	st.judgeLimits()
	st.judgeQuestions()
	st.judgePolls()
}

// judgeLimits wants no receiver's limit exceeded at any moment, as the lab counts.
func (st *stage) judgeLimits() {
	st.t.Helper()
	now, broken := st.sheet(), []string(nil)
	for name, r := range now.Receivers {
		was := st.before.Receivers[name]
		for _, x := range []struct {
			what             string
			got, earlier, no int
		}{
			{"sessions at once", r.SessionsAtOnce, was.SessionsAtOnce, netLimits.SessionsAtOnce},
			{"new sessions in a second", r.SessionsIn1s, was.SessionsIn1s, netLimits.SessionsIn1s},
			{"RCPTs in a second", r.RcptsIn1s, was.RcptsIn1s, netLimits.RcptsIn1s},
			{"RCPTs in a session", r.RcptsPerSession, was.RcptsPerSession, netLimits.RcptsPerSession},
		} {
			if x.got > x.no && x.got > x.earlier {
				broken = append(broken, fmt.Sprintf("%s: %d %s, %d are allowed", name, x.got, x.what, x.no))
			}
		}
	}
	slices.Sort(broken)
	if len(broken) > 0 {
		st.t.Errorf("%d limits of receivers were exceeded:\n%s", len(broken), strings.Join(broken, "\n"))
	}
	if now.Total.Data != 0 || now.EventsDropped != 0 || now.Uncounted != 0 {
		st.t.Errorf("%d times DATA, %d events dropped, %d probes uncounted; want none", now.Total.Data,
			now.EventsDropped, now.Uncounted)
	}
}

// judgeQuestions wants every address settled once, and none asked after that.
func (st *stage) judgeQuestions() {
	st.t.Helper()
	events := st.netRig.events(st.events)
	began, asked := map[int]time.Time{}, map[string][]smtplab.Event{}
	for _, e := range events {
		switch e.Kind {
		case "connect":
			began[e.Session] = e.At
		case "rcpt":
			asked[e.Address] = append(asked[e.Address], e)
		}
	}
	st.sayPace(events)
	var late []string
	probes, addresses := 0, 0
	for i, c := range st.customers {
		at, epochs := st.settlementsOf(c.id)
		if len(at) != len(st.samples[i]) {
			st.t.Errorf("%d addresses are settled, want %d", len(at), len(st.samples[i]))
		}
		st.say("file %d settled by epoch %v", i+1, epochs)
		for _, address := range st.samples[i] {
			if strings.HasSuffix(address, "-clean.test") {
				addresses, probes = addresses+1, probes+len(asked[address])
			}
			for _, e := range asked[address] {
				if after := e.At.Sub(at[address]); after > askedLate && !st.diedBetween(began[e.Session], e.At) {
					late = append(late, fmt.Sprintf("%s %v after it was settled, in a session from %s at %s, begun at %s",
						address, after, e.Client, e.At.Format(timeMillis), began[e.Session].Format(timeMillis)))
				}
			}
		}
	}
	st.say("%d extra probes for %d plain addresses", probes-addresses, addresses)
	if probes < addresses {
		st.t.Errorf("only %d probes were seen for %d addresses: is the referee blind?", probes, addresses)
	}
	if len(late) > 0 {
		slices.Sort(late)
		st.t.Errorf("%d probes after the outcome was settled, such as %s", len(late), late[0])
	}
}

// sayPace tells how much of their allowance the plain receivers got, and when the
// last one was done.
func (st *stage) sayPace(events []smtplab.Event) {
	var first, last time.Time
	probes := 0
	for _, e := range events {
		if e.Kind == "rcpt" && strings.HasSuffix(e.Host, "-clean.test") {
			if first.IsZero() {
				first = e.At
			}
			last, probes = e.At, probes+1
		}
	}
	took := last.Sub(first)
	st.say("plain receivers done in %v at %.0f %% of their rate", took.Round(100*time.Millisecond),
		100*float64(probes)/float64(storyReceivers*netLimits.RcptsIn1s)/took.Seconds())
}

// timeMillis shows the time of day of an event.
const timeMillis = "15:04:05.000"

// diedBetween says whether a node was killed between two times: receivers that
// make clients wait read what is left of a session long after that.
func (st *stage) diedBetween(began, noted time.Time) bool {
	return slices.ContainsFunc(st.kills, func(k time.Time) bool { return k.After(began) && k.Before(noted) })
}

// judgePolls wants an answer to every question to a node that was well.
func (st *stage) judgePolls() {
	st.t.Helper()
	p := st.polls
	p.mu.Lock()
	defer p.mu.Unlock()
	st.say("API asked %d times, slowest answer %v", p.asked, p.slowest.Round(time.Millisecond))
	if len(p.broken) > 0 {
		st.t.Errorf("%d questions to nodes that were well got no answer (%d times 429), such as %s", len(p.broken),
			p.later, p.broken[0])
	}
	if p.asked == 0 {
		st.t.Error("no node was asked: is the poller blind?")
	}
}
