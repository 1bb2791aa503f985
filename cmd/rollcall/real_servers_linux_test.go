package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"rollcall/config/effort"
)

// realServer is a Postfix of TestRealServers: the lines that its main.cf and master.cf have besides the usual ones.
type realServer struct{ name, main, smtpd string }

// realServers are configured as people do it; postgrey listens on port 10023.
var realServers = []realServer{
	{name: "plain"},
	{name: "errors", main: "smtpd_soft_error_limit = 3\nsmtpd_hard_error_limit = 8\nsmtpd_recipient_limit = 10\n"},
	{name: "two", main: "smtpd_hard_error_limit = 2\n"},
	{name: "sleep", main: "smtpd_error_sleep_time = 2s\nsmtpd_soft_error_limit = 1\nsmtpd_hard_error_limit = 100\n"},
	{name: "limits", main: "smtpd_client_connection_count_limit = 3\nsmtpd_client_connection_rate_limit = 6\n" +
		"smtpd_client_recipient_rate_limit = 60\nanvil_rate_time_unit = 30s\nsmtpd_client_event_limit_exceptions =\n"},
	{name: "screen", main: "postscreen_greet_action = enforce\npostscreen_bare_newline_enable = yes\n" +
		"postscreen_cache_map = btree:$data_directory/screen\n",
		smtpd: "smtp inet n - n - 1 postscreen\nsmtpd pass - - n - - smtpd\ndnsblog unix - - n - 0 dnsblog\n"},
	{name: "grey", main: "smtpd_recipient_restrictions = reject_unauth_destination, " +
		"check_policy_service inet:127.0.0.1:10023\n"},
}

// complaints matches log lines for which fail2ban bans. A limit of errors may be met once, because that is how it is
// found.
var complaints = regexp.MustCompile(`too many errors|PREGREET|improper command pipelining|non-SMTP command`)

// mailboxesOfReal is how many mailboxes exist at each server. A list also has a third as many missing ones.
const mailboxesOfReal = 60

// TestRealServers verifies a list at real Postfixes and a postgrey, in a network of its own. All outcomes are right,
// and no log complains.
func TestRealServers(t *testing.T) {
	if !effort.Long() {
		t.Skip("skipped: real mail servers take two minutes: run with -long")
	}
	needSpaces(t)
	for _, program := range []string{"postfix", "postgrey"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: there is no %s here", program)
		}
	}
	s, c := newSpace(t, "real"), newCLI(t)
	s.ip(t, "addr add 11.1.0.1/32 dev lo")
	zone := map[string]string{"mx.probe.test.": "11.1.0.1", "probe.test.": "11.1.0.1"}
	var list, want strings.Builder
	logs := make([]string, len(realServers))
	for i, server := range realServers {
		address := fmt.Sprintf("11.1.0.%d", 11+i)
		s.ip(t, "addr add "+address+"/32 dev lo")
		zone["mx."+server.name+".test."] = address
		logs[i] = server.begin(t, s, address)
		for n := range mailboxesOfReal * 4 / 3 {
			name, outcome := fmt.Sprintf("u%d", n), "valid"
			if n >= mailboxesOfReal {
				name, outcome = fmt.Sprintf("nobody%d", n), "invalid"
			}
			fmt.Fprintf(&list, "%s@%s.test\n", name, server.name)
			fmt.Fprintf(&want, "%s@%s.test,%s\n", name, server.name, outcome)
		}
	}
	begin(t, s, exec.Command("postgrey", "--inet=127.0.0.1:10023", "--delay=20", "--dbdir="+ownedBy(t, "postgrey")))
	serveZone(t, s, zone)
	c.write("list.csv", list.String())
	c.write("node.toml", string(effort.Must(os.ReadFile("testdata/real_servers.toml"))(t)))
	for i := range realServers {
		awaitListener(t, s, fmt.Sprintf("11.1.0.%d:25", 11+i))
	}
	awaitListener(t, s, "127.0.0.1:10023")
	began, verify := time.Now(), c.command(t.Context(), "verify", "list.csv", "--config", "node.toml", "--out", "out.csv")
	effort.MustBe(t, beside(t, verify, s.start).wait(5*time.Minute), exitDone, "verify ended with")
	results := effort.Must(os.ReadFile(filepath.Join(c.folder, "out.csv")))(t)
	var got strings.Builder
	for line := range strings.Lines(string(results)) {
		if cells := strings.Split(line, ","); strings.Contains(cells[0], "@") {
			fmt.Fprintf(&got, "%s,%s\n", cells[0], cells[1])
		}
	}
	effort.Is(t, got.String(), want.String(), "the outcomes are")
	for _, name := range logs {
		log := effort.Must(os.ReadFile(name))(t)
		found := complaints.FindAllString(string(log), -1)
		effort.ErrorIf(t, len(found) > 1 || slices.Contains(found, "PREGREET"), "%s complains: %q", name, found)
	}
	t.Logf("%d addresses in %s", len(realServers)*mailboxesOfReal*4/3, time.Since(began).Round(time.Second))
}

