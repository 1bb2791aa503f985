package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

// A world is a list and its receivers. The built binary works against a lab in another process. The lab counts what
// it accepts and what it defers, and keeps its hidden limits secret. The worlds of a default run end within seconds.
// -long runs those of docs/developers/measured.md, all at the same time and each with every binary:
//
//	go test ./cmd/rollcall -run '^TestWorlds$' -long -v -timeout 60m -binaries /tmp/before,/tmp/after
type world struct {
	name     string
	list     []string
	turn     time.Duration       // of all receivers
	greylist time.Duration       // how long receivers that greylist let an address wait
	at       smtplab.Personality // of limitedDomain
	hidden   smtplab.Limit       // of limitedDomain; its Rcpts come from the steps
	steps    []step              // of the hidden limit; none: the run lasts until its end
	most     allowed             // stated limits of each receiver; zeros: nearly everything
	told     string              // more of [throttle.default]
	pace     float64             // RCPTs a second that these limits allow a receiver; 0: most.RcptsIn1s
	waits    []time.Duration     // greylist_waits
	giveUp   time.Duration       // give_up_after
	within   time.Duration       // bounds the run; 0: loadWait
	three    bool                // nodes, and not one
	kills    int                 // how many nodes are killed, one after the other
	stops    time.Duration       // how long nodes are stopped instead of killed; 0: killed
	score    float64             // part of the hidden limit that must be used, with less than putOffMost deferred
}

// step is a hidden limit of a world.
type step struct {
	perSecond     int
	settle, judge time.Duration // time to find the limit, and time that is measured
}

// limitedDomain is the domain with the personality and the hidden limit of a world.
const limitedDomain = "limited-clean.test"

// putOffMost is the part of RCPT commands that may be deferred once a hidden limit is found.
const putOffMost = 0.01

// Limits for worlds that state none: wide restricts nothing.
const connections, wide = 4, 1_000_000

// seen is the result of a world.
type seen struct {
	took         time.Duration
	final, wrong int
	missed       int // unknown, although a careful engine finds out
	sheet        smtplab.Tally
	broken       []string // receivers that saw more than their stated limits
}

// TestWorlds prints a row for each world and binary.
func TestWorlds(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	all := shortWorlds()
	if effort.Long() {
		all = longWorlds()
	}
	for _, w := range all {
		for _, path := range underTest() {
			t.Run(strings.ReplaceAll(w.name, "/", " a ")+" "+named(path), func(t *testing.T) {
				t.Parallel()
				w.check(t, path, w.run(t, path))
			})
		}
	}
}

// check prints the row of a world, and checks the outcomes and how receivers were treated.
func (w *world) check(t *testing.T, path string, s seen) {
	t.Helper()
	if len(w.steps) == 0 {
		n, ideal := float64(len(w.list)), w.ideal().Seconds()
		t.Logf("| %s | %s | %.1f s | ideal %.1f s | %.2f times | %d of %d final, %d wrong, %d missed | %.2f RCPTs, %.4f "+
			"connections "+
			"an address | %.2f %% put off |", w.name, named(path), s.took.Seconds(), ideal, s.took.Seconds()/ideal, s.final,
			len(w.list), s.wrong, s.missed, float64(s.sheet.Rcpts)/n, float64(s.sheet.Sessions)/n,
			100*float64(s.sheet.Deferred)/float64(max(1, s.sheet.Rcpts)))
	}
	if s.wrong > 0 || s.sheet.Data > 0 || 100*s.missed > len(w.list) || len(w.steps) == 0 && s.final < len(w.list) {
		t.Errorf("%d wrong, %d missed, %d of %d final, %d DATA", s.wrong, s.missed, s.final, len(w.list), s.sheet.Data)
	}
	effort.ErrorIf(t, len(s.broken) > 0, "more than was told: %s", s.broken)
}

// lab starts the receivers.
func (w *world) lab(t *testing.T) *smtplab.Lab {
	o := quickLab()
	o.Latency = w.turn
	if w.greylist > 0 {
		o.GreylistWait = w.greylist
	}
	lab := startLab(t, o)
	if w.at.Name != "" {
		effort.OK(t, lab.Add(smtplab.Domain{Name: limitedDomain, Personality: w.at}))
	}
	return lab
}

