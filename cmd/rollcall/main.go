package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"rollcall/cmd/rollcall/term"
)

// The exit codes of the operators' contract.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent is how much the heap may grow between two collections, unless GOGC
// says otherwise: through 1,000,000 addresses the peak is a sixth lower than with
// Go's 100, for about a tenth more processor time (docs/developers/measured.md).
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// The first signal asks the command to end; from then on a signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is a write that fails, for run to tell of
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and gives the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := &term.Output{To: stdout, Stop: stop}
	root := newRoot(os.Environ())
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if failed := out.Failed(); failed != nil {
		err = failed // whatever the command says, it is for this
	}
	if err == nil {
		return exitDone
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "rollcall:", line)
	}
	if isUsage(err) {
		fmt.Fprintf(stderr, "Run %q for help.\n", command.CommandPath()+" --help")
		return exitUsage
	}
	return exitFailed
}
