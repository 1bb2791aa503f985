package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"rollcall/ledger/rules"
)

// What a transaction can end with beside its own refusals. The caller can tell
// only that nothing was changed, or that it does not know.
var (
	errAgain   = errors.New("simulation: serialization failure") // surely rolled back
	errUnknown = errors.New("simulation: the answer to the commit was lost")
	errLost    = fmt.Errorf("committed: %w", errUnknown)
	errAborted = errors.New("simulation: the transaction is aborted already")
)

// attemptsMax bounds the runs of one transaction, as a database does.
const attemptsMax = 3

// chances are how often, of 1,000 transactions, each fault happens.
type chances struct {
	statement int // one statement fails, and the transaction with it
	commit    int // the commit fails and nothing was changed
	lost      int // the commit was executed, its answer is lost
	between   int // of 1,000 re-runs: others get their turn before it
}

// inside runs do on the tables and commits what it did when it says so.
type inside func(do func(t rules.Tables) (commit bool))

// database runs transactions on the tables, one at a time, with faults.
type database struct {
	tables  *memory
	random  *rand.Rand
	chances chances
	check   func() // called after each commit
	between func() // lets others run before a transaction is run again
	inside  inside // how a transaction is run
	runs    int64  // transactions begun
	faults  int64  // of them with a fault
}

var _ rules.Database = (*database)(nil)

func (d *database) chance(of int) bool { return of > 0 && d.random.IntN(1000) < of }

// Update runs do until it is committed or refused, or has failed too often.
func (d *database) Update(_ context.Context, do func(t rules.Tables) error) error {
	unknown := false
	for attempt := 1; ; attempt++ {
		err := d.attempt(do)
		if !errors.Is(err, errAgain) && !errors.Is(err, errUnknown) {
			return err
		}
		unknown = unknown || errors.Is(err, errUnknown)
		if attempt == attemptsMax {
			if unknown {
				return errUnknown
			}
			return errAgain
		}
		if d.chance(d.chances.between) {
			d.between()
		}
	}
}

// attempt is one run of a transaction.
func (d *database) attempt(do func(t rules.Tables) error) (err error) {
	d.runs++
	at := -1
	if d.chance(d.chances.statement) {
		at = d.random.IntN(12) // a transaction has a dozen statements at most, mostly
	}
	err = errAborted // if there is no transaction at all
	d.inside(func(t rules.Tables) bool {
		d.tables.begin(at, errAgain)
		err = do(t)
		if err == nil && d.tables.aborted {
			err = errAborted // a failed statement was overlooked: the database commits nothing
		}
		if err != nil {
			return false
		}
		err = d.end()
		return err == nil || errors.Is(err, errLost)
	})
	switch {
	case err == nil || errors.Is(err, errLost):
		d.check()
	default:
		d.tables.rollback()
	}
	if errors.Is(err, errAgain) || errors.Is(err, errUnknown) {
		d.faults++
	}
	return err
}

// end draws what becomes of a commit.
func (d *database) end() error {
	switch {
	case d.chance(d.chances.commit) && d.random.IntN(2) == 0:
		return errAgain
	case d.chance(d.chances.commit):
		return errUnknown // and nothing was changed
	case d.chance(d.chances.lost):
		return errLost
	}
	return nil
}

// View runs do once; reads do not fail here.
func (d *database) View(_ context.Context, do func(t rules.Tables) error) (err error) {
	d.inside(func(t rules.Tables) bool {
		d.tables.begin(-1, nil)
		err = do(t)
		return false
	})
	return err
}
