// Package config turns a TOML file and the environment into the settings of a node.
//
// Every setting has a default, so a node runs with no file at all. Load reads
// the defaults, then the file, then the environment: the key "port" of the
// table "smtp" is ROLLCALL_SMTP_PORT there. What it does not know or cannot
// use it refuses, with file, line and column, and it says what to write
// instead. Nothing is guessed and nothing is ignored.
//
// LoadThrottle reads throttle.toml, the file with what receivers allow;
// WatchThrottle reads it again whenever it changes.
//
// The package opens no socket and no ledger, and it knows no secret but the
// password that a ledger URL may carry; Show hides that one.
//
// Read Config, Load and Throttle first.
package config
