package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/smtp/throttle"
)

func newThrottleExplain(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain DOMAIN|KEY|source:ADDRESS",
		Short: "Show the value in effect for every field, its origin, and until when",
		Long: "Show the value in effect for every field of a mail domain, a receiver or one of our sources, with its\n" +
			"layer, the line of the file or the override, and until when. Below are the learned limits and the present\n" +
			"waits of the receiver. --all also shows overridden values.",
		Example: "  rollcall throttle explain example.net\n" +
			"  rollcall throttle explain source:192.0.2.7\n" +
			"  rollcall throttle explain example.net --all",
	}
	all := c.Flags().Bool("all", false, "also overridden values, the strongest first")
	return adminCommand(node, c, func(to *client.Admin, args []string) (x explanation, err error) {
		x = explanation{all: *all, now: time.Now()}
		if x.Explanation, err = to.Explain(c.Context(), sourceKey(args[0])); err == nil && len(x.Receiver) > 0 {
			if detail, err := to.Receiver(c.Context(), x.Key); err == nil {
				x.details = detail.Receivers
			}
		}
		return x, err
	}, func(b *term.Page, x explanation) { x.print(b) })
}

// sourceKey turns "source:default" into the key of the source whose address the system chooses.
func sourceKey(key string) string {
	if key == throttle.SourcePrefix+"default" {
		return throttle.SourcePrefix
	}
	return key
}

type explanation struct {
	inspect.Explanation
	all     bool
	now     time.Time
	details []inspect.ReceiverDetail
}

// valueMost is the width of the values. A longer value takes a line of its own.
const valueMost = 13

func (x explanation) print(b *term.Page) {
	b.Para(0, "%s", x.title())
	fmt.Fprintf(b, "\n%-23s%-*s%-10s%s\n", "FIELD", valueMost+2, "VALUE", "LAYER", "FROM")
	for _, f := range x.Fields {
		x.line(b, f.Field, f.Value, f.Said)
		if x.all {
			for _, beaten := range f.Beaten {
				x.line(b, "  not", beaten.Value, beaten.Said)
			}
		}
	}
	b.Notes(x.notes()...)
	for _, d := range x.details {
		x.present(b, d)
	}
}

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

func (x explanation) line(b *term.Page, field, value string, said inspect.Said) {
	value = term.Printable(term.Dash(value))
	indent := 23 + valueMost + 2 + 10
	head := fmt.Sprintf("%-23s%-*s%-10s", field, valueMost+2, value, said.Layer)
	if utf8.RuneCountInString(value) > valueMost {
		head = fmt.Sprintf("%-23s%s\n%-*s%-10s", field, value, 23+valueMost+2, "", said.Layer)
	}
	b.WriteString(strings.TrimRight(head+term.FoldedTo(from(said, x.now), indent, b.Width), " ") + "\n")
}

// from describes the origin of a value: the rule, its place, and the end of an override.
func from(said inspect.Said, now time.Time) string {
	place := said.Where
	if said.ID != "" {
		place = fmt.Sprintf("override %.8s by %s", said.ID, cmp.Or(said.Author, "nobody named"))
	}
	return listed(ruleKey(said.Name), place, when("", said.Until, now, term.Until)) + after(": ", said.Reason)
}

// notes returns sentences about what the table does not show.
func (x explanation) notes() (notes []string) {
	if len(x.Narrower) > 0 {
		notes = append(notes, "Narrower names with their own rules, which take precedence: "+term.Some(x.Narrower)+".")
	}
	if len(x.Beside) > 0 {
		notes = append(notes, "Other receivers of the same operator, each with its own limits: "+term.Some(x.Beside)+".")
	}
	var a throttle.Limits
	isReceiver := false
	for _, e := range x.Fields {
		if f, known := throttle.ParseField(e.Field); known {
			_ = a.Set(f, e.Value) // another version may have fields that are unreadable here
			isReceiver = isReceiver || f == throttle.FieldRefusedPerSession
		}
	}
	if isReceiver && throttle.StrangerLimits(a) != a {
		notes = append(notes,
			fmt.Sprintf("Sessions end after %d refusals nevertheless: this receiver is not known to "+
				"tolerate many. With refused_per_hour of %d or more, or a refused_share, refused_per_session applies.",
				throttle.StrangerRefused,
				throttle.StrangerBelow))
	}
	switch {
	case len(x.Receiver) > 0 || !isReceiver:
	case len(x.Silent) > 0:
		notes = append(notes, "No node that answers asks this receiver anything now.")
	default:
		notes = append(notes, "Nothing is asked of it now.")
	}
	for _, note := range x.Notes {
		notes = append(notes, term.Printable(note))
	}
	return append(notes, filesState(x.Others, x.Silent)...)
}

