package scheduler

import (
	"fmt"
	"math/rand/v2"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/throttle"
)

// families are the worlds by which the scheduler is judged, each without and with a takeover in its middle.
func families() []family {
	list := []family{
		{"told", "97 % of what is told (95 % far away)", 4, 0.7, drawToldAlone},
		{"limits", "90 % used after a minute (three windows), 1 % put off", 4, 0.5, drawLimits},
		{"sessions", "90 % used after 100 s (85, 50 % with a penalty of 10, 30 s)", 4, 0.5, drawSessions},
		{"lengths", "85 % used after a minute, 2 % put off", 4, 0.6, drawLengths},
		{"tarpits", "85 % used after a minute; 0.1 connections an address where refusals are late", 4, 0.7, drawTarpits},
		{"minutes", "80 % used after four windows, 2 % put off", 4, 0.5, drawMinutes},
		{"domains", "80 % of one domain's limit after 2 min, 5 % put off", 4, 0.5, drawDomains},
		{"few", "all done in 1.5 of the ideal and two windows", 4, 0.8, drawFew},
		{"decaying", "all done in 1.5 of the ideal, two periods and 20 s; 1.5 times the RCPTs", 4, 0.5, drawDecaying},
		{"low", "all done in 1.5 of the ideal and 20 s; 1.5 times the RCPTs", 4, 0.5, drawLow},
		{"punished", "all done in 1.5 of the ideal, three penalties and 20 s; twice the RCPTs", 4, 0.5, drawPunished},
		{"beside", "80 % used after a minute (three windows), 2 % put off", 4, 0.2, drawBeside},
		{"changing", "90 % used 90 s after it (85 % 4 min after the end of a limit), 1 % put off", 4, 0.5, drawChange},
		{"penalties", "85 % used (50 % where it is 30 s), 1 % put off", 4, 0.5, drawPenalties},
		{"openings", "70 % used after 100 s (50 % with a penalty)", 4, 0.5, drawOpenings},
		{"odd", "1.1 times the time without them, 1.3 times where there are 20 %", 4, 0.7, drawOddMailboxes},
		{"failing", "the others done in 1.3 of the ideal (and 15 s where nothing is stated)", 4, 0.7, drawFailing},
		{"greylisting", "all done in 1.15 of the ideal", 4, 0.5, drawGreylisting},
		{"unlisted", "all done in 1.15 of the ideal", 4, 0.5, drawUnlisted},
		{"trusting", "1.15 of the ideal without greylisting, twice its wait and 15 s", 4, 0.5, drawTrusting},
		{"most", "all done in 1.3 of the ideal", 4, 0.5, drawMost},
		{"apart", "all done in 1.3 of the ideal", 4, 0.5, drawApart},
		{"greylimit", "all done in 1.5 of the ideal, 5 % put off by the limit", 4, 0.5, drawGreyLimit},
		{"visits", "all done in 1.1 of the ideal, what it waits, and 30 s", 4, 0.7, drawVisits},
		{"buckets", "70 % used (50 % with a penalty), 2 % put off", 4, 0.5, drawBuckets},
		{"missing", "all done in 1.5 of the ideal and 15 s", 4, 0.5, drawMissingForNow},
		{"singly", "97 % of what is told (95 % far away), 90 % at any time", 4, 0.2, drawGreylistedSingly},
		{"transients", "90 % of what is told (80 % where over 10 % are put off)", 4, 0.7, drawTransients},
		{"ordinary", "1.1 of the ideal, 0.1 connections an address", 4, 0.7, drawOrdinary},
		{"outages", "they cost their length and 15 s", 4, 0.5, drawOutage},
		{"stalls", "they cost their length, 15 s and a tenth", 4, 0.5, drawStall},
		{"silent", "they cost a tenth, and a minute beside the wait for a reply", 4, 0.5, drawSilent},
		{"illhost", "85 % of what is told, by the other hosts", 4, 0.7, drawIllHost},
		{"hostile", "100 tries in the first minute, then one in 5 s", 4, 0.7, drawHostile},
		{"mixed", "85 % used (50 % with a penalty), 1 % put off", 4, 0.5, drawMixed},
	}
	for _, f := range list {
		draw := f.draw
		f.name, f.worlds, f.share = f.name+"-takeover", 2, 0 // docs/developers/measured.md has many
		f.draw = func(r *rand.Rand) *drawn { return draw(r).takenOver(r) }
		list = append(list, f)
	}
	return list
}

// takenOver draws when the scheduler is thrown away: between 20 and 80 % of the time that is judged.
func (w *drawn) takenOver(r *rand.Rand) *drawn {
	midst := w.span
	if w.wanted[timeTaken] > 0 {
		ideal, _ := w.ideal()
		midst = time.Duration(ideal * float64(time.Second))
	}
	w.takeover = time.Duration((0.2 + 0.6*r.Float64()) * float64(midst)).Round(time.Second)
	w.what += fmt.Sprintf("; taken over after %s", w.takeover)
	return w
}

