package dashboard

import (
	"strings"
	"time"

	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
)

// stateOf says in which state a verification is.
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

// singleStates are the states of a check of one address that a file has other words for.
var singleStates = map[ledger.Status]web.State{
	ledger.Preparing:           web.StateOf("preparing", "…", "open", "A node is about to take the address."),
	ledger.Verifying:           web.StateOf("verifying", "▸", "open", "The address is being checked."),
	ledger.Cancelling:          web.StateOf("cancelling", "…", "open", "The check is being cancelled."),
	ledger.Completed:           web.StateOf("completed", "✓", "done", "The check is complete."),
	ledger.CompletedWithErrors: web.StateOf("completed, with an error", "!", "error", "The check is complete."),
}

// waitingOf tells the two kinds of waiting apart.
func waitingOf(v ledger.Verification) web.State {
	if v.State() == ledger.WaitingCredits {
		return web.StateOf("waiting for credits", "!", "warn", "There aren't enough credits. It continues by itself once there are.")
	}
	s := web.StateOf("waiting for receivers", "◷", "open", "The receivers of the remaining addresses asked us to come back later.")
	if v.Issue != nil && v.Issue.Message != "" { // the page says itself when the end is expected
		s.Sentence, _, _ = strings.Cut(v.Issue.Message, "; ")
		s.Sentence = strings.TrimSuffix(s.Sentence, ".") + "."
	}
	return s
}

// answerOf says in a few words, which stand large on its page, how far a verification of a file is.
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

// outcome is one kind of outcome with its count.
type outcome struct {
	Word    string
	Note    string // what it means
	Count   int64
	Credits int64
	Offset  string // of its part of the strip, in percent
	Width   string
}

// meanings say what outcomes mean.
var meanings = map[smtp.Outcome]string{
	smtp.Valid:    "accepted by the receiver",
	smtp.Invalid:  "refused by the receiver, or the domain takes no mail",
	smtp.CatchAll: "risky: accepted, but that proves nothing",
	smtp.Unknown:  "we couldn't find out; free",
	smtp.Error:    "something about this address failed",
}

// outcomesOf gives the outcomes in their order, also those with none.
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

// failureText is why a file was refused, with the row of its defect.
func failureText(i *ledger.Issue) string {
	text := strings.TrimSuffix(strings.TrimSpace(i.Message), ".") + "."
	if i.Row > 0 {
		return "Row " + web.Thin(i.Row) + ": " + text
	}
	return text
}
