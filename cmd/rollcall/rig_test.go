package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
)

// A rig is a node with its own configuration file, run by the built binary. Its customer and its operator know only
// its URLs.

// hurried are waits between tries for nodes without other waits. The lab's receivers greylist for 3 s, and a test
// doesn't wait for receivers that never answer.
var hurried = []string{"ROLLCALL_RETRY_GREYLIST_WAITS=1s,2500ms", "ROLLCALL_RETRY_CONTROL_WAITS=200ms,400ms",
	"ROLLCALL_RETRY_GIVE_UP_AFTER=8s"}

// rig is a node's place: folder, ports and tenant stay the same after restarts.
type rig struct {
	*cli
	api, admin string
	tenant     client.Tenant
}

// newRig makes the place of a node that asks this DNS server, and receivers at this port. settings are more TOML.
func newRig(t *testing.T, dns string, smtpPort int, settings string) *rig {
	t.Helper()
	r := &rig{cli: newCLI(t)}
	ports := [3]int{freePort(t), freePort(t), freePort(t)}
	r.api, r.admin = fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	// The limits on requests are wide, because these tests ask all the time.
	r.write("node.toml", fmt.Sprintf(`
[http]
listen = "127.0.0.1:%d"
public_url = ""
reads_per_second = 10000
burst = 10000
creates_per_second = 1000
creates_burst = 1000
[upload]
listen = "127.0.0.1:%d"
public_url = ""
[admin]
listen = "127.0.0.1:%d"
[dns]
servers = [%q]
[smtp]
port = %d
hello_name = "rollcall.example"
allow_networks = ["127.0.0.0/8"]
%s`, ports[0], ports[1], ports[2], dns, smtpPort, settings))
	r.environ = []string{"ROLLCALL_ADMIN=" + r.admin, "ROLLCALL_LEDGER_DISK_RESERVE=0", // tests run on any disk
		fmt.Sprintf("ROLLCALL_CLUSTER_GOSSIP_LISTEN=127.0.0.1:%d", freePort(t)),
		fmt.Sprintf("ROLLCALL_CLUSTER_ACTOR_LISTEN=127.0.0.1:%d", freePort(t))}
	return r
}

// serve starts the node. It does not wait until the node answers.
func (r *rig) serve(args ...string) *background {
	r.t.Helper()
	return r.start(append([]string{"serve", "--config", "node.toml"}, args...)...)
}

// serves starts the node and waits until it answers.
func (r *rig) serves() *background {
	r.t.Helper()
	node := r.serve()
	node.waitFor("node started")
	return node
}

// open makes the tenant and grants credits. The node must run.
func (r *rig) open(credits int64) {
	r.t.Helper()
	r.tenant = r.tenantOf("rig", credits)
}

// tenantOf returns a tenant with credits of its own.
func (r *rig) tenantOf(workspace string, credits int64) client.Tenant {
	r.t.Helper()
	return effort.Must(client.OpenTenant(r.t.Context(), adminOf(r.t, r.ours()), client.TenantOptions{
		File: filepath.Join(r.folder, workspace+".json"), Workspace: workspace, Credits: credits}))(r.t)
}

// ours returns the environment for calls in this process, which works in another folder.
func (c *cli) ours() []string {
	return append(slices.Clip(c.environ), "ROLLCALL_DATA_DIR="+filepath.Join(c.folder, "rollcall-data"))
}

// client returns a customer's client that repeats requests, as our client does.
func (r *rig) client() *client.API {
	c := client.NewAPI(r.api, r.tenant.Key, func(string) {})
	c.Patient = true // from the first request on: the node may be down
	return c
}

// balance returns the balance that an operator sees.
func (r *rig) balance() ledger.Balance {
	r.t.Helper()
	return effort.Must(adminOf(r.t, r.ours()).Balance(r.t.Context(), r.tenant.Workspace))(r.t)
}

// audit runs rollcall audit: it asks the node, or reads the ledger if no node runs.
func (r *rig) audit() {
	r.t.Helper()
	holds(r.t, r.does("audit"), "every invariant holds")
}

// memoryMost returns the peak of a process's resident memory in bytes (Linux).
func memoryMost(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	_, err = fmt.Sscan(rest, &kib)
	return kib << 10, err
}

// look reads a verification once, without repeats.
func look(ctx context.Context, c *client.API, id string) (d api.Detail, err error) {
	answer, err := once(ctx, c, "/v1/verifications/"+id)
	if err != nil {
		return d, err
	}
	defer answer.Body.Close()
	return d, json.NewDecoder(answer.Body).Decode(&d)
}

// await checks so again and again until it returns true. If ctx ends first, the test fails and prints what it waited
// for.
func await(ctx context.Context, t testing.TB, what string, so func() bool) {
	t.Helper()
	for !so() {
		effort.FatalIf(t, term.Sleep(ctx, 20*time.Millisecond) != nil, "not in time: %s", what)
	}
}

// awaitEnd waits for the end of a verification, reading it again and again, and returns how long that took.
func awaitEnd(ctx context.Context, t testing.TB, c *client.API, id string) time.Duration {
	t.Helper()
	began := time.Now()
	await(ctx, t, "the end of "+id, func() bool { return effort.Must(look(ctx, c, id))(t).CompletedAt != nil })
	return time.Since(began)
}

