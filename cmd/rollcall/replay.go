package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger/evidence"
	"rollcall/ledger/sqlstore"
	"rollcall/smtp/verdict"
)

func newReplay(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay VERIFICATION",
		Short: "Judge stored evidence by the rules of now, and list what would change",
		Long: "Judge stored evidence by the rules of now, and list what would change.\n\n" +
			"Nothing is charged or written and no connection to a receiver is made: what is stored is judged anew.\n" +
			"A ledger that is named is read itself; when none is, the node of this machine is asked, which judges by\n" +
			"its own rules, and its ledger is read when it does not run. The first line says which it was. The\n" +
			"addresses of what would change are printed. Exit code 0 also when something would.",
		Args: wantArgs("VERIFICATION"),
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	rules := c.Flags().String("rules", "", "judge by this rule file before the rules that come with the program")
	all := c.Flags().Bool("all", false, "list also what stays the same")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := verificationArg(args[0])
		if err != nil {
			return err
		}
		r := replay{from: from, id: id, all: *all}
		if *rules != "" {
			if r.rules, err = readRules(*rules); err != nil {
				return err
			}
		}
		w := c.OutOrStdout()
		if *asJSON {
			r.read = func(at reading) error { return term.PrintJSON(w, map[string]reading{"read": at}) }
			return r.run(c.Context(), func(l admin.ReplayLine) error { return term.PrintJSON(w, l) })
		}
		r.read = func(at reading) error {
			_, err := fmt.Fprintf(w, "from %s\n\n", at)
			return err
		}
		return r.run(c.Context(), func(l admin.ReplayLine) error { return printReplay(w, l) })
	}
	return c
}

// readRules reads a rule file and checks it, so that its faults are told with its name.
func readRules(name string) (string, error) {
	if _, err := verdict.LoadFile(name); err != nil {
		return "", fmt.Errorf("read the rules: %w", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the rules: %w", err)
	}
	if len(text) == 0 {
		return "", term.UsageError(fmt.Sprintf("%s is empty: without --rules the rules of now judge", name))
	}
	return string(text), nil
}

// replay is one replay.
type replay struct {
	from  *ledgerFlags
	read  func(reading) error // told whom, before the first line
	id    uuid.UUID
	rules string // text of a rule file; "": as now
	all   bool
}

// run calls yield for each line, the summary last.
func (r replay) run(ctx context.Context, yield func(admin.ReplayLine) error) error {
	return r.from.read(ctx, func(client *client.Admin, at reading) error { return r.ask(ctx, client, at, yield) },
		func(book *sqlstore.Store, c config.Config, at reading) error {
			rules, err := r.own(c)
			if err == nil {
				err = r.read(at)
			}
			if err != nil {
				return err
			}
			summary, err := evidence.Replay(ctx, book, r.id, evidence.Query{Rules: rules, All: r.all,
				Yield: func(one evidence.Replayed) error { return yield(admin.ReplayLine{Address: &one}) }})
			if err != nil {
				return whyNot(err, summary.Status)
			}
			return yield(admin.ReplayLine{Summary: &summary})
		})
}

// own gives the rules to judge by when there is no node.
func (r replay) own(c config.Config) (*verdict.Rules, error) {
	if r.rules != "" {
		return verdict.Load(admin.RulesName, []byte(r.rules))
	}
	return node.LoadRules(c.Verdict)
}

// errCut ends a replay of which the end is missing.
var errCut = errors.New("the replay was cut short: run it again")

// ask has the node replay.
func (r replay) ask(ctx context.Context, client *client.Admin, at reading, yield func(admin.ReplayLine) error) error {
	answer, err := client.Do(ctx, http.MethodPost, "/v1/verifications/"+r.id.String()+"/replay",
		map[string]any{"rules": r.rules, "all": r.all})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.Header.Get("Content-Type") != admin.ReplayType {
		return client.Stranger()
	}
	if err := r.read(at); err != nil {
		return err
	}
	for lines := json.NewDecoder(answer.Body); ; {
		var l admin.ReplayLine
		if err := lines.Decode(&l); err != nil {
			return fmt.Errorf("%w: %w", errCut, err)
		}
		if l.Error != nil {
			return errors.New(l.Error.Message)
		}
		if err := yield(l); err != nil || l.Summary != nil {
			return err
		}
	}
}

// printReplay writes a line within 80 columns.
func printReplay(w io.Writer, l admin.ReplayLine) error {
	var b strings.Builder
	switch {
	case l.Address != nil:
		writeReplayed(&b, *l.Address)
	case l.Summary != nil:
		writeReplaySummary(&b, *l.Summary)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func writeReplayed(b *strings.Builder, r evidence.Replayed) {
	fmt.Fprintf(b, "%s\n", term.Folded(r.Address, 0))
	for _, one := range []struct {
		when  string
		judge evidence.Judged
	}{{"was", r.Before}, {"now", r.After}} {
		if r.Before == r.After && one.when == "was" {
			continue
		}
		by := "no rule"
		if one.judge.Rule != "" {
			by = "rule " + one.judge.Rule
		}
		text := fmt.Sprintf("%s, %s, by %s", one.judge.Outcome, one.judge.Reason, by)
		fmt.Fprintf(b, "    %s  %s\n", one.when, term.Folded(text, 9))
	}
}

func writeReplaySummary(b *strings.Builder, s evidence.Summary) {
	if s.Outcomes+s.Reasons > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%s\n", term.Folded(fmt.Sprintf("%s settled addresses of a verification that is %s, %s of them "+
		"with evidence: %s stay the same, %s would have another outcome, %s another reason.",
		term.Grouped(s.Addresses), s.Status, term.Grouped(s.Replayed), term.Grouped(s.Same), term.Grouped(s.Outcomes),
		term.Grouped(s.Reasons)), 0))
	if len(s.Changes) > 0 {
		fmt.Fprintf(b, "\n%-12s%-12s%12s\n", "WAS", "NOW", "ADDRESSES")
		undecided := false
		for _, c := range s.Changes {
			fmt.Fprintf(b, "%-12s%-12s%12s\n", c.Before, c.After, term.Grouped(c.Count))
			undecided = undecided || c.After == "undecided"
		}
		if undecided {
			b.WriteString("\n" + term.Folded("undecided: these rules would have gone on asking.", 0) + "\n")
		}
	}
	if s.Unexplained > 0 {
		fmt.Fprintf(b, "\n%s\n", term.Folded(fmt.Sprintf("%s outcomes are not what their own evidence gave when they "+
			"were settled: a fault of the program, please report it.", term.Grouped(s.Unexplained)), 0))
	}
	b.WriteString("\n" + term.Folded("Nothing was charged or written, and no receiver was asked: this is what is "+
		"stored, judged anew.", 0) + "\n")
}
