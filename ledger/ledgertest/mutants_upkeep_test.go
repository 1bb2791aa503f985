package ledgertest_test

const (
	sqlOpen    = "ledger/sqlstore/engine/open.go"
	sqlMigrate = "ledger/sqlstore/engine/migrate.go"
	sqlDialect = "ledger/sqlstore/engine/dialect.go"
	sqlClock   = "ledger/sqlstore/engine/dialect.go"
)

// upkeep are the mutants of what is around the transactions: opening, migrating, sweeping.
var upkeep = []mutant{
	// What a database must not forget.
	{"synchronous_commit left off", sqlDisk, "WHEN 'off' THEN 'on'", "WHEN 'never' THEN 'on'", durable},
	{"synchronous_commit of others overridden", sqlDisk, "ELSE current_setting('synchronous_commit') END", "ELSE 'on' END", durable},
	{"settings not looked at", sqlDisk, `value == "off" {`, `value == "never" {`, durable},
	{"durability asked of nobody", sqlServer, "return checkDurable(ctx, c)", "return nil", durable},
	{"an audit refused", sqlServer, "err != nil || a.readOnly {", "err != nil {", durable},
	{"an embedded ledger asked nothing", sqlOpen, "err := checkPragmas(ctx, db); err != nil {",
		"err := checkPragmas(ctx, db); err != nil && s == nil {", durable},
	{"writers not asked at the start", sqlOpen, "err := db.PingContext(asking); err != nil {",
		"err := db.PingContext(asking); err != nil && s == nil {", durable},
	{"no log ahead of the file", sqlDisk, `" wal "`, `" wal memory "`, durable},
	{"a commit not synced", sqlDisk, `" 2 3 "`, `" 1 2 3 "`, durable},
	{"tables without their promises", sqlDisk, `{"foreign_keys", " 1 "}`, `{"foreign_keys", " 0 1 "}`, durable},
	{"an embedded commit not synced", sqlOpen, `"synchronous(FULL)"`, `"synchronous(NORMAL)"`, opened},
	{"an embedded ledger without foreign keys", sqlOpen, `"foreign_keys(1)"`, `"foreign_keys(0)"`, opened},

	// Opening.
	{"erased bytes not overwritten", sqlOpen, `"secure_delete(ON)"`, `"secure_delete(OFF)"`, sweeps},
	{"a ledger that others may read", sqlOpen, "os.O_CREATE|os.O_RDWR, 0o600)", "os.O_CREATE|os.O_RDWR, 0o644)", opened},
	{"leases of before kept", "ledger/sqlstore/store.go", "WHERE lease_node IS NOT NULL`", "WHERE lease_node IS NULL`", opened},
	{"processes of before kept", "ledger/sqlstore/store.go", "DELETE FROM nodes`", "DELETE FROM nodes WHERE turn < 0`", opened},
	{"an old schema opened", sqlOpen, "case version < m.Version:", "case version < 0:", opened},
	{"a newer schema opened", sqlOpen, "case version > m.Version:", "case version > 1000*m.Version:", opened},
	{"a password told", sqlOpen, `return scheme + ":…"`, `return scheme + ":" + rest`, opened},
	{"a reader that writes", sqlOpen, "if a.readOnly {\n\t\treturn s, nil", "if a.patient {\n\t\treturn s, nil", opened},

	// Migrations.
	{"a newer schema migrated", sqlMigrate, "if version > s.schema.Version {", "if version > 1000*s.schema.Version {", opened},
	{"another step recorded", sqlMigrate, "{now})`, version, step)", "{now})`, version, step+1)", migrations},
	{"steps of before taken for this one", sqlMigrate, "version = ? AND step = ?)", "version = ? AND step < ?)", migrations},
	{"steps recorded for ever", sqlMigrate, "schema_steps WHERE version <= ?", "schema_steps WHERE version < ?", migrations},
	{"a failed change of the schema not told", sqlMigrate, "case state == schemaChangeFailed:", `case state == "never":`, migrations},
	{"a failed change of the schema run again", sqlServer, "case schemaChangeFailed: //", `case "never": //`, migrations},
	{"changes of the schema not apart", sqlServer, `d.apart, d.oneMigrates = true, ""`, `d.apart, d.oneMigrates = false, ""`, migrations},
	{"a migration that nobody passes", sqlServer, `"0", milliseconds(tableLockTime)`, `"0", "0"`, migrations},
	{"a migration that waits for ever", sqlMigrate, "time.Since(begun) > s.tableLocks:", "time.Since(begun) < 0:", migrations},
	{"a migration that does not wait", sqlMigrate, "case state != lockNotAvailable:", "default:", migrations},

	// Connections and what their errors mean.
	{"transactions of the default isolation", sqlServer, `const beginServer = "BEGIN ISOLATION LEVEL SERIALIZABLE"`, `const beginServer = "BEGIN"`, opened},
	{"audits of the default isolation", sqlServer, `snapshot: "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;`,
		`snapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;`, opened},
	{"readers of the default isolation", sqlServer, `settings["default_transaction_isolation"] = "serializable"`,
		`settings["default_transaction_isolation"] = "read committed"`, opened},
	{"a COMMIT that rolled back", sqlServer, `tag.String() != "COMMIT" {`, `tag.String() == "" {`, opened},
	{"a paused node that blocks", sqlServer, `"idle_in_transaction_session_timeout": milliseconds(idleTime)`,
		`"idle_in_transaction_session_timeout": "0"`, opened},
	{"a deadlock that is final", sqlServer, `case "40001", "40P01":`, `case "40001":`, attempts},
	{"an ambiguous commit taken for none", sqlServer, `case "40003":`, `case "40999":`, attempts},
	{"a busy file that is final", sqlDialect, "whyBusy, again: true", "whyBusy", attempts},
	{"a full disk that is final", sqlDialect, "return fault{why: whyResources, passing: true}", "return fault{why: whyResources}", attempts},

	// Sweeps.
	{"a log that is not emptied", sqlDisk, "wal_checkpoint(TRUNCATE)", "wal_checkpoint(PASSIVE)", sweeps},
	{"a log said to be folded", sqlDisk, "return busy == 0, nil", "return true, nil", sweeps},
	{"a failure that ends the sweep", sqlSweep, "if left == 0 || w.away(ctx) {", "if left == 0 || w.failed > 0 || w.away(ctx) {", sweeps},
	{"a failure that is not told", sqlSweep, "w.first == nil {\n\t\tw.first", "w.first != nil {\n\t\tw.first", sweeps},
	{"a failure counted as a change", sqlSweep, "w.done(err, c.due.what, id) {", "!w.done(err, c.due.what, id) {", sweeps},
	{"a sweep of a database that is away", sqlSweep, "w.silent >= silentMax", "w.silent >= 1000*silentMax", sweeps},
	{"nothing behind those that fail", sqlSweep, "\t\t\t\tmore = true\n", "\t\t\t\tmore = false\n", sweeps},
	{"those that failed tried first", sqlSweep, "if w.late.has(at) {", "if w.late.has(at) && left < 0 {", sweeps},
	{"a page full of those that failed", sqlSweep, "left+w.late.count())", "left)", sweeps},
	{"those that failed never tried again", sqlSweep, "\tw.tryLate(ctx, causes)\n", "", sweeps},
	{"a row that stays due not told", sqlSweep, "w.isDue(ctx, c, id); still {", "w.isDue(ctx, c, id); still && id == uuid.Nil {", sweeps},
	{"unswept ones not counted", sqlSweep, "s.unswept.Set(float64(s.late.count()))", "s.unswept.Set(0)", sweeps},
	{"a sweep that forgets to forget", sqlSweep, "\tw.ended(ctx)\n", "", sweeps},

	// Clocks.
	{"a clock that is not believed and used", sqlClock, "\t\treturn 0, fmt.Errorf(\"%w: %s\"", "\t\treturn now, nil\n\t\treturn 0, fmt.Errorf(\"%w: %s\"", clocks},
	{"clocks far apart", sqlClock, "apart > apartMax {", "apart > 9999*apartMax {", clocks},
	{"a node ahead of its ledger", sqlClock, "l.ledger.Sub(l.node).Abs(); !", "l.ledger.Sub(l.node); !", clocks},
	{"a jump of a day beside a process", sqlClock, "l.ledger.Sub(expected), jumpMax,", "l.ledger.Sub(expected), 24*jumpMax,", clocks},
	{"time that a process ran not counted", sqlClock, "c.last.ledger.Add(l.ran - c.last.ran)", "c.last.ledger", clocks},
	{"a jump believed at once", sqlClock, "left > 0 {", "left > trustAfter {", clocks},
	{"a second jump believed with the first", sqlClock, ".Abs() > jumpMax {", ".Abs() > 9999*jumpMax {", clocks},
	{"a jump that stood while the clocks were apart", sqlClock, "\t\tc.jump = nil\n", "", clocks},
	{"a jump that is over and not forgotten", sqlClock, "c.last, c.known, c.jump = l, true, nil", "c.last, c.known = l, true", clocks},
	{"a clock that is mended taken for a jump", sqlClock, "if l.ledger.Before(expected) {", "if l.ledger.IsZero() {", clocks},
	{"the last sweep not noted", sqlClock, "SET swept = ?", "SET swept = swept + 0 * ?", clocks},
	{"the node's clock not asked", sqlClock, "if !s.Embedded() {", "if s.Embedded() {", clocks},
}
