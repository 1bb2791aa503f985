package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"rollcall/ledger"
)

// invitations are those of an email that can be used now.
const invitations = `SELECT ` + linkColumns + ` FROM links WHERE folded = ? AND ends > {now} AND purpose = 'invite'`

// Invitations lists the invitations of an email that can be used, newest first.
func (s *Store) Invitations(ctx context.Context, email string) (list []ledger.Link, err error) {
	if ledger.CheckEmail(email) != nil {
		return nil, nil // what is no email, no database need be asked for
	}
	err = s.view(ctx, func(t *tx) error {
		return t.each(func(rows *sql.Rows) error {
			l, err := scanLink(rows.Scan)
			list = append(list, l.Link)
			return err
		}, invitations, []byte(ledger.FoldEmail(email)))
	})
	if err != nil {
		return nil, fmt.Errorf("list the invitations of somebody: %w", err)
	}
	slices.SortFunc(list, func(a, b ledger.Link) int {
		return cmp.Or(b.Created.Compare(a.Created), slices.Compare(b.ID[:], a.ID[:]))
	})
	return list, nil
}

// UserByOIDC finds who signs in by a provider.
func (s *Store) UserByOIDC(ctx context.Context, identity string) (ledger.User, error) {
	if ledger.CheckIdentity(identity) != nil {
		return ledger.User{}, fmt.Errorf("read a user by identity: %w", ledger.ErrNoSuchUser)
	}
	var u *ledger.User
	err := s.view(ctx, func(t *tx) (err error) {
		u, err = t.UserOfOIDC(identity)
		return err
	})
	if err == nil && u == nil {
		err = ledger.ErrNoSuchUser
	}
	if err != nil {
		return ledger.User{}, fmt.Errorf("read a user by identity: %w", err)
	}
	return *u, nil
}
