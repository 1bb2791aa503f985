package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/ledger"
	"rollcall/smtp"
)

// checkedView is what check --json prints.
type checkedView struct {
	ID string `json:"id"`
	resultView
}

func newCheck(e environment) *cobra.Command {
	var again string
	c := &cobra.Command{
		Use:   "check ADDRESS",
		Short: "Verify one address through a service, wait for its outcome and print it",
		Long: "Verify one address through a service, wait for its outcome and print it. It is a file of one row, costs " +
			"what\n" +
			"such a file costs, and is in the history. An address that was checked before gives the outcome of then and\n" +
			"costs nothing, unless --again has it checked anew. The exit code is 0 whatever the outcome is.",
		Example: "  rollcall check anna@example.com --api https://rollcall.example",
		Args:    wantArgs("ADDRESS"),
	}
	service, asJSON := addCustomerFlags(c, e), jsonFlag(c)
	addAgainFlag(c, &again)
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, err := smtp.ParseAddress(args[0]); err != nil {
			return term.UsageError(fmt.Sprintf("%q is no email address", args[0]))
		}
		client, err := service.client(c)
		if err != nil {
			return err
		}
		in, err := addressInput(args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		r := &verifyRun{flags: verifyFlags{api: service.base(), again: again}, input: in,
			view: newProgressView(c.ErrOrStderr()), stdout: c.OutOrStdout(), client: client}
		client.Notice = r.view.notice
		found, err := r.one(c.Context())
		r.view.stop()
		if err != nil {
			return r.left(err)
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), found)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s: %s\n", term.Printable(found.Email), found.Result, found.Message)
		return err
	}
	return c
}

// addressInput is a file with one address, which has no name when it is given.
func addressInput(address string) (*input, error) {
	var row bytes.Buffer
	w := csv.NewWriter(&row)
	err := w.Write([]string{address})
	w.Flush()
	if err != nil || w.Error() != nil {
		return nil, errors.Join(err, w.Error())
	}
	f, err := os.CreateTemp("", "rollcall-check-*")
	if err != nil {
		return nil, fmt.Errorf("keep the address for the upload: %w", err)
	}
	_, err = f.Write(row.Bytes())
	var in *input
	if err = errors.Join(err, f.Close()); err == nil {
		in, err = openInput(f.Name())
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, err
	}
	in.name = strings.NewReplacer("/", "_", `\`, "_").Replace(address) // a name in the history has no folder
	return in, nil
}

// one has a file of one row verified and gives that row.
func (r *verifyRun) one(ctx context.Context) (checkedView, error) {
	d, err := r.finish(ctx)
	if err != nil {
		return checkedView{}, err
	}
	var found *checkedView
	err = r.client.EachResult(ctx, d.ID, io.Discard, func(row []string) error {
		found = &checkedView{d.ID, resultOf(row)}
		return nil
	})
	switch {
	case err != nil:
		return checkedView{}, r.expired(err)
	case found == nil && d.Status == string(ledger.Cancelled):
		return checkedView{}, fmt.Errorf("somebody cancelled the verification%s", r.anew("to have it checked after all"))
	case found == nil:
		return checkedView{}, fmt.Errorf("verification %s is %s without an outcome", d.ID, d.Status)
	}
	return *found, nil
}
