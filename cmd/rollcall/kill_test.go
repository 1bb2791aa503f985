package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/term"
	"rollcall/config/effort"
	"rollcall/http/api"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/smtp"
	"rollcall/smtp/smtplab"
)

var (
	killsFlag     = flag.Int("kills", 0, "how often a node at work is killed; 0: 2, with -long 20")
	addressesFlag = flag.Int("kill-addresses", 0, "how many addresses it works on; 0: 900, with -long 100,000")
)

// fire is a run of a node that is killed and restarted while it works.
type fire struct {
	rounds             int           // files, one after the other, each with a lab of its own
	addresses, domains int           // of a round
	kills              int           // of a round
	settings           string        // [retry], [throttle.default]
	within             time.Duration // bound for a round
}

const (
	creators = 32 // creates of one identity at the same time

	// lookEvery is how often a customer asks for the progress. downloadEvery is how often it asks for the results.
	lookEvery, downloadEvery = 50 * time.Millisecond, 500 * time.Millisecond

	// askedLate is how much later than the final evidence the lab may note an RCPT for an address: on a machine under
	// load, two processes read the clock at different times.
	askedLate = 3 * time.Second

	// goesOnWithin is how soon a restarted node settles something. It looks for work each second, and its first
	// settlement comes a second later; the rest is for a busy machine. Waiting for a lease would take 20 s.
	goesOnWithin = 15 * time.Second

	// killedUntil is the part of the addresses before which all kills of a round happen.
	killedUntil = 0.95

	// roundAddresses and roundDomains bound a round, because a lab opens a file for each domain.
	roundAddresses = 100_000
	roundDomains   = 5_000
)

// newFire takes its size from the flags of the test.
func newFire() fire {
	kills, addresses := 2, 900
	if effort.Long() {
		kills, addresses = 20, 100_000
	}
	if *killsFlag > 0 {
		kills = *killsFlag
	}
	if *addressesFlag > 0 {
		addresses = *addressesFlag
	}
	f := fire{rounds: (addresses + roundAddresses - 1) / roundAddresses, within: cliWait,
		settings: strings.NewReplacer(`"12s"`, `"6s"`, `"20/s"`, `"30/s"`).Replace(paced)}
	f.addresses = (addresses + f.rounds - 1) / f.rounds
	f.domains = min(f.addresses/20+100, roundDomains)
	f.kills = (kills + f.rounds - 1) / f.rounds
	if f.addresses > roundDomains {
		f.settings = strings.NewReplacer(`"6s"`, `"30s"`, `"30/s"`, `"60/s"`).Replace(f.settings)
		f.within = 15 * time.Minute
	}
	return f
}

// TestKilledAgainAndAgainNothingIsLostAndNothingChargedTwice kills a node with SIGKILL at random points of its work
// and restarts it. The lab keeps running and counts what was asked; the ledger must balance to the credit.
func TestKilledAgainAndAgainNothingIsLostAndNothingChargedTwice(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		newFire().burn(t, "")
	})
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		newFire().burn(t, postgres.Empty(t))
	})
}

