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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"rollcall/actors/dispatcher"
	"rollcall/actors/domain"
	"rollcall/actors/facts"
	"rollcall/actors/process"
	"rollcall/actors/receiver"
	"rollcall/cluster"
	"rollcall/config"
	"rollcall/http/admin"
	"rollcall/ledger"
	"rollcall/ledger/quota"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/tracing"
	"rollcall/smtp/mx"
	"rollcall/smtp/smtplab"
	"rollcall/smtp/throttle"
	"rollcall/smtp/verdict"
)

// Options are a node's options beside its configuration.
type Options struct {
	Lab bool // start the lab and send DNS and SMTP there
	// LabGreylist is how long the lab's receivers greylist; 0 means the value in smtplab.Defaults.
	LabGreylist time.Duration
	Log         *slog.Logger
	Forgets     bool          // facts about receivers learned earlier; the lab's receivers are new, too
	Hour        time.Duration // for trials: length of an hour for limits, pauses and the lab; 0: an hour
}

// Node is everything that runs in one process.
type Node struct {
	APIURL, UploadURL, AdminURL string

	Registry *prometheus.Registry
	Lab      *smtplab.Lab // nil without one
	Book     *sqlstore.Store
	Cluster  *cluster.Node // this process as a member

	watchdog *process.Watchdog
	window   *process.Window
	rules    *liveRules
	tracer   *tracing.Tracer // nil: nothing is traced
	work     *workload
	*throttling
	self  *selfCheck
	pages atomic.Pointer[string] // URL of the pages; nil until it is known, and if they are disabled

	stops    []stopper // in the order in which the parts started
	stopping atomic.Bool
	once     sync.Once
	stopErr  error
}

type stopper struct {
	name string
	stop func(ctx context.Context) error
}

// Start builds a node and starts it: lab, ledger, cluster, actors, edge.
func Start(ctx context.Context, c config.Config, o Options) (n *Node, err error) {
	begun := &Node{}
	defer func() {
		if err != nil {
			_ = begun.Stop(context.WithoutCancel(ctx))
		}
	}()
	n = begun
	if err := checkOwned(c.DataDir); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	n.Registry = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.watchdog = process.NewWatchdog(n.Registry, o.Log)
	n.window = process.NewWindow(n.Registry, domainsLeast, domainsMax)
	n.add("watchdog", process.Background(ctx, n.watchdog.Run, n.window.Run))
	if c, err = n.startLab(c, o); err != nil {
		return nil, err
	}
	if err := n.startRules(ctx, c, o); err != nil {
		return nil, err
	}
	id, err := nodeIdentity(c)
	if err != nil {
		return nil, err
	}
	token, err := admin.EnsureToken(c.DataDir)
	if err != nil {
		return nil, err
	}
	if err := n.startTracing(ctx, c.Tracing, id, o.Log); err != nil {
		return nil, err
	}
	book, err := sqlstore.Open(ctx, c.Ledger.URL, sqlstore.Options{Folder: c.DataDir, Log: o.Log,
		Registerer: registry, DiskReserve: c.Ledger.DiskReserve})
	if err != nil {
		return nil, err
	}
	n.Book = book
	n.add("ledger", func(context.Context) error { return book.Close() })
	wake, err := n.startEngine(ctx, c, id, engineOptions{registry: registry, log: o.Log, rules: n.rules.Now,
		guard: process.NewPanicGuard(registry, o.Log), hour: throttle.Hour(o.Hour), facts: factsOf(book, o.Forgets)})
	if err != nil {
		return nil, err
	}
	if err := n.startEdge(ctx, c, book, edgeOptions{registry: registry, log: o.Log, token: token,
		wake: wake}); err != nil {
		return nil, err
	}
	n.startSelfAudit(ctx, c, engineOptions{registry: registry, log: o.Log})
	o.Log.Info("node started", "node", id, "api", n.APIURL, "upload", n.UploadURL, "admin", n.AdminURL)
	return n, nil
}

