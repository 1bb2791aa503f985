package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// allowed is what a receiver lets one do.
type allowed = smtplab.Tally

// inSeconds gives waits.
func inSeconds(n ...int) (waits []time.Duration) {
	for _, s := range n {
		waits = append(waits, time.Duration(s)*time.Second)
	}
	return waits
}

// shortWorlds end within seconds.
func shortWorlds() []*world {
	breaks := breaking(lines2000(), 20)
	breaks.giveUp, breaks.waits = 3*time.Second, inSeconds(1)
	return []*world{
		greylisting(60, 20, 2*time.Second, inSeconds(1, 2, 4)),
		breaks,
		{name: "a hidden limit in words about a mailbox", list: drawList(60, one), pace: 20,
			most: allowed{RcptsIn1s: 200}, hidden: smtplab.Limit{Rcpts: 20, Per: time.Second, All: true, Reply: aboutMailbox},
			waits: inSeconds(1, 2), giveUp: 20 * time.Second},
		{name: "a told limit", list: drawList(120, one, "ghost", 100), most: allowed{RcptsIn1s: 40}, waits: inSeconds(1),
			giveUp: 2 * time.Second},
	}
}

// longWorlds are those of docs/developers/measured.md.
func longWorlds() []*world {
	const turn = 50 * time.Millisecond
	all := []*world{
		{name: "ordinary list, 40 receivers", turn: turn, greylist: 3 * time.Second,
			list: drawList(15_000, zipf(40, "nopipe"), "ghost", 190, "full", 20, "disabled", 20, "grey", 20, "deferred", 10,
				"refused", 10, "cut", 10),
			most: allowed{RcptsIn1s: 200}, pace: connections / (3 * turn.Seconds()), // three turns an address
			waits: inSeconds(2, 4, 8), giveUp: 20 * time.Second},
		greylisting(2_400, 10, time.Minute, inSeconds(30, 60, 120)),
		breaking(lines2000(), 200),
		breaking(smtplab.Personality{Name: "closing before the greeting", BreakAt: smtp.StageGreeting,
			Break: smtplab.BreakDrop, Fixed: smtp.Unknown}, 200),
		{name: "realistic mix", list: smtplab.Sample(5, 20_000, 1_000), most: allowed{RcptsIn1s: 5},
			waits: inSeconds(5, 10, 20), giveUp: time.Minute},
	}
	for _, kind := range []string{"closing", "cut"} {
		for _, odd := range []int{0, 5, 20} {
			all = append(all, &world{name: fmt.Sprintf("odd mailboxes, %s, %d %%", kind, odd),
				list: drawList(3_000, one, kind, 10*odd), most: allowed{RcptsIn1s: 40}, turn: 5 * time.Millisecond,
				waits: inSeconds(2), giveUp: 3 * time.Second})
		}
	}
	for _, kills := range []int{0, 3} {
		all = append(all, &world{name: fmt.Sprintf("three nodes, %d killed in turn", kills), nodes: 3, kills: kills,
			list: drawList(9_000, unclear), most: allowed{RcptsIn1s: 5}, greylist: time.Second, waits: inSeconds(2, 4, 8),
			giveUp: time.Minute})
	}
	return append(append(all, toldWorlds()...), hiddenWorlds()...)
}

// greylisting is a receiver that greylists each address, and says so.
func greylisting(n, pace int, greylist time.Duration, waits []time.Duration) *world {
	return &world{name: fmt.Sprintf("greylisting of %v, told %d/s", greylist, pace),
		list: drawList(n, one, "ghost", 200), greylist: greylist, most: allowed{RcptsIn1s: pace}, waits: waits,
		giveUp: 10 * waits[len(waits)-1],
		at: smtplab.Personality{Name: "grey", Greylist: true, GreylistAlways: true,
			Words: smtplab.Words{Greylist: "450 4.2.0 <{address}>: Recipient address rejected: Greylisted"}}}
}

// breaking is a receiver that answers nobody, whatever is done: its file must end.
func breaking(at smtplab.Personality, n int) *world {
	return &world{name: "each session ends: " + at.Name, list: drawList(n, one), most: allowed{RcptsIn1s: 20}, at: at,
		waits: inSeconds(30), giveUp: 100 * time.Second}
}

// lines2000 has a reply that no client reads to its end.
func lines2000() smtplab.Personality {
	return smtplab.Personality{Name: "a reply of 2,000 lines", Fixed: smtp.Unknown, Words: smtplab.Words{
		Any: strings.Repeat("450-4.3.0 there is more to say\n", 1999) + "450 4.3.0 there is more"}}
}

