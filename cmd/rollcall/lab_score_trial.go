package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
)

// How a trial scales the long waits of real receivers, so that it ends in minutes.
// The allowance is the shipped one: a trial shows the manners that a node has.
const (
	// trialHour is how long an hour lasts, for the lab and for the node: short enough
	// that the strictest receiver gets through its part of a list of bad addresses, long
	// enough that the rates of the allowance, which stay those of a true minute, would
	// let more refusals happen in it than guards bear: 30 sessions of 2.
	trialHour = 36 * time.Second

	// trialGreylist stands for the 300 s that the commonest implementation asks for.
	trialGreylist = trialHour / 12

	// trialGiveUp is how long an undecided address is asked again: the longest scaled
	// greylisting of the lab several times over. In service it is six hours.
	trialGiveUp = 60 * time.Second
)

// labelled is one address of a trial and what is right to say about it.
type labelled struct {
	address     string
	personality string // of the lab
	want        smtplab.Expectation
}

// judged is what a trial found out about one address.
type judged struct {
	labelled
	outcome smtp.Outcome // smtp.Undecided: nobody knew when the time was up
	reason  smtp.Reason
	blame   smtp.Blame // who kept us from knowing; only of an unknown
}

// trialOptions say how a trial runs.
type trialOptions struct {
	folder string // of its data
	log    *slog.Logger
	view   *progressView
	lab    smtplab.Options
	change func(l *smtplab.Lab, c *config.Config) // nil: nothing
}

// trial is a lab and a whole node in this process: ledger, actors, sockets.
type trial struct {
	options trialOptions
	lab     *smtplab.Lab
	node    *node.Node
	client  *client.API
	tenant  client.Tenant
}

// trialLab is the lab of a trial.
func trialLab() smtplab.Options {
	o := smtplab.Defaults()
	o.GreylistWait, o.HourLasts = trialGreylist, trialHour
	o.SessionsMax = 2 * node.SessionsMax // its only client is this node, which bounds itself
	return o
}

// startTrial starts both; stop must be called when there is no error.
func startTrial(ctx context.Context, o trialOptions) (t *trial, err error) {
	begun := &trial{options: o}
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
	begun.client = client.NewAPI(begun.node.APIURL, begun.tenant.Key, o.view.notice)
	return begun, nil
}

// trialConfig is the configuration of the node of a trial: the defaults, but for its
// place, the lab, and the waits.
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

// verify has a list verified, for a time at most, and gives what came of it, in the
// order of the list, with the verification's number.
func (t *trial) verify(ctx context.Context, list []labelled,
	within time.Duration) ([]judged, uuid.UUID, error) {
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
		return nil, uuid.Nil, errors.New("the node wants no upload by PUT: that is a fault of this program")
	}
	err = t.client.Upload(ctx, made.Upload.URL, bytes.NewReader(file.Bytes()), size, func(int64) {})
	if err != nil {
		return nil, uuid.Nil, err
	}
	run, limited := verifyRun{client: t.client, view: t.options.view, poll: pollLocal}, ctx
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

// csvField quotes what has a meaning in CSV (RFC 4180 §2).
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
		reason, explained := reasons[row[2]]
		if !known || !explained {
			return fmt.Errorf("the results say %q and %q, which are no words of ours", row[1], row[2])
		}
		rows[strings.Clone(row[0])] = judged{outcome: outcome, reason: reason, blame: blameOf(outcome, reason)}
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

// resultWords gives outcomes and reasons by how results write them.
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

// blameOf says who kept us from knowing, where no evidence says it better.
func blameOf(outcome smtp.Outcome, reason smtp.Reason) smtp.Blame {
	ours := []smtp.Reason{smtp.SourceBlocked, smtp.SourceIdentity, smtp.HarvestGuard, smtp.ReceiverRateLimited,
		smtp.Internal, smtp.EAIUnsupported}
	switch {
	case outcome != smtp.Unknown:
		return smtp.BlameNobody
	case slices.Contains(ours, reason):
		return smtp.BlameSource
	case reason == smtp.DNSFailed:
		return smtp.BlameDomain
	case reason == smtp.MailboxBusy || reason == smtp.MailboxFull:
		return smtp.BlameAddress
	}
	return smtp.BlameReceiver
}

// trialFolder makes a folder for one trial; remove takes it away.
func trialFolder() (folder string, remove func() error, err error) {
	if folder, err = os.MkdirTemp("", "rollcall-score-"); err != nil {
		return "", nil, fmt.Errorf("make a folder for the data: %w", err)
	}
	return folder, func() error { return os.RemoveAll(folder) }, nil
}
