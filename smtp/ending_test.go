package smtp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

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

// noteError waits for a command.
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

// isGone waits until the far side is known to hold the session no longer.
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
				effort.ErrorIf(t, s.Gone() != nil, "an open session is gone")
				s.Quit()
				if late {
					select {
					case <-s.Gone():
						t.Error("the far side has said nothing, and the session is gone")
					default:
					}
					close(now)
				}
				isGone(t, s.Gone())
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
			case <-s.Gone():
				t.Error("the session is gone")
			default:
			}
			close(release) // which ends it by FIN
			isGone(t, s.Gone())

			o.Limits.Unended = 50 * time.Millisecond
			s, release = play(o)
			began := time.Now()
			c.end(t, s)
			isGone(t, s.Gone())
			took := time.Since(began)
			effort.ErrorIf(t, took < o.Limits.Unended, "gone after %v, want %v or more", took, o.Limits.Unended)
			close(release)
		})
	}
}

// TestAFailureKnowsWhenItsSessionIsGone: also one that never became a session for us.
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
	case <-failed.Gone():
		t.Error("nobody has said that the session is over")
	default:
	}
	conn := effort.Must(listener.Accept())(t)
	effort.OK(t, conn.Close())
	isGone(t, failed.Gone())
	effort.OK(t, listener.Close())
	_, err = Open(t.Context(), dial, "mx.example", at, o)
	effort.FatalIf(t, !errors.As(err, &failed) || failed.Stage != StageConnect, "nobody listens: %v", err)
	select {
	case <-failed.Gone():
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
	case <-s.Gone():
		t.Error("the far side talks, and is gone")
	default:
	}
}
