package evidence

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// Replayed is one address under other rules.
type Replayed struct {
	Ordinal int64  `json:"ordinal"`
	Address string `json:"address"`
	Before  Judged `json:"before"` // as it was settled
	After   Judged `json:"after"`
}

// Verdict is an outcome and its reason.
type Verdict struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

// Judged is an outcome and the rule behind it.
type Judged struct {
	Verdict
	Rule string `json:"rule"` // of the last answer that counts, id@version; "": there was none
}

// ReplaySummary is the result of a replay.
type ReplaySummary struct {
	Verification uuid.UUID     `json:"verification"`
	Status       ledger.Status `json:"status"`
	Addresses    int64         `json:"addresses"` // that are settled
	Replayed     int64         `json:"replayed"`  // of them with evidence
	Same         int64         `json:"same"`      // outcome and reason
	Outcomes     int64         `json:"outcomes_changed"`
	Reasons      int64         `json:"reasons_changed"` // with the same outcome

	// Unexplained counts outcomes that do not follow from the verdicts in their own evidence. If it is not 0 the
	// engine has a fault.
	Unexplained int64 `json:"unexplained"`

	Changes []Change `json:"changes"` // in the order of display
}

// Change counts the addresses that change from one outcome to another. "undecided" means that the engine would have
// continued under these rules.
type Change struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Count  int64  `json:"count"`
}

// Replay judges the evidence of a verification again and calls q.Yield for each address whose outcome or reason would
// change, or for all. It makes no connection and writes nothing. Memory holds one settlement at a time.
func Replay(ctx context.Context, book ledger.Book, id uuid.UUID, q ReplayQuery) (ReplaySummary, error) {
	p := replayer{query: q, summary: ReplaySummary{Verification: id}}
	v, err := book.Evidence(ctx, id, 0, p.replaySettlement)
	p.summary.Status = v.Status
	p.summary.Changes = p.listChanges()
	return p.summary, err
}

// ReplayQuery is the rules to judge by and the addresses to report.
type ReplayQuery struct {
	Rules *verdict.Rules
	All   bool // also report what stays the same
	Yield func(Replayed) error
}

type replayer struct {
	query   ReplayQuery
	summary ReplaySummary
	moved   [smtp.Error + 1][smtp.Error + 1]int64 // from, to
}

// replaySettlement replays one settlement. Its cases may be in any order; a result without a case has no evidence.
func (p *replayer) replaySettlement(k ledger.StoredSettlement) error {
	results := k.Results
	p.summary.Addresses += int64(results.Len())
	places := make(map[int64]int, results.Len())
	for i, ordinal := range results.Ordinals {
		places[ordinal] = i
	}
	return eachCase(k, func(e smtpevidence.Entry) error {
		i, settled := places[e.Ordinal]
		if !settled {
			return fmt.Errorf("ordinal %d was not settled with it: %w", e.Ordinal, smtpevidence.ErrPacked)
		}
		delete(places, e.Ordinal) // a second case of an address is damage too
		return p.replayAddress(results, i, e.Case)
	})
}

func (p *replayer) replayAddress(results *ledger.Batch, i int, c smtpevidence.Case) error {
	was, why := results.Outcomes[i], results.Reasons[i]
	if o, r := verdict.Conclude(c); o != was || r != why {
		p.summary.Unexplained++
	}
	again, is, because := p.query.Rules.Replay(c)
	p.summary.Replayed++
	switch {
	case was != is:
		p.summary.Outcomes++
		p.moved[was][is]++
	case why != because:
		p.summary.Reasons++
	default:
		p.summary.Same++
		if !p.query.All {
			return nil
		}
	}
	return p.query.Yield(Replayed{Ordinal: results.Ordinals[i], Address: string(results.Email(i)),
		Before: Judged{Verdict{was.String(), why.String()}, deciding(c)},
		After:  Judged{Verdict{is.String(), because.String()}, deciding(again)}})
}

// deciding returns the name of the rule of the last answer that counts.
func deciding(c smtpevidence.Case) string {
	last, _ := c.Last()
	return last.RuleName()
}

func (p *replayer) listChanges() []Change {
	list := []Change{}
	for _, from := range smtp.Outcomes {
		for _, to := range append(smtp.Outcomes[:], smtp.Undecided) {
			if n := p.moved[from][to]; n > 0 {
				list = append(list, Change{from.String(), to.String(), n})
			}
		}
	}
	return list
}
