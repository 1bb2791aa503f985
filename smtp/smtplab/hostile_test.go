package smtplab

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// hostileOnes are the personalities that are hostile in clear.
func hostileOnes() []Personality {
	return slices.DeleteFunc(Personalities(), func(p Personality) bool { return p.Family != hostileFamily })
}

func TestEachHostileBehaviourIsThereTwice(t *testing.T) {
	effort.Is(t, len(hostileOnes()), 64)
	for _, clear := range hostileOnes() {
		twin := builtin()[clear.Name+"tls"]
		effort.ErrorIf(t, clear.shownAt() == smtp.StageNone || clear.NeedsTLS, "%s: %+v in clear", clear.Name, clear)
		effort.ErrorIf(t, twin == nil || twin.Family != "hostiletls" || !twin.NeedsTLS || twin.TLS == TLSNone,
			"%s: %+v after STARTTLS", clear.Name, twin)
		effort.ErrorIf(t, clear.Fixed != smtp.Unknown && hostileShows[clear.Name] == nil,
			"%s: no test shows it", clear.Name)
	}
}

// hostileSecond stands for a second in these tests.
const hostileSecond = 2 * time.Millisecond

func TestEachHostileBehaviourShows(t *testing.T) {
	t.Parallel()
	quick := startLab(t, func(o *Options) { o.SecondLasts = hostileSecond })
	patient := startLab(t, nil)
	for _, r := range hostileOnes() {
		if hostileShows[r.Name] == nil {
			continue
		}
		l := quick
		if r.Name == "h421idle" {
			l = patient // it must not find us idle before we are
		}
		for _, name := range []string{r.Name, r.Name + "tls"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := &hostileWire{t: t, domain: "a-" + name + ".test", stage: r.shownAt(),
					about: r.shownAt() == smtp.StageTLS, twin: name != r.Name}
				h.dial(l)
				hostileShows[r.Name](h)
			})
		}
	}
}

// hostileWire is a raw client of one hostile receiver.
type hostileWire struct {
	*wire
	t      *testing.T
	domain string
	stage  smtp.Stage
	about  bool // the behaviour is about STARTTLS itself
	twin   bool
	raw    net.Conn
	lab    *Lab // where it dialled

	dialled time.Time // the receiver's own time begins later
}

