package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	smtpevidence "rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

func newEvidence(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "evidence VERIFICATION ADDRESS",
		Short: "Show why an address of a verification has its outcome",
		Long: "Show why an address of a verification has its outcome: each attempt, the\n" +
			"receiver's reply, its verdict and the rule for it, and what was known of the domain.\n\n" +
			"ADDRESS is as spelled in the file, or with another spelling of its domain. A named ledger is read\n" +
			"directly. Without one the node of this machine is asked or, when it does not run, its ledger is\n" +
			"read. The first line says which. The evidence is kept as long as the results. The\n" +
			"text of a reply is cleaned: it holds no address and none of our own names.",
	}
	from := addLedgerFlags(c, e)
	return answerWith(c, func(args []string) (found evidenceView, err error) {
		id, err := from.verificationID(c.Context(), args[0])
		if err != nil {
			return found, err
		}
		return findEvidence(c.Context(), from, id, args[1])
	}, func(b *term.Page, found evidenceView) {
		fmt.Fprintf(b, "from %s\n\n", found.Read)
		printEvidence(b, found.Explanation)
	})
}

// verificationID returns the id of a verification for a typed id or the beginning of one.
func (f *ledgerFlags) verificationID(ctx context.Context, typed string) (uuid.UUID, error) {
	return verificationOf(typed, func(ids admin.IDRange) (found []uuid.UUID, err error) {
		err = f.read(ctx, func(to *client.Admin, _ reading) error {
			found, err = to.VerificationsLike(ctx, typed)
			return err
		}, func(book *sqlstore.Store, _ config.Config, _ reading) error {
			found, err = book.VerificationsLike(ctx, ids.From, ids.To, admin.AlikeMax)
			return err
		})
		return found, err
	})
}

// verificationOf returns the typed id, or the only id that begins with the typed text.
func verificationOf(typed string, alike func(admin.IDRange) ([]uuid.UUID, error)) (uuid.UUID, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id, nil
	}
	typed = strings.TrimSuffix(typed, "…")
	ids, ok := admin.RangeOf(typed)
	if !ok {
		return uuid.Nil, term.UsageError(fmt.Sprintf("VERIFICATION %q is not an id: give the UUID in the API, or at "+
			"least its first 4 characters", typed))
	}
	found, err := alike(ids)
	switch {
	case err != nil:
		return uuid.Nil, err
	case len(found) == 0:
		return uuid.Nil, fmt.Errorf("no verification begins with %s", typed)
	case len(found) > 1:
		return uuid.Nil, fmt.Errorf("%d verifications or more begin with %s, such as %s and %s: give more of the id",
			len(found), typed, found[0], found[1])
	}
	return found[0], nil
}

func verificationAt(ctx context.Context, node *client.Admin, typed string) (uuid.UUID, error) {
	return verificationOf(typed, func(admin.IDRange) ([]uuid.UUID, error) { return node.VerificationsLike(ctx, typed) })
}

type evidenceView struct {
	Read reading `json:"read"`
	admin.Explanation
}

func findEvidence(ctx context.Context, from *ledgerFlags, id uuid.UUID, address string) (found evidenceView,
	err error) {
	err = from.read(ctx, func(client *client.Admin, at reading) error {
		found.Read = at
		return client.Call(ctx, http.MethodPost, "/v1/verifications/"+id.String()+"/evidence",
			map[string]string{"address": address}, &found.Explanation)
	}, func(book *sqlstore.Store, _ config.Config, at reading) error {
		found.Read = at
		f, err := evidence.Find(ctx, book, id, address)
		found.Explanation = admin.ExplanationOf(f)
		return whyNot(err, f.Status)
	})
	return found, err
}

// whyNot explains why there is no evidence, and what to do.
func whyNot(err error, status ledger.Status) error {
	for _, refusal := range []error{evidence.ErrNotSettled, ledger.ErrNoSuchVerification, ledger.ErrResultsExpired} {
		if errors.Is(err, refusal) {
			_, message := admin.WhyNoEvidence(err, status)
			return errors.New(client.InCommands(message))
		}
	}
	return err
}

