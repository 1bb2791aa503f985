package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/actors/inspect"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

func newThrottle(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "throttle",
		Short: "See, explain, change and try out the limits of receivers",
		Long: "See, explain, change and try out the limits of receivers.\n\n" +
			"A rule names a receiver, an MX host suffix or a mail domain, and sets some fields. The narrowest name wins,\n" +
			"field by field. With the same name an override takes precedence over the throttle file, the file over the\n" +
			"known limits of mail operators, and these over the default. A rule for source:ADDRESS is for one of our\n" +
			"sources. An override applies on all nodes within two seconds, and ends by itself.\n\n" +
			term.FoldedTo("Fields: "+strings.Join(fieldNames(), ", ")+".", 0, helpWidth),
	})
	node := addAdminFlags(c, e)
	c.AddCommand(newThrottleList(node), newThrottleExplain(node), newThrottleSet(node), newThrottleClear(node),
		newThrottleCheck(e), newThrottleReplay(node))
	return c
}

const helpWidth = 108

func fieldNames() (names []string) {
	for _, f := range throttle.Fields() {
		names = append(names, f.String())
	}
	return names
}

// dayHours is written "d" in lengths of time, as 2d.
const dayHours = 24 * time.Hour

func parseFor(text string) (time.Duration, error) {
	if text == "" {
		return 0, term.UsageError("--for is missing: say how long it lasts, such as --for 2h")
	}
	d, err := admin.ParseSpan(text)
	if err != nil {
		return 0, term.UsageError(fmt.Sprintf("--for %q is not a length of time: write 30m, 2h or 3d", text))
	}
	if d < ledger.OverrideMin || d > ledger.OverrideMax {
		return 0, term.UsageError(fmt.Sprintf("--for %s: an override lasts 1s to %dd; write permanent rules into the "+
			"throttle file", text, ledger.OverrideMax/dayHours))
	}
	return d, nil
}

func parseFields(args []string) (map[string]string, error) {
	fields := map[string]string{}
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		if !found {
			return nil, term.UsageError(fmt.Sprintf("%q is not FIELD=VALUE, such as rcpt_rate=2/s", arg))
		}
		if _, known := throttle.ParseField(name); !known {
			return nil, term.UsageError(unknownField(name))
		}
		if _, twice := fields[name]; twice {
			return nil, term.UsageError(name + " is set twice")
		}
		fields[name] = value
	}
	if _, err := throttle.ParseOverride(fields); err != nil {
		return nil, term.UsageError(strings.TrimPrefix(err.Error(), throttle.ErrLimits.Error()+": "))
	}
	return fields, nil
}

// unknownField is the error about an unknown field. It names the most similar field, and all fields.
func unknownField(name string) string {
	text := fmt.Sprintf("there is no field %q", name)
	if near := config.Nearest(name, fieldNames()); near != "" {
		text += ": did you mean " + near + "?"
	}
	return text + " The fields are " + strings.Join(fieldNames(), ", ")
}

// overrideID reads --id: a whole id, or the beginning of the id of an active override.
func overrideID(ctx context.Context, node *client.Admin, text string) (uuid.UUID, error) {
	known, err := node.Rules(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	var hold []client.Named
	for _, r := range known.Rules {
		if r.ID != "" {
			hold = append(hold, client.Named{ID: r.ID})
		}
	}
	id, err := client.Pick("override", "rollcall throttle list", text, hold)
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.Parse(id)
}

var errCandidate = errors.New("it cannot be used")

type checkView struct {
	File     string           `json:"file"`
	OK       bool             `json:"ok"`    // whether no finding is an error
	Rules    int              `json:"rules"` // with those of the configuration; 0 when it cannot be used
	Findings []config.Finding `json:"findings"`
}

func newThrottleCheck(e environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a throttle file before it is used; exit 1 with each fault and its place",
		Long: "Check a throttle file before a node uses it. It lists faults with line and column, rules that\n" +
			"cannot match, rules that exceed the known limits of a mail operator. Exit 1 if the file can't be used; a\n" +
			"warning is no failure. --config names the configuration that it belongs to.",
		Example: "  rollcall throttle check throttle.new.toml && mv throttle.new.toml throttle.toml",
	}
	file := configFlag(c)
	return answerWith(c, func(args []string) (out checkView, err error) {
		loaded, err := config.Load(*file, e)
		if err != nil {
			return out, err
		}
		rules, findings, err := config.CheckThrottle(args[0], loaded.Throttle)
		out = checkView{File: args[0], Rules: len(rules), Findings: append([]config.Finding{}, findings...)}
		out.OK = out.failsWith() == nil
		return out, err
	}, printCheck)
}

func (v checkView) failsWith() error {
	faults := 0
	for _, f := range v.Findings {
		if f.Severity == config.SeverityError {
			faults++
		}
	}
	if faults == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", v.File, errCandidate, term.Counted(faults, "error"))
}

