package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

func newVerdict(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "verdict",
		Short: "Look at the rules that judge replies, and try them; no receiver is connected to",
	})
	c.AddCommand(newVerdictList(), newVerdictCheck(), newVerdictJudge(), newVerdictUnknown(e))
	return c
}

// rulesFlag adds --rules.
func rulesFlag(c *cobra.Command) *string {
	return c.Flags().String("rules", "", "a file with rules of your own, as in verdict.file (default: none)")
}

func newVerdictList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the rules in the order of judging",
		Args:  wantArgs(),
	}
	file, asJSON := rulesFlag(c), jsonFlag(c)
	scope := c.Flags().String("scope", "", "only the rules for the receivers under this suffix, such as google.com")
	c.RunE = func(c *cobra.Command, _ []string) error {
		rules, err := node.LoadRules(config.Verdict{File: *file})
		if err != nil {
			return err
		}
		list := rules.List()
		if *scope != "" {
			list = slices.DeleteFunc(list, func(r verdict.Info) bool { return !inScope(r.Scope, *scope) })
			if len(list) == 0 {
				return fmt.Errorf("no rule is only for hosts under %s: see rollcall verdict list", *scope)
			}
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), list)
		}
		rows := make([][]string, len(list))
		for i, r := range list {
			rows[i] = []string{r.ID, shortList(r.Scope, "any"), shortList(r.Stage, ""), shortList(r.Code, "refusals"),
				shortList(r.Enhanced, "any"), shortList(r.Words, "any"), saysOf(r), r.Reason, r.Source, r.Date}
		}
		return term.PrintTable(c.OutOrStdout(), []string{"RULE", "SCOPE", "STAGE", "CODE", "ENHANCED", "WORDS", "SAYS",
			"REASON", "SOURCE", "DATE"}, rows)
	}
	return c
}

// inScope says whether a rule is for hosts under suffix, or for those above it.
func inScope(scope []string, suffix string) bool {
	suffix = strings.ToLower(strings.Trim(suffix, "."))
	return slices.ContainsFunc(scope, func(s string) bool {
		return s == suffix || strings.HasSuffix(s, "."+suffix) || strings.HasSuffix(suffix, "."+s)
	})
}

// shortBytes bounds a column of the list. Guess: ten columns fit a wide screen.
const shortBytes = 36

// shortList joins a list and cuts it.
func shortList(list []string, none string) string {
	if len(list) == 0 {
		return none
	}
	text := strings.Join(list, ", ")
	if len(text) <= shortBytes {
		return text
	}
	return strings.ToValidUTF8(text[:shortBytes-3], "") + "..."
}

func saysOf(r verdict.Info) string {
	if r.Bare {
		return r.Outcome + ", bare"
	}
	if r.Outcome != "" {
		return r.Outcome
	}
	return strings.TrimSpace(r.Action + " " + r.Wait)
}

// changeView is a built-in sample about which an operator's rule has the word.
type changeView struct {
	Sample string      `json:"sample"`
	Was    verdictView `json:"was"`
	Now    verdictView `json:"now"`
}

func newVerdictCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file with rules of your own: exit 1 with each fault, or what it would change",
		Args:  wantArgs("FILE"),
	}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		rules, err := verdict.LoadFile(args[0])
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no file %s: check the path: %w", args[0], err)
		}
		if err != nil {
			return err
		}
		own := rules.Own()
		changes := make([]changeView, len(rules.Changes()))
		for i, change := range rules.Changes() {
			changes[i] = changeView{change.Sample, viewVerdict(rules, change.Was), viewVerdict(rules, change.Now)}
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), map[string]any{"rules": own, "changes": changes})
		}
		out := c.OutOrStdout()
		fmt.Fprintf(out, "%s is fine: %d rules\n", args[0], own)
		if len(changes) == 0 {
			fmt.Fprintln(out, "No sample of the rules that come with the program is judged in another way.")
			return nil
		}
		fmt.Fprintf(out, "%d samples of the rules that come with the program are judged in another way:\n",
			len(changes))
		for _, change := range changes {
			fmt.Fprintf(out, "  %s\n    was %s (%s)\n    now %s (%s)\n", change.Sample, change.Was.Says,
				change.Was.Rule, change.Now.Says, change.Now.Rule)
		}
		return nil
	}
	return c
}

