package sqlstore

import (
	"database/sql"
	"strings"

	"rollcall/ledger"
	"rollcall/ledger/sqlstore/engine"
)

// Learn writes facts, in place of those with the same keys.
func (t processRows) Learn(facts []ledger.Fact) error {
	return engine.InHandfuls(facts, func(part []ledger.Fact) error {
		args := make([]any, 0, 3*len(part))
		for _, f := range part {
			args = append(args, f.Key, append([]byte{}, f.Data...), ledger.Millis(f.Expires))
		}
		_, err := t.Exec(`INSERT INTO receiver_facts (receiver, data, expires, updated) VALUES (?, ?, ?, {now})`+
			strings.Repeat(`, (?, ?, ?, {now})`, len(part)-1)+`
			ON CONFLICT (receiver) DO UPDATE SET data = excluded.data, expires = excluded.expires,
			updated = excluded.updated`, args...)
		return err
	})
}

// Known reads the facts of some keys that have not expired.
func (t processRows) Known(keys []string) (facts []ledger.Fact, err error) {
	err = engine.InHandfuls(keys, func(part []string) error {
		args := make([]any, 0, len(part))
		for _, key := range part {
			args = append(args, key)
		}
		return t.Each(func(rows *sql.Rows) error {
			f := ledger.Fact{Data: []byte{}}
			var data []byte
			var expires int64
			err := rows.Scan(&f.Key, &data, &expires)
			f.Data = append(f.Data, data...) // an empty one may be read as nil
			f.Expires = ledger.Clock(expires)
			facts = append(facts, f)
			return err
		}, `SELECT receiver, data, expires FROM receiver_facts WHERE receiver IN (?`+
			strings.Repeat(`, ?`, len(part)-1)+`) AND expires > {now}`, args...)
	})
	return facts, err
}
