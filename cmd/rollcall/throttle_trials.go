package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"rollcall/smtp/throttle"
)

// errTrialsDiffer says that a replay of trials leads to other beliefs.
var errTrialsDiffer = errors.New("what the trials lead to is not what was recorded")

// runTrials finds anew what the trials in a file made believed.
func runTrials(w io.Writer, name string, asJSON bool) error {
	text, err := readCandidate(name)
	if err != nil {
		return err
	}
	lines, err := readTrials(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	all, err := replayTrials(lines)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if asJSON {
		for i := range all {
			if err := printJSON(w, all[i]); err != nil {
				return err
			}
		}
	} else if err := printTrialsReplayed(w, all); err != nil {
		return err
	}
	for i := range all {
		if !all[i].Same {
			return errTrialsDiffer
		}
	}
	return nil
}

// readTrials reads JSON lines.
func readTrials(text string) (lines []throttle.TrialLine, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.TrimSpace(line) == "" {
			continue
		}
		var l throttle.TrialLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, fmt.Errorf("line %d is no JSON of `rollcall receivers trials KEY --json`: %w", n, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// trialsReplayed is what a log of trials leads to again.
type trialsReplayed struct {
	Node      string              `json:"node,omitempty"`
	Receiver  string              `json:"receiver,omitempty"`
	Source    string              `json:"source,omitempty"`
	Trials    int                 `json:"trials"`
	Decisions []throttle.Decision `json:"decisions"`
	Same      bool                `json:"same"` // as those that were recorded
	name      string
	since     string
	recorded  int
}

// replayTrials makes the decisions of each log anew.
func replayTrials(lines []throttle.TrialLine) (out []trialsReplayed, err error) {
	if len(lines) == 0 {
		return nil, throttle.ErrTrials
	}
	for _, log := range trialLogsOf(lines) {
		got, err := throttle.ReplayTrials(log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", trialLogName(&log[0]), err)
		}
		recorded := throttle.RecordedDecisions(log)
		one := trialsReplayed{Node: log[0].Node, Receiver: log[0].Receiver, Source: log[0].Source, Trials: len(log) - 1,
			Decisions: append([]throttle.Decision{}, got...), Same: len(got) == len(recorded), name: trialLogName(&log[0]),
			recorded: len(recorded)}
		if len(log) > 1 {
			one.since = log[1].At.UTC().Format(time.DateTime)
		}
		for i := range got {
			one.Same = one.Same && got[i].Same(recorded[i])
		}
		out = append(out, one)
	}
	return out, nil
}

// printTrialsReplayed writes each belief, and whether they are those of then.
func printTrialsReplayed(w io.Writer, all []trialsReplayed) error {
	var b strings.Builder
	width := widthOf(w)
	for i := range all {
		one := &all[i]
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(foldedTo(fmt.Sprintf("%s: %s events since %s", one.name, grouped(int64(one.Trials)),
			dash(one.since)), 0, width) + "\n")
		writeDecisions(&b, one.Decisions, width)
		said := "Nothing was believed, then as now."
		switch {
		case !one.Same:
			said = fmt.Sprintf("These are not the %s beliefs that were recorded: the file was changed, or comes from a version "+
				"that decides otherwise.", grouped(int64(one.recorded)))
		case one.recorded > 0:
			said = "These are the beliefs that were recorded, at the same times and in the same words."
		}
		b.WriteString("\n" + foldedTo(said, 0, width) + "\n")
	}
	return emit(w, &b)
}