// settings returns the node's settings.
func (w *world) settings() string {
	var waits []string
	for _, wait := range w.waits {
		waits = append(waits, fmt.Sprintf("%q", wait))
	}
	return fmt.Sprintf(`
[retry]
greylist_waits = [%s]
give_up_after = %q
control_waits = ["200ms", "400ms"]
[throttle.default]
connections = %d
connection_rate = "%d/s"
rcpt_rate = "%d/s"
rcpts_per_connection = %d
refused_per_session = 1000000
refused_per_hour = 1000000
%s`, strings.Join(waits, ", "), w.giveUp, cmp.Or(w.most.SessionsAtOnce, connections), cmp.Or(w.most.SessionsIn1s, wide),
		cmp.Or(w.most.RcptsIn1s, wide), cmp.Or(w.most.RcptsPerSession, wide), w.told)
}

// run works on the list to its end, or for as long as the world's steps take.
func (w *world) run(t *testing.T, path string) (s seen) {
	t.Helper()
	lab := w.lab(t)
	all := &crowd{}
	if w.three {
		url := postgres.New(t, postgres.Options{}).NewDatabase(t, "crowd", "")
		all = newCrowd(t, lab, url, w.settings(), path)
	} else {
		all.rig = newRig(t, lab.DNSAddr(), lab.SMTPPort(), w.settings())
		all.binary = path
		all.rig.serves()
	}
	all.open(int64(len(w.list)))
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(w.within, loadWait)+w.lasts())
	defer cancel()
	w.hide(t, lab, 0)
	c, began := all.client(), time.Now()
	id := effort.Must(handIn(ctx, c, "world.csv", []byte("email\n"+strings.Join(w.list, "\n")+"\n")))(t)
	if len(w.steps) > 0 {
		w.judge(ctx, t, path, lab)
	} else {
		w.hurt(ctx, lab, all)
		end(ctx, c, id)
	}
	took := time.Since(began)
	s = w.look(t, lab, c, id)
	s.took = took
	return s
}

// hurt kills nodes in turn while the others continue, or stops their processes for a while.
func (w *world) hurt(ctx context.Context, lab *smtplab.Lab, all *crowd) {
	for i := range w.kills {
		for lab.Manners().Addresses < (i+1)*len(w.list)/5 && term.Sleep(ctx, 50*time.Millisecond) == nil {
			continue
		}
		name := fmt.Sprintf("node-%d", i+1)
		node := all.members[name]
		if w.stops == 0 {
			node.kill()
			all.serves(name)
			continue
		}
		effort.OK(all.t, node.command.Process.Signal(syscall.SIGSTOP))
		_ = term.Sleep(ctx, w.stops)
		effort.OK(all.t, node.command.Process.Signal(syscall.SIGCONT))
	}
}

