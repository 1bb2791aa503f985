package dashboard

import (
	"strings"

	"rollcall/http/dashboard/view"
	"rollcall/ledger"
	"rollcall/smtp"
)

// stateView is a state for people: a word with a mark, and a sentence.
type stateView struct {
	Word, Mark, Class string
	Sentence          string
}

// stateOf says in which state a verification is.
func stateOf(v ledger.Verification) stateView {
	if v.Kind == ledger.Single {
		if s, ok := singleStates[v.Status]; ok {
			return s
		}
	}
	switch v.Status {
	case ledger.Uploading:
		return stateView{"uploading", "↑", "open", "The file is being uploaded: " + view.Size(v.Durable) + " of " + view.Size(v.Bytes) +
			" are stored."}
	case ledger.Preparing:
		return stateView{"preparing", "…", "open", "The file has arrived. We're checking that it's in order. Then its addresses are checked."}
	case ledger.Verifying:
		return stateView{"verifying", "▸", "open", "The addresses are being checked."}
	case ledger.Waiting:
		return waitingOf(v)
	case ledger.Cancelling:
		return stateView{"cancelling", "…", "open", "It's being cancelled. Addresses that were already asked are settled; the rest cost nothing."}
	case ledger.Completed:
		return stateView{"completed", "✓", "done", "Every address has an outcome."}
	case ledger.CompletedWithErrors:
		return stateView{"completed, with errors", "!", "error", "Every address has an outcome. Some are errors."}
	case ledger.Cancelled:
		if v.Counts.Sum() == v.Counts.Cancelled {
			return stateView{"cancelled", "–", "off", "It was cancelled before any address was checked: there are no " +
				"results, and it cost nothing."}
		}
		return stateView{"cancelled", "–", "off", "It was cancelled. Unchecked addresses cost nothing."}
	}
	s := stateView{"failed", "✕", "invalid", "It failed."}
	if v.Issue != nil {
		s.Sentence = issueText(v.Issue)
	}
	if v.Counts.Charged() == 0 {
		s.Sentence += " No credits were used."
	} else {
		s.Sentence += " Unchecked addresses cost nothing."
	}
	return s
}

// singleStates are the states of a check of one address that a file has other words for.
var singleStates = map[ledger.Status]stateView{
	ledger.Preparing:           {"preparing", "…", "open", "A node is about to take the address."},
	ledger.Verifying:           {"verifying", "▸", "open", "The address is being checked."},
	ledger.Cancelling:          {"cancelling", "…", "open", "The check is being cancelled."},
	ledger.Completed:           {"completed", "✓", "done", "The check is complete."},
	ledger.CompletedWithErrors: {"completed, with an error", "!", "error", "The check is complete."},
}

// waitingOf tells the two kinds of waiting apart.
func waitingOf(v ledger.Verification) stateView {
	if v.State() == ledger.WaitingCredits {
		return stateView{"waiting for credits", "!", "warn", "There aren't enough credits. It continues by itself once there are."}
	}
	s := stateView{"waiting for receivers", "◷", "open", "The receivers of the remaining addresses asked us to come back later."}
	if v.Issue != nil && v.Issue.Message != "" {
		s.Sentence = v.Issue.Message
	}
	return s
}

// issueText is an issue with the row of its defect.
func issueText(i *ledger.Issue) string {
	text := strings.TrimSpace(i.Message)
	if i.Row > 0 {
		return "Row " + view.Thin(i.Row) + ": " + text
	}
	return text
}

// outcome is one kind of outcome with its count.
type outcome struct {
	Word, Mark string
	Note       string
	Count      int64
	Credits    int64
	Offset     string // of its part of the strip, in percent
	Width      string
}

// marks are the signs of the outcomes: none is told apart by its colour alone.
var marks = map[smtp.Outcome][2]string{
	smtp.Valid:    {"✓", "accepted by the receiver"},
	smtp.Invalid:  {"✕", "refused by the receiver, or the domain takes no mail"},
	smtp.CatchAll: {"≈", "accepted, but so is everything at this domain"},
	smtp.Unknown:  {"?", "we couldn't find out; free"},
	smtp.Error:    {"!", "something about this address failed"},
}

// outcomesOf gives the outcomes in their order, also those with none.
func outcomesOf(v ledger.Verification) []outcome {
	counts := map[smtp.Outcome]int64{smtp.Valid: v.Counts.Valid, smtp.Invalid: v.Counts.Invalid,
		smtp.CatchAll: v.Counts.CatchAll, smtp.Unknown: v.Counts.Unknown, smtp.Error: v.Counts.Error}
	var all []outcome
	var before int64
	for _, o := range smtp.Outcomes {
		one := outcome{Word: o.String(), Mark: marks[o][0], Note: marks[o][1], Count: counts[o]}
		if !o.Free() {
			one.Credits = one.Count
		}
		one.Offset, one.Width = percent(before, v.Total), percent(one.Count, v.Total)
		before += one.Count
		all = append(all, one)
	}
	return all
}
