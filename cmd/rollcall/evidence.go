package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/sqlstore"
)

func newEvidence(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "evidence VERIFICATION ADDRESS",
		Short: "Show why an address of a verification has its outcome",
		Long: "Show why an address of a verification has its outcome: each attempt at it, what the\n" +
			"receiver answered, by which rule that was taken for what, and what was known of the domain.\n\n" +
			"ADDRESS is as it is spelled in the file, or another spelling of its domain. Asks the running\n" +
			"node if one answers at the admin address, and otherwise reads the ledger itself. The evidence\n" +
			"is kept as long as the results. The text of an answer is cleaned: it holds no address and none\n" +
			"of our own names.",
		Args: wantArgs("VERIFICATION", "ADDRESS"),
	}
	node, file, asJSON := addAdminFlags(c, e), configFlag(c), jsonFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := verificationArg(args[0])
		if err != nil {
			return err
		}
		found, err := findEvidence(c.Context(), keptAt{node, *file}, id, args[1])
		switch {
		case err != nil:
			return err
		case *asJSON:
			return printJSON(c.OutOrStdout(), found)
		}
		return printEvidence(c.OutOrStdout(), found)
	}
	return c
}

func verificationArg(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usageError{fmt.Sprintf("VERIFICATION %q is no id: give the UUID that its customer sees", text)}
	}
	return id, nil
}

// keptAt is where evidence is: with a node, or in a ledger that no node has open.
type keptAt struct {
	node       *adminFlags
	configFile string
}

// read asks the node by ask, and reads the ledger itself by own when there is no node.
func (k keptAt) read(ctx context.Context, ask func(*adminClient) error,
	own func(book *sqlstore.Store, c config.Config) error) error {
	client, err := k.node.client()
	if err != nil {
		return err
	}
	if err = ask(client); !errors.Is(err, errNoNode) || k.node.named() {
		return err
	}
	loaded, err := config.Load(k.configFile, k.node.environ)
	if err != nil {
		return err
	}
	book, err := sqlstore.OpenReadOnly(ctx, loaded.Ledger.URL, sqlstore.Options{})
	if err != nil {
		return err
	}
	return errors.Join(own(book, loaded), book.Close())
}

// findEvidence looks for one address.
func findEvidence(ctx context.Context, k keptAt, id uuid.UUID, address string) (
	found admin.Explanation, err error) {
	err = k.read(ctx, func(client *adminClient) error {
		return client.call(ctx, http.MethodPost, "/v1/verifications/"+id.String()+"/evidence",
			map[string]string{"address": address}, &found)
	}, func(book *sqlstore.Store, _ config.Config) (err error) {
		found, err = admin.FindEvidence(ctx, book, id, address)
		return whyNot(err, found.Status)
	})
	return found, err
}

// whyNot says what to do about an answer that is no fault.
func whyNot(err error, status ledger.Status) error {
	for _, refusal := range []error{admin.ErrNotSettled, ledger.ErrNoSuchVerification,
		ledger.ErrResultsExpired} {
		if errors.Is(err, refusal) {
			_, message := admin.WhyNoEvidence(err, status)
			return errors.New(inCommands(message))
		}
	}
	return err
}