// end waits for the end of a verification, or of ctx.
func end(ctx context.Context, c *client.API, id string) {
	for {
		if d, err := look(ctx, c, id); err == nil && d.CompletedAt != nil || term.Sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// look returns the progress that customers saw and the lab's counts so far.
func (w *world) look(t *testing.T, lab *smtplab.Lab, c *client.API, id string) (s seen) {
	t.Helper()
	sheet := lab.Manners()
	s.sheet = sheet.Total
	var text bytes.Buffer
	effort.OK(t, writeResults(t.Context(), c, id, &text))
	rows := effort.Must(readRows(&text))(t)
	s.final = len(rows)
	score := compared(lab, slices.Collect(maps.Keys(rows)), func(address string) (smtp.Outcome, smtp.Reason) {
		return rows[address].outcome, rows[address].reason
	})
	s.wrong, s.missed = len(score.Wrong), score.Knowable-score.Found
	most := w.most
	most.SessionsAtOnce = cmp.Or(most.SessionsAtOnce, connections)
	for name, r := range sheet.Receivers {
		s.broken = append(s.broken, exceeded(name, r, allowed{}, most)...)
	}
	return s
}

// exceeded returns the stated limits that were exceeded at a receiver since an earlier sheet. 0 means no limit.
func exceeded(name string, seen, before, told allowed) (broken []string) {
	for _, x := range []struct {
		what               string
		seen, before, told int
	}{
		{"sessions at once", seen.SessionsAtOnce, before.SessionsAtOnce, told.SessionsAtOnce},
		{"sessions in a second", seen.SessionsIn1s, before.SessionsIn1s, told.SessionsIn1s},
		{"RCPTs in a second", seen.RcptsIn1s, before.RcptsIn1s, told.RcptsIn1s},
		{"RCPTs in a session", seen.RcptsPerSession, before.RcptsPerSession, told.RcptsPerSession},
		{"RCPTs in a transaction", seen.RcptsPerTx, before.RcptsPerTx, told.RcptsPerTx},
	} {
		if x.told > 0 && x.seen > max(x.told, x.before) {
			broken = append(broken, fmt.Sprintf("%s: %d %s, told %d", name, x.seen, x.what, x.told))
		}
	}
	return broken
}

// hide sets the hidden limit of a step.
func (w *world) hide(t *testing.T, lab *smtplab.Lab, i int) {
	t.Helper()
	limit := w.hidden
	if len(w.steps) > 0 {
		limit.Rcpts = max(1, int(float64(w.steps[i].perSecond)*limit.Per.Seconds()))
	}
	if limit.Rcpts == 0 {
		return
	}
	effort.OK(t, lab.SetLimit(limitedDomain, limit))
}

// lasts returns how long the steps take.
func (w *world) lasts() (sum time.Duration) {
	for _, s := range w.steps {
		sum += s.settle + s.judge
	}
	return sum
}

// judge changes the hidden limit step by step, and prints how much of each limit was used.
func (w *world) judge(ctx context.Context, t *testing.T, path string, lab *smtplab.Lab) {
	t.Helper()
	for i, s := range w.steps {
		w.hide(t, lab, i)
		row := fmt.Sprintf("| %s, %d/s | %s |", w.name, s.perSecond, named(path))
		for judged, wait := range []time.Duration{s.settle, s.judge} {
			from := time.Now()
			effort.OK(t, term.Sleep(ctx, wait))
			use := lab.UseOf(limitedDomain, from, time.Now())
			row += fmt.Sprintf(" %v: %.1f %% used, %.2f %% put off, %.1f/s asked |", wait, 100*use.Share(),
				100*use.HeldShare(), float64(use.Asked)/wait.Seconds())
			if judged == 1 && path == "" && (use.Share() < w.score || use.HeldShare() >= putOffMost) {
				t.Errorf("%d/s: %.1f %% used, %.2f %% deferred; want %.0f %% and less than %.0f %%", s.perSecond,
					100*use.Share(), 100*use.HeldShare(), 100*w.score, 100*putOffMost)
			}
		}
		t.Log(row)
	}
}

// ratelimited is how many RCPTs a second the lab's personality ratelimit accepts.
const ratelimited = 3

// asked is an address and the time when it is due.
type asked struct {
	at    float64 // seconds
	since float64 // its first try
	tries int
	name  string
}

// ideal returns how long the slowest receiver takes at the stated rate. Each address is asked in its turn; deferred
// ones are asked again, before all others, as soon as that can help.
func (w *world) ideal() (longest time.Duration) {
	lists := map[string][]string{}
	for _, address := range w.list {
		_, domain, _ := strings.Cut(address, "@")
		lists[domain] = append(lists[domain], address)
	}
	for domain, list := range lists {
		now, pace := 0.0, cmp.Or(w.pace, float64(w.most.RcptsIn1s))
		if strings.Contains(domain, "-ratelimit.") {
			pace = min(pace, ratelimited)
		}
		var due []asked // sorted: the first is due first
		for len(list) > 0 || len(due) > 0 {
			next := asked{at: now, since: now}
			switch {
			case len(due) > 0 && (due[0].at <= now || len(list) == 0):
				next, due = due[0], due[1:]
				now = max(now, next.at)
			default:
				next.name, list = list[0], list[1:]
			}
			now += 1 / pace
			if next.at = w.again(domain, next); next.at > 0 {
				at, _ := slices.BinarySearchFunc(due, next, func(a, b asked) int { return cmp.Compare(a.at, b.at) })
				next.tries++
				due = slices.Insert(due, at, next)
			}
		}
		longest = max(longest, time.Duration(now*float64(time.Second)))
	}
	return longest
}

// again returns when an address that was just asked must be asked once more; 0 means never.
func (w *world) again(domain string, a asked) float64 {
	wait := w.waits[min(a.tries, len(w.waits)-1)].Seconds()
	local, _, _ := strings.Cut(a.name, ".")
	own := domain == limitedDomain && w.at.Name != ""
	grey := local == "grey" || own && w.at.GreylistAlways
	never := local == "deferred" || local == "cut" || local == "closing" || own && !w.at.GreylistAlways
	switch {
	case grey && a.tries == 0:
		return a.since + w.greylist.Seconds()
	case never && a.at+wait-a.since <= w.giveUp.Seconds():
		return a.at + wait
	}
	return 0
}

// allowed is what a receiver allows.
type allowed = smtplab.Tally

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
			most: allowed{RcptsIn1s: 200}, pace: connections / (3 * turn.Seconds()), // an address takes three turns
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
	for _, x := range []struct {
		name  string
		kills int
		stops time.Duration
	}{
		{"", 0, 0}, {", each killed in turn", 3, 0},
		{", each stopped for 8 s", 3, 8 * time.Second}, {", each stopped for 30 s", 3, 30 * time.Second},
	} {
		all = append(all, &world{name: "three nodes" + x.name, three: true, kills: x.kills, stops: x.stops,
			list: drawList(9_000, unclear), most: allowed{RcptsIn1s: 5}, greylist: time.Second, waits: inSeconds(2, 4, 8),
			giveUp: time.Minute})
	}
	return append(append(all, statedWorlds()...), hiddenWorlds()...)
}

// greylisting is a world with a receiver that greylists each address, and says so.
func greylisting(n, pace int, greylist time.Duration, waits []time.Duration) *world {
	return &world{name: fmt.Sprintf("greylisting of %v, told %d/s", greylist, pace),
		list: drawList(n, one, "ghost", 200), greylist: greylist, most: allowed{RcptsIn1s: pace}, waits: waits,
		giveUp: 10 * waits[len(waits)-1],
		at: smtplab.Personality{Name: "grey", Greylist: true, GreylistAlways: true,
			Words: smtplab.Words{Greylist: "450 4.2.0 <{address}>: Recipient address rejected: Greylisted"}}}
}

// breaking is a world with a receiver that ends each session without an answer. The file must end nevertheless.
func breaking(at smtplab.Personality, n int) *world {
	return &world{name: "each session ends: " + at.Name, list: drawList(n, one), most: allowed{RcptsIn1s: 20}, at: at,
		waits: inSeconds(30), giveUp: 100 * time.Second}
}

// lines2000 has a reply so long that no client reads it to its end.
func lines2000() smtplab.Personality {
	return smtplab.Personality{Name: "a reply of 2,000 lines", Fixed: smtp.Unknown, Words: smtplab.Words{
		Any: strings.Repeat("450-4.3.0 there is more to say\n", 1999) + "450 4.3.0 there is more"}}
}

// statedWorlds have one stated limit each, and no hidden ones.
func statedWorlds() (all []*world) {
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

// aboutMailbox says, in words about the mailbox, that we are too fast.
const aboutMailbox = "450 4.2.1 The user you are trying to contact is receiving mail too quickly, please resend later"

// hiddenWorlds have a limit that the settings don't state: they allow 200 RCPTs a second.
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

// drawList returns n addresses over domains. parts are kinds of mailboxes, with how many of 1,000 addresses are of
// that kind. The other addresses exist.
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

// even returns honest domains in turn.
func even(domains int) func(int, *rand.Rand) string {
	return func(i int, _ *rand.Rand) string { return fmt.Sprintf("d%d-clean.test", i%domains) }
}

// unclear returns 15 domains in turn; six of them greylist in ambiguous words.
func unclear(i int, _ *rand.Rand) string {
	kind := "clean"
	if i %= 15; i < 6 {
		kind = [...]string{"rspamd", "quietgrey"}[i%2]
	}
	return fmt.Sprintf("d%d-%s.test", i, kind)
}

// crowd is a cluster of processes on loopback: node-1 at 127.0.0.1, node-2 at 127.0.0.2, and so on.
type crowd struct {
	*rig     // operators use node-1; a customer uses one of the nodes
	lab      *smtplab.Lab
	url      string // of the ledger
	settings string // more TOML, of all
	ports    [5]int // the same on all nodes: API, uploads, admin listener, gossip, actors
	members  map[string]*background
}

// newCrowd starts three nodes of the binary at path with certificates and a gossip key.
func newCrowd(t *testing.T, lab *smtplab.Lab, url, settings, path string) *crowd {
	t.Helper()
	c := &crowd{rig: &rig{cli: newCLI(t)}, lab: lab, url: url, settings: settings, members: map[string]*background{}}
	c.binary = path
	for i := range c.ports {
		c.ports[i] = freePort(t)
	}
	c.api, c.admin = fmt.Sprintf("http://127.0.0.1:%d", c.ports[0]), fmt.Sprintf("http://127.0.0.1:%d", c.ports[2])
	c.does("cluster", "cert", "init")
	c.does("cluster", "keys", "new", "gossip.key")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.does("cluster", "cert", "node", name)
		c.configures(name, c.ports[3])
	}
	c.does("migrate", "--config", "node-1/rollcall.toml")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.serves(name)
	}
	token := effort.Must(os.ReadFile(filepath.Join(c.folder, "node-1", "data", "admin.token")))(t)
	c.environ = []string{"ROLLCALL_ADMIN=" + c.admin, "ROLLCALL_ADMIN_TOKEN=" + strings.TrimSpace(string(token))}
	c.isSound()
	return c
}

