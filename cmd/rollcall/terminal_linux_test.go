package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rollcall/cmd/rollcall/term"
)

// terminal is one at which somebody answers questions.
type terminal struct {
	name string // of the side that programs have

	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// newTerminal makes a terminal of 80 columns. When a program shows a key of answers, the
// answer is typed, once.
func newTerminal(t *testing.T, answers map[string]string) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: term.Columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &terminal{name: fmt.Sprint("/dev/pts/", number)}
	// As long as the test holds it open, reading goes on between programs.
	program, err := os.OpenFile(m.name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	go m.answer(person, answers)
	return m
}

// answer reads what programs show and types the answers.
func (m *terminal) answer(person *os.File, answers map[string]string) {
	buffer, typed := make([]byte, 4096), map[string]bool{}
	for {
		n, err := person.Read(buffer)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.text.Write(buffer[:n])
		text := m.text.String()
		m.mu.Unlock()
		for question, answer := range answers {
			if !typed[question] && strings.Contains(text, question) {
				typed[question] = true
				_, _ = person.WriteString(answer)
			}
		}
	}
}

// shown gives what a person has seen until now.
func (m *terminal) shown() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}