// once sends one request, and fails if the node is down.
func once(ctx context.Context, c *client.API, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-API-Key", c.Key)
	answer, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("%s answers %d", path, answer.StatusCode)
	}
	return answer, nil
}

// writeResults writes the present results CSV to w.
func writeResults(ctx context.Context, c *client.API, id string, w io.Writer) error {
	answer, err := c.Ask(ctx, http.MethodGet, "/v1/verifications/"+id+"/results", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	return nil
}

// row is one line of the results.
type row struct {
	outcome smtp.Outcome
	reason  smtp.Reason
	at      time.Time
}

// readRows reads a whole results file.
func readRows(from io.Reader) (map[string]row, error) {
	outcomes, reasons := resultWords()
	lines, rows := csv.NewReader(from), map[string]row{}
	lines.ReuseRecord = true
	for n := 0; ; n++ {
		record, err := lines.Read()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue // the header
		}
		at, err := time.Parse(time.RFC3339, record[3])
		if err != nil {
			return nil, err
		}
		email := strings.Clone(record[0])
		if _, twice := rows[email]; twice {
			return nil, fmt.Errorf("%s is twice in the results", email)
		}
		outcome, known := outcomes[record[1]]
		text, _ := smtp.CutFlags(record[2])
		reason, explained := reasons[text]
		if !known || !explained {
			return nil, fmt.Errorf("no result of ours: %q", record)
		}
		rows[email] = row{outcome, reason, at}
	}
}

// screen is a terminal of 80 columns.
type screen struct{ *bytes.Buffer }

func (screen) Columns() int { return term.Columns }

// runHere runs a command in this process. Its output goes to a screen, or without one to another program.
func runHere(ctx context.Context, atScreen bool, environ []string, stdin string, args ...string) (stdout, stderr string,
	err error) {
	var out, errs bytes.Buffer
	root := newRoot(environ)
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	if atScreen {
		root.SetOut(screen{&out})
		root.SetErr(screen{&errs})
	}
	err = root.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

// console runs an operator's commands in this process. They write to a screen, which all lines must fit, or to a
// file.
type console struct {
	t       *testing.T
	environ []string
	stdin   string
	toFile  bool
}

func (d *console) run(args ...string) (stdout, stderr string, err error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), cliWait)
	defer cancel()
	stdout, stderr, err = runHere(ctx, !d.toFile, d.environ, d.stdin, args...)
	if !d.toFile {
		fits(d.t, stdout+stderr, term.Columns)
	}
	return stdout, stderr, err
}

// said runs a command and returns both outputs together.
func (d *console) said(args ...string) (string, error) {
	d.t.Helper()
	stdout, stderr, err := d.run(args...)
	return stdout + stderr, err
}

// must runs a command that must succeed, and returns its output.
func (d *console) must(args ...string) string {
	d.t.Helper()
	stdout, stderr, err := d.run(args...)
	effort.OK(d.t, err, "rollcall", args, stderr)
	return stdout
}

// asks runs a command that must succeed, with --json, and decodes its answer.
func (d *console) asks(into any, args ...string) {
	d.t.Helper()
	effort.OK(d.t, json.Unmarshal([]byte(d.must(append(args, "--json")...)), into), "rollcall", args)
}

// misused checks that a command is refused as wrong usage.
func (d *console) misused(args ...string) {
	d.t.Helper()
	_, _, err := d.run(args...)
	effort.ErrorIf(d.t, !isUsage(err), "rollcall %q: %v", args, err)
}

// refused checks that a command fails, but not for its usage, with a text in the error.
func (d *console) refused(want string, args ...string) {
	d.t.Helper()
	stdout, _, err := d.run(args...)
	effort.ErrHas(d.t, err, want, "rollcall", args)
	effort.ErrorIf(d.t, isUsage(err) || stdout != "", "rollcall %q: %v, %s", args, err, stdout)
}

// holds checks that a text contains each of these.
func holds(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		effort.Has(t, text, want)
	}
}

// fits checks that no line of a text is wider than this, except JSON, and that no line has control characters.
func fits(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		n := utf8.RuneCountInString(line)
		effort.ErrorIf(t, n > width && line[0] != '{', "%d columns: %q", n, line)
		effort.ErrorIf(t, strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }),
			"control characters in %q", line)
	}
}

// adminOf returns an operator's client for an environment.
func adminOf(t *testing.T, environ []string) *client.Admin {
	t.Helper()
	return effort.Must((&adminFlags{environ: environ}).client())(t)
}

// openedWide sets limits that restrict nothing.
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

// hurry shortens the waits between tries, for receivers that greylist as long as labGreylist.
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

// customerOf makes a tenant with credits at a node of this process, and returns the tenant's client.
func customerOf(t *testing.T, n *node.Node, folder, workspace string, credits int64) *client.API {
	t.Helper()
	token := effort.Must(client.ReadToken(folder))(t)
	tenant := effort.Must(client.OpenTenant(t.Context(), client.NewAdmin(n.AdminURL, token), client.TenantOptions{
		File: filepath.Join(folder, workspace+".json"), Workspace: workspace, Credits: credits}))(t)
	return client.NewAPI(n.APIURL, tenant.Key, func(string) {})
}

// submit puts a file into the ledger as the HTTP listeners would, with credits for it.
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

// awaitVerification waits until a verification is in the wanted state.
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
	// With the race detector a node is so slow that some waits end before their addresses are asked again.
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
