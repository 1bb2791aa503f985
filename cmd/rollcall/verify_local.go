package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/intake"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/cmd/rollcall/term"
	"rollcall/config"
	"rollcall/smtp"
	"rollcall/smtp/identity"
	"rollcall/smtp/mx"
)

const (
	// preflightDomains is how many of a file's domains are tried. With so many, a few dead domains do not look like a
	// closed port, and the answer still comes within seconds.
	preflightDomains = 12

	// preflightWait bounds each of the two steps, DNS and connecting.
	preflightWait = 10 * time.Second
)

// Errors of preflight about this machine.
var (
	errDNSAway    = errors.New("no DNS server answers")
	errPortClosed = errors.New("outgoing port 25 seems to be closed on this machine")
	errWalled     = errors.New("the DNS servers of this machine say that no name exists, not even com: " +
		"it can't reach the Internet's DNS; check its network, or name a server in [dns] servers")
)

// preflight returns an error at once if a run from this machine is useless: the file is refused, no DNS server
// answers, none of the file's first receivers can be reached, or receivers would refuse this machine for its
// identity.
func preflight(ctx context.Context, c config.Config, in *input) error {
	file, err := intake.Read(io.NewSectionReader(in, 0, in.size), intake.Limits{RowsMax: c.Limits.MaxRows})
	if d := (*intake.Defect)(nil); errors.As(err, &d) {
		return fmt.Errorf("%s: %s (%s)", in.name, d.Message, d.Code)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	resolver, err := node.NewResolver(c, nil, false)
	if err != nil {
		return err
	}
	defer resolver.Close()
	asking, cancel := context.WithTimeout(ctx, preflightWait)
	defer cancel()
	if err := resolver.Check(asking); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if walled := (*mx.Error)(nil); errors.As(err, &walled) && walled.Kind == mx.Walled {
			return errWalled
		}
		return fmt.Errorf("%w: check this machine's network, or name a server in [dns] servers: %w", errDNSAway, err)
	}
	domains := file.Domains()
	hosts := hostsOf(asking, resolver, domains[:min(len(domains), preflightDomains)])
	dial := smtp.NewDialer(smtp.DialerOptions{AllowNetworks: node.AllowNetworks(c), Port: c.SMTP.Port,
		ConnectTimeout: preflightWait})
	if err := tryHosts(ctx, dial, hosts, c.SMTP.Port); err != nil {
		return err
	}
	return tryIdentity(ctx, c)
}

// tryIdentity returns why receivers would refuse this machine. Without identity.enforce the run continues.
func tryIdentity(ctx context.Context, c config.Config) error {
	if !c.Identity.Enforce {
		return nil
	}
	found, err := examine(ctx, c)
	if err != nil || found.Eligible {
		return err
	}
	why, text := errIneligible, strings.Builder{}
	for _, f := range found.Findings {
		if f.State == identity.Fail {
			fmt.Fprintf(&text, "\n%s %s: %s. %s", f.Check, f.Source, f.Saw, f.Next)
		}
	}
	if text.Len() == 0 {
		why = errors.New(found.Why)
	}
	return fmt.Errorf("%w, so every answer would be unknown; try --lab, or run this on another machine. Nothing "+
		"was asked and nothing is charged%s", why, text.String())
}

// hostsOf returns an address of the first host of each domain that takes mail.
func hostsOf(ctx context.Context, resolver *mx.Resolver, domains []string) []netip.Addr {
	found := make(chan netip.Addr, len(domains))
	for _, domain := range domains {
		go func() {
			var addr netip.Addr
			if route, err := resolver.Lookup(ctx, domain); err == nil && len(route.Hosts) > 0 {
				addr = route.Hosts[0].Addrs[0]
			}
			found <- addr
		}()
	}
	var hosts []netip.Addr
	for range domains {
		if a := <-found; a.IsValid() {
			hosts = append(hosts, a)
		}
	}
	return hosts
}

// tryHosts connects to all hosts at once. It succeeds if one connection does, or if there are no hosts.
func tryHosts(ctx context.Context, dial smtp.Dialer, hosts []netip.Addr, port int) error {
	if len(hosts) == 0 {
		return nil
	}
	dialling, cancel := context.WithTimeout(ctx, preflightWait)
	defer cancel()
	results := make(chan error, len(hosts))
	for _, host := range hosts {
		go func() {
			conn, err := dial.DialContext(dialling, "tcp", net.JoinHostPort(host.String(), strconv.Itoa(port)))
			if results <- err; err == nil { // servers log clients that disconnect before the greeting
				_ = conn.SetDeadline(time.Now().Add(preflightWait))
				identity.Greets(conn)
				_ = conn.Close()
			}
		}()
	}
	for range hosts {
		if <-results == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: none of the first %d receivers of the file can be reached, so every answer would be "+
		"unknown; run this where port 25 is open, or try --lab. Nothing was asked and nothing is charged",
		errPortClosed, len(hosts))
}

