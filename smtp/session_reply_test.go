package smtp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"rollcall/config/effort"
)

func readReply(from io.Reader) (Reply, error) {
	limits := DefaultLimits()
	r := newReplyReader(from, &limits)
	return r.read()
}

func TestReadReply(t *testing.T) {
	long := strings.Repeat("x", 4096-len("250 \r\n"))
	for _, test := range []struct {
		name string
		in   string
		want Reply
		err  error
	}{
		{"one line", "250 ok\r\n", Reply{Code: 250, Lines: []string{"ok"}}, nil},
		{"no text", "250\r\n", Reply{Code: 250, Lines: []string{""}}, nil},
		{"empty text", "250 \r\n", Reply{Code: 250, Lines: []string{""}}, nil},
		{"several lines", "250-a\r\n250-\r\n250 b\r\n", Reply{Code: 250, Lines: []string{"a", "", "b"}}, nil},
		{"last line is a bare code", "250-a\r\n250\r\n", Reply{Code: 250, Lines: []string{"a", ""}}, nil},
		{"LF alone", "250-a\n250 b\n", Reply{Code: 250, Lines: []string{"a", "b"}}, nil},
		{"CR inside", "250 a\rb\r\n", Reply{Code: 250, Lines: []string{"a\rb"}}, nil},
		{"two CR", "250 a\r\r\n", Reply{Code: 250, Lines: []string{"a\r"}}, nil},
		{"NUL and 8 bit", "550 \x00\xff\xc3\xa4\r\n", Reply{Code: 550, Lines: []string{"\x00\xff\xc3\xa4"}}, nil},
		{"3xx", "354 go on\r\n", Reply{Code: 354, Lines: []string{"go on"}}, nil},
		{"formula", "550 =HYPERLINK(1)\r\n", Reply{Code: 550, Lines: []string{"=HYPERLINK(1)"}}, nil},

		{"enhanced", "550 5.1.1 no\r\n", Reply{550, EnhancedCode{5, 1, 1}, []string{"no"}}, nil},
		{"enhanced on each line", "550-5.1.1 a\r\n550 5.1.1 b\r\n",
			Reply{550, EnhancedCode{5, 1, 1}, []string{"a", "b"}}, nil},
		{"enhanced on the second line", "550-a\r\n550 5.7.1 b\r\n",
			Reply{550, EnhancedCode{5, 7, 1}, []string{"a", "b"}}, nil},
		{"the first one counts", "550-5.1.1 a\r\n550 5.7.1 b\r\n",
			Reply{550, EnhancedCode{5, 1, 1}, []string{"a", "b"}}, nil},
		{"enhanced alone", "250 2.1.5\r\n", Reply{250, EnhancedCode{2, 1, 5}, []string{""}}, nil},
		{"enhanced with colon", "550 5.1.1: no\r\n", Reply{550, EnhancedCode{5, 1, 1}, []string{": no"}}, nil},
		{"three digits", "550 5.7.606 no\r\n", Reply{550, EnhancedCode{5, 7, 606}, []string{"no"}}, nil},
		{"four digits", "550 5.7.6061 no\r\n", Reply{Code: 550, Lines: []string{"5.7.6061 no"}}, nil},
		{"an address", "550 5.1.1.1 no\r\n", Reply{Code: 550, Lines: []string{"5.1.1.1 no"}}, nil},
		{"class 3", "550 3.1.1 no\r\n", Reply{Code: 550, Lines: []string{"3.1.1 no"}}, nil},
		{"not at the start", "550 no 5.1.1\r\n", Reply{Code: 550, Lines: []string{"no 5.1.1"}}, nil},
		{"two parts", "550 5.11 no\r\n", Reply{Code: 550, Lines: []string{"5.11 no"}}, nil},
		{"no detail", "550 5.1. no\r\n", Reply{Code: 550, Lines: []string{"5.1. no"}}, nil},

		{"longest line", "250 " + long + "\r\n", Reply{Code: 250, Lines: []string{long}}, nil},
		{"line too long", "250 " + long + "xx\r\n", Reply{Code: 250, Lines: []string{long + "x"}}, nil},
		{"line without an end", strings.Repeat("x", 1<<20), Reply{}, ErrTooLarge},
		{"most lines", strings.Repeat("250-\r\n", 127) + "250 \r\n", Reply{Code: 250, Lines: make([]string, 128)}, nil},
		{"too many lines", strings.Repeat("250-\r\n", 128) + "250 \r\n", Reply{}, ErrTooLarge},
		{"too many bytes", strings.Repeat("250-"+long[:4000]+"\r\n", 17) + "250 \r\n", Reply{}, ErrTooLarge},

		{"two digits", "25 ok\r\n", Reply{}, ErrProtocol},
		{"four digits of code", "2500 ok\r\n", Reply{}, ErrProtocol},
		{"code 199", "199 ok\r\n", Reply{}, ErrProtocol},
		{"code 600", "600 ok\r\n", Reply{}, ErrProtocol},
		{"code 000", "000 ok\r\n", Reply{}, ErrProtocol},
		{"space first", " 250 ok\r\n", Reply{}, ErrProtocol},
		{"empty line", "\r\n", Reply{}, ErrProtocol},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n", Reply{}, ErrProtocol},
		{"SSH", "SSH-2.0-OpenSSH_9.9\r\n", Reply{}, ErrProtocol},
		{"our own words", "RCPT TO:<a@example.com>\r\n", Reply{}, ErrProtocol},

		{"nothing", "", Reply{}, io.EOF},
		{"CR alone", "250 ok\r", Reply{}, io.EOF},
		{"more lines promised", "250-ok\r\n", Reply{}, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readReply(strings.NewReader(test.in))
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%.80q: %+v, %v; want %+v, %v", test.in, got, err, test.want, test.err)
			}
		})
	}
}

