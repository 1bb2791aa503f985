package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
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
	effort.ErrorIf(t, flags < 100, "only %d flags were found", flags)
}

func TestHelpAndVersionAnswerWhatIsAsked(t *testing.T) {
	c := newHere(t)
	version := c.does("version")
	effort.Is(t, c.does("--version"), version)
	effort.Has(t, version, "rollcall ")
	var v node.Version
	c.asks(&v, "version")
	effort.Is(t, v.Interface, node.InterfaceVersion)
	for _, args := range []string{"help", "help verify", "help throttle set", "help completion bash"} {
		effort.Has(t, c.does(strings.Fields(args)...), "Usage:", args)
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
	table := strings.Index(stderr, "OUTCOME")
	effort.ErrorIf(t, code != exitDone || told < 0 || table < told ||
		!strings.Contains(stderr, ": 1 row, 0 duplicates;"), "got code %d and %q", code, stderr)
}

// TestMailboxFullIsExplained where it is in the results, since it stands under two outcomes.
func TestMailboxFullIsExplained(t *testing.T) {
	const full = ",mailbox_full The receiver says that this mailbox is full.,2026-11-20T10:00:02.000Z\r\n"
	plainResults := strings.Replace(someResults, `"b,b"@a.test`, "b@a.test", 1)
	for results, want := range map[string]string{
		plainResults: "", plainResults + "d@a.test,invalid" + full: "here invalid 1.", plainResults + "d@a.test,invalid" +
			full + "e@a.test,unknown" + full: "here invalid 1, unknown 1.",
	} {
		r, _, stderr := newTestRun(t, service(t, "completed", results), verifyFlags{})
		effort.OK(t, r.run(t.Context()))
		explained := strings.Contains(stderr.String(), fullReason+": invalid where")
		effort.ErrorIf(t, explained != (want != "") || !strings.Contains(stderr.String(), want),
			"got\n%s\nwant %q", stderr, want)
	}
}

// TestOutIsTriedBeforeTheWork: it is refused at once, with what to do, and leaves nothing behind;
// no byte of anything that is there changes.
func TestOutIsTriedBeforeTheWork(t *testing.T) {
	c := newHere(t)
	const list = "email\na@nobody.invalid\n"
	c.write("list.csv", list)
	c.write("old.csv", "old")
	in := func(name string) string { return filepath.Join(c.folder, name) }
	for _, err := range []error{os.Symlink("list.csv", in("link.csv")), os.Link(in("list.csv"), in("hard.csv")),
		os.Symlink("nothing.csv", in("dangling.csv")), os.Symlink("old.csv", in("toold.csv")), os.Mkdir(in("sub"), 0o700),
		os.Mkdir(in("closed"), 0o500)} {
		effort.OK(t, err)
	}
	before := treeOf(t, c.folder)
	const own, exists = "is the file to verify itself", "exists: give another --out, or --force"
	for _, x := range []struct{ out, want string }{
		{"old.csv", exists}, {"toold.csv", exists}, {"dangling.csv", exists}, {"list.csv", own}, {"./sub/../list.csv", own},
		{in("list.csv"), own}, {"link.csv", own}, {"hard.csv", own}, {"sub",
			"is a folder: name a file in it, such as sub/results.csv"},
		{"none/r.csv", "there is no folder none for --out none/r.csv: make it"}, {"none/", "is a folder that does not exist"},
		{"old.csv/r.csv", "give another --out"}, {os.DevNull, "is not a regular file"},
		{strings.Repeat("x", 300), "give another --out"}, {"closed/r.csv",
			"may not write into closed: give --out in another folder"},
	} {
		if strings.HasPrefix(x.out, "closed") && os.Getuid() == 0 {
			continue // root may write anywhere
		}
		for _, force := range []bool{false, true} {
			args := []string{"verify", "--lab", "list.csv", "--out", x.out}
			if force {
				args = append(args, "--force")
			}
			if force && x.want == exists {
				continue
			}
			code, stdout, stderr := c.run(args...)
			effort.ErrorIf(t, code != exitFailed || !strings.Contains(lastLines(stderr), x.want) || stdout != "",
				"rollcall %q: got code %d, %q and %q, want %q", args, code, stdout, stderr, x.want)
		}
	}
	effort.Is(t, treeOf(t, c.folder), before)
	appended := effort.Must(os.OpenFile(in("list.csv"), os.O_APPEND|os.O_WRONLY, 0))(t)
	defer appended.Close()
	code := run(t.Context(), []string{"verify", "--lab", "list.csv"}, appended, io.Discard)
	effort.Is(t, code, exitFailed, "appended to itself")
	effort.Is(t, treeOf(t, c.folder), before, "appended to itself")
}

// treeOf is every name below a folder with what is in it.
func treeOf(t *testing.T, folder string) (all string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all += path + "\n"
			return err
		}
		text, _ := os.ReadFile(path) // a link to nothing has none
		all += path + ": " + string(text) + "\n"
		return nil
	})
	effort.OK(t, err)
	return all
}

// TestForceReplacesAndNothingElseDoes: also not a file that came while the work was done.
func TestForceReplacesAndNothingElseDoes(t *testing.T) {
	folder := t.TempDir()
	name, link := filepath.Join(folder, "r.csv"), filepath.Join(folder, "link.csv")
	fill := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	effort.OK(t, (term.OutFile{Name: name}).Check(nil, nil))
	effort.OK(t, os.WriteFile(name, []byte("meanwhile"), 0o600))
	effort.ErrHas(t, (term.OutFile{Name: name}).Write(fill("new")), "exists")
	effort.OK(t, os.Symlink("r.csv", link))
	want := "meanwhile"
	for _, x := range []struct{ name, text string }{{name, "one"}, {link, "two"}} {
		effort.Is(t, string(effort.Must(os.ReadFile(name))(t)), want)
		forced := term.OutFile{Name: x.name, Force: true}
		effort.OK(t, forced.Check(nil, nil))
		effort.OK(t, forced.Write(fill(x.text)))
		want = x.text
	}
	effort.Is(t, string(effort.Must(os.ReadFile(name))(t)), want, "through the link")
	entries := effort.Must(os.ReadDir(folder))(t)
	effort.Is(t, len(entries), 2, "the file and its link")
}
