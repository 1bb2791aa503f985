package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// interfaceVersion is the version of the customer's interface that this binary serves.
const interfaceVersion = "0.1.0"

// versionView says which binary this is.
type versionView struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Interface string `json:"interface"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

// String is the version in one line, for people.
func (v versionView) String() string {
	return fmt.Sprintf("rollcall %s (commit %s, interface %s, %s, %s)", v.Version, v.Commit, v.Interface, v.Go, v.Platform)
}

func newVersion() *cobra.Command {
	c := &cobra.Command{Use: "version", Short: "Say which version this is", Args: wantArgs()}
	asJSON := jsonFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		v := versionOf(debug.ReadBuildInfo())
		if *asJSON {
			return printJSON(c.OutOrStdout(), v)
		}
		_, err := fmt.Fprintln(c.OutOrStdout(), v)
		return err
	}
	return c
}

// versionOf reads what the Go tool has written into the binary.
func versionOf(info *debug.BuildInfo, ok bool) versionView {
	v := versionView{
		Version: "devel", Commit: "unknown", Interface: interfaceVersion,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
