package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rollcall/actors/inspect"
)

// everyCommand calls visit with each command of the tree.
func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		everyCommand(below, visit)
	}
}

// TestHelpOfFlagsHasNoStrayQuotes: what stands in back quotes is shown as the flag's value.
func TestHelpOfFlagsHasNoStrayQuotes(t *testing.T) {
	flags := 0
	everyCommand(newRoot(nil), func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				flags++
				if name, _ := pflag.UnquoteUsage(f); strings.ContainsAny(name, " -.") {
					t.Errorf("%s: --%s has the value %q", c.CommandPath(), f.Name, name)
				}
			})
		}
	})
	if flags < 100 {
		t.Errorf("only %d flags were found", flags)
	}
}

func TestHelpAndVersionAnswerWhatIsAsked(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	code, version, _ := c.run("version")
	if code, stdout, _ := c.run("--version"); code != exitDone || stdout != version || !strings.HasPrefix(stdout,
		"rollcall ") {
		t.Errorf("--version: got code %d and %q, want %q", code, stdout, version)
	}
	if code != exitDone {
		t.Errorf("version: got code %d", code)
	}
	for _, args := range [][]string{{"help"}, {"help", "verify"}, {"help", "throttle", "set"}, {"help", "completion",
		"bash"}} {
		if code, stdout, stderr := c.run(args...); code != exitDone || !strings.Contains(stdout, "Usage:") {
			t.Errorf("rollcall %q: got code %d and %q", args, code, stderr)
		}
	}
	for want, args := range map[string][]string{
		`unknown command "foo" for "rollcall"`:                              {"help", "foo"},
		`unknown command "bush" for "rollcall completion": did you mean`:    {"completion", "bush"},
		`unknown command "verfy" for "rollcall": did you mean verify?`:      {"help", "verfy"},
		`unknown command "foo" for "rollcall throttle"`:                     {"help", "throttle", "foo"},
		`"here" is not a URL: write one such as http://127.0.0.1:8080`:      {"verify", "x", "--api", "here", "--key", "k"},
		`--admin "here" is not a URL: write one such as http://127.0.0.1:8`: {"audit", "--admin", "here"},
	} {
		if code, stdout, stderr := c.run(args...); code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("rollcall %q: got code %d, %q and %q, want %q", args, code, stdout, stderr, want)
		}
	}
}

// TestAHeaderThatLooksLikeAnAddressIsTold before the upload; that the file is taken is seen on its table.
func TestAHeaderThatLooksLikeAnAddressIsTold(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.environ = hurried
	c.write("list.csv", "anna@@one-clean.test\nbert@nobody.invalid\n")
	code, _, stderr := c.run("verify", "--lab", "list.csv")
	told := strings.Index(stderr, `list.csv: row 1, "anna@@one-clean.test": The first row looks like an address, but`)
	if table := strings.Index(stderr, "OUTCOME"); code != exitDone || told < 0 || table < told ||
		!strings.Contains(stderr, ": 1 row, 0 duplicates;") {
		t.Errorf("got code %d and %q", code, stderr)
	}
}

// TestMailboxFullIsExplained where it is in the results, since it stands under two outcomes.
func TestMailboxFullIsExplained(t *testing.T) {
	const full = ",mailbox_full The receiver says that this mailbox is full.,2026-11-20T10:00:02.000Z\r\n"
	plainResults := strings.Replace(someResults, `"b,b"@a.test`, "b@a.test", 1)
	for results, want := range map[string]string{
		plainResults: "", plainResults + "d@a.test,invalid" + full: "here invalid 1.", plainResults + "d@a.test,invalid" +
			full +
			"e@a.test,unknown" + full: "here invalid 1, unknown 1.",
	} {
		r, _, stderr := newTestRun(t, service(t, "completed", results), verifyFlags{})
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if explained := strings.Contains(stderr.String(), fullReason+": invalid where"); explained != (want != "") ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("got\n%s\nwant %q", stderr, want)
		}
	}
}

// TestPipedTablesAreWhole: keys above all, and at a terminal they fit.
func TestPipedTablesAreWhole(t *testing.T) {
	b := newThrottleBench(t)
	b.survey.receivers = []inspect.Receivers{busyReceivers()}
	key := ""
	for _, r := range busyReceivers().Receivers {
		if len(r.Key) > len(key) {
			key = r.Key
		}
	}
	if out := b.piped("receivers"); !strings.Contains(out, key+"  ") || utf8.RuneCountInString(key) < 30 {
		t.Errorf("%s is cut in\n%s", key, out)
	}
	_, _, err := b.run(t.Context(), "receivers", "nosuch")
	if err == nil || isUsage(err) || !strings.Contains(err.Error(),
		`no receiver that is asked now has "nosuch" in its key`) {
		t.Errorf("nosuch: got %v", err)
	}
}
