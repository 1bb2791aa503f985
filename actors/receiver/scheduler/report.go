package scheduler

import (
	"sync"
	"time"

	"rollcall/actors/receiver/state"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// Judgement is an attempt and what the rules make of it.
type Judgement struct {
	Verdict verdict.Verdict
	Attempt evidence.Attempt // its zero value: nothing was asked
	NoHELO  bool             // EHLO was refused, and what HELO gets is not known: see smtp.Failure
}

// wasAsked reports whether there was an attempt.
func (v *Judgement) wasAsked() bool { return v.Attempt != (evidence.Attempt{}) }

// isPermanent reports whether the receiver answered with a 5xx.
func (v *Judgement) isPermanent() bool { return v.Attempt.Code/100 == 5 }

// isAccepted reports whether the receiver answered with a 2xx.
func (v *Judgement) isAccepted() bool { return v.Attempt.Code/100 == 2 }

// Judge makes an attempt of a raw answer and judges it.
func (o *Options) Judge(r evidence.Raw) Judgement { return o.judgeBy(o.Rules(), r) }

// judgeBy is Judge by certain rules.
func (o *Options) judgeBy(rules *verdict.Rules, r evidence.Raw) Judgement {
	told := Judgement{Attempt: evidence.Note(r)}
	told.Verdict = rules.Decide(&told.Attempt)
	if !told.Verdict.Named {
		told.Verdict.Wait = o.scaleHour(told.Verdict.Wait)
	}
	return told
}

// Answered is one probe that a session has dealt with, and what came of it.
type Answered struct {
	Probe     *Probe
	Judgement Judgement // with code 0 when it could not be asked
	Sent      time.Time
	At        time.Time
	Nth       int           // RCPT of its transaction, from 1
	Led       time.Duration // as smtp.Answer has it

	told   int           // answers of its session before it
	waited time.Duration // for it alone: since its group was sent, or the answer before it was there
}

// answeredPages are the Answered of reports that were taken, for others.
var answeredPages = sync.Pool{New: func() any { return new([workMax]Answered) }}

// MakeAnswered makes room for the answers to n probes that a session was given, for one Report.
func MakeAnswered(n int) []Answered {
	if n > workMax {
		return make([]Answered, 0, n)
	}
	return answeredPages.Get().(*[workMax]Answered)[:0]
}

// Free gives the room back that MakeAnswered made, when nothing of the report is needed any more.
func (r *Report) Free() {
	if page := r.Answered[:cap(r.Answered)]; len(page) == workMax {
		clear(page)
		answeredPages.Put((*[workMax]Answered)(page))
	}
	r.Answered = nil
}

// Report is what comes back from a session that was given probes.
type Report struct {
	ID         int
	Answered   []Answered
	Unanswered []*Probe   // not asked, or asked without a usable answer
	OnWire     int        // of rest, how many were on the wire when the session stopped
	Refused    int        // 5xx replies, those to rest among them
	Failure    *Judgement // why the session ended; nil while it goes on
	Cut        bool       // the receiver ended it: 421 or a lost connection
	Stale      bool       // it was found closed when it should have been used again
	Poisoned   bool       // answers from here on would be void
}

// EndsBatch reports whether an answer ends what its session was given.
// One that may be about more than its address does: what comes next is to be chosen anew.
func EndsBatch(told *Judgement) bool {
	v := &told.Verdict
	return stopsSession(v.Action) || v.Outcome == smtp.Undecided && told.Attempt.Code != 0
}

// stopsSession reports whether an action makes the next RCPT of this session wrong.
func stopsSession(a verdict.Action) bool {
	switch a {
	case verdict.ActSlow, verdict.ActPause, verdict.ActOtherSource, verdict.ActTLS, verdict.ActSplit,
		verdict.ActVoid:
		return true
	}
	return false
}

// again is the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}

// judgeRecalled gives the verdict on what was noted, which is to come back later: what
// the rules of today take for an answer about an address is none for another one.
func (o *Options) judgeRecalled(m state.Attempt) Judgement {
	told := Judgement{Attempt: m.Evidence()}
	told.Verdict = o.Rules().Decide(&told.Attempt)
	if told.Verdict.Outcome != smtp.Undecided || m.At == 0 {
		return Judgement{Verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	told.Verdict.Action, told.Verdict.Wait = verdict.ActRetry, 0
	return told
}

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
