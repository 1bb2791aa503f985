package scheduler

import (
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/actors/wire"
)

// resultsMax bounds one message with results, in bytes without its task: the 64 KB
// of a message less what an envelope and a task take. One answer alone is below
// half of it: evidence.AttemptsMax attempts of evidence.TextMax and some names.
const resultsMax = 60_000

// messages puts answers into as few messages as hold them. What receivers wrote is
// part of these, so their number depends on how much that is.
func messages(answers []answer) []*wire.Results {
	var texts wire.Texts
	r := &wire.Results{Answers: make([]*wire.Answer, len(answers))}
	all, attempts := make([]wire.Answer, len(answers)), 0
	for i := range answers {
		attempts += len(answers[i].attempts)
	}
	texts.Grow(attempts)
	for i := range answers {
		a, m := &answers[i], &all[i]
		m.Ordinal, m.Outcome, m.Reason = a.ordinal, uint32(a.outcome), uint32(a.reason)
		m.WaitMs, m.Attempts, m.Omitted = a.wait.Milliseconds(), texts.Attempts(a.attempts), uint32(a.omitted)
		r.Answers[i] = m
	}
	r.Texts = texts.List()
	if half := len(answers) / 2; half > 0 && proto.Size(r) > resultsMax {
		return append(messages(answers[:half]), messages(answers[half:])...)
	}
	return []*wire.Results{r}
}

// answersOf is the inverse of messages for one of them.
func answersOf(r *wire.Results) []answer {
	out, reader := make([]answer, 0, len(r.GetAnswers())), wire.NewReader(r)
	for _, m := range r.GetAnswers() {
		outcome, reason := m.Verdict()
		out = append(out, answer{ordinal: m.GetOrdinal(), outcome: outcome, reason: reason,
			wait: time.Duration(m.GetWaitMs()) * time.Millisecond, attempts: reader.AttemptsOf(m),
			omitted: int(m.GetOmitted())})
	}
	return out
}