type engineOptions struct {
	registry *prometheus.Registry
	log      *slog.Logger
	rules    func() *verdict.Rules
	guard    *process.PanicGuard
	hour     throttle.Hour           // for receivers and for facts about domains
	facts    ledger.Facts            // about receivers and domains
	opened   func(openFunc) openFunc // watches whether sessions can be opened
}

// startEngine starts the actors: receivers on the cluster, then the dispatcher, which gives them work.
func (n *Node) startEngine(ctx context.Context, c config.Config, id uuid.UUID, o engineOptions) (wake func(),
	err error) {
	if err := n.newMember(c, id, o); err != nil {
		return nil, err
	}
	if err := n.startThrottling(ctx, c, n.Book, o); err != nil {
		return nil, err
	}
	turns := quota.NewSlots(int64(c.DNS.AtOnce), n.settings.WeightOf)
	resolver, err := NewResolver(c, turns.Enter, n.Lab != nil)
	if err != nil {
		return nil, err
	}
	n.add("dns", func(context.Context) error { return resolver.Close() })
	registerDNSMetrics(o.registry, resolver, turns)
	if n.self, err = newSelfCheck(c, n.Cluster, o); err != nil {
		return nil, err
	}
	o.opened = n.self.opened
	receivers, err := n.receivers(c, o)
	if err != nil {
		return nil, err
	}
	n.openInspector(receivers, resolver)
	n.self.sources, n.self.metrics = receivers.Sources, receivers.Metrics
	n.add("identity", n.self.start(ctx))
	if err := n.Cluster.Serve(ctx, receiver.Kinds(receivers), n.inspector.Answer); err != nil {
		return nil, err
	}
	n.add("learned limits", n.work.receivers.Flush)
	n.add("cluster", n.Cluster.Stop)
	return n.startDispatcher(c, id, resolver, o)
}

// startDispatcher starts the actor that takes verifications into work.
func (n *Node) startDispatcher(c config.Config, id uuid.UUID, resolver *mx.Resolver, o engineOptions) (wake func(),
	err error) {
	// Learned facts about domains are shared with the other nodes, and with later processes of this one.
	shared := domain.ShareFacts(facts.NewWriter(facts.Options{Store: o.facts, Of: "domains", Log: o.log, Guard: o.guard}))
	shared.Hour = o.hour
	n.add("facts", shared.Flush)
	options := n.workOptions(c, id, resolver, shared, o)
	options.Work.Tracer = n.tracer
	d, err := dispatcher.Start(n.Cluster.System(), options)
	if err != nil {
		return nil, err
	}
	n.work.dispatcher.Store(d)
	n.Cluster.OnDrain(d.Drain)
	n.add("dispatcher", d.Stop)
	return d.Wake, nil
}

func (n *Node) add(name string, stop func(ctx context.Context) error) {
	n.stops = append(n.stops, stopper{name, stop})
}

// Identity returns the last report about this node's identity.
func (n *Node) Identity() admin.Identity { return n.self.view() }

// CheckIdentity checks the identity now.
func (n *Node) CheckIdentity(ctx context.Context) (admin.Identity, error) { return n.self.check(ctx) }

// Stop drains the node: no new requests, no new work, leases given back, sessions ended, the ledger closed. It may be
// called twice.
func (n *Node) Stop(ctx context.Context) error {
	n.once.Do(func() {
		n.stopping.Store(true)
		for i := len(n.stops) - 1; i >= 0; i-- {
			if err := n.stops[i].stop(ctx); err != nil {
				n.stopErr = errors.Join(n.stopErr, fmt.Errorf("stop %s: %w", n.stops[i].name, err))
			}
		}
	})
	return n.stopErr
}

// errNotOurs: another user could have written to a folder or file of this node.
var errNotOurs = errors.New("others can change this node's files")

// writableByOthers are the mode bits of group and others.
const writableByOthers = 0o022

// checkOwned requires that this user owns the data folder and the operator's token, if they exist, and that nobody
// else can write to them. Its error has the command that repairs it.
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

// ThisVersion reads the version that a release, or else the Go tool, wrote into the binary.
func ThisVersion() Version {
	v := Version{Version: version, Commit: commit, Date: date, Interface: InterfaceVersion, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
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