// one draws one of some numbers.
func one(r *rand.Rand, of ...int) int { return of[r.IntN(len(of))] }

// secondsOf returns n seconds.
func secondsOf(n int) time.Duration { return time.Duration(n) * time.Second }

// drawTold draws a receiver without a truth of its own, and what is told of it.
func drawTold(r *rand.Rand) *drawn {
	w := &drawn{told: openedWide(), stated: r.IntN(3) > 0, far: &unknownReceiver{}, hosts: one(r, 1, 1, 2),
		turn:    time.Duration(one(r, 5, 20, 40, 50, 80)) * time.Millisecond,
		domains: one(r, 1, 3, 10, 30), tenants: one(r, 1, 2),
		waits: []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute}}
	w.jitter = time.Duration(r.Int64N(int64(w.turn / 2)))
	w.told.Connections = one(r, 4, 10, 20)
	w.told.ConnectionRate = rate(one(r, 10, 50), time.Second)
	w.told.RcptRate = rate(one(r, 20, 50, 100), time.Second)
	drawWords(r, w.far)
	return w
}

// describe sets the text about what was drawn, for a failure.
func (w *drawn) describe(more string) *drawn {
	l := w.far.limit
	w.what = fmt.Sprintf("%s; told %s, %d sessions, %s, stated %v; "+
		"%d domains, %d customers, %d hosts, turn %s+%s; it says %d %s %q", more, w.told.RcptRate, w.told.Connections,
		w.told.ConnectionRate, w.stated, w.domains, w.tenants, w.hosts, w.turn,
		w.jitter.Round(time.Millisecond), w.far.says.Code, w.far.says.Enhanced, w.far.words)
	if w.isLimited() {
		w.what += fmt.Sprintf("; hidden %s, %s openings, %d sessions, %d in each, by %s, fixed %v, "+
			"refused ones count %v, penalty %s", l.rcpts, l.opens, l.sessions, l.inSession,
			[]string{"4xx", "421", "reset"}[l.way], l.fixed, l.countsBad, l.penalty)
	}
	if w.far.known > 0 {
		w.what += fmt.Sprintf("; %.0f %% are refused at once", 100*w.far.known)
	}
	for _, o := range w.far.odd {
		w.what += fmt.Sprintf("; %.0f %%: %d %s %q, cut %v, grey %s, of %d", 100*o.share, o.reply.Code,
			o.reply.Enhanced, o.reply.Lines, o.cut, o.grey, o.of)
	}
	return w
}

func (w *drawn) isLimited() bool {
	l := w.far.limit
	return l.rcpts.Events > 0 || l.opens.Events > 0 || l.sessions > 0 || l.inSession > 0 || l.ofDomain.Events > 0
}

// pick draws one of some texts.
func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// drawWords draws how a receiver puts off: any code, any class of an enhanced code or none, and words that are random
// letters, or lie about what they are about.
func drawWords(r *rand.Rand, far *unknownReceiver) {
	far.says.Code = one(r, 450, 451, 452)
	if class := uint16(one(r, 0, 2, 3, 7)); class > 0 {
		far.says.Enhanced = smtp.EnhancedCode{4, class, uint16(r.IntN(3))}
	}
	far.words = sentence(r, r.IntN(4))
}

// sentence draws a sentence: in random letters, about a mailbox, about a rate, or about greylisting.
func sentence(r *rand.Rand, about int) string {
	switch about {
	case 1:
		return pick(r, "", gibberish(r)+": ") + pick(r, "the user", "the recipient", "mailbox", "this account", "the inbox") +
			pick(r, "", " you are trying to contact", " you want to reach", " of this address") +
			pick(r, " is receiving mail too quickly", " is receiving mail at a rate that prevents more", " is over quota",
				" is full", " is busy", " is locked", " is out of storage", " has exceeded its quota", " is temporarily disabled")
	case 2:
		return pick(r, "", "Error: ", "sorry, ") + pick(r, "too many recipients", "rate limit exceeded",
			"you are sending too quickly", "too many messages from your host", "throttled") +
			pick(r, "", ", slow down", ", try again later")
	case 3:
		return pick(r, "Greylisted", "greylisting in action", "recipient address rejected: greylisted",
			"You have been greylisted") + pick(r, "", ", try again later", ", please come back")
	}
	return gibberish(r)
}

// toldUse is what has to be used of a told pace: a window that no delay can break counts a RCPT from when it was sent
// until it is answered, so far away it has room for a little less.
func (w *drawn) toldUse() float64 {
	if w.turn >= 40*time.Millisecond {
		return 0.95
	}
	return 0.97
}

// drawToldAlone draws a receiver that wants nothing but what is told: RCPTs, openings or sessions are what there is
// least of.
func drawToldAlone(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.span, w.from = true, 100*time.Second, 3
	switch r.IntN(3) {
	case 1:
		w.told.ConnectionRate, w.told.RcptsPerConnection = rate(one(r, 2, 5, 10), time.Second), one(r, 1, 3, 5)
		w.told.Connections = 20
	case 2:
		w.told.Connections, w.told.RcptRate = one(r, 1, 2, 4), rate(200, time.Second)
	}
	w.wanted = figures{usedPart: w.toldUse()}
	return w.describe("nothing but what is told")
}

