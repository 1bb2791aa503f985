package smtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollcall/config/effort"
)

// pipe plays s on one end of a pipe; dial gives the other end. done gets the script's error when the client
// has ended the session.
func (s script) pipe() (dial Dialer, done chan error) {
	client, server := net.Pipe()
	done = make(chan error, 1)
	go func() {
		defer server.Close()
		done <- s.play(server)
	}()
	return dialFunc(func(context.Context) (net.Conn, error) { return client, nil }), done
}

const openPipe = "> 220 hi\n< EHLO probe.example\n> 250-mx.example\n> 250 PIPELINING\n"

// A silent receiver costs exactly the time limit of its stage.
func TestSilenceIsBoundedAtEachStage(t *testing.T) {
	const mail = openPipe + "< MAIL FROM:<back@probe.example>\n"
	for _, test := range []struct {
		name      string
		script    script
		pipelined bool
		stage     Stage
		want      time.Duration
	}{
		{"greeting", "! eof", false, StageGreeting, 60 * time.Second},
		{"second line of the greeting", "> 220-hi\n! eof", false, StageGreeting, 60 * time.Second},
		{"ehlo", "> 220 hi\n< *\n! eof", false, StageHello, 30 * time.Second},
		{"starttls", "> 220 hi\n< *\n> 250-mx\n> 250 STARTTLS\n< *\n! eof", false, StageTLS, 30 * time.Second},
		{"handshake", "> 220 hi\n< *\n> 250-mx\n> 250 STARTTLS\n< *\n> 220 go\n! hang", false, StageTLS, 20 * time.Second},
		{"mail", mail + "! eof", false, StageMail, 5 * time.Minute},
		{"mail, and it does not even read", openPipe + "! deaf", false, StageMail, 5 * time.Minute},
		{"rcpt", mail + "> 250 ok\n< *\n! eof", false, StageRcpt, 5 * time.Minute},
		{"group", mail + "< *\n< *\n! eof", true, StageMail, 5 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, done := test.script.pipe()
				begin := time.Now()
				s, err := Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions())
				if err == nil {
					_, err = s.Probe(t.Context(), addresses("a", "b"), Ask{Pipelining: test.pipelined})
				}
				f := failure(t, err)
				effort.Is(t, f.Stage, test.stage, "failure")
				effort.ErrIs(t, f, os.ErrDeadlineExceeded, "failure")
				effort.Is(t, time.Since(begin), test.want, "took")
				effort.ErrIs(t, <-done, nil)
			})
		})
	}
}

// A byte a second never lets a read time out, so the limit is for the whole reply.
func TestOneByteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer server.Close()
			for _, c := range []byte("220 " + strings.Repeat("be patient ", 100)) {
				<-time.After(time.Second)
				if _, err := server.Write([]byte{c}); err != nil {
					return
				}
			}
		}()
		dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
		begin := time.Now()
		_, err := Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions())
		f := failure(t, err)
		effort.ErrorIf(t, f.Stage != StageGreeting || !errors.Is(f, os.ErrDeadlineExceeded), "failure %v", f)
		effort.Is(t, time.Since(begin), time.Minute, "took")
		<-done
	})
}

// slowReceiver answers at once, but RCPT after the next of delays, and in the end always after the last.
func slowReceiver(conn net.Conn, done chan<- struct{}, delays ...time.Duration) {
	defer close(done)
	defer conn.Close()
	_, _ = conn.Write([]byte("220 hi\r\n"))
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if strings.HasPrefix(string(buffer[:n]), "RCPT") {
			<-time.After(delays[0])
			delays = delays[min(1, len(delays)-1):]
		}
		if _, err := conn.Write([]byte("250 ok\r\n")); err != nil {
			return
		}
	}
}

// Courier refuses after 8 s, and each time after twice as long, 128 s at most. That is waited for.
func TestDelaysAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go slowReceiver(server, done, 8*time.Second, 16*time.Second, 32*time.Second, 64*time.Second, 128*time.Second)
		dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
		s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		list := benchAddresses(100)
		answers := effort.Must(s.Probe(t.Context(), list, Ask{PerTransaction: 1}))(t)
		effort.Is(t, len(answers), len(list), "answers")
		s.Close()
		<-done
	})
}

