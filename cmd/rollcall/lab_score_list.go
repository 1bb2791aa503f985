package main

import (
	"fmt"
	"slices"

	"rollcall/cmd/rollcall/term"
	"rollcall/smtp/smtplab"
)

const (
	// mixBad is a list of nothing but mailboxes that do not exist, at the receivers
	// that count such: what their guards wait for.
	mixBad = "bad"

	// everyMix is each of scoreMixes in turn.
	everyMix = "every"

	// badOfEvery: of everyMix the bad list has one part in so many of the addresses, so
	// that the strictest receiver gets through them in minutes too. Guess.
	badOfEvery = 6

	// guardFamily are the personalities with a guard, in the lab's words.
	guardFamily = "guard"

	// badPerDomain is more unknown mailboxes at one receiver than any guard bears. Guess.
	badPerDomain = 40
)

// scoreMixes gives the lists that lab score knows.
func scoreMixes() []string { return append(smtplab.Mixes(), mixBad) }

// scorePage is what the page of the docs is made of.
var scorePage = []string{smtplab.EverydayMix, smtplab.AllMix, mixBad}

// scoreList makes a labelled list of n addresses, the same for the same seed.
func scoreList(lab *smtplab.Lab, mix string, n int, seed uint64) ([]labelled, error) {
	o := smtplab.ListOptions{Seed: seed, Addresses: n, Mix: mix}
	if mix == mixBad {
		o.Mix, o.OnlyBad, o.PerDomain = guardFamily, true, badPerDomain
	}
	labels, err := lab.List(o)
	if err != nil {
		return nil, term.UsageError(fmt.Sprintf("%v: choose of %v", err, scoreMixes()))
	}
	list := make([]labelled, 0, n)
	for l := range labels {
		list = append(list, labelled{address: l.Address, personality: l.Personality, want: l.Expectation})
	}
	// A file of a customer is in no order.
	return interleaved(list), nil
}

// interleaved takes from the list in strides, so that no domain stands in one block.
func interleaved(list []labelled) []labelled {
	const stride = 97
	out := make([]labelled, 0, len(list))
	for first := range min(stride, len(list)) {
		for i := first; i < len(list); i += stride {
			out = append(out, list[i])
		}
	}
	return slices.Clip(out)
}
