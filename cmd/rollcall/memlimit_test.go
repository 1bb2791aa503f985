package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// tree makes a file system with these files.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	mountTwo = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
	mountOne = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
)

func TestTheLeastLimitOfAllCgroupsAroundCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		from  string
	}{
		"version 2": {map[string]string{"proc/self/cgroup": "0::/system.slice/rollcall.service",
			"proc/self/mountinfo": mountTwo,
			"sys/fs/cgroup/system.slice/rollcall.service/memory.max": "1000000"},
			1000000, "/sys/fs/cgroup/system.slice/rollcall.service/memory.max"},
		"memory.high is less": {map[string]string{"proc/self/cgroup": "0::/a", "proc/self/mountinfo": mountTwo,
			"sys/fs/cgroup/a/memory.max": "1000000", "sys/fs/cgroup/a/memory.high": "800000"},
			800000, "/sys/fs/cgroup/a/memory.high"},
		"one around it is less": {map[string]string{"proc/self/cgroup": "0::/a/b/c", "proc/self/mountinfo": mountTwo,
			"sys/fs/cgroup/a/memory.max": "500000", "sys/fs/cgroup/a/b/memory.max": "max",
			"sys/fs/cgroup/a/b/c/memory.max": "700000"},
			500000, "/sys/fs/cgroup/a/memory.max"},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/a", "proc/self/mountinfo": mountTwo,
			"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/memory.high": "max"}, 0, ""},
		"a container that sees its own group only": {map[string]string{"proc/self/cgroup": "0::/",
			"proc/self/mountinfo": mountTwo, "sys/fs/cgroup/memory.max": "600000"},
			600000, "/sys/fs/cgroup/memory.max"},
		"a mount of a group": {map[string]string{"proc/self/cgroup": "0::/docker/x/y",
			"proc/self/mountinfo": strings.Replace(mountTwo, " / ", " /docker/x ", 1), "sys/fs/cgroup/memory.max": "900000",
			"sys/fs/cgroup/y/memory.max": "400000"}, 400000, "/sys/fs/cgroup/y/memory.max"},
		"a group out of sight": {map[string]string{"proc/self/cgroup": "0::/../else", "proc/self/mountinfo": mountTwo,
			"sys/fs/cgroup/memory.max": "900000"}, 900000, "/sys/fs/cgroup/memory.max"},
		"version 1": {map[string]string{"proc/self/cgroup": "9:cpu:/\n4:memory:/a/b\n0::/", "proc/self/mountinfo": mountOne,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "300000"},
			300000, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		"both": {map[string]string{"proc/self/cgroup": "4:memory:/a\n0::/a", "proc/self/mountinfo": mountTwo + "\n" +
			mountOne,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "300000", "sys/fs/cgroup/a/memory.max": "200000"},
			200000, "/sys/fs/cgroup/a/memory.max"},
		"no cgroups": {map[string]string{"proc/self/status": ""}, 0, ""},
		"nonsense":   {map[string]string{"proc/self/cgroup": "\n::\n0", "proc/self/mountinfo": "- \n1 2 - cgroup2\n"}, 0, ""},
	} {
		if got, from := cgroupMemory(tree(t, c.files)); got != c.want || from != c.from {
			t.Errorf("%s: %d by %q, want %d by %q", name, got, from, c.want, c.from)
		}
	}
}

// TestAMemoryLimitThatIsSetStays is not parallel: the limit is the whole process's.
func TestAMemoryLimitThatIsSetStays(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	var out bytes.Buffer
	limitMemory(environment{"GOMEMLIMIT=3GiB"}, slog.New(slog.NewTextHandler(&out, nil)))
	if debug.SetMemoryLimit(-1) != before || !strings.Contains(out.String(), "gomemlimit=3GiB") {
		t.Errorf("the limit is another one, or nobody said so: %s", &out)
	}
}