// drawLimits draws a limit that nobody is told: RCPTs by the second or by the minute, openings, or sessions.
func drawLimits(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.span, w.from = 5*time.Minute, 60
	l := &w.far.limit
	switch r.IntN(6) {
	case 0, 1, 2:
		l.rcpts = rate(one(r, 4, 10, 20, 40), time.Second)
		w.told.RcptRate = rate(one(r, 2, 4, 10)*l.rcpts.Events, time.Second)
	case 3:
		l.rcpts = rate(one(r, 120, 300, 900), time.Minute)
		w.told.RcptRate = rate(one(r, 10, 30, 60), time.Second)
		w.span, w.from = 7*time.Minute, 180
	case 4:
		l.opens = rate(one(r, 2, 5), time.Second)
		w.told.RcptsPerConnection, w.told.Connections = one(r, 2, 5), 20
	case 5:
		l.sessions = one(r, 1, 2, 3)
	}
	l.way, l.fixed, l.countsBad = r.IntN(ways), r.IntN(2) == 0, r.IntN(3) == 0
	w.wanted = figures{usedPart: 0.9, putOffPart: 0.01}
	return w.describe("a hidden limit")
}

// drawBeside draws a hidden limit where many mailboxes are deferred for themselves too: missing ones for ever, or some
// that are greylisted.
func drawBeside(r *rand.Rand) *drawn {
	w := drawLimits(r)
	odd := oddOf{share: float64(one(r, 20, 30, 40, 50)) / 100, reply: reply(450, 1, 1, sentence(r, one(r, 0, 1)))}
	if r.IntN(2) == 0 {
		odd = oddOf{share: float64(one(r, 10, 30, 60)) / 100, grey: secondsOf(one(r, 60, 300)), reply: w.far.later()}
	}
	w.far.odd = []oddOf{odd}
	w.wanted = figures{usedPart: 0.8, putOffPart: 0.02}
	return w.describe("a hidden limit beside mailboxes that are put off")
}

// drawLengths draws a receiver that limits the RCPTs of a session.
func drawLengths(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.far.limit.inSession, w.far.limit.way = one(r, 5, 10, 30, 100), r.IntN(ways)
	w.span, w.from, w.wanted = 5*time.Minute, 60, figures{usedPart: 0.85, putOffPart: 0.02}
	return w.describe(fmt.Sprintf("%d RCPTs in a session", w.far.limit.inSession))
}

// drawTarpits draws a receiver that answers late after some RCPTs in a session, or whenever it refuses an address.
func drawTarpits(r *rand.Rand) *drawn {
	w := drawTold(r)
	k := one(r, 3, 10, 30, 100)
	w.far.invalid = float64(one(r, 0, 20)) / 100
	w.far.slow = slowAnswers{k, secondsOf(one(r, 2, 5, 10, 30)), false}
	w.span, w.from, w.wanted = 5*time.Minute, 60, figures{usedPart: 0.85}
	if r.IntN(4) == 0 {
		w.far.slow, w.far.invalid = slowAnswers{0, 5 * time.Second, true}, 0.2
		w.addresses, w.wanted = 500, figures{timeTaken: 1.9, connsOpened: 0.1}
	}
	return w.describe(fmt.Sprintf("after %d RCPTs in a session each takes %s, refusals only: %v", w.far.slow.after,
		w.far.slow.by, w.far.slow.refusals))
}

// drawChange draws a hidden limit by the second that becomes half, or half as large again, or ends.
func drawChange(r *rand.Rand) *drawn {
	w := drawLimits(r)
	w.far.limit.rcpts, w.far.limit.opens, w.far.limit.sessions = rate(one(r, 4, 10, 20), time.Second), throttle.Rate{}, 0
	l := w.far.limit
	w.told.RcptsPerConnection, w.told.Connections = throttle.CountMax, 20
	w.told.RcptRate = rate(one(r, 2, 4)*l.rcpts.Events, time.Second)
	w.far.change, w.from, w.span = changeOf{begin.Add(2 * time.Minute), l}, 210, 5*time.Minute
	kind := r.IntN(3)
	switch kind {
	case 0:
		w.far.change.to.rcpts.Events /= 2
	case 1:
		w.far.change.to.rcpts.Events += l.rcpts.Events / 2
	case 2:
		w.far.change.to, w.from, w.span, w.wanted[usedPart] = limitOf{}, 360, 7*time.Minute, 0.85
	}
	w.addresses = int(w.rate() * 120)
	w.describe("after 2 min a hidden limit " + []string{"becomes half", "becomes half as large again", "ends"}[kind])
	w.addresses += int(min(w.told.RcptRate.PerSecond(), 20*w.perSession()) * (w.span - 2*time.Minute).Seconds())
	return w
}

