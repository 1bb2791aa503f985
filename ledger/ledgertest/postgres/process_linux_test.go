package postgres

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"rollcall/config/effort"
)

// orphanVariable turns TestOrphan into the process that dies. If it is "paused", the server is paused before.
const orphanVariable = "ROLLCALL_POSTGRES_ORPHAN"

// TestOrphan is no test: it is the program that TestServerDiesWithItsProcess kills.
func TestOrphan(t *testing.T) {
	way := os.Getenv(orphanVariable)
	if way == "" {
		return
	}
	s := effort.Must(Start(t.Context(), Options{}))(t)
	if way == "paused" {
		effort.OK(t, s.Pause())
	}
	fmt.Printf("folder %s\n", s.folder)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

func TestServerDiesWithItsProcess(t *testing.T) {
	effort.Children(t)
	t.Parallel()
	if _, err := find(t.Context(), debianFolders); err != nil {
		t.Skipf("skipped: %v", err)
	}
	for _, way := range []string{"running", "paused"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$", "-test.v")
			cmd.Env = append(os.Environ(), orphanVariable+"="+way)
			effort.Must(cmd.StdinPipe())(t)
			out := effort.Must(cmd.StdoutPipe())(t)
			effort.OK(t, cmd.Start())
			folder := ""
			for lines := bufio.NewScanner(out); folder == "" && lines.Scan(); {
				folder, _ = strings.CutPrefix(lines.Text(), "folder ")
				if !filepath.IsAbs(folder) {
					folder = ""
				}
			}
			if folder == "" {
				t.Fatalf("the process told no folder: %v", cmd.Wait())
			}
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			pids := family(t, folder)
			effort.OK(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed
			awaitEnd(t, pids)
		})
	}
}

// family is the server of a folder and its children.
func family(t *testing.T, folder string) []int {
	t.Helper()
	text := effort.Must(os.ReadFile(filepath.Join(folder, "data", "postmaster.pid")))(t)
	first, _, _ := strings.Cut(string(text), "\n")
	parent := effort.Must(strconv.Atoi(first))(t)
	pids, err := children(parent)
	effort.FatalIf(t, err != nil || len(pids) == 0, "children of %d: %v, %v", parent, pids, err)
	return append(pids, parent)
}

// awaitEnd waits until no process is there any more, or waits for its parent only.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	effort.Within(t, "the processes to end", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && bytes.TrimSpace(stat[bytes.LastIndexByte(stat, ')')+1:])[0] != 'Z'
		})
	})
}
