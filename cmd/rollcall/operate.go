package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/config"
	"rollcall/http/admin"
)

// operateAnswer is what `rollcall operate --json` prints.
type operateAnswer struct {
	URL string `json:"url"`
	admin.OperateLink
}

func newOperate(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "operate",
		Short: "Make a link to the operator's pages",
		Long: "Make a link to the operator's pages, and print it. It can be used once, within a minute. Whoever uses it " +
			"can do\n" +
			"what your commands can, and the operator log notes it under your name (--author). The ledger is not asked, so\n" +
			"this also works while the ledger does not answer.",
		Example: "  rollcall operate\n" +
			"  rollcall operate --read-only",
		Args: wantArgs(),
	}
	node := addAdminFlags(c, e)
	readOnly := c.Flags().Bool("read-only", false, "who opens it sees everything and changes nothing")
	return adminCommand(node, c, func(to *client.Admin, _ []string) (out operateAnswer, err error) {
		if strings.HasPrefix(to.Base, config.UnixPrefix) {
			return out, errors.New("a browser cannot reach a node that listens on a socket: set admin.listen to 127.0.0.1 and " +
				"a port, " +
				"and start the node again")
		}
		err = to.Ask(c.Context(), "POST", "/v1/operate", admin.OperateCall{ReadOnly: *readOnly}, &out.OperateLink)
		out.URL = to.Base + out.Path
		return out, err
	}, func(w io.Writer, out operateAnswer) error {
		fmt.Fprintln(w, out.URL)
		fmt.Fprintf(c.ErrOrStderr(), "Open it in a browser before %s UTC. It can be used once.\n",
			time.Time(out.ExpiresAt).UTC().Format("15:04:05"))
		return nil
	})
}