// begin starts a Postfix with its mailboxes at an address of the network namespace, and returns the name of its log
// file.
func (r realServer) begin(t *testing.T, s *space, address string) string {
	t.Helper()
	folder, data := t.TempDir(), ownedBy(t, "postfix")
	users := &strings.Builder{}
	for n := range mailboxesOfReal {
		fmt.Fprintf(users, "u%d@%s.test ok\n", n, r.name)
	}
	smtpd := r.smtpd
	if smtpd == "" {
		smtpd = "smtp inet n - n - - smtpd\n"
	}
	for name, text := range map[string]string{
		"users": users.String(),
		"main.cf": fmt.Sprintf("compatibility_level = 3.6\nmyhostname = mx.%[1]s.test\nqueue_directory = %[2]s/queue\n"+
			"data_directory = %[3]s\ninet_interfaces = %[4]s\ninet_protocols = ipv4\nmydestination =\n"+
			"virtual_mailbox_domains = %[1]s.test\nvirtual_mailbox_maps = texthash:%[2]s/users\n"+
			"mynetworks = 127.0.0.0/8\nmaillog_file_prefixes = %[2]s\nmaillog_file = %[2]s/log\n%[5]s",
			r.name, folder, data, address, r.main),
		"master.cf": smtpd + "cleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\n" +
			"rewrite unix - - n - - trivial-rewrite\nproxymap unix - - n - - proxymap\n" +
			"anvil unix - - n - 1 anvil\npostlog unix-dgram n - n - 1 postlogd\n",
	} {
		effort.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	effort.OK(t, errors.Join(os.Mkdir(filepath.Join(folder, "queue"), 0o755), os.Chmod(folder, 0o755)))
	t.Cleanup(func() { // processes that start-fg starts don't end with it
		pid, _ := os.ReadFile(filepath.Join(folder, "queue/pid/master.pid"))
		if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
			_ = syscall.Kill(n, syscall.SIGTERM)
		}
	})
	begin(t, s, exec.Command("postfix", "-c", folder, "start-fg"))
	return filepath.Join(folder, "log")
}

// begin starts a program in the space until the test ends.
func begin(t *testing.T, s *space, command *exec.Cmd) {
	t.Helper()
	b := beside(t, command, s.start)
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		b.wait(20 * time.Second)
	})
}

// awaitListener waits until a program accepts connections.
func awaitListener(t *testing.T, s *space, address string) {
	t.Helper()
	effort.Within(t, "a listener at "+address, func() bool {
		c, err := s.dial(t.Context(), "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// ownedBy makes a folder that a user owns.
func ownedBy(t *testing.T, user string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // the folder above all folders of the test
		t.Fatal(err)
	}
	out, err := exec.Command("chown", user+":", folder).CombinedOutput()
	effort.FatalIf(t, err != nil, "chown: %v: %s", err, out)
	return folder
}

// serveZone answers DNS questions about mail hosts and their domains at 127.0.0.1:53 of the space.
func serveZone(t *testing.T, s *space, zone map[string]string) {
	t.Helper()
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		one := q.Question[0]
		head := dns.RR_Header{Name: one.Name, Rrtype: one.Qtype, Class: dns.ClassINET, Ttl: 60}
		_, isDomain := zone["mx."+one.Name]
		switch at, isHost := zone[one.Name]; {
		case isHost && one.Qtype == dns.TypeA:
			m.Answer = []dns.RR{&dns.A{Hdr: head, A: net.ParseIP(at)}}
		case isDomain && one.Qtype == dns.TypeMX:
			m.Answer = []dns.RR{&dns.MX{Hdr: head, Preference: 10, Mx: "mx." + one.Name}}
		case one.Name == "com." && one.Qtype == dns.TypeNS: // the node tests with this that it reaches the Internet's DNS
			m.Answer = []dns.RR{&dns.NS{Hdr: head, Ns: "a.nic.test."}}
		case !isHost && !isDomain:
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})
	effort.OK(t, s.in(func() error {
		packets, err := net.ListenPacket("udp", "127.0.0.1:53")
		if err != nil {
			return err
		}
		streams, err := net.Listen("tcp", "127.0.0.1:53")
		for _, server := range []*dns.Server{{PacketConn: packets, Handler: answer}, {Listener: streams, Handler: answer}} {
			go func() { _ = server.ActivateAndServe() }()
			t.Cleanup(func() { _ = server.Shutdown() })
		}
		return err
	}))
}