// drawTransients draws a receiver that puts a few RCPTs in a hundred off at random, or up to half, at any pace.
func drawTransients(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.span, w.from = true, 3*time.Minute, 10
	w.far.flaky, w.wanted = float64(1+r.IntN(6))/100, figures{usedPart: 0.9}
	if r.IntN(2) == 0 {
		w.far.flaky, w.wanted[usedPart] = float64(10+r.IntN(41))/100, 0.8
	}
	return w.describe(fmt.Sprintf("%.0f %% of all RCPTs are put off at random", 100*w.far.flaky))
}

// drawDomains draws a receiver with a limit for each of its mail domains.
func drawDomains(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.ofDomain, l.way, l.fixed = rate(one(r, 1, 2, 5), time.Second), r.IntN(ways), r.IntN(2) == 0
	w.domains = one(r, 3, 10)
	w.told.RcptRate = rate(one(r, 2, 4)*l.ofDomain.Events*w.domains, time.Second)
	w.span, w.from, w.wanted = 5*time.Minute, 120, figures{usedPart: 0.8, putOffPart: 0.05}
	return w.describe(fmt.Sprintf("%s for each domain", l.ofDomain))
}

// drawPenalties draws a hidden limit whose breach has a price: nothing is served for a while.
func drawPenalties(r *rand.Rand) *drawn {
	w := drawLimits(r)
	w.far.limit.penalty = 10 * time.Second
	if w.wanted[usedPart] = 0.85; r.IntN(2) == 0 {
		w.far.limit.penalty, w.wanted[usedPart] = 30*time.Second, 0.5
	}
	return w.describe("a penalty")
}

// drawOpenings draws a hidden limit of openings in one or a few seconds, whose breach may have a price.
func drawOpenings(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.opens, l.way = rate(one(r, 2, 4, 8), secondsOf(one(r, 1, 2, 5))), r.IntN(ways)
	l.fixed, l.countsBad, l.refusal = r.IntN(2) == 0, r.IntN(3) == 0, one(r, 0, 0, 450, 554)
	w.told.RcptsPerConnection, w.told.RcptRate = one(r, 2, 5, 10, 20), rate(100, time.Second)
	w.span, w.from, w.wanted = 5*time.Minute, 100, figures{usedPart: 0.7}
	if l.penalty = secondsOf(one(r, 0, 5, 10, 30)); l.penalty > 0 {
		w.wanted[usedPart] = 0.5
	}
	return w.describe(fmt.Sprintf("openings, %d in a session, refused with %d", w.told.RcptsPerConnection, l.refusal))
}

// drawSessions draws a hidden limit of sessions at once, whose breach may have a price, where sessions last.
func drawSessions(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.told.Connections = one(r, 4, 10, 20)
	w.far.limit.sessions, w.far.limit.way = one(r, 1, 2, 3, 5), r.IntN(ways)
	w.span, w.from, w.wanted = 5*time.Minute, 100, figures{usedPart: 0.9, putOffPart: 0.01}
	if r.IntN(2) == 0 {
		w.far.limit.penalty, w.wanted[usedPart] = 10*time.Second, 0.85
	} else if r.IntN(2) == 0 {
		w.far.limit.penalty, w.wanted[usedPart] = 30*time.Second, 0.5
	}
	return w.describe("sessions at once")
}

// drawMinutes draws a hidden limit by the minute.
func drawMinutes(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.rcpts, l.way = rate(one(r, 60, 120, 300, 900), time.Minute), r.IntN(ways)
	l.fixed, l.countsBad = r.IntN(2) == 0, r.IntN(3) == 0
	w.told.RcptRate = rate(one(r, 20, 50, 100), time.Second)
	w.span, w.from, w.wanted = 8*time.Minute, 240, figures{usedPart: 0.8, putOffPart: 0.02}
	return w.describe("a hidden limit by the minute")
}

// drawFew draws a list that is only a few times as long as what a hidden limit lets pass in a quarter of a minute.
func drawFew(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.rcpts, l.fixed, l.countsBad = rate(one(r, 20, 30, 60), secondsOf(one(r, 10, 15, 30))), true, r.IntN(3) == 0
	w.told.RcptRate, w.addresses = rate(1000, time.Second), l.rcpts.Events*(2+r.IntN(3))
	w.waits, w.spare, w.wanted = []time.Duration{5 * time.Minute}, 2*l.rcpts.Per, figures{timeTaken: 1.5}
	return w.describe("a short list at a hidden limit")
}

// drawLow draws a short list at a low hidden limit, far below what is told.
func drawLow(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.rcpts = rate(one(r, 1, 2, 3, 5), time.Second)
	l.way, l.fixed, l.countsBad = r.IntN(ways), r.IntN(2) == 0, r.IntN(3) == 0
	w.told.RcptRate = rate(one(r, 2, 5, 10, 30)*l.rcpts.Events, time.Second)
	w.addresses = l.rcpts.Events * one(r, 30, 60, 120, 300)
	w.waits, w.spare = []time.Duration{secondsOf(one(r, 2, 5, 10))}, 20*time.Second
	w.wanted = figures{timeTaken: 1.5, rcptsAsked: 1.5}
	return w.describe("a short list at a low limit")
}

