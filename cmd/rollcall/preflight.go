package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"rollcall/actors/intake"
	"rollcall/cmd/rollcall/client"
	"rollcall/cmd/rollcall/node"
	"rollcall/config"
	"rollcall/http/api"
	"rollcall/smtp"
	"rollcall/smtp/identity"
	"rollcall/smtp/mx"
)

const (
	// preflightDomains is how many of a file's domains are looked at: enough
	// that a few dead ones do not look like a closed port, few enough that the
	// answer comes within seconds.
	preflightDomains = 12

	// preflightWait bounds each of the two steps, DNS and connecting.
	preflightWait = 10 * time.Second
)

// What preflight says about this machine.
var (
	errDNSAway    = errors.New("no DNS server answers")
	errPortClosed = errors.New("outgoing port 25 seems to be closed on this machine")
	errWalled     = errors.New("the DNS servers of this machine deny every name, even com: " +
		"it has no way to the Internet's DNS; check its network, or name a server in [dns] servers")
)

// preflight says at once when a run from this machine can only end in
// "unknown": when the file is refused, when no DNS server answers, when none of the
// file's first receivers can be connected to, or when receivers would refuse this
// machine for what it is.
func preflight(ctx context.Context, c config.Config, in *input) error {
	file, err := intake.Read(io.NewSectionReader(in, 0, in.size), intake.Limits{RowsMax: c.Limits.MaxRows})
	if d := (*intake.Defect)(nil); errors.As(err, &d) {
		return defectError(in.name, d)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	resolver, err := node.NewResolver(c, nil)
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
		return fmt.Errorf("%w: check this machine's network, or name a server in [dns] servers: %w", errDNSAway,
			err)
	}
	domains := file.Domains()
	hosts := hostsOf(asking, resolver, domains[:min(len(domains), preflightDomains)])
	allowed, err := node.AllowNetworks(c)
	if err != nil {
		return err
	}
	dial, err := smtp.NewDialer(smtp.DialerOptions{AllowNetworks: allowed, Port: c.SMTP.Port,
		ConnectTimeout: preflightWait})
	if err != nil {
		return err
	}
	if err := tryHosts(ctx, dial, hosts, c.SMTP.Port); err != nil {
		return err
	}
	return tryIdentity(ctx, c)
}

// tryIdentity says what receivers would hold against this machine. Without
// identity.enforce nobody is kept from trying.
func tryIdentity(ctx context.Context, c config.Config) error {
	if !c.Identity.Enforce {
		return nil
	}
	found, err := examine(ctx, c)
	if err != nil || found.Fit {
		return err
	}
	why, text := errUnfit, strings.Builder{}
	for _, f := range found.Findings {
		if f.State == identity.Fail {
			fmt.Fprintf(&text, "\n%s %s: %s. %s", f.Check, f.Source, f.Saw, f.Next)
		}
	}
	if text.Len() == 0 {
		why = errors.New(found.Why)
	}
	return fmt.Errorf("%w, so every answer would be unknown; try --lab, or run this where it is not so. Nothing "+
		"was asked and nothing is charged%s", why, text.String())
}

// defectError says what the service would say about a file.
func defectError(name string, d *intake.Defect) error {
	issue := api.Issue{Message: d.Message}
	if d.Row > 0 {
		issue.Row = &d.Row
	}
	return fmt.Errorf("%s: %s (%s)", name, client.IssueText(&issue), d.Code)
}

// hostsOf gives an address of the first host of each domain that takes mail.
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

// tryHosts connects to all hosts at once and is content with one. No hosts say nothing.
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
			if err == nil {
				err = conn.Close()
			}
			results <- err
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