// burn does the whole run on the ledger at url, or on an embedded one if url is "".
func (f fire) burn(t *testing.T, url string) {
	o := smtplab.Defaults()
	o.GreylistWait, o.EventsMax = time.Second, 20*f.addresses
	lab := startLab(t, o)
	o.DNSListen, o.SMTPPort = netip.MustParseAddrPort(lab.DNSAddr()), lab.SMTPPort() // of every round
	if url != "" {
		f.settings = fmt.Sprintf("[ledger]\nurl = %q\n", url) + f.settings
	}
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), f.settings)
	r.does("migrate", "--config", "node.toml")
	node := r.serves()
	r.open(int64(f.rounds*f.addresses) + 7)
	charged, table := int64(0), "| round | kills | addresses | settled | asked again | most often | took |"
	for round := range f.rounds {
		if round > 0 {
			node.kill()
			stopLab(t, lab)
			lab = startLab(t, o)
			node = r.serve()
		}
		began := time.Now()
		sample := smtplab.Sample(uint64(11+round), f.addresses, f.domains)
		c := f.round(t, r, &node, sample)
		c.checkMade(round + 1)
		charged += c.checkOutcomes(lab, sample)
		c.checkBalance(charged)
		c.checkAsked(lab, len(c.kills))
		r.audit()
		table += fmt.Sprintf("\n| %d | %d | %d | %d | %s | %v |", round+1, len(c.kills), len(sample), len(c.seen),
			c.askedAgain(lab), time.Since(began).Round(time.Second))
		t.Log(table)
	}
	node.terminate()
	if url == "" {
		r.environ = []string{noNodeHere} // the node has ended: the command reads the file
		r.audit()
	}
	t.Logf("%d kills, %d addresses, %d credits charged; failed: %v", f.rounds*f.kills, f.rounds*f.addresses, charged,
		t.Failed())
}

// round verifies one file, and kills the node several times during this. node is the running node; each kill replaces
// it.
func (f fire) round(t *testing.T, r *rig, node **background, sample []string) *customer {
	ctx, cancel := context.WithTimeout(t.Context(), f.within)
	defer cancel()
	c := submitAll(ctx, t, r, []byte("email\n"+strings.Join(sample, "\n")+"\n"))
	for _, target := range f.targets() {
		if !c.comesTo(ctx, target) {
			break
		}
		(*node).kill()
		c.kills = append(c.kills, time.Now())
		*node = r.serve()
	}
	effort.OK(t, c.wait())
	effort.Is(t, len(c.kills), f.kills, "killed times before everything was settled")
	return c
}

// targets returns how many addresses are settled at each kill. They are random, so that some processes are killed
// before they settle anything.
func (f fire) targets() []int64 {
	sum, steps := 0.0, make([]float64, f.kills+1)
	for i := range steps {
		steps[i] = rand.ExpFloat64()
		sum += steps[i]
	}
	at, out := 0.0, make([]int64, f.kills)
	for i := range out {
		at += steps[i]
		out[i] = int64(at / sum * killedUntil * float64(f.addresses))
	}
	return out
}

// comesTo waits until target addresses are settled. It returns false if the customer ends before.
func (c *customer) comesTo(ctx context.Context, target int64) bool {
	for c.settled() < target {
		if len(c.ended) > 0 || term.Sleep(ctx, 5*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// askedAgain returns two cells of the table: how many addresses of clean receivers were asked more than once, and the
// most questions about one address.
func (c *customer) askedAgain(lab *smtplab.Lab) string {
	again, most := 0, 0
	for address := range c.seen {
		if n := lab.Rcpts(address); strings.HasSuffix(address, "-clean.test") && n > 1 {
			again, most = again+1, max(most, n)
		}
	}
	return fmt.Sprintf("%d | %d", again, most)
}

// TestSIGTERMSettlesWhatIsKnownAndTheNextLifeGoesOn ends a node in the middle of a file. A restarted node continues
// at once and asks nothing again.
func TestSIGTERMSettlesWhatIsKnownAndTheNextLifeGoesOn(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	r := newRig(t, lab.DNSAddr(), lab.SMTPPort(), paced)
	node := r.serves()
	r.open(160)
	ctx, cancel := context.WithTimeout(t.Context(), cliWait)
	defer cancel()
	c := submitAll(ctx, t, r, []byte(numbered("ghost", "one-clean.test", 160))) // refused at once, 20 a second, so 8 s
	before := c.reach(ctx, 1)
	node.terminate()
	r.serves()
	started := time.Now()
	after := c.reach(ctx, before+1)
	took := time.Since(started)
	effort.ErrorIf(t, took > goesOnWithin, "the work went on after %v, want within %v", took, goesOnWithin)
	effort.Not(t, after, 160, "everything was done before the second node began")
	effort.OK(t, c.wait())
	rcpts := lab.Manners().Total.Rcpts
	effort.ErrorIf(t, rcpts > 160+10, "%d probes for 160 addresses: the drain lost answers", rcpts)
	r.audit()
}

// reach waits until n rows are settled, and returns how many are.
func (c *customer) reach(ctx context.Context, n int64) int64 {
	c.t.Helper()
	await(ctx, c.t, fmt.Sprintf("%d settled rows", n), func() bool {
		effort.OK(c.t, c.peek())
		return c.settled() >= n
	})
	return c.settled()
}

// peek returns the error with which a customer has ended, and keeps it for wait.
func (c *customer) peek() error {
	select {
	case err := <-c.ended:
		c.ended <- err
		return err
	default:
		return nil
	}
}

// kill ends the node at once: to the process, like a power cut.
func (b *background) kill() {
	b.t.Helper()
	effort.OK(b.t, b.command.Process.Kill())
	b.wait(cliWait)
	effort.FatalIf(b.t, b.command.ProcessState.Exited(), "the node ended by itself: %v", b.command.ProcessState)
}

// startLab starts a lab in this process, which ends with the test.
func startLab(t *testing.T, o smtplab.Options) *smtplab.Lab {
	t.Helper()
	lab := effort.Must(smtplab.Start(o))(t)
	t.Cleanup(func() { stopLab(t, lab) })
	return lab
}

// stopLab frees the ports and files of a lab. It may be called twice.
func stopLab(t *testing.T, lab *smtplab.Lab) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), labStopWait)
	defer cancel()
	effort.ErrIs(t, lab.Stop(ctx), nil)
}

