package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

// judge gives the replies of a receiver that candidate rules would judge otherwise.
func (t *tank) judge(o ReplayOptions) []VerdictChange {
	if o.NowRules == nil || o.CandidateRules == nil {
		return nil
	}
	type change struct{ text, now, would string }
	times := map[change]int{}
	var order []change
	for i := range t.replies {
		h := &t.replies[i]
		a := attemptOf(h)
		now, would := o.NowRules.Judge(a), o.CandidateRules.Judge(a)
		if same(now, would) {
			continue
		}
		c := change{sampleOf(h), worded(now), worded(would)}
		if times[c] == 0 {
			order = append(order, c)
		}
		times[c] += h.Times
	}
	var out []VerdictChange
	for _, c := range order {
		out = append(out, VerdictChange{Receiver: t.key, Sample: c.text, Times: times[c], Now: c.now,
			Would: c.would})
	}
	return out
}

// attemptOf makes the attempt of what was kept of it.
func attemptOf(h *Heard) evidence.Attempt {
	a := evidence.Attempt{Stage: smtp.Stage(h.Stage), Host: h.Host, TLS: h.TLS, Code: h.Code, Text: h.Text,
		Trouble: evidence.Trouble(h.Trouble)}
	for i, part := range strings.SplitN(h.Enhanced, ".", len(a.Enhanced)) {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			break
		}
		a.Enhanced[i] = uint16(n)
	}
	return a
}

// same reports whether two verdicts come to the same, whatever rule says so.
func same(a, b verdict.Verdict) bool {
	return a.Outcome == b.Outcome && a.Reason == b.Reason && a.Blame == b.Blame && a.Action == b.Action &&
		a.Wait == b.Wait
}

// worded is a verdict as people read it.
func worded(v verdict.Verdict) string {
	did := v.Outcome.String()
	if !v.Outcome.Final() {
		did = v.Action.String()
	}
	text := fmt.Sprintf("%s: %s, %s", v.Rule, did, v.Reason)
	if v.Wait > 0 {
		text += fmt.Sprintf(", wait %s", v.Wait.Round(time.Second))
	}
	return text
}

// sampleOf is a reply as people read it.
func sampleOf(h *Heard) string {
	if h.Code == 0 {
		return evidence.Trouble(h.Trouble).String() + " at " + smtp.Stage(h.Stage).String()
	}
	return strings.TrimSpace(strings.Join([]string{strconv.Itoa(h.Code), h.Enhanced, h.Text}, " "))
}
