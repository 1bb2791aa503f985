package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/config"
)

// errCandidate says that a throttle file cannot be used.
var errCandidate = errors.New("it cannot be used")

// checkView is what was found in a throttle file, for programs.
type checkView struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`    // no finding is an error
	Rules    int              `json:"rules"` // with those of the configuration; 0 when it cannot be used
	Findings []config.Finding `json:"findings"`
}

func newThrottleCheck(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a throttle file before it is used; exit 1 with each fault and its place",
		Long: "Check a throttle file before it is used, here and without a node: faults with line and column, rules that\n" +
			"cannot match, rules that allow more than an operator is known to bear. Exit 1 when it could not be used; a\n" +
			"warning is no failure. --config names the configuration that it would stand beside.",
		Example: "  rollcall throttle check throttle.new.toml && mv throttle.new.toml throttle.toml",
		Args:    wantArgs("FILE"),
	}
	asJSON, file := jsonFlag(c), configFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return err
		}
		rules, findings, err := config.CheckThrottle(args[0], loaded.Throttle)
		if err != nil {
			return err
		}
		out := checkView{File: args[0], OK: true, Rules: len(rules), Findings: findings}
		faults := 0
		for _, f := range findings {
			if f.Severity == config.SeverityError {
				faults++
			}
		}
		out.OK = faults == 0
		if *asJSON {
			if out.Findings == nil {
				out.Findings = []config.Finding{}
			}
			err = term.PrintJSON(c.OutOrStdout(), out)
		} else {
			err = printCheck(c, out)
		}
		if err == nil && faults > 0 {
			err = fmt.Errorf("%s: %w: %s", args[0], errCandidate, times(faults, "error"))
		}
		return err
	}
	return c
}

// times writes how many of something there are.
func times(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%s %s", term.Grouped(int64(n)), thing)
}

func printCheck(c *cobra.Command, out checkView) error {
	var b strings.Builder
	width := term.WidthOf(c.OutOrStdout())
	for _, f := range out.Findings {
		b.WriteString(term.FoldedTo(fmt.Sprintf("%s: %s", f.Severity, f), 4, width) + "\n")
	}
	if out.OK {
		text := fmt.Sprintf("%s can be used: %s with those of the configuration", out.File, times(out.Rules, "rule"))
		if n := len(out.Findings); n > 0 {
			text += ", " + times(n, "warning")
		}
		b.WriteString(term.FoldedTo(text+".", 0, width) + "\n")
	}
	return term.Emit(c.OutOrStdout(), &b)
}

// faultsOf gives the faults of a throttle file as one error; warnings are none.
func faultsOf(file string) error {
	_, findings, err := config.CheckThrottle(file, config.Default().Throttle)
	if err != nil {
		return err
	}
	var faults []string
	for _, f := range findings {
		if f.Severity == config.SeverityError {
			faults = append(faults, f.String())
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}
