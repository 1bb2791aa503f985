package smtp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
	"rollcall/smtp/mx"
	"rollcall/smtp/smtplab"
)

// The matrix: a session with each of the lab's hostile behaviours, in clear and after STARTTLS, on real sockets. The
// limits of time are shortened to those of matrixLimits; those of size are the shipped ones.

const (
	matrixAtOnce = 64               // sessions at once; nearly all of them only wait
	matrixEnd    = 60 * time.Second // only against a session that never ends
	matrixTries  = 5                // of a session that found out too little beside all others

	// matrixSize bounds what a session may read, in clear or not: the bytes of its replies, one read buffer, and a TLS
	// handshake with the records around them. Guess for the last: a chain of certificates may have 16 KiB.
	matrixSize = 256<<10 + 2*4096 + 4096 + 64<<10
)

func matrixLimits() smtp.Limits {
	l := smtp.DefaultLimits()
	l.Greeting, l.Hello, l.StartTLS, l.Mail = 3*time.Second, 3*time.Second, 3*time.Second, 3*time.Second
	l.Rcpt, l.Handshake, l.Quit = 3*time.Second, 3*time.Second, 500*time.Millisecond
	l.Session, l.SessionMore = 8*time.Second, time.Second
	return l
}

func TestMatrixOfHostileReceivers(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	lab := startMatrixLab(t)
	var rows []string // the names
	for _, p := range smtplab.Personalities() {
		if strings.HasPrefix(p.Family, "hostile") {
			rows = append(rows, p.Name)
		}
	}
	effort.MustBe(t, len(rows), 128, "behaviours, in clear and after STARTTLS")
	var wait sync.WaitGroup
	var late sync.Map // functions by row: sessions that found out too little
	slots := make(chan struct{}, matrixAtOnce)
	for _, name := range rows {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			matrixRow(t, lab, name, &late)
		})
	}
	wait.Wait()
	late.Range(func(_, again any) bool { again.(func())(); return true })
	sheet := lab.Manners().Total
	effort.ErrorIf(t, sheet.Data != 0 || sheet.UnaskedGroups != 0 || sheet.EarlyTalk != 0, "bad manners: %+v", sheet)
}

func startMatrixLab(t *testing.T) *smtplab.Lab {
	t.Helper()
	lab := effort.Must(smtplab.Start(smtplab.Defaults()))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), matrixEnd)
		defer cancel()
		effort.OK(t, lab.Stop(ctx))
	})
	return lab
}

// matrixRow asks a mailbox that exists and one that does not, in both orders at once. On a busy machine a session beside all
// others may meet its time limits, and then finds out too little: it is noted, to be held again when nobody else talks.
func matrixRow(t *testing.T, lab *smtplab.Lab, personality string, late *sync.Map) {
	domain := "m-" + personality + ".test"
	at, host, err := labHost(lab, domain)
	if err != nil {
		t.Errorf("%s: %v", personality, err)
		return
	}
	var wait sync.WaitGroup
	for _, locals := range [][]string{{"ada.adler", "no-such-one"}, {"no-such-one", "ada.adler"}} {
		var list []smtp.Address
		for _, local := range locals {
			list = append(list, smtp.Address{Local: local, Domain: domain})
		}
		wait.Go(func() {
			talk := func() string { return matrixTalk(t, lab, personality, matrixTarget{lab.SMTPPort(), at, host}, list) }
			if talk() != "" {
				late.Store(personality+list[0].Local, func() { matrixAgain(t, talk) })
			}
		})
	}
	wait.Wait()
}

// matrixAgain has a session held anew, until it finds out all that can be known.
func matrixAgain(t *testing.T, talk func() string) {
	missing := ""
	for range matrixTries {
		if missing = talk(); missing == "" {
			return
		}
	}
	t.Error(missing)
}

// matrixTalk has one session about two addresses, and compares what it finds with the truth. It gives what it did not find
// out although it can be known; "": nothing.
func matrixTalk(t *testing.T, lab *smtplab.Lab, personality string, target matrixTarget, list []smtp.Address) (missing string) {
	found := matrixSession(t, personality, target, list)
	for i, address := range list {
		want, got := lab.Truth(address.String()), found[i]
		// That a domain accepts everything is more than one session can know.
		effort.ErrorIf(t, want.Wrong(got) && !(got == smtp.Valid && want.Outcome == smtp.CatchAll) &&
			got != smtp.Undecided, "%s: %s is %v, right is %v", personality, address.Local, got, want.Outcome)
		first := i == 0 && want.Outcome != smtp.CatchAll && !strings.Contains(personality, "second250")
		if want.Knowable && first && got != want.Outcome {
			missing = fmt.Sprintf("%s: %s is %v, which can be known to be %v", personality, address.Local, got, want.Outcome)
		}
	}
	return missing
}