// drawDecaying draws a short list at a receiver that limits a decaying mean of its RCPTs, as Exim's ratelimit does.
func drawDecaying(r *rand.Rand) *drawn {
	w := drawTold(r)
	l := &w.far.limit
	l.rcpts, l.decays = rate(one(r, 5, 15, 30, 60), secondsOf(one(r, 2, 5, 10, 30))), true
	l.way, l.countsBad = r.IntN(ways), r.IntN(2) == 0
	w.told.RcptRate, w.addresses = rate(one(r, 20, 1000), time.Second), max(40, l.rcpts.Events*one(r, 3, 5, 10))
	w.far.invalid = float64(one(r, 0, 25)) / 100
	w.waits, w.spare = []time.Duration{secondsOf(one(r, 5, 30)), time.Minute}, 2*l.rcpts.Per+20*time.Second
	w.wanted = figures{timeTaken: 1.5, rcptsAsked: 1.5}
	return w.describe("a short list at a limit of a mean that decays")
}

// drawPunished draws a short list at a low limit whose excess has a penalty.
func drawPunished(r *rand.Rand) *drawn {
	w := drawLow(r)
	l := &w.far.limit
	every := one(r, 1, 1, 2, 5)
	l.rcpts, l.countsBad = rate(l.rcpts.Events*every, secondsOf(every)), r.IntN(2) == 0
	l.penalty, l.greets = secondsOf(one(r, 2, 5, 10, 15)), r.IntN(3) > 0
	w.told.RcptRate = rate(one(r, 2, 4, 10)*l.rcpts.Events/every, time.Second)
	w.addresses = one(r, 10, 20, 40, 80, 300)
	w.waits, w.spare = []time.Duration{secondsOf(one(r, 2, 10)), 8 * time.Second}, 3*l.penalty+20*time.Second
	w.wanted = figures{timeTaken: 1.5, rcptsAsked: 2}
	return w.describe(fmt.Sprintf("a short list of %d at a low limit with a penalty of %s", w.addresses, l.penalty))
}

// drawOddMailboxes draws some in a hundred mailboxes that always answer something odd, at told limits.
func drawOddMailboxes(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.hosts, w.waits = true, 1, []time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute}
	w.told.RcptRate, w.told.ConnectionRate = rate(one(r, 10, 20, 30), time.Second), rate(50, time.Second)
	w.addresses = int(w.rate() * 100)
	plain := *w
	bare := *w.far
	plain.far, w.against = &bare, &plain
	for len(w.far.odd) == 0 {
		w.far.odd = drawOdd(r, 1)
	}
	w.wanted = figures{timeTaken: 1.1}
	if w.far.odd[0].share > 0.1 {
		w.wanted[timeTaken] = 1.3
	}
	return w.describe("odd mailboxes")
}

// drawFailing draws a mail domain, or a customer's list, whose addresses never get an outcome, beside others.
func drawFailing(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.hosts, w.others = r.IntN(2) == 0, 1, true
	w.waits = []time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute}
	w.domains = one(r, 2, 3, 10, 30)
	w.told.RcptRate, w.told.ConnectionRate = rate(one(r, 5, 10, 20, 30), time.Second), rate(50, time.Second)
	w.addresses = int(w.rate() * 100)
	if !w.stated {
		w.spare = 15 * time.Second
	}
	for len(w.far.odd) == 0 {
		w.far.odd = drawOdd(r, 1)
	}
	o := &w.far.odd[0]
	if o.share = 1; w.tenants > 1 && r.IntN(3) == 0 {
		o.of = 1
	} else {
		o.at = "@d0.example"
	}
	w.wanted = figures{timeTaken: 1.3}
	return w.describe("a failing domain or list")
}

// drawOutage draws a receiver that for a while refuses connections and resets those that are open, says nothing, or
// refuses us.
func drawOutage(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated = true
	w.told.RcptRate = rate(one(r, 5, 10, 20), time.Second)
	w.addresses = int(w.rate() * 240)
	long := secondsOf(one(r, 3, 12, 30, 60))
	from := begin.Add(secondsOf(40 + r.IntN(60)))
	kind := r.IntN(3)
	if kind == 2 {
		long = time.Minute
	}
	list := []stretch{{from, from.Add(long)}}
	switch kind {
	case 0:
		w.far.outages = list
	case 1:
		w.far.silent = list
	case 2:
		w.far.blocked = list
	}
	w.spare, w.wanted = long+15*time.Second, figures{timeTaken: 1.03}
	what := []string{"down", "silent", "blocked"}[kind]
	return w.describe(fmt.Sprintf("%s for %s from %s on", what, long, from.Sub(begin)))
}