func (x explanation) present(b *term.Page, d inspect.ReceiverDetail) {
	b.WriteByte('\n')
	text := fmt.Sprintf("Now, on %s: %s", d.Node, stateText(d.Receiver, x.now))
	if d.Why != "" {
		text += "; " + strings.TrimSuffix(d.Why, ".")
	}
	b.Para(0, "%s.", text)
	for _, cause := range d.Causes {
		b.Para(4, "believed: %s", cause)
	}
	if d.Software != nil {
		b.Para(4, "software: %s", softwareSentence(d.Software))
	}
	for _, text := range lessons(d, x.now) {
		b.Para(4, "%s", text)
	}
}

func sourceName(source string) string { return cmp.Or(source, "default") }

func newThrottleList(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "list [NAME-PART]",
		Short: "List overrides and the rules of the throttle file",
		Long: "List the active overrides with their time left, author and reason, and the rules of the throttle file as\n" +
			"read by the asked node. A rule is beaten when a stronger layer sets the same field of the same name. --all\n" +
			"also lists the default and the known limits of mail operators.",
		Example: "  rollcall throttle list\n  rollcall throttle list google --all",
	}
	all := c.Flags().Bool("all", false, "also the default and the known limits of mail operators")
	return adminCommand(node, c, func(to *client.Admin, args []string) (known admin.ThrottleRules, err error) {
		err = to.Ask(c.Context(), "GET", "/v1/throttle?files=all", nil, &known)
		known.Rules = slices.DeleteFunc(known.Rules, func(r admin.ThrottleRule) bool {
			own := r.Layer == throttle.LayerFile.String() || r.Layer == throttle.LayerOverride.String()
			return !own && !*all || len(args) > 0 && !strings.Contains(r.Name, strings.ToLower(args[0]))
		})
		return known, err
	}, printRules)
}

// printRules writes the rules, with the strongest layer first.
func printRules(b *term.Page, known admin.ThrottleRules) {
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
			writeRule(b, r, titles[i], time.Time(known.Now))
		}
	}
	if shown == 0 {
		b.WriteString("No override is active, and no throttle file sets a rule.\n")
	}
	b.Notes(fileState(known.File, time.Time(known.Now)))
	b.Notes(filesState(known.Others, known.Silent)...)
}

// filesState names the nodes whose throttle file differs from that of the asked node, and those that did not answer.
func filesState(others []inspect.OtherFile, silent []inspect.UnreachableNode) (texts []string) {
	for _, o := range others {
		node := term.Printable(o.Node)
		if o.Differs {
			texts = append(texts, fmt.Sprintf("%s has another throttle file, which applies to its receivers. "+
				"Ask that node with --admin.", node))
		}
		if o.Fault != "" {
			texts = append(texts, fmt.Sprintf("%s does not use its present throttle file: %s.", node,
				strings.TrimSuffix(term.Printable(o.Fault), ".")))
		}
	}
	return append(texts, silentNotes(silent)...)
}

func silentNotes(silent []inspect.UnreachableNode) (texts []string) {
	for _, s := range silent {
		texts = append(texts, fmt.Sprintf("Without %s, which does not answer: %s", term.Printable(s.Node),
			term.Printable(s.Why)))
	}
	return texts
}

func writeRule(b *term.Page, r admin.ThrottleRule, layer string, now time.Time) {
	head := layer + " " + ruleTarget(r.Name)
	if r.Until != nil {
		until := time.Time(*r.Until)
		head += fmt.Sprintf(", %s left, until %s", term.Left(until, now), term.Clock(until, now))
	}
	whole := beatenBy(r)
	if whole != "" {
		head += ", beaten by " + whole + ": nothing of it holds"
	}
	b.WriteString(term.FoldedTo(head, 4, b.Width) + "\n")
	if r.ID != "" {
		b.Para(4, "%s, by %s", r.ID, cmp.Or(r.Author, "nobody named"))
		b.Para(4, "%s", r.Reason)
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
		b.Para(4, "%s", strings.Join(set, " "))
		if where := group[0].Where; where != "" {
			b.Para(8, "%s", where)
		}
	}
}

// beatenBy names the layers that override a rule in all its fields, or returns "" if some of its fields are in
// effect.
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

// layerWord names the layer that overrides a rule.
func layerWord(r admin.ThrottleRule, layer string) string {
	if layer == r.Layer {
		return "a later " + layer
	}
	return layer
}

// byPlace groups fields that were written at the same place or come from the same source.
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

func ruleTarget(name string) string {
	switch {
	case name == "":
		return "everybody"
	case name == throttle.SourcePrefix:
		return "the source whose address the system chooses (source:default)"
	}
	return name
}

