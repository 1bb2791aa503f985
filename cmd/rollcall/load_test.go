package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"rollcall/smtp/smtplab"
)

// loadWait bounds one verification under load.
const loadWait = 10 * time.Minute

// wideOpen is an allowance that stands in nobody's way. An address whose session
// fails is asked again soon: with the default waits one such would take 5 min.
const wideOpen = `
[retry]
greylist_waits = ["1s"]
[throttle.default]
connections = 4
connection_rate = "1000000/s"
rcpt_rate = "1000000/s"
rcpts_per_connection = 1000000
rcpts_per_transaction = 100
refused_per_session = 1000000
refused_per_hour = 1000000
`

// processorOf is the processor time of a process so far (Linux).
func processorOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields, ticks := strings.Fields(rest), 0
	for _, field := range fields[11:13] { // user and system, in ticks of 10 ms
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// cleanFile makes a file of n addresses spread over domains that answer honestly
// and at once; one in five does not exist.
func cleanFile(n, domains int) []byte {
	var b bytes.Buffer
	b.WriteString("email\n")
	for i := range n {
		name := "anna"
		if (i+i/domains)%5 == 4 { // not all of them at the same domains
			name = "ghost"
		}
		fmt.Fprintf(&b, "%s.m%s@d%d-clean.test\n", name, letters(i/domains), i%domains)
	}
	return b.Bytes()
}

// quickLab is a lab without latency that never refuses a session: a node opens
// node.SessionsMax at most.
func quickLab() smtplab.Options {
	o := smtplab.Defaults()
	o.SessionsMax = 10_000
	return o
}

// resetMemoryMost makes the present memory the peak, and gives it (Linux).
func resetMemoryMost(pid int) (int64, error) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return 0, err
	}
	return memoryMost(pid)
}
