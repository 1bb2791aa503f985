package smtp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"rollcall/config/effort"
)

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