// customer submits one file and watches it until the end.
type customer struct {
	t      *testing.T
	rig    *rig
	client *client.API
	id     string
	made   *atomic.Int32 // how many creates were answered with 201
	ids    map[string]int
	ended  chan error

	mu      sync.Mutex
	last    api.Detail           // as last seen
	seen    map[string]row       // rows as first seen in the results
	seenAt  map[string]time.Time // when
	balance int64                // available credits, read after the end was seen

	kills []time.Time
}

func newCustomer(t *testing.T, r *rig) *customer {
	return &customer{t: t, rig: r, client: r.client(), made: &atomic.Int32{}, ids: map[string]int{},
		seen: map[string]row{}, seenAt: map[string]time.Time{}, ended: make(chan error, 1)}
}

// submitAll creates a verification with many clients at once, uploads with one, and begins to watch.
func submitAll(ctx context.Context, t *testing.T, r *rig, file []byte) *customer {
	c := newCustomer(t, r)
	go func() { c.ended <- c.run(ctx, file) }()
	return c
}

func (c *customer) run(ctx context.Context, file []byte) error {
	identity := uuid.New()
	made, err := c.create(ctx, identity, int64(len(file)))
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	c.id = made.ID
	if made.Upload == nil {
		return fmt.Errorf("create gives no upload: %+v", made)
	}
	err = c.client.Upload(ctx, made.Upload.URL, bytes.NewReader(file), int64(len(file)), func(int64) {})
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	downloads, stop := make(chan error, 1), make(chan struct{})
	go func() { downloads <- c.download(ctx, stop) }()
	err = c.watch(ctx)
	close(stop)
	return errors.Join(err, <-downloads)
}

// create asks with many clients at once for the same identity.
func (c *customer) create(ctx context.Context, identity uuid.UUID, size int64) (api.Creation, error) {
	type answer struct {
		made api.Creation
		err  error
	}
	answers := make(chan answer)
	for range creators {
		client := c.rig.client()
		client.HTTP.Transport = countCreated{client.HTTP.Transport, c.made}
		go func() {
			made, err := client.Create(ctx, identity, size, "sample.csv")
			answers <- answer{made, err}
		}()
	}
	var first answer
	for range creators {
		a := <-answers
		c.ids[a.made.ID]++
		if first.made.ID == "" || a.err != nil {
			first = a
		}
	}
	return first.made, first.err
}

