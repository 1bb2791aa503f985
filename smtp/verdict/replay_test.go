package verdict

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// asNoted is an attempt at RCPT with the verdict of the rules of now.
func asNoted(code int, enhanced smtp.EnhancedCode, text string) evidence.Attempt {
	a := evidence.Attempt{At: time.UnixMilli(1_763_000_000_000).UTC(), Stage: smtp.StageRcpt,
		Host: "mx.example.test", Code: code, Enhanced: enhanced, Text: text}
	Builtin().Decide(&a)
	return a
}

// asOlder is an attempt as other rules took it.
func asOlder(a evidence.Attempt, o smtp.Outcome, r smtp.Reason) evidence.Attempt {
	a.Outcome, a.Reason, a.Blame, a.Rule, a.Version = o, r, smtp.BlameNobody, "older", 7
	return a
}

// TestReplayJudgesAnew: a replay judges anew what depends on rules, and keeps the rest.
func TestReplayJudgesAnew(t *testing.T) {
	good := asNoted(250, smtp.EnhancedCode{}, "ok")
	missing := asNoted(550, smtp.EnhancedCode{5, 1, 1}, "user unknown")
	hidden := asOlder(missing, smtp.Undecided, smtp.Policy)
	blind := asOlder(good, smtp.Undecided, smtp.Policy)
	void := good
	void.Void = true
	busy := asNoted(550, smtp.EnhancedCode{}, "blocked using a list")
	list := func(a ...evidence.Attempt) []evidence.Attempt { return a }
	for name, c := range map[string]struct {
		is        evidence.Case
		outcome   smtp.Outcome
		reason    smtp.Reason
		behaviour [2]int
	}{
		"a refusal that was taken for a policy": {evidence.Case{Attempts: list(hidden), GaveUp: true},
			smtp.Invalid, smtp.MailboxNotFound, [2]int{}},
		"an outcome that these rules would not have given": {evidence.Case{
			Attempts: list(asOlder(asNoted(450, smtp.EnhancedCode{}, "greylisted"), smtp.Invalid, smtp.Policy))},
			smtp.Undecided, smtp.ReasonNone, [2]int{}},
		"a void answer stays void": {evidence.Case{Attempts: list(void), GaveUp: true, Why: smtp.HarvestGuard},
			smtp.Unknown, smtp.HarvestGuard, [2]int{}},
		"no route": {evidence.Case{NoRoute: smtp.NoMailService}, smtp.Invalid, smtp.NoMailService, [2]int{}},
		"controls that were taken for a policy": {evidence.Case{Attempts: list(good),
			Behaviour: evidence.AcceptBehaviour{Accepted: 1, Controls: list(good, blind, blind)}},
			smtp.CatchAll, smtp.AcceptAll, [2]int{3, 0}},
		"a control that was taken for nothing": {evidence.Case{Attempts: list(good),
			Behaviour: evidence.AcceptBehaviour{Refused: 1, Accepted: 3,
				Controls: list(asOlder(missing, smtp.Undecided, smtp.Policy), good)}},
			smtp.Valid, smtp.MailboxExists, [2]int{3, 2}},
		"controls of other runs still count": {evidence.Case{Attempts: list(good),
			Behaviour: evidence.AcceptBehaviour{Refused: 2}}, smtp.Valid, smtp.MailboxExists, [2]int{0, 2}},
		"a void control shows nothing": {evidence.Case{Attempts: list(good), GaveUp: true,
			Behaviour: evidence.AcceptBehaviour{Controls: list(void)}}, smtp.Unknown, smtp.MailboxExists, [2]int{}},
		"counts that do not fit their controls": {evidence.Case{Attempts: list(good), GaveUp: true,
			Behaviour: evidence.AcceptBehaviour{Controls: list(asOlder(asNoted(450, smtp.EnhancedCode{}, "later"), smtp.Invalid,
				smtp.MailboxNotFound), asOlder(busy, smtp.Invalid, smtp.MailboxNotFound))}},
			smtp.Unknown, smtp.MailboxExists, [2]int{}},
	} {
		before := evidence.Case{Attempts: slices.Clone(c.is.Attempts), Omitted: c.is.Omitted, NoRoute: c.is.NoRoute,
			Hosts: c.is.Hosts, Behaviour: c.is.Behaviour, GaveUp: c.is.GaveUp, Why: c.is.Why}
		before.Behaviour.Controls = slices.Clone(c.is.Behaviour.Controls)
		after, outcome, reason := Builtin().Replay(c.is)
		effort.ErrorIf(t, outcome != c.outcome || reason != c.reason || after.Behaviour.Accepted != c.behaviour[0] ||
			after.Behaviour.Refused != c.behaviour[1], "%s: got %v %v and %+v", name, outcome, reason, after.Behaviour)
		effort.Same(t, c.is, before, name, "the case was changed: , was")
		again, o, r := Builtin().Replay(after)
		effort.ErrorIf(t, o != outcome || r != reason || !reflect.DeepEqual(again, after),
			"%s: replayed twice: %+v, %v %v", name, again, o, r)
	}
}

