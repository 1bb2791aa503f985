package main

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// memoryPart is how much of what the system allows this process Go may use: the rest is for what Go
// does not count, such as the embedded ledger's files in memory and the stacks of the system.
const memoryPart = 0.9

// limitMemory tells Go what the process may use, so that it collects garbage sooner instead of being
// killed. GOMEMLIMIT, when somebody has set it, stays.
func limitMemory(e environment, log *slog.Logger) {
	if set := e.value("GOMEMLIMIT"); set != "" {
		log.Info("memory limit of GOMEMLIMIT stays", "gomemlimit", set)
		return
	}
	allowed, from := cgroupMemory("/")
	if allowed == 0 {
		return
	}
	limit := int64(memoryPart * float64(allowed))
	debug.SetMemoryLimit(limit)
	log.Info("memory limit set from the cgroup", "limit", limit, "cgroup", allowed, "file", from)
}

// cgroupMount is where a hierarchy of cgroups is to be seen.
type cgroupMount struct {
	root, at string   // the group that is to be seen at a folder
	files    []string // that bound the memory of a group
}

// cgroupMemory gives the least memory that a cgroup of this process allows, its own or one around it,
// in bytes, and the file that says so; 0: none does. Root is that of the file system.
func cgroupMemory(root string) (least int64, from string) {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(own)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		unified := controllers == ""
		if !unified && !slices.Contains(strings.Split(controllers, ","), "memory") {
			continue
		}
		m, there := findCgroups(root, unified)
		if !there {
			continue
		}
		if n, file := m.least(root, path); n > 0 && (least == 0 || n < least) {
			least, from = n, file
		}
	}
	return least, from
}

// findCgroups finds the mount of the hierarchy that bounds memory, of version 2 or 1.
func findCgroups(root string, unified bool) (cgroupMount, bool) {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return cgroupMount{}, false
	}
	for line := range strings.Lines(string(mounts)) { // proc_pid_mountinfo(5)
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := cgroupMount{root: fields[3], at: fields[4]}
		switch {
		case unified && kind[0] == "cgroup2":
			m.files = []string{"memory.max", "memory.high"}
			return m, true
		case !unified && kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), "memory"):
			m.files = []string{"memory.limit_in_bytes"}
			return m, true
		}
	}
	return cgroupMount{}, false
}

// least gives the least limit from a group up to the mount.
func (m cgroupMount) least(root, path string) (least int64, from string) {
	inside, err := filepath.Rel(m.root, path)
	if err != nil || inside == ".." || strings.HasPrefix(inside, "../") {
		inside = "." // the group is not to be seen; the mount is that of a container
	}
	for ; ; inside = filepath.Dir(inside) {
		for _, name := range m.files {
			file := filepath.Join(m.at, inside, name)
			if n := readLimit(filepath.Join(root, file)); n > 0 && (least == 0 || n < least) {
				least, from = n, file
			}
		}
		if inside == "." {
			return least, from
		}
	}
}

// readLimit reads a limit in bytes; 0: there is none.
func readLimit(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
	if err != nil || n <= 0 || n >= math.MaxInt64>>1 {                  // version 1 writes "no limit" so
		return 0
	}
	return n
}
