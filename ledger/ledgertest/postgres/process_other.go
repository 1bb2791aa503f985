//go:build !linux

package postgres

import (
	"errors"
	"syscall"
)

// attributes run a program as another user. Only Linux ends it with its parent.
func attributes(runAs *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: runAs}
}

// freeze needs the list of processes of Linux.
func (p *process) freeze() (*freeze, error) { return nil, errors.ErrUnsupported }
