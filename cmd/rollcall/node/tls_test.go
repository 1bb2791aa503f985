package node

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/config/effort"
	"rollcall/http/listen/listentest"
)

// TestCertificatesAreFollowed: a new pair is served without a restart, and one that can't
// be used is logged and leaves the one before in force.
func TestCertificatesAreFollowed(t *testing.T) { synctest.Test(t, certificatesAreFollowed) }

func certificatesAreFollowed(t *testing.T) {
	const endsMetric = "rollcall_tls_certificate_not_after_timestamp_seconds"
	folder, registry, logged := t.TempDir(), prometheus.NewRegistry(), make(chan string, 100)
	first, second := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	certFile, keyFile, _ := listentest.WriteCertificate(t, folder, first)
	certs := newCertificates(registry, slog.New(slog.NewTextHandler(eachLine(logged), nil)))
	settings, stop, err := certs.follow(t.Context(), "admin", certFile, keyFile)
	effort.OK(t, err)
	served := func() time.Time {
		ours, theirs := net.Pipe()
		defer ours.Close()
		server, client := tls.Server(theirs, settings), tls.Client(ours, &tls.Config{InsecureSkipVerify: true})
		go func() {
			_ = server.Handshake()
			_ = theirs.Close()
		}()
		effort.OK(t, client.Handshake())
		return client.ConnectionState().PeerCertificates[0].NotAfter
	}
	want := func(what string, end time.Time, used float64) {
		t.Helper()
		effort.Is(t, served().Unix(), end.Unix(), what, "served until")
		got := effort.Metric(t, registry, endsMetric, "listener=admin")
		effort.ErrorIf(t, got != float64(end.Unix()), "%s: the metric says %v, want %v", what, got, end.Unix())
		effort.Is(t, effort.Metric(t, registry, "rollcall_tls_certificate_used", "listener=admin"), used, what, "used")
	}
	waitFor := func(text string) {
		t.Helper()
		for line := range logged {
			if strings.Contains(line, text) {
				return
			}
		}
	}
	want("at start", first, 1)
	effort.OK(t, os.WriteFile(certFile, []byte("nonsense"), 0o600))
	waitFor("new certificate refused")
	want("nonsense", first, 0)
	listentest.WriteCertificate(t, folder, second)
	waitFor("new certificate in force")
	want("a good one", second, 1)
	listentest.WriteCertificate(t, folder, time.Now().Add(-time.Hour))
	waitFor("not valid now")
	want("one that has ended", second, 0)
	effort.ErrIs(t, stop(context.Background()), nil)
}