func printCheck(b *term.Page, out checkView) {
	for _, f := range out.Findings {
		b.WriteString(b.Mark("", term.FoldedTo(fmt.Sprintf("%s: %s", f.Severity, f), 4, b.Width)) + "\n")
	}
	if out.OK {
		text := fmt.Sprintf("%s can be used: %s with those of the configuration", out.File,
			term.Counted(out.Rules, "rule"))
		if n := len(out.Findings); n > 0 {
			text += ", " + term.Counted(n, "warning")
		}
		b.Para(0, "%s.", text)
	}
}

func newThrottleSet(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "set KEY FIELD=VALUE... --for DURATION --reason REASON",
		Short: "Override fields of a receiver, a mail domain or a source for a time",
		Long: "Override fields of a receiver, an MX host suffix, a mail domain or source:ADDRESS for a time, on all nodes\n" +
			"within two seconds. It ends by itself; `rollcall throttle clear` ends it earlier. It drops no session,\n" +
			"except with pause=yes.\n\n" +
			"An override that exceeds the known limits of a mail operator needs --force.\n\n" +
			term.FoldedTo("Fields: "+strings.Join(fieldNames(), ", ")+".", 0, helpWidth),
		Example: "  rollcall throttle set example.net rcpt_rate=2/s connections=1 --for 1h --reason \"they complained\"\n" +
			"  rollcall throttle set source:192.0.2.7 rcpts_per_day=5000 --for 7d --reason warm-up",
	}
	change := addChangeFlags(c)
	force := c.Flags().Bool("force", false, "also when it exceeds the known limits of a mail operator")
	return answerWith(c, func(args []string) (out setView, err error) {
		fields, err := parseFields(args[1:])
		if err != nil {
			return out, err
		}
		return change.set(c, node, admin.OverrideCall{Key: sourceKey(args[0]), Fields: fields, Force: *force})
	}, printSet)
}

type changeFlags struct{ holds, reason string }

func addChangeFlags(c *cobra.Command) *changeFlags {
	f := &changeFlags{}
	c.Flags().StringVar(&f.holds, "for", "", "how long it lasts: 30m, 2h, 3d")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the operator log and for people who see the override")
	return f
}

// followWithin is how long the asked node may take to apply a change: nodes read changes every second. followEvery is
// how often the command checks that.
const (
	followWithin = 4 * time.Second
	followEvery  = 100 * time.Millisecond
)

type setView struct {
	Override admin.ThrottleRule   `json:"override"`
	Before   *inspect.Explanation `json:"before"` // null: the values could not be explained
	After    *inspect.Explanation `json:"after"`  // null: not explained, or the node had not applied it yet
	warn     func()               // warns of a name that may be mistyped
}

// set sets an override; the flags give its length and reason.
func (f *changeFlags) set(c *cobra.Command, node *adminFlags, call admin.OverrideCall) (out setView, err error) {
	holds, err := parseFor(f.holds)
	if err != nil {
		return out, err
	}
	if strings.TrimSpace(f.reason) == "" {
		return out, term.UsageError("--reason is missing: say why, for the operator on call")
	}
	client, err := node.client()
	if err != nil {
		return out, err
	}
	call.ID, call.Seconds, call.Reason = uuid.New(), int64(holds/time.Second), f.reason
	if x, err := client.ExplainRules(c.Context(), call.Key); err == nil {
		out.Before = &x
	}
	if err := client.Ask(c.Context(), "POST", "/v1/throttle/overrides", call, &out.Override); err != nil {
		return out, err
	}
	if out.Before != nil {
		out.After = awaitRules(c.Context(), client.ExplainRules, call.Key,
			func(x inspect.Explanation) bool { return says(x, out.Override.ID) })
	}
	out.warn = func() {
		if text := unknownName(c.Context(), client, out); text != "" {
			fmt.Fprintln(c.ErrOrStderr(), term.FoldedTo("rollcall: warning: "+text, 0, term.WidthOf(c.ErrOrStderr())))
		}
	}
	return out, nil
}

// awaitRules asks a node about a key until the node has applied a change of overrides; nil: not in time.
func awaitRules(ctx context.Context, explain func(context.Context, string) (inspect.Explanation, error), key string,
	follows func(inspect.Explanation) bool) *inspect.Explanation {
	ctx, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	for {
		x, err := explain(ctx, key)
		if err == nil && follows(x) {
			return &x
		}
		if term.Sleep(ctx, followEvery) != nil {
			return nil
		}
	}
}

func says(x inspect.Explanation, id string) bool {
	for _, f := range x.Fields {
		if f.ID == id {
			return true
		}
		for _, beaten := range f.Beaten {
			if beaten.ID == id {
				return true
			}
		}
	}
	return false
}

