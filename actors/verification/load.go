package verification

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rollcall/actors/intake"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// loaded is what comes of reading a verification: a plan to work on, or, when
// intake ended it or there are no credits, none.
type loaded struct {
	state ledger.Verification
	plan  *plan
	left  *leftover // of an earlier run; nil: nothing
}

// load reads the file and takes the verification as far as it goes without the
// receivers. It tries again until ctx ends: only the ledger can be in the way.
func load(ctx context.Context, o Options, v ledger.Verification, l ledger.Lease) (loaded, error) {
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		done, err := loadOnce(ctx, o, v, l)
		if err == nil || final(err) || ctx.Err() != nil {
			return done, err
		}
		o.Log.Warn("file not read yet", "verification", v.ID, "err", err)
		select {
		case <-ctx.Done():
			return loaded{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// errChanged says that the bytes of a file whose credits are held are not read as they were when
// it was accepted. Nothing in it is the customer's to repair.
var errChanged = errors.New("verification: the file is read differently than before")

// final reports whether a refusal of the ledger will be the same next time.
func final(err error) bool {
	return errors.Is(err, ledger.ErrStaleEpoch) || errors.Is(err, ledger.ErrIllegal) ||
		errors.Is(err, ledger.ErrNoSuchVerification) || errors.Is(err, errChanged)
}

func loadOnce(ctx context.Context, o Options, v ledger.Verification, l ledger.Lease) (loaded, error) {
	if v.Status == ledger.Cancelling {
		return loaded{state: v}, nil
	}
	within, told := o.Tracer.Begin(ctx, tracing.Intake)
	told.ID(tracing.Verification, v.ID)
	f, err := readFile(within, o, v)
	if f != nil {
		told.Count(tracing.Addresses, int64(f.Len()))
	}
	told.Count(tracing.Bytes, v.Bytes)
	told.End(err != nil)
	preparing := v.Status == ledger.Preparing
	if defect := (*intake.Defect)(nil); errors.As(err, &defect) && preparing {
		return refuse(ctx, o, l, defect)
	} else if defect != nil {
		return loaded{}, fmt.Errorf("%w: %w", errChanged, defect)
	}
	if err != nil {
		return loaded{}, err
	}
	if !preparing && (f.Rows() != v.Rows || int64(f.Len()) != v.Total) {
		return loaded{}, fmt.Errorf("%w: %d rows of %d addresses, were %d of %d", errChanged, f.Rows(), f.Len(), v.Rows, v.Total)
	}
	if preparing {
		if v, err = o.Book.Prepare(ctx, l, f.Rows(), f.Duplicates(), int64(f.Len())); err != nil {
			return loaded{}, fmt.Errorf("prepare verification: %w", err)
		}
		o.Log.Info("file read", "verification", v.ID, "rows", v.Rows, "addresses", v.Total, "status",
			v.Status)
		if v.Status != ledger.Verifying {
			return loaded{state: v}, nil
		}
	}
	settled := newBitset(f.Len())
	err = o.Book.Settled(ctx, v.ID, func(ordinals []int64) error {
		for _, ordinal := range ordinals {
			settled.set(uint32(ordinal))
		}
		return nil
	})
	if err != nil {
		return loaded{}, fmt.Errorf("read settlements: %w", err)
	}
	if left := f.Len() - settled.count(); settled.count() > 0 {
		o.Log.Info("verification goes on", "verification", v.ID, "settlement", v.Settlements, "left", left)
	}
	left, err := takeUp(ctx, o, v)
	if err != nil {
		return loaded{}, err
	}
	return loaded{state: v, plan: newPlan(f, settled), left: left}, nil
}

func readFile(ctx context.Context, o Options, v ledger.Verification) (*intake.File, error) {
	r, err := o.Book.OpenFile(ctx, v.ID)
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	defer r.Close()
	limits := intake.Limits{RowsMax: o.RowsMax}
	if v.Status != ledger.Preparing {
		limits.RowsMax = v.Rows // it was accepted, perhaps by a node with another limit
	}
	f, err := intake.Read(r, limits)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	return f, nil
}

func refuse(ctx context.Context, o Options, l ledger.Lease, d *intake.Defect) (loaded, error) {
	v, err := o.Book.Refuse(ctx, l, ledger.Issue{Code: d.Code, Message: d.Message, Row: d.Row,
		Text: d.Shown(ledger.IssueTextMax)})
	if err != nil {
		return loaded{}, fmt.Errorf("refuse file: %w", err)
	}
	o.Log.Info("file refused", "verification", v.ID, "reason", d.Code, "row", d.Row)
	return loaded{state: v}, nil
}
