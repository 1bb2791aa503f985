package sqlstore

import "rollcall/ledger/sqlstore/engine"

// What a ledger is refused with; package engine says what each means.
var (
	ErrURL           = engine.ErrURL
	ErrInUse         = engine.ErrInUse
	ErrNoLedger      = engine.ErrNoLedger
	ErrSchemaOld     = engine.ErrSchemaOld
	ErrSchemaNew     = engine.ErrSchemaNew
	ErrTableInUse    = engine.ErrTableInUse
	ErrSchemaChange  = engine.ErrSchemaChange
	ErrIsolation     = engine.ErrIsolation
	ErrDurability    = engine.ErrDurability
	ErrReadOnly      = engine.ErrReadOnly
	ErrClosed        = engine.ErrClosed
	ErrNotEmbedded   = engine.ErrNotEmbedded
	ErrBackupExists  = engine.ErrBackupExists
	ErrBackupRoom    = engine.ErrBackupRoom
	ErrBackupDamaged = engine.ErrBackupDamaged
	ErrUnavailable   = engine.ErrUnavailable
	ErrUnknown       = engine.ErrUnknown
)