// verdictView is a verdict and the rule that gave it.
type verdictView struct {
	Says    string `json:"says"` // the outcome, or what to do next
	Outcome string `json:"outcome"`
	Bare    bool   `json:"bare,omitempty"` // believed only beside another address of the domain that is accepted
	Action  string `json:"action"`
	Wait    string `json:"wait,omitempty"`
	Reason  string `json:"reason"`
	Blame   string `json:"blame"`
	Rule    string `json:"rule"`
	Version uint32 `json:"version"`
	Meaning string `json:"meaning"`
	Source  string `json:"source"`
	Date    string `json:"date,omitempty"`
	Text    string `json:"text,omitempty"` // what was judged
}

func viewVerdict(rules *verdict.Rules, v verdict.Verdict) verdictView {
	info, _ := rules.Rule(v.Rule)
	view := verdictView{Outcome: v.Outcome.String(), Bare: v.Bare, Action: v.Action.String(), Reason: v.Reason.String(),
		Blame: v.Blame.String(), Rule: v.Rule, Version: v.Version, Meaning: info.Meaning, Source: info.Source,
		Date: info.Date}
	if v.Wait > 0 {
		view.Wait = v.Wait.String()
	}
	view.Says = view.Outcome
	if v.Outcome == smtp.Undecided {
		view.Says = strings.TrimSpace("again: " + view.Action + " " + view.Wait)
	}
	if v.Bare {
		view.Says += " if others are accepted"
	}
	view.Says += ", " + view.Reason
	return view
}

func newVerdictJudge() *cobra.Command {
	c := &cobra.Command{
		Use:   "judge REPLY...",
		Short: "Say what a reply is taken for, by which rule, and why; each argument is one line of the reply",
		Example: `  rollcall verdict judge --host mx.example.com "550 5.1.1 User unknown"
  rollcall verdict judge --stage greeting "554-No SMTP service" "554 Bad DNS PTR"
  rollcall verdict judge --file replies.txt`,
	}
	file, asJSON := rulesFlag(c), jsonFlag(c)
	host := c.Flags().String("host", "", "the MX host that said it; rules for one operator go by its name")
	stage := c.Flags().String("stage", "rcpt", "where it said it: greeting, hello, tls, mail or rcpt")
	address := c.Flags().String("address", "", "the address that was asked for, which is no word of the reply")
	replies := c.Flags().String("file", "", `a file with a reply in each line, "-" for the standard input; in front of a reply may `+
		`stand its stage and host, as in "rcpt@mx.example.com | 550 no"`)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && *replies == "":
			return term.UsageError(`REPLY is missing: write it like "550 5.1.1 User unknown", or name a --file`)
		case len(args) > 0 && *replies != "":
			return term.UsageError("REPLY and --file are both there: leave one out")
		}
		rules, err := node.LoadRules(config.Verdict{File: *file})
		if err != nil {
			return err
		}
		raw := evidence.Raw{At: time.Now(), Host: *host}
		if raw.Stage, err = parseStage(*stage); err != nil {
			return err
		}
		if *address != "" {
			if raw.Address, err = smtp.ParseAddress(*address); err != nil {
				return term.UsageError(err.Error())
			}
		}
		if *replies != "" {
			return judgeFile(c, rules, raw, *replies, *asJSON)
		}
		if raw.Reply, err = verdict.ParseReply(strings.Join(args, " / ")); err != nil {
			return term.UsageError(err.Error())
		}
		attempt := evidence.Note(raw)
		view := viewVerdict(rules, rules.Judge(attempt))
		view.Text = attempt.Text
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), view)
		}
		return printVerdict(c.OutOrStdout(), view)
	}
	return c
}

func parseStage(name string) (smtp.Stage, error) {
	for s := smtp.StageGreeting; s <= smtp.StageRset; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return smtp.StageNone, term.UsageError(fmt.Sprintf("%q is no stage: write greeting, hello, tls, mail or rcpt", name))
}

func printVerdict(w io.Writer, v verdictView) error {
	rows := [][]string{{"reason", v.Reason}, {"blame", v.Blame}, {"rule", fmt.Sprintf("%s (version %08x)", v.Rule,
		v.Version)}, {"meaning", v.Meaning}, {"source", strings.TrimSpace(v.Source + " " + v.Date)}, {"text", v.Text}}
	if v.Action != verdict.ActNone.String() {
		rows = append([][]string{{"next", strings.TrimSpace(v.Action + " " + v.Wait)}}, rows...)
	}
	outcome := v.Outcome
	if v.Bare {
		outcome += ", if another address of the domain is accepted soon after; else asked again"
	}
	return term.PrintTable(w, []string{"outcome", outcome}, rows)
}
