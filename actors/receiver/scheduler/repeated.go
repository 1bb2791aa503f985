package scheduler

import (
	"strings"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

const (
	// repeatedMax bounds the replies that a session remembers. Beyond it all are forgotten: who says something
	// else each time repeats nothing.
	repeatedMax = 64

	// repeatedBytes bounds each of them: 64 KB of texts a session. Few say more to each address.
	repeatedBytes = 512
)

// Repeated gives the judgements on the replies that one session gets to RCPT: what is said again is judged
// once. One host, one source and one set of rules make what was said of one address hold for the next, if it
// is not named in it. The zero value is ready; for one goroutine.
type Repeated struct {
	rules *verdict.Rules
	known map[replyKey]*Judgement
}

// replyKey tells replies apart.
type replyKey struct {
	code     int
	enhanced smtp.EnhancedCode
	text     string
}

// Judge judges the answer to an address. Raw makes what Options.Judge takes of it.
func (k *Repeated) Judge(o *Options, address smtp.Address, one smtp.Answer, raw func() evidence.Raw) Judgement {
	rules := o.Rules()
	if k.rules != rules {
		k.rules, k.known = rules, nil
	}
	key := replyKey{one.Reply.Code, one.Reply.Enhanced, strings.Join(one.Reply.Lines, "\n")}
	if told := k.known[key]; told != nil && evidence.SameFor(told.Attempt.Text, address) {
		again := *told
		again.Attempt.At = one.At.Truncate(time.Millisecond)
		return again
	}
	told := o.judgeBy(rules, raw())
	if key.code != 0 && len(key.text) <= repeatedBytes && evidence.Whole(told.Attempt.Text) && !told.Attempt.Wide {
		if k.known == nil || len(k.known) == repeatedMax {
			k.known = map[replyKey]*Judgement{}
		}
		kept := told
		k.known[key] = &kept
	}
	return told
}
