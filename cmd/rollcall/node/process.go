package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/google/uuid"

	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger/tracing"
)

// errNotOurs: somebody else could have written a folder or file.
var errNotOurs = errors.New("others can change this node's files")

// writableByOthers are the mode bits of group and others.
const writableByOthers = 0o022

// checkOwned requires that the data folder and the operator's token, if they exist, belong to this user and that nobody
// else can write them. Its error has the command that repairs it.
func checkOwned(dataDir string) error {
	for _, path := range []string{dataDir, filepath.Join(dataDir, admin.TokenFile)} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the data folder: %w", err)
		}
		user := os.Geteuid()
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != user {
			return fmt.Errorf("%w: %s belongs to user %d, and this is user %d; run: chown %d %s (or start the node as "+
				"user %d)", errNotOurs, path, owner.Uid, user, user, path, owner.Uid)
		}
		if mode := info.Mode().Perm(); mode&writableByOthers != 0 {
			return fmt.Errorf("%w: %s has mode %04o; run: chmod go-w %s", errNotOurs, path, mode, path)
		}
	}
	return nil
}

// lastSpansWithin bounds how long a stopping node waits for its collector. Guess: a healthy one takes milliseconds, on
// a busy machine over two seconds.
const lastSpansWithin = 10 * time.Second

// startTracing makes the exporter of spans; nothing when tracing is disabled.
func (n *Node) startTracing(ctx context.Context, c config.Config, id uuid.UUID, log *slog.Logger) (err error) {
	n.tracer, err = tracing.New(ctx, tracing.Options{Endpoint: c.Tracing.Endpoint, Sample: c.Tracing.Sample, Node: id,
		Version: VersionOf(debug.ReadBuildInfo()).Version, Log: log})
	if n.tracer == nil {
		return err
	}
	n.add("tracing", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpansWithin)
		defer cancel()
		if err := n.tracer.Stop(ctx); err != nil { // no reason to end with a failure
			log.Warn("last spans not sent", "err", err)
		}
		return nil
	})
	return nil
}

// InterfaceVersion is the version of the customer's interface that this binary serves.
const InterfaceVersion = "0.1.0"

// A release stamps these (cmd/release); in any other build they are empty.
var version, commit, date string

// Version describes this binary. Date is the commit's, in RFC 3339, or "unknown".
type Version struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Date      string `json:"date"`
	Interface string `json:"interface"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
}

// String is the version in one line, for people.
func (v Version) String() string {
	return fmt.Sprintf("rollcall %s (commit %s of %s, interface %s, %s, %s)", v.Version, v.Commit, v.Date, v.Interface,
		v.Go, v.Platform)
}

// VersionOf reads the version that a release, or else the Go tool, wrote into the binary.
func VersionOf(info *debug.BuildInfo, ok bool) Version {
	v := Version{Version: version, Commit: commit, Date: date, Interface: InterfaceVersion, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if ok {
		if m := info.Main.Version; m != "(devel)" {
			v.Version = cmp.Or(v.Version, m)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = cmp.Or(v.Commit, s.Value)
			case "vcs.time":
				v.Date = cmp.Or(v.Date, s.Value)
			}
		}
	}
	v.Version, v.Commit, v.Date = cmp.Or(v.Version, "devel"), cmp.Or(v.Commit, "unknown"), cmp.Or(v.Date, "unknown")
	return v
}
