package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// ReplayType is the Content-Type of a replay: one JSON value on each line.
const ReplayType = "application/x-ndjson"

// RulesName stands for a rule file that came in the body of a call, in what is said
// of its faults.
const RulesName = "rules"

const (
	// rulesMax bounds the body with a rule file: twice what verdict.Load takes, for
	// what JSON adds.
	rulesMax = 8 << 20
	// replayBuffer is how much of a replay is sent at once.
	replayBuffer = 32 << 10
)

// ReplayLine is a line of a replay: one of the three.
type ReplayLine struct {
	Address *Replayed      `json:"address,omitempty"`
	Summary *ReplaySummary `json:"summary,omitempty"` // the last line of a replay that came to its end
	Error   *ReplayError   `json:"error,omitempty"`   // the last line of one that did not
}

// ReplayError is why a replay did not come to its end.
type ReplayError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Replayed is one address under other rules.
type Replayed struct {
	Ordinal int64       `json:"ordinal"`
	Address string      `json:"address"`
	Before  ReplayJudge `json:"before"` // as it was settled
	After   ReplayJudge `json:"after"`
}

// ReplayJudge is what was concluded, and by what.
type ReplayJudge struct {
	Verdict
	Rule string `json:"rule"` // of the last answer that counts, id@version; "": there was none
}

// ReplaySummary is what a replay found in all.
type ReplaySummary struct {
	Verification uuid.UUID     `json:"verification"`
	Status       ledger.Status `json:"status"`
	Addresses    int64         `json:"addresses"` // that are settled
	Replayed     int64         `json:"replayed"`  // of them with evidence
	Same         int64         `json:"same"`      // outcome and reason
	Outcomes     int64         `json:"outcomes_changed"`
	Reasons      int64         `json:"reasons_changed"` // and the outcome is the same

	// Unexplained counts outcomes that their own evidence does not give, by the
	// verdicts that were noted with it: 0, or the engine has a fault.
	Unexplained int64 `json:"unexplained"`

	Changes []ReplayChange `json:"changes"` // in the order in which outcomes are shown
}

// ReplayChange counts the addresses that go from one outcome to another.
// "undecided" means that these rules would have gone on asking.
type ReplayChange struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Count  int64  `json:"count"`
}

// Replay judges the evidence of a verification anew and calls yield for each
// address whose outcome or reason would be another one, or for all. It makes no
// connection and writes nothing. Memory holds one settlement at a time.
func Replay(ctx context.Context, book Witness, id uuid.UUID, q ReplayQuery) (ReplaySummary, error) {
	p := replayer{query: q, summary: ReplaySummary{Verification: id}}
	v, err := book.Evidence(ctx, id, 0, p.settlement)
	p.summary.Status = v.Status
	p.summary.Changes = p.changes()
	return p.summary, err
}

// ReplayQuery is by which rules to judge, and what to tell.
type ReplayQuery struct {
	Rules *verdict.Rules
	All   bool // tell what stays the same too
	Yield func(Replayed) error
}

// replayer is one replay.
type replayer struct {
	query   ReplayQuery
	summary ReplaySummary
	moved   [smtp.Error + 1][smtp.Error + 1]int64 // from, to
}

// settlement replays one. Its cases stand in the order of its results, or in any
// other: a result without a case is one without evidence.
func (p *replayer) settlement(k ledger.Kept) error {
	results := k.Results
	p.summary.Addresses += int64(results.Len())
	if len(k.Evidence) == 0 {
		return nil
	}
	places := make(map[int64]int, results.Len())
	for i, ordinal := range results.Ordinals {
		places[ordinal] = i
	}
	err := evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
		i, settled := places[e.Ordinal]
		if !settled {
			return fmt.Errorf("ordinal %d was not settled with it: %w", e.Ordinal, evidence.ErrPacked)
		}
		delete(places, e.Ordinal) // a second case of an address is damage too
		return p.address(results, i, e.Case)
	})
	if err != nil {
		return fmt.Errorf("settlement %d: %w", k.Number, err)
	}
	return nil
}

// address replays result i of a settlement.
func (p *replayer) address(results *ledger.Batch, i int, c evidence.Case) error {
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
		Before: ReplayJudge{Verdict{was.String(), why.String()}, deciding(c)},
		After:  ReplayJudge{Verdict{is.String(), because.String()}, deciding(again)}})
}

// deciding names the rule of the last answer that counts.
func deciding(c evidence.Case) string {
	last, _ := c.Last()
	return RuleName(last.Rule, last.Version)
}

// replay streams a replay by the rules of the node, or by those with a file of the
// caller in front. One at a time: it takes a core for as long as it lasts, and the
// node has other work.
func (s *Server) replay(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Rules string `json:"rules"`
		All   bool   `json:"all"`
	}
	id, ok := verificationID(w, r)
	if !ok || !readMost(w, r, &in, rulesMax) {
		return
	}
	rules := verdict.Builtin()
	if s.options.Rules != nil {
		rules = s.options.Rules()
	}
	if in.Rules != "" {
		var err error
		if rules, err = verdict.Load(RulesName, []byte(in.Rules)); err != nil {
			refuse(w, http.StatusBadRequest, "invalid_rules", err.Error())
			return
		}
	}
	select {
	case s.desk.replays <- struct{}{}:
		defer func() { <-s.desk.replays }()
	default:
		refuse(w, http.StatusConflict, "replay_running", "another replay of this node is running; wait for its end")
		return
	}
	ctx, cancel := s.longCall(r)
	defer cancel()
	out := newReplayWriter(s.long, w)
	q := ReplayQuery{Rules: rules, All: in.All, Yield: func(one Replayed) error {
		return out.line(ReplayLine{Address: &one})
	}}
	summary, err := Replay(ctx, s.options.Book, id, q)
	switch {
	case err == nil:
		err = out.line(ReplayLine{Summary: &summary})
	case !out.begun:
		answer(w, nil, s.desk.ofEvidence("replay", summary.Status, err))
		return
	default:
		_ = out.line(ReplayLine{Error: &ReplayError{"unavailable", "the replay was cut short: ask again"}})
	}
	if err != nil {
		s.options.Log.Warn("replay not finished", "verification", id, "err", err)
	}
}

// replayWriter writes lines, the headers with the first.
type replayWriter struct {
	w     http.ResponseWriter
	lines *bufio.Writer
	begun bool
}

// newReplayWriter makes one that a reader who takes nothing does not hold for ever.
func newReplayWriter(ctx context.Context, w http.ResponseWriter) *replayWriter {
	return &replayWriter{w: w,
		lines: bufio.NewWriterSize(patient{ctx, w, http.NewResponseController(w)}, replayBuffer)}
}

func (o *replayWriter) line(l ReplayLine) error {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", ReplayType)
		o.w.Header().Set("Cache-Control", "no-store")
		o.w.WriteHeader(http.StatusOK)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write a line of a replay: %w", err)
	}
	_, err = o.lines.Write(append(text, '\n'))
	if err == nil && l.Address == nil {
		err = o.lines.Flush()
	}
	return err
}

// changes lists what moved, in the order in which outcomes are shown.
func (p *replayer) changes() []ReplayChange {
	list := []ReplayChange{}
	for _, from := range smtp.Outcomes {
		for _, to := range append(smtp.Outcomes[:], smtp.Undecided) {
			if n := p.moved[from][to]; n > 0 {
				list = append(list, ReplayChange{from.String(), to.String(), n})
			}
		}
	}
	return list
}
