package scheduler

import (
	"time"

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

// wasAsked says whether there was an attempt.
func (v *Judgement) wasAsked() bool { return v.Attempt != (evidence.Attempt{}) }

// isPermanent says whether the receiver answered with a 5xx.
func (v *Judgement) isPermanent() bool { return v.Attempt.Code/100 == 5 }

// isAccepted says whether the receiver answered with a 2xx.
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
	Probe *Probe
	Told  Judgement // with code 0 when it could not be asked
	Sent  time.Time
	At    time.Time
	Nth   int // RCPT of its transaction, from 1

	told   int           // answers of its session before it
	waited time.Duration // for it alone: since its group was sent, or the answer before it was there
}

// Report is what comes back from a session that was given probes.
type Report struct {
	ID       int
	Answered []Answered
	Rest     []*Probe   // not asked, or asked without a usable answer
	OnWire   int        // of rest, how many were on the wire when the session stopped
	Refused  int        // 5xx replies, those to rest among them
	Failure  *Judgement // why the session ended; nil while it goes on
	Cut      bool       // the receiver ended it: 421 or a lost connection
	Stale    bool       // it was found closed when it should have been used again
	Poisoned bool       // answers from here on would be void
}

// EndsBatch reports whether an answer ends what its session was given.
// One that may be about more than its address does: what comes next is to be chosen anew.
func EndsBatch(told *Judgement) bool {
	v := &told.Verdict
	return stopsSession(v.Action) || v.Outcome == smtp.Undecided && told.Attempt.Code != 0
}

// stopsSession says whether an action makes the next RCPT of this session wrong.
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