// TestReplayByTheSameRulesChangesNothing: a verdict is a function of its evidence.
func TestReplayByTheSameRulesChangesNothing(t *testing.T) {
	cases := max(effort.Cases(20_000), 5_000)
	r := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "ok", "user unknown", "no such user", "greylisted, try later", "blocked using a list",
		"mailbox full", "mailbox unavailable", "access denied", "relay access denied", "too many recipients", "\xff\x00"}
	attempt := func() evidence.Attempt {
		a := evidence.Attempt{At: time.UnixMilli(r.Int64N(1 << 40)).UTC(), Stage: smtp.Stage(r.IntN(8)),
			Host: []string{"", "mx.example.test", "aspmx.l.google.com"}[r.IntN(3)], TLS: r.IntN(2) == 0,
			Wide: r.IntN(9) == 0, Void: r.IntN(9) == 0, Witness: r.IntN(9) == 0}
		if r.IntN(5) == 0 {
			a.Trouble = evidence.Trouble(r.IntN(9))
		} else {
			a.Code = []int{220, 250, 251, 252, 421, 450, 451, 452, 521, 550, 551, 552, 553, 554, 556}[r.IntN(15)]
			a.Enhanced = smtp.EnhancedCode{uint16(a.Code / 100), uint16(r.IntN(8)), uint16(r.IntN(12))}
			a.Text = texts[r.IntN(len(texts))]
		}
		Builtin().Decide(&a)
		return a
	}
	outcomes := map[smtp.Outcome]int{}
	for n := range cases {
		c := evidence.Case{Hosts: r.IntN(3), GaveUp: r.IntN(2) == 0, Behaviour: evidence.AcceptBehaviour{Accepted: r.IntN(6)}}
		for range r.IntN(5) {
			c.Add(attempt())
		}
		for range r.IntN(4) {
			c.Behaviour.Controls = append(c.Behaviour.Controls, attempt())
		}
		counted := Controls(&c.Behaviour)
		c.Behaviour.Accepted, c.Behaviour.Refused = c.Behaviour.Accepted+counted.Accepted, counted.Refused
		if r.IntN(20) == 0 {
			c.NoRoute = []smtp.Reason{smtp.DomainNotFound, smtp.NoMailService, smtp.DNSFailed}[r.IntN(3)]
		}
		outcome, reason := Conclude(c)
		after, o, why := Builtin().Replay(c)
		effort.FatalIf(t, o != outcome || why != reason || !reflect.DeepEqual(after.Behaviour, c.Behaviour),
			"case %d: %+v gave %v %v, and %v %v again", n, c, outcome, reason, o, why)
		outcomes[o]++
	}
	effort.ErrorIf(t, len(outcomes) < 5, "only %v came about", outcomes)
}

