package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/throttle"
)

func newThrottleExplain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain DOMAIN|KEY|source:ADDRESS",
		Short: "Show for every field which value holds, who said so, and until when",
		Long: "Show for every field which value holds for a mail domain, a receiver or one of our sources, which layer\n" +
			"said so, in which line of which file or by which override, and until when. Below is what the receiver has\n" +
			"taught us and what it makes us wait for now. --all also shows what was said and does not hold.",
		Example: "  rollcall throttle explain example.net\n" +
			"  rollcall throttle explain source:192.0.2.7\n" +
			"  rollcall throttle explain example.net --all",
		Args:              wantArgs("DOMAIN"),
		ValidArgsFunction: completeKey(node, nil),
	}
	asJSON := jsonFlag(c)
	all := c.Flags().Bool("all", false, "also what others said, the strongest first")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := node.client()
		if err != nil {
			return err
		}
		found, err := client.Explain(c.Context(), sourceKey(args[0]))
		if err != nil {
			return err
		}
		if *asJSON {
			return term.PrintJSON(c.OutOrStdout(), found)
		}
		x := explanation{Explanation: found, all: *all, now: time.Now(), width: term.WidthOf(c.OutOrStdout())}
		if len(found.Receiver) > 0 {
			if detail, err := client.Receiver(c.Context(), found.Key); err == nil {
				x.details = detail.Receivers
			}
		}
		return x.print(c.OutOrStdout())
	}
	return c
}

// sourceKey turns "source:default" into the key of the source whose address the system
// chooses.
func sourceKey(key string) string {
	if key == throttle.SourcePrefix+"default" {
		return throttle.SourcePrefix
	}
	return key
}

// explanation is what a node explained, as it is shown.
type explanation struct {
	inspect.Explanation
	all     bool
	now     time.Time
	width   int
	details []inspect.ReceiverDetail
}

// valueMost is how wide the values are; a longer one takes a line of its own.
const valueMost = 13

func (x explanation) print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(term.FoldedTo(x.title(), 0, x.width) + "\n\n")
	layer := "%-23s%-*s%-10s%s\n"
	fmt.Fprintf(&b, layer, "FIELD", valueMost+2, "VALUE", "LAYER", "FROM")
	for _, f := range x.Fields {
		x.line(&b, f.Field, f.Value, f.Said)
		if x.all {
			for _, beaten := range f.Beaten {
				x.line(&b, "  not", beaten.Value, beaten.Said)
			}
		}
	}
	for _, note := range x.notes() {
		b.WriteString("\n" + term.FoldedTo(note, 0, x.width) + "\n")
	}
	for _, d := range x.details {
		x.present(&b, d)
	}
	return term.Emit(w, &b)
}

// title says what is explained.
func (x explanation) title() string {
	text := ruleTarget(x.Key)
	if x.Domain != "" {
		text = fmt.Sprintf("%s is asked at receiver %s", x.Domain, x.Key)
		if len(x.Hosts) > 0 {
			text += " (hosts " + term.Some(x.Hosts) + ")"
		}
	}
	return text + "."
}

// line writes a field and who has set it.
func (x explanation) line(b *strings.Builder, field, value string, said inspect.Said) {
	value = term.Printable(term.Dash(value))
	indent := 23 + valueMost + 2 + 10
	head := fmt.Sprintf("%-23s%-*s%-10s", field, valueMost+2, value, said.Layer)
	if utf8.RuneCountInString(value) > valueMost {
		head = fmt.Sprintf("%-23s%s\n%-*s%-10s", field, value, 23+valueMost+2, "", said.Layer)
	}
	b.WriteString(strings.TrimRight(head+term.FoldedTo(from(said, x.now), indent, x.width), " ") + "\n")
}

// from says who said something: the rule, its place, and of an override its end.
func from(said inspect.Said, now time.Time) string {
	var parts []string
	if said.Name != "" {
		parts = append(parts, ruleKey(said.Name))
	}
	switch {
	case said.ID != "":
		parts = append(parts, fmt.Sprintf("override %.8s by %s", said.ID, cmp.Or(said.Author, "nobody named")))
	case said.Where != "":
		parts = append(parts, said.Where)
	}
	if !said.Until.IsZero() {
		parts = append(parts, term.Until(said.Until, now))
	}
	text := strings.Join(parts, ", ")
	if said.Reason != "" {
		text += ": " + said.Reason
	}
	return text
}

// notes says what the table does not show.
func (x explanation) notes() (notes []string) {
	if len(x.Narrower) > 0 {
		notes = append(notes, "Narrower names with rules of their own, which go before these: "+term.Some(x.Narrower)+".")
	}
	if len(x.Beside) > 0 {
		notes = append(notes, "Other receivers of the same operator, each with an allowance of its own: "+
			term.Some(x.Beside)+".")
	}
	var a throttle.Limits
	isReceiver := false
	for _, e := range x.Fields {
		if f, known := throttle.ParseField(e.Field); known {
			_ = a.Set(f, e.Value) // what cannot be read here is a field of another version
			isReceiver = isReceiver || f == throttle.FieldRefusedPerSession
		}
	}
	if isReceiver && throttle.StrangerLimits(a) != a {
		notes = append(notes,
			fmt.Sprintf("Sessions end after %d refusals all the same: this receiver is not known to "+
				"bear many. With refused_per_hour of %d or more, or a refused_share, refused_per_session holds.",
				throttle.StrangerRefused,
				throttle.StrangerBelow))
	}
	switch {
	case len(x.Receiver) > 0 || !isReceiver:
	case len(x.Silent) > 0:
		notes = append(notes, "Nothing is asked of it now by the nodes that answer.")
	default:
		notes = append(notes, "Nothing is asked of it now.")
	}
	for _, note := range x.Notes {
		notes = append(notes, term.Printable(note))
	}
	return append(notes, filesState(x.Others, x.Silent)...)
}

// present writes how a receiver stands where it lives.
func (x explanation) present(b *strings.Builder, d inspect.ReceiverDetail) {
	fmt.Fprintf(b, "\n%s\n", term.FoldedTo(fmt.Sprintf("Now, on %s: %s. %s", d.Node, stateText(d.Receiver, x.now),
		d.Why), 0,
		x.width))
	for _, cause := range d.Causes {
		b.WriteString("    " + term.FoldedTo("believed: "+cause, 4, x.width) + "\n")
	}
	if d.Software != nil {
		b.WriteString("    " + term.FoldedTo("software: "+softwareLine(d.Software), 4, x.width) + "\n")
	}
	for _, text := range lessons(d, x.now) {
		b.WriteString("    " + term.FoldedTo(text, 4, x.width) + "\n")
	}
}

// sourceName names a source to a person.
func sourceName(source string) string { return cmp.Or(source, "default") }
