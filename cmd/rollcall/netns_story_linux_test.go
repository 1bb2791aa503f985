package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
)

// netStory is something that happens to a cluster at work.
type netStory struct {
	name   string
	short  bool // also without -long
	clock  bool // needs the binary whose clock jumps
	each   int  // addresses of a file at each plain receiver
	within time.Duration
	do     func(st *stage)
}

// cutLasts is how long a cut lasts: longer than it takes to retire a node, 10 s,
// and than a lease of 20 s.
const cutLasts = 30 * time.Second

// restEnds is when the receivers of a lost node are asked again: it is retired after
// 10 s, and may have had sessions for 5 minutes (RFC 5321 §4.5.3.2.7).
const restEnds = 5*time.Minute + 25*time.Second

// netStories are played one after the other on one cluster of a, b and c.
var netStories = []netStory{
	{name: "nothing happens", each: 60, do: func(st *stage) {}},
	{name: "the busiest is killed", short: true, each: 20, do: func(st *stage) {
		st.reach(0.1)
		n := st.busiest()
		st.die(n)
		st.start(n)
		st.awaitWell(n)
	}},
	{name: "everything is cut from one, and healed", each: 50, within: cutWithin, do: func(st *stage) {
		st.reach(0.1)
		st.cutOff(st.busiest(), bothWays, allSides)
		st.pause(12 * time.Second)
		st.heal()
	}},
	{name: "one joins under load", each: 120, do: func(st *stage) {
		n := st.node("c")
		st.stop(n)
		st.reach(0.2)
		st.start(n)
		st.awaitWell(n)
	}},
	{name: "each is killed in turn", each: 300, within: 6 * time.Minute, do: func(st *stage) {
		st.reach(0.02)
		for _, n := range st.nodes {
			st.die(n)
			st.start(n)
			st.awaitWell(n)
		}
	}},
	{name: "one is stopped past its lease, and goes on", each: 180, do: func(st *stage) {
		st.reach(0.05)
		n := st.busiest()
		had := st.holding(n)
		st.hurts(n)
		n.life.signal(st.t, syscall.SIGSTOP)
		st.awaitTakeover(n, had, time.Now())
		st.pause(5 * time.Second) // the others are at work
		n.life.signal(st.t, syscall.SIGCONT)
		st.recover()
	}},
	cutStory("gossip is cut", bothWays, gossipSide),
	cutStory("actor traffic is cut", bothWays, actorSide),
	cutStory("gossip and actor traffic are cut", bothWays, gossipSide, actorSide),
	cutStory("the ledger is cut", bothWays, ledgerSide),
	cutStory("the receivers are cut", bothWays, labSide),
	cutStory("everything is cut", bothWays, allSides),
	cutStory("gossip out is cut", outgoing, gossipSide),
	cutStory("gossip in is cut", incoming, gossipSide),
	cutStory("actor traffic out is cut", outgoing, actorSide),
	cutStory("actor traffic in is cut", incoming, actorSide),
	cutStory("the ledger does not hear it", outgoing, ledgerSide),
	cutStory("it does not hear the ledger", incoming, ledgerSide),
	cutStory("it is mute", outgoing, allSides),
	cutStory("it is deaf", incoming, allSides),
	{name: "receivers move, and no file does", each: 120, within: cutWithin, do: func(st *stage) {
		n := st.node("c")
		st.stop(n)
		st.reach(0.02)
		st.start(n) // all files are with others, and a third of the receivers comes
		st.awaitWell(n)
		st.reach(0.3)
		st.say("%s has %d files", n.name, len(st.holding(n)))
		st.cutOff(n, bothWays, allSides)
		st.pause(cutLasts)
		st.heal()
	}},
	{name: "a rolling restart", each: 150, do: func(st *stage) {
		st.reach(0.05)
		for _, n := range st.nodes {
			st.stop(n)
			st.start(n)
			st.awaitWell(n)
		}
	}},
	{name: "the power goes at one", each: 150, within: 10 * time.Minute, do: func(st *stage) {
		st.reach(0.1)
		n := st.busiest()
		st.hub.cut(n.name, allSides, bothWays) // no FIN tells the receivers
		st.die(n)
		st.reach(1) // what it may have open at a receiver is waited for
		st.hub.heal()
		st.start(n)
		st.awaitWell(n)
	}},
	{name: "one is stopped for too long", each: 150, within: 10 * time.Minute, do: func(st *stage) {
		st.reach(0.1)
		n := st.busiest()
		st.hurts(n)
		n.life.signal(st.t, syscall.SIGSTOP)
		st.pause(restEnds) // the others ask its receivers now
		n.life.signal(st.t, syscall.SIGCONT)
		st.recover()
	}},
	{name: "random faults", each: 700, within: 10*time.Minute + cutWithin, do: func(st *stage) {
		seed := *seedFlag
		if seed == 0 {
			seed = rand.Uint64()
		}
		st.say("-net-seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		for st.settledPart() < 0.95 {
			randomFault(st, random)
			st.pause(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
	}},
	{name: "a clock jumps ahead and back", clock: true, each: 400, do: func(st *stage) {
		st.reach(0.02)
		wrongClock(st)
	}},
}

// twoCuts cuts one node off from receivers and another one from everything, for so long. Their sessions end
// without a word that arrives, and receivers keep these for five minutes.
func twoCuts(lasts time.Duration) netStory {
	name := fmt.Sprintf("cut off from receivers, and from everything, for %v", lasts)
	return netStory{name: name, each: 60, within: cutWithin + lasts, do: func(st *stage) {
		st.reach(0.05)
		st.cutOff(st.nodes[0], bothWays, labSide)
		st.cutOff(st.nodes[1], bothWays, allSides)
		st.pause(lasts)
		st.heal()
		for _, n := range st.nodes {
			st.say("%s had %s silent sessions", n.name, metricAt(st.t, n.admin, "rollcall_smtp_sessions_silent"))
		}
	}}
}

// metricAt reads a metric without labels of a node; "no": the node does not have it.
func metricAt(t *testing.T, admin, name string) string {
	t.Helper()
	client := http.Client{Timeout: pollWithin}
	answer, err := client.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, value, found := strings.Cut(string(text), "\n"+name+" ")
	if value, _, _ = strings.Cut(value, "\n"); !found {
		return "no"
	}
	return value
}

// slowTurn is how long receivers take for a turn in TestSilentSessions: all sessions that they allow are in use
// then, each with a command under way.
const slowTurn = 250 * time.Millisecond

// TestSilentSessionsOnSeparateNetworks plays the stories of cut sessions with receivers that allow no session more
// than those that are in use when they are cut.
func TestSilentSessionsOnSeparateNetworks(t *testing.T) {
	if !effort.Long() {
		t.Skip("skipped: receivers keep silent sessions for five minutes: run it with -long")
	}
	effort.Children(t)
	t.Parallel()
	r := newNetRig(t, slowTurn, "a", "b", "c")
	for _, n := range r.nodes {
		r.start(n)
	}
	r.awaitWell()
	for i, lasts := range []time.Duration{40 * time.Second, 100 * time.Second} {
		s := twoCuts(lasts)
		if !t.Run(s.name, func(t *testing.T) { r.play(t, i, s) }) {
			r.restore(t)
		}
	}
	r.use(t)
	for _, n := range r.nodes {
		r.stop(n)
	}
}

// cutWithin is how long a story takes at most in which nodes lose sessions, whose places rest until
// receivers have forgotten them.
const cutWithin = restEnds + 5*time.Minute

// cutStory cuts kinds of traffic from the busiest node for a while.
func cutStory(name string, w way, kinds ...traffic) netStory {
	return netStory{name: name, each: 180, within: cutWithin, do: func(st *stage) {
		st.reach(0.05)
		st.cutOff(st.busiest(), w, kinds...)
		st.pause(cutLasts)
		st.heal()
	}}
}

// seedFlag repeats the faults of a run, though not their moments to the message.
var seedFlag = flag.Uint64("net-seed", 0, "seed of the random faults on separate networks; 0: any")

// randomFault does something to one node and puts it right again.
func randomFault(st *stage, random *rand.Rand) {
	st.t.Helper()
	n := st.nodes[random.IntN(len(st.nodes))]
	lasts := time.Duration(float64(time.Second) * math.Exp(random.Float64()*3.4)) // 1 s to 30 s
	began := time.Now()
	switch random.IntN(6) {
	case 0:
		st.kill(n)
		st.kills = append(st.kills, time.Now())
		st.pause(lasts)
		st.start(n)
	case 1:
		st.stop(n)
		st.start(n)
	case 2:
		st.hurts(n)
		n.life.signal(st.t, syscall.SIGSTOP)
		st.pause(lasts)
		n.life.signal(st.t, syscall.SIGCONT)
		st.recover()
	default:
		kinds := []traffic{gossipSide, actorSide, ledgerSide, labSide, allSides}
		ways := []way{bothWays, outgoing, incoming}
		what, w := kinds[random.IntN(len(kinds))], ways[random.IntN(len(ways))]
		st.t.Logf("%s: %s, %s for %v", n.name, what, w, lasts)
		st.cutOff(n, w, what)
		st.pause(lasts)
		st.heal()
	}
	st.awaitWell()
	st.t.Logf("%s at %s: well again after %v", n.name, began.Format(timeMillis), time.Since(began))
}

// TestClusterOnSeparateNetworks plays the stories on a cluster of three
// processes, each in a network namespace, with PostgreSQL and the lab in others.
func TestClusterOnSeparateNetworks(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	r := newNetRig(t, 0, "a", "b", "c")
	for _, n := range r.nodes {
		r.start(n)
	}
	r.awaitWell()
	for i, s := range netStories {
		if !s.short && !effort.Long() {
			continue
		}
		if !t.Run(s.name, func(t *testing.T) {
			if s.clock {
				r.clock = clockBinary(t)
			}
			r.play(t, i, s)
		}) {
			r.restore(t)
		}
	}
	r.use(t)
	for _, n := range r.nodes {
		r.stop(n)
	}
}