// unknownName warns if no receiver or rule has the name of an override, because the name may be mistyped.
func unknownName(ctx context.Context, client *client.Admin, out setView) string {
	name := out.Override.Name
	if strings.HasPrefix(name, throttle.SourcePrefix) {
		known, err := client.Sources(ctx)
		if err != nil {
			return ""
		}
		for _, s := range known.Sources {
			if throttle.SourcePrefix+s.Source == ruleKey(name) {
				return ""
			}
		}
		return fmt.Sprintf("no node has a source %s: `rollcall sources` lists them",
			sourceName(strings.TrimPrefix(name, throttle.SourcePrefix)))
	}
	known, err := client.Rules(ctx)
	if err != nil {
		return ""
	}
	for _, r := range known.Rules {
		if r.ID != out.Override.ID && (r.Name == name || strings.HasSuffix(r.Name, "."+name)) {
			return ""
		}
	}
	live, err := client.Receivers(ctx)
	if err != nil {
		return ""
	}
	for _, r := range live.Receivers {
		if own := throttle.NameOf(r.Key); own == name || strings.HasSuffix(own, "."+name) {
			return ""
		}
	}
	if x, err := client.Explain(ctx, name); err == nil && len(x.Receiver)+len(x.Hosts) > 0 {
		return ""
	}
	return fmt.Sprintf("the override is set, but no receiver and no other rule has the name %s: check the spelling", name)
}

func printSet(b *term.Page, out setView) {
	now := time.Now()
	until := time.Time(*out.Override.Until)
	b.Para(0, "Set for %s until %s (%s), override %s.", ruleTarget(out.Override.Name), term.Clock(until, now),
		term.Left(until, now), out.Override.ID)
	b.WriteByte('\n')
	g := term.Table{Columns: []term.Column{{Name: "FIELD"}, {Name: "BEFORE", Least: 8}, {Name: "NOW", Least: 8},
		{Name: "FROM BEFORE", Least: 20}}}
	var beaten []string
	for _, f := range out.Override.Fields {
		before, said := fieldOf(out.Before, f.Field)
		after, by := fieldOf(out.After, f.Field)
		if out.After == nil {
			after = f.Value
		} else if by.ID != out.Override.ID {
			beaten = append(beaten, fmt.Sprintf("%s stays %s, by %s %s", f.Field, term.Dash(after), by.Layer, from(by, now)))
		}
		g.Add(f.Field, term.Dash(before), term.Dash(after), strings.TrimSpace(said.Layer+" "+from(said, now)))
	}
	b.Table(&g)
	notes := []string{}
	if len(beaten) > 0 {
		notes = append(notes, "Something goes before it: "+strings.Join(beaten, "; ")+".")
	}
	switch {
	case out.After != nil && len(out.After.Narrower) > 0:
		notes = append(notes, "Narrower names with their own rules take precedence: "+term.Some(out.After.Narrower)+".")
	case out.Before != nil && out.After == nil:
		notes = append(notes, "The asked node has not applied it yet: look again with `rollcall throttle explain "+
			ruleKey(out.Override.Name)+"`.")
	}
	b.Notes(notes...)
	if b.Emit() == nil {
		out.warn()
	}
}

// ruleKey writes the name of a rule as commands accept it.
func ruleKey(name string) string {
	if name == throttle.SourcePrefix {
		return name + "default"
	}
	return name
}

func fieldOf(x *inspect.Explanation, field string) (string, inspect.Said) {
	if x != nil {
		for _, f := range x.Fields {
			if f.Field == field {
				return f.Value, f.Said
			}
		}
	}
	return "", inspect.Said{}
}

func newThrottleClear(node *adminFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "clear KEY | --id ID",
		Short: "End overrides of a name early",
		Long: "End all overrides of a name early, or one of them with --id. The rules of the throttle file\n" +
			"stay as they are.",
		Example: "  rollcall throttle clear example.net\n  rollcall throttle clear example.net --id 5f2c91aa",
	}
	id := c.Flags().String("id", "", "only the override with this id or beginning of an id, from 'rollcall throttle list'")
	reason := c.Flags().String("reason", "", "why, for the operator log")
	of := "this id"
	return adminCommand(node, c, func(to *client.Admin, args []string) (ended admin.Cleared, err error) {
		if len(args) == 0 && *id == "" {
			return ended, term.UsageError("KEY is missing: name the rule whose overrides to end, or give --id")
		}
		call := admin.ClearCall{Reason: *reason}
		if len(args) > 0 {
			call.Key, of = sourceKey(args[0]), args[0]
		}
		if *id != "" {
			if call.ID, err = overrideID(c.Context(), to, *id); err != nil {
				return ended, err
			}
		}
		return to.Clear(c.Context(), call)
	}, func(b *term.Page, ended admin.Cleared) { printCleared(b, of, ended.Cleared) })
}

func printCleared(b *term.Page, key string, ended []admin.ThrottleRule) {
	if len(ended) == 0 {
		b.Para(0, "No override of %s is active: nothing was ended. `rollcall throttle list` shows the active ones.", key)
		return
	}
	g := term.Table{Columns: []term.Column{{Name: "ENDED"}, {Name: "NAME", Least: 20}, {Name: "WHAT IT SET", Least: 15,
		Wrap: true}}}
	for _, r := range ended {
		var set []string
		for _, f := range r.Fields {
			set = append(set, f.Field+"="+f.Value)
		}
		g.Add(fmt.Sprintf("%.8s", r.ID), ruleKey(r.Name), strings.Join(set, " "))
	}
	b.Table(&g)
}
