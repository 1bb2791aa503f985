package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	waiting "rollcall/actors/inspect"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

const (
	// waitTime bounds how long a page waits for the nodes to say what addresses wait for: it does without an answer.
	waitTime = time.Second

	// waitsBelieved is how long an answer is shown to all who ask for it: as often as the fastest page asks.
	waitsBelieved = 2 * time.Second

	// waitsMax bounds the answers that are kept: some 1 kB each.
	waitsMax = 1000
)

// waitsCache asks the nodes what addresses wait for, and keeps each answer for a moment. However many pages ask about a
// verification, the nodes are asked once at a time. Safe for concurrent use.
type waitsCache struct {
	ask func(ctx context.Context, verification string) (waiting.Verification, error)
	now func() time.Time
	log *slog.Logger

	mu   sync.Mutex
	kept map[uuid.UUID]*waitsAnswer // guarded by mu
}

// waitsAnswer is what the nodes said, or will say.
type waitsAnswer struct {
	done  chan struct{} // closed when there is an answer
	until time.Time     // how long it is believed; zero while there is none. Guarded by mu of the cache
	lines []waitLine    // written before done is closed
}

// get gives what the open addresses of a verification wait for; none when nobody answers in time, and when too many
// verifications are asked about at once.
func (c *waitsCache) get(ctx context.Context, id uuid.UUID) []waitLine {
	a := c.answer(ctx, id)
	if a == nil {
		return nil
	}
	patience := time.NewTimer(waitTime)
	defer patience.Stop()
	select {
	case <-a.done:
		return a.lines
	case <-patience.C:
	case <-ctx.Done():
	}
	return nil
}

// answer finds the answer that is believed or on its way, or asks; nil when there is no room.
func (c *waitsCache) answer(ctx context.Context, id uuid.UUID) *waitsAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if a := c.kept[id]; a != nil && !a.over(now) {
		return a
	}
	if c.kept == nil {
		c.kept = map[uuid.UUID]*waitsAnswer{}
	}
	if len(c.kept) >= waitsMax {
		for other, a := range c.kept {
			if a.over(now) {
				delete(c.kept, other)
			}
		}
	}
	if len(c.kept) >= waitsMax {
		return nil
	}
	a := &waitsAnswer{done: make(chan struct{})}
	c.kept[id] = a
	go c.find(context.WithoutCancel(ctx), id, a) // others may wait for it when this page is gone
	return a
}

// over reports whether an answer is not believed any more. The cache's mu is held.
func (a *waitsAnswer) over(now time.Time) bool { return !a.until.IsZero() && !now.Before(a.until) }

// find asks the nodes. That they don't answer is believed as long as what they answer.
func (c *waitsCache) find(ctx context.Context, id uuid.UUID, a *waitsAnswer) {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("asking what addresses wait for panicked", "verification", id, "err", fmt.Sprintf("%T", p))
		}
		c.mu.Lock()
		a.until = c.now().Add(waitsBelieved)
		c.mu.Unlock()
		close(a.done)
	}()
	if found, err := c.ask(ctx, id.String()); err == nil {
		a.lines = linesOf(found.Waits, c.now())
	}
}

// waits says what the open addresses of a verification wait for; none when nobody answers in time.
func (d *Dashboard) waits(ctx context.Context, v ledger.Verification) []waitLine {
	if d.o.Waits == nil || v.Status != ledger.Verifying && v.State() != ledger.WaitingReceivers {
		return nil
	}
	return d.waiting.get(ctx, v.ID)
}

// waitsShown bounds the lines of what addresses wait for.
const waitsShown = 4

// waitLine is what some addresses wait for, in words.
type waitLine struct {
	Addresses int64
	Words     string
	Next      string // when the first of them goes on; "": it is not known, or now
}

// linesOf puts into words what addresses wait for.
func linesOf(waits []waiting.Wait, now time.Time) []waitLine {
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

// putOff says of a receiver why its addresses are asked again, by the reason of the last answer. The sentences of reasons are
// of no use here: they say how an address ended.
var putOff = map[string]string{
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

// waitWords says in words what addresses wait for.
func waitWords(w waiting.Wait) string {
	at := ""
	if w.Receiver != "" {
		at = " at " + w.Receiver
	}
	switch w.For {
	case waiting.ForRoute:
		return "for DNS to answer about their domain"
	case waiting.ForReceiver:
		return "for their turn" + at
	case waiting.ForRetry:
		again := "to be asked again" + at
		why, known := putOff[w.Reason]
		switch {
		case !known:
			return again
		case at == "":
			return again + " by a receiver that " + why
		}
		return again + ", which " + why
	case waiting.ForControl:
		return "for a test with made-up names" + at + ", which shows whether their domain accepts everything"
	case waiting.ForDomain:
		return "for other addresses of this file that go first"
	}
	return "for their outcomes to be saved"
}
