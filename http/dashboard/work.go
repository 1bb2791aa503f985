package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"rollcall/actors/inspect"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

func stateOf(v ledger.Verification) web.State {
	if v.Kind == ledger.Single {
		if s, ok := singleStates[v.Status]; ok {
			return s
		}
	}
	switch v.Status {
	case ledger.Uploading:
		return web.StateOf("uploading", "↑", "open", "The file is being uploaded: "+web.Size(v.Durable)+" of "+web.Size(v.Bytes)+
			" are stored.")
	case ledger.Preparing:
		return web.StateOf("preparing", "…", "open", "The file has arrived. We're checking that it's in order. Then its addresses are checked.")
	case ledger.Verifying:
		return web.StateOf("verifying", "▸", "open", "The addresses are being checked.")
	case ledger.Waiting:
		return waitingOf(v)
	case ledger.Cancelling:
		return web.StateOf("cancelling", "…", "open", "It's being cancelled. Addresses that were already asked are settled; the rest cost nothing.")
	case ledger.Completed:
		return web.StateOf("completed", "✓", "done", "Every address has an outcome.")
	case ledger.CompletedWithErrors:
		return web.StateOf("completed, with errors", "!", "error", "Every address has an outcome. Some are errors.")
	case ledger.Cancelled:
		if v.Counts.Sum() == v.Counts.Cancelled {
			return web.StateOf("cancelled", "–", "off", "It was cancelled before any address was checked: there are no "+
				"results, and it cost nothing.")
		}
		return web.StateOf("cancelled", "–", "off", "It was cancelled. Unchecked addresses cost nothing.")
	}
	s := web.StateOf("failed", "✕", "invalid", "It failed.")
	if v.Issue != nil {
		s.Sentence = failureText(v.Issue)
	}
	if v.Counts.Charged() == 0 {
		s.Sentence += " No credits were used."
	} else {
		s.Sentence += " Unchecked addresses cost nothing."
	}
	return s
}

// singleStates are states of a check of one address, in other words than for a file.
var singleStates = map[ledger.Status]web.State{
	ledger.Preparing:           web.StateOf("preparing", "…", "open", "A node is about to take the address."),
	ledger.Verifying:           web.StateOf("verifying", "▸", "open", "The address is being checked."),
	ledger.Cancelling:          web.StateOf("cancelling", "…", "open", "The check is being cancelled."),
	ledger.Completed:           web.StateOf("completed", "✓", "done", "The check is complete."),
	ledger.CompletedWithErrors: web.StateOf("completed, with an error", "!", "error", "The check is complete."),
}

// waitingOf distinguishes waiting for credits from waiting for receivers.
func waitingOf(v ledger.Verification) web.State {
	if v.State() == ledger.WaitingCredits {
		return web.StateOf("waiting for credits", "!", "warn", "There aren't enough credits. It continues by itself once there are.")
	}
	s := web.StateOf("waiting for receivers", "◷", "open", "The receivers of the remaining addresses asked us to come back later.")
	if v.Issue != nil && v.Issue.Message != "" { // the page shows the expected end itself
		s.Sentence, _, _ = strings.Cut(v.Issue.Message, "; ")
		s.Sentence = strings.TrimSuffix(s.Sentence, ".") + "."
	}
	return s
}

// answerOf describes in a few words how far the verification of a file is, for the headline of its page.
func answerOf(v ledger.Verification, now time.Time) string {
	done := v.Counts.Sum() - v.Counts.Cancelled
	of := web.Thin(done) + " of " + web.Thin(v.Total)
	switch {
	case v.Status == ledger.Uploading:
		return web.Size(v.Durable) + " of " + web.Size(v.Bytes) + " uploaded"
	case v.Status == ledger.Preparing:
		return "Reading the file"
	case v.State() == ledger.WaitingCredits:
		return "Waits for " + web.Plural(v.Total, "credit")
	case v.Status == ledger.Failed:
		return "The file was refused"
	case v.Status == ledger.Cancelled:
		return "Cancelled: " + of + " checked"
	case v.Status.Final():
		return web.Thin(v.Counts.Valid) + " of " + web.Thin(v.Total) + " are valid: " + web.Share(v.Counts.Valid, v.Total)
	case v.Expected.After(now):
		return of + " checked · " + web.About(v.Expected.Sub(now)) + " left"
	}
	return of + " checked"
}

type outcome struct {
	Word    string
	Note    string // what it means
	Count   int64
	Credits int64
	Offset  string // where its part of the strip begins, in percent
	Width   string
}

