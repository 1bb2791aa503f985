package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

// VersionMin is the oldest major version taken: the ledger's promise.
const VersionMin = 15

// debianFolders is where Debian and its kin put the server, which is not in PATH.
const debianFolders = "/usr/lib/postgresql/*/bin"

// version finds the major version in the answer to postgres --version.
var version = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// find returns the folder of initdb and postgres: that of PATH, else the newest of
// those that match usual. ErrMissing.
func find(ctx context.Context, usual string) (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && major(ctx, filepath.Dir(path)) >= VersionMin {
			return filepath.Dir(path), nil
		}
	}
	folders, err := filepath.Glob(usual)
	if err != nil {
		return "", err
	}
	best, newest := "", VersionMin-1
	for _, folder := range folders {
		if v := major(ctx, folder); v > newest {
			best, newest = folder, v
		}
	}
	if best == "" {
		return "", fmt.Errorf("%w in PATH or %s (%d or newer is needed)", ErrMissing, usual, VersionMin)
	}
	return best, nil
}

// major is the version of the server in folder; 0 when there is none, or no initdb.
func major(ctx context.Context, folder string) int {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return 0
	}
	out, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	m := version.FindSubmatch(out)
	if m == nil {
		return 0
	}
	v, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return 0
	}
	return v
}

// owner is whom the server runs as; nil: as ourselves.
func owner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("no unprivileged user to run postgresql as: %w", errors.Join(errs...))
}
