package sqlstore

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"rollcall/config/effort"
	"rollcall/ledger"
	"rollcall/ledger/transitions"
	"rollcall/smtp"
)

// TestTheSchemaRefusesWhatMustNeverBe: the tables keep the promises by themselves, whatever the code above them does.
func TestTheSchemaRefusesWhatMustNeverBe(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		refusesWhatMustNeverBe(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgresql", func(t *testing.T) {
		refusesWhatMustNeverBe(t, NewLedger(t))
	})
}

func refusesWhatMustNeverBe(t *testing.T, url string) {
	s := effort.Must(Open(t.Context(), url, Options{RetryWait: soon}))(t)
	t.Cleanup(func() { _ = s.Close() })
	w, file := uuid.New(), ledger.NewVerification{ID: uuid.New(), Identity: uuid.New(), Bytes: 10}
	file.Workspace = w
	effort.Must(s.CreateWorkspace(t.Context(), w, "schema"))(t)
	entry := transitions.Entry{Subject: file.ID, Number: 1, Kind: ledger.EntryCharge, Workspace: w, Amount: 1}
	settlement := ledger.Settlement{Lease: ledger.Lease{Verification: file.ID, Epoch: 1}, Number: 1,
		Results:  []ledger.Result{{Email: "a@b.test", Outcome: smtp.Valid, Reason: smtp.Internal}},
		Evidence: []byte("x")}
	payload := effort.Must(ledger.EncodeResults(settlement.Results))(t)
	sound := func(t *tx) error {
		for _, do := range []func() error{
			func() error { return t.Insert(file, "") },
			func() error { return t.Enter(entry) },
			func() error { return t.Settle(settlement, payload) },
			func() error { return t.KeepEvidence(settlement) },
			func() error { return t.Append(file.ID, 0, []byte("x")) },
			func() error { _, err := t.Enrol(beatOf(uuid.UUID{1}), 7); return err },
			func() error { return t.InsertOverride(ledger.ThrottleOverride{ID: w}, time.Second) },
			func() error { return t.weigh(w, 1) },
			func() error { return t.Correct(ledger.Correction{ID: w, Subject: "workspace", Number: 1}) },
			func() error { return t.limit(w, ledger.Limits{}) },
			func() error { return t.limit(w, ledger.Limits{Open: 1, Stored: 1, Unpaid: 1}) },
			func() error { return t.weigh(w, ledger.WeightMax) },
			func() error { return addUser(w, "anna@a.test", "https://a.test 1")(t) },
			func() error { return addMember(w, w, "owner")(t) },
			func() error { return addSession(1, w)(t) },
			func() error { return addLink(1)(t) },
		} {
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	}
	effort.OK(t, s.update(t.Context(), sound))
	for _, c := range whatMustNeverBe(file, entry, settlement, payload) {
		effort.Not(t, s.update(t.Context(), c.do), nil, c.name, "accepted")
	}
}

// refused is a change that the tables must not take.
type refused struct {
	name string
	do   func(t *tx) error
}

// whatMustNeverBe are such changes beside rows that are there.
func whatMustNeverBe(file ledger.NewVerification, entry transitions.Entry, settlement ledger.Settlement,
	payload ledger.Payload) []refused {
	w := file.Workspace
	credit := func(b ledger.Balance) func(t *tx) error {
		return func(t *tx) error { _, err := t.Credit(w, b, 0); return err }
	}
	set := func(column string, value int64) func(t *tx) error {
		return runs(`UPDATE verifications SET `+column+` = ? WHERE id = ?`, value, file.ID[:])
	}
	other, unknown := file, uuid.New()
	other.ID = uuid.New()
	nowhere := file
	nowhere.ID, nowhere.Workspace = uuid.New(), unknown
	stray := settlement
	stray.Lease.Verification = unknown
	later := settlement
	later.Number++
	cases := []refused{
		{"one idempotency key, two verifications", func(t *tx) error { return t.Insert(other, "") }},
		{"a verification of no workspace", func(t *tx) error { return t.Insert(nowhere, "") }},
		{"an entry twice", func(t *tx) error { return t.Enter(entry) }},
		{"an entry of nothing", func(t *tx) error {
			return t.Enter(transitions.Entry{Subject: unknown, Kind: ledger.EntryGrant, Workspace: w})
		}},
		{"less than nothing on a day", func(t *tx) error {
			return t.countOn(0, []transitions.Entry{{Kind: ledger.EntryGrant, Workspace: w, Amount: -1}})
		}},
		{"a day that begins at noon", func(t *tx) error {
			return t.countOn(ledger.Day.Milliseconds()/2, []transitions.Entry{{Kind: ledger.EntryGrant, Workspace: w, Amount: 1}})
		}},
		{"a settlement twice", func(t *tx) error { return t.Settle(settlement, payload) }},
		{"evidence twice", func(t *tx) error { return t.KeepEvidence(settlement) }},
		{"evidence of no verification", func(t *tx) error { return t.KeepEvidence(stray) }},
		{"evidence of no settlement", func(t *tx) error { return t.KeepEvidence(later) }},
		{"a chunk twice", func(t *tx) error { return t.Append(file.ID, 0, []byte("y")) }},
		{"credits from nowhere", credit(ledger.Balance{Available: 1})},
		{"a key of no workspace", runs(
			`INSERT INTO api_keys (id, workspace, label, secret, created) VALUES ('k', ?, '', ?, 1)`, unknown[:], unknown[:])},
		{"an entry of no workspace", func(t *tx) error {
			return t.Enter(transitions.Entry{Subject: unknown, Kind: ledger.EntryGrant, Workspace: unknown, Amount: 1})
		}},
		{"a settlement of no verification", func(t *tx) error { return t.Settle(stray, payload) }},
		{"a chunk of no verification", func(t *tx) error { return t.Append(unknown, 0, []byte("x")) }},
		{"a negative balance", credit(ledger.Balance{Available: -1, Held: 1})},
		{"negative credits in hold", credit(ledger.Balance{Available: 1, Held: -1})},
		{"negative spending", credit(ledger.Balance{Available: 1, Spent: -1})},
		{"more bytes than were declared", set("durable", 11)},
		{"less than no bytes", set("durable", -1)},
		{"a verification that holds less than nothing", set("held", -1)},
		{"a turn of two processes", func(t *tx) error { _, err := t.Enrol(beatOf(uuid.UUID{2}), 7); return err }},
		{"a process of no standing", runs(`UPDATE nodes SET standing = 3 WHERE turn = 7`)},
		{"a correction twice", func(t *tx) error {
			return t.Correct(ledger.Correction{ID: w, Subject: "workspace", Number: 2})
		}},
		{"two corrections at once", func(t *tx) error {
			return t.Correct(ledger.Correction{ID: other.ID, Subject: "workspace", Number: 1})
		}},
		{"an override twice", func(t *tx) error { return t.InsertOverride(ledger.ThrottleOverride{ID: w}, time.Hour) }},
		{"an override that ends when it begins", func(t *tx) error {
			return t.InsertOverride(ledger.ThrottleOverride{ID: unknown}, 0)
		}},
		{"an override that ends after its time", runs(`UPDATE throttle_overrides SET ends = expires + 1`)},
		{"a weight of nothing", func(t *tx) error { return t.weigh(w, 0) }},
		{"a weight of too much", func(t *tx) error { return t.weigh(w, ledger.WeightMax+1) }},
		{"a limit of less than nothing", func(t *tx) error { return t.limit(w, ledger.Limits{Open: -1}) }},
		{"less than no bytes stored", func(t *tx) error { return t.limit(w, ledger.Limits{Stored: -1}) }},
		{"less than none unpaid", func(t *tx) error { return t.limit(w, ledger.Limits{Unpaid: -1}) }},
		{"limits of no workspace", func(t *tx) error { return t.limit(unknown, ledger.Limits{Open: 1}) }},
		{"a verification gone from its settlements", runs(`DELETE FROM verifications WHERE id = ?`, file.ID[:])},
		{"a weight of no workspace", func(t *tx) error { return t.weigh(unknown, 2) }},
		{"one email, two users", addUser(unknown, "anna@a.test", "")},
		{"one identity, two users", addUser(unknown, "ben@a.test", "https://a.test 1")},
		{"a user twice", addUser(w, "ben@a.test", "")},
		{"a member of no workspace", addMember(unknown, w, "owner")},
		{"a member who is nobody", addMember(w, unknown, "owner")},
		{"a member of no role", addMember(w, w, "king")},
		{"a session of nobody", addSession(2, unknown)},
		{"a session twice", addSession(1, w)},
		{"a link twice", addLink(1)},
		{"a link that ends after its time", runs(`UPDATE links SET ends = expires + 1`)},
		{"a user gone from the workspace", runs(`DELETE FROM users`)},
		{"another counter of turns", runs(`INSERT INTO cluster_turn (one, turn) VALUES (2, 0)`)},
	}
	for _, column := range []string{"count_valid", "count_invalid", "count_catch_all", "count_unknown",
		"count_error", "count_cancelled"} {
		cases = append(cases, refused{"more outcomes than addresses: " + column, func(t *tx) error {
			if err := set("total", 1)(t); err != nil {
				return err
			}
			return set(column, 2)(t)
		}})
	}
	return cases
}

// runs is a change by one statement.
func runs(statement string, args ...any) func(t *tx) error {
	return func(t *tx) error {
		_, err := t.Exec(statement, args...)
		return err
	}
}

func addUser(id uuid.UUID, email, oidc string) func(t *tx) error {
	return runs(`INSERT INTO users (id, email, folded, name, password, oidc, created) VALUES (?, ?, ?, '', '', ?, 1)`,
		id[:], email, []byte(email), oidc)
}

func addMember(workspace, user uuid.UUID, role string) func(t *tx) error {
	return runs(`INSERT INTO memberships (workspace, user_id, role, created) VALUES (?, ?, ?, 1)`, workspace[:], user[:], role)
}

func addSession(id byte, user uuid.UUID) func(t *tx) error {
	return runs(`INSERT INTO user_sessions (id, user_id, created, seen, ends, agent, network) VALUES (?, ?, 1, 1, 9, '', '')`,
		[]byte{id}, user[:])
}

func addLink(id byte) func(t *tx) error { return runs(insertLink, linkRow([]byte{id}, 9)...) }
