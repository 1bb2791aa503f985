package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/smtplab"
)

// errScore is why lab score exits with 1 although it ran to its end.
var errScore = errors.New("the score is not clean")

// scoreFlags are the flags of lab score.
type scoreFlags struct {
	addresses int
	seed      uint64
	mix, out  string
	json      bool
	within    time.Duration
}

func newLabScore() *cobra.Command {
	f := scoreFlags{}
	c := &cobra.Command{
		Use:   "score",
		Short: "Verify a labelled list against the lab and print how right and how polite that was",
		Long: "Verify a labelled list against the lab with a whole node in this process, and print the confusion " +
			"matrix,\nwhat stayed unknown and who is to blame, and how the receivers were treated.\n\n" +
			fmt.Sprintf("The allowance is the shipped one. An hour lasts %v, for the lab and the node alike: what is "+
				"counted,\nrested or waited for by the hour is as much shorter, and greylisting too. Rates are not. "+
				"An address is\ngiven up after %v, where a node takes six hours.\n\n", trialHour, trialGiveUp) +
			"Exit code 1 when a statement is wrong, a guard was tripped, or evidence judged again says otherwise.",
		Args: wantArgs(),
	}
	c.Flags().IntVar(&f.addresses, "addresses", 3000, "how many addresses")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the same seed gives the same list")
	c.Flags().StringVar(&f.mix, "mix", smtplab.AllMix, "what the list is made of: "+
		strings.Join(scoreMixes(), ", ")+";\n"+everyMix+": "+strings.Join(scorePage, ", ")+", one after the other,\n"+
		mixBad+" with fewer addresses")
	c.Flags().DurationVar(&f.within, "within", 10*time.Minute, "what is not finished by then is counted as such")
	c.Flags().StringVar(&f.out, "out", "", "write the report there as a page of Markdown, too")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON for programs")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.addresses < 1 || f.addresses > scoreMax {
			return term.UsageError(fmt.Sprintf("--addresses must be from 1 to %d", scoreMax))
		}
		return runScore(c, f)
	}
	return c
}

// runScore makes the reports and prints them.
func runScore(c *cobra.Command, f scoreFlags) error {
	mixes := scorePage
	if f.mix != everyMix {
		if !slices.Contains(scoreMixes(), f.mix) {
			return term.UsageError(fmt.Sprintf("there is no mix %q: choose of %s, %s", f.mix,
				strings.Join(scoreMixes(), ", "), everyMix))
		}
		mixes = []string{f.mix}
	}
	var reports []scoreReport
	good := true
	for _, mix := range mixes {
		one := f
		if one.mix = mix; f.mix == everyMix && mix == mixBad {
			one.addresses = max(1, f.addresses/badOfEvery)
		}
		r, err := score(c.Context(), one, newProgressView(c.ErrOrStderr()))
		if err != nil {
			return err
		}
		if !f.json {
			if err := printScore(c.OutOrStdout(), &r); err != nil {
				return err
			}
		}
		reports, good = append(reports, r), good && r.good()
	}
	var err error
	if f.json {
		err = term.PrintJSON(c.OutOrStdout(), map[string][]scoreReport{"reports": reports})
	}
	if f.out != "" {
		err = errors.Join(err, writeAccuracy(f.out, reports))
	}
	if err == nil && !good {
		return fmt.Errorf("%w: see the wrong statements, the replay and the guards above", errScore)
	}
	return err
}

// scoreMax is the most addresses of a score: more would measure the machine.
const scoreMax = 1_000_000

// part is what came of one list at one lab.
type part struct {
	all   []judged
	sheet smtplab.Sheet
	again replayed
}

// score makes a list, has it verified and counts what came of it.
func score(ctx context.Context, f scoreFlags, view *progressView) (scoreReport, error) {
	var parts []part
	var err error
	began := time.Now()
	if f.mix == smtplab.AllMix {
		parts, err = scoreFamilies(ctx, f, view)
	} else {
		var one part
		one, err = scorePart(ctx, f, view)
		parts = []part{one}
	}
	view.stop()
	if err != nil {
		return scoreReport{}, err
	}
	r := newScoreReport(parts, time.Since(began))
	r.Mix, r.Seed, r.Within = f.mix, f.seed, f.within.String()
	return r, nil
}

// familiesAtOnce is how many families are at work at a time: all of them, for nearly all
// of it is waiting.
const familiesAtOnce = 32

// scoreFamilies gives each family of personalities a lab and a node of its own: a
// source that is refused at many receivers is rested at all of them, and the families
// that refuse us would keep the others from being asked.
func scoreFamilies(ctx context.Context, f scoreFlags, view *progressView) ([]part, error) {
	members := map[string]int{}
	for _, p := range smtplab.Personalities() {
		members[p.Family]++
	}
	families := smtplab.Families()
	parts, errs := make([]part, len(families)), make([]error, len(families))
	var running sync.WaitGroup
	slots := make(chan struct{}, familiesAtOnce)
	for i, family := range families {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			own := f
			own.mix = family
			own.addresses = max(1, f.addresses*members[family]/len(smtplab.Personalities()))
			parts[i], errs[i] = scorePart(ctx, own, newProgressView(io.Discard))
			view.notice(fmt.Sprintf("%s: %d addresses done", family, len(parts[i].all)))
		})
	}
	running.Wait()
	return parts, errors.Join(errs...)
}

// scorePart has one list verified by a node of its own against a lab of its own.
func scorePart(ctx context.Context, f scoreFlags, view *progressView) (done part, err error) {
	folder, remove, err := trialFolder()
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	log, closeLog, err := openNodeLog(folder, "warn")
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	view.phase("starting the lab and a node")
	t, err := startTrial(ctx, trialOptions{folder: folder, log: log, view: view, lab: trialLab()})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, t.stop(ctx)) }()
	list, err := scoreList(t.lab, f.mix, f.addresses, f.seed)
	if err != nil {
		return done, err
	}
	all, id, err := t.verify(ctx, list, f.within)
	if err != nil {
		return done, err
	}
	again, err := t.replay(ctx, id, all)
	return part{all, t.lab.Manners(), again}, err
}
