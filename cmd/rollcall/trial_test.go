package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// part is the result of one list at one lab.
type part struct {
	all   []judged
	sheet smtplab.Sheet
	again admin.ReplaySummary
}

// score makes a list of n addresses, verifies it and counts the results. It gives each family of personalities a lab
// and a node of its own for mixAll: a source refused by many receivers is suspended at all, so the families that refuse
// us would block the others. They run at the same time, nearly all of which is waiting.
func score(t *testing.T, mix string, n int, within time.Duration) scoreReport {
	t.Helper()
	if mix != mixAll {
		return newScoreReport([]part{scorePart(t, mix, n, within)})
	}
	members := map[string]int{}
	for _, p := range smtplab.Personalities() {
		members[p.Family]++
	}
	families := slices.Sorted(maps.Keys(members))
	done, parts := make(chan part, len(families)), []part(nil)
	atOnce(t, families, func(family string) string { return family }, func(t *testing.T, family string) {
		done <- scorePart(t, family, max(1, n*members[family]/len(smtplab.Personalities())), within)
	})
	close(done)
	for one := range done {
		parts = append(parts, one)
	}
	return newScoreReport(parts)
}

// scorePart verifies one list with its own node against its own lab.
func scorePart(t *testing.T, mix string, n int, within time.Duration) part {
	t.Helper()
	tr := startTrial(t, trialLab(), func(*smtplab.Lab, *config.Config) {})
	all, id := tr.verify(t, scoreList(tr.lab, mix, n), within)
	return part{all, tr.lab.Manners(), tr.replay(t, id, all)}
}

// Mixes beside those of one family of personalities.
const (
	mixEveryday = "everyday" // as customers' lists are
	mixAll      = "all"      // every family
	mixBad      = "bad"      // missing mailboxes only, at receivers whose harvest guards count them
)

// scoreMailboxes are how the addresses at a domain begin: most exist, some don't, and there is one of each special
// kind.
var scoreMailboxes = [20]string{"anna.", "anna.", "ghost-", "full.", "anna.", "disabled.", "anna.", "ghost-",
	"restricted", "anna.", "overquota", "anna.", "ghost-", "busy.", "anna.", "anna.", "anna.", "anna.", "anna.", "anna."}

