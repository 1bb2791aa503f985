package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"rollcall/cmd/rollcall/client"
	"rollcall/http/api"
	"rollcall/ledger"
)

// seesStatus is what `rollcall status` has of a verification.
func (c *cli) seesStatus(id string) (d api.Detail) {
	c.t.Helper()
	code, stdout, stderr := c.run("status", id, "--json")
	if err := json.Unmarshal([]byte(stdout), &d); code != exitDone || err != nil {
		c.t.Fatalf("status: code %d, %v, %s", code, err, stderr)
	}
	if waits := d.Issue != nil && d.Issue.Code == api.ReceiversWait; waits != (d.Status == "waiting") {
		c.t.Fatalf("%s with the issue %+v", d.Status, d.Issue)
	}
	return d
}

// newest is the verification that came last.
func (c *cli) newest() api.Summary {
	c.t.Helper()
	var h api.History
	code, stdout, stderr := c.run("list", "--limit", "1", "--json")
	if err := json.Unmarshal([]byte(stdout), &h); code != exitDone || err != nil || len(h.Verifications) != 1 {
		c.t.Fatalf("list: code %d, %v, %s", code, err, stderr)
	}
	return h.Verifications[0]
}

// TestACustomerSeesWhyAFileWaits: while it is parked and the node starts anew, until it is cancelled or goes on.
func TestACustomerSeesWhyAFileWaits(t *testing.T) {
	t.Parallel()
	c, service, node := newCustomerCLI(t, "ROLLCALL_RETRY_GREYLIST_WAITS=21m", "ROLLCALL_RETRY_GIVE_UP_AFTER=5h")
	c.write("list.csv", "email\nghost0@why-tempfail.test\nghost1@why-tempfail.test\n")
	run := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	const why = "2 addresses wait for why-tempfail.test, which was too busy to answer; the last is expected at "
	run.waitFor(why)
	node.waitFor("verification parked")
	run.stop(os.Interrupt)
	id := c.newest().ID
	before := c.seesStatus(id)
	if before.Issue == nil || !strings.HasPrefix(before.Issue.Message, why) {
		t.Fatalf("its customer is told %+v", before.Issue)
	}
	for _, args := range [][]string{{"status", id}, {"list"}} {
		_, stdout, _ := c.run(args...)
		if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, before.Issue.Message) {
			t.Errorf("rollcall %q does not say why it waits: %s", args, stdout)
		}
	}
	node.stop(os.Interrupt)
	c.start("serve", "--dev").waitFor("rollcall verify examples/contacts.csv --api")
	if d := c.seesStatus(id); d.Issue == nil || *d.Issue != *before.Issue {
		t.Errorf("after a restart its customer is told %+v, before %+v", d.Issue, before.Issue)
	}
	if code, _, stderr := c.run("cancel", id); code != exitDone {
		t.Fatalf("cancel: code %d, %s", code, stderr)
	}
	if d := c.seesStatus(id); d.Status != "cancelled" {
		t.Errorf("after a cancel: %s", d.Status)
	}
}

// TestAPauseIsToldToCustomers, and nothing when it is over.
func TestAPauseIsToldToCustomers(t *testing.T) {
	t.Parallel()
	c, service, _ := newCustomerCLI(t)
	code, _, stderr := c.run("receivers", "pause", "why-clean.test", "--for", "100s", "--reason", "test")
	if code != exitDone {
		t.Fatalf("pause: code %d, %s", code, stderr)
	}
	c.write("list.csv", "email\nanna@why-clean.test\n")
	run := c.start("verify", "list.csv", "--api", service, "--out", "r.csv")
	run.waitFor("1 address waits for why-clean.test, where our operators have paused the work; it is expected at ")
	id := c.newest().ID
	if d := c.seesStatus(id); d.Status != "waiting" {
		t.Errorf("while it is paused: %s", d.Status)
	}
	if code, _, stderr := c.run("receivers", "resume", "why-clean.test"); code != exitDone {
		t.Fatalf("resume: code %d, %s", code, stderr)
	}
	for began := time.Now(); !ledger.Status(c.seesStatus(id).Status).Final(); {
		if time.Since(began) > cliWait {
			t.Fatal("it does not go on")
		}
	}
}

// TestAWaitIsToldOnce until it is another.
func TestAWaitIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	view := &progressView{out: &out}
	for _, why := range []string{"", "A waits.", "A waits.", "B waits.", "B waits.", "", "B waits."} {
		d := verifyingAt(10, 0, 100)
		if why != "" {
			d.Status, d.Issue = "waiting", &api.Issue{Code: api.ReceiversWait, Message: why}
		}
		view.progress(d, client.Tally{})
	}
	const want = "verifying: 10 of 100 (10 %)\nA waits.\nwaiting: 10 of 100 (10 %)\nB waits.\n" +
		"verifying: 10 of 100 (10 %)\nB waits.\nwaiting: 10 of 100 (10 %)\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
