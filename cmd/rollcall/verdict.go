package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/verdict"
)

func newVerdict(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "verdict",
		Short: "Look at the rules that judge replies, and try them, without connecting to a receiver",
	})
	c.AddCommand(newVerdictList(), newVerdictCheck(), newVerdictJudge(), newVerdictUnknown(e))
	return c
}

func rulesFlag(c *cobra.Command) *string {
	return c.Flags().String("rules", "", "a file with rules of your own, as in verdict.file (default: none)")
}

func newVerdictList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the rules in the order of judging",
	}
	file := rulesFlag(c)
	scope := c.Flags().String("scope", "", "only the rules for the receivers under this suffix, such as google.com")
	return answerWith(c, func([]string) ([]verdict.Info, error) {
		rules, err := node.LoadRules(config.Verdict{File: *file})
		if err != nil {
			return nil, err
		}
		list := rules.List()
		if *scope != "" {
			list = slices.DeleteFunc(list, func(r verdict.Info) bool { return !inScope(r.Scope, *scope) })
			if len(list) == 0 {
				return nil, fmt.Errorf("no rule is only for hosts under %s: see rollcall verdict list", *scope)
			}
		}
		return list, nil
	}, func(b *term.Page, list []verdict.Info) {
		rows := make([][]string, len(list))
		for i, r := range list {
			rows[i] = []string{r.ID, shortList(r.Scope, "any"), shortList(r.Stage, ""), shortList(r.Code, "refusals"),
				shortList(r.Enhanced, "any"), shortList(r.Words, "any"), saysOf(r), r.Reason, r.Source, r.Date}
		}
		b.Rows([]string{"RULE", "SCOPE", "STAGE", "CODE", "ENHANCED", "WORDS", "SAYS", "REASON", "SOURCE", "DATE"}, rows)
	})
}

// inScope reports whether a rule is for hosts under suffix, or for those above it.
func inScope(scope []string, suffix string) bool {
	suffix = strings.ToLower(strings.Trim(suffix, "."))
	return slices.ContainsFunc(scope, func(s string) bool {
		return s == suffix || strings.HasSuffix(s, "."+suffix) || strings.HasSuffix(suffix, "."+s)
	})
}

// shortBytes bounds a column of the list, so that a wide screen has room for ten columns. Guess.
const shortBytes = 36

// shortList joins a list and shortens it.
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

type ruleCheck struct {
	file    string
	Changes []changeView `json:"changes"`
	Rules   int          `json:"rules"`
}

// changeView is a built-in sample that an operator's rule judges.
type changeView struct {
	Sample string      `json:"sample"`
	Was    verdictView `json:"was"`
	Now    verdictView `json:"now"`
}

func newVerdictCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a rule file; list errors (exit 1) or the verdicts it would change",
	}
	return answerWith(c, func(args []string) (out ruleCheck, err error) {
		rules, err := verdict.LoadFile(args[0])
		if errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("there is no file %s: check the path: %w", args[0], err)
		}
		if err != nil {
			return out, err
		}
		out = ruleCheck{file: args[0], Rules: rules.Own(), Changes: make([]changeView, len(rules.Changes()))}
		for i, change := range rules.Changes() {
			out.Changes[i] = changeView{change.Sample, viewVerdict(rules, change.Was), viewVerdict(rules, change.Now)}
		}
		return out, nil
	}, func(b *term.Page, found ruleCheck) {
		fmt.Fprintf(b, "%s is fine: %d rules\n", found.file, found.Rules)
		if len(found.Changes) == 0 {
			fmt.Fprintln(b, "No sample of the program's own rules is judged differently.")
			return
		}
		fmt.Fprintf(b, "%d samples of the program's own rules are judged differently:\n", len(found.Changes))
		for _, change := range found.Changes {
			fmt.Fprintf(b, "  %s\n    was %s (%s)\n    now %s (%s)\n", change.Sample, change.Was.Says,
				change.Was.Rule, change.Now.Says, change.Now.Rule)
		}
	})
}

type verdictView struct {
	Says    string `json:"says"` // the outcome, or what to do next
	Outcome string `json:"outcome"`
	Bare    bool   `json:"bare,omitempty"` // needs a witness: another accepted address of the domain
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
		Short: "Show the verdict on a reply, its rule, and why; each argument is one line of the reply",
		Example: `  rollcall verdict judge --host mx.example.com "550 5.1.1 User unknown"
  rollcall verdict judge --stage greeting "554-No SMTP service" "554 Bad DNS PTR"`,
	}
	file := rulesFlag(c)
	host := c.Flags().String("host", "", "the MX host that sent the reply; an operator's own rules depend on it")
	stage := c.Flags().String("stage", "rcpt", "stage of the reply: greeting, hello, tls, mail or rcpt")
	address := c.Flags().String("address", "", "the address of the RCPT; in the reply it does not count as a word")
	return answerWith(c, func(args []string) (view verdictView, err error) {
		rules, err := node.LoadRules(config.Verdict{File: *file})
		if err != nil {
			return view, err
		}
		raw := evidence.Raw{At: time.Now(), Host: *host}
		if raw.Stage, err = parseStage(*stage); err != nil {
			return view, err
		}
		if *address != "" {
			if raw.Address, err = smtp.ParseAddress(*address); err != nil {
				return view, term.UsageError(err.Error())
			}
		}
		if raw.Reply, err = verdict.ParseReply(strings.Join(args, " / ")); err != nil {
			return view, term.UsageError(err.Error())
		}
		attempt := evidence.Note(raw)
		view = viewVerdict(rules, rules.Judge(attempt))
		view.Text = attempt.Text
		return view, nil
	}, printVerdict)
}

