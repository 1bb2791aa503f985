package engine

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"rollcall/ledger"
)

// Scan reads the columns of a row.
type Scan = func(into ...any) error

// Asker puts questions to the database: a Tx, or what has one.
type Asker interface {
	Row(query string, args ...any) Row
	Each(scan func(rows *sql.Rows) error, query string, args ...any) error
}

// List reads every row of an answer. what begins its error.
func List[T any](t Asker, what string, read func(Scan) (T, error), query string, args ...any) ([]T, error) {
	var list []T
	err := t.Each(func(rows *sql.Rows) error {
		one, err := read(rows.Scan)
		list = append(list, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// Pairs reads an answer of two columns into a map. what begins its error.
func Pairs[K comparable, V any](t Asker, what, query string, args ...any) (map[K]V, error) {
	all := map[K]V{}
	err := t.Each(func(rows *sql.Rows) error {
		var key K
		var value V
		err := rows.Scan(&key, &value)
		all[key] = value
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// Find reads one row; nil when there is none. what begins its error.
func Find[T any](t Asker, what string, read func(Scan) (T, error), query string, args ...any) (*T, error) {
	one, err := read(t.Row(query, args...).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &one, nil
}

// Only reads a row of one column.
func Only[T any](scan Scan) (value T, err error) {
	err = scan(&value)
	return value, err
}

// Value reads one column of one row; the zero value when there is no row. what begins its error.
func Value[T any](t Asker, what, query string, args ...any) (value T, err error) {
	found, err := Find(t, what, Only[T], query, args...)
	if found != nil {
		value = *found
	}
	return value, err
}

// At reads a column of milliseconds into a time.
func At(into *time.Time) sql.Scanner { return moment{into} }

type moment struct{ into *time.Time }

// Scan takes the number of a column.
func (m moment) Scan(from any) error {
	ms, is := from.(int64)
	if !is {
		return fmt.Errorf("a time in a column of type %T", from)
	}
	*m.into = ledger.Clock(ms)
	return nil
}
