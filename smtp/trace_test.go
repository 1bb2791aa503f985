package smtp

import (
	"fmt"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// heard is a Tracer that keeps what it is told.
type heard struct {
	on    bool
	lines []string
}

func (h *heard) On() bool            { return h.on }
func (h *heard) Said(command string) { h.lines = append(h.lines, "> "+command) }
func (h *heard) Heard(reply Reply, of Address) {
	h.lines = append(h.lines, fmt.Sprintf("< %d %s %s", reply.Code, reply.Text(), of.Local))
}

func TestATracerHearsWhatASessionSaysWithoutLocalParts(t *testing.T) {
	h := &heard{on: true}
	dial, at := script(openedPipelining + `
		< MAIL FROM:<back@probe.example>
		< RCPT TO:<a@example.com>
		< RCPT TO:<"odd@local"@example.com>
		> 250 ok
		> 250 ok
		> 550 no such user
		< QUIT => 221 bye
		! close`).listen(t)
	s := effort.Must(Open(WithTracer(t.Context(), h), dial, "mx.example", at, testOptions()))(t)
	asked := append(addresses("a"), Address{Local: `"odd@local"`, Domain: "example.com"})
	effort.Must(s.Probe(t.Context(), asked, Ask{Pipelining: true}))(t)
	h.on = false // nobody looks any more
	s.Quit()
	want := []string{"< 220 mx.example ESMTP be patient ", "> EHLO probe.example",
		"< 250 mx.example pipelining SMTPUTF8 ", "> MAIL FROM:<back@probe.example>", "> RCPT TO:<…@example.com>",
		"> RCPT TO:<…@example.com>", "< 250 ok ", "< 250 ok a", `< 550 no such user "odd@local"`}
	effort.Equal(t, h.lines, want, "the tracer heard", strings.Join(h.lines, "\n"), strings.Join(want, "\n"))
}