func (h *hostileWire) dial(l *Lab) {
	h.t.Helper()
	h.dialled, h.lab = time.Now(), l
	conn, err := net.DialTimeout("tcp", hostAddr(h.t, l, "mx1."+h.domain), testTimeout)
	if err != nil {
		if errors.Is(err, syscall.ECONNRESET) {
			h.t.SkipNow() // reset before the dialling has ended
		}
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	h.raw = conn
	h.wire = &wire{t: h.t, conn: conn, r: newReader(conn)}
}

// upTo speaks until the command of a stage is sent; its reply is not read.
func (h *hostileWire) upTo(stage smtp.Stage) {
	h.t.Helper()
	if h.twin && !h.about {
		h.play("< 220\n> EHLO x\n< 250\n> MAIL FROM:<>\n< 530\n> STARTTLS\n< 220\nTLS")
	}
	if stage == smtp.StageGreeting {
		return
	}
	if !h.twin || h.about {
		h.play("< 220")
	}
	h.send("EHLO x\r\n")
	if stage == smtp.StageHello {
		return
	}
	h.play("< 250")
	if stage == smtp.StageTLS {
		if h.twin {
			h.play("> MAIL FROM:<>\n< 530")
		}
		h.send("STARTTLS\r\n")
		return
	}
	h.send("MAIL FROM:<>\r\n")
	if stage == smtp.StageMail {
		return
	}
	h.play("< 250")
	h.send("RCPT TO:<ghost@" + h.domain + ">\r\n")
	if stage == smtp.StageRset {
		h.play("< 550")
		h.send("RSET\r\n")
	}
}

// rest half-closes the session and reads what is left of it.
func (h *hostileWire) rest() []byte {
	h.t.Helper()
	effort.OK(h.t, h.conn.(interface{ CloseWrite() error }).CloseWrite())
	rest, err := io.ReadAll(h.r)
	effort.OK(h.t, err, "read the rest: after", rest)
	return rest
}

// Checks of what a behaviour shows, each from the stage of its row on.

func showsNothing(h *hostileWire) {
	h.upTo(h.stage)
	if h.stage == smtp.StageTLS {
		h.play("< 220")
	}
	rest := h.rest()
	effort.ErrorIf(h.t, len(rest) > 0, "read %q, want nothing", rest)
}

// plays goes on with a dialogue, as wire.play reads it; ^ is the domain.
func plays(script string) func(*hostileWire) {
	return func(h *hostileWire) {
		h.upTo(h.stage)
		h.play(strings.ReplaceAll(script, "^", h.domain))
	}
}

// showsBytes wants these among the raw bytes of the answer, which end in them.
func showsBytes(want string) func(*hostileWire) {
	return func(h *hostileWire) {
		h.upTo(h.stage)
		var got []byte
		for !bytes.Contains(got, []byte(want)) {
			b, err := h.r.ReadByte()
			effort.OK(h.t, err, "after", len(got), "bytes: no", want)
			got = append(got, b)
		}
	}
}

// showsEndless wants 1 MiB that begins with a piece.
func showsEndless(before, piece string) func(*hostileWire) {
	return func(h *hostileWire) {
		h.upTo(h.stage)
		if before != "" {
			h.says("", before)
		}
		got := make([]byte, 1<<20)
		if n, err := io.ReadFull(h.r, got); err != nil || !bytes.HasPrefix(got, []byte(piece)) {
			h.t.Errorf("%v after %d bytes that begin with %.20q", err, n, got)
		}
	}
}

func showsLate(seconds int) func(*hostileWire) {
	return func(h *hostileWire) {
		h.upTo(smtp.StageHello)
		h.says("", "250")
		waited, least := time.Since(h.dialled), time.Duration(seconds)*hostileSecond
		effort.ErrorIf(h.t, waited < least, "after %v, want at least %v", waited, least)
	}
}

func showsStutter(h *hostileWire) {
	start := time.Now()
	h.upTo(smtp.StageHello)
	reply := h.says("", "250")
	waited, least := time.Since(start), time.Duration(len(reply))*hostileSecond
	effort.ErrorIf(h.t, waited < least, "%d bytes within %v, want at least %v", len(reply), waited, least)
}

func showsLF(h *hostileWire) {
	h.upTo(smtp.StageGreeting)
	if h.twin {
		h.send("EHLO x\r\n")
	}
	line, err := h.r.ReadString('\n')
	effort.ErrorIf(h.t, err != nil || strings.Contains(line, "\r"), "line %q, %v: want no CR", line, err)
}

// showsSplit reads a line that comes byte by byte. Inside of TLS each read gives one byte; in clear a reader that
// the machine holds up gets all at once, so that one of many sessions must show it.
func showsSplit(h *hostileWire) {
	h.upTo(smtp.StageGreeting)
	if h.twin {
		h.send("EHLO x\r\n")
		reads, n := h.readsOfLine()
		effort.ErrorIf(h.t, reads < n/2, "%d bytes in %d reads, want many", n, reads)
		return
	}
	const sessionsMax = 200
	for range sessionsMax {
		if reads, _ := h.readsOfLine(); reads > 1 {
			return
		}
		h.dial(h.lab)
	}
	h.t.Errorf("each of %d greetings came in one read", sessionsMax)
}

// readsOfLine reads a line. It returns how many reads that took, and how many bytes the line has.
func (h *hostileWire) readsOfLine() (reads, n int) {
	h.t.Helper()
	got := []byte{}
	for buffer := make([]byte, 512); !bytes.HasSuffix(got, []byte("\n")); reads++ {
		n := effort.Must(h.conn.Read(buffer))(h.t)
		got = append(got, buffer[:n]...)
	}
	return reads, len(got)
}

func showsRandom(h *hostileWire) {
	h.upTo(h.stage)
	if h.stage == smtp.StageTLS {
		h.play("< 220")
	}
	if got := h.rest(); string(got) != nonsense() {
		h.t.Errorf("read %d bytes, want the %d without meaning", len(got), len(nonsense()))
	}
}

// showsCertificate makes the handshake and looks at the certificate.
func showsCertificate(ok func(h *hostileWire, state tls.ConnectionState) bool) func(*hostileWire) {
	return func(h *hostileWire) {
		h.upTo(smtp.StageTLS)
		h.play("< 220\nTLS")
		effort.ErrorIf(h.t, !ok(h, h.conn.(*tls.Conn).ConnectionState()), "the certificate is not what its name says")
	}
}

func showsRenegotiation(h *hostileWire) {
	h.upTo(smtp.StageTLS)
	h.play("< 220\nTLS")
	if _, err := h.r.ReadByte(); err == nil || !strings.Contains(err.Error(), "renegotiation") {
		h.t.Errorf("got %v, want that renegotiation is refused", err)
	}
}

func showsAgain(h *hostileWire) {
	h.upTo(smtp.StageTLS)
	h.play("< 220\nTLS\n> EHLO x")
	reply := h.reply()
	effort.ErrorIf(h.t, !strings.HasSuffix(reply, "STARTTLS"), "EHLO inside TLS: %q", reply)
	h.says("STARTTLS", "454")
}

func showsExtensions(h *hostileWire) {
	h.upTo(smtp.StageHello)
	lines := strings.Count(h.reply(), "\n")
	effort.ErrorIf(h.t, lines < 10_000, "%d lines", lines)
}

func showsLong(h *hostileWire) {
	h.upTo(smtp.StageRcpt)
	n := len(h.reply())
	effort.ErrorIf(h.t, n < 60<<10-200 || n > 60<<10, "%d bytes, want about 60 KiB", n)
}

// hostileShows has a raw client for each row whose outcome can be known, which sees the behaviour or fails. Where
// it cannot, the matrix of package smtp sees that a behaviour is missing: its client would learn the outcome.
var hostileShows = map[string]func(*hostileWire){
	"hlate59":   showsLate(59),
	"hlate61":   showsLate(61),
	"hstutter":  showsStutter,
	"hlf":       showsLF,
	"hnul":      plays("< 550 5.1.1 User\x00unknown"),
	"heightbit": plays("< 550 5.1.1 User unknown \xff\xfe\x80"),
	"hsplit":    showsSplit,

	"hnospace": showsBytes("550User unknown\r\n"),

	"htwice": plays("< 550\n< 250\n> RCPT TO:<anna@^>\n< 250\n< 550"),
	"hearly": plays("< 250 2.1.0\n< 550 5.1.1"),

	"h421idle":       func(h *hostileWire) { h.upTo(smtp.StageRcpt); h.play("< 550\n< 421\n< EOF") },
	"h421behind":     plays("< 550\n< 421"),
	"h421rset":       plays("< 421\n< EOF"),
	"hresetrset":     plays("< RST"),
	"h421starttls":   plays("< 421\n< EOF"),
	"hresetstarttls": plays("< RST"),

	"hextensions":    showsExtensions,
	"hlongextension": showsBytes("X-" + strings.Repeat("LONG", 1<<10)),
	"hsize":          showsBytes("SIZE 9999999999999999999999999999999999999999"),

	"hstarttls454": plays("< 454"),
	"htlsgarbage":  showsRandom,
	"hinjected":    plays("< 220\n< 250"),
	"hexpired": showsCertificate(func(_ *hostileWire, s tls.ConnectionState) bool {
		return s.PeerCertificates[0].NotAfter.Before(time.Now())
	}),
	"hselfsigned": showsCertificate(func(h *hostileWire, s tls.ConnectionState) bool {
		c := s.PeerCertificates[0]
		return c.VerifyHostname("mx1."+h.domain) == nil && bytes.Equal(c.RawIssuer, c.RawSubject)
	}),
	"hwrongname": showsCertificate(func(h *hostileWire, s tls.ConnectionState) bool {
		return s.PeerCertificates[0].VerifyHostname("mx1."+h.domain) != nil
	}),
	"hflood":       showsEndless("220", "\x16\x03\x03\x00\x00\x16\x03\x03"),
	"hrenegotiate": showsRenegotiation,
	"hstall":       showsNothing,
	"hagain":       showsAgain,

	"hall250":    plays("< 250"),
	"hall252":    plays("< 252"),
	"hsecond250": plays("< 451\n> RCPT TO:<ghost@^>\n< 550"),
	"hformula":   plays("< 550 5.1.1 =HYPERLINK("),
	"hcrlf":      showsBytes("User\r=1+1\r\t\r\n550 5.1.1 unknown\r@SUM(A1)\r\n"),
	"hlong":      showsLong,
}
