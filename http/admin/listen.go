package admin

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rollcall/http/api"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

const unixPrefix = "unix:"

// socketMode lets the owner and the group of a unix socket connect.
const socketMode = 0o660

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

// listenUnix makes a socket. It replaces a socket left behind by a dead process. If there is another file, or the
// socket is in use, it returns an error.
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
	// Until this line the socket's mode follows the umask, which does no harm: callers need the token.
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

// withHost admits only requests for a host of this listener. This prevents DNS rebinding: somebody can let the name
// of a foreign page resolve to this machine, but browsers then still send that name.
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

// reachedAt reports whether a host is a loopback address, or the address that the connection came to.
func reachedAt(r *http.Request, host string) bool {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	a = a.Unmap()
	at, isTCP := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return a.IsLoopback() || isTCP && a == at.AddrPort().Addr().Unmap().WithZone("")
}

// TokenFile is the name of the token's file in the data directory.
const TokenFile = "admin.token"

// tokenBytes makes tokens of 256 random bits, which nobody guesses.
const tokenBytes = 32

// EnsureToken reads the operator's token from DATA_DIR/admin.token. If there is none, it makes one that only its
// owner can read. Two processes that start at the same time get the same token. Errors wrap ErrToken or the file
// system's.
func EnsureToken(dataDir string) (string, error) {
	path := filepath.Join(dataDir, TokenFile)
	token, err := signin.ReadPrivate(path, ErrToken)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	if err := writeToken(dataDir, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the operator's token: %w", err)
	}
	return signin.ReadPrivate(path, ErrToken)
}

// writeToken writes a new token to a temporary file and links it to its name, so that nobody reads half of it. If
// another process was faster, it returns fs.ErrExist.
func writeToken(dir, path string) (err error) {
	f, err := os.CreateTemp(dir, TokenFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	secret := make([]byte, tokenBytes)
	rand.Read(secret)
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// OperateCall asks for a link to the pages.
type OperateCall struct {
	ReadOnly bool `json:"read_only"` // a session that can't change anything
}

// OperateLink is a path of this listener that signs in to the pages, once.
type OperateLink struct {
	Path      string   `json:"path"`
	Author    string   `json:"author"` // author of the session's changes, for the operator log; "": not given
	ReadOnly  bool     `json:"read_only"`
	ExpiresAt api.Time `json:"expires_at"`
}

// operate makes a link to the pages. It does not need the ledger.
func (s *Server) operate(ctx context.Context, in OperateCall) (OperateLink, error) {
	if s.pages == nil {
		return OperateLink{}, refusal(http.StatusConflict, "no_pages",
			"this process serves no pages for operators: ask another node")
	}
	author := ledger.Author(ctx)
	path, until := s.pages.Link(author, in.ReadOnly)
	return OperateLink{Path: path, Author: author, ReadOnly: in.ReadOnly, ExpiresAt: api.Time(until)}, nil
}
