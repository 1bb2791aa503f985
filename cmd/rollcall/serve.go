package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
)

// devCredits are the credits of the workspace of serve --dev: enough for a file of the largest default size.
const devCredits = 1_000_000

func newServe(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node until SIGTERM or Ctrl-C, which drain it",
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

func serve(c *cobra.Command, e environment, loaded config.Config, dev bool) error {
	if dev {
		loaded = node.LabConfig(loaded)
	}
	if dev && term.IsTerminal(c.ErrOrStderr()) && loaded.Log == config.Default().Log {
		loaded.Log = config.Log{Level: "warn", Format: "text"} // a person reads what is printed below
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
		stopping := tellManager(log)
		select {
		case <-c.Context().Done():
		case err = <-n.Cluster.Failed():
		}
		stopping()
		log.Info("draining")
	}
	if stopErr := node.StopNode(c.Context(), n); err == nil {
		err = stopErr
	}
	if dev && err == nil {
		fmt.Fprintf(c.OutOrStdout(), "\nRollcall has stopped. %s keeps what you did, for the next start.\n", loaded.DataDir)
	}
	return err
}

// tellManager notifies the process's manager, such as systemd for a unit of Type=notify, that the node serves. Twice
// in each WATCHDOG_USEC it also notifies that the process still runs. The function it returns notifies that the node
// drains. Without NOTIFY_SOCKET all this does nothing.
func tellManager(log *slog.Logger) (stopping func()) {
	tell := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("service manager not notified", "state", state, "err", err)
		}
	}
	tell(daemon.SdNotifyReady)
	if every, err := daemon.SdWatchdogEnabled(false); err == nil && every > 0 {
		go func() { // runs until the process ends, also while it drains
			for range time.Tick(every / 2) {
				tell(daemon.SdNotifyWatchdog)
			}
		}()
	}
	return func() { tell(daemon.SdNotifyStopping) }
}

// startedAs returns the command that runs this program again: its name, or a `go run` command, whose binary is
// deleted when it ends.
func startedAs(name string) string {
	if strings.Contains(name, "/go-build") {
		return "go run ./cmd/rollcall"
	}
	return name
}

// printDev makes the workspace of serve --dev and prints what to try.
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
		inBrowser = "Or use a browser. This link signs you in, once; the next start prints a new one:\n\n  " + link +
			"\n\nThere, check an address such as anna.smith@acme-clean.test, or upload examples/contacts.csv.\n\n"
	}
	fmt.Fprintf(c.OutOrStdout(), "Rollcall is running. Ctrl-C ends it. Its receivers are simulated:\n"+
		"they know only names that end in .test, and for them an hour lasts a minute.\n\n"+
		"  API        %s\n  upload     %s\n  admin      %s\n  workspace  %s\n  key        %s\n\n"+
		"Try, in another terminal in this folder:\n\n"+
		"  export API=%s ROLLCALL_KEY=%s\n"+
		"  curl -H \"X-API-Key: $ROLLCALL_KEY\" $API/v1/credits\n"+
		"  %s verify examples/contacts.csv --api $API\n\n%s",
		n.APIURL, n.UploadURL, n.AdminURL, t.Workspace, t.Key, n.APIURL, t.Key, startedAs(os.Args[0]), inBrowser)
	return nil
}

// limitMemory sets Go's memory limit to nine tenths of what this process's cgroups allow. So Go collects garbage
// sooner, before the system kills the process. The remainder is for memory that Go does not count, such as the
// embedded ledger's files in memory. GOMEMLIMIT takes precedence.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	if err != nil {
		log.Debug("no memory limit of a cgroup", "err", err) // for example on a machine without a memory controller
	} else if limit < math.MaxInt64 {
		log.Info("memory limit of Go", "limit", limit)
	}
}

// newLogger makes the process's logger. c has been validated.
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

func newConfig(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{Use: "config", Short: "Check and show the configuration"})
	c.AddCommand(newConfigCheck(e), newConfigShow(e))
	return c
}

func newConfigCheck(e environment) *cobra.Command {
	return &cobra.Command{
		Use: "check FILE",
		Short: "Check a configuration file, its throttle file, its rules and the environment; exit 1 with each " +
			"fault and its place",
		RunE: func(c *cobra.Command, args []string) error {
			loaded, err := config.Check(args[0], e)
			_, inThrottle := config.LoadThrottle(loaded.Throttle)
			_, inRules := node.LoadRules(loaded.Verdict)
			_, inProvider := node.ProviderOf(loaded.Dashboard)
			warnUnknown(c, e)
			if err := errors.Join(err, inThrottle, inRules, inProvider); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s is fine\n", args[0])
			return nil
		},
	}
}

func newConfigShow(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration in effect: defaults, file, environment",
	}
	file, asJSON := configFlag(c), jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		warnUnknown(c, e)
		show := loaded.ShowTOML
		if *asJSON {
			show = loaded.ShowJSON
		}
		text, err := show()
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	}
	return c
}

func configFlag(c *cobra.Command) *string {
	return c.Flags().String("config", "", "the configuration file (default: none, every setting has a default)")
}

func warnUnknown(c *cobra.Command, e environment) {
	for _, name := range config.UnknownEnviron(e) {
		fmt.Fprintf(c.ErrOrStderr(), "rollcall: warning: %s in the environment is not a setting and is ignored\n", name)
	}
}

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Say which version this is"}
	return answerWith(c, func([]string) (node.Version, error) { return node.ThisVersion(), nil },
		func(b *term.Page, v node.Version) { fmt.Fprintln(b, v) })
}