// drawSilent draws a receiver some of whose machines fall silent, in each session that they get.
func drawSilent(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated = true
	w.told.Connections, w.told.RcptRate = one(r, 4, 10), rate(one(r, 5, 20, 50), time.Second)
	w.addresses = int(w.rate() * 240)
	w.far.dumb = dumb{share: []float64{0.1, 0.2, 0.3}[r.IntN(3)], answers: one(r, 0, 1, 1, 20)}
	w.spare, w.wanted = rcptWithin+time.Minute, figures{timeTaken: 1.1}
	return w.describe(fmt.Sprintf("%.1f of sessions say nothing after %d answers", w.far.dumb.share, w.far.dumb.answers))
}

// drawStall draws a receiver that for a while puts everybody off, or all but a few, perhaps soon after it was first
// asked.
func drawStall(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.told.RcptRate = rate(one(r, 5, 20, 50), time.Second)
	w.addresses = int(w.rate() * 240)
	long, after := secondsOf(one(r, 3, 10, 30, 60)), secondsOf(one(r, 0, 5, 10, 20, 60))
	w.far.limit.way, w.far.stalls = r.IntN(ways), []stretch{{begin.Add(after), begin.Add(after + long)}}
	if n := one(r, 0, 0, 1, 3); n > 0 {
		w.far.few = rate(n, time.Second)
	}
	w.spare, w.wanted = long+15*time.Second, figures{timeTaken: 1.1}
	return w.describe(fmt.Sprintf("all but %s are put off for %s after %s", w.far.few, long, after))
}

// drawIllHost draws a receiver of two hosts of which the first one answers everybody badly, or most, from the beginning
// or after a while.
func drawIllHost(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.hosts, w.span, w.from = true, 2, 5*time.Minute, 120
	w.told.Connections, w.told.ConnectionRate = 10, rate(20, time.Second)
	w.told.RcptRate = rate(one(r, 10, 20), time.Second)
	replies := []smtp.Reply{{Code: 451, Lines: []string{gibberish(r)}}, {Code: 421, Lines: []string{gibberish(r)}}, {},
		reply(550, 7, 1, "client host blocked"), reply(451, 3, 0, "temporary lookup failure")}
	from := begin.Add(secondsOf(one(r, 0, 90)))
	w.far.ill = illHost{name: "mx1.example", when: stretch{from, begin.Add(time.Hour)},
		share: []float64{1, 1, 0.7}[r.IntN(3)], reply: replies[r.IntN(len(replies))]}
	w.wanted = figures{usedPart: 0.85}
	return w.describe(fmt.Sprintf("the first host is ill for %.1f from %s on: %d %q", w.far.ill.share, from.Sub(begin),
		w.far.ill.reply.Code, w.far.ill.reply.Lines))
}

// drawHostile draws a receiver that answers nobody.
func drawHostile(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.addresses, w.span = 2000, 6*time.Minute
	always := []stretch{{begin, begin.Add(24 * time.Hour)}}
	kind := r.IntN(6)
	switch kind {
	case 0:
		w.far.breaks = true
	case 1:
		w.far.mute = true
	case 2:
		w.far.outages = always
	case 3:
		w.far.blocked = always
	case 4:
		w.far.grey, w.far.words = 24*time.Hour, sentence(r, r.IntN(3))
	case 5:
		w.far.limit.opens, w.far.limit.way = rate(1, 24*time.Hour), byClosing
		w.far.opens = []time.Time{begin}
	}
	w.wanted = figures{askedAtFirst: 100, askedInVain: 0.2, unheard: 0.5}
	return w.describe([]string{"it breaks every session", "it never greets", "it refuses connections", "it refuses us",
		"it puts everybody off", "it says 421 to every connection"}[kind])
}

// drawGreylisting draws a receiver that greylists every address, at a stated rate. If its replies don't say so, a law
// that asks few new addresses while nothing passes needs twice the wait: 1.6 of the ideal for 2,500 at 50/s and 10 min.
func drawGreylisting(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.far.grey = secondsOf(one(r, 1, 5, 20, 60, 120, 300, 600))
	w.told.RcptRate = rate(one(r, 2, 5, 10, 20, 50), time.Second)
	w.far.words = sentence(r, one(r, 0, 0, 2, 3, 3))
	w.stated, w.span = true, 4*time.Hour
	w.addresses = min(2500, int(w.rate()*240))
	w.wanted = figures{timeTaken: 1.15, rcptsAsked: 1.15}
	return w.describe(fmt.Sprintf("everybody is greylisted for %s, %d addresses", w.far.grey, w.addresses))
}

// drawUnlisted draws a receiver that refuses missing mailboxes at once and greylists the others.
func drawUnlisted(r *rand.Rand) *drawn {
	w := drawGreylisting(r)
	w.far.known = float64(one(r, 5, 20, 50, 80)) / 100
	return w.describe(fmt.Sprintf("mailboxes that exist are greylisted for %s, %d addresses", w.far.grey, w.addresses))
}

var missingUser = smtp.Reply{Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1}, Lines: []string{"no such user"}}

