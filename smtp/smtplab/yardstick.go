package smtplab

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// yardstickGroup is how many commands the pipelined loop sends at once: larger
// groups gain little more.
const yardstickGroup = 50

// yardstickTimeout bounds a whole loop.
const yardstickTimeout = 5 * time.Minute

// Yardstick measures a bare loop against clean receivers of l: conns kept
// connections, each to a host of its own, share rcpts commands in one
// transaction each. Without pipelined each reply is awaited, with it 50 commands
// go out at once. It returns RCPTs per second, connecting left out. The error
// wraps a net.Error or ErrDialogue.
func Yardstick(l *Lab, conns, rcpts int, pipelined bool) (perSecond float64, err error) {
	if conns < 1 || rcpts < conns {
		return 0, fmt.Errorf("yardstick of %d connections and %d RCPTs: %w", conns, rcpts, ErrOptions)
	}
	loops := make([]*bareLoop, conns)
	for i := range loops {
		loop, err := dialBare(l, "yard"+strconv.Itoa(i)+"-clean."+topLevel)
		if err != nil {
			return 0, err
		}
		defer func() { _ = loop.conn.Close() }()
		loops[i] = loop
	}
	group := 1
	if pipelined {
		group = yardstickGroup
	}
	errs := make([]error, conns)
	var running sync.WaitGroup
	start := time.Now()
	for i, loop := range loops {
		running.Go(func() { errs[i] = loop.ask(rcpts/conns, group) })
	}
	running.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(rcpts/conns*conns) / took.Seconds(), nil
}

// bareLoop is one connection of the yardstick.
type bareLoop struct {
	conn   net.Conn
	r      *bufio.Reader
	domain string
	line   []byte
}

// dialBare opens a transaction with the host of a clean domain.
func dialBare(l *Lab, domain string) (*bareLoop, error) {
	host := "mx1." + domain
	l.mu.Lock()
	h, err := l.openHost(host, l.receiverOf(domain, l.personas["clean"]), false)
	l.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", host, err)
	}
	at := netip.AddrPortFrom(h.addr, uint16(l.port)).String()
	conn, err := net.DialTimeout("tcp", at, yardstickTimeout)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", host, err)
	}
	b := &bareLoop{conn: conn, r: bufio.NewReader(conn), domain: domain}
	_ = conn.SetDeadline(time.Now().Add(yardstickTimeout))
	for _, command := range []string{"", "HELO yardstick.test\r\n", "MAIL FROM:<yard@yardstick.test>\r\n"} {
		if _, err := conn.Write([]byte(command)); err != nil {
			return nil, fmt.Errorf("speak to %s: %w", host, err)
		}
		if err := b.await('2'); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// await reads one line and checks its first digit.
func (b *bareLoop) await(digit byte) error {
	line, err := b.r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if line[0] != digit {
		return fmt.Errorf("%w: %q", ErrDialogue, bytes.TrimSpace(line))
	}
	return nil
}

// ask sends rcpts commands for distinct addresses that exist, group at a time.
func (b *bareLoop) ask(rcpts, group int) error {
	for sent := 0; sent < rcpts; {
		b.line = b.line[:0]
		n := min(group, rcpts-sent)
		for range n {
			b.line = append(b.line, "RCPT TO:<ann."...)
			b.line = append(b.line, letters(sent)...)
			b.line = append(b.line, '@')
			b.line = append(b.line, b.domain...)
			b.line = append(b.line, ">\r\n"...)
			sent++
		}
		if _, err := b.conn.Write(b.line); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		for range n {
			if err := b.await('2'); err != nil {
				return err
			}
		}
	}
	return nil
}
