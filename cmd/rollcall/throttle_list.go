package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

func newThrottleList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "list [NAME-PART]",
		Short: "List overrides and the rules of the throttle file",
		Long: "List the overrides that hold, with what is left of them, who set them and why, and the rules of the\n" +
			"throttle file as the node that is asked has read it. A rule is beaten when a later layer says the same of\n" +
			"the same name. --all also lists the default and what is known of\n" +
			"operators.",
		Example: "  rollcall throttle list\n  rollcall throttle list google --all",
		Args:    mostArgs(1),
	}
	asJSON := jsonFlag(c)
	all := c.Flags().Bool("all", false, "also the default and what is known of operators")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		var known admin.ThrottleRules
		if err := client.Ask(c.Context(), "GET", "/v1/throttle?files=all", nil, &known); err != nil {
			return err
		}
		known.Rules = slices.DeleteFunc(known.Rules, func(r admin.ThrottleRule) bool {
			own := r.Layer == throttle.LayerFile.String() || r.Layer == throttle.LayerOverride.String()
			return !own && !*all || len(args) > 0 && !strings.Contains(r.Name, strings.ToLower(args[0]))
		})
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), known)
		}
		return printRules(c.OutOrStdout(), known)
	}
	return c
}

// mostArgs refuses more arguments than that.
func mostArgs(most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > most {
			return term.UsageError(fmt.Sprintf("unexpected argument %q", args[most]))
		}
		return nil
	}
}

// printRules writes the strongest layer first, since that is what somebody changed last.
func printRules(w io.Writer, known admin.ThrottleRules) error {
	var b strings.Builder
	width := term.WidthOf(w)
	layers := []throttle.Layer{throttle.LayerOverride, throttle.LayerFile, throttle.LayerKnown, throttle.LayerDefault}
	titles := []string{"OVERRIDE", "FILE", "KNOWN", "DEFAULT"}
	shown := 0
	for i, layer := range layers {
		for _, r := range known.Rules {
			if r.Layer != layer.String() {
				continue
			}
			if shown++; shown > 1 {
				b.WriteByte('\n')
			}
			writeRule(&b, r, ruleTitle{titles[i], time.Time(known.Now), width})
		}
	}
	if shown == 0 {
		b.WriteString("No override holds, and no throttle file sets a rule.\n")
	}
	if text := fileState(known.File, time.Time(known.Now)); text != "" {
		b.WriteString("\n" + term.FoldedTo(text, 0, width) + "\n")
	}
	for _, text := range filesState(known.Others, known.Silent) {
		b.WriteString("\n" + term.FoldedTo(text, 0, width) + "\n")
	}
	return term.Emit(w, &b)
}

// filesState says of which nodes the throttle file differs from that of the node that was
// asked, and of which nothing is known.
func filesState(others []inspect.OtherFile, silent []inspect.Silent) (texts []string) {
	for _, o := range others {
		node := term.Printable(o.Node)
		if o.Differs {
			texts = append(texts, fmt.Sprintf("Other rules of a throttle file hold on %s: what lives there is asked by "+
				"them. Ask that node with --admin.", node))
		}
		if o.Fault != "" {
			texts = append(texts, fmt.Sprintf("%s does not use its throttle file as it is now: %s.", node,
				strings.TrimSuffix(term.Printable(o.Fault), ".")))
		}
	}
	for _, s := range silent {
		texts = append(texts, fmt.Sprintf("Without %s, which does not answer: %s", term.Printable(s.Node),
			term.Printable(s.Why)))
	}
	return texts
}

// ruleTitle is how a rule is shown.
type ruleTitle struct {
	layer string
	now   time.Time
	width int
}

func writeRule(b *strings.Builder, r admin.ThrottleRule, t ruleTitle) {
	head := t.layer + " " + ruleTarget(r.Name)
	if r.Until != nil {
		until := time.Time(*r.Until)
		head += fmt.Sprintf(", %s left, until %s", term.Left(until, t.now), term.Clock(until, t.now))
	}
	whole := beatenBy(r)
	if whole != "" {
		head += ", beaten by " + whole + ": nothing of it holds"
	}
	b.WriteString(term.FoldedTo(head, 4, t.width) + "\n")
	if r.ID != "" {
		for _, text := range []string{r.ID + ", by " + cmp.Or(r.Author, "nobody named"), r.Reason} {
			b.WriteString("    " + term.FoldedTo(text, 4, t.width) + "\n")
		}
	}
	for _, group := range byPlace(r.Fields) {
		var set []string
		for _, f := range group {
			text := f.Field + "=" + term.Dash(f.Value)
			if f.Beaten != "" && whole == "" {
				text += " (beaten by " + layerWord(r, f.Beaten) + ")"
			}
			set = append(set, text)
		}
		b.WriteString("    " + term.FoldedTo(strings.Join(set, " "), 4, t.width) + "\n")
		if where := group[0].Where; where != "" {
			b.WriteString("        " + term.FoldedTo(where, 8, t.width) + "\n")
		}
	}
}

// beatenBy names the layers that hold instead of a rule all of whose fields are beaten; "":
// something of it holds.
func beatenBy(r admin.ThrottleRule) string {
	var by []string
	for _, f := range r.Fields {
		if f.Beaten == "" {
			return ""
		}
		if word := layerWord(r, f.Beaten); !slices.Contains(by, word) {
			by = append(by, word)
		}
	}
	return strings.Join(by, " and ")
}

// layerWord names the layer that beats a rule.
func layerWord(r admin.ThrottleRule, layer string) string {
	if layer == r.Layer {
		return "a later " + layer
	}
	return layer
}

// byPlace puts fields together that were written at the same place, or said by the same
// source.
func byPlace(fields []admin.ThrottleField) (groups [][]admin.ThrottleField) {
	for _, f := range fields {
		at := slices.IndexFunc(groups, func(g []admin.ThrottleField) bool { return g[0].Where == f.Where })
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], f)
	}
	return groups
}

// ruleTarget names what a rule is for.
func ruleTarget(name string) string {
	switch {
	case name == "":
		return "everybody"
	case name == throttle.SourcePrefix:
		return "the source whose address the system chooses (source:default)"
	}
	return name
}

// fileState says how the throttle file stands.
func fileState(f admin.ThrottleFile, now time.Time) string {
	switch {
	case f.File == "":
		return "No throttle file is configured ([throttle] file)."
	case f.Fault != "" && f.Loaded == nil:
		return fmt.Sprintf("%s not used: %s. Nothing of it holds.", f.File, strings.TrimSuffix(f.Fault, "."))
	case f.Fault != "":
		return fmt.Sprintf("%s not used: %s. What was read at %s holds on.", f.File, strings.TrimSuffix(f.Fault, "."),
			term.Clock(time.Time(*f.Loaded), now))
	case f.Loaded == nil:
		return fmt.Sprintf("%s is not there; when it is, it is read within a second.", f.File)
	}
	return fmt.Sprintf("%s is in use, read at %s.", f.File, term.Clock(time.Time(*f.Loaded), now))
}
