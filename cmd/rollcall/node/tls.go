package node

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config"
	"rollcall/http/listen"
)

// certificatesEvery is how often the files of certificates are looked at.
const certificatesEvery = time.Second

// certificates are those of a node's listeners.
type certificates struct {
	log  *slog.Logger
	ends *prometheus.GaugeVec
	used *prometheus.GaugeVec
}

// newCertificates registers the metrics. A listener without TLS has none.
func newCertificates(r prometheus.Registerer, log *slog.Logger) *certificates {
	c := &certificates{log: log,
		ends: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_tls_certificate_not_after_timestamp_seconds",
			Help: "When the certificate of a listener ends, or the first of its chain; 0: it has none. Listener: api, " +
				"upload or admin.",
		}, []string{"listener"}),
		used: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rollcall_tls_certificate_used",
			Help: "1 when a listener uses its certificate files as they are now, or has none; 0 when they can't be used and " +
				"those before stay in force.",
		}, []string{"listener"}),
	}
	r.MustRegister(c.ends, c.used)
	for _, listener := range []string{"api", "upload", "admin"} {
		c.ends.WithLabelValues(listener)
		c.used.WithLabelValues(listener).Set(1)
	}
	return c
}

// follow loads the files of a listener and follows their changes until stop is called;
// nil settings and no error without files.
func (c *certificates) follow(ctx context.Context, listener, certFile, keyFile string) (settings *tls.Config,
	stop func(context.Context) error, err error) {
	if certFile == "" {
		return nil, func(context.Context) error { return nil }, nil
	}
	// First what is watched, then what is loaded: a change in between is seen.
	watched := []*config.FileWatch{config.WatchFile(certFile), config.WatchFile(keyFile)}
	pair, err := listen.LoadPair(certFile, keyFile)
	if err != nil {
		return nil, nil, err
	}
	c.took(listener, pair)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(certificatesEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			c.look(listener, pair, watched)
		}
	}()
	return pair.Config(), func(context.Context) error { cancel(); <-done; return nil }, nil
}

// look loads the files again when one of them has changed.
func (c *certificates) look(listener string, pair *listen.Pair, watched []*config.FileWatch) {
	changed := false
	for _, w := range watched {
		changed = w.Changed() || changed
	}
	if !changed {
		return
	}
	if err := pair.Reload(time.Now()); err != nil {
		c.used.WithLabelValues(listener).Set(0)
		c.log.Error("new certificate refused, the one before stays in force", "listener", listener, "until", pair.End(),
			"err", err)
		return
	}
	c.took(listener, pair)
	c.log.Info("new certificate in force", "listener", listener, "until", pair.End())
}

// took tells of a pair that came into force.
func (c *certificates) took(listener string, pair *listen.Pair) {
	c.used.WithLabelValues(listener).Set(1)
	c.ends.WithLabelValues(listener).Set(float64(pair.End().Unix()))
	if time.Now().After(pair.End()) {
		c.log.Error("certificate has ended, clients will refuse it", "listener", listener, "until", pair.End())
	}
}
