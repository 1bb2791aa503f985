package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// nobody is the user that the walk-through runs as: PostgreSQL refuses root.
const nobody = 65534

// TestFirstClusterTour runs the lines of docs/start/first-cluster.md one after
// the other, on a network where all ports are free, and stops at the first that
// fails. What they start ends with them.
func TestFirstClusterTour(t *testing.T) {
	if !effort.Long() {
		t.Skip("runs with -long")
	}
	needTourTools(t)
	folder := tourFolder(t)
	out := script{document: "start/first-cluster.md", folder: folder, environ: []string{"HOME=" + folder},
		inside: []string{"unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
			fmt.Sprintf("ip link set lo up && exec setpriv --reuid=%[1]d --regid=%[1]d --clear-groups \"$0\"", nobody)}}.run(t)
	results, err := os.ReadFile(filepath.Join(folder, "results.csv"))
	if lines := strings.Count(string(results), "\n"); err != nil || lines != 2001 {
		t.Errorf("got %d lines of results and %v, want 2001", lines, err)
	}
	if !strings.Contains(strings.Join(out, ""), "every invariant holds") {
		t.Errorf("the walk-through: got\n%s", strings.Join(out, "\n"))
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

// tourFolder makes a folder of the user nobody with the binary.
func tourFolder(t *testing.T) string {
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
	if err := os.WriteFile(filepath.Join(folder, "rollcall"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(folder, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return folder
}
