package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/node"
	"rollcall/config"
)

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
		Args: wantArgs("FILE"),
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
		Args:  wantArgs(),
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

// configFlag adds --config.
func configFlag(c *cobra.Command) *string {
	return c.Flags().String("config", "", "the configuration file (default: none, every setting has a default)")
}

// warnUnknown names environment variables that look like settings but are none.
func warnUnknown(c *cobra.Command, e environment) {
	for _, name := range config.UnknownEnviron(e) {
		fmt.Fprintf(c.ErrOrStderr(), "rollcall: warning: %s in the environment is not a setting and is ignored\n",
			name)
	}
}

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Say which version this is", Args: wantArgs()}
	return answerWith(c, func([]string) (node.Version, error) { return node.VersionOf(debug.ReadBuildInfo()), nil },
		func(w io.Writer, v node.Version) error {
			_, err := fmt.Fprintln(w, v)
			return err
		})
}
