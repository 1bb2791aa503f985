package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const (
	// checkEvery is the time between two looks at DNS and port 25, and failingEvery it
	// while something fails, so that a mended record is seen soon. Guesses.
	checkEvery   = 15 * time.Minute
	failingEvery = time.Minute

	// lookEvery is the time between two looks at what is known in memory.
	lookEvery = 10 * time.Second

	// checkWithin bounds one look at everything, DNS and connections included.
	checkWithin = 2 * time.Minute

	// atOnce is how many questions one look has out at the same time.
	atOnce = 8
)

// Options say what to check. Resolver, Sources, Return, Jitter, Log and Changed are
// required; the others may be left out.
type Options struct {
	Resolver Resolver
	// Sources gives the addresses to check, asked anew each time: interfaces change.
	Sources func() ([]Source, error)
	Return  string // return path, for the check that is the same for all sources
	// Lab says that receivers are simulated: sources that no receiver on the Internet
	// could see are then no fault, and nothing is checked at them.
	Lab   bool
	Ways  []Way    // out, to try Hosts; none: port 25 is judged by Reach
	Hosts []string // that may be dialled to see whether port 25 is open
	Reach *Reach   // what the node's own sessions say; nil: nothing
	Lists *Lists   // nil: no block list is asked
	// Offset is the ledger's clock minus ours; false: not known. nil: not checked.
	Offset func() (time.Duration, bool)
	// Resting is how receivers take the sources. nil: not known.
	Resting func() []Resting
	// Jitter gives a number below n at random, so that nodes do not ask together.
	Jitter func(n int64) int64
	Log    *slog.Logger
	// Changed is told each new report, by one goroutine.
	Changed func(Report)
}

// Validate says what is missing; its error wraps ErrOptions.
func (o Options) Validate() error {
	switch {
	case o.Resolver == nil || o.Sources == nil:
		return fmt.Errorf("%w: no resolver or sources", ErrOptions)
	case o.Jitter == nil || o.Log == nil || o.Changed == nil:
		return fmt.Errorf("%w: no jitter, log or changed", ErrOptions)
	case len(o.Hosts) > 0 && len(o.Ways) == 0:
		return fmt.Errorf("%w: hosts to reach and no way", ErrOptions)
	}
	return nil
}

// ErrOptions says that the options are not usable; the text says what is missing.
var ErrOptions = errors.New("not usable as identity options")
