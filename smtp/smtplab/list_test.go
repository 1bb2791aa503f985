package smtplab

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
)

func listOf(t *testing.T, l *Lab, o ListOptions) iter.Seq[Label] {
	t.Helper()
	return effort.Must(l.List(o))(t)
}

func TestListsAreLabelledDistinctAndTheSameAgain(t *testing.T) {
	t.Parallel()
	l := startLab(t, nil)
	const domains, perDomainMax = 500, 7
	for _, mix := range Mixes() {
		o := ListOptions{Seed: 3, Addresses: domains * perDomainMax, PerDomain: perDomainMax, Mix: mix}
		all := slices.Collect(listOf(t, l, o))
		effort.MustBe(t, len(all), o.Addresses, mix, "addresses")
		seen := make(map[string]bool)
		perDomain := make(map[string]int)
		personalities := make(map[string]bool)
		for _, label := range all {
			local, domain, _ := strings.Cut(label.Address, "@")
			perDomain[domain]++
			personalities[label.Personality] = true
			want := l.Truth(label.Address)
			switch {
			case seen[label.Address]:
				t.Errorf("%s comes twice", label.Address)
			case !strings.HasSuffix(domain, "-"+label.Personality+".test"):
				t.Errorf("%s is said to be of %s", domain, label.Personality)
			case label.Outcome != want.Outcome || label.Outcome == smtp.Undecided:
				t.Errorf("%s: %s, the truth is %s", label.Address, label.Outcome, want.Outcome)
			case label.Mailbox != mailboxOf([]byte(local)):
				t.Errorf("%s: mailbox %d", label.Address, label.Mailbox)
			case mix != EverydayMix && mix != AllMix && label.Family != mix:
				t.Errorf("%s: family %s in the mix %s", label.Address, label.Family, mix)
			}
			seen[label.Address] = true
		}
		for domain, n := range perDomain {
			if n > o.PerDomain {
				t.Errorf("%s has %d addresses", domain, n)
			}
		}
		if members := mixed(mix, false); mix != EverydayMix && len(personalities) != len(members) {
			t.Errorf("%s: %d of %d personalities", mix, len(personalities), len(members))
		}
		again := slices.Collect(listOf(t, l, o))
		same := slices.EqualFunc(all, again, func(a, b Label) bool { return a.Address == b.Address })
		o.Seed++
		other := slices.Collect(listOf(t, l, o))
		if !same || slices.EqualFunc(all, other, func(a, b Label) bool { return a.Address == b.Address }) {
			t.Errorf("%s: the seed does not decide", mix)
		}
	}
}

func TestAListOfOnlyBadAddresses(t *testing.T) {
	l := startLab(t, nil)
	o := ListOptions{Seed: 1, Addresses: 1000, PerDomain: 50, Mix: "guard", OnlyBad: true}
	for label := range listOf(t, l, o) {
		effort.MustBe(t, label.Mailbox, NotFound, label.Address)
	}
	share := 0
	for label := range listOf(t, l, ListOptions{Seed: 1, Addresses: 1000, Mix: "honest", Bad: 0.5}) {
		if label.Mailbox == NotFound {
			share++
		}
	}
	if share < 400 || share > 600 {
		t.Errorf("%d of 1000 are bad, want about half", share)
	}
}

func TestIPv6ComesWhenAskedFor(t *testing.T) {
	l := startLab(t, nil)
	for _, ipv6 := range []bool{false, true} {
		found := false
		for label := range listOf(t, l, ListOptions{Addresses: 600, PerDomain: 1, Mix: AllMix, IPv6: ipv6}) {
			found = found || label.Personality == "sixonly"
		}
		effort.Is(t, found, ipv6, fmt.Sprintf("IPv6 %v: sixonly comes", ipv6))
	}
}

func TestBadListOptionsAreRefused(t *testing.T) {
	l := startLab(t, nil)
	good := ListOptions{Addresses: 1}
	listOf(t, l, good)
	listOf(t, l, ListOptions{Addresses: listAddressesMax})
	for name, change := range map[string]func(*ListOptions){
		"no address":    func(o *ListOptions) { o.Addresses = 0 },
		"too many":      func(o *ListOptions) { o.Addresses = listAddressesMax + 1 },
		"unknown mix":   func(o *ListOptions) { o.Mix = "salad" },
		"empty domains": func(o *ListOptions) { o.PerDomain = -1 },
		"negative bad":  func(o *ListOptions) { o.Bad = -0.1 },
		"all but more":  func(o *ListOptions) { o.Bad = 1.1 },
	} {
		o := good
		change(&o)
		effort.Denied(l.List(o))(t, ErrOptions, name)
	}
}
