package sqlstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
	"rollcall/ledger/sqlstore/engine"
	"rollcall/smtp"
)

// TestAServerIsMigratedByMigrateAlone follows a database from empty to one of a newer program.
func TestAServerIsMigratedByMigrateAlone(t *testing.T) {
	url := postgres.Empty(t)
	opens := map[string]func(context.Context, string, sqlstore.Options) (*sqlstore.Store, error){
		"open": sqlstore.Open, "open for reading": sqlstore.OpenReadOnly}
	for _, c := range []struct {
		name   string
		before func()
		want   error
	}{
		{"empty", func() {}, engine.ErrNoLedger},
		{"migrated, twice", func() {
			for range 2 {
				effort.OK(t, sqlstore.Migrate(t.Context(), url))
			}
		}, nil},
		{"of before", func() { run(t, url, `DELETE FROM schema_versions`) }, engine.ErrSchemaOld},
		{"of the future", func() {
			run(t, url, `INSERT INTO schema_versions (version, applied) VALUES (1000, 0)`)
		}, engine.ErrSchemaNew},
	} {
		c.before()
		for name, open := range opens {
			s, err := open(t.Context(), url, sqlstore.Options{})
			effort.ErrIs(t, err, c.want, fmt.Sprintf("%s, %s", c.name, name))
			if err == nil {
				err = s.Close()
			}
			effort.ErrorIf(t, c.want == nil && err != nil, "%v", err)
		}
	}
	effort.ErrIs(t, sqlstore.Migrate(t.Context(), url), engine.ErrSchemaNew, "migrate what is of the future")
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	for range effort.Cases(1) {
		url := postgres.Empty(t)
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				effort.ErrIs(t, sqlstore.Migrate(t.Context(), url), nil)
			})
		}
		all.Wait()
		ledgertest.NewFixture(t, openAt(t, url), 1).Audits()
	}
}

// TestAServersLeasesOutliveAnOpen: other nodes are at work there.
func TestAServersLeasesOutliveAnOpen(t *testing.T) {
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	_, l := d.Prepares(2)
	d.Book = openAt(t, url)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	effort.Is(t, d.Sees(l.Verification).Epoch, l.Epoch, "epoch after")
}

func TestAReaderOfAServerWritesNothing(t *testing.T) {
	url := sqlstore.NewLedger(t)
	d := ledgertest.NewFixture(t, openAt(t, url), 9)
	_, l := d.Prepares(2)
	d.Settles(l, 1, 0, 0, smtp.Valid)
	reader := effort.Must(sqlstore.OpenReadOnly(t.Context(), url, sqlstore.Options{}))(t)
	report, err := reader.Audit(t.Context())
	effort.ErrorIf(t, err != nil || len(report.Violations) != 0 || report.Outcomes != 1 || report.Entries != 3,
		"audit %+v, %v", report, err)
	_, err = reader.Grant(t.Context(), uuid.New(), d.Workspace, 1, "")
	effort.ErrorIf(t, !errors.Is(err, engine.ErrReadOnly), "grant: got %v, want ErrReadOnly", err)
	effort.OK(t, reader.Close())
}

// TestNothingSecretIsTold: neither errors nor the log hold the password of a URL or what is in a row.
func TestNothingSecretIsTold(t *testing.T) {
	var log bytes.Buffer
	o := sqlstore.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	nobody := effort.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := nobody.Addr().String()
	effort.OK(t, nobody.Close())
	server := postgres.Shared(t)
	for _, c := range []struct {
		name, url string
		want      error // nil: any
	}{
		{"nobody there", "postgresql://rollcall:hunter2@" + address + "/book?sslmode=disable", nil},
		{"no such database", strings.Replace(server.URL("nowhere"), "rollcall@", "rollcall:hunter2@", 1), nil},
		{"no such role", strings.Replace(server.URL("postgres"), "rollcall@", "nobody:hunter2@", 1), nil},
		{"no port", "postgres://rollcall:hunter2@host:port/book", engine.ErrURL},
		{"an at sign too many", "postgres://rollcall:hunter2@3@host:1/book", engine.ErrURL},
		{"a broken escape", "postgres://rollcall:hunter2%zz@host/book", engine.ErrURL},
		{"no certificate", "postgresql://rollcall:hunter2@host/book?sslmode=verify-full&sslrootcert=/nowhere/ca",
			engine.ErrURL},
		{"another database", "mysql://rollcall:hunter2@host/book", engine.ErrURL},
	} {
		_, opened := sqlstore.Open(t.Context(), c.url, o)
		_, read := sqlstore.OpenReadOnly(t.Context(), c.url, o)
		for _, err := range []error{opened, read, sqlstore.Migrate(t.Context(), c.url)} {
			effort.ErrorIf(t, err == nil || c.want != nil && !errors.Is(err, c.want),
				"%s: got %v, want %v", c.name, err, c.want)
			effort.Lacks(t, fmt.Sprintf("%v %+v", err, err), "hunter2", c.name, "the password is told")
		}
	}

	url := sqlstore.NewLedger(t)
	store := effort.Must(sqlstore.Open(t.Context(), url, o))(t)
	defer func() { _ = store.Close() }()
	d := ledgertest.NewFixture(t, store, 0)
	run(t, url, `ALTER TABLE api_keys ADD CONSTRAINT never CHECK (label <> 'hunter2')`)
	_, err := store.CreateKey(t.Context(), ledger.Key{ID: "key", Workspace: d.Workspace, Label: "hunter2"})
	effort.ErrorIf(t, err == nil || strings.Contains(err.Error(), "hunter2") ||
		strings.Contains(log.String(), "hunter2"), "got %v and the log %s", err, log.String())
}

// TestTheURLMayNameAFolderOfASocket as pgx and libpq have it.
func TestTheURLMayNameAFolderOfASocket(t *testing.T) {
	for _, c := range []struct{ name, url string }{
		{"postgresql", "postgresql:///book?host=%2Fnowhere&user=rollcall"},
		{"postgres", "postgres:///book?host=/nowhere&user=rollcall"},
	} {
		_, err := sqlstore.Open(t.Context(), c.url, sqlstore.Options{})
		if err == nil || errors.Is(err, engine.ErrURL) || !strings.Contains(err.Error(), "/nowhere/.s.PGSQL.5432") {
			t.Errorf("%s: got %v, want that nobody listens in the folder", c.name, err)
		}
	}
}