// configures writes the configuration of a node. If its gossip port differs from that of the others, neither side
// finds the other.
func (c *crowd) configures(name string, gossip int) {
	c.t.Helper()
	key, err := os.ReadFile(filepath.Join(c.folder, "gossip.key"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(c.folder, name), 0o700)
	}
	effort.OK(c.t, err)
	if _, err := os.Stat(filepath.Join(c.folder, name, "gossip.key")); err != nil {
		c.write(name+"/gossip.key", string(key))
	}
	at, p := "127.0.0."+strings.TrimPrefix(name, "node-"), c.ports
	c.write(name+"/rollcall.toml", fmt.Sprintf(`
data_dir = "%[1]s/data"
[http]
listen = "%[2]s:%[3]d"
[upload]
listen = "%[2]s:%[4]d"
[admin]
listen = "%[2]s:%[5]d"
[ledger]
url = %[8]q
[cluster]
gossip_listen = "%[2]s:%[6]d"
actor_listen = "%[2]s:%[7]d"
join = ["127.0.0.1:%[6]d", "127.0.0.2:%[6]d", "127.0.0.3:%[6]d"]
gossip_key_file = "%[1]s/gossip.key"
tls_ca_file = "certs/ca.crt"
tls_cert_file = "certs/%[1]s.crt"
tls_key_file = "certs/%[1]s.key"
[dns]
servers = [%[9]q]
[smtp]
port = %[10]d
hello_name = "rollcall.example"
allow_networks = ["127.0.0.0/8"]
source_addresses = [%[2]q]
%[11]s`, name, at, p[0], p[1], p[2], gossip, p[4], c.url, c.lab.DNSAddr(), c.lab.SMTPPort(), c.settings))
}

