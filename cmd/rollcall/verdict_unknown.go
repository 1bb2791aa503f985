package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

const (
	// unknownFiles bounds the verifications that are read, unknownReplies the replies that are told apart. Guess.
	unknownFiles, unknownReplies = 1000, 20_000

	unknownShown = 50 // replies that are listed by default
)

// unknownReply is a reply that no rule took, without addresses.
type unknownReply struct {
	Reply string           `json:"reply"` // as "verdict judge --file" reads it
	Count int64            `json:"count"`
	Ended map[string]int64 `json:"ended"` // addresses by their outcome
}

func newVerdictUnknown(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "unknown",
		Short: "List the replies of the last days that no rule took, the most frequent first",
		Long: "List the replies of the last days that no rule took, the most frequent first.\n\n" +
			"The ledger is read; what is stored is judged by the rules of now. Above each reply stands how often it came\n" +
			"and what its addresses ended as. Addresses are taken out. The list is what verdict judge --file reads.",
		Example: "  rollcall verdict unknown --days 3 > replies.txt\n  rollcall verdict judge --file replies.txt",
		Args:    wantArgs(),
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	days := c.Flags().Int("days", 7, "how many days back, by when a file was created")
	most := c.Flags().Int("limit", unknownShown, "list so many replies")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *days < 1 || *most < 1 {
			return term.UsageError("--days and --limit are 1 or more")
		}
		if c.Flags().Changed("admin") {
			return term.UsageError("only the ledger has the replies: give --ledger or --config in place of --admin")
		}
		return from.itself(opened(c.Context(), func(book *sqlstore.Store, conf config.Config, _ reading) error {
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
			list := u.list()[:min(*most, len(u.found))]
			if !*asJSON {
				return printUnknown(c.OutOrStdout(), list)
			}
			for _, r := range list {
				if err := term.PrintJSON(c.OutOrStdout(), r); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return c
}

// unknown collects the replies that no rule took.
type unknown struct {
	rules *verdict.Rules
	found map[string]*unknownReply
}

// read adds those of one verification. One whose results are erased has none.
func (u *unknown) read(ctx context.Context, book *sqlstore.Store, id uuid.UUID) error {
	_, err := book.Evidence(ctx, id, 0, u.settlement)
	if errors.Is(err, ledger.ErrResultsExpired) || errors.Is(err, ledger.ErrNoSuchVerification) {
		return nil
	}
	return err
}

func (u *unknown) settlement(k ledger.Kept) error {
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

// add counts the attempts of one address, and the address once for each reply.
func (u *unknown) add(c evidence.Case, ended smtp.Outcome) {
	told := map[string]bool{}
	for _, a := range c.Attempts {
		if v := u.rules.Judge(a); a.Code == 0 || !v.Unread() {
			continue
		}
		key := replyLine(a)
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

// replyLine gives an attempt as a line that noteLine reads.
func replyLine(a evidence.Attempt) string {
	return fmt.Sprintf("%s@%s | %s", a.Stage, a.Host,
		strings.Join(strings.Fields(fmt.Sprintf("%d %s %s", a.Code, a.Enhanced, a.Text)), " "))
}

// list gives what was found, the most frequent first.
func (u *unknown) list() []*unknownReply {
	return slices.SortedFunc(maps.Values(u.found), func(a, b *unknownReply) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reply, b.Reply))
	})
}

func printUnknown(w io.Writer, list []*unknownReply) error {
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("# no such reply\n")
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
