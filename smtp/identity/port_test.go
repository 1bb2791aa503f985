package identity

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"rollcall/config/effort"
)

func TestReach(t *testing.T) {
	type step struct {
		at       time.Duration
		receiver string
		answered bool
	}
	vain := func(at time.Duration, n int) (out []step) {
		for i := range n {
			out = append(out, step{at, fmt.Sprintf("r%d", i), false})
		}
		return out
	}
	good := func(at time.Duration, n int) []step {
		out := vain(at, n)
		for i := range out {
			out[i].answered = true
		}
		return out
	}
	for _, c := range []struct {
		name  string
		steps []step
		at    time.Duration
		want  State
	}{
		{"nobody dialled", nil, 0, Skipped},
		{"four in vain", vain(0, silentMin-1), 0, OK},
		{"five in vain", vain(0, silentMin), 0, Fail},
		{"one five times in vain", append(vain(0, 1), append(vain(0, 1), vain(0, 1)...)...), 0, OK},
		{"five in vain, long ago", vain(0, silentMin), silentFor, Skipped},
		{"five in vain, a moment before", vain(0, silentMin), silentFor - 1, Fail},
		{"many in vain and one answers", append(vain(0, 50), step{0, "x", true}), 0, OK},
		{"one answered a moment before", append(good(0, 9), vain(silentFor-1, 9)...), silentFor - 1, OK},
		{"those that answered are silent", append(good(0, silentMin), vain(silentFor, silentMin)...), silentFor, Fail},
		{"one too few of those", append(good(0, silentMin-1), vain(silentFor, silentMin)...), silentFor, OK},
		{"a list of dead domains, later", append([]step{{0, "x", true}}, vain(silentFor, 50)...), silentFor, OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, start := &Reach{}, time.Unix(1e9, 0)
			for _, s := range c.steps {
				r.Note(s.receiver, s.answered, start.Add(s.at))
			}
			effort.Is(t, CheckReach(r, start.Add(c.at)).State, c.want)
		})
	}
}

func TestReachIsBounded(t *testing.T) {
	r, now := &Reach{}, time.Unix(1e9, 0)
	for i := range reachMax + 10 {
		r.Note(fmt.Sprint(i), false, now)
	}
	effort.Is(t, len(r.receivers), reachMax)
	r.Note("later", true, now.Add(silentFor))
	effort.ErrorIf(t, len(r.receivers) != 1 || CheckReach(r, now.Add(silentFor)).State != OK,
		"%d receivers are kept when all are old, want 1", len(r.receivers))
}

// host is a mail host on loopback; it gives what it was told after its greeting.
func host(t *testing.T, greeting string) (port int, told chan string) {
	t.Helper()
	l := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	told = make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(greeting)); err != nil {
			return
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		told <- line
	}()
	return l.Addr().(*net.TCPAddr).Port, told
}

// dialFunc is a smtp.Dialer.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func (f dialFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

var straight = dialFunc((&net.Dialer{}).DialContext)

func TestPort25(t *testing.T) {
	z := newZone(t, "mail.example. MX 20 no.example.", "mail.example. MX 10 mx.example.", "mx.example. A 127.0.0.1",
		"no.example. A 127.0.0.9", "host.example. A 127.0.0.1", "null.example. MX 0 .")
	z.breakName("sick.example", true)
	for _, c := range []struct {
		name, greeting string
		hosts          []string
		want           State
	}{
		{"a domain's best MX greets", "220 mx ESMTP\r\n", []string{"mail.example"}, OK},
		{"a host greets", "220 mx ESMTP\r\n", []string{"host.example"}, OK},
		{"the second greets", "220 mx ESMTP\r\n", []string{"gone.example", "host.example"}, OK},
		{"one that refuses us is reached, too", "554 no\r\n", []string{"host.example"}, OK},
		{"something else listens", "SSH-2.0-x\r\n", []string{"host.example"}, Fail},
		{"an endless line", "220 " + string(make([]byte, 2*lineMax)), []string{"host.example"}, Fail},
		{"nothing listens", "", []string{"no.example"}, Fail},
		{"none has an address", "", []string{"null.example", "gone.example"}, Skipped},
		{"dns does not know", "", []string{"sick.example"}, Skipped},
	} {
		t.Run(c.name, func(t *testing.T) {
			port, told := host(t, c.greeting)
			f := CheckPort(t.Context(), z.client(), Way{Dial: straight, Port: port}, c.hosts)
			effort.MustBe(t, f.State, c.want, f)
			effort.MustBe(t, f.Check, Port25, f)
			if c.want == OK {
				effort.Is(t, <-told, "QUIT\r\n", "it was told")
			}
		})
	}
}

func TestNothingIsSaidBeforeTheEndOfAGreeting(t *testing.T) {
	ours, theirs := net.Pipe() // who writes waits until the other one reads
	defer theirs.Close()
	greeted := make(chan bool)
	go func() { greeted <- Greets(ours) }()
	_ = theirs.SetDeadline(time.Now().Add(10 * time.Second))
	for _, line := range []string{"220-mx ESMTP\r\n", "220 mx ESMTP\r\n"} {
		_, err := io.WriteString(theirs, line)
		effort.FatalIf(t, err != nil, "it doesn't read %q: %v", line, err)
	}
	line, _ := bufio.NewReader(theirs).ReadString('\n')
	effort.ErrorIf(t, line != "QUIT\r\n", "it was told %q", line)
	_ = theirs.Close()
	effort.ErrorIf(t, !<-greeted, "this is a greeting")
}

func TestAHostThatSaysNothingIsNotWaitedForForEver(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	dial := dialFunc(func(context.Context, string, string) (net.Conn, error) {
		cancel() // as reachTime does
		return ours, nil
	})
	z := newZone(t, "host.example. A 127.0.0.1")
	found := effort.Must(hostsOf(t.Context(), z.client(), "host.example"))(t)
	effort.MustBe(t, len(found), 1)
	effort.ErrorIf(t, greets(ctx, Way{Dial: dial, Port: 25}, found[0]), "a silent host greets")
	effort.Denied(hostsOf(t.Context(), away{}, "host.example"))(t, errDNS)
	many := make([]string, 0, reachAddrs+1)
	for i := range reachAddrs + 1 {
		many = append(many, fmt.Sprintf("many.example. A 127.0.0.%d", i+1))
	}
	z.add(many...)
	if found, _ := hostsOf(t.Context(), z.client(), "many.example"); len(found) != reachAddrs {
		t.Errorf("%d addresses are tried, want %d", len(found), reachAddrs)
	}
}