// Strange replies, put together from what servers were seen to send, have the code that mail servers find,
// at the greeting and behind it. In a group of commands none of them is a reply.
func TestReadStrangeReply(t *testing.T) {
	forms := []struct {
		text     string // # is a code, @ another one
		greeting bool   // only before the greeting
		plain    bool   // fits a group, too
	}{
		{"# text\r\n", false, true}, {"#\ttext\r\n", false, true}, {"#text\r\n", false, true}, {"#: text\n", false, true},
		{"#-a\r\n#-\tb\r\n#\r\n", false, true}, {"# " + strings.Repeat("x", 9000) + "\r\n", false, true},
		{"\r\n# text\r\n", false, false}, {"\n\r\n#-a\n# text\r\n", false, false},
		{"#-a\r\ntext without a code\r\n# b\r\n", false, false}, {"#-a\r\n\r\n\tb\r\n#\tc\r\n", false, false},
		{"#-a\r\n@ b\r\n", false, false}, {"#-a\r\n@-b\r\ntext\r\n@\r\n", false, false},
		{"#-a\r\n@-b\r\n# c\r\n", false, false},
		{"Welcome to mx\r\n# text\r\n", true, false}, {"\r\nWelcome\r\n\r\n#-a\r\n@ b\r\n", true, false},
	}
	codes := []string{"220", "250", "421", "450", "521", "550"}
	for _, form := range forms {
		for _, one := range codes {
			for _, two := range codes {
				text, want := strings.NewReplacer("#", one, "@", two).Replace(form.text), one
				if at := strings.LastIndexAny(form.text, "#@"); form.text[at] == '@' && (two >= "4" || one < "4") ||
					form.text[at] == '#' && strings.Contains(form.text, "@") && one < "4" && two >= "4" {
					want = two
				}
				for _, greeted := range []bool{false, true} {
					for _, grouped := range []bool{false, true} {
						limits := DefaultLimits()
						r := newReplyReader(strings.NewReader(text), &limits)
						r.greeted, r.grouped = greeted, grouped
						got, err := r.read()
						fits := (greeted || !grouped) && (form.plain || !grouped || one == two && !strings.Contains(form.text, "text")) &&
							(!form.greeting || !greeted)
						if grouped && !form.plain && one == two || grouped && !greeted {
							continue // lines of one code are one reply, and a greeting stands in no group
						}
						if fits != (err == nil) || fits && strconv.Itoa(got.Code) != want {
							t.Errorf("%.60q, greeted %v, in a group %v: %d, %v; want %s", text, greeted, grouped, got.Code, err, want)
						}
					}
				}
			}
		}
	}
}

func TestReadReplySplitAnywhere(t *testing.T) {
	const text = "550-5.1.1 no such\r\n550 5.1.1 user here\r\n"
	want := effort.Must(readReply(strings.NewReader(text)))(t)
	for i := range text {
		got, err := readReply(io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:])))
		effort.ErrorIf(t, err != nil || !reflect.DeepEqual(got, want), "split at %d: %+v, %v", i, got, err)
	}
	got, err := readReply(iotest.OneByteReader(strings.NewReader(text)))
	effort.ErrorIf(t, err != nil || !reflect.DeepEqual(got, want), "byte by byte: %+v, %v", got, err)
}