// isKnown reports whether a mailbox is missing and refused before greylisting, as Postfix does by default.
func (s *unknownReceiver) isKnown(address string) bool { return chance("k"+s.salt, address) < s.known }

// drawTrusting draws a receiver that greylists until the client has come back for five addresses (Postgrey's default).
func drawTrusting(r *rand.Rand) *drawn {
	w := drawGreylisting(r)
	w.stated, w.far.grey, w.far.trusts = r.IntN(2) == 0, secondsOf(one(r, 1, 5, 20, 60)), 5
	w.addresses /= one(r, 1, 2, 4)
	plain, bare := *w, *w.far
	bare.grey = 0
	plain.far, w.against = &bare, &plain
	w.spare, w.wanted = 2*w.far.grey+15*time.Second, figures{timeTaken: 1.15}
	return w.describe(fmt.Sprintf("greylisted for %s until 5 have come back, %d addresses", w.far.grey, w.addresses))
}

// drawMost draws a receiver that greylists most mailboxes and answers for the others at once.
func drawMost(r *rand.Rand) *drawn {
	w := drawGreylisting(r)
	w.far.odd = []oddOf{{share: float64(one(r, 30, 50, 80, 95)) / 100, grey: w.far.grey, reply: w.far.later()}}
	w.far.grey, w.wanted = 0, figures{timeTaken: 1.3}
	return w.describe(fmt.Sprintf("most are greylisted, %d addresses", w.addresses))
}

// drawGreyLimit draws a receiver that greylists everybody, and has a hidden limit that it speaks of in other words.
func drawGreyLimit(r *rand.Rand) *drawn {
	w := drawGreylisting(r)
	w.far.grey, w.far.greys = secondsOf(one(r, 1, 5, 20, 60, 120)), w.far.later()
	drawWords(r, w.far)
	if r.IntN(2) == 0 { // it may use the same codes
		w.far.says = smtp.Reply{Code: w.far.greys.Code, Enhanced: w.far.greys.Enhanced}
	}
	l := &w.far.limit
	l.rcpts, l.way, l.fixed = rate(one(r, 4, 10, 20), time.Second), r.IntN(ways), r.IntN(2) == 0
	l.countsBad, l.penalty = r.IntN(3) == 0, secondsOf(one(r, 0, 0, 10))
	w.told.RcptRate, w.addresses = rate(one(r, 2, 4, 10)*l.rcpts.Events, time.Second), l.rcpts.Events*one(r, 60, 120)
	w.wanted = figures{timeTaken: 1.5, putOffPart: 0.05}
	return w.describe(fmt.Sprintf("everybody is greylisted for %s: %d %s %q, and a hidden limit", w.far.grey,
		w.far.greys.Code, w.far.greys.Enhanced, w.far.greys.Lines))
}

// drawApart draws a receiver of two hosts that greylist each by itself.
func drawApart(r *rand.Rand) *drawn {
	w := drawGreylisting(r)
	w.hosts, w.far.apart, w.wanted = 2, true, figures{timeTaken: 1.3}
	return w.describe(fmt.Sprintf("each host greylists everybody for %s, %d addresses", w.far.grey, w.addresses))
}

// drawVisits draws a receiver that puts everybody off in the sessions of a while, whatever it says.
func drawVisits(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.far.visits = secondsOf(one(r, 1, 5, 20, 60))
	w.stated, w.addresses = true, min(2500, int(w.rate()*120))
	w.spare, w.wanted = w.far.visits+30*time.Second, figures{timeTaken: 1.1}
	return w.describe(fmt.Sprintf("sessions of the first %s are put off, %d addresses", w.far.visits, w.addresses))
}

// drawBuckets draws a hidden limit that takes RCPTs evenly, and may have a penalty.
func drawBuckets(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.span, w.from, w.wanted = 5*time.Minute, 60, figures{usedPart: 0.7, putOffPart: 0.02}
	l := &w.far.limit
	l.rcpts, l.even, l.way = rate(one(r, 4, 10, 20, 60), time.Second), true, r.IntN(ways)
	w.told.RcptRate = rate(one(r, 2, 4, 10)*l.rcpts.Events, time.Second)
	if l.penalty = secondsOf(one(r, 0, 0, 5, 10)); l.penalty > 0 {
		w.wanted[usedPart] = 0.5
	}
	return w.describe("a bucket")
}

// drawMissingForNow draws a receiver that puts off whoever doesn't exist, which are many, and small lists.
func drawMissingForNow(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.told.RcptRate = rate(one(r, 50, 100), time.Second)
	w.span, w.addresses, w.domains, w.spare = time.Hour, one(r, 300, 1000), one(r, 1, 2, 4), 15*time.Second
	w.waits = []time.Duration{5 * time.Second, 20 * time.Second, time.Minute}
	w.far.odd = []oddOf{{share: float64(one(r, 30, 50, 70, 85)) / 100, reply: reply(450, 1, 1, sentence(r, one(r, 0, 1)))}}
	w.wanted = figures{timeTaken: 1.5}
	return w.describe("who is missing is put off")
}

