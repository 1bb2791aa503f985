package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/config/effort"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/smtp/identity"
	"rollcall/smtp/smtplab"
)

// dnsFront is a DNS server on loopback that has the records of this test, and asks the lab's DNS about everything
// else.
type dnsFront struct {
	addr, behind string

	mu      sync.Mutex
	records map[string][]dns.RR // by name and type
	codes   map[string]int      // reply codes by the same keys; silent means no answer
}

const silent = -1

func newFront(t *testing.T, behind string) *dnsFront {
	t.Helper()
	f := &dnsFront{behind: behind, records: map[string][]dns.RR{}, codes: map[string]int{}}
	packets := effort.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	f.addr = packets.LocalAddr().String()
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: f, NotifyStartedFunc: func() { close(started) }}
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return f
}

// set gives a name records of one type. Without values the name has none.
func (f *dnsFront) set(t *testing.T, name string, qtype uint16, values ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	key := name + dns.TypeToString[qtype]
	f.records[key] = nil
	for _, value := range values {
		rr := effort.Must(dns.NewRR(fmt.Sprintf("%s 60 IN %s %s", name, dns.TypeToString[qtype], value)))(t)
		f.records[key] = append(f.records[key], rr)
	}
}

// ServeDNS implements dns.Handler.
func (f *dnsFront) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	key := q.Question[0].Name + dns.TypeToString[q.Question[0].Qtype]
	f.mu.Lock()
	records, ours := f.records[key]
	code := f.codes[key]
	f.mu.Unlock()
	answer := new(dns.Msg)
	answer.SetReply(q)
	answer.RecursionAvailable = true
	switch {
	case code == silent:
		return
	case code != 0:
		answer.Rcode = code
	case ours && len(records) == 0:
		answer.Rcode = dns.RcodeNameError
	case ours:
		answer.Answer = records
	default:
		if asked, err := dns.Exchange(q, f.behind); err == nil {
			answer = asked
		} else {
			answer.Rcode = dns.RcodeServerFailure
		}
	}
	_ = w.WriteMsg(answer)
}

// seenAt is the address at which receivers see the nodes of these tests, as the nodes believe.
const (
	seenAt  = "192.0.2.10"
	reverse = "10.2.0.192.in-addr.arpa."
)

// soundFront returns the records of a node whose identity passes all checks.
func soundFront(t *testing.T, behind string) *dnsFront {
	f := newFront(t, behind)
	f.set(t, reverse, dns.TypePTR, "rollcall.example.")
	f.set(t, "rollcall.example.", dns.TypeA, seenAt)
	f.set(t, "rollcall.example.", dns.TypeAAAA)
	f.set(t, "rollcall.example.", dns.TypeMX, "10 rollcall.example.")
	f.set(t, "rollcall.example.", dns.TypeTXT, `"v=spf1 ip4:`+seenAt+` -all"`)
	return f
}

// checkedNode starts a node against a lab with its DNS behind a front, and returns the node's log.
func checkedNode(t *testing.T, lab *smtplab.Lab, f *dnsFront, change func(c *config.Config)) (*node.Node, *effort.Log) {
	t.Helper()
	effort.NotShort(t, "a whole node")
	effort.OnlyNode(t)
	c := node.LabConfig(node.LocalConfig(config.Default(), filepath.Join(t.TempDir(), "data"), true))
	c.Throttle.File = ""
	c.Retry.ControlWaits = []config.Duration{{Duration: 200 * time.Millisecond}}
	openedWide(t, &c, false)
	c.DNS.Servers, c.SMTP.Port = []string{f.addr}, lab.SMTPPort()
	c.SMTP.AllowNetworks, c.SMTP.HelloName = []string{lab.Network().String()}, "rollcall.example"
	c.Identity.PublicAddresses = []string{seenAt}
	change(&c)
	said := &effort.Log{}
	n := effort.Must(node.Start(context.Background(), c, node.Options{Log: slog.New(slog.NewTextHandler(said, nil))}))(t)
	t.Cleanup(func() { effort.OK(t, node.StopNode(context.Background(), n)) })
	return n, said
}

