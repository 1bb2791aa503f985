package verification

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollcall/actors/inspect"
	"rollcall/actors/wire"
	"rollcall/smtp"
)

// Why a file waits is said here, in the words of customers. Each domain tells what its addresses wait for
// (actors/domain/waits.go), with the cause that its receiver names (explain.go in actors/receiver/scheduler). That a
// file waits for credits is said in ledger/transitions/credits.go.

// nameMax bounds the name of a receiver in texts for customers: the length of a domain.
const nameMax = 253

// atReceiver has, for each of inspect.Causes, the part of a sentence after the receiver's name that says why it isn't
// asked more.
var atReceiver = [len(inspect.Causes)]string{
	wire.Cause_FREE:        "which is being asked now",
	wire.Cause_ALLOWANCE:   "which we may only ask slowly",
	wire.Cause_CONNECTIONS: "to which no more connections may be opened now",
	wire.Cause_BUDGET:      "which takes only a few refusals an hour from strangers",
	wire.Cause_PAUSED:      "where our operators have paused the work",
	wire.Cause_PENALTY:     "which wanted us to slow down",
	wire.Cause_NO_SOURCE:   "which none of our servers may ask at the moment",
	wire.Cause_NO_SHARE:    "which this service cannot ask at the moment",
	wire.Cause_UNREACHED:   "whose mail servers we cannot reach",
}

// deferredBy maps a reason's word to a clause behind the receiver's name: why the receiver has to be asked again.
var deferredBy = map[string]string{
	smtp.MailboxFull.String():         "which says that mailboxes are full at the moment",
	smtp.MailboxBusy.String():         "which says that mailboxes receive too much mail at the moment",
	smtp.Greylisted.String():          "which makes strangers come back later (greylisting)",
	smtp.ReceiverBusy.String():        "which was too busy to answer",
	smtp.ReceiverRateLimited.String(): "which limits how much we may ask",
	smtp.SourceBlocked.String():       "which refuses to talk to us at the moment",
	smtp.SourceIdentity.String():      "which does not accept how we introduce ourselves",
	smtp.TLSFailed.String():           "with which no encrypted session could be made",
	smtp.TimedOut.String():            "which did not answer in time",
	smtp.ConnectionFailed.String():    "to which no connection could be made",
	smtp.Protocol.String():            "which did not keep to the mail protocol",
	smtp.Policy.String():              "whose policy did not let us find out",
	smtp.HarvestGuard.String():        "which stopped answering because too many addresses were asked",
	smtp.Internal.String():            "which could not be asked because of a fault on our side",
	smtp.DNSFailed.String():           "whose name servers did not answer",
	smtp.BackupOnly.String():          "of which only a backup server answers, and that accepts every address",
	smtp.NotAccepted.String():         "which says that mailboxes do not exist, but not for good",
	smtp.Intercepted.String():         "in whose place somebody else answers",
}

// deferredAnyhow is used for every other reason.
const deferredAnyhow = "which asked us to come back later"

// waitSentence returns why the addresses of a wait aren't asked now, as the part of a sentence after the receiver's
// name.
func waitSentence(w inspect.Wait) string {
	switch w.For {
	case inspect.ForRetry:
		return cmp.Or(deferredBy[w.Reason], deferredAnyhow)
	case inspect.ForControl:
		return "where we first find out whether every address is accepted"
	}
	text := atReceiver[max(0, slices.Index(inspect.Causes[:], w.Cause))]
	if w.PerHour > 0 && (w.Cause == inspect.Causes[wire.Cause_BUDGET] || w.Cause == inspect.Causes[wire.Cause_ALLOWANCE]) {
		text += fmt.Sprintf(" (we ask about %s addresses an hour)", grouped(w.PerHour))
	}
	return text
}

// receiverGroup is the group of all waits for one receiver, or of all waits for something without a name.
type receiverGroup struct {
	name      string // of the receiver; "": it has none
	addresses int
	most      inspect.Wait // the wait with the most addresses
}

// groupByReceiver sums waits by receiver, the one with the most addresses first. Final addresses, which wait for the
// ledger, are left out.
func groupByReceiver(waits []inspect.Wait) []receiverGroup {
	var list []receiverGroup
	at := map[string]int{}
	for _, w := range waits {
		if w.For == inspect.ForLedger || w.Addresses <= 0 {
			continue
		}
		name := shownName(w.Receiver)
		key := name
		if name == "" {
			key = " " + w.For + " " + w.Reason // no receiver's name has a space
		}
		i, known := at[key]
		if !known {
			i = len(list)
			at[key], list = i, append(list, receiverGroup{name: name})
		}
		p := &list[i]
		p.addresses += w.Addresses
		if w.Addresses > p.most.Addresses {
			p.most = w
		}
	}
	slices.SortStableFunc(list, func(a, b receiverGroup) int { return b.addresses - a.addresses })
	return list
}

