package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // root certificates for systems without any, such as an image of one file

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
)

// The exit codes that operators can rely on.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitStopped = 130 // stopped by Ctrl-C or SIGTERM before the end
)

func main() {
	tuneCollections()
	// The first signal asks the command to end; the next one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	signal.Ignore(syscall.SIGPIPE) // so that writing to a closed pipe fails, which run reports
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(signalled context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancel(signalled)
	defer stop()
	out := &term.Output{To: stdout, Stop: stop}
	root := newRoot(os.Environ())
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if failed := out.Failed(); failed != nil {
		err = failed // the cause of the command's error
	}
	if err == nil {
		return exitDone
	}
	for line := range strings.SplitSeq(client.Advised(err), "\n") {
		fmt.Fprintln(stderr, "rollcall:", line)
	}
	if isUsage(err) {
		fmt.Fprintf(stderr, "Run %q for help.\n", command.CommandPath()+" --help")
		return exitUsage
	}
	if signalled.Err() != nil {
		return exitStopped
	}
	return exitFailed
}

func isUsage(err error) bool { return errors.Is(err, term.ErrUsage) }

// newRoot makes the whole command tree. environ is in the form of os.Environ.
func newRoot(environ []string) *cobra.Command {
	e := environment(environ)
	root := &cobra.Command{
		Use:   "rollcall",
		Short: "Check which addresses of a list take mail",
		Long: "Rollcall asks each receiving mail server whether it would accept mail for the addresses of a CSV file,\n" +
			"politely and within the receiver's limits, and charges one credit for each final answer.\n\n" +
			"The quickest way in:  rollcall verify --lab examples/contacts.csv\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C or SIGTERM.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = node.ThisVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	addGroup(root, "For customers:", newVerify(e), newLint(), newCheck(e), newList(e), newStatus(e), newResults(e),
		newCancel(e), newCredits(e), newData())
	addGroup(root, "For operators, who has an account:", newWorkspace(e), newUser(e), newKey(e))
	addGroup(root, "For operators, what is asked and answered:", newReceivers(e), newSourcesCommand(e), newThrottle(e),
		newVerification(e), newEvidence(e), newReplay(e), newVerdict(e), newLog(e))
	addGroup(root, "For operators, nodes and ledger:", newServe(e), newOperate(e), newDoctor(e), newConfig(e),
		newCluster(e), newLedger(e), newAudit(e), newBackup(e), newMigrate(e), newLab())
	root.AddCommand(newVersion())
	asGroup(root)
	checkArguments(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			helpKnows(root, c)
		case "completion":
			asGroup(c)
		}
	}
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// flagError is the error about a wrong flag; it names the flag that may have been meant.
func flagError(c *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return term.UsageError(err.Error())
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	word := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); letters != "" { // -json
		word = letters
	}
	if near := config.Nearest(word, names); near != "" {
		return term.UsageError(fmt.Sprintf("%v: did you mean --%s?", err, near))
	}
	return term.UsageError(err.Error())
}

// helpKnows makes the command help refuse unknown commands. By default help ignores unknown words and succeeds.
func helpKnows(root, help *cobra.Command) {
	show := help.Run
	help.Run = nil
	help.RunE = func(c *cobra.Command, args []string) error {
		found := root
		for _, name := range args {
			at := slices.IndexFunc(found.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
			if at < 0 {
				return asGroup(found).RunE(found, []string{name})
			}
			found = found.Commands()[at]
		}
		show(c, args)
		return nil
	}
}

// asGroup makes a command with subcommands refuse a call without a subcommand or with an unknown one.
func asGroup(group *cobra.Command) *cobra.Command {
	group.Args = cobra.ArbitraryArgs
	group.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			fmt.Fprint(c.ErrOrStderr(), c.UsageString())
			return term.UsageError(fmt.Sprintf("%q needs a command", c.CommandPath()))
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		var names []string
		for _, one := range c.Commands() {
			if one.IsAvailableCommand() {
				names = append(names, one.Name())
			}
		}
		if near := config.Nearest(args[0], names); near != "" {
			text += ": did you mean " + near + "?"
		}
		return term.UsageError(text)
	}
	return group
}

// argumentsOf requires the arguments in a command's line of use, such as "show KEY [NODE] --for DURATION". An
// argument in brackets or before a bar may be missing; one that ends with dots may be repeated.
func argumentsOf(use string) cobra.PositionalArgs {
	words := strings.Fields(use)[1:]
	var names []string // of required arguments
	most := 0
	for i, word := range words {
		if strings.HasPrefix(word, "--") || word == "|" || i > 0 && strings.HasPrefix(words[i-1], "--") {
			continue
		}
		name, repeated := strings.CutSuffix(word, "...")
		if most++; repeated {
			most = math.MaxInt
		}
		if word[0] != '[' && (i == len(words)-1 || words[i+1] != "|") {
			name, _, _ = strings.Cut(name, "|")
			names = append(names, name)
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return term.UsageError(fmt.Sprintf("%s is missing", names[len(args)]))
		case len(args) > most:
			return term.UsageError(fmt.Sprintf("unexpected argument %q", args[most]))
		}
		return nil
	}
}

// checkArguments makes a command, and those below it, check their arguments by argumentsOf, unless they check them
// already.
func checkArguments(c *cobra.Command) {
	if c.Args == nil {
		c.Args = argumentsOf(c.Use)
	}
	for _, below := range c.Commands() {
		checkArguments(below)
	}
}

// environment is the environment of the process: texts of the form NAME=value.
type environment []string

// value returns the value of a name: the last one if it is set twice, "" if it is not set.
func (e environment) value(name string) string {
	found := ""
	for _, line := range e {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			found = value
		}
	}
	return found
}