// get reads a page of a node's admin listener that needs no token.
func get(t *testing.T, url string) string {
	t.Helper()
	answer := effort.Must(http.Get(url))(t)
	defer answer.Body.Close()
	text := effort.Must(io.ReadAll(answer.Body))(t)
	effort.MustBe(t, answer.StatusCode, http.StatusOK, url)
	return string(text)
}

// TestANodeThatIsNotFitAsksNobodyUntilItIs gives a file to a node without a PTR. The node connects to no receiver and
// judges nothing. Once it has a PTR, it finishes the file.
func TestANodeThatIsNotFitAsksNobodyUntilItIs(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	f := soundFront(t, lab.DNSAddr())
	f.set(t, reverse, dns.TypePTR)
	n, said := checkedNode(t, lab, f, func(*config.Config) {})
	ready, metrics := get(t, n.AdminURL+"/readyz"), get(t, n.AdminURL+"/metrics")
	if !strings.Contains(ready, `"probing":"no: run `) || !strings.Contains(metrics, "rollcall_node_eligible 0\n") ||
		!strings.Contains(metrics, `rollcall_identity_check{check="ptr",source="192.0.2.10"} 0`) ||
		!strings.Contains(metrics, `rollcall_identity_check{check="spf",source="192.0.2.10"} 1`) {
		t.Errorf("a node that is not fit says %s and %s", ready, grep(metrics, "identity"))
	}
	lines := strings.Count(said.String(), "node does not probe")
	effort.ErrorIf(t, lines != 1, "it is said %d times, want once:\n%s", lines, said.String())
	v := submit(t, n, []byte("email\nanna@one-clean.test\nbert@two-clean.test\n"), 2)
	awaitVerification(t, n, v, time.Minute, func(v ledger.Verification) bool { return v.Status == ledger.Waiting })
	if sheet := lab.Manners(); sheet.Total.Sessions != 0 || sheet.DNS.Queries == 0 {
		t.Errorf("an ineligible node opened %d sessions, and asked DNS %d times", sheet.Total.Sessions, sheet.DNS.Queries)
	}
	f.set(t, reverse, dns.TypePTR, "rollcall.example.")
	found, err := n.CheckIdentity(t.Context())
	effort.FatalIf(t, err != nil || !found.Eligible || !found.Probing, "with a PTR: %+v, %v", found, err)
	v = finish(t, n, v, time.Minute)
	for email, r := range results(t, n, v) {
		if want := lab.Truth(email); want.Wrong(r.Outcome) || !want.Right(r.Outcome, r.Reason) {
			t.Errorf("%s: %s %s, want %s", email, r.Outcome, r.Reason, want.Outcome)
		}
	}
	effort.Lacks(t, get(t, n.AdminURL+"/readyz"), "probing", "a node that is fit says")
	if text := said.String(); !strings.Contains(text, "node may probe again") || strings.Contains(text, "anna") {
		t.Errorf("it said\n%s", text)
	}
}

// TestANodeThatIsNotMadeToBeFitProbes: with identity.enforce off an ineligible node probes.
func TestANodeThatIsNotMadeToBeFitProbes(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	f := soundFront(t, lab.DNSAddr())
	f.set(t, reverse, dns.TypePTR)
	n, said := checkedNode(t, lab, f, func(c *config.Config) { c.Identity.Enforce = false })
	v := finish(t, n, submit(t, n, []byte("email\nanna@one-clean.test\n"), 1), time.Minute)
	effort.Is(t, v.Status, ledger.Completed)
	found := n.Identity()
	effort.ErrorIf(t, found.Eligible || !found.Probing || !strings.Contains(said.String(), "identity.enforce = false"),
		"got %+v and\n%s", found, said.String())
	effort.Has(t, doctorVerdict(diagnosis{Identity: found}), "but it probes", "the doctor says")
}

// grep returns the lines that contain a text.
func grep(text, with string) (out string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, with) {
			out += line
		}
	}
	return out
}

