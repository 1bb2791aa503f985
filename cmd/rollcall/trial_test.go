package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/flags"
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

// score makes a list of n addresses, verifies it and counts the results.
func score(ctx context.Context, mix string, n int, within time.Duration) (scoreReport, error) {
	parts, err := scoreParts(ctx, mix, n, within)
	return newScoreReport(parts), err
}

// scoreParts gives each family of personalities a lab and a node of its own for mixAll: a source refused by many
// receivers is suspended at all, so the families that refuse us would block the others. They run at the same time,
// nearly all of which is waiting. Other mixes are one part.
func scoreParts(ctx context.Context, mix string, n int, within time.Duration) ([]part, error) {
	if mix != mixAll {
		one, err := scorePart(ctx, mix, n, within)
		return []part{one}, err
	}
	members := map[string]int{}
	for _, p := range smtplab.Personalities() {
		members[p.Family]++
	}
	families := slices.Sorted(maps.Keys(members))
	parts, errs := make([]part, len(families)), make([]error, len(families))
	var running sync.WaitGroup
	for i, family := range families {
		running.Go(func() {
			own := max(1, n*members[family]/len(smtplab.Personalities()))
			parts[i], errs[i] = scorePart(ctx, family, own, within)
		})
	}
	running.Wait()
	return parts, errors.Join(errs...)
}

// scorePart verifies one list with its own node against its own lab.
func scorePart(ctx context.Context, mix string, n int, within time.Duration) (done part, err error) {
	folder, err := os.MkdirTemp("", "rollcall-score-")
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	t, err := startTrial(ctx, trialOptions{folder: folder, log: slog.New(slog.DiscardHandler), lab: trialLab()})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, t.stop(ctx)) }()
	all, id, err := t.verify(ctx, scoreList(t.lab, mix, n), within)
	if err != nil {
		return done, err
	}
	again, err := t.replay(ctx, id, all)
	return part{all, t.lab.Manners(), again}, err
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
func (t *trial) replay(ctx context.Context, id uuid.UUID, all []judged) (admin.ReplaySummary, error) {
	return admin.ReplayEvidence(ctx, t.node.Book, id, admin.ReplayQuery{Rules: verdict.Builtin(), All: true,
		Yield: func(one admin.Replayed) error {
			if one.Ordinal >= int64(len(all)) || one.Address != all[one.Ordinal].address {
				return fmt.Errorf("there is evidence for address %d, which isn't in the list", one.Ordinal)
			}
			return nil
		}})
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

// trialOptions say how a trial runs.
type trialOptions struct {
	folder string // of its data
	log    *slog.Logger
	lab    smtplab.Options
	change func(l *smtplab.Lab, c *config.Config) // nil: nothing
}

// trial is a lab and a whole node in this process: ledger, actors, sockets.
type trial struct {
	folder string // of its data
	lab    *smtplab.Lab
	node   *node.Node
	client *client.API
	tenant client.Tenant
}

func trialLab() smtplab.Options {
	o := smtplab.Defaults()
	o.GreylistWait, o.HourLasts = trialGreylist, trialHour
	o.SessionsMax = 2 * node.SessionsMax // its only client is this node, which limits itself
	return o
}

// startTrial starts both; stop must be called when there is no error.
func startTrial(ctx context.Context, o trialOptions) (t *trial, err error) {
	begun := &trial{folder: o.folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, begun.stop(ctx))
		}
	}()
	if begun.lab, err = smtplab.Start(o.lab); err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	c := trialConfig(o.folder, begun.lab)
	if o.change != nil {
		o.change(begun.lab, &c)
	}
	if begun.node, err = node.Start(ctx, c, node.Options{Log: o.log, Hour: trialHour}); err != nil {
		return nil, err
	}
	token, err := client.ReadToken(o.folder)
	if err != nil {
		return nil, err
	}
	begun.tenant, err = client.OpenTenant(ctx, client.NewAdmin(begun.node.AdminURL, token), client.TenantOptions{
		File: filepath.Join(o.folder, "tenant.json"), Workspace: "lab score", Credits: c.Limits.MaxRows,
	})
	if err != nil {
		return nil, err
	}
	begun.client = client.NewAPI(begun.node.APIURL, begun.tenant.Key, func(string) {})
	return begun, nil
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

// stop ends the node, then the lab.
func (t *trial) stop(ctx context.Context) (err error) {
	if t.node != nil {
		err = node.StopNode(ctx, t.node)
	}
	if t.lab != nil {
		err = errors.Join(err, stopLabWithin(ctx, t.lab))
	}
	return err
}

// verify verifies a list for a limited time, and returns the results in the order of the list, with the verification's
// id.
func (t *trial) verify(ctx context.Context, list []labelled, within time.Duration) ([]judged, uuid.UUID, error) {
	var file bytes.Buffer
	file.WriteString("email\n")
	for _, l := range list {
		file.WriteString(csvField(l.address))
		file.WriteByte('\n')
	}
	size := int64(file.Len())
	made, err := t.client.Create(ctx, uuid.New(), size, "labelled.csv")
	if err != nil {
		return nil, uuid.Nil, err
	}
	if made.Upload == nil || made.Upload.Method != "" && made.Upload.Method != http.MethodPut {
		return nil, uuid.Nil, errors.New("the node expects no upload by PUT: a bug of this program")
	}
	err = t.client.Upload(ctx, made.Upload.URL, bytes.NewReader(file.Bytes()), size, func(int64) {})
	if err != nil {
		return nil, uuid.Nil, err
	}
	run, limited := verifyRun{client: t.client, view: newProgressView(io.Discard), poll: pollLocal}, ctx
	if within > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	detail, err := run.wait(limited, made.ID)
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil: // the rest is unfinished
	case err != nil:
		return nil, uuid.Nil, err
	case detail.Status != string(ledger.Completed) && detail.Status != string(ledger.CompletedWithErrors):
		return nil, uuid.Nil, fmt.Errorf("the verification ended as %s", detail.Status)
	}
	id, err := uuid.Parse(made.ID)
	if err != nil {
		return nil, uuid.Nil, fmt.Errorf("the verification's number: %w", err)
	}
	all, err := t.judge(ctx, made.ID, list)
	return all, id, err
}

// csvField quotes a cell with special characters of CSV (RFC 4180 §2).
func csvField(s string) string {
	if !strings.ContainsAny(s, "\",\r\n") {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}

// judge reads the results as a customer does.
func (t *trial) judge(ctx context.Context, id string, list []labelled) ([]judged, error) {
	outcomes, reasons := resultWords()
	rows := make(map[string]judged, len(list))
	err := t.client.EachResult(ctx, id, io.Discard, func(row []string) error {
		outcome, known := outcomes[row[1]]
		text, _ := flags.Cut(row[2])
		reason, explained := reasons[text]
		if !known || !explained {
			return fmt.Errorf("the results say %q and %q, which are unknown words", row[1], row[2])
		}
		rows[strings.Clone(row[0])] = judged{outcome: outcome, reason: reason}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]judged, len(list))
	for i, l := range list {
		all[i] = rows[l.address]
		all[i].labelled = l
	}
	return all, nil
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
