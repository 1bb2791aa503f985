package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A node whose clock jumps is a program whose time.Now does, since a namespace
// has the machine's wall clock. The monotonic clock goes on, as a real one does
// when somebody sets the time of day.

// The clock jumps so long after the start of the process; clockCode has the same figures.
const (
	clockFirst = 20 * time.Second // 7 minutes ahead from here
	clockNext  = 50 * time.Second // 5 minutes behind from here
	clockRight = 80 * time.Second // right again
)

// clockCode goes into the time package of the standard library.
const clockCode = `
// steppedBy gives how many seconds a wrong clock is ahead, so long after the start.
func steppedBy(mono int64) int64 {
	switch {
	case mono < int64(20*Second):
		return 0
	case mono < int64(50*Second):
		return 7 * 60
	case mono < int64(80*Second):
		return -5 * 60
	}
	return 0
}
`

// clockBinary builds rollcall with a clock that jumps.
func clockBinary(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatalf("the source of the standard library: %v", err)
	}
	const begins, step = "func Now() Time {", "\tmono -= startNano\n"
	head, now, found := strings.Cut(string(text), begins)
	body, rest, stepped := strings.Cut(now, step)
	if !found || !stepped || strings.Contains(body, "\n}\n") {
		t.Fatalf("time.Now of %s is not as this test knows it", runtime.Version())
	}
	changed := filepath.Join(folder, "time.go")
	whole := head + begins + body + step + "\tsec += steppedBy(mono)\n" + rest + clockCode
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(folder, "overlay.json")
	for name, content := range map[string]string{changed: whole, list: string(overlay)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(folder, "rollcall")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", list, "-o", name, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build with a clock that jumps: %v\n%s", err, out)
	}
	return name
}

// wrongClock gives a node the clock, and lets it jump both ways under load.
func wrongClock(st *stage) {
	n := st.busiest()
	n.binary = st.clock
	st.stop(n)
	st.start(n)
	began := time.Now()
	st.awaitWell(n)
	for _, at := range []time.Duration{clockFirst, clockNext, clockRight} {
		st.pause(time.Until(began.Add(at + time.Second)))
		st.say("%v after the start %d addresses are settled", at, st.settled())
	}
	n.binary = ""
	st.stop(n)
	st.start(n)
	st.awaitWell(n)
}
