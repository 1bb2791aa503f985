package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/smtp/identity"
)

// doctorWait bounds the checks that the command makes itself.
const doctorWait = 2 * time.Minute

// errIneligible: a check failed. errBlind: nothing could be checked. The report was printed before.
var (
	errIneligible = errors.New("receivers would refuse this node")
	errBlind      = errors.New("nothing could be checked")
)

func newDoctor(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what receivers judge a sender by: PTR, hello name, SPF, port 25",
		Long: "Show what a running node found when it checked its own identity, with what to do about it.\n\n" +
			"With --config the node of that file is asked; when it does not run, the checks are made here and now. The\n" +
			"first line says which it was. A failed check keeps a node from probing (identity.enforce). Exit code 1: a check\n" +
			"fails, or nothing could be checked.",
		Example: "  rollcall doctor\n" +
			"  rollcall doctor --now\n" +
			"  rollcall doctor --config node.toml --json",
	}
	node := addAdminFlags(c, e)
	now := c.Flags().Bool("now", false, "check everything now, after you corrected something")
	return answerWith(c, func([]string) (diagnosis, error) { return diagnose(c.Context(), node, *now) }, printDiagnosis)
}

type diagnosis struct {
	Read reading `json:"read"`
	admin.Identity
}

// diagnose asks the node that the flags name. If the node of --config does not run, diagnose makes the checks itself.
func diagnose(ctx context.Context, flags *adminFlags, now bool) (found diagnosis, err error) {
	asked, err := flags.client()
	if err != nil {
		return found, err
	}
	found.Read = reading{Node: asked.Base}
	if now {
		err = asked.Ask(ctx, http.MethodPost, "/v1/identity/check", nil, &found.Identity)
	} else {
		err = asked.Ask(ctx, http.MethodGet, "/v1/identity", nil, &found.Identity)
	}
	switch {
	case !errors.Is(err, client.ErrNoNode):
		return found, err
	case flags.config == "" && flags.namedBy() == "":
		return found, fmt.Errorf("%w; or make the checks here with --config FILE", err)
	case flags.config == "":
		return found, err
	}
	loaded, err := flags.load()
	if err != nil {
		return found, err
	}
	if _, err := node.ProviderOf(loaded.Dashboard); err != nil {
		return found, err
	}
	found.Read = reading{Here: true}
	found.Identity, err = examine(ctx, loaded)
	return found, err
}

// adminURL returns the URL at which this machine reaches a configuration's admin listener.
func adminURL(a config.Admin) string {
	if strings.HasPrefix(a.Listen, config.UnixPrefix) {
		return a.Listen
	}
	return cmp.Or(config.LocalURL(a.Listen, a.TLSCert), adminDefault) // only the node knows port 0
}

func examine(ctx context.Context, c config.Config) (admin.Identity, error) {
	o, err := node.IdentityOptions(c)
	if err != nil {
		return admin.Identity{}, err
	}
	o.Log, o.Changed = slog.New(slog.DiscardHandler), func(identity.Report) {}
	ctx, cancel := context.WithTimeout(ctx, doctorWait)
	defer cancel()
	return admin.IdentityOf(identity.NewWatch(o).Once(ctx), c.Identity.Enforce), ctx.Err()
}

func (d diagnosis) failsWith() error {
	switch {
	case d.Eligible || d.Checked == nil:
		return nil
	case d.fails():
		return errIneligible
	}
	return errBlind
}

func (d diagnosis) fails() bool {
	return slices.ContainsFunc(d.Findings, func(f admin.Finding) bool { return f.State == identity.Fail })
}

// unchecked names what was not checked, as "ptr and spf of 10.0.0.7". It returns "" if everything was checked.
func (d diagnosis) unchecked() string {
	var of []string // the sources of each key, in their order
	checks := map[string][]string{}
	for _, f := range d.Findings {
		if f.State != identity.Skipped {
			continue
		}
		if _, there := checks[f.Source]; !there {
			of = append(of, f.Source)
		}
		if !slices.Contains(checks[f.Source], string(f.Check)) {
			checks[f.Source] = append(checks[f.Source], string(f.Check))
		}
	}
	for i, source := range of {
		of[i] = strings.Join(checks[source], ", ")
		if source != "" {
			of[i] += " of " + source
		}
	}
	return strings.Join(of, "; ")
}

func printDiagnosis(b *term.Page, found diagnosis) {
	const indent = 9
	b.Para(0, "what receivers see of %s", found.Read)
	b.WriteByte('\n')
	for _, f := range found.Findings {
		pad := strings.Repeat(" ", max(7-len(f.State), 0)) // colours take no width
		fmt.Fprintf(b, "%s%s  %s\n", b.Mark("", string(f.State)), pad, strings.TrimSpace(string(f.Check)+"  "+f.Source))
		b.Para(indent, "%s", f.Saw)
		if f.Next != "" {
			b.Behind(strings.Repeat(" ", indent)+"-> ", "%s", f.Next)
		}
	}
	if len(found.Findings) > 0 {
		b.WriteByte('\n')
	}
	b.Para(0, "%s", doctorVerdict(found))
}

func doctorVerdict(found diagnosis) string {
	switch {
	case found.Checked == nil:
		return "Nothing has been checked yet: ask again in a minute."
	case found.Eligible && found.unchecked() != "":
		return "Nothing that was checked fails; not checked: " + found.unchecked() + ". This node may probe."
	case found.Eligible:
		return "Nothing fails. This node may probe."
	case found.Probing:
		return "Receivers would refuse this node, but it probes, because identity.enforce is false. Addresses " +
			"that exist end as unknown, and its address gets a bad reputation."
	case !found.fails():
		return "Nothing could be checked, so it is unknown what receivers see of this node, and it does not probe " +
			"until that is known. It looks again every minute, or at once with --now."
	}
	return "This node does not probe until the failures are corrected. It looks again every minute, or at once " +
		"with --now. Other nodes, if there are any, do its work; otherwise files wait, and no address is judged."
}
