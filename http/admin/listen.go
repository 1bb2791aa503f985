package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
)

// unixPrefix begins the address of a unix socket in Options.Listen.
const unixPrefix = "unix:"

// socketMode lets the owner and the group of a unix socket connect.
const socketMode = 0o660

// listen binds the address of the options, with TLS if configured.
func (o Options) listen() (net.Listener, error) {
	path, isUnix := strings.CutPrefix(o.Listen, unixPrefix)
	if isUnix {
		return listenUnix(path)
	}
	l, err := net.Listen("tcp", o.Listen)
	if err == nil && o.TLS != nil {
		l = tls.NewListener(l, o.TLS)
	}
	return l, err
}

// listenUnix makes a socket. It replaces one left behind by a dead process; another file, or a socket in use, is an
// error.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(path) {
		if err = os.Remove(path); err == nil {
			l, err = net.Listen("unix", path)
		}
	}
	if err != nil {
		return nil, err
	}
	// Until this line the socket's mode follows the umask; the token is needed anyway.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// abandoned reports whether a file is a socket without a listener.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// withHost admits only requests for a host of this listener. A browser sends the host name of the page's URL, so a
// foreign page whose name was made to resolve to this machine is refused (DNS rebinding).
func (o Options) withHost(next http.Handler) http.Handler {
	listen, _, _ := net.SplitHostPort(o.Listen)
	known := append([]string{"localhost"}, o.Hosts...)
	if listen != "" {
		known = append(known, listen)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !strings.HasPrefix(o.Listen, unixPrefix) && !reachedAt(r, host) &&
			!slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, host) }) {
			refuse(w, http.StatusForbidden, "unknown_host", fmt.Sprintf("this listener is not known as %q: ask it by its "+
				"address, or name this host in admin.hosts", host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf returns the host of a Host header, without port, brackets and final dot.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

// reachedAt reports whether a host is a loopback address, or the one that the connection
// came to.
func reachedAt(r *http.Request, host string) bool {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	at, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return a.IsLoopback() || isTCP && a == at.AddrPort().Addr().Unmap().WithZone("")
}