func fileState(f admin.ThrottleFile, now time.Time) string {
	switch {
	case f.File == "":
		return "No throttle file is configured ([throttle] file)."
	case f.Fault != "" && f.Loaded == nil:
		return fmt.Sprintf("%s not used: %s. None of its rules is in use.", f.File, strings.TrimSuffix(f.Fault, "."))
	case f.Fault != "":
		return fmt.Sprintf("%s not used: %s. The rules read at %s stay in use.", f.File, strings.TrimSuffix(f.Fault, "."),
			term.Clock(time.Time(*f.Loaded), now))
	case f.Loaded == nil:
		return fmt.Sprintf("%s does not exist; once it does it is read within a second.", f.File)
	}
	return fmt.Sprintf("%s is in use, read at %s.", f.File, term.Clock(time.Time(*f.Loaded), now))
}

func newThrottleReplay(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Try a throttle file on the records of the last hours",
		Long: "Try a throttle file on the nodes' records of the last hours: which fields would have held receivers\n" +
			"back and how often, how many addresses could have been asked, and when the last one. Nothing is\n" +
			"changed and no receiver is asked. How receivers would have answered further questions is\n" +
			"unknown, and the report says where that matters.",
		Example: "  rollcall throttle replay throttle.new.toml",
	}
	return adminCommand(node, c, func(to *client.Admin, args []string) (found inspect.Replayed, err error) {
		text, err := readThrottleCandidate(args[0])
		if err != nil {
			return found, err
		}
		ctx, cancel := context.WithTimeout(c.Context(), replayTimeout)
		defer cancel()
		return found, to.Call(ctx, "POST", "/v1/throttle/replay", map[string]string{"throttle": text}, &found)
	}, printThrottleReplay)
}

// replayTimeout bounds a replay: collecting the record of a large cluster takes long.
const replayTimeout = 5 * time.Minute

// readThrottleCandidate reads and checks a throttle file, so that errors have the file's name.
func readThrottleCandidate(name string) (string, error) {
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("there is no file %s: check the path", name)
	case err != nil:
		return "", fmt.Errorf("read %s: %w", filepath.Base(name), err)
	case len(bytes.TrimSpace(text)) == 0:
		return "", term.UsageError(name + " is empty: there is nothing to try")
	}
	_, err = config.LoadThrottle(config.Throttle{File: name})
	return string(text), err
}

func printThrottleReplay(b *term.Page, r inspect.Replayed) {
	b.Para(0, "The record reaches back %s: %s addresses were asked. %s of the receivers in it would see no difference, "+
		"%s would.", reach(r.Hours), term.Grouped(r.Asked),
		term.Grouped(r.Same), term.Grouped(len(r.Receivers)))
	for _, one := range r.Receivers {
		writeReceiverReplay(b, one)
	}
	for _, text := range r.Warnings {
		b.Notes("Warning: " + text)
	}
	for _, s := range r.Silent {
		b.Notes("Without what " + s.Node + " recorded: " + s.Why)
	}
	b.Notes("Nothing was changed, and no receiver was asked: this is the record, recalculated.")
}

// reach writes how far back a record goes, rounded down to minutes.
func reach(hours float64) string {
	d := time.Duration(hours * float64(time.Hour))
	if d < time.Minute {
		return "less than a minute"
	}
	return term.Rough((d + time.Millisecond).Truncate(time.Minute)) // tolerates rounding of fractions
}

func writeReceiverReplay(b *term.Page, one inspect.ReceiverReplay) {
	delay := "at the same time"
	switch d := term.Seconds(one.Delay); {
	case d >= time.Second:
		delay = term.Rough(d) + " later"
	case d <= -time.Second:
		delay = term.Rough(-d) + " sooner"
	}
	fmt.Fprintf(b, "\n%s\n", term.Printable(one.Key))
	indented := func(text string) { b.Para(4, "%s", text) }
	for _, c := range one.Changes {
		indented(fmt.Sprintf("%s: %s now, %s then", c.Field, term.Dash(c.Now), term.Dash(c.Would)))
	}
	bound := "at most"
	if one.AtLeast {
		bound, delay = "at least", delay+", or even sooner: more addresses waited than the record shows"
	}
	indented(fmt.Sprintf("asked %s, then %s %s; the last of them %s", term.Grouped(one.Asked), bound,
		term.Grouped(one.Would), delay))
	for _, field := range slices.SortedFunc(maps.Keys(one.Fired), func(a, b string) int {
		return one.Fired[b] - one.Fired[a]
	}) {
		if n := one.Fired[field]; n > 0 {
			indented(fmt.Sprintf("%s would have held the receiver back in %s of the minutes", field, term.Grouped(n)))
		}
	}
	if one.Unknown != "" {
		indented("Not known: " + one.Unknown)
	}
}
