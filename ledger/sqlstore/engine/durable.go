package engine

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// askDurable turns synchronous_commit on for this connection where a role, a database or
// the server turned it off, and keeps local, remote_write and remote_apply: with each of
// them a commit is on the server's disk before it is answered (PostgreSQL 15 manual,
// 20.5.1). Set here, it also stays when somebody changes the default later.
const askDurable = `SELECT current_setting('fsync'), current_setting('full_page_writes'),
	set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
		ELSE current_setting('synchronous_commit') END, false)`

// checkDurable refuses a connection to PostgreSQL that could lose what was committed on it
// when the server, or its machine, crashes. CockroachDB has no such settings: it syncs each
// commit on most of its replicas. ErrDurability.
func checkDurable(ctx context.Context, c *pgx.Conn) error {
	version, err := c.PgConn().Exec(ctx, `SELECT version()`).ReadAll()
	if err != nil {
		return fmt.Errorf("ask for the database's version: %w", err)
	}
	if dialectOf(string(version[0].Rows[0][0])).restarts {
		return nil
	}
	answers, err := c.PgConn().Exec(ctx, askDurable).ReadAll()
	if err != nil {
		return fmt.Errorf("ask whether commits are durable: %w", err)
	}
	for i, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if value := string(answers[0].Rows[0][i]); value == "off" {
			return fmt.Errorf("%w: its %s is off: run `ALTER SYSTEM SET %s = on;` and `SELECT pg_reload_conf();` there",
				ErrDurability, name, name)
		}
	}
	return nil
}

// checkPragmas refuses an embedded database that does not sync each commit, or does not
// keep the promises of its tables: SQLite ignores a pragma that it cannot follow.
// ErrDurability.
func checkPragmas(ctx context.Context, db *sql.DB) error {
	for _, p := range []struct {
		name   string
		values string // that are right, each between two spaces
	}{
		{"journal_mode", " wal "},
		{"synchronous", " 2 3 "}, // FULL, EXTRA
		{"foreign_keys", " 1 "},
	} {
		var value string
		if err := db.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(&value); err != nil {
			return fmt.Errorf("ask for pragma %s: %w", p.name, err)
		}
		if !strings.Contains(p.values, " "+value+" ") {
			return fmt.Errorf("%w: SQLite says that pragma %s is %s: put the ledger on a local disk, not on a network disk",
				ErrDurability, p.name, value)
		}
	}
	return nil
}
