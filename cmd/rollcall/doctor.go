package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/smtp/identity"
)

// doctorWait bounds the checks of a doctor that makes them itself.
const doctorWait = 2 * time.Minute

// errUnfit says that a check fails; the report has been printed.
var errUnfit = errors.New("receivers would refuse this node")

func newDoctor(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what receivers hold against a sender: PTR, hello name, SPF, port 25",
		Long: "Show what a running node found when it checked its own identity, with what to do about it.\n\n" +
			"With --config the node of that file is asked; when it does not run, the checks are made here and now.\n" +
			"What fails keeps a node from probing (identity.enforce). Exit code 1: something fails.",
		Example: "  rollcall doctor\n" +
			"  rollcall doctor --now\n" +
			"  rollcall doctor --config node.toml --json",
		Args: wantArgs(),
	}
	node, file, asJSON := addAdminFlags(c, e), configFlag(c), jsonFlag(c)
	now := c.Flags().Bool("now", false, "have the node check everything now, after you have mended something")
	c.RunE = func(c *cobra.Command, _ []string) error {
		found, err := diagnose(c.Context(), doctorFlags{node, *file, *now})
		if err != nil {
			return err
		}
		return reportOn(c.OutOrStdout(), found, *asJSON)
	}
	return c
}

// doctorFlags say whom the doctor asks.
type doctorFlags struct {
	node *adminFlags
	file string // configuration of a node that may run here; "": none was given
	now  bool
}

// diagnose asks the node that the flags name. When the one of a configuration does not
// run, the checks are made here.
func diagnose(ctx context.Context, f doctorFlags) (admin.Identity, error) {
	if f.file == "" || f.node.named() {
		client, err := f.node.client()
		if err != nil {
			return admin.Identity{}, err
		}
		found, err := askNode(ctx, client, f.now)
		if errors.Is(err, errNoNode) && !f.node.named() {
			err = fmt.Errorf("%w; or make the checks here with --config FILE", err)
		}
		return found, err
	}
	loaded, err := config.Load(f.file, f.node.environ)
	if err != nil {
		return admin.Identity{}, err
	}
	token, err := readToken(loaded.DataDir)
	if err != nil {
		return admin.Identity{}, err
	}
	found, err := askNode(ctx, newAdminClient(adminURL(loaded.Admin), token), f.now)
	if errors.Is(err, errNoNode) {
		return examine(ctx, loaded)
	}
	return found, err
}

// adminURL is where the admin listener of a configuration is reached from this machine.
func adminURL(a config.Admin) string {
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil || strings.HasPrefix(a.Listen, config.UnixPrefix) {
		return a.Listen
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return config.Scheme(a.TLSCert) + net.JoinHostPort(host, port)
}

// askNode reads what a node found, or finds now.
func askNode(ctx context.Context, client *adminClient, now bool) (found admin.Identity, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if now {
		err = client.call(ctx, http.MethodPost, "/v1/identity/check", nil, &found)
	} else {
		err = client.call(ctx, http.MethodGet, "/v1/identity", nil, &found)
	}
	return found, err
}

// examine makes the checks here.
func examine(ctx context.Context, c config.Config) (admin.Identity, error) {
	o, err := identityOptions(c)
	if err != nil {
		return admin.Identity{}, err
	}
	o.Log, o.Changed = slog.New(slog.DiscardHandler), func(identity.Report) {}
	watch, err := identity.NewWatch(o)
	if err != nil {
		return admin.Identity{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	return admin.IdentityOf(watch.Once(ctx), c.Identity.Enforce), ctx.Err()
}

// reportOn prints what was found; errUnfit when something fails.
func reportOn(w io.Writer, found admin.Identity, asJSON bool) error {
	var err error
	if asJSON {
		err = printJSON(w, found)
	} else {
		_, err = io.WriteString(w, doctorText(found))
	}
	if err == nil && !found.Fit && found.Checked != nil {
		err = errUnfit
	}
	return err
}

// doctorText is the report for a terminal: two lines or three for each finding.
func doctorText(found admin.Identity) string {
	const indent = 9
	var b strings.Builder
	for _, f := range found.Findings {
		head := strings.TrimSpace(string(f.Check) + "  " + f.Source)
		fmt.Fprintf(&b, "%-7s  %s\n", f.State, head)
		fmt.Fprintf(&b, "%*s%s\n", indent, "", wrapped(f.Saw, indent))
		if f.Next != "" {
			fmt.Fprintf(&b, "%*s-> %s\n", indent, "", wrapped(f.Next, indent+3))
		}
	}
	if len(found.Findings) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(wrapped(doctorVerdict(found), 0))
	b.WriteByte('\n')
	return b.String()
}

// doctorVerdict says what follows.
func doctorVerdict(found admin.Identity) string {
	switch {
	case found.Checked == nil:
		return "Nothing has been checked yet: ask again in a minute."
	case found.Fit:
		return "Nothing fails. This node may probe."
	case found.Probing:
		return "Receivers would refuse this node, and it probes all the same: identity.enforce is false. Addresses " +
			"that exist end as unknown, and its address gets a bad name."
	}
	return "This node takes no probing work until what fails is mended. It looks again every minute, or at once " +
		"with --now. Other nodes, if there are any, work for it; else files wait, and no address is judged."
}
