package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/ledger"
	"rollcall/smtp/throttle"
)

func newThrottle(e environment) *cobra.Command {
	c := asGroup(&cobra.Command{
		Use:   "throttle",
		Short: "See, explain, change and try out what receivers are asked",
		Long: "See, explain, change and try out what receivers are asked.\n\n" +
			"A rule names a receiver, an MX host suffix or a mail domain, and sets some fields. The narrowest name wins,\n" +
			"field by field; of rules with the same name an override goes before the throttle file, the file before what\n" +
			"is known of operators, and that before the default. A rule for source:ADDRESS is for one of our sources.\n" +
			"An override holds for all nodes within two seconds, and ends by itself.\n\n" +
			term.FoldedTo("Fields: "+strings.Join(fieldNames(), ", ")+".", 0, helpWidth),
	})
	node := addAdminFlags(c, e)
	c.AddCommand(newThrottleList(node), newThrottleExplain(node), newThrottleSet(node), newThrottleClear(node),
		newThrottleCheck(e), newThrottleReplay(node))
	return c
}

// helpWidth is how wide the lines of help texts are.
const helpWidth = 108

// fieldNames are the names of all fields, in the order in which they are shown.
func fieldNames() (names []string) {
	for _, f := range throttle.Fields() {
		names = append(names, f.String())
	}
	return names
}

// dayHours is written "d" in lengths of time, as 2d.
const dayHours = 24 * time.Hour

// daysMost is what more days are taken for: a century is more than anything here may last.
const daysMost = 36_500

// parseSpan reads a length of time, also in days: 30m, 2h, 3d.
func parseSpan(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 64)
		if err == nil || errors.Is(err, strconv.ErrRange) {
			return time.Duration(min(n, daysMost)) * dayHours, nil
		}
	}
	return time.ParseDuration(text)
}

// parseFor reads how long an override shall hold.
func parseFor(text string) (time.Duration, error) {
	if text == "" {
		return 0, term.UsageError("--for is missing: say how long it shall hold, as --for 2h")
	}
	d, err := parseSpan(text)
	if err != nil {
		return 0, term.UsageError(fmt.Sprintf("--for %q is no length of time: write 30m, 2h or 3d", text))
	}
	if d < ledger.OverrideMin || d > ledger.OverrideMax {
		return 0, term.UsageError(fmt.Sprintf("--for %s: an override holds for 1s to %dd; what shall stay belongs into the "+
			"throttle file", text, ledger.OverrideMax/dayHours))
	}
	return d, nil
}

// parseFields reads FIELD=VALUE arguments.
func parseFields(args []string) (map[string]string, error) {
	fields := map[string]string{}
	for _, arg := range args {
		name, value, found := strings.Cut(arg, "=")
		if !found {
			return nil, term.UsageError(fmt.Sprintf("%q is no FIELD=VALUE, such as rcpt_rate=2/s", arg))
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

// unknownField names the field that was likely meant, and all there are.
func unknownField(name string) string {
	names := cobra.Command{SuggestionsMinimumDistance: (len(name) + 2) / 3}
	for _, known := range fieldNames() {
		names.AddCommand(&cobra.Command{Use: known, Run: func(*cobra.Command, []string) {}})
	}
	text := fmt.Sprintf("there is no field %q", name)
	if near := names.SuggestionsFor(name); len(near) > 0 {
		text += ": did you mean " + near[0] + "?"
	}
	return text + " The fields are " + strings.Join(fieldNames(), ", ")
}

// completeKey offers the keys of receivers and the names of rules to a shell for the
// first argument, and then what more gives.
func completeKey(node *adminFlags, more func(args []string, typed string) []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			if more == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return more(args, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		client, err := node.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		var names []string
		if known, err := client.Receivers(ctx); err == nil {
			for _, r := range known.Receivers {
				names = append(names, fmt.Sprintf("%s\t%s queued, %s", term.Printable(r.Key), term.Grouped(int64(r.Queued)),
					term.Printable(r.State)))
			}
		}
		if known, err := client.Rules(ctx); err == nil {
			for _, r := range known.Rules {
				if r.Name != "" && r.Layer != throttle.LayerKnown.String() {
					names = append(names, fmt.Sprintf("%s\t%s", term.Printable(r.Name), term.Printable(r.Layer)))
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFields offers the fields that are not set yet.
func completeFields(args []string, _ string) (offers []string) {
	isSource := strings.HasPrefix(args[0], throttle.SourcePrefix)
	for _, f := range throttle.Fields() {
		set := false
		for _, arg := range args[1:] {
			set = set || strings.HasPrefix(arg, f.String()+"=")
		}
		if !set && (isSource && f.OfSource() || !isSource && f.OfReceiver()) {
			offers = append(offers, f.String()+"=")
		}
	}
	return offers
}

// overrideID reads --id: a whole id, or the beginning of one of those that hold.
func overrideID(ctx context.Context, client *client.Admin, text string) (uuid.UUID, error) {
	if id, err := uuid.Parse(text); err == nil {
		return id, nil
	}
	known, err := client.Rules(ctx)
	if err != nil {
		return uuid.Nil, err
	}
	var fits []string
	for _, r := range known.Rules {
		if r.ID != "" && strings.HasPrefix(r.ID, strings.ToLower(text)) {
			fits = append(fits, r.ID)
		}
	}
	switch len(fits) {
	case 0:
		return uuid.Nil, fmt.Errorf("no override that holds has an id that begins with %q: see `rollcall throttle list`",
			text)
	case 1:
		return uuid.Parse(fits[0])
	}
	return uuid.Nil, fmt.Errorf("several overrides fit, so give more of the id: %s", strings.Join(fits, ", "))
}

// readCandidate reads a file that is to be tried.
func readCandidate(name string) (string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("there is no file %s: check the path", name)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	return string(text), nil
}