var meanings = map[smtp.Outcome]string{
	smtp.Valid:    "accepted by the receiver",
	smtp.Invalid:  "refused by the receiver, or the domain takes no mail",
	smtp.CatchAll: "risky: the receiver accepts every address",
	smtp.Unknown:  "we couldn't find out; free",
	smtp.Error:    "something about this address failed",
}

// outcomesOf returns the counts of all outcomes in order, including zeros.
func outcomesOf(v ledger.Verification) []outcome {
	counts := map[smtp.Outcome]int64{smtp.Valid: v.Counts.Valid, smtp.Invalid: v.Counts.Invalid,
		smtp.CatchAll: v.Counts.CatchAll, smtp.Unknown: v.Counts.Unknown, smtp.Error: v.Counts.Error}
	var all []outcome
	var before int64
	for _, o := range smtp.Outcomes {
		one := outcome{Word: o.String(), Note: meanings[o], Count: counts[o]}
		if !o.Free() {
			one.Credits = one.Count
		}
		one.Offset, one.Width = percent(before, v.Total), percent(one.Count, v.Total)
		before += one.Count
		all = append(all, one)
	}
	return all
}

// failureText returns why a file was refused, with the row of its defect.
func failureText(i *ledger.Issue) string {
	text := strings.TrimSuffix(strings.TrimSpace(i.Message), ".") + "."
	if i.Row > 0 {
		return "Row " + web.Thin(i.Row) + ": " + text
	}
	return text
}

const (
	// waitTime bounds how long a page waits for the nodes' answer about waits, because the page can do without it.
	waitTime = time.Second

	// waitsBelieved is how long an answer is cached for all pages: as long as the shortest refresh interval of a
	// page.
	waitsBelieved = 2 * time.Second

	// waitsMax bounds the cached answers, some 1 kB each. At the bound the least recently used is dropped.
	waitsMax = 1000
)

// waitsCache asks the nodes what addresses wait for, and caches each answer for a moment. However many pages show a
// verification, the nodes get one question at a time. Safe for concurrent use.
type waitsCache struct {
	ask    func(ctx context.Context, verification string) (inspect.Verification, error)
	now    func() time.Time
	log    *slog.Logger
	asking singleflight.Group // by the id of the verification
	kept   *lru.Cache[uuid.UUID, waitsAnswer]
}

type waitsAnswer struct {
	lines []waitLine
	until time.Time
}

func newWaitsCache(o Options) *waitsCache {
	c := &waitsCache{ask: o.Waits, now: o.Now, log: o.Log}
	c.kept, _ = lru.New[uuid.UUID, waitsAnswer](waitsMax)
	return c
}

// get returns what the open addresses of a verification wait for, or nothing if there is no answer in time.
func (c *waitsCache) get(ctx context.Context, id uuid.UUID) []waitLine {
	if a, known := c.kept.Get(id); known && c.now().Before(a.until) {
		return a.lines
	}
	answer := c.asking.DoChan(id.String(), func() (any, error) {
		return c.find(context.WithoutCancel(ctx), id), nil // other pages may wait for it when this one is gone
	})
	select {
	case a := <-answer:
		return a.Val.([]waitLine)
	case <-time.After(waitTime):
	case <-ctx.Done():
	}
	return nil
}

// find asks the nodes. If there is no answer, that is cached as long as an answer.
func (c *waitsCache) find(ctx context.Context, id uuid.UUID) (lines []waitLine) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("asking what addresses wait for panicked", "verification", id, "err", fmt.Sprintf("%T", p))
		}
		c.kept.Add(id, waitsAnswer{lines, c.now().Add(waitsBelieved)})
	}()
	if found, err := c.ask(ctx, id.String()); err == nil {
		lines = linesOf(found.Waits, c.now())
	}
	return lines
}

// waits returns what the open addresses of a verification wait for, or nothing if there is no answer in time.
func (d *Dashboard) waits(ctx context.Context, v ledger.Verification) []waitLine {
	if v.Status != ledger.Verifying && v.State() != ledger.WaitingReceivers {
		return nil
	}
	return d.waiting.get(ctx, v.ID)
}

const waitsShown = 4

type waitLine struct {
	Addresses int64
	Words     string
	Next      string // when the first of them is asked again; "": unknown, or now
}

func linesOf(waits []inspect.Wait, now time.Time) []waitLine {
	var lines []waitLine
	for _, one := range waits {
		if one.Addresses == 0 {
			continue
		}
		if len(lines) == waitsShown {
			last := &lines[waitsShown-1]
			last.Addresses, last.Words, last.Next = last.Addresses+int64(one.Addresses), "for other receivers and domains", ""
			continue
		}
		line := waitLine{int64(one.Addresses), waitWords(one), ""}
		if one.Until.After(now) {
			line.Next = web.Soon(one.Until, now)
		}
		lines = append(lines, line)
	}
	return lines
}

