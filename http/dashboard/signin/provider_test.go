package signin_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/http/dashboard/signin"
)

// Every page reads the origin: one who waits for the provider must not make all wait.
func TestNobodyElseWaitsWhileTheProviderIsAsked(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}, 9), make(chan struct{})
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		arrived <- struct{}{}
		<-answer
		http.Error(w, "away", http.StatusBadGateway)
	}))
	defer server.Close()
	p := signin.NewProvider(signin.ProviderOptions{Issuer: server.URL, ClientID: "rollcall", Redirect: func() string { return "" }})
	p.WaitForEver()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	begin := func() {
		_, _, err := p.Begin(ctx)
		effort.ErrorIf(t, !errors.Is(err, signin.ErrAway), "got %v, want ErrAway", err)
	}
	all.Go(begin)
	<-arrived
	cancel() // who asked first is gone, and the others still want to know
	for range 8 {
		all.Go(begin)
	}
	effort.Is(t, p.Origin(), "", "an origin that nobody has told")
	close(answer)
	all.Wait()
	effort.Is(t, asked.Load(), 1, "it was asked times")
}

func TestAnIssuerThatNamesItselfOtherwiseIsNone(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer":"https://evil.test","authorization_endpoint":"https://evil.test/a","token_endpoint":"https://evil.test/t",` +
			`"jwks_uri":"https://evil.test/k"}`))
	}))
	defer server.Close()
	now := time.Now()
	p := signin.NewProvider(signin.ProviderOptions{Issuer: server.URL, ClientID: "rollcall", Redirect: func() string { return "" },
		Now: func() time.Time { return now }})
	for range 3 {
		to, _, err := p.Begin(t.Context())
		effort.ErrorIf(t, !errors.Is(err, signin.ErrAway) || to != "", "led to %q, %v", to, err)
	}
	effort.Is(t, asked.Load(), 1, "a provider that is none was asked times within a moment")
	now = now.Add(6 * time.Second)
	_, _, _ = p.Begin(t.Context())
	effort.Is(t, asked.Load(), 2, "it was asked times")
}

func TestSecretsThatOthersCanReadAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	effort.Denied(signin.ReadSecret(path))(t, os.ErrNotExist, "none")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{{" x y\n", 0o600, "x y"}, {"x", 0o400, "x"}, {"x", 0o640, ""}, {"x", 0o604, ""}, {"\n", 0o600, ""}} {
		_ = os.Remove(path)
		effort.OK(t, os.WriteFile(path, []byte(c.text), c.mode))
		got, err := signin.ReadSecret(path)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && (!errors.Is(err, signin.ErrSecret) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q with %04o: %q, %v", c.text, c.mode, got, err)
		}
	}
}
