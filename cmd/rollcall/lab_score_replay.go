package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// replayed is what came of judging the kept evidence of a trial again.
type replayed struct {
	judged  int
	changed int    // outcome or reason is another one
	missing int    // settled without evidence
	first   string // the first that is not as it was, for people
}

// replay judges every attempt of a verification again, from what the ledger keeps,
// and notes in all who is to blame for what stayed unknown.
func (t *trial) replay(ctx context.Context, id uuid.UUID, all []judged) (r replayed, err error) {
	rules := verdict.Builtin()
	_, err = t.node.Book.Evidence(ctx, id, 0, func(k ledger.Kept) error {
		of := make(map[int64]ledger.Result, k.Results.Len())
		for i := range k.Results.Len() {
			result := k.Results.Result(i)
			of[result.Ordinal] = result
		}
		if len(k.Evidence) > 0 {
			err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
				was, settled := of[e.Ordinal]
				if !settled || e.Ordinal >= int64(len(all)) {
					return fmt.Errorf("there is evidence for ordinal %d, which was not settled with it", e.Ordinal)
				}
				delete(of, e.Ordinal)
				r.again(rules, was, e.Case, &all[e.Ordinal])
				return nil
			})
			if err != nil {
				return err
			}
		}
		r.missing += len(of)
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("judge the evidence again: %w", err)
	}
	return r, nil
}

// again judges one case.
func (r *replayed) again(rules *verdict.Rules, was ledger.Result, c evidence.Case, j *judged) {
	r.judged++
	if last, asked := c.Last(); asked && j.outcome == smtp.Unknown {
		j.blame = last.Blame
	}
	_, outcome, reason := rules.Replay(c)
	if outcome == was.Outcome && reason == was.Reason && was.Email == j.address {
		return
	}
	if r.changed++; r.first == "" {
		r.first = fmt.Sprintf("%s: was %v %v, is %v %v", j.personality, was.Outcome, was.Reason, outcome, reason)
	}
}