// deferred describes why a receiver's addresses are asked again, by the reason of the last reply. The usual sentences
// for reasons don't fit here, because they describe final results.
var deferred = map[string]string{
	smtp.MailboxFull.String():         "says that mailboxes are full at the moment",
	smtp.MailboxBusy.String():         "says that mailboxes receive too much mail at the moment",
	smtp.Greylisted.String():          "makes strangers come back later (greylisting)",
	smtp.ReceiverBusy.String():        "was too busy to answer",
	smtp.ReceiverRateLimited.String(): "limits how much we may ask",
	smtp.SourceBlocked.String():       "refuses to talk to us at the moment",
	smtp.TimedOut.String():            "did not answer in time",
	smtp.ConnectionFailed.String():    "couldn't be connected to",
	smtp.HarvestGuard.String():        "stopped answering because too many addresses were asked",
	smtp.BackupOnly.String():          "answers only by a backup server, and that accepts every address",
	smtp.NotAccepted.String():         "says that mailboxes don't exist, but not for good",
	smtp.Intercepted.String():         "doesn't answer: somebody else does in its place",
}

func waitWords(w inspect.Wait) string {
	at := ""
	if w.Receiver != "" {
		at = " at " + w.Receiver
	}
	switch w.For {
	case inspect.ForRoute:
		return "for DNS to answer about their domain"
	case inspect.ForReceiver:
		return "for their turn" + at
	case inspect.ForRetry:
		again := "to be asked again" + at
		why, known := deferred[w.Reason]
		switch {
		case !known:
			return again
		case at == "":
			return again + " by a receiver that " + why
		}
		return again + ", which " + why
	case inspect.ForControl:
		return "for a test with made-up names" + at + ", which shows whether their domain accepts everything"
	case inspect.ForDomain:
		return "for other addresses of this file that go first"
	}
	return "for their outcomes to be saved"
}

const movesShown = 50

type creditsView struct {
	Balance ledger.Balance
	Days    []ledger.DaySpent
	Spent   ledger.Credits // on all days
	Chart   web.Chart
	Moves   []moveView
	Sums    moveView // of the page
	Pager   web.Pager
}

type moveView struct {
	At                                time.Time
	What, Link, Why                   string
	Granted, Held, Charged, GivenBack ledger.Credits
}

func showCredits(d *Dashboard, w http.ResponseWriter, r *request) error {
	after, ok := openCursor(r.URL.Query().Get("after"))
	if !ok {
		return web.Nothing
	}
	found, err := d.o.Book.Statement(r.Context(), ledger.StatementQuery{Workspace: r.workspace(), After: after, Limit: movesShown})
	if err != nil {
		return at("read the statement", err)
	}
	v := creditsView{Balance: found.Balance, Days: found.Days}
	base := r.base() + "/credits"
	if after != nil {
		v.Pager.First = base
	}
	for _, day := range found.Days {
		v.Spent += day.Spent
		v.Chart.Add(day.Day.Format("2 Jan 2006")+": "+web.Plural(day.Spent, "credit"), day.Day.Format("2 Jan"),
			web.Bar{Class: "spent", Value: float64(day.Spent)})
	}
	for _, m := range found.Moves {
		v.Moves = append(v.Moves, moveOf(r.base(), m))
		v.Sums.Granted += m.Granted
		v.Sums.Held += m.Held
		v.Sums.Charged += m.Charged
		v.Sums.GivenBack += m.GivenBack
	}
	if found.More {
		v.Pager.More = base + "?after=" + sealCursor(*found.Moves[len(found.Moves)-1].Position())
	}
	return d.show(w, r, http.StatusOK, "credits", titled("Credits", "credits", v))
}

func moveOf(base string, m ledger.Move) moveView {
	v := moveView{At: m.At, Granted: m.Granted, Held: m.Held, Charged: m.Charged, GivenBack: m.GivenBack, Why: m.Reason}
	switch m.Kind {
	case ledger.MoveGrant:
		v.What = "Credits added"
	case ledger.MoveCorrection:
		v.What = "Correction"
	default:
		v.What = "Verification"
		if m.Verification != nil {
			v.What, v.Link, v.Why = nameOf(*m.Verification), base+"/verifications/"+m.ID.String(), stateOf(*m.Verification).Word
		}
	}
	return v
}
