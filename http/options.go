package http

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"rollcall/http/listen"
	"rollcall/ledger"
	"rollcall/ledger/tracing"
)

// Book is what the API needs of the ledger; ledger.Book is one.
type Book interface {
	KeyByID(ctx context.Context, id string) (ledger.Key, error)
	UseKeys(ctx context.Context, ids []string) error
	Balance(ctx context.Context, workspace uuid.UUID) (ledger.Balance, error)
	Secret(ctx context.Context, name string, bytes int) ([]byte, error)
	Create(ctx context.Context, n ledger.NewVerification) (ledger.Verification, bool, error)
	Verification(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error)
	History(ctx context.Context, q ledger.HistoryQuery) ([]ledger.Verification, error)
	Cancel(ctx context.Context, workspace, id uuid.UUID) (ledger.Verification, error)
	Results(ctx context.Context, workspace, id uuid.UUID, yield func(ledger.Result) error) error
}

// Rate is a token bucket: PerSecond tokens come in, at most Burst are kept.
type Rate struct {
	PerSecond float64 // above 0
	Burst     int     // 1 or more
}

// Limits bound what one customer may ask: those per key of all nodes together,
// in equal parts (see Options.Nodes), the others of one node. Below what a client that keeps to
// Retry-After needs, honest customers meet 429; far above, one customer can slow
// the others.
type Limits struct {
	Reads       Rate // per key, everything but creates
	Creates     Rate // per key
	BadKeys     Rate // wrong keys per network address (an IPv6 /64 is one)
	KeyLookups  Rate // of an address above BadKeys, questions to the ledger about keys it may be guessing
	DownloadMax int  // results downloads at once per key
	InFlightMax int  // requests in work at once, of all, shared by workspace; 503 overloaded above it
	ConnsMax    int  // open connections of all; a network address may hold no more than are still free
}

// DefaultLimits are the values of the contract: reads 20/s burst 40, creates
// 5/s burst 20, 20 wrong keys a minute, 4 downloads. The others are guesses
// for a small node; 100 questions about keys a second are a hundredth of what the
// embedded ledger answers.
func DefaultLimits() Limits {
	return Limits{
		Reads:       Rate{PerSecond: 20, Burst: 40},
		Creates:     Rate{PerSecond: 5, Burst: 20},
		BadKeys:     Rate{PerSecond: 20.0 / 60, Burst: 20},
		KeyLookups:  Rate{PerSecond: 100, Burst: 100},
		DownloadMax: 4,
		InFlightMax: 1024,
		ConnsMax:    4096,
	}
}

// Options are what a Server needs; all are required unless their line says otherwise.
type Options struct {
	Listen         string                    // host:port; port 0 takes a free one, see Addr
	Book           Book                      // the ledger
	Writes         func() (uint64, bool)     // see sqlstore.Store.Writes; nil: each answer is read anew
	PublicUpload   func(id uuid.UUID) string // the upload URL of a verification, always the same for it
	AllowedOrigins []string                  // exact, such as https://app.example.com; may be empty
	TLS            *tls.Config               // nil: requests are not encrypted
	Weight         func(uuid.UUID) int       // of a workspace; nil: all have 1. It must not block
	Trusted        listen.Trusted            // whose PROXY and X-Forwarded-For headers are believed; may be nobody
	Limits         Limits                    // see DefaultLimits
	Nodes          func() int                // how many share the limits per key; nil: this one is alone. It must not block
	MaxFileBytes   int64                     // of a new file; 413 above
	MaxRows        int64                     // told to customers; intake keeps it
	PerWorkspace   ledger.Limits             // what a workspace may have unless it has limits of its own; 429 above
	UploadExpiry   time.Duration             // life of an upload URL
	Pages          fasthttp.RequestHandler   // what is at every path that is none of the API's; nil: 404. See PageRequest
	PageRoutes     []string                  // what PageRequest.Route may be; may be empty
	Wake           func()                    // the ledger has something new; may be nil, must not block
	Log            *slog.Logger              // access lines at debug level
	Registerer     prometheus.Registerer     // gets rollcall_http_*
	Tracer         *tracing.Tracer           // nil: nothing is traced
	Now            func() time.Time          // for limits and Retry-After; nil: time.Now
}

// Validate says what is missing or out of range; its error wraps ErrOptions.
func (o Options) Validate() error {
	l := o.Limits
	switch {
	case o.Listen == "":
		return fmt.Errorf("%w: listen is empty", ErrOptions)
	case o.Book == nil || o.PublicUpload == nil || o.Log == nil || o.Registerer == nil:
		return fmt.Errorf("%w: book, public upload, log and registerer are needed", ErrOptions)
	case o.MaxFileBytes < 1 || o.MaxRows < 1 || min(o.PerWorkspace.Open, o.PerWorkspace.Stored, o.PerWorkspace.Unpaid) < 1:
		return fmt.Errorf("%w: max file bytes, max rows and each limit of a workspace must be 1 or more", ErrOptions)
	case o.UploadExpiry < time.Second:
		return fmt.Errorf("%w: upload expiry must be a second or more", ErrOptions)
	case !l.Reads.valid() || !l.Creates.valid() || !l.BadKeys.valid() || !l.KeyLookups.valid():
		return fmt.Errorf("%w: each rate must be above 0 with a burst of 1 or more", ErrOptions)
	case l.DownloadMax < 1 || l.InFlightMax < 1 || l.ConnsMax < 1:
		return fmt.Errorf("%w: each limit must be 1 or more", ErrOptions)
	}
	if _, err := listen.NewOrigins(o.AllowedOrigins); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

func (r Rate) valid() bool { return r.PerSecond > 0 && r.Burst >= 1 }
