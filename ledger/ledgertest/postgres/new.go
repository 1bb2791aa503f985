package postgres

import (
	"errors"
	"os"
	"testing"

	"rollcall/config/effort"
)

// requireVariable makes a missing PostgreSQL a failure, as on a CI machine.
const requireVariable = "ROLLCALL_REQUIRE_POSTGRES"

// New starts a server that ends with the test. Without a PostgreSQL on this
// machine the test is skipped, or fails when ROLLCALL_REQUIRE_POSTGRES is 1. A short
// run starts none.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	effort.Children(t)
	s, err := Start(t.Context(), o)
	if errors.Is(err, ErrMissing) && os.Getenv(requireVariable) != "1" {
		t.Skipf("skipped: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop postgresql: %v", err)
		}
	})
	return s
}

// NewDatabase makes a database that goes with the test, as a copy of template
// ("" is PostgreSQL's own), and returns its URL.
func (s *Server) NewDatabase(t testing.TB, name, template string) string {
	t.Helper()
	if err := s.Create(t.Context(), name, template); err != nil {
		t.Fatalf("create database: %v", err)
	}
	return s.URL(name)
}