// shownName returns a receiver's key as customers see it; "": it isn't the name of a host or domain.
func shownName(name string) string {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_", r)
	}
	if len(name) > nameMax || strings.ContainsFunc(name, strange) {
		return ""
	}
	return name
}

// sentence tells a customer what most of the open addresses wait for, how many others wait, and until when. It contains
// no address and fits into the ledger.
func (s status) sentence() string {
	list := groupByReceiver(s.waits)
	if len(list) == 0 {
		return "What is left waits for its receivers; " + s.ending(0)
	}
	all, first := 0, list[0]
	for _, p := range list {
		all += p.addresses
	}
	return first.begins() + others(list[1:]) + "; " + s.ending(all)
}

// begins returns the sentence about one group.
func (p receiverGroup) begins() string {
	text, their := grouped(p.addresses)+" addresses wait for ", "their"
	if p.addresses == 1 {
		text, their = "1 address waits for ", "its"
	}
	switch {
	case p.most.For == inspect.ForDomain:
		return text + their + " turn"
	case p.most.For == inspect.ForRoute:
		return text + "an answer from name servers"
	case p.name == "":
		return text + their + " receiver, " + waitSentence(p.most)
	}
	return text + p.name + ", " + waitSentence(p.most)
}

// grouped writes a number with commas, as 29,979.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// others returns how many addresses wait elsewhere, in words.
func others(list []receiverGroup) string {
	addresses, named := 0, true
	for _, p := range list {
		addresses += p.addresses
		named = named && p.name != ""
	}
	switch {
	case addresses == 0:
		return ""
	case !named && addresses == 1:
		return ", and 1 waits for something else"
	case !named:
		return fmt.Sprintf(", and %s wait for something else", grouped(addresses))
	case len(list) == 1:
		return fmt.Sprintf(", and %s for another receiver", grouped(addresses))
	}
	return fmt.Sprintf(", and %s for %d other receivers", grouped(addresses), len(list))
}

// ending is the sentence about when the last of the addresses is expected to be final: to the minute, or to the hour if
// it is more than a day away. The day is left out if it is today.
func (s status) ending(addresses int) string {
	last := "the last"
	if addresses == 1 {
		last = "it"
	}
	if s.finish.IsZero() {
		return "nobody can say when " + last + " will be done."
	}
	at := latest(s.at, s.finish).UTC()
	if whole := at.Truncate(time.Minute); whole.Before(at) {
		at = whole.Add(time.Minute)
	}
	today, tomorrow := s.at.UTC().Format(time.DateOnly), s.at.UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	if at.Sub(s.at) > 24*time.Hour {
		at = at.Add(59 * time.Minute).Truncate(time.Hour)
	}
	switch at.Format(time.DateOnly) {
	case today:
		return last + " is expected at " + at.Format("15:04 UTC") + "."
	case tomorrow:
		return last + " is expected tomorrow, " + at.Format("2 January, at 15:04 UTC") + "."
	}
	return last + " is expected on " + at.Format("2 January 2006 at 15:04 UTC") + "."
}

const (
	// waitsMax bounds the list of waits; the others are summed.
	waitsMax = 200

	// causesMax bounds the entries of the sum of the other waits: one for each cause at receivers, one for each reason
	// of deferrals, and one for each other wait.
	causesMax = 50

	// statusEvery is the least time between two summaries of all domains at work. The time between them is also at
	// least statusShare times as long as a summary takes.
	statusEvery = time.Second
	statusShare = 100

	// smallMax is the most addresses of a domain whose duration is used to predict that of others. Guess.
	smallMax = 100

	// deferredMuch: when this part of a domain's addresses is deferred, the last one is expected to be deferred too.
	// Guess.
	deferredMuch = 0.1
)

// status is the waits of the open addresses at one moment.
type status struct {
	at     time.Time
	final  int64 // in the ledger
	waits  []inspect.Wait
	finish time.Time // zero: unknown
	why    string    // why not
	next   time.Time // not recomputed before
}