// Whatever is read keeps to the limits, and the same bytes read in other pieces give the same reply.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{
		"250 ok\r\n", "550-5.1.1 a\r\n550 5.1.1 b\r\n", "250-\n250\n", "421", "5.1.1", "\r\n",
		"250 2.1.5\r\n", "999 \n", "550 5.7.606 \x00\xff\r\nmore",
	} {
		f.Add([]byte(seed))
	}
	limits := Limits{LineBytes: 64, ReplyLines: 4, ReplyBytes: 128, SessionBytes: 256}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := newReplyReader(bytes.NewReader(in), &limits)
		pieces := newReplyReader(iotest.OneByteReader(bytes.NewReader(in)), &limits)
		for {
			got, err := whole.read()
			again, err2 := pieces.read()
			effort.FatalIf(t, !reflect.DeepEqual(got, again) || (err == nil) != (err2 == nil),
				"%q in pieces: %+v, %v; want %+v, %v", in, again, err2, got, err)
			if err != nil {
				return
			}
			effort.FatalIf(t, got.Code < 200 || got.Code > 599 || len(got.Lines) == 0 ||
				len(got.Lines) > limits.ReplyLines, "%q: %+v", in, got)
			effort.FatalIf(t, strings.Contains(got.Text(), "\n") || len(got.Text()) > limits.ReplyBytes ||
				whole.left < 0, "%q: text %q, %d bytes left", in, got.Text(), whole.left)
		}
	})
}

// repeater is a receiver at which no nobody exists. With owes it says a refusal again to the next address of the
// transaction that exists.
func repeater(conn net.Conn, owes bool) {
	in, owed := bufio.NewReaderSize(conn, 2*groupBytes), 0
	_, _ = io.WriteString(conn, "220 mx\r\n")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		reply := "250 ok\r\n"
		switch {
		case strings.HasPrefix(line, "EHLO"):
			reply = "250-mx\r\n250 PIPELINING\r\n"
		case strings.HasPrefix(line, "RSET"), strings.HasPrefix(line, "MAIL"):
			owed = 0
		case strings.HasPrefix(line, "RCPT TO:<nobody"):
			owed++
			reply = "550 not here\r\n"
		case owes && owed > 0:
			owed--
			reply = "550 no such user\r\n"
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// TestARefusalIsForOneAddress: whatever the list, its groups and its transactions, each address gets its own answer
// where a refusal may be said again. A receiver that doesn't do so is asked for no more than one group twice.
func TestARefusalIsForOneAddress(t *testing.T) {
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 0))
		owes, missing, list := draw.IntN(2) == 0, draw.Float64(), make([]Address, 1+draw.IntN(80))
		for i := range list {
			list[i] = Address{Local: fmt.Sprintf("u%d", i), Domain: "example.com"}
			if draw.Float64() < missing {
				list[i].Local = fmt.Sprintf("nobody%d", i)
			}
		}
		client, server := net.Pipe()
		go repeater(server, owes)
		dial := dialFunc(func(context.Context) (net.Conn, error) { return client, nil })
		s := effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		ask := Ask{Pipelining: draw.IntN(2) == 0, Depth: 1 + draw.IntN(10), PerTransaction: draw.IntN(20), Doubt: true}
		for left := list; len(left) > 0; { // a transaction holds several of these
			answers, err := s.Probe(t.Context(), left[:1+draw.IntN(len(left))], ask)
			effort.OK(t, err, "seed", seed)
			for i, a := range answers {
				effort.FatalIf(t, a.Reply.Permanent() != strings.HasPrefix(left[i].Local, "nobody"),
					"seed %d: %s got %d, with %+v", seed, left[i].Local, a.Reply.Code, ask)
			}
			left = left[len(answers):]
		}
		if asked := s.Counts().Rcpts; !owes && asked > len(list)+ask.Depth {
			t.Errorf("seed %d: %d RCPTs for %d addresses, with %+v", seed, asked, len(list), ask)
		}
		s.Close()
		_ = server.Close()
	}
}

func benchAddresses(n int) []Address {
	list := make([]Address, n)
	for i := range list {
		list[i] = Address{Local: fmt.Sprintf("someone.%06d", i), Domain: "example.com"}
	}
	return list
}

// stubConn is a receiver without a goroutine: it answers when it is read.
type stubConn struct {
	net.Conn // a pipe, for its deadlines
	owed     int
	greeted  bool
}

func (c *stubConn) Write(p []byte) (int, error) {
	c.owed = bytes.Count(p, []byte("\n"))
	return len(p), nil
}

func (c *stubConn) Read(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		return copy(p, "220 hi\r\n"), nil
	}
	if c.owed == 0 {
		return 0, os.ErrDeadlineExceeded // nothing more to say
	}
	n := copy(p, strings.Repeat("250-mx\r\n250 PIPELINING\r\n", c.owed))
	c.owed = 0
	return n, nil
}