// Each reply is in time, but the whole session is not: its limit is 6 min, and 130 s for each address after the first.
func TestSessionTimeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go slowReceiver(server, done, 200*time.Second)
		dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
		begin := time.Now()
		s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		answers, err := s.Probe(t.Context(), addresses("a", "b", "c", "d", "e"), Ask{})
		f := failure(t, err)
		effort.ErrorIf(t, f.Stage != StageRcpt || !errors.Is(f, os.ErrDeadlineExceeded), "failure %v", f)
		if took := time.Since(begin); took != 750*time.Second || len(answers) != 3 { // four were asked
			t.Errorf("took %v with %d answers, want 12m30s and 3", took, len(answers))
		}
		<-done
	})
}

// Time between probes is ours and not counted; addresses that a stopped probe did not ask give no time.
func TestIdleTimeIsNotTheReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go slowReceiver(server, done, 170*time.Second)
		dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
		s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		ask := Ask{Stop: func(Address, Reply) bool { return true }}
		// Before the nth address 360 + 130(n-1) - 170(n-1) seconds are left, which is
		// 200 before the fifth and 160 before the sixth.
		asked := 0
		for range 20 {
			<-time.After(time.Hour)
			answers, err := s.Probe(t.Context(), addresses("a", "b", "c", "d"), ask)
			asked += len(answers)
			if err != nil {
				effort.ErrIs(t, failure(t, err), os.ErrDeadlineExceeded, "failure")
				break
			}
		}
		effort.Is(t, asked, 5)
		s.Close()
		<-done
	})
}

func TestQuitWaitsTwoSecondsAtMost(t *testing.T) {
	for name, text := range map[string]script{
		"no reply":            openPipe + "< QUIT\n! eof",
		"reply, but no close": openPipe + "< QUIT\n> 221 bye\n! eof",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, done := text.pipe()
				s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
				begin := time.Now()
				s.Quit()
				took := time.Since(begin)
				effort.ErrorIf(t, took != 2*time.Second || s.Open(), "took %v, open %v", took, s.Open())
				effort.ErrIs(t, <-done, nil)
			})
		})
	}
}

func TestCancelEndsTheWaitAndTheSession(t *testing.T) {
	stopped := errors.New("we stop")
	for name, text := range map[string]script{
		"greeting": "! eof",
		"hello":    "> 220 hi\n< *\n! eof",
		"tls":      "> 220 hi\n< *\n> 250-mx\n> 250 STARTTLS\n< *\n> 220 go\n! hang",
		"mail":     openPipe + "< *\n! eof",
		"rcpt":     openPipe + "< *\n> 250 ok\n< *\n! eof",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				dial, done := text.pipe()
				time.AfterFunc(7*time.Second, func() { cancel(stopped) })
				begin := time.Now()
				s, err := Open(ctx, dial, "mx.example", anyAddrPort, testOptions())
				if err == nil {
					_, err = s.Probe(ctx, addresses("a"), Ask{})
					effort.ErrorIf(t, s.Open(), "session is open")
				}
				effort.ErrIs(t, failure(t, err), stopped, "the cause of the failure")
				effort.Is(t, time.Since(begin), 7*time.Second, "took")
				<-done
			})
		})
	}
}

// A context that ends between two commands is not forgotten because the next command sets another deadline.
func TestCancelBetweenTwoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		dial, done := script(openPipe + "< *\n> 250 ok\n< *\n> 250 ok\n! eof").pipe()
		s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		answers, err := s.Probe(ctx, addresses("a", "b"), Ask{Stop: func(Address, Reply) bool {
			cancel()
			synctest.Wait() // the interrupt is over
			return false
		}})
		if f := failure(t, err); !errors.Is(f, context.Canceled) || codes(answers) != "250" || s.Open() {
			t.Errorf("answers %s, failure %v, open %v", codes(answers), f, s.Open())
		}
		effort.ErrIs(t, <-done, nil)
	})
}