type countCreated struct {
	http.RoundTripper
	n *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (t countCreated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusCreated {
		t.n.Add(1)
	}
	return answer, err
}

// watch reads the progress again and again until the end, or until nothing changes for long.
func (c *customer) watch(ctx context.Context) error {
	for moved, done := time.Now(), int64(0); ; {
		d, err := look(ctx, c.client, c.id)
		if err == nil {
			err = c.step(d)
			if err != nil {
				return err
			}
			if d.CompletedAt != nil {
				var credits api.Credits
				_, err = c.client.AskJSON(ctx, http.MethodGet, "/v1/credits", nil, &credits)
				c.balance = credits.Credits
				return err
			}
		} // otherwise the node is down or stopping
		if now := c.settled(); now > done {
			moved, done = time.Now(), now
		}
		if err := term.Sleep(ctx, lookEvery); err != nil || time.Since(moved) > cliWait {
			return fmt.Errorf("no end in sight: %+v", d)
		}
	}
}

// step compares the progress with what was seen before (I8, I10).
func (c *customer) step(d api.Detail) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, now := c.last.Progress, d.Progress
	switch done := now.Completed + now.Errors + now.Cancelled; {
	case now.Completed < was.Completed || now.Errors < was.Errors || now.Cancelled < was.Cancelled:
		return fmt.Errorf("progress fell from %+v to %+v", was, now)
	case was.Total != nil && (now.Total == nil || *now.Total != *was.Total):
		return fmt.Errorf("total changed from %d", *was.Total)
	case now.Total != nil && done > *now.Total:
		return fmt.Errorf("%d of %d are done", done, *now.Total)
	case (d.CompletedAt != nil) != strings.HasPrefix(d.Status, "completed"):
		return fmt.Errorf("status %s with completed_at %v", d.Status, d.CompletedAt)
	case d.CompletedAt != nil && (now.Total == nil || done != *now.Total):
		return fmt.Errorf("completed with progress %+v", now)
	}
	c.last = d
	return nil
}

