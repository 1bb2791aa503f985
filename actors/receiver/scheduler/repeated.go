package scheduler

import (
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// repeatedMax bounds the replies that a session remembers, some 60 KB at worst. Beyond it all are forgotten: who says
// something else each time repeats nothing.
const repeatedMax = 64

// Repeated gives the judgements on the replies that one session gets to RCPT: what is said again is judged
// once. One host, one source and one set of rules make what was said of one address hold for the next, if it
// is not named in it otherwise. The zero value is ready; for one goroutine.
type Repeated struct {
	rules *verdict.Rules
	known map[replyKey]*Judgement
	text  []byte // of the reply, used again
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
	text, named, ok := evidence.AppendKey(k.text[:0], one.Reply, address)
	k.text = text
	if !ok {
		return o.judgeBy(rules, raw())
	}
	told := k.known[replyKey{one.Reply.Code, one.Reply.Enhanced, string(text)}]
	if told != nil && evidence.SameFor(told.Attempt.Text, address) {
		again := *told
		again.Attempt.At = one.At.Truncate(time.Millisecond)
		return again
	}
	judged := o.judgeBy(rules, raw())
	if evidence.IsWhole(judged.Attempt.Text, named) {
		if k.known == nil || len(k.known) == repeatedMax {
			k.known = map[replyKey]*Judgement{}
		}
		kept := judged
		k.known[replyKey{one.Reply.Code, one.Reply.Enhanced, string(text)}] = &kept
	}
	return judged
}