func printEvidence(b *term.Page, f admin.Explanation) {
	line := b.Field
	line("verification", "%s, %s", f.Verification, f.Status)
	line("address", "%s", f.Address)
	line("outcome", "%s: %s", f.Outcome, f.Message)
	line("settled", "%s, in settlement %s, as address %s of the file", term.Stamp(time.Time(f.SettledAt)),
		term.Grouped(f.Settlement), term.Grouped(f.Ordinal+1))
	if c := f.Case; c != nil {
		switch {
		case c.NoRoute != "":
			line("route", "none, DNS says %s", c.NoRoute)
		case c.Hosts > 0:
			line("route", "%s", term.Counted(c.Hosts, "host"))
		}
		line("domain", "%s", behaviourLine(*c, time.Time(f.At)))
		if c.GaveUp {
			line("given up", "because of %s", cmp.Or(c.Why, "what the last attempt says"))
		}
		writeAttempts(b, *c)
	} else {
		b.Notes("No evidence was kept with this outcome: either an older version settled it, or the node's log of " +
			"that time says why.")
	}
}

// behaviourLine describes the domain's accept behaviour, how certain it was, and how old when the outcome was judged.
// It returns "" if nothing was accepted, because then the behaviour does not matter.
func behaviourLine(c admin.CaseView, judged time.Time) string {
	h := c.Behaviour
	asked := h.Accepted + h.Refused
	if asked == 0 {
		accepted := func(a admin.AttemptView) bool { return a.Outcome == smtp.Valid.String() }
		if !slices.ContainsFunc(c.Attempts, accepted) {
			return ""
		}
		return "unknown whether it accepts every address: no control probe was answered"
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

const attemptIndent = 4

func writeAttempts(b *term.Page, c admin.CaseView) {
	if len(c.Attempts) == 0 {
		b.WriteString("\nno attempt was made\n")
	} else {
		writeAttemptTable(b, "ATTEMPT", c.Attempts)
	}
	if c.Omitted > 0 {
		b.Notes(term.Grouped(c.Omitted) + " later attempts are left out.")
	}
	if len(c.Behaviour.Controls) > 0 {
		writeAttemptTable(b, "CONTROL OR WITNESS", c.Behaviour.Controls)
	}
}

func writeAttemptTable(b *term.Page, title string, list []admin.AttemptView) {
	fmt.Fprintf(b, "\n%-26s%-10s%-5s%-6s%-10s%s\n", title, "STAGE", "TLS", "CODE", "ENHANCED", "TAKEN FOR")
	for _, a := range list {
		writeAttempt(b, a)
	}
}

func writeAttempt(b *term.Page, a admin.AttemptView) {
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
		term.Dash(a.Enhanced), b.Mark("", outcome))
	under := func(format string, args ...any) { b.Para(attemptIndent, format, args...) }
	under("host %s%s", term.Dash(a.Host), after(", from ", a.Source))
	under("%s, to blame: %s, by %s", a.Reason, a.Blame, cmp.Or(after("rule ", a.Rule), "no rule"))
	if a.Others {
		under("this reply came for other addresses; this address had to wait")
	}
	if c := a.Cause; c != nil {
		under("probably about %s: %s", cmp.Or(scopeWords[c.Scope], term.Dash(c.Scope)), c.Why)
	}
	if a.Bare {
		under("the words could be about us: they count only with another accepted address of the domain")
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
		under("%s", smtpevidence.TroubleSays(a.Trouble))
	}
}

var scopeWords = map[string]string{"address": "this address alone", "domain": "its mail domain",
	"list": "one customer's list", "source": "our source at this receiver", "receiver": "the whole receiver"}

// replayLine is a line of a replay: an address, or the summary at the end.
type replayLine struct {
	Address *evidence.Replayed      `json:"address,omitempty"`
	Summary *evidence.ReplaySummary `json:"summary,omitempty"` // the last line
}

func newReplay(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay VERIFICATION",
		Short: "Judge stored evidence by the present rules, and list what would change",
		Long: "Judge stored evidence by the present rules, and list what would change.\n\n" +
			"Nothing is charged or written and no connection to a receiver is made: the evidence in the ledger is judged\n" +
			"anew, by the rules of the configuration. The addresses that would change are printed. The exit code is 0 also\n" +
			"when some would.",
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	file := c.Flags().String("rules", "", "judge by this rule file, followed by the program's own rules")
	all := c.Flags().Bool("all", false, "list also what stays the same")
	c.RunE = func(c *cobra.Command, args []string) error {
		return from.fromLedger(c, func(book *sqlstore.Store, conf config.Config, at reading) error {
			id, err := verificationOf(args[0], func(ids admin.IDRange) ([]uuid.UUID, error) {
				return book.VerificationsLike(c.Context(), ids.From, ids.To, admin.AlikeMax)
			})
			if err != nil {
				return err
			}
			rules, err := node.LoadRules(conf.Verdict)
			if *file != "" {
				rules, err = verdict.LoadFile(*file)
			}
			if err != nil {
				return fmt.Errorf("read the rules: %w", err)
			}
			w := c.OutOrStdout()
			begin := sync.OnceValue(func() (err error) {
				if *asJSON {
					return term.PrintJSON(w, map[string]reading{"read": at})
				}
				_, err = fmt.Fprintf(w, "from %s\n\n", at)
				return err
			})
			show := func(l replayLine) error {
				if err := begin(); err != nil {
					return err
				}
				if *asJSON {
					return term.PrintJSON(w, l)
				}
				return printReplay(w, l)
			}
			summary, err := evidence.Replay(c.Context(), book, id, evidence.ReplayQuery{Rules: rules, All: *all,
				Yield: func(one evidence.Replayed) error { return show(replayLine{Address: &one}) }})
			if err != nil {
				return whyNot(err, summary.Status)
			}
			return show(replayLine{Summary: &summary})
		})
	}
	return c
}

func printReplay(w io.Writer, l replayLine) error {
	b := term.NewPage(w)
	if l.Address != nil {
		writeReplayed(b, *l.Address)
	} else {
		writeReplaySummary(b, *l.Summary)
	}
	return b.Emit()
}

func writeReplayed(b *term.Page, r evidence.Replayed) {
	b.Para(0, "%s", r.Address)
	for _, one := range []struct {
		when  string
		judge evidence.Judged
	}{{"was", r.Before}, {"now", r.After}} {
		if r.Before == r.After && one.when == "was" {
			continue
		}
		b.Behind("    "+one.when+"  ", "%s, %s, by %s", one.judge.Outcome, one.judge.Reason,
			cmp.Or(after("rule ", one.judge.Rule), "no rule"))
	}
}

func writeReplaySummary(b *term.Page, s evidence.ReplaySummary) {
	if s.Outcomes+s.Reasons > 0 {
		b.WriteString("\n")
	}
	b.Para(0, "%s settled addresses of a verification that is %s, %s of them with evidence: %s stay the same, %s would "+
		"have another outcome, %s another reason.", term.Grouped(s.Addresses), s.Status, term.Grouped(s.Replayed),
		term.Grouped(s.Same), term.Grouped(s.Outcomes), term.Grouped(s.Reasons))
	if len(s.Changes) > 0 {
		fmt.Fprintf(b, "\n%-12s%-12s%12s\n", "WAS", "NOW", "ADDRESSES")
		undecided := false
		for _, c := range s.Changes {
			fmt.Fprintf(b, "%-12s%-12s%12s\n", c.Before, c.After, term.Grouped(c.Count))
			undecided = undecided || c.After == "undecided"
		}
		if undecided {
			b.Notes("undecided: with these rules it would have been asked again.")
		}
	}
	if s.Unexplained > 0 {
		b.Notes(term.Grouped(s.Unexplained) + " outcomes are not what their own evidence gave when they were settled: a " +
			"fault of the program, please report it.")
	}
	b.Notes("Nothing was charged or written, and no receiver was asked: this is the stored evidence, judged again.")
}