// The interrupt of a context that ends with the last reply must not hit a later probe.
func TestCancelWithTheLastReply(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := mustOpen(t, opened+`
		< *
		> 250 ok
		< *
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(ctx, addresses("a"), Ask{Stop: func(Address, Reply) bool { cancel(); return true }})
	effort.ErrorIf(t, err != nil || codes(answers) != "250" || s.Open(),
		"%s, %v, open %v; want the answer and the session over", codes(answers), err, s.Open())
	_, err = s.Probe(t.Context(), addresses("b"), Ask{})
	effort.ErrIs(t, failure(t, err), ErrClosed, "failure")
}

func TestConnectFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A dialer without a time limit of its own is stopped by the session's.
		dial := dialFunc(func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		begin := time.Now()
		_, err := Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions())
		f := failure(t, err)
		effort.ErrorIf(t, f.Stage != StageConnect || !errors.Is(f, context.DeadlineExceeded), "failure %v", f)
		effort.Is(t, time.Since(begin), 6*time.Minute, "took")
	})
}

func TestPoll(t *testing.T) {
	for _, test := range []struct {
		name string
		then script // what the receiver does while we are idle
		code int
		err  error // nil and code 0: nothing
	}{
		{"nothing", "! eof", 0, nil},
		{"421", ">> \"421 4.3.2 shutting down\\r\\n\"\n! close", 421, nil},
		{"421 with the last reply", "> 421 4.3.2 shutting down\n! close", 421, nil},
		{"another reply", "> 250 ok\n! eof", 0, ErrOutOfStep},
		{"half a line", ">> \"42\"\n! eof", 0, ErrOutOfStep},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, done := (openPipe + test.then).pipe()
				s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
				synctest.Wait()
				err := s.Poll()
				if test.code == 0 && test.err == nil {
					effort.ErrorIf(t, err != nil || !s.Open(), "%v, open %v", err, s.Open())
				} else if f := failure(t, err); f.Stage != StageNone || f.Reply.Code != test.code || s.Open() ||
					(test.err != nil && !errors.Is(f, test.err)) {
					t.Errorf("failure %v, want %d %v", f, test.code, test.err)
				}
				s.Close()
				<-done
				effort.ErrIs(t, s.Poll(), ErrClosed, "poll after close")
			})
		})
	}
}

// far is the far side of one session on a loopback socket, which goes on as the test says.
type far struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
	gone chan struct{} // closed when it has ended
}

// endWait only bounds what must happen.
const endWait = time.Minute

// openTo opens a session to a far side that serves it until then: it speaks the greeting, and 250 to EHLO. What
// is done then decides how the session ends.
func openTo(t *testing.T, o SessionOptions, then func(f *far)) *Session {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	effort.OK(t, err)
	defer listener.Close()
	f := &far{t: t, gone: make(chan struct{})}
	go func() {
		defer close(f.gone)
		if f.conn, err = listener.Accept(); err != nil {
			return
		}
		defer f.conn.Close()
		f.in = bufio.NewScanner(f.conn)
		f.say("220 mx.example ESMTP")
		f.hear("EHLO")
		f.say("250 mx.example")
		then(f)
	}()
	at := netip.MustParseAddrPort(listener.Addr().String())
	s := effort.Must(Open(t.Context(), loopbackDialer(t, int(at.Port())), "mx.example", at, o))(t)
	t.Cleanup(func() { <-f.gone })
	return s
}

func (f *far) say(line string) {
	effort.Denied(io.WriteString(f.conn, line+"\r\n"))(f.t, nil, "say", line)
}

// hear waits for a command.
func (f *far) hear(want string) {
	if !f.in.Scan() || !strings.HasPrefix(f.in.Text(), want) {
		f.t.Errorf("heard %q, %v, want %s", f.in.Text(), f.in.Err(), want)
	}
}

// end waits for the end of what we send.
func (f *far) end() {
	for f.in.Scan() {
		f.t.Errorf("heard %s", f.in.Text())
	}
}

// reset ends the connection with RST.
func (f *far) reset() {
	_ = f.conn.(*net.TCPConn).SetLinger(0)
	_ = f.conn.Close()
}

// lasting are options under which a silent session keeps its place for longer than any test.
func lasting() SessionOptions {
	o := testOptions()
	o.Limits.Quit, o.Limits.Unended, o.Limits.Rcpt = 10*time.Millisecond, time.Hour, 10*time.Millisecond
	return o
}

// isGone waits for the signal that the far side no longer holds the session.
func isGone(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(endWait):
		t.Fatal("the end of the session is not known")
	}
}

// TestASessionIsGoneWhenTheFarSideSaysSo: at once or, when its word is late, with that.
func TestASessionIsGoneWhenTheFarSideSaysSo(t *testing.T) {
	for name, say := range map[string]func(f *far){
		"221, and stays": func(f *far) { f.say("221 bye"); f.end() },
		"FIN":            func(*far) {},
		"RST":            func(f *far) { f.reset() },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late: %v", name, late), func(t *testing.T) {
				o, now := lasting(), make(chan struct{})
				if !late {
					o.Limits.Quit = 100 * time.Millisecond // on a slow machine it is late all the same
					close(now)
				}
				s := openTo(t, o, func(f *far) {
					f.hear("QUIT")
					<-now
					say(f)
				})
				effort.ErrorIf(t, s.Ending() != nil, "an open session is gone")
				s.Quit()
				if late {
					select {
					case <-s.Ending().Gone:
						t.Error("the far side has said nothing, and the session is gone")
					default:
					}
					close(now)
				}
				isGone(t, s.Ending().Gone)
			})
		}
	}
}

// TestASilentSessionKeepsItsPlace: QUIT, a close in the middle of a command, and a greeting that never comes
// prove nothing; Limits.Unended does.
func TestASilentSessionKeepsItsPlace(t *testing.T) {
	address := []Address{{Local: "anna", Domain: "mx.example"}}
	for name, c := range map[string]struct {
		far func(f *far)
		end func(t *testing.T, s *Session)
	}{
		"after QUIT":   {func(f *far) { f.hear("QUIT") }, func(_ *testing.T, s *Session) { s.Quit() }},
		"without QUIT": {func(*far) {}, func(_ *testing.T, s *Session) { s.Close() }},
		"after RCPT": {func(f *far) {
			f.hear("MAIL")
			f.say("250 fine")
			f.hear("RCPT")
		}, func(t *testing.T, s *Session) {
			_, err := s.Probe(t.Context(), address, Ask{})
			effort.ErrorIf(t, err == nil || s.Open(), "the far side said nothing: %v", err)
		}},
		"after 421": {func(f *far) {
			f.hear("MAIL")
			f.say("421 later")
		}, func(t *testing.T, s *Session) {
			_, err := s.Probe(t.Context(), address, Ask{})
			effort.ErrorIf(t, err == nil || s.Open(), "the far side said 421: %v", err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			play := func(o SessionOptions) (s *Session, release chan struct{}) {
				release = make(chan struct{})
				return openTo(t, o, func(f *far) { c.far(f); f.end(); <-release }), release
			}
			o := lasting()
			s, release := play(o)
			c.end(t, s)
			select {
			case <-s.Ending().Gone:
				t.Error("the session is gone")
			default:
			}
			close(release) // which ends it by FIN
			isGone(t, s.Ending().Gone)

			o.Limits.Unended = 50 * time.Millisecond
			s, release = play(o)
			began := time.Now()
			c.end(t, s)
			isGone(t, s.Ending().Gone)
			took := time.Since(began)
			effort.ErrorIf(t, took < o.Limits.Unended, "gone after %v, want %v or more", took, o.Limits.Unended)
			close(release)
		})
	}
}

// TestAFailureKnowsWhenItsSessionIsGone: this includes a connection on which nobody greeted us.
func TestAFailureKnowsWhenItsSessionIsGone(t *testing.T) {
	listener := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	at := netip.MustParseAddrPort(listener.Addr().String())
	o := lasting()
	o.Limits.Greeting = 10 * time.Millisecond
	dial := loopbackDialer(t, int(at.Port()))
	_, err := Open(t.Context(), dial, "mx.example", at, o)
	var failed *Failure
	effort.FatalIf(t, !errors.As(err, &failed) || failed.Stage != StageGreeting, "nobody greets: %v", err)
	select {
	case <-failed.Ending().Gone:
		t.Error("nobody has said that the session is over")
	default:
	}
	conn := effort.Must(listener.Accept())(t)
	effort.OK(t, conn.Close())
	isGone(t, failed.Ending().Gone)
	effort.OK(t, listener.Close())
	_, err = Open(t.Context(), dial, "mx.example", at, o)
	effort.FatalIf(t, !errors.As(err, &failed) || failed.Stage != StageConnect, "nobody listens: %v", err)
	select {
	case <-failed.Ending().Gone:
	default:
		t.Error("there was no connection, and it is not gone")
	}
}

// TestWhatAFarSideGoesOnSayingIsNotReadForEver: it keeps its place then, without a connection.
func TestWhatAFarSideGoesOnSayingIsNotReadForEver(t *testing.T) {
	o := lasting()
	s := openTo(t, o, func(f *far) {
		line := []byte(strings.Repeat("x", 1023) + "\n")
		for {
			if _, err := f.conn.Write(line); err != nil {
				return // a RST of ours
			}
		}
	})
	s.Close()
	select {
	case <-s.Ending().Gone:
		t.Error("the far side talks, and is gone")
	default:
	}
}