// status looks at all domains at work.
func (p *plan) collectStatus(now, begun, deadline time.Time) status {
	sums := sums{}
	o := eta{now: now, begun: begun, deadline: deadline, pending: len(p.pending), durations: p.durations,
		queues: map[string]*queue{}, domains: len(p.ids) - p.next,
		busy: len(p.open) - p.waiting, addresses: len(p.order) - p.began, began: p.began}
	o.finalRate, o.domainRate = p.throughput.rates(now, p.final, p.next-len(p.open))
	for _, w := range p.open {
		w.sum(now, sums, &o)
	}
	sums.add(inspect.Wait{Addresses: o.addresses, For: inspect.ForDomain})
	sums.add(inspect.Wait{Addresses: o.pending, For: inspect.ForLedger})
	s := status{at: now}
	s.finish, s.why = o.finish()
	sums.hasten(o.queues)
	s.waits = sums.list()
	return s
}

// sum adds what the addresses of one domain wait for.
func (w *work) sum(now time.Time, all sums, o *eta) {
	if len(w.waits.Waits) == 0 {
		all.add(inspect.Wait{Addresses: w.left, For: inspect.ForRoute})
		o.notClear(w)
		return
	}
	over, placed := -w.left, false // more than are open: some became final since the report
	for i := range w.waits.Waits {
		over += w.waits.Waits[i].Addresses
		placed = placed || w.waits.Waits[i].Receiver != ""
	}
	switch {
	case !w.waits.Ends.IsZero():
		o.ends = latest(o.ends, w.waits.Ends)
		o.durations.add(max(0, w.waits.Ends.Sub(w.begun)))
	case w.size <= smallMax || !placed:
		o.notClear(w)
	}
	for _, t := range w.waits.Waits {
		gone := max(0, min(over, t.Addresses))
		over -= gone
		t.Addresses -= gone
		all.add(t)
		if t.Receiver != "" && (t.For == inspect.ForReceiver || t.For == inspect.ForRetry) {
			o.wait(now, w, t)
		}
	}
}

// notClear counts a domain that has not reported yet, with the duration of others.
func (o *eta) notClear(w *work) {
	o.unclear++
	o.youngest = latest(o.youngest, w.begun)
}

// wait adds addresses that are at a receiver, or will be again.
func (o *eta) wait(now time.Time, w *work, t inspect.Wait) {
	if t.Addresses == 0 {
		return
	}
	q := o.queues[t.Receiver]
	if q == nil {
		q = &queue{cause: inspect.Causes[0]}
		o.queues[t.Receiver] = q
	}
	q.addresses += t.Addresses
	if t.For != inspect.ForReceiver {
		return
	}
	q.again += float64(t.Addresses) * w.waits.Deferred
	if w.waits.Deferred >= deferredMuch {
		q.wait = max(q.wait, w.waits.Wait)
	}
	q.perHour, q.until = max(q.perHour, t.PerHour), latest(q.until, t.Until)
	if t.Cause != inspect.Causes[0] {
		q.cause = t.Cause
	}
	if age := now.Sub(w.begun).Seconds(); age > 0 {
		q.asked += float64(w.size-w.left) / age
	}
}

// sumKey groups waits for a sum.
type sumKey struct{ what, receiver, cause, reason string }

type sums map[sumKey]*inspect.Wait

func (s sums) add(w inspect.Wait) {
	if w.Addresses <= 0 {
		return
	}
	key := sumKey{w.For, w.Receiver, w.Cause, w.Reason}
	sum := s[key]
	if sum == nil {
		s[key] = &w
		return
	}
	sum.Addresses += w.Addresses
	if w.Until.Before(sum.Until) {
		sum.Until = w.Until
	}
	sum.Last = latest(sum.Last, w.Last)
	sum.PerHour = max(sum.PerHour, w.PerHour)
}

// hasten raises PerHour to the rate that the expected finish assumes: an hour's budget may be used at once.
func (s sums) hasten(queues map[string]*queue) {
	for _, w := range s {
		if q := queues[w.Receiver]; q != nil && w.PerHour > 0 {
			w.PerHour = max(w.PerHour, int(math.Ceil(q.rate*3600)))
		}
	}
}

// list returns the waits, most addresses first. Beyond waitsMax, waits that differ only in their receiver are summed.
func (s sums) list() []inspect.Wait {
	out := make([]inspect.Wait, 0, len(s))
	for _, w := range s {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b inspect.Wait) int {
		if a.Addresses != b.Addresses {
			return b.Addresses - a.Addresses
		}
		return cmp.Or(cmp.Compare(a.For, b.For), cmp.Compare(a.Receiver, b.Receiver),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Reason, b.Reason))
	})
	if len(out) <= waitsMax {
		return out
	}
	rest := sums{}
	for _, w := range out[waitsMax-causesMax:] {
		w.Receiver, w.PerHour = "", 0
		rest.add(w)
	}
	tail := rest.list()
	return append(out[:waitsMax-causesMax:waitsMax-causesMax], tail[:min(len(tail), causesMax)]...)
}