// Ten thousand sessions may be open at once, so one may hold 16 KiB at most.
func TestSessionIsSmall(t *testing.T) {
	const n, most = 500, 16 << 10
	list := benchAddresses(50)
	open := make([]*Session, n)
	conns := make([]*stubConn, n)
	for i := range conns {
		client, server := net.Pipe()
		defer server.Close()
		conns[i] = &stubConn{Conn: client}
	}
	before := heap()
	for i, conn := range conns {
		dial := dialFunc(func(context.Context) (net.Conn, error) { return conn, nil })
		open[i] = effort.Must(Open(t.Context(), dial, "mx.example", anyAddrPort, testOptions()))(t)
		effort.Must(open[i].Probe(t.Context(), list, Ask{Pipelining: true}))(t)
	}
	if each := (heap() - before) / n; each > most {
		t.Errorf("%d bytes each, want at most %d", each, most)
	} else {
		t.Logf("%d bytes each", each)
	}
	runtime.KeepAlive(open)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const openedTLS = `
> 220 mx.example ESMTP
< EHLO probe.example
> 250-mx.example
> 250-PIPELINING
> 250 STARTTLS
< STARTTLS => 220 go
! tls
< EHLO probe.example
> 250-mx.example
> 250 STARTTLS
`

// A second reply shows that the receiver is out of step: an earlier reply may have come before its command. So none of
// the replies counts as an answer.
func TestTwoRepliesInOnePacket(t *testing.T) {
	s := mustOpen(t, opened+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com>
		> 550 5.1.1 no
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a", "b"), Ask{})
	if f := failure(t, err); f.Stage != StageRcpt || !errors.Is(f, ErrOutOfStep) || !errors.Is(f, ErrProtocol) {
		t.Errorf("failure %v, want ErrOutOfStep", f)
	}
	effort.ErrorIf(t, codes(answers) != "" || s.Open(),
		"answers %s, open %v; want none, false", codes(answers), s.Open())
}

func TestExtraReplyToAGroup(t *testing.T) {
	s := mustOpen(t, openedPipelining+`
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		> 250 ok
		> 250 ok
		> 250 ok
		! eof`, testOptions())
	answers, err := s.Probe(t.Context(), addresses("a"), Ask{Pipelining: true})
	effort.MustBe(t, codes(answers), "", err)
	f := failure(t, err)
	effort.ErrorIf(t, !errors.Is(f, ErrOutOfStep) || s.Open(), "failure %v, open %v", f, s.Open())
}

func TestHostileBeginning(t *testing.T) {
	for _, test := range []struct {
		name   string
		script script
		stage  Stage
		want   error
	}{
		{"greeting without end", `>? "` + script(strings.Repeat("220-x\\r\\n", 1000)) + `"`, StageGreeting, ErrTooLarge},
		{"greeting line without end", `>? "` + script(strings.Repeat("2", 1<<17)) + `"`, StageGreeting, ErrTooLarge},
		{"ssh", "> SSH-2.0-OpenSSH_9.9", StageGreeting, ErrProtocol},
		{"http", "> HTTP/1.1 400 Bad Request", StageGreeting, ErrProtocol},
		{"greeting 250", "> 250 hi", StageGreeting, ErrProtocol},
		{"greeting 354", "> 354 hi", StageGreeting, ErrProtocol},
		{"no greeting", "! close", StageGreeting, io.EOF},
		{"two greetings", "> 220 hi\n> 220 hi\n! eof", StageHello, ErrOutOfStep},
		{"ehlo 10,000 extensions", "> 220 hi\n< *\n>? \"" + script(strings.Repeat("250-X\\r\\n", 10000)) + `"`,
			StageHello, ErrTooLarge},
		{"ehlo 220", "> 220 hi\n< *\n> 220 hi\n! eof", StageHello, ErrProtocol},
		{"ehlo, then gone", "> 220 hi\n< *\n! close", StageHello, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, at := test.script.listen(t)
			_, err := Open(t.Context(), dial, "mx.example", at, testOptions())
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != test.stage || f.Reply.Code != 0 || !errors.Is(f, test.want),
				"failure %v, want %v at %v", f, test.want, test.stage)
		})
	}
}

