package main

import (
	"context"
	"errors"
	"fmt"
)

// verifyStage is how far a verification is, as this program knows.
type verifyStage int

const (
	stageNone     verifyStage = iota // the service has not answered
	stageCreated                     // bytes may be missing
	stageUploaded                    // all bytes are durable
	stageFinal
)

// left makes the error of a run that ends before its time: what the service does now, which it
// does without this program, and how to come back to it.
func (r *verifyRun) left(err error) error {
	stopped := errors.Is(err, context.Canceled)
	if r.flags.api == "" { // the node was in this process, and is stopped too
		if stopped {
			return errors.New("stopped: run the same command again to go on where it stopped")
		}
		return err
	}
	switch {
	case err == nil:
		return nil
	case stopped && r.stage == stageNone:
		return errors.New("stopped before anything was uploaded: nothing is charged")
	case stopped:
		return errors.New("stopped: " + r.goesOn() + r.wayBack())
	case r.stage == stageCreated || r.stage == stageUploaded:
		return fmt.Errorf("%w\n%s%s", err, r.goesOn(), r.wayBack())
	}
	return err
}

// goesOn says what the service does with the verification when this program has ended.
func (r *verifyRun) goesOn() string {
	switch r.stage {
	case stageCreated:
		return fmt.Sprintf("verification %s waits for the rest of the file; nothing is charged before it is there", r.id)
	case stageFinal:
		return fmt.Sprintf("verification %s is over, and its results are kept", r.id)
	}
	return fmt.Sprintf("the service goes on with verification %s and charges for it", r.id)
}

// wayBack says how to come back to the verification, and how to end it.
func (r *verifyRun) wayBack() string {
	text := "\nto come back to it, run the same command again: that charges nothing twice"
	if r.stage != stageFinal {
		text += fmt.Sprintf("\nto end it, run: rollcall cancel %s --api %s", r.id, r.flags.api)
	}
	return text
}
