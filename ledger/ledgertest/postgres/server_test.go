package postgres_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rollcall/ledger/ledgertest/postgres"
)

// connect is a connection that ends with the test.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// show asks for a setting of the server.
func show(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	if err := conn.QueryRow(t.Context(), "SHOW "+name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// settled fails the test unless the server has the settings.
func settled(t *testing.T, s *postgres.Server, want map[string]string) {
	t.Helper()
	conn := connect(t, s.URL("postgres"))
	for name, value := range want {
		if got := show(t, conn, name); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
}

// TestServer takes one server through its life.
func TestServer(t *testing.T) {
	t.Parallel()
	s := postgres.New(t, postgres.Options{})
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, s *postgres.Server)
	}{
		{"is as promised", func(t *testing.T, s *postgres.Server) {
			settled(t, s, map[string]string{"fsync": "on", "full_page_writes": "on", "listen_addresses": "",
				"server_encoding": "UTF8", "lc_collate": "C", "max_connections": "250"})
		}},
		{"a database is a copy of its template", copied},
		{"paused, it is silent until resumed", paused},
		{"crashed, it keeps what was committed", crashed},
		{"stopped, it leaves nothing", stopped},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, s) })
	}
}

func TestServerOnTCPAndDurable(t *testing.T) {
	t.Parallel()
	s := postgres.New(t, postgres.Options{TCP: true, Durable: true})
	settled(t, s, map[string]string{"fsync": "on", "listen_addresses": "127.0.0.1"})
	network, address := s.Address()
	conn, err := new(net.Dialer).DialContext(t.Context(), network, address)
	if err != nil || network != "tcp" {
		t.Fatalf("dial %s %s: %v", network, address, err)
	}
	_ = conn.Close() // nothing was said
	if err := errors.Join(s.Crash(), s.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, again := s.Address(); again != address {
		t.Errorf("after a restart it is at %s, was at %s", again, address)
	}
}

func copied(t *testing.T, s *postgres.Server) {
	first := connect(t, s.NewDatabase(t, "first", ""))
	const mark7 = "CREATE TABLE marks (mark INT); INSERT INTO marks VALUES (7)"
	if _, err := first.Exec(t.Context(), mark7); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := connect(t, s.NewDatabase(t, "second", "first"))
	var mark int
	if err := second.QueryRow(t.Context(), "SELECT mark FROM marks").Scan(&mark); err != nil || mark != 7 {
		t.Errorf("mark in the copy: got %d, %v, want 7", mark, err)
	}
	if err := s.Drop(t.Context(), "second"); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), s.URL("second")); err == nil {
		t.Error("a dropped database takes connections")
	}
}

func paused(t *testing.T, s *postgres.Server) {
	conn := connect(t, s.URL("postgres"))
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(); !errors.Is(err, postgres.ErrState) {
		t.Errorf("second pause: got %v, want ErrState", err)
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(t.Context()) }()
	select {
	case err := <-answered:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func crashed(t *testing.T, s *postgres.Server) {
	conn := connect(t, s.URL("postgres"))
	if _, err := conn.Exec(t.Context(), "CREATE TABLE marks (mark INT)"); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, postgres.ErrState) {
		t.Errorf("restart of a running server: got %v, want ErrState", err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection outlived the server")
	}
	if _, err := pgx.Connect(t.Context(), s.URL("postgres")); err == nil {
		t.Error("a crashed server takes connections")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, s.URL("postgres")).Exec(t.Context(), "INSERT INTO marks VALUES (1)"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func stopped(t *testing.T, s *postgres.Server) {
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	_, socket := s.Address()
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket after the stop: %v", err)
	}
	if err := s.Restart(t.Context()); !errors.Is(err, postgres.ErrState) {
		t.Errorf("restart after the stop: got %v, want ErrState", err)
	}
}
