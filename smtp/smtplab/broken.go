package smtplab

import (
	"bytes"
	"io"
	"net"
	"strings"
	"time"

	"rollcall/smtp"
)

// endlessMax bounds what an endless reply sends, so that a client without limits
// fails its test and not the machine.
const endlessMax = 64 << 20

// garbage is the answer of something that is no mail server.
const garbage = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"

// breaksAt reports whether the receiver breaks at this stage of this session, in
// place of its reply.
func (s *session) breaksAt(stage smtp.Stage) bool {
	return s.p.Break != BreakNone && s.p.Break < BreakEarly && s.p.BreakAt == stage &&
		(!s.p.BreakEveryOther || s.visit%2 == 1) && (!s.p.BackupAll || s.visit > 1 && !s.atBackup())
}

// atBackup reports whether the host is the second one.
func (s *session) atBackup() bool { return strings.HasPrefix(s.host.name, "mx2.") }

// breaksBehind says the same of what comes behind the reply.
func (s *session) breaksBehind(stage smtp.Stage) bool {
	return s.p.Break >= BreakEarly && s.p.BreakAt == stage
}

// breakBehind does what Personality.Break says, behind reply.
func (s *session) breakBehind(reply *phrase) error {
	switch s.p.Break {
	case BreakEarly:
		if err := s.flush(); err != nil {
			return err
		}
		s.out = append(s.out, s.p.BreakWords...)
		return s.flush()
	case BreakTwice:
		contrary := contraryNo
		if reply.code/100 != 2 {
			contrary = contraryYes
		}
		s.out = append(s.out, contrary...)
		return nil
	}
	s.out = append(s.out, s.p.BreakWords...)
	return s.finish()
}

// What BreakTwice says.
const (
	contraryYes = "250 2.1.5 Ok\r\n"
	contraryNo  = "550 5.1.1 User unknown\r\n"
)

// breakNow does what Personality.Break says.
func (s *session) breakNow() error {
	if err := s.flush(); err != nil {
		return err
	}
	switch s.p.Break {
	case BreakSilent:
		return s.stall()
	case BreakDrop:
		return s.finish()
	case BreakReset:
		s.reset()
	case BreakEndless:
		return s.endless([]byte(s.stageCode() + "-still more to say\r\n"))
	case BreakLine:
		return s.endless([]byte(s.stageCode() + "-and so on "))
	case BreakGarbage:
		s.out = append(s.out, garbage...)
		return s.finish()
	case BreakSay:
		s.out = append(s.out, s.p.BreakWords...)
		return s.finish()
	case BreakSayReset:
		s.out = append(s.out, s.p.BreakWords...)
		if err := s.flush(); err != nil {
			return err
		}
		s.reset()
	case BreakHalf:
		s.closeWrite()
		return s.stall()
	case BreakEcho:
		_, _ = io.CopyN(s.conn, s.r, endlessMax)
		s.leave()
	case BreakWindow:
		s.closeWindow()
	}
	return errEnd
}

// stageCode is the reply code that would come at Personality.BreakAt.
func (s *session) stageCode() string {
	if s.p.BreakAt == smtp.StageGreeting || s.p.BreakAt == smtp.StageTLS {
		return "220"
	}
	return "250"
}

// reset makes the end of the session a reset of the connection.
func (s *session) reset() {
	s.leave()
	if tcp, ok := s.under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// closeWindow reads nothing until the client goes away or idleMax is over. The
// buffer of the system is made small, so that its window closes after a few KiB.
func (s *session) closeWindow() {
	if tcp, ok := s.under.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(1)
	}
	for end := time.Now().Add(idleMax); time.Now().Before(end) && !clientLeft(s.under); {
		if !s.lab.wait(windowPause) {
			break
		}
	}
	s.leave()
}

// windowPause is how often closeWindow looks whether the client is still there;
// guess.
const windowPause = 100 * time.Millisecond

// stall says nothing and reads on until the client goes away or idleMax is over.
func (s *session) stall() error {
	_ = s.conn.SetReadDeadline(time.Now().Add(idleMax))
	_, _ = io.Copy(io.Discard, s.r)
	s.leave()
	return errEnd
}

// endless repeats a piece of a reply.
func (s *session) endless(piece []byte) error {
	block := bytes.Repeat(piece, 4096/len(piece))
	for sent := 0; sent < endlessMax; sent += len(block) {
		if _, err := s.conn.Write(block); err != nil {
			break
		}
	}
	s.leave()
	return errEnd
}
