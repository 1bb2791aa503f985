package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
)

func newReceiversForget(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "forget KEY --reason REASON",
		Short: "Forget what a receiver taught us, on all nodes",
		Long: "Forget what a receiver taught us, on all nodes at once and in what is kept for later:\n" +
			"  pace      how fast each of our sources may ask; the search begins anew\n" +
			"  sessions  how many sessions it takes at once, and how long they may be\n" +
			"  block     that it, one of its hosts, or one of our sources there rests\n" +
			"  all       that, how long it greylists, its TLS and its software\n\n" +
			"What the allowance says still holds, and refusals of this hour still count. Addresses that it put off\n" +
			"come back when they were told to.",
		Example: "  rollcall receivers forget example.net --what block --reason \"they took us off their list\"",
		Args:    wantArgs("KEY"), ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	what := c.Flags().String("what", "all", strings.Join(inspect.Forgets[:], ", "))
	reason := c.Flags().String("reason", "", "why, for the operator log")
	must(c.RegisterFlagCompletionFunc("what", cobra.FixedCompletions(inspect.Forgets[:], cobra.ShellCompDirectiveNoFileComp)))
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(inspect.Forgets[:], *what) {
			return term.UsageError(fmt.Sprintf("--what %q is none of %s", *what, strings.Join(inspect.Forgets[:], ", ")))
		}
		if strings.TrimSpace(*reason) == "" {
			return term.UsageError("--reason is missing: say why, for those who read the operator log")
		}
		client, err := node.client()
		if err != nil {
			return err
		}
		var done forgottenAnswer
		err = client.Ask(c.Context(), "POST", "/v1/receivers/forget",
			map[string]any{"key": args[0], "what": *what, "reason": *reason}, &done)
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), done)
		}
		return printForgotten(c.OutOrStdout(), done, *what)
	}
	return c
}

// forgottenAnswer is what the node answers.
type forgottenAnswer struct {
	Receivers []inspect.Forgotten `json:"receivers"`
	Silent    []inspect.Silent    `json:"silent"`
}

// printForgotten says each thing that was dropped on a line of its own.
func printForgotten(w io.Writer, done forgottenAnswer, what string) error {
	var b strings.Builder
	width := term.WidthOf(w)
	for _, f := range done.Receivers {
		at := "on " + f.Node
		if f.Node == "" {
			at = "kept for later"
		}
		head := fmt.Sprintf("%s, %s, forgotten:", f.Key, at)
		if len(f.Dropped) == 0 {
			head = fmt.Sprintf("%s, %s: nothing was learned that --what %s names.", f.Key, at, what)
		}
		b.WriteString(term.FoldedTo(head, 0, width) + "\n")
		for _, text := range f.Dropped {
			b.WriteString("  - " + term.FoldedTo(text, 4, width) + "\n")
		}
	}
	for _, s := range done.Silent {
		b.WriteString(term.FoldedTo(fmt.Sprintf("Without %s, which does not answer and may still know it: %s. Do it again "+
			"when it "+
			"does.", s.Node, s.Why), 0, width) + "\n")
	}
	return term.Emit(w, &b)
}
