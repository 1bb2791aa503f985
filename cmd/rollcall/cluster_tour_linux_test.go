package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
)

// tourWithin bounds the walk-through, which takes a minute, on a slow machine.
const tourWithin = 6 * time.Minute

// nobody is the user that the walk-through runs as: PostgreSQL refuses root.
const nobody = 65534

// TestFirstClusterTour runs the lines of docs/runbooks/first-cluster.md one after
// the other, on a network where all ports are free, and stops at the first that
// fails. What they start ends with them.
func TestFirstClusterTour(t *testing.T) {
	if !effort.Long() {
		t.Skip("runs with -long")
	}
	needTourTools(t)
	text, err := os.ReadFile(filepath.Join(houseRoot, "docs", "runbooks", "first-cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tour, begun := strings.Cut(string(text), "<!-- tour:")
	tour, _, ended := strings.Cut(tour, "<!-- tour end -->")
	script := "set -o pipefail\nfail() { echo \"line failed: $BASH_COMMAND\" >&2; exit 1; }\ntrap fail ERR\n"
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(tour, -1)
	for _, b := range blocks {
		script += b[1]
	}
	script += "\ntest $(wc -l < results.csv) = 2001\n"
	if !begun || !ended || len(blocks) < 6 {
		t.Fatal("docs/runbooks/first-cluster.md has no tour")
	}
	folder := tourFolder(t, script)
	ctx, cancel := context.WithTimeout(t.Context(), tourWithin)
	defer cancel()
	asNobody := fmt.Sprintf("ip link set lo up && "+
		"exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups bash tour.sh", nobody)
	c := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", asNobody)
	c.Dir, c.WaitDelay = folder, time.Second
	c.Env = []string{"HOME=" + folder, "PATH=" + folder + ":" + os.Getenv("PATH")}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "every invariant holds") {
		t.Errorf("the walk-through: got %v and\n%s", err, out)
	}
}

// needTourTools skips the test where something is missing that the lines need.
func needTourTools(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: a network of its own needs root")
	}
	for _, name := range []string{"unshare", "setpriv", "ip", "bash", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("skipped: there is no %s", name)
		}
	}
	servers, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if _, missing := exec.LookPath("initdb"); missing != nil && (err != nil || len(servers) == 0) {
		t.Skip("skipped: there is no PostgreSQL")
	}
	out, err := exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "true").CombinedOutput()
	if err != nil {
		t.Skipf("skipped: namespaces may not be made: %v: %s", err, out)
	}
}

// tourFolder makes a folder of the user nobody with the script and the binary.
func tourFolder(t *testing.T, script string) string {
	t.Helper()
	name, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for path, content := range map[string][]byte{"rollcall": program, "tour.sh": []byte(script)} {
		if err := os.WriteFile(filepath.Join(folder, path), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(folder, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return folder
}
