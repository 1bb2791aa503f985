package scheduler

import (
	"sync"
	"time"

	"rollcall/actors/facts"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// Judgement is an attempt, with the verdict of the rules on it.
type Judgement struct {
	Verdict verdict.Verdict
	Attempt evidence.Attempt // the zero value: nothing was asked
	NoHELO  bool             // EHLO was refused, and HELO not tried: see smtp.Failure
	Lost    bool             // our system gave the connection up
}

// isUnanswered reports whether the receiver has said nothing, and ended nothing: nothing came in time.
func (v *Judgement) isUnanswered() bool {
	return v.Lost || v.Attempt.Trouble == evidence.TroubleTimeout
}

func (v *Judgement) wasAsked() bool { return v.Attempt != (evidence.Attempt{}) }

func (v *Judgement) isPermanent() bool { return v.Attempt.Code/100 == 5 }

func (v *Judgement) isAccepted() bool { return v.Attempt.Code/100 == 2 }

// Judge turns a raw answer into an attempt, and judges it.
func (o *Options) Judge(r evidence.Raw) Judgement { return o.judgeBy(o.Rules(), r) }

// judgeBy is Judge with given rules.
func (o *Options) judgeBy(rules *verdict.Rules, r evidence.Raw) Judgement {
	judgement := Judgement{Attempt: evidence.Note(r)}
	judgement.Verdict = rules.Decide(&judgement.Attempt)
	if !judgement.Verdict.Named {
		judgement.Verdict.Wait = o.scaleHour(judgement.Verdict.Wait)
	}
	return judgement
}

// Answered is one probe of a session and its result.
type Answered struct {
	Probe     *Probe
	Judgement Judgement // code 0: the address couldn't be asked
	Sent      time.Time
	At        time.Time
	Nth       int           // place in its transaction, from 1
	Led       time.Duration // see smtp.Answer

	answers int           // how many answers the session had before
	waited  time.Duration // time since the group was sent, or since the answer before
}

// answeredPages hold the Answered of finished reports for reuse.
var answeredPages = sync.Pool{New: func() any { return new([workMax]Answered) }}

// MakeAnswered makes room for n answers of one Report.
func MakeAnswered(n int) []Answered {
	if n > workMax {
		return make([]Answered, 0, n)
	}
	return answeredPages.Get().(*[workMax]Answered)[:0]
}

// Free recycles the room of MakeAnswered, when the report was used.
func (r *Report) Free() {
	if page := r.Answered[:cap(r.Answered)]; len(page) == workMax {
		clear(page)
		answeredPages.Put((*[workMax]Answered)(page))
	}
	r.Answered = nil
}

// Report is a session's answer to the probes that it was given.
type Report struct {
	ID           int
	Answered     []Answered
	Unanswered   []*Probe   // probes that were not asked, or got no usable answer
	OnWire       int        // unanswered probes that were on the wire when the session stopped
	Refused      int        // 5xx replies, also to unanswered probes
	Transactions int        // begun
	Failure      *Judgement // why the session ended; nil: the session stays open
	Cut          bool       // the receiver ended the session, with 421 or by closing it
	Stale        bool       // the session was found closed when used again
	Poisoned     bool       // answers from here on don't count
}

// EndsBatch reports whether an answer may be about more than its address. Such an answer ends the session's batch, so
// that the next probes are chosen anew.
func EndsBatch(judgement *Judgement) bool {
	v := &judgement.Verdict
	return stopsSession(v.Action) || v.Outcome == smtp.Undecided && judgement.Attempt.Code != 0
}

// stopsSession reports whether an action forbids the next RCPT of this session.
func stopsSession(a verdict.Action) bool {
	switch a {
	case verdict.ActSlow, verdict.ActPause, verdict.ActOtherSource, verdict.ActTLS, verdict.ActSplit,
		verdict.ActVoid:
		return true
	}
	return false
}

// again returns the verdict "ask again" with a reason.
func again(r smtp.Reason, rule string) verdict.Verdict {
	return verdict.Verdict{Reason: r, Blame: smtp.BlameReceiver, Action: verdict.ActRetry, Rule: rule}
}

// judgeRecalled judges a stored attempt. The outcome is always "ask again", because the answer was about another
// address.
func (o *Options) judgeRecalled(m facts.Attempt) Judgement {
	judgement := Judgement{Attempt: m.Evidence()}
	judgement.Verdict = o.Rules().Decide(&judgement.Attempt)
	if judgement.Verdict.Outcome != smtp.Undecided || m.At == 0 {
		return Judgement{Verdict: again(smtp.ReceiverRateLimited, "recalled")}
	}
	judgement.Verdict.Action, judgement.Verdict.Wait = verdict.ActRetry, 0
	return judgement
}

// repeatedMax bounds the replies that a session remembers: 60 KB at worst. At the bound it forgets them all, because
// its receiver hardly repeats itself.
const repeatedMax = 64

// Repeated judges the replies to RCPT in one session. Repeated judges a repeated reply once, because host, source and
// rules are the same. The verdict holds for the next address too, unless the text names the address. The zero value is
// ready; for one goroutine.
type Repeated struct {
	rules *verdict.Rules
	known map[replyKey]*Judgement
	text  []byte // text of the reply; reused
}

type replyKey struct {
	code     int
	enhanced smtp.EnhancedCode
	text     string
}

// Judge judges the answer to an address. raw returns the argument for Options.Judge.
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
	judgement := k.known[replyKey{one.Reply.Code, one.Reply.Enhanced, string(text)}]
	if judgement != nil && evidence.SameFor(judgement.Attempt.Text, address) {
		again := *judgement
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