// serves starts a node and waits until it serves. If the node ends because its ledger did not answer in time, as on a
// busy machine, it is started again, as systemd would.
func (c *crowd) serves(name string) {
	c.t.Helper()
	log := filepath.Join(c.folder, name, "log")
	err := os.Remove(log)
	effort.FatalIf(c.t, err != nil && !os.IsNotExist(err), "%v", err)
	starts := func() { c.members[name] = serveLogged(c.cli, log, "serve", "--config", name+"/rollcall.toml") }
	starts()
	until(c.t, func() (bool, string) {
		select {
		case <-c.members[name].ended:
			starts()
		default:
		}
		found, err := os.ReadFile(log)
		return strings.Contains(string(found), "node started"), fmt.Sprintf("%s has started: %v\n%s", name, err, found)
	})
}

// isSound waits until all nodes serve and there are no notes below the table.
func (c *crowd) isSound() {
	c.t.Helper()
	until(c.t, func() (bool, string) {
		out := c.shows("cluster", "members")
		_, table, _ := strings.Cut(out, "\n\n")
		return strings.Count(table, " serving ") >= 3 && !strings.Contains(table, "\n\n"), "a sound cluster: " + out
	})
}

// serveLogged starts the binary beside the test, with a file as its log.
func serveLogged(c *cli, log string, args ...string) *background {
	c.t.Helper()
	file := effort.Must(os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(c.t)
	defer file.Close()
	command := c.command(context.Background(), args...)
	command.Stdout, command.Stderr = file, file
	return beside(c.t, command, startHere)
}

// shows returns the output of a command. The command runs in this process, because it is repeated often.
func (c *cli) shows(args ...string) string {
	out, errs, err := runHere(c.t.Context(), false, c.ours(), "", args...)
	if err != nil {
		errs += err.Error()
	}
	return out + errs
}

// scriptWait bounds a wait in a document's test.
const scriptWait = time.Minute

// until calls look again and again until it returns true.
func until(t *testing.T, look func() (is bool, what string)) {
	t.Helper()
	for end := time.Now().Add(scriptWait); ; {
		is, what := look()
		if is {
			return
		}
		effort.FatalIf(t, time.Now().After(end) || term.Sleep(t.Context(), 100*time.Millisecond) != nil,
			"still waiting for: %s", what)
	}
}