// FuzzReplay: whatever is stored can be replayed, and what was replayed is replayed to the same.
func FuzzReplay(f *testing.F) {
	missing := asNoted(550, smtp.EnhancedCode{5, 1, 1}, "user unknown")
	good := asNoted(250, smtp.EnhancedCode{}, "ok")
	for _, c := range []evidence.Case{{}, {NoRoute: smtp.DNSFailed, GaveUp: true},
		{Attempts: []evidence.Attempt{asOlder(missing, smtp.Undecided, smtp.Policy), missing}, Hosts: 1},
		{Attempts: []evidence.Attempt{good}, Behaviour: evidence.AcceptBehaviour{Accepted: 2, Refused: 1,
			Controls: []evidence.Attempt{good, missing}}},
	} {
		packed := effort.Must(evidence.Pack([]evidence.Entry{{Ordinal: 3, Case: c}}))(f)
		f.Add(packed)
	}
	rules := Builtin()
	f.Fuzz(func(t *testing.T, packed []byte) {
		_ = evidence.Unpack(packed, func(e evidence.Entry) error {
			once, outcome, reason := rules.Replay(e.Case)
			twice, o, r := rules.Replay(once)
			effort.ErrorIf(t, o != outcome || r != reason || !reflect.DeepEqual(once, twice),
				"%+v: %v %v, then %v %v", e.Case, outcome, reason, o, r)
			c, _ := Conclude(once)
			effort.ErrorIf(t, c != outcome, "%+v concludes %v, was replayed to %v", once, c, outcome)
			return nil
		})
	})
}

// TestControl: only an answer about that very mailbox shows something.
func TestControl(t *testing.T) {
	for _, c := range []struct {
		name    string
		stage   smtp.Stage
		code    int
		outcome smtp.Outcome
		reason  smtp.Reason
		void    bool
		want    [2]bool
	}{
		{"accepted", smtp.StageRcpt, 250, smtp.Valid, smtp.MailboxExists, false, [2]bool{true, false}},
		{"answered to nobody", smtp.StageRcpt, 252, smtp.CatchAll, smtp.NoRcptAnswer, false, [2]bool{true, false}},
		{"accepted and void", smtp.StageRcpt, 250, smtp.Valid, smtp.MailboxExists, true, [2]bool{}},
		{"refused, so it exists", smtp.StageRcpt, 450, smtp.Valid, smtp.MailboxBusy, false, [2]bool{}},
		{"refused for its list", smtp.StageRcpt, 550, smtp.CatchAll, smtp.MailboxRestricted, false, [2]bool{}},
		{"missing", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxNotFound, false, [2]bool{false, true}},
		{"disabled", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxDisabled, false, [2]bool{false, true}},
		{"full", smtp.StageRcpt, 552, smtp.Invalid, smtp.MailboxFull, false, [2]bool{false, true}},
		{"missing and void", smtp.StageRcpt, 550, smtp.Invalid, smtp.MailboxNotFound, true, [2]bool{}},
		{"missing for now", smtp.StageRcpt, 450, smtp.Invalid, smtp.MailboxNotFound, false, [2]bool{}},
		{"another domain's", smtp.StageRcpt, 550, smtp.Invalid, smtp.DomainNotHosted, false, [2]bool{}},
		{"no mail at all", smtp.StageRcpt, 556, smtp.Invalid, smtp.NoMailService, false, [2]bool{}},
		{"not at RCPT", smtp.StageMail, 250, smtp.Valid, smtp.MailboxExists, false, [2]bool{}},
		{"again", smtp.StageRcpt, 450, smtp.Undecided, smtp.Greylisted, false, [2]bool{}},
	} {
		accepted, refused := Control(evidence.Attempt{Stage: c.stage, Code: c.code, Outcome: c.outcome,
			Reason: c.reason, Void: c.void})
		effort.Is(t, [2]bool{accepted, refused}, c.want, c.name)
	}
}