// 421 with a text of many lines, at each stage, is the reply in the failure.
func TestClosingAtEachStage(t *testing.T) {
	text := script("")
	for _, step := range []struct {
		stage Stage
		lines script
	}{
		{StageGreeting, ""},
		{StageHello, "> 220 hi\n< *\n"},
		{StageMail, "> 250 hi\n< *\n"},
		{StageRset, "> 250 ok\n< *\n> 250 ok\n< *\n"},
	} {
		text += step.lines
		t.Run(step.stage.String(), func(t *testing.T) {
			dial, at := (text + "> 421-4.7.0 too\n> 421 4.7.0 much\n! eof").listen(t)
			s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
			for i := 0; err == nil && i < 2; i++ {
				_, err = s.Probe(t.Context(), addresses("a"), Ask{PerTransaction: 1})
			}
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != step.stage || f.Reply.Code != 421 || f.Reply.Text() != "too much",
				"failure %v, want 421 at %v", f, step.stage)
		})
	}
}

// The bytes that a receiver may send in a session are bounded; each address raises the bound.
func TestBytesOfASessionAreBounded(t *testing.T) {
	o := testOptions()
	o.Limits.SessionBytes, o.Limits.SessionMoreBytes = 2000, 100
	text := script(opened + "< *\n> 250 ok\n")
	for range 5 {
		text += script("< *\n> 250 " + strings.Repeat("x", 494) + "\n") // 500 bytes
	}
	s := mustOpen(t, text+"! eof", o)
	answers, err := s.Probe(t.Context(), addresses("a", "b", "c", "d", "e"), Ask{}) // 2,400 bytes in all
	if f := failure(t, err); f.Stage != StageRcpt || !errors.Is(f, ErrTooLarge) || s.Open() {
		t.Errorf("failure %v, open %v; want ErrTooLarge", f, s.Open())
	}
	effort.Is(t, codes(answers), "250 250 250 250", "answers")
}

func TestStartTLS(t *testing.T) {
	const offered = `
		> 220 hi
		< EHLO probe.example
		> 250-mx.example
		> 250-PIPELINING
		> 250 STARTTLS
		`
	required, off := testOptions(), testOptions()
	required.TLS, off.TLS = TLSRequired, TLSOff
	for _, test := range []struct {
		name    string
		script  script
		options SessionOptions
		tls     bool // the session that comes of it
		code    int  // of the failure, 0 with err
		err     error
	}{
		{"expired, self-signed, other name", openedTLS + "! eof", testOptions(), true, 0, nil},
		{"required", openedTLS + "! eof", required, true, 0, nil},
		{"off", offered + "! eof", off, false, 0, nil},
		{"refused: on in clear", offered + "< STARTTLS\n> 454 4.7.0 not now\n! eof", testOptions(), false, 0, nil},
		{"refused and required", offered + "< STARTTLS\n> 454 4.7.0 not now\n< QUIT\n> 221 bye\n! close",
			required, false, 454, nil},
		{"not offered and required", opened + "< QUIT\n> 221 bye\n! close", required, false, 0, ErrNoSTARTTLS},
		{"injected in clear", offered + "< STARTTLS\n> 220 go\n> 250 ok\n! eof", testOptions(), false, 0, ErrOutOfStep},
		{"closing", offered + "< STARTTLS\n> 421 bye\n! eof", testOptions(), false, 421, nil},
		{"what is no answer", offered + "< STARTTLS\n> 250 ok\n! eof", testOptions(), false, 0, ErrProtocol},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial, at := test.script.listen(t)
			s, err := Open(t.Context(), dial, "mx.example", at, test.options)
			if test.code == 0 && test.err == nil {
				effort.FatalIf(t, err != nil || s.TLS() != test.tls || s.offers.pipelining == test.tls,
					"%v; tls %v, want %v and what was offered in clear forgotten", err, s.TLS(), test.tls)
				s.Close()
				return
			}
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != StageTLS || f.Reply.Code != test.code ||
				(test.err != nil && !errors.Is(f, test.err)), "failure %v, want %d %v", f, test.code, test.err)
		})
	}
}

func TestProbeAndPollUnderTLS(t *testing.T) {
	s := mustOpen(t, openedTLS+`
		< MAIL FROM:<back@probe.example> => 250 ok
		< RCPT TO:<a@example.com> => 250 ok
		< RCPT TO:<b@example.com> => 550 no
		< QUIT => 221 bye
		! close`, testOptions())
	for _, test := range []struct{ local, want string }{{"a", "250"}, {"b", "550"}} {
		answers := effort.Must(s.Probe(t.Context(), addresses(test.local), Ask{}))(t)
		effort.Is(t, codes(answers), test.want, test.local)
		if err := s.Poll(); err != nil { // a read that times out must not spoil the TLS state
			t.Errorf("poll: %v", err)
		}
	}
	s.Quit()
}