// matrixTarget is where a receiver listens.
type matrixTarget struct {
	port int
	at   netip.Addr
	host string
}

// matrixSession has one session ask and gives what its answers say.
func matrixSession(t *testing.T, personality string, to matrixTarget, list []smtp.Address) []smtp.Outcome {
	found := make([]smtp.Outcome, len(list))
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	counted := &countingDialer{Dialer: smtp.NewDialer(smtp.DialerOptions{AllowNetworks: loopback, Port: to.port,
		ConnectTimeout: smtp.ConnectTimeout})}
	ctx, cancel := context.WithTimeoutCause(context.Background(), matrixEnd, errEndless)
	defer cancel()
	end := func(stage smtp.Stage, err error) {
		var failed *smtp.Failure
		if !errors.As(err, &failed) {
			t.Errorf("%s: at %v the error is %v, want a *smtp.Failure", personality, stage, err)
			return
		}
		effort.ErrorIf(t, errors.Is(err, errEndless) || ctx.Err() != nil,
			"%s: the session did not end by itself", personality)
		effort.Is(t, judged(failed.Stage, failed.Reply, failed.Err).Outcome, smtp.Undecided, personality, err, "is taken for")
	}
	s, err := smtp.Open(ctx, counted, to.host, netip.AddrPortFrom(to.at, uint16(to.port)), smtp.SessionOptions{
		HelloName: "probe.example", ReturnPath: "back@probe.example", Limits: matrixLimits()})
	if err != nil {
		end(smtp.StageConnect, err)
		return found
	}
	defer func() {
		s.Quit()
		if n := counted.read.Load(); n > matrixSize {
			t.Errorf("%s: the session read %d bytes, at most %d are allowed", personality, n, matrixSize)
		}
	}()
	for i := range list {
		answers, err := s.Probe(ctx, list[i:i+1], smtp.Ask{})
		if len(answers) > 0 && answers[0].Err == nil {
			a := evidence.Note(evidence.Raw{At: time.Unix(1, 0), Stage: smtp.StageRcpt, Host: to.host,
				Reply: answers[0].Reply, Address: list[i], Hello: "probe.example"})
			effort.ErrorIf(t, len(a.Text) > evidence.TextMax || strings.ContainsAny(a.Text, "\r\n\x00"),
				"%s: a text of %d bytes is kept: %.80q", personality, len(a.Text), a.Text)
			if v := builtin().Judge(a); !v.Bare { // which needs a witness
				found[i] = v.Outcome
			}
		}
		if err != nil {
			end(smtp.StageRcpt, err)
			return found
		}
		if !s.Open() {
			return found
		}
	}
	return found
}

var errEndless = errors.New("the session is endless")

// labHost finds the first host of a domain of the lab.
func labHost(lab *smtplab.Lab, domain string) (netip.Addr, string, error) {
	r, err := mx.New(mx.Options{Servers: []string{lab.DNSAddr()}, Allow: func(netip.Addr) bool { return true },
		Timeout: 5 * time.Second, TTLMin: time.Minute, TTLMax: time.Hour, CacheMax: 1000})
	if err != nil {
		return netip.Addr{}, "", err
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(context.Background(), matrixEnd)
	defer cancel()
	route, err := r.Lookup(ctx, domain)
	if err != nil {
		return netip.Addr{}, "", err
	}
	if len(route.Hosts) == 0 {
		return netip.Addr{}, "", errors.New("no host")
	}
	return route.Hosts[0].Addrs[0], route.Hosts[0].Name, nil
}

// countingDialer counts the bytes that come in.
type countingDialer struct {
	smtp.Dialer
	read atomic.Int64
}

func (d *countingDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countingConn{TCPConn: conn.(*net.TCPConn), read: &d.read}, nil
}

type countingConn struct {
	*net.TCPConn
	read *atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.read.Add(int64(n))
	return n, err
}