// scoreList makes a labelled list of n addresses, the same each time.
func scoreList(lab *smtplab.Lab, mix string, n int) (list []labelled) {
	add := func(address, personality string) {
		list = append(list, labelled{address: address, personality: personality, want: lab.Truth(address)})
	}
	if mix == mixEveryday {
		for _, address := range smtplab.Sample(1, n, max(1, n/20)) {
			add(address, strings.TrimSuffix(address[strings.LastIndexByte(address, '-')+1:], ".test"))
		}
		return list
	}
	family, perDomain := mix, len(scoreMailboxes)
	if mix == mixBad {
		family, perDomain = "guard", 40 // more missing mailboxes at one receiver than any guard tolerates
	}
	var members []string
	for _, p := range smtplab.Personalities() {
		if p.Family == family && p.DNS != smtplab.OnlyIPv6 {
			members = append(members, p.Name)
		}
	}
	for i := range n {
		begins, personality := scoreMailboxes[i%len(scoreMailboxes)], members[i/perDomain%len(members)]
		if mix == mixBad {
			begins = "ghost-"
		}
		add(fmt.Sprintf("%s%s@d%d-%s.test", begins, letters(i), i/perDomain, personality), personality)
	}
	return interleaved(list) // a customer's file has no order
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

// replay judges every attempt of a verification again, from the stored evidence.
func (tr *trial) replay(t *testing.T, id string, all []judged) admin.ReplaySummary {
	t.Helper()
	return effort.Must(admin.ReplayEvidence(t.Context(), tr.node.Book, uuid.MustParse(id), admin.ReplayQuery{
		Rules: verdict.Builtin(), All: true, Yield: func(one admin.Replayed) error {
			if one.Ordinal >= int64(len(all)) || one.Address != all[one.Ordinal].address {
				return fmt.Errorf("there is evidence for address %d, which isn't in the list", one.Ordinal)
			}
			return nil
		}}))(t)
}

// A trial scales the long waits of real receivers, so that it ends in minutes. The limits are the shipped ones, so that
// it shows a node's real manners.
const (
	// trialHour is how long an hour lasts, for the lab and for the node. It is short enough for the strictest receiver
	// to finish its part of a list of bad addresses. It is long enough that the unscaled rates alone would allow more
	// refusals than guards tolerate: 30 sessions of 2.
	trialHour = 36 * time.Second

	// trialGreylist stands for the 300 s of the commonest implementation.
	trialGreylist = trialHour / 12

	// trialGiveUp is how long an undecided address is asked again: several times the lab's longest scaled greylisting.
	// In service it is six hours.
	trialGiveUp = 60 * time.Second
)

// labelled is one address of a trial with its correct result.
type labelled struct {
	address     string
	personality string // of the lab
	want        smtplab.Expectation
}

// judged is a trial's result for one address.
type judged struct {
	labelled
	outcome smtp.Outcome // smtp.Undecided: not known when the time was up
	reason  smtp.Reason
}

// trial is a lab and a whole node in this process: ledger, actors, sockets.
type trial struct {
	folder string // of its data
	lab    *smtplab.Lab
	node   *node.Node
	client *client.API
}

func trialLab() smtplab.Options {
	o := smtplab.Defaults()
	o.GreylistWait, o.HourLasts = trialGreylist, trialHour
	o.SessionsMax = 2 * node.SessionsMax // its only client is this node, which limits itself
	return o
}

// startTrial starts both, until the test ends.
func startTrial(t *testing.T, o smtplab.Options, change func(l *smtplab.Lab, c *config.Config)) *trial {
	t.Helper()
	tr := &trial{folder: filepath.Join(t.TempDir(), "data"), lab: startLab(t, o)}
	c := trialConfig(tr.folder, tr.lab)
	change(tr.lab, &c)
	tr.node = effort.Must(node.Start(context.Background(), c, node.Options{Log: slog.New(slog.DiscardHandler),
		Hour: trialHour}))(t)
	t.Cleanup(func() { effort.ErrIs(t, node.StopNode(context.Background(), tr.node), nil) })
	tr.client = customerOf(t, tr.node, tr.folder, "lab score", c.Limits.MaxRows)
	return tr
}

// trialConfig is the configuration of a trial's node: the defaults, except for its folder, the lab, and the waits.
func trialConfig(folder string, lab *smtplab.Lab) config.Config {
	c := node.LocalConfig(config.Default(), folder, false)
	c.Throttle.File = ""
	c.DNS.Servers = []string{lab.DNSAddr()}
	c.SMTP.Port = lab.SMTPPort()
	c.SMTP.AllowNetworks = []string{lab.Network().String()}
	c.SMTP.HelloName = "rollcall.example"
	c.Retry.GiveUpAfter = config.Duration{Duration: trialGiveUp}
	for i := range c.Retry.GreylistWaits {
		wait := &c.Retry.GreylistWaits[i].Duration
		*wait = throttle.Hour(trialHour).Of(*wait)
	}
	return c
}

// verify verifies a list for a limited time, and gives the results in the order of the list, as a customer reads them,
// with the verification's id.
func (tr *trial) verify(t *testing.T, list []labelled, within time.Duration) ([]judged, string) {
	t.Helper()
	var file, results bytes.Buffer
	lines := csv.NewWriter(&file)
	_ = lines.Write([]string{"email"})
	for _, l := range list {
		_ = lines.Write([]string{l.address})
	}
	lines.Flush()
	id := mustHandIn(t.Context(), t, tr.client, file.Bytes())
	limited, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	end(limited, tr.client, id)
	effort.OK(t, writeResults(t.Context(), tr.client, id, &results))
	rows, all := effort.Must(readRows(&results))(t), make([]judged, len(list))
	for i, l := range list {
		all[i] = judged{l, rows[l.address].outcome, rows[l.address].reason}
	}
	return all, id
}

func resultWords() (map[string]smtp.Outcome, map[string]smtp.Reason) {
	outcomes, reasons := map[string]smtp.Outcome{}, map[string]smtp.Reason{}
	for _, o := range smtp.Outcomes {
		outcomes[o.String()] = o
	}
	for r := smtp.ReasonNone + 1; r.Known(); r++ {
		reasons[r.Message()] = r
	}
	return outcomes, reasons
}
