package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
)

// openedWide is an allowance that stands in nobody's way.
func openedWide(t testing.TB, c *config.Config, pipelining bool) {
	t.Helper()
	connections, perSession, perTransaction := 4, 1_000_000, 100
	wide := config.Rate(throttle.Rate{Events: 1_000_000, Per: time.Second})
	c.Throttle.Default = config.Allowance{Connections: &connections, ConnectionRate: &wide, RcptRate: &wide,
		RcptsPerConnection: &perSession, RcptsPerTransaction: &perTransaction, RefusedPerSession: &perSession,
		RefusedPerHour: &perSession, Pipelining: &pipelining}
}

// labGreylist is how long the receivers of labNode greylist.
const labGreylist = 500 * time.Millisecond

// hurry scales the waits between the tries at an address for receivers that greylist as long as labGreylist.
func hurry(c *config.Config) {
	c.Retry.GreylistWaits = []config.Duration{{Duration: labGreylist}, {Duration: 2 * labGreylist},
		{Duration: 3 * labGreylist}}
	c.Retry.ControlWaits = []config.Duration{{Duration: 200 * time.Millisecond}, {Duration: 400 * time.Millisecond}}
	c.Retry.GiveUpAfter = config.Duration{Duration: 12 * labGreylist}
}

// labNode starts a node with a lab of its own in a folder.
func labNode(t testing.TB, folder string, change func(c *config.Config)) *node.Node {
	t.Helper()
	effort.NotShort(t, "a whole node")
	effort.OnlyNode(t)
	c := node.LabConfig(node.LocalConfig(config.Default(), folder, true))
	c.Throttle.File = ""
	hurry(&c)
	change(&c)
	n := effort.Must(node.Start(context.Background(), c, node.Options{Lab: true, LabGreylist: labGreylist,
		Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { effort.OK(t, node.StopNode(context.Background(), n)) })
	return n
}

// customerOf makes a tenant with credits at a node of this process, and gives the tenant's client.
func customerOf(t *testing.T, n *node.Node, folder, workspace string, credits int64) *client.API {
	t.Helper()
	token := effort.Must(client.ReadToken(folder))(t)
	tenant := effort.Must(client.OpenTenant(t.Context(), client.NewAdmin(n.AdminURL, token), client.TenantOptions{
		File: filepath.Join(folder, workspace+".json"), Workspace: workspace, Credits: credits}))(t)
	return client.NewAPI(n.APIURL, tenant.Key, func(string) {})
}

// submit puts a file into the ledger as the edge would, with credits for it.
func submit(t testing.TB, n *node.Node, file []byte, credits ledger.Credits) ledger.Verification {
	t.Helper()
	ctx := context.Background()
	w := effort.Must(n.Book.CreateWorkspace(ctx, uuid.New(), "test"))(t)
	effort.Must(n.Book.Grant(ctx, uuid.New(), w.ID, credits, "test"))(t)
	v, _, err := n.Book.Create(ctx, ledger.NewVerification{ID: uuid.New(), Workspace: w.ID, Identity: uuid.New(),
		Bytes: int64(len(file)), BytesMax: 1 << 30, Limits: ledger.Limits{Open: 10, Stored: 1 << 30, Unpaid: 10},
		UploadExpiry: time.Hour})
	effort.OK(t, err)
	u, err := n.Book.OpenUpload(ctx, v.ID)
	for off := 0; err == nil && off < len(file); off += 256 << 10 {
		_, err = n.Book.AppendChunk(ctx, v.ID, u.Writer, int64(off), file[off:min(len(file), off+256<<10)])
	}
	effort.OK(t, err)
	return v
}

// finish waits for the end of a verification.
func finish(t testing.TB, n *node.Node, v ledger.Verification, within time.Duration) ledger.Verification {
	t.Helper()
	return awaitVerification(t, n, v, within, func(v ledger.Verification) bool { return v.Status.Final() })
}

// awaitVerification waits until a verification is as wanted.
func awaitVerification(t testing.TB, n *node.Node, v ledger.Verification, within time.Duration,
	as func(ledger.Verification) bool) ledger.Verification {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	await(ctx, t, "a verification as it is wanted", func() bool {
		got, err := n.Book.Verification(ctx, v.Workspace, v.ID)
		if err == nil {
			v = got
		}
		return err == nil && as(v)
	})
	return v
}

func results(t testing.TB, n *node.Node, v ledger.Verification) map[string]ledger.Result {
	t.Helper()
	out := map[string]ledger.Result{}
	effort.OK(t, n.Book.Results(context.Background(), v.Workspace, v.ID, func(r ledger.Result) error {
		out[r.Email] = r
		return nil
	}))
	return out
}

func TestSampleOfTheLabIsAnsweredRightWithManners(t *testing.T) {
	t.Parallel()
	n := labNode(t, filepath.Join(t.TempDir(), "data"), func(c *config.Config) { openedWide(t, c, false) })
	const addresses = 1500
	sample := smtplab.Sample(7, addresses, 300)
	v := finish(t, n, submit(t, n, []byte("email\n"+strings.Join(sample, "\n")+"\n"), addresses), 2*time.Minute)
	got := results(t, n, v)
	r := compared(n.Lab, sample, func(address string) (smtp.Outcome, smtp.Reason) {
		return got[address].Outcome, got[address].Reason
	})
	// With the race detector a node is so slow that waits for some end before they are asked again.
	effort.ErrorIf(t, len(r.Wrong) > 0 || r.Unfinished > 0 || !effort.Raced && r.Reasoned*100 < r.Knowable*99,
		"known are %d of the %d that can be known, want 99 %%: %+v", r.Reasoned, r.Knowable, r)
	sheet := n.Lab.Manners()
	if m := sheet.Total; m.Data != 0 || m.OutOfOrder != 0 || m.EarlyTalk != 0 || m.UnaskedGroups != 0 || m.HungUp != 0 {
		t.Errorf("bad manners: %+v", m)
	}
	effort.ErrorIf(t, sheet.DNS.Queries > 3*sheet.DNS.Zones,
		"%d DNS queries for %d domains, want at most 3 for each", sheet.DNS.Queries, sheet.DNS.Zones)
	balance, err := n.Book.Balance(t.Context(), v.Workspace)
	if want := ledger.Credits(v.Counts.Charged()); err != nil || balance.Spent != want || balance.Held != 0 {
		t.Errorf("balance %+v, want %d spent: %v", balance, want, err)
	}
	report, err := n.Book.Audit(t.Context())
	effort.ErrorIf(t, err != nil || len(report.Violations) > 0, "audit: %+v, %v", report.Violations, err)
}