type input struct {
	*os.File
	name string
	size int64
	sum  [sha256.Size]byte // of its bytes
}

// openInput opens a file and reads it once for its checksum.
func openInput(name string) (*input, error) { return openNamed(name, name) }

// openNamed opens a file for which messages use another name.
func openNamed(path, name string) (*input, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s: check the path", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	in := &input{File: f, name: name}
	if err := in.measure(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return in, nil
}

func (in *input) measure() error {
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: give a CSV file with one address in each line", in.name)
	}
	sum := sha256.New()
	if in.size, err = io.Copy(sum, in.File); err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	if in.size == 0 {
		return fmt.Errorf("%s is empty: give a CSV file with one address in each line", in.name)
	}
	sum.Sum(in.sum[:0])
	return nil
}

// contentSpace is the namespace of the UUIDs that are made from contents.
var contentSpace = uuid.MustParse("6d0f9a52-58c7-4b0f-8f0d-1f6ad2a3c9b7")

// identity is the idempotency key of the input at a service. It depends only on the bytes and again. So a workspace
// pays once for the same content, whatever the file's name, folder, machine or API key. again is the customer's name
// for one more verification of the same content, or "" for the first. The service keeps workspaces apart.
func (in *input) identity(again string) uuid.UUID {
	data := append([]byte("rollcall content "), in.sum[:]...)
	return uuid.NewHash(sha256.New(), contentSpace, append(data, again...), 8)
}

// memory stores the idempotency key of an unfinished local verification in a small file, so that the same command
// resumes it. The file is named after the content of the input. Local runs cost nothing, so a run after the end may
// start a new verification.
type memory struct{ file string }

type memoryFile struct {
	Identity uuid.UUID `json:"idempotency_key"`
}

func newMemory(folder string, input [sha256.Size]byte) *memory {
	return &memory{file: filepath.Join(folder, hex.EncodeToString(input[:])+".json")}
}

// identity returns the stored key. If there is none, it makes one and stores it before its first use.
func (m *memory) identity() (uuid.UUID, error) {
	text, err := os.ReadFile(m.file)
	var kept memoryFile
	if err == nil && json.Unmarshal(text, &kept) == nil && kept.Identity != uuid.Nil {
		return kept.Identity, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return uuid.Nil, fmt.Errorf("read the file of the last run: %w", err)
	}
	kept.Identity = uuid.New()
	return kept.Identity, term.WriteJSON(m.file, kept)
}

// forget removes the stored key, so that the next run is a new verification.
func (m *memory) forget() error {
	if err := os.Remove(m.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the file of this run: %w", err)
	}
	return nil
}

// verifyLocal verifies the file with a node in this process, with its own data and ports.
func verifyLocal(ctx context.Context, r *verifyRun, c config.Config) (err error) {
	folder := filepath.Join(c.DataDir, "verify")
	if r.flags.lab {
		folder = filepath.Join(c.DataDir, "verify-lab")
	}
	c = node.LocalConfig(c, folder, r.flags.lab)
	if !r.flags.lab {
		r.view.phase("checking DNS and outgoing port 25")
		if err := preflight(ctx, c, r.input); err != nil {
			return err
		}
	}
	log, closeLog, err := openNodeLog(folder, c.Log.Level)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	limitMemory(log)
	options := node.Options{Log: log}
	if r.flags.lab {
		options = node.LabOptions(log)
	}
	n, err := node.Start(ctx, c, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.StopNode(ctx, n)) }()
	token, err := client.ReadToken(folder)
	if err != nil {
		return err
	}
	tenant, err := client.OpenTenant(ctx, client.NewAdmin(n.AdminURL, token), client.TenantOptions{
		File: filepath.Join(folder, "tenant.json"), Workspace: "verify", Credits: c.Limits.MaxRows,
	})
	if err != nil {
		return err
	}
	r.client = client.NewAPI(n.APIURL, tenant.Key, r.view.notice)
	r.memory, r.poll = newMemory(folder, r.input.sum), pollLocal
	return r.run(ctx)
}

// openNodeLog opens the log file of a node if a person reads standard error.
func openNodeLog(folder, level string) (*slog.Logger, func() error, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, "node.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the node's log: %w", err)
	}
	return newLogger(f, config.Log{Level: level, Format: "json"}), f.Close, nil
}