// toldWorlds have told limits of one kind each, and nothing odd.
func toldWorlds() (all []*world) {
	const turn = 100 * time.Millisecond
	add := func(name string, domains, each int, turn time.Duration, pace float64, most allowed, told string) {
		all = append(all, &world{name: name, list: drawList(domains*each, even(domains), "ghost", 200), turn: turn,
			pace: pace, most: most, told: "rcpts_per_transaction = 100\n" + told, waits: inSeconds(1), giveUp: time.Minute})
	}
	add("told, two connections, 100 ms a turn", 10, 1500, turn, 2/turn.Seconds(), allowed{SessionsAtOnce: 2},
		"pipelining = false")
	add("told, 40/s with PIPELINING, 100 ms a turn", 10, 1500, turn, 0, allowed{RcptsIn1s: 40}, "pipelining = true")
	add("told, 50/s", 20, 3000, 0, 0, allowed{RcptsIn1s: 50, RcptsPerTx: 100}, "")
	add("told, 2 sessions/s of 25", 20, 3000, 0, 50, allowed{SessionsIn1s: 2, RcptsPerSession: 25}, "")
	return all
}

// aboutMailbox says that we are too fast, in words about somebody else.
const aboutMailbox = "450 4.2.1 The user you are trying to contact is receiving mail too quickly, please resend later"

// hiddenWorlds have limits that nobody tells, of a receiver that seems to allow 200 RCPTs a second.
func hiddenWorlds() (all []*world) {
	const long = 10 * time.Second
	minutes := func(perSecond, settle, judge int) step {
		return step{perSecond, time.Duration(settle) * time.Minute, time.Duration(judge) * time.Minute}
	}
	add := func(name string, limit smtplab.Limit, steps ...step) {
		w := &world{name: name, list: drawList(30_000, one), most: allowed{RcptsIn1s: 200}, pace: 20, hidden: limit,
			steps: steps, score: 0.9, turn: 5 * time.Millisecond, waits: inSeconds(2, 4, 8), giveUp: time.Hour}
		if limit.Sessions {
			w.most.RcptsPerSession = 4
		}
		if limit.Penalty > 0 {
			w.name, w.score = name+", penalty of 10 s", 0.85
		}
		all = append(all, w)
	}
	for _, said := range []struct{ words, reply string }{
		{"usual words", ""}, {"words about a mailbox", aboutMailbox}, {"random letters", "450 4.7.1 xqv wzkj pfh"},
	} {
		limit := smtplab.Limit{Per: time.Second, All: true, Reply: said.reply}
		add("hidden, "+said.words, limit, minutes(20, 1, 2), minutes(9, 1, 1), minutes(30, 1, 1))
		limit.Penalty = long
		add("hidden, "+said.words, limit, minutes(20, 1, 2))
	}
	add("hidden sessions", smtplab.Limit{Per: time.Second, Sessions: true}, minutes(5, 1, 2))
	add("hidden sessions", smtplab.Limit{Per: time.Second, Sessions: true, Penalty: long}, minutes(5, 1, 2))
	add("hidden, fixed minute", smtplab.Limit{Per: time.Minute, Kind: smtplab.LimitFixed}, minutes(20, 4, 3))
	add("hidden, sliding minute", smtplab.Limit{Per: time.Minute, All: true}, minutes(20, 4, 3))
	add("hidden, bucket", smtplab.Limit{Per: long, Kind: smtplab.LimitBucket}, minutes(20, 1, 2))
	ends := smtplab.Limit{Per: long, Reply: "421 4.7.0 Too many messages, try again later"}
	add("hidden, 421", ends, minutes(20, 1, 2))
	return all
}

// drawList is a list of n addresses over domains; parts are kinds of mailboxes and how many of 1,000 are such. The rest
// exists.
func drawList(n int, domain func(i int, random *rand.Rand) string, parts ...any) []string {
	random := rand.New(rand.NewPCG(5, 5))
	list := make([]string, n)
	for i := range list {
		kind, drawn := "anna", random.IntN(1000)
		for k := 0; k < len(parts); k += 2 {
			if drawn -= parts[k+1].(int); drawn < 0 {
				kind = parts[k].(string)
				break
			}
		}
		list[i] = fmt.Sprintf("%s.%s@%s", kind, letters(i), domain(i, random))
	}
	return list
}

// one is for lists of one domain.
func one(int, *rand.Rand) string { return limitedDomain }

// even gives domains in turn that answer honestly.
func even(domains int) func(int, *rand.Rand) string {
	return func(i int, _ *rand.Rand) string { return fmt.Sprintf("d%d-clean.test", i%domains) }
}

// unclear are 15 domains, of which six greylist in words that may mean anything.
func unclear(i int, _ *rand.Rand) string {
	kind := "clean"
	if i %= 15; i < 6 {
		kind = [...]string{"rspamd", "quietgrey"}[i%2]
	}
	return fmt.Sprintf("d%d-%s.test", i, kind)
}
