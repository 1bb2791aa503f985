package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/evidence"
	"rollcall/ledger/sqlstore"
)

func newEvidence(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "evidence VERIFICATION ADDRESS",
		Short: "Show why an address of a verification has its outcome",
		Long: "Show why an address of a verification has its outcome: each attempt at it, what the\n" +
			"receiver answered, by which rule that was taken for what, and what was known of the domain.\n\n" +
			"ADDRESS is as it is spelled in the file, or another spelling of its domain. A ledger that is\n" +
			"named is read itself; when none is, the node of this machine is asked, and its ledger is read when\n" +
			"it does not run. The first line says which it was. The evidence is kept as long as the results. The\n" +
			"text of an answer is cleaned: it holds no address and none of our own names.",
		Args: wantArgs("VERIFICATION", "ADDRESS"),
	}
	from, asJSON := addLedgerFlags(c, e), jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := verificationArg(args[0])
		if err != nil {
			return err
		}
		found, err := findEvidence(c.Context(), from, id, args[1])
		switch {
		case err != nil:
			return err
		case *asJSON:
			return term.PrintJSON(c.OutOrStdout(), found)
		}
		fmt.Fprintf(c.OutOrStdout(), "from %s\n\n", found.Read)
		return printEvidence(c.OutOrStdout(), found.Explanation)
	}
	return c
}

func verificationArg(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, term.UsageError(fmt.Sprintf("VERIFICATION %q is no id: give the UUID that its customer sees", text))
	}
	return id, nil
}

// evidenceView is what is known of one address.
type evidenceView struct {
	Read reading `json:"read"`
	admin.Explanation
}

// findEvidence looks for one address.
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

// whyNot says what to do about an answer that is no fault.
func whyNot(err error, status ledger.Status) error {
	for _, refusal := range []error{evidence.ErrNotSettled, ledger.ErrNoSuchVerification,
		ledger.ErrResultsExpired} {
		if errors.Is(err, refusal) {
			_, message := admin.WhyNoEvidence(err, status)
			return errors.New(client.InCommands(message))
		}
	}
	return err
}