// TestDoctor: doctor asks a node, or makes the checks itself if none runs.
func TestDoctor(t *testing.T) {
	t.Parallel()
	lab := startLab(t, smtplab.Defaults())
	f := soundFront(t, lab.DNSAddr())
	f.set(t, "rollcall.example.", dns.TypeTXT)
	c := newCLI(t)
	c.environ = []string{fmt.Sprintf("ROLLCALL_ADMIN_LISTEN=127.0.0.1:%d", freePort(t))}
	c.write("node.toml", fmt.Sprintf(`
[dns]
servers = [%q]
[smtp]
hello_name = "rollcall.example"
[identity]
public_addresses = [%q]
`, f.addr, seenAt))
	named := fmt.Sprintf("--admin=http://127.0.0.1:%d", freePort(t))
	silence := c.fails(exitFailed, "doctor", named, "--token", "x")
	holds(t, silence, "no node answers")
	effort.Lacks(t, silence, "--config", "a node that was named")
	holds(t, c.fails(exitUsage, "doctor", named, "--config", "node.toml"), "give only one of them")
	holds(t, c.fails(exitFailed, "doctor"), "--config FILE")
	holds(t, c.does("doctor", "--config", "node.toml"),
		"what receivers see of this machine, where the node does not run\n",
		"warn     spf  192.0.2.10\n         rollcall.example has no SPF record\n", "v=spf1 ip4:192.0.2.10")
	f.set(t, reverse, dns.TypePTR)
	c.environ = append(c.environ, "COLUMNS=80")
	said := c.fails(exitFailed, "doctor", "--config", "node.toml")
	holds(t, said, "fail     ptr  192.0.2.10", errIneligible.Error())
	fits(t, said, term.Columns)
	code, stdout, _ := c.run("doctor", "--config", "node.toml", "--json")
	var found admin.Identity
	err := json.Unmarshal([]byte(stdout), &found)
	effort.ErrorIf(t, err != nil || code != exitFailed || found.Eligible || found.Probing || len(found.Findings) < 4 ||
		found.Findings[0].Check != identity.PTR, "as JSON: got code %d, %v\n%s", code, err, stdout)
}

// TestDoctorThatCanCheckNothing: doctor fails and says that it is unknown whether the node may probe.
func TestDoctorThatCanCheckNothing(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.environ = []string{fmt.Sprintf("ROLLCALL_ADMIN_LISTEN=127.0.0.1:%d", freePort(t))}
	c.write("node.toml", fmt.Sprintf("[dns]\nservers = [\"127.0.0.1:%d\"]\n[smtp]\nhello_name = \"rollcall.example\"\n"+
		"return_path = \"a@rollcall.example\"\n[identity]\npublic_addresses = [%q]\n", freePort(t), seenAt))
	said := c.fails(exitFailed, "doctor", "--config", "node.toml")
	holds(t, said, errBlind.Error(), "Nothing could be checked", "skipped  ptr")
	effort.Lacks(t, said, "may probe")
	code, stdout, _ := c.run("doctor", "--config", "node.toml", "--json")
	var found diagnosis
	err := json.Unmarshal([]byte(stdout), &found)
	effort.ErrorIf(t, err != nil || code != exitFailed || found.Eligible || found.Probing || !found.Read.Here ||
		!strings.Contains(found.Why, "nothing could be checked"), "as JSON: got code %d, %v\n%s", code, err, stdout)
}

// TestTheLabNeedsNoSetUp starts a node as --dev and --lab do.
func TestTheLabNeedsNoSetUp(t *testing.T) {
	n := labNode(t, filepath.Join(t.TempDir(), "data"), func(*config.Config) {})
	found := n.Identity()
	effort.ErrorIf(t, !found.Eligible || !found.Probing || n.Cluster.Members()[0].Ineligible, "got %+v", found)
	for _, finding := range found.Findings {
		effort.ErrorIf(t, finding.State == identity.Skipped && !strings.Contains(finding.Saw, "loopback"),
			"got %+v", finding)
	}
}