func parseStage(name string) (smtp.Stage, error) {
	for s := smtp.StageGreeting; s <= smtp.StageRset; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return smtp.StageNone, term.UsageError(fmt.Sprintf("%q is no stage: write greeting, hello, tls, mail or rcpt", name))
}

func printVerdict(b *term.Page, v verdictView) {
	rows := [][]string{{"reason", v.Reason}, {"blame", v.Blame}, {"rule", fmt.Sprintf("%s (version %08x)", v.Rule,
		v.Version)}, {"meaning", v.Meaning}, {"source", strings.TrimSpace(v.Source + " " + v.Date)}, {"text", v.Text}}
	if v.Action != verdict.ActNone.String() {
		rows = append([][]string{{"next", strings.TrimSpace(v.Action + " " + v.Wait)}}, rows...)
	}
	outcome := v.Outcome
	if v.Bare {
		outcome += ", if another address of the domain is accepted soon after; otherwise asked again"
	}
	b.Rows([]string{"outcome", outcome}, rows)
}

const (
	// unknownFiles bounds the verifications that are read. unknownReplies bounds the different replies. Guess.
	unknownFiles, unknownReplies = 1000, 20_000

	unknownShown = 50 // how many are listed by default
)

// unknownReply is a reply that no rule matched, without addresses.
type unknownReply struct {
	Reply string           `json:"reply"` // the stage, the host and the reply
	Count int64            `json:"count"`
	Ended map[string]int64 `json:"ended"` // addresses by their outcome
}

func newVerdictUnknown(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "unknown",
		Short: "List the replies of the last days that no rule matched, the most frequent first",
		Long: "List the replies of the last days that no rule matched, the most frequent first.\n\n" +
			"The replies stored in the ledger are judged by the present rules. Above each reply is how often it came and\n" +
			"the outcomes of its addresses. Addresses are removed.",
		Example: "  rollcall verdict unknown --days 3",
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	days := c.Flags().Int("days", 7, "how many days back, by when a file was created")
	most := c.Flags().Int("limit", unknownShown, "how many replies to list")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *days < 1 || *most < 1 {
			return term.UsageError("--days and --limit are 1 or more")
		}
		return from.fromLedger(c, func(book *sqlstore.Store, conf config.Config, _ reading) error {
			rules, err := node.LoadRules(conf.Verdict)
			if err != nil {
				return err
			}
			ids, err := book.VerificationsSince(c.Context(), time.Now().AddDate(0, 0, -*days), unknownFiles)
			if err != nil {
				return err
			}
			u := unknown{rules: rules, found: map[string]*unknownReply{}}
			for _, id := range ids {
				if err := u.read(c.Context(), book, id); err != nil {
					return err
				}
			}
			list := slices.SortedFunc(maps.Values(u.found), func(a, b *unknownReply) int {
				return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reply, b.Reply))
			})
			list = list[:min(*most, len(list))]
			if !*asJSON {
				return printUnknown(c.OutOrStdout(), list)
			}
			for _, r := range list {
				if err := term.PrintJSON(c.OutOrStdout(), r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return c
}

type unknown struct {
	rules *verdict.Rules
	found map[string]*unknownReply
}

// read adds the replies of one verification; none if its results are erased.
func (u *unknown) read(ctx context.Context, book *sqlstore.Store, id uuid.UUID) error {
	_, err := book.Evidence(ctx, id, 0, u.settlement)
	if errors.Is(err, ledger.ErrResultsExpired) || errors.Is(err, ledger.ErrNoSuchVerification) {
		return nil
	}
	return err
}

func (u *unknown) settlement(k ledger.StoredSettlement) error {
	if len(k.Evidence) == 0 {
		return nil
	}
	outcomes := make(map[int64]smtp.Outcome, k.Results.Len())
	for i, ordinal := range k.Results.Ordinals {
		outcomes[ordinal] = k.Results.Outcomes[i]
	}
	return evidence.Unpack(k.Evidence, func(e evidence.Entry) error {
		u.add(e.Case, outcomes[e.Ordinal])
		return nil
	})
}

// add counts the attempts of one address by their replies. For each reply it counts the address once.
func (u *unknown) add(c evidence.Case, ended smtp.Outcome) {
	told := map[string]bool{}
	for _, a := range c.Attempts {
		if v := u.rules.Judge(a); a.Code == 0 || !v.Unread() {
			continue
		}
		words := strings.Fields(fmt.Sprintf("%d %s %s", a.Code, a.Enhanced, a.Text))
		key := fmt.Sprintf("%s@%s | %s", a.Stage, a.Host, strings.Join(words, " "))
		reply := u.found[key]
		if reply == nil {
			if len(u.found) == unknownReplies {
				continue
			}
			reply = &unknownReply{Reply: key, Ended: map[string]int64{}}
			u.found[key] = reply
		}
		reply.Count++
		if !told[key] {
			told[key] = true
			reply.Ended[ended.String()]++
		}
	}
}

func printUnknown(w io.Writer, list []*unknownReply) error {
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("# a rule matched every reply\n")
	}
	for _, r := range list {
		fmt.Fprintf(&b, "# %s times; addresses:", term.Grouped(r.Count))
		for _, outcome := range slices.Sorted(maps.Keys(r.Ended)) {
			fmt.Fprintf(&b, " %s %s", term.Grouped(r.Ended[outcome]), outcome)
		}
		b.WriteString("\n" + r.Reply + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
