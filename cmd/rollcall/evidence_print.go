package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/smtp"
)

// printEvidence writes a finding within 80 columns.
func printEvidence(w io.Writer, f admin.Explanation) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-*s%s\n", term.NameWidth, name, term.Folded(fmt.Sprintf(format, args...), term.NameWidth))
	}
	line("verification", "%s, %s", f.Verification, f.Status)
	line("address", "%s", f.Address)
	line("outcome", "%s: %s", f.Outcome, f.Message)
	line("settled", "%s, in settlement %s, as address %s of the file", term.Stamp(time.Time(f.SettledAt)),
		term.Grouped(f.Settlement), term.Grouped(f.Ordinal+1))
	if c := f.Case; c != nil {
		for _, text := range routeLines(*c) {
			line("route", "%s", text)
		}
		if text := habitLine(*c, time.Time(f.At)); text != "" {
			line("domain", "%s", text)
		}
		if c.GaveUp {
			line("given up", "%s", gaveUpLine(*c))
		}
		writeAttempts(&b, *c)
	} else {
		b.WriteString("\n" + term.Folded("No evidence was kept with this outcome: it was settled by a version that "+
			"kept none, or the node's log of that time says why.", 0) + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func routeLines(c admin.CaseView) []string {
	switch {
	case c.NoRoute != "":
		return []string{"none, DNS says " + c.NoRoute}
	case c.Hosts == 1:
		return []string{"1 host"}
	case c.Hosts > 1:
		return []string{fmt.Sprintf("%d hosts", c.Hosts)}
	}
	return nil
}

// habitLine says what was known of the domain, how well, and how long before the
// outcome; "" when it does not matter, since nothing was accepted.
func habitLine(c admin.CaseView, judged time.Time) string {
	h := c.Habit
	asked := h.Accepted + h.Refused
	if asked == 0 {
		accepted := func(a admin.AttemptView) bool { return a.Outcome == smtp.Valid.String() }
		if !slices.ContainsFunc(c.Attempts, accepted) {
			return ""
		}
		return "not known whether it accepts every address: no control address was answered"
	}
	text := fmt.Sprintf("%d of %d control addresses accepted", h.Accepted, asked)
	if h.First != nil && h.Last != nil {
		first, last := time.Time(*h.First), time.Time(*h.Last)
		if span := last.Sub(first); span > 0 {
			text += " over " + term.Rough(span)
		}
		text += ", the last at " + term.Stamp(last)
		if age := judged.Sub(last); age >= time.Second {
			text += ", " + term.Rough(age) + " before the outcome"
		}
	}
	switch {
	case h.Accepts == nil:
		return text + ": too few to say whether it accepts every address"
	case *h.Accepts:
		return text + ": it accepts every address"
	}
	return text + ": it tells mailboxes apart"
}

func gaveUpLine(c admin.CaseView) string {
	if c.Why != "" {
		return "because of " + c.Why
	}
	return "because of what the last attempt says"
}

// attemptIndent is where what belongs to an attempt stands.
const attemptIndent = 4

func writeAttempts(b *strings.Builder, c admin.CaseView) {
	if len(c.Attempts) == 0 {
		b.WriteString("\nno attempt was made\n")
	} else {
		writeAttemptTable(b, "ATTEMPT", c.Attempts)
	}
	if c.Omitted > 0 {
		fmt.Fprintf(b, "\n%s\n", term.Folded(fmt.Sprintf("%s attempts behind the first ones are left out.",
			term.Grouped(int64(c.Omitted))), 0))
	}
	if len(c.Habit.Controls) > 0 {
		writeAttemptTable(b, "CONTROL OR WITNESS", c.Habit.Controls)
	}
}

func writeAttemptTable(b *strings.Builder, title string, list []admin.AttemptView) {
	fmt.Fprintf(b, "\n%-26s%-10s%-5s%-6s%-10s%s\n", title, "STAGE", "TLS", "CODE", "ENHANCED", "TAKEN FOR")
	for _, a := range list {
		writeAttempt(b, a)
	}
}

func writeAttempt(b *strings.Builder, a admin.AttemptView) {
	tls, code := "no", "-"
	if a.TLS {
		tls = "yes"
	}
	if a.Code > 0 {
		code = fmt.Sprint(a.Code)
	}
	outcome := a.Outcome
	if outcome == "undecided" {
		outcome = "ask again"
	}
	fmt.Fprintf(b, "%-26s%-10s%-5s%-6s%-10s%s\n", term.Stamp(time.Time(a.At)), a.Stage, tls, code,
		term.Dash(a.Enhanced), outcome)
	under := func(format string, args ...any) {
		text := term.Folded(fmt.Sprintf(format, args...), attemptIndent)
		fmt.Fprintf(b, "%*s%s\n", attemptIndent, "", text)
	}
	where := "host " + term.Dash(a.Host)
	if a.Source != "" {
		where += ", from " + a.Source
	}
	under("%s", where)
	by := "by no rule"
	if a.Rule != "" {
		by = "by rule " + a.Rule
	}
	under("%s, to blame: %s, %s", a.Reason, a.Blame, by)
	if a.Others {
		under("not about this address: others were told so, and it had to wait")
	}
	if c := a.Cause; c != nil {
		under("believed to be about %s: %s", scopeWords(c.Scope), c.Why)
	}
	if a.Bare {
		under("the words could mean us too: believed only beside another address of the domain that is accepted")
	}
	if a.Witness {
		under("a witness: another address of the domain, which was accepted before")
	}
	if a.Void {
		under("void: the session was poisoned, or a guard at work")
	}
	switch {
	case a.Text != "":
		under("%q", a.Text)
	case a.Trouble != "":
		under("no reply: %s", a.Trouble)
	}
}

// scopeWords names the scope of a cause for people.
func scopeWords(scope string) string {
	switch scope {
	case "address":
		return "this address alone"
	case "domain":
		return "its mail domain"
	case "list":
		return "one customer's list"
	case "source":
		return "our source at this receiver"
	case "receiver":
		return "the whole receiver"
	}
	return term.Dash(scope)
}
