package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"rollcall/smtp/smtplab"
)

// errDialogue: a receiver did not answer as it must.
var errDialogue = errors.New("yardstick: unexpected reply")

// bareGroup is how many commands the pipelined loop sends at once: larger
// groups gain little more.
const bareGroup = 50

// bareTimeout bounds a whole loop.
const bareTimeout = 5 * time.Minute

// measureBare runs a bare loop against clean receivers of l: conns kept connections,
// each to a host of its own, share rcpts commands in one transaction each. Without
// pipelined each reply is awaited, with it 50 commands go out at once. It returns
// RCPTs per second, connecting left out.
func measureBare(l *smtplab.Lab, conns, rcpts int, pipelined bool) (perSecond float64, err error) {
	if conns < 1 || rcpts < conns {
		return 0, fmt.Errorf("yardstick of %d connections and %d RCPTs: %w", conns, rcpts, smtplab.ErrOptions)
	}
	loops := make([]*bareLoop, conns)
	for i := range loops {
		loop, err := dialBare(l, "yard"+strconv.Itoa(i)+"-clean.test")
		if err != nil {
			return 0, err
		}
		defer func() { _ = loop.conn.Close() }()
		loops[i] = loop
	}
	group := 1
	if pipelined {
		group = bareGroup
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

// dialBare opens a transaction with the host of a clean domain, which the lab's DNS knows.
func dialBare(l *smtplab.Lab, domain string) (*bareLoop, error) {
	host := "mx1." + domain
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.DNSAddr())
	}}
	ctx, cancel := context.WithTimeout(context.Background(), bareTimeout)
	defer cancel()
	addresses, err := resolver.LookupHost(ctx, host+".")
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", host, err)
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(addresses[0], strconv.Itoa(l.SMTPPort())), bareTimeout)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", host, err)
	}
	b := &bareLoop{conn: conn, r: bufio.NewReader(conn), domain: domain}
	_ = conn.SetDeadline(time.Now().Add(bareTimeout))
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
		return fmt.Errorf("%w: %q", errDialogue, bytes.TrimSpace(line))
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

// letters spells a number from 0 in letters, so that a clean receiver of the lab
// knows the mailbox that is named after it.
func letters(n int) string {
	var out []byte
	for ; n > 0 || len(out) == 0; n /= 26 {
		out = append(out, byte('a'+n%26))
	}
	return string(out)
}
