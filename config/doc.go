// Package config turns a TOML file and the environment into the settings of a node.
//
// Every setting has a default, so a node runs with no file at all. Load reads the defaults, then the file, then the
// environment: the key "port" of the table "smtp" is ROLLCALL_SMTP_PORT there. It refuses unknown keys and unusable
// values with file, line and column, and says what to write instead. It guesses nothing and ignores nothing.
//
// LoadThrottle reads throttle.toml, the limits of receivers. ThrottleFile.Watch reads it again whenever it changes.
//
// The package opens no socket and no ledger, and the only secret it knows is the password that a ledger URL may
// carry; Show hides it.
//
// Read Config, Load and Throttle first.
package config
