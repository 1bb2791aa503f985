package smtp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/config/effort"
)

// TestHELOFollowsEveryRefusalOfEHLO draws refusals of EHLO and what follows: only what HELO gets counts, and
// when that is not known the caller is told to begin with HELO.
func TestHELOFollowsEveryRefusalOfEHLO(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 28))
	words := []string{"", " 5.5.4 Syntax", " 5.7.1 Access denied", " Command not implemented", "\t5.5.1 what"}
	for i := range 60 {
		code := 500 + r.IntN(60)
		text := fmt.Sprintf("%d%s", code, words[r.IntN(4)])
		if r.IntN(4) == 0 {
			text = fmt.Sprintf("%d-EHLO\n> %d no", code, code)
		}
		tail := []struct {
			name, script string
			code         int // of the failure; 0: the session is open
			noHELO       bool
		}{
			{"accepted", "< HELO probe.example\n> 250 old\n! eof", 0, false},
			{"our name is refused", "< HELO probe.example\n> 550 who are you\n< QUIT\n! close", 550, false},
			{"not now", "< HELO probe.example\n> 451 later\n< QUIT\n! close", 451, false},
			{"out of sequence", "< HELO probe.example\n> 503 order\n< QUIT\n! close", code, true},
			{"busy", "< HELO probe.example\n> 421 bye\n! close", code, true},
			{"closed", "< HELO probe.example\n! close", code, true},
			{"closed at once", "! close", code, true},
			{"reset", "< HELO probe.example\n! reset", code, true},
		}[i%8]
		script := script("> 220 hi\n< EHLO probe.example\n> " + text + "\n" + tail.script)
		dial, at := script.listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		switch {
		case tail.code == 0 && err != nil:
			t.Errorf("%q, HELO %s: %v", text, tail.name, err)
		case tail.code == 0:
			s.Close()
		default:
			f := failure(t, err)
			effort.ErrorIf(t, f.Stage != StageHello || f.Reply.Code != tail.code || f.NoHELO != tail.noHELO,
				"%q, HELO %s: %v, NoHELO %v", text, tail.name, f, f.NoHELO)
		}
	}
	o := testOptions()
	o.TLS = TLSOffHELO
	mustOpen(t, "> 220 hi\n< HELO probe.example\n> 250-old\n> 250 STARTTLS\n! eof", o)
}

// TestASessionThatDiesBehindTheHandshake may be opened again in clear, where TLS is opportunistic; what is
// said under TLS counts as it is.
func TestASessionThatDiesBehindTheHandshake(t *testing.T) {
	const encrypted = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n< STARTTLS\n> 220 go\n! tls\n"
	for _, end := range []struct {
		name, script string
		code         int
	}{
		{"closes", "! close", 0},
		{"closes at EHLO", "< EHLO probe.example\n! close", 0},
		{"resets at EHLO", "< EHLO probe.example\n! reset", 0},
		{"says nothing", "! hang", 0},
		{"says no reply", "< EHLO probe.example\n> !$%&\n! hang", 0},
		{"stops in the middle", "< EHLO probe.example\n>> \"250-mx\\r\\n250\"\n! close", 0},
		{"says 421", "< EHLO probe.example\n> 421 4.7.0 busy\n! close", 421},
		{"refuses HELO", "< EHLO probe.example\n> 550 no\n< HELO probe.example\n> 550 no\n< QUIT\n! close", 550},
	} {
		for _, mode := range []TLSMode{TLSOpportunistic, TLSRequired} {
			o := testOptions()
			o.TLS, o.Limits.Hello, o.Limits.Quit = mode, 300*time.Millisecond, 300*time.Millisecond
			dial, at := script(encrypted + end.script).listen(t)
			_, err := Open(t.Context(), dial, "mx.example", at, o)
			f := failure(t, err)
			want := StageHello
			if end.code == 0 && mode == TLSOpportunistic {
				want = StageTLS
			}
			effort.Is(t, f.Stage, want, end.name, "mode", mode, f)
			effort.Is(t, f.Reply.Code, end.code, end.name, "mode", mode, f)
		}
	}
}

// TestPublicHellos are the public samples P012, P014, P017 (EHLO refused), P044 and P045 (STARTTLS that fails):
// each has a session in the end, in clear.
func TestPublicHellos(t *testing.T) {
	const offered = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n< STARTTLS\n"
	for _, tc := range []struct {
		id     string
		script script
		again  bool // the first session fails at STARTTLS, and the next one is in clear
	}{
		{"P012", "> 220 hi\n< EHLO probe.example\n> 501 5.5.4 Syntax\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P014", "> 220 hi\n< EHLO probe.example\n> 504 Not implemented\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P017", "> 220 hi\n< EHLO probe.example\n> 500 what\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P017", "> 220 hi\n< EHLO probe.example\n> 502 what\n< HELO probe.example\n> 250 hi\n! eof", false},
		{"P044", offered + "> 454 not now\n! eof", false},
		{"P045", offered + "> 220 go\n! close", true},
		{"P045", offered + "> 220 go\n>? \"HTTP/1.1 400 Bad Request\\r\\n\"\n! close", true},
	} {
		dial, at := tc.script.listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		switch {
		case !tc.again && err != nil:
			t.Errorf("%s: %v", tc.id, err)
		case !tc.again:
			s.Close()
		default:
			if f := failure(t, err); f.Stage != StageTLS || f.Reply.Code != 0 {
				t.Errorf("%s: %v, want a failure of the handshake", tc.id, f)
			}
		}
	}
}

// TestAnOldTLS is the public sample P042: a receiver that knows nothing newer than TLS 1.0 is asked under it, since the
// choice is that or clear text, and in clear where the handshake fails.
func TestAnOldTLS(t *testing.T) {
	const offered = "> 220 hi\n< EHLO probe.example\n> 250-mx\n> 250 STARTTLS\n"
	asked := "< EHLO probe.example\n> 250 mx\n< MAIL FROM:<back@probe.example>\n> 250 ok\n" +
		"< RCPT TO:<a@b.example>\n> 550 5.1.1 no\n< QUIT\n> 221 bye\n! close"
	ask := func(s *Session) Reply {
		answers := effort.Must(s.Probe(t.Context(), []Address{{Local: "a", Domain: "b.example"}},
			Ask{Depth: 1, PerTransaction: 1, RefusedMax: 1}))(t)
		effort.MustBe(t, len(answers), 1, "answers")
		s.Quit()
		return answers[0].Reply
	}
	for _, version := range []string{"tls10", "tls11"} {
		dial, at := script(offered + "< STARTTLS\n> 220 go\n! " + version + "\n" + asked).listen(t)
		s, err := Open(t.Context(), dial, "mx.example", at, testOptions())
		effort.FatalIf(t, err != nil || !s.TLS() || ask(s).Code != 550, "under %s: %v", version, err)
	}

	dial, at := script(offered + "< STARTTLS\n> 220 go\n! close").listen(t)
	_, err := Open(t.Context(), dial, "mx.example", at, testOptions())
	effort.MustBe(t, failure(t, err).Stage, StageTLS, "a handshake that fails")
	o := testOptions()
	o.TLS = TLSOff
	dial, at = script("> 220 hi\n" + asked).listen(t)
	if s, err := Open(t.Context(), dial, "mx.example", at, o); err != nil || s.TLS() || ask(s).Code != 550 {
		t.Fatalf("in clear: %v", err)
	}
}