// drawGreylistedSingly draws a receiver that greylists some mailboxes, at a stated rate.
func drawGreylistedSingly(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.span, w.from = true, 3*time.Minute, 5
	w.far.odd = []oddOf{{share: float64(2+r.IntN(9)) / 100, grey: secondsOf(one(r, 1, 5, 20, 60, 300)),
		reply: w.far.later()}}
	w.wanted = figures{usedPart: w.toldUse(), worstTen: 0.9}
	return w.describe("some mailboxes are greylisted")
}

// drawOrdinary draws one receiver of an ordinary list.
func drawOrdinary(r *rand.Rand) *drawn {
	w := drawTold(r)
	w.stated, w.span, w.turn, w.jitter, w.hosts = true, time.Hour, 50*time.Millisecond, 5*time.Millisecond, 1
	w.told.Connections, w.told.RcptRate, w.told.ConnectionRate = 4, rate(200, time.Second), rate(50, time.Second)
	w.addresses, w.domains, w.tenants = one(r, 1000, 2000, 3500), one(r, 1, 5, 25), one(r, 1, 2, 3)
	w.far.invalid = 0.19 / 0.91
	w.far.odd = []oddOf{
		{share: 0.02, reply: reply(452, 2, 2, "mailbox full")},
		{share: 0.02, reply: reply(550, 2, 1, "mailbox disabled")},
		{share: 0.02, reply: reply(451, 7, 1, "greylisted"), grey: secondsOf(one(r, 5, 20, 60))},
		{share: 0.01, reply: reply(451, 3, 0, sentence(r, 0))},
		{share: 0.01, reply: reply(550, 7, 1, "client host blocked")},
		{share: 0.01, cut: true},
	}
	w.wanted = figures{timeTaken: 1.1, rcptsAsked: 1.1, connsOpened: 0.1}
	return w.describe(fmt.Sprintf("an ordinary list, %d addresses", w.addresses))
}

// drawMixed draws limits or greylisting, odd mailboxes, customers, hosts, penalties and outages in one world.
func drawMixed(r *rand.Rand) *drawn {
	w := drawLimits(r)
	if r.IntN(3) == 0 {
		w.far.limit, w.told.RcptRate = limitOf{}, rate(one(r, 20, 50), time.Second)
	}
	if w.far.odd = drawOdd(r, w.tenants); !w.isLimited() && r.IntN(3) == 0 {
		w.far.grey = secondsOf(one(r, 5, 60))
	}
	w.wanted = figures{usedPart: 0.85, putOffPart: 0.01}
	if w.isLimited() && r.IntN(3) == 0 {
		w.far.limit.penalty = secondsOf(one(r, 10, 30, 60))
		w.wanted[usedPart] = 0.5
	}
	if r.IntN(4) == 0 {
		from, long := begin.Add(secondsOf(90+r.IntN(60))), secondsOf(one(r, 3, 12, 60))
		w.far.outages, w.spare = []stretch{{from, from.Add(long)}}, long+15*time.Second
	}
	return w.describe(fmt.Sprintf("mixed, greylisted for %s, down for %s", w.far.grey, max(0, w.spare-15*time.Second)))
}

// drawOdd draws mailboxes that always answer something odd: of everybody, or most of one customer.
func drawOdd(r *rand.Rand, tenants int) []oddOf {
	o := oddOf{share: []float64{0, 0, 0.01, 0.05, 0.2}[r.IntN(5)]}
	if tenants > 1 && r.IntN(4) == 0 {
		o.of, o.share = 1, []float64{0.5, 0.9}[r.IntN(2)]
	}
	switch r.IntN(7) {
	case 0:
		o.reply = smtp.Reply{Code: 450, Lines: []string{gibberish(r)}}
	case 1:
		o.reply, o.cut = smtp.Reply{Code: 421, Lines: []string{gibberish(r)}}, true
	case 2:
		o.reply = reply(550, 7, 1, "client host blocked")
	case 3:
		o.reply = reply(450, 7, 1, "you are sending too quickly, slow down")
	case 4:
		o.cut = true
	case 5:
		o.reply = reply(451, 3, 0, "temporary lookup failure")
	case 6:
		o.reply = reply(554, 0, 0, gibberish(r))
	}
	if o.share == 0 {
		return nil
	}
	return []oddOf{o}
}

// reply makes one.
func reply(code int, class, detail uint16, text string) smtp.Reply {
	return smtp.Reply{Code: code, Enhanced: smtp.EnhancedCode{uint16(code / 100), class, detail}, Lines: []string{text}}
}

// gibberish is a sentence that no rule knows.
func gibberish(r *rand.Rand) string {
	out := ""
	for range 2 + r.IntN(5) {
		for range 3 + r.IntN(7) {
			out += string(rune('a' + r.IntN(26)))
		}
		out += " "
	}
	return out[:len(out)-1]
}

func rate(n int, per time.Duration) throttle.Rate { return throttle.Rate{Events: n, Per: per} }