// download reads the results again and again: rows seen once never change (I9, I12).
func (c *customer) download(ctx context.Context, stop <-chan struct{}) error {
	for last := false; ; {
		began := time.Now()
		if answer, err := once(ctx, c.client, "/v1/verifications/"+c.id+"/results"); err == nil {
			text, cut := io.ReadAll(answer.Body)
			answer.Body.Close()
			if cut == nil {
				if err := c.compare(text); err != nil || last {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			last, stop = true, nil
		case <-time.After(max(downloadEvery, 20*time.Since(began))):
		}
	}
}

func (c *customer) compare(text []byte) error {
	rows, err := readRows(bytes.NewReader(text))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for email, r := range c.seen {
		if rows[email] != r {
			return fmt.Errorf("%s was %+v and is %+v", email, r, rows[email])
		}
	}
	now := time.Now()
	for email := range rows {
		if _, known := c.seen[email]; !known {
			c.seenAt[email] = now
		}
	}
	c.seen = rows
	return nil
}

func (c *customer) settled() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Progress.Completed + c.last.Progress.Errors
}

func (c *customer) wait() error { return <-c.ended }

// check compares, at the end, everything with what the lab knows and saw.
func (c *customer) check(lab *smtplab.Lab, sample []string, kills int) {
	c.t.Helper()
	c.checkMade(1)
	c.checkBalance(c.checkOutcomes(lab, sample))
	c.checkAsked(lab, kills)
	if b := c.rig.balance(); c.balance != int64(b.Available) {
		c.t.Errorf("the last progress said %d credits, the balance afterwards %d", c.balance, b.Available)
	}
}

// checkMade checks that all creates made one verification, and that the workspace has as many as files.
func (c *customer) checkMade(files int) {
	t := c.t
	t.Helper()
	if made := c.made.Load(); len(c.ids) != 1 || made > 1 {
		t.Errorf("%d creates at once: got %d verifications and %d times 201, want one", creators, len(c.ids), made)
	}
	var history api.History
	_, err := c.client.AskJSON(t.Context(), http.MethodGet, "/v1/verifications", nil, &history)
	effort.ErrorIf(t, err != nil || len(history.Verifications) != files,
		"got %d verifications in the history and %v, want %d", len(history.Verifications), err, files)
}

// checkOutcomes compares the outcomes with the lab, and returns their cost in credits.
func (c *customer) checkOutcomes(lab *smtplab.Lab, sample []string) (charged int64) {
	t := c.t
	t.Helper()
	effort.Is(t, len(c.seen), len(sample))
	score := compared(lab, sample, func(address string) (smtp.Outcome, smtp.Reason) {
		got := c.seen[address]
		if !got.outcome.Free() {
			charged++
		}
		return got.outcome, got.reason
	})
	effort.ErrorIf(t, len(score.Wrong) > 0 || score.Reasoned*100 < score.Knowable*99,
		"known are %d of the %d that can be known, want 99 %%: %+v", score.Reasoned, score.Knowable, score)
	t.Logf("known %d of %d, charged %d", score.Reasoned, score.Knowable, charged)
	return charged
}

// checkBalance checks that charged credits are spent and none is held.
func (c *customer) checkBalance(charged int64) {
	c.t.Helper()
	b := c.rig.balance()
	effort.ErrorIf(c.t, int64(b.Spent) != charged || b.Held != 0 || int64(b.Available) != int64(b.Granted)-charged,
		"balance %+v, want %d spent", b, charged)
}

// diedBetween reports whether a node was killed between the beginning of a session and an event of that session in
// the lab's log. A receiver that makes clients wait reads the rest of a session long after the node was killed.
func diedBetween(kills []time.Time, began, noted time.Time) bool {
	return slices.ContainsFunc(kills, func(k time.Time) bool { return k.After(began) && k.Before(noted) })
}

// checkAsked checks the RCPTs that receivers got. None comes after the final evidence, or after the outcome was seen
// (I15). No mailbox of a clean receiver is asked more often than the node had processes.
func (c *customer) checkAsked(lab *smtplab.Lab, kills int) {
	t := c.t
	t.Helper()
	sheet := lab.Manners()
	effort.ErrorIf(t, sheet.Total.Data != 0 || sheet.EventsDropped != 0 || sheet.Uncounted != 0,
		"%d times DATA, %d events dropped, %d probes uncounted; want none", sheet.Total.Data, sheet.EventsDropped,
		sheet.Uncounted)
	late, often, asked := []string(nil), []string(nil), 0
	began := map[int]time.Time{} // sessions
	for _, e := range lab.Events() {
		if e.Kind == "connect" {
			began[e.Session] = e.At
		}
		r, ours := c.seen[e.Address] // false for a control probe
		if e.Kind != "rcpt" || !ours {
			continue
		}
		asked++
		if diedBetween(c.kills, began[e.Session], e.At) {
			continue
		}
		if after := e.At.Sub(r.at); after > askedLate || e.At.After(c.seenAt[e.Address]) {
			late = append(late, fmt.Sprintf("%s %v after its final evidence", e.Address, after))
		}
	}
	for address := range c.seen {
		if n := lab.Rcpts(address); strings.HasSuffix(address, "-clean.test") && n > 1+kills {
			often = append(often, fmt.Sprintf("%s %d times", address, n))
		}
	}
	effort.ErrorIf(t, asked < len(c.seen)/2,
		"only %d probes were seen for %d addresses: is the referee blind?", asked, len(c.seen))
	slices.Sort(late)
	if len(late) > 0 {
		t.Errorf("%d probes came after the outcome was final, such as %s", len(late), late[0])
	}
	if len(often) > 0 {
		t.Errorf("%d addresses were asked too often, such as %s", len(often), often[0])
	}
}
