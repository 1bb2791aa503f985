package ledger

import (
	"context"
	"fmt"
)

// Wrap begins an error with what was done; nil stays nil.
func Wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), err)
}

// Run is what do returns in a transaction, and nothing but an error, which what begins, when that fails.
func Run[X, T any](ctx context.Context, transaction func(context.Context, func(X) error) error, do func(X) (T, error),
	what string, args ...any) (value T, err error) {
	err = transaction(ctx, func(t X) (err error) {
		value, err = do(t)
		return err
	})
	if err != nil {
		var none T
		return none, Wrap(err, what, args...)
	}
	return value, nil
}
