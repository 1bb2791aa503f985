package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
)

// devCredits is what the workspace of serve --dev has: a file of the largest default size.
const devCredits = 1_000_000

func newServe(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node until SIGTERM or Ctrl-C, which drain it",
		Args:  wantArgs(),
	}
	file := configFlag(c)
	dev := c.Flags().Bool("dev", false, "with the lab, a workspace, a key and credits, all printed")
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		return serve(c, e, loaded, *dev)
	}
	return c
}

// serve runs a node until the command's context ends.
func serve(c *cobra.Command, e environment, loaded config.Config, dev bool) error {
	if dev {
		loaded = node.LabConfig(loaded)
	}
	log := newLogger(c.ErrOrStderr(), loaded.Log)
	for _, name := range config.UnknownEnviron(e) {
		log.Warn("environment variable is no setting", "name", name)
	}
	limitMemory(log)
	options := node.Options{Log: log}
	if dev {
		options = node.LabOptions(log)
	}
	n, err := node.Start(c.Context(), loaded, options)
	if err != nil {
		return err
	}
	if dev {
		err = printDev(c, n, loaded)
	}
	if err == nil {
		select {
		case <-c.Context().Done():
		case err = <-n.Cluster.Failed():
		}
		log.Info("draining")
	}
	if stopErr := node.StopNode(c.Context(), n); err == nil {
		err = stopErr
	}
	return err
}

// printDev makes the workspace of serve --dev and says what to try.
func printDev(c *cobra.Command, n *node.Node, loaded config.Config) error {
	token, err := client.ReadToken(loaded.DataDir)
	if err != nil {
		return err
	}
	operator := client.NewAdmin(n.AdminURL, token)
	t, err := client.OpenTenant(c.Context(), operator, client.TenantOptions{
		File: filepath.Join(loaded.DataDir, "dev.json"), Workspace: "dev", Credits: devCredits,
	})
	if err != nil {
		return err
	}
	inBrowser := ""
	if loaded.Dashboard.Enabled {
		link, err := n.DevLink(c.Context(), t.Workspace)
		if err != nil {
			return err
		}
		inBrowser = "Or use a browser. This link signs you in, once:\n\n  " + link +
			"\n\nThere, check an address such as anna.smith@acme-clean.test, or upload examples/contacts.csv.\n\n"
	}
	fmt.Fprintf(c.OutOrStdout(), "Rollcall is running, with simulated receivers, for which an hour lasts a minute. "+
		"Ctrl-C ends it.\n\n"+
		"  API        %s\n  upload     %s\n  admin      %s\n  workspace  %s\n  key        %s\n\n"+
		"Try, in another terminal:\n\n"+
		"  export API=%s ROLLCALL_KEY=%s\n"+
		"  curl -H \"X-API-Key: $ROLLCALL_KEY\" $API/v1/credits\n"+
		"  rollcall verify examples/contacts.csv --api $API\n\n%s",
		n.APIURL, n.UploadURL, n.AdminURL, t.Workspace, t.Key, n.APIURL, t.Key, inBrowser)
	return nil
}

// limitMemory tells Go to use nine tenths of what the cgroups of this process allow, so that it collects garbage
// sooner instead of being killed; the rest is for what Go does not count, such as the embedded ledger's files in
// memory. GOMEMLIMIT, when somebody has set it, stays.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
	case err != nil:
		log.Warn("memory limit not set from the cgroup", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory limit of Go", "limit", limit)
	}
}

// newLogger makes the process's logger; c has passed config's Validate.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}
