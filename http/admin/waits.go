package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/ledger"
)

// Waits says what the open addresses of a verification wait for, or, when no node works
// on it, why none does.
func (d verificationOps) Waits(ctx context.Context, id uuid.UUID) (inspect.Verification, error) {
	const step = "ask what a verification waits for"
	return askNodes(ctx, d.common, step, func(ctx context.Context, s Survey) (inspect.Verification, error) {
		found, err := s.Verification(ctx, id.String())
		if errors.Is(err, inspect.ErrNotThere) {
			return d.waitsOfNobody(ctx, id, err)
		}
		found.Waits = full(found.Waits)
		return found, err
	})
}

// waitsOfNobody tells from the ledger of a verification that no node works on, and which
// nodes do not answer.
func (d verificationOps) waitsOfNobody(
	ctx context.Context, id uuid.UUID, nobody error,
) (none inspect.Verification, err error) {
	v, err := d.options.Book.Evidence(ctx, id, math.MaxInt64, func(ledger.StoredSettlement) error { return nil })
	erased := errors.Is(err, ledger.ErrResultsExpired)
	switch {
	case errors.Is(err, ledger.ErrNoSuchVerification):
		return none, refusal(http.StatusNotFound, "verification_not_found",
			"there is no verification with this id: compare it with the one that its customer was given")
	case err != nil && !erased:
		return none, d.ofLedger("read a verification", err)
	}
	why, err := d.whyNobody(ctx, v)
	if err != nil {
		return none, d.ofLedger("read a balance", err)
	}
	if erased {
		why += "; its results are erased, since their retention is over ([retention] results)"
	}
	var unheard *inspect.Unreachable
	if errors.As(nobody, &unheard) && !v.Status.Final() {
		why += "; " + unheard.Error()
	}
	return inspect.Verification{ID: id.String(), Workspace: v.Workspace.String(),
		Status: string(v.Status), Total: max(0, v.Total), Final: v.Counts.Sum(), At: time.Now().UTC(),
		Waits: waitsParked(v), Why: why, Finish: v.Expected}, nil
}

// parked reports whether a verification rests in the ledger until its next work is due.
func parked(v ledger.Verification) bool {
	return v.State() == ledger.WaitingReceivers && v.RestsUntil.After(time.Now())
}

// waitsParked is what the addresses of one wait for, as far as the ledger knows.
func waitsParked(v ledger.Verification) []inspect.Wait {
	if !parked(v) {
		return []inspect.Wait{}
	}
	return []inspect.Wait{{Addresses: int(v.Left()), For: inspect.ForRetry, Until: v.RestsUntil}}
}

// whyNobody says why no node works on a verification.
func (d verificationOps) whyNobody(ctx context.Context, v ledger.Verification) (string, error) {
	switch state := v.State(); {
	case state == ledger.State(ledger.Uploading):
		return fmt.Sprintf("its file is being uploaded: %d of %d bytes have arrived, and the upload can continue until %s",
			v.Durable, v.Bytes, moment(v.UploadExpires)), nil
	case state == ledger.State(ledger.Preparing):
		return "its file is being read, and nothing is asked before" + behind(v), nil
	case state == ledger.WaitingCredits:
		balance, err := d.options.Book.Balance(ctx, v.Workspace)
		return fmt.Sprintf("it waits for credits: it needs %d, and its workspace has %d available "+
			"(`rollcall credits grant`)", v.Total, balance.Available), err
	case v.Status.Final():
		return over(v), nil
	case parked(v):
		return fmt.Sprintf("nothing of it can be asked before %s, so it waits in the ledger and uses no node's memory; "+
			"any node continues it then", moment(v.RestsUntil)), nil
	}
	return "no node that answers is working on it" + behind(v), nil
}

// behind says who has a verification, as far as the ledger knows.
func behind(v ledger.Verification) string {
	if v.LeasedUntil.IsZero() {
		return "; no node has it, and one with room takes it within seconds"
	}
	return fmt.Sprintf("; if the node that has it stays away, another node takes it at %s",
		moment(v.LeasedUntil))
}

// over says how a verification has ended.
func over(v ledger.Verification) string {
	c := v.Counts
	text := fmt.Sprintf("it ended at %s, and nothing waits any more: %d valid, %d invalid, %d catch-all, "+
		"%d unknown, %d error, %d cancelled", moment(v.Completed), c.Valid, c.Invalid, c.CatchAll, c.Unknown, c.Error,
		c.Cancelled)
	if v.Issue != nil {
		text += fmt.Sprintf("; %s: %s", v.Issue.Code, v.Issue.Message)
	}
	return text
}

// moment writes a time for a sentence.
func moment(at time.Time) string { return at.UTC().Format("2 Jan 2006 15:04:05 UTC") }
