package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	waiting "rollcall/actors/inspect"
	"rollcall/http/dashboard/signin"
	"rollcall/ledger"
)

// Book is what the pages need of the ledger.
type Book interface {
	signin.Book
	Secret(ctx context.Context, name string, bytes int) ([]byte, error)
	Balance(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error)
	Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error)
	History(ctx context.Context, q ledger.HistoryQuery) ([]ledger.Verification, error)
	Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error)
	Members(ctx context.Context, workspace uuid.UUID) ([]ledger.Membership, error)
	Keys(ctx context.Context, workspace uuid.UUID) ([]ledger.Key, error)
	KeyByID(ctx context.Context, id string) (ledger.Key, error)
	CreateKey(ctx context.Context, k ledger.Key) (ledger.Key, error)
	RevokeKey(ctx context.Context, id string) (ledger.Key, error)
	MakeLink(ctx context.Context, l ledger.Link) (ledger.Link, error)
	OpenLinks(ctx context.Context, workspace uuid.UUID) ([]ledger.Link, error)
	EndLink(ctx context.Context, workspace uuid.UUID, id ledger.Hash) error
	SetRole(ctx context.Context, workspace, user uuid.UUID, role ledger.Role) error
	CreateSingle(ctx context.Context, c ledger.CreateSingle) (ledger.Verification, error)
	RecentResults(ctx context.Context, q ledger.RecentQuery) (ledger.RecentPage, error)
	Breakdown(ctx context.Context, workspace, id uuid.UUID) (ledger.Breakdown, error)
	Statement(ctx context.Context, q ledger.StatementQuery) (ledger.WorkspaceStatement, error)
	Evidence(ctx context.Context, id uuid.UUID, after int64,
		yield func(ledger.StoredSettlement) error) (ledger.Verification, error)
	WorkspaceLog(ctx context.Context, q ledger.WorkspaceLogQuery) ([]ledger.WorkspaceLine, error)
	LogWorkspace(ctx context.Context, workspace uuid.UUID, l ledger.WorkspaceLine) error
}

// Options are what the pages need; all are required unless their line says otherwise.
type Options struct {
	Book         Book
	PublicURL    func() string // how browsers reach the pages, without a final slash
	UploadURL    string        // how they reach the storage
	MaxFileBytes int64         // of a new file
	MaxRows      int64
	PerWorkspace ledger.Limits // of a workspace for which nobody set others, as for the API
	// Waits asks all nodes what the open addresses of a verification wait for; nil: nobody can be asked.
	Waits       func(ctx context.Context, verification string) (waiting.Verification, error)
	SessionIdle time.Duration         // how long a session holds unused
	SessionLife time.Duration         // how long it holds in all
	Checks      func() bool           // this node checks addresses; nil: it does
	Version     string                // of the program, at the foot of each page
	Dev         bool                  // its receivers are simulated ones
	Contact     string                // whom to ask, such as an email or a URL; may be empty
	Provider    *Provider             // nil: people sign in with passwords only
	Wake        func()                // the ledger has something new; may be nil
	Log         *slog.Logger          // what went wrong
	Registerer  prometheus.Registerer // gets rollcall_sign_ins_total; may be nil
	Now         func() time.Time      // nil: time.Now
}

// validate says what is missing.
func (o Options) validate() error {
	switch {
	case o.Book == nil || o.PublicURL == nil || o.Log == nil:
		return fmt.Errorf("dashboard: book, public URL and log are needed")
	case o.MaxFileBytes < 1 || o.MaxRows < 1 || o.SessionIdle < time.Second || o.SessionLife < o.SessionIdle:
		return fmt.Errorf("dashboard: max file bytes and max rows must be 1 or more, session idle a second or more, and " +
			"session life no less")
	}
	return nil
}

// originOf is scheme, host and port of a URL; "" for none.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// keepsCookies reports whether a browser keeps our cookie at a URL: over https, or on the machine itself.
func keepsCookies(public string) bool {
	u, err := url.Parse(public)
	if err != nil {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
