package sqlstore_test

import (
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"rollcall/ledger/ledgertest"
	"rollcall/ledger/ledgertest/postgres"
	"rollcall/ledger/sqlstore"
)

// rightful makes a ledger on PostgreSQL, and its users with the rights that stand
// in docs/start/database.md. It gives the URL of the owner.
func rightful(t *testing.T) (owner string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/start/database.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- rights")
	_, rest, _ = strings.Cut(rest, "```sql\n")
	rights, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the document has no rights")
	}
	owner = sqlstore.NewLedger(t)
	// Users are of the server, and there may be tests before this one.
	for _, user := range []string{nodeUser, auditUser} {
		run(t, owner, `DO $$ BEGIN CREATE USER `+user+`; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	}
	run(t, owner, rights)
	return owner
}

// The users of the document.
const (
	nodeUser  = "rollcall_node"
	auditUser = "rollcall_audit"
)

// TestTheRightsOfTheDocument: what a node may do is not enough to change the books.
// That it is enough for a node is shown by TestConformance.
func TestTheRightsOfTheDocument(t *testing.T) {
	owner := rightful(t)
	book := openAt(t, as(t, owner, nodeUser))
	_ = ledgertest.NewDesk(t, book, 100)
	for _, c := range []struct{ user, statement string }{
		{nodeUser, `UPDATE entries SET amount = 1`},
		{nodeUser, `DELETE FROM entries`},
		{nodeUser, `UPDATE operator_log SET detail = ''`},
		{nodeUser, `DELETE FROM operator_log`},
		{nodeUser, `UPDATE corrections SET findings = ''`},
		{nodeUser, `DELETE FROM corrections`},
		{auditUser, `INSERT INTO corrections SELECT * FROM corrections`},
		{nodeUser, `DELETE FROM workspace_weights`},
		{nodeUser, `DELETE FROM settlements`},
		{nodeUser, `UPDATE evidence SET data = ''`},
		{nodeUser, `DELETE FROM workspace_limits`},
		{nodeUser, `DELETE FROM workspaces`},
		{nodeUser, `UPDATE secrets SET value = ''`},
		{nodeUser, `ALTER TABLE workspaces DROP CONSTRAINT balance`},
		{nodeUser, `DELETE FROM cluster_turn`},
		{nodeUser, `INSERT INTO cluster_turn VALUES (2, 0)`},
		{nodeUser, `DELETE FROM ledger_clock`},
		{nodeUser, `INSERT INTO schema_steps VALUES (1, 1, 0)`},
		{nodeUser, `DELETE FROM credit_days`},
		{auditUser, `UPDATE credit_days SET credits = 1`},
		{nodeUser, `UPDATE workspace_log SET detail = ''`},
		{nodeUser, `DELETE FROM workspace_log`},
		{nodeUser, `DELETE FROM users`},
		{auditUser, `UPDATE users SET password = ''`},
		{auditUser, `INSERT INTO memberships SELECT * FROM memberships`},
		{auditUser, `DELETE FROM user_sessions`},
		{auditUser, `UPDATE links SET ends = 1`},
		{auditUser, `DELETE FROM sign_in_attempts`},
		{auditUser, `DELETE FROM workspace_log`},
		{auditUser, `UPDATE nodes SET standing = 1`},
		{auditUser, `UPDATE workspaces SET name = ''`},
		{auditUser, `DELETE FROM evidence`},
		{auditUser, `UPDATE throttle_overrides SET ends = 1`},
		{auditUser, `UPDATE workspace_weights SET weight = 1`},
		{auditUser, `UPDATE workspace_limits SET open = 1`},
		{auditUser, `DELETE FROM verifications`},
		{auditUser, `INSERT INTO secrets VALUES ('x', '', 0)`},
	} {
		conn, err := pgx.Connect(t.Context(), as(t, owner, c.user))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), c.statement); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s may %s: %v", c.user, c.statement, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	reader, err := sqlstore.OpenReadOnly(t.Context(), as(t, owner, auditUser), sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if report, err := reader.Audit(t.Context()); err != nil || report.Entries != 1 {
		t.Errorf("audit as rollcall_audit: %+v, %v", report, err)
	}
	if _, err := reader.ReadNodes(t.Context()); err != nil {
		t.Errorf("the roll of nodes as rollcall_audit: %v", err)
	}
}

// run runs statements as the owner of a database.
func run(t *testing.T, address, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err == nil {
		_, err = conn.Exec(t.Context(), statements)
	}
	if err == nil {
		err = conn.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// as gives the URL of a database for another user.
func as(t *testing.T, address, user string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", user)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestTheNextHostIsTried: a URL may name several nodes of a database.
func TestTheNextHostIsTried(t *testing.T) {
	address := postgres.Empty(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = nobody.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	several := strings.Replace(address, u.Host, nobody.Addr().String()+","+u.Host, 1)
	if err := sqlstore.Migrate(t.Context(), several); err != nil {
		t.Fatal(err)
	}
	if err := openAt(t, several).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
