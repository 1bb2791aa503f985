package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// attributes run a program as another user and end it with this one. SIGQUIT ends a server with its children.
func attributes(runAs *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: runAs, Pdeathsig: syscall.SIGQUIT}
}

// freeze stops the server and its children.
func (p *process) freeze() (*freeze, error) {
	parent := p.cmd.Process.Pid
	// The parent first: from here on there are no new children.
	if err := syscall.Kill(parent, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	pids, err := children(parent)
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(parent, syscall.SIGCONT))
	}
	pids = append(pids, parent)
	args := []string{"-c", `read -r _; kill -CONT "$@" 2>/dev/null; true`, "guard"}
	for _, pid := range pids {
		args = append(args, strconv.Itoa(pid))
	}
	guard := exec.Command("/bin/sh", args...)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not for the guard
	input, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Kill(parent, syscall.SIGCONT))
	}
	f := &freeze{guard: guard, input: input}
	for _, pid := range pids {
		// A child that has ended meanwhile is as silent as a stopped one.
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
			return nil, errors.Join(err, f.end())
		}
	}
	return f, nil
}

// children are the processes whose parent is pid (proc_pid_stat(5): after the
// name in parentheses come the state and the parent).
func children(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		pids = append(pids, child)
	}
	return pids, nil
}
