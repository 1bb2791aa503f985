package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/http/api"
	"rollcall/ledger"
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
	if !r.remote() { // the node was in this process, and is stopped too
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

// tellKnown says, once, that the service knew the content before this run.
func (r *verifyRun) tellKnown(d api.Detail) {
	if !r.known {
		return
	}
	r.known = false
	created := time.Time(d.CreatedAt).UTC().Format("2006-01-02 15:04") + "Z"
	if !ledger.Status(d.Status).Final() {
		r.view.notice(fmt.Sprintf("This content was sent before: going on with verification %s of %s", d.ID, created))
		return
	}
	text := fmt.Sprintf("This content was sent before, on %s: this is verification %s again, and nothing is charged",
		created,
		d.ID)
	if d.Status != string(ledger.Failed) && d.Status != string(ledger.Cancelled) { // these are told as errors, with what to do
		text += r.anew("to have it verified and charged anew")
	}
	r.view.notice(text)
}

// anew says how to have the same content verified once more; "" when every run does.
func (r *verifyRun) anew(what string) string {
	if !r.remote() {
		return ""
	}
	return fmt.Sprintf("\n%s, add --again NAME with a NAME of yours, such as %s", what,
		time.Now().UTC().Format(time.DateOnly))
}

// expired says what to do about results that are not kept any more.
func (r *verifyRun) expired(err error) error {
	if client.HasCode(err, api.ResultsExpired) {
		return fmt.Errorf("%w%s", err, r.anew("to have it verified and charged anew"))
	}
	return err
}
